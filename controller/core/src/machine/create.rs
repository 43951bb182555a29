//! No VM yet: intent first, then get-or-create, then what identifies the VM.
//!
//! Order (S1, S2; MC-1, MC-4): the finalizer is stored, the phase `Pending` is written as
//! the intent (that write is also the live read which shows that the Machine is not being deleted), then CreateMachine
//! with the uid as its key. A crash anywhere leaves a Machine whose next plan repeats the call and gets the same VM.
//! May not: read a Node, end the Machine's life otherwise than by phase `Failed`.

use jiff::{SignedDuration, Timestamp};

use super::delete;
use super::observed::{ClassView, DriverView, Observed};
use super::outcome::Lost;
use super::status::{StatusChange, crumb};
use super::step::{Plan, Step, Why};
use crate::api::lenient::GoDuration;
use crate::api::{Machine, OperationReason, OperationState, OperationType, Phase, meta, validity};
use crate::circuit_breaker::{Admission, Cause, CircuitBreaker, Operation, is_suspended};
use crate::class::{Readiness, Recipe};
use crate::driver::{Call, Code, Initialization, Reaction, Reason, Vm, VmState};
use crate::ledger::Trouble;
use crate::sight::{Judging, later};

/// How often a VM is looked for that may have been made before its class was changed.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// Prefix of the original's description of a failed creation (MC-7).
const PROVIDER_SAYS: &str = "Cloud provider message - ";

/// Decides what a Machine without a recorded VM needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if let Some(vm) = &seen.calls.vm {
        return made(seen, vm, now);
    }
    let recipe = match prerequisites(seen, now) {
        Ok(recipe) => recipe,
        Err(plan) => return plan,
    };
    if let Some(plan) = perhaps_made(seen, recipe, now) {
        return plan;
    }
    if lacks_token(seen, recipe) {
        return blocked(seen, Why::TargetAway, now);
    }
    let trouble = seen.calls.failed(Call::Create);
    if let Some(plan) = trouble.and_then(|trouble| ended(seen, trouble, now)) {
        return plan;
    }
    let admission = seen.admit(Operation::Create, now);
    if let Admission::Deny(breaker, look) = admission
        && trouble.is_none_or(|trouble| Cause::of(&trouble.failure).is_none() && trouble.retry_at <= now)
    {
        return suspended(seen, breaker, look, now);
    }
    if let Some(plan) = trouble.and_then(|trouble| troubled(seen, trouble, recipe, now)) {
        return plan;
    }
    if let Some(plan) = out_of_time(seen, now) {
        return plan;
    }
    let probe = (admission == Admission::Probe).then_some(Step::Probe(Operation::Create));
    let mut steps: Vec<Step> = probe.into_iter().chain([intent(seen, recipe, now)]).collect();
    if recipe.needs_token && seen.settings.has_target {
        steps.push(Step::EnsureToken);
    }
    steps.push(Step::Call(Call::Create));
    Plan::act(steps, Why::NoVm)
}

/// There may be a VM that no repeated CreateMachine finds: the class or the driver's locator has changed since a VM was asked for; or the
/// Machine names the id of a VM and has no record of a creation, as after a restore from a backup. Before a VM is asked for, the driver says
/// twice that there is none.
fn perhaps_made(seen: &Observed<'_>, recipe: &Recipe, now: Timestamp) -> Option<Plan> {
    let machine = seen.machine;
    let is_found_again = match machine.creation_request() {
        Some(asked) => asked.is_same(&recipe.essentials) && asked.has_same_place(&recipe.essentials),
        None => machine.provider_id().is_none(),
    };
    if is_found_again || has_none(seen, now) {
        return None;
    }
    let again = seen.calls.doubt_again(began(seen, now), None, LOOK_AGAIN, now);
    if again <= now {
        return Some(Plan::act(vec![Step::Call(Call::Status)], Why::FindingVm));
    }
    let plan = match seen.calls.failed(Call::Status) {
        Some(trouble) => told(seen, trouble, now).plan(seen.machine, Why::FindingVm),
        None => Plan::rest(Why::FindingVm),
    };
    Some(plan.or_at(Some(again), now))
}

/// Whether it is certain that no VM was made by what was asked for.
fn has_none(seen: &Observed<'_>, now: Timestamp) -> bool {
    seen.calls.unmade.is_some() || seen.calls.lost(began(seen, now), None) == Some(Lost::Gone)
}

/// From when on answers about the VM count: since the phase began; of a Machine without a status, since it was made.
fn began(seen: &Observed<'_>, now: Timestamp) -> Timestamp {
    let phase = seen.machine.phase_since();
    phase.or_else(|| meta::created(&seen.machine.metadata)).unwrap_or(now)
}

/// The write that says that a VM is asked for, and with what. The write also serves as the live read of the Machine; where the status says
/// all this already, the Machine is only read. The phase begins now, also for a Machine that has waited: the creation timeout does not
/// count the time before a VM is asked for.
fn intent(seen: &Observed<'_>, recipe: &Recipe, now: Timestamp) -> Step {
    let machine = seen.machine;
    let is_asked = machine.creation_request() == Some(&recipe.essentials);
    if is_asked && !machine.phase().is_new() && !is_waiting(machine) {
        return Step::Confirm;
    }
    let text = "Creating the VM on the provider".to_owned();
    let mut change = StatusChange::told(machine, OperationType::Create, OperationState::Processing, text, now)
        .entering(Phase::Pending)
        .with_request(&recipe.essentials);
    if is_waiting(machine) {
        change.since = now;
    }
    Step::Record(Box::new(change))
}

/// Whether the Machine waits for something before its VM is asked for.
fn is_waiting(machine: &Machine) -> bool {
    let reason = machine.operation_reason();
    machine.operation_type() == Some(OperationType::Create)
        && matches!(reason, Some(OperationReason::Waiting | OperationReason::Suspended))
}

/// Whether a VM can only be asked for with a token of a target cluster that is away.
fn lacks_token(seen: &Observed<'_>, recipe: &Recipe) -> bool {
    recipe.needs_token && seen.is_blind()
}

/// What must be there before any driver is asked. The error is the plan that says what is missing.
fn prerequisites<'a>(seen: &Observed<'a>, now: Timestamp) -> Result<&'a Recipe, Plan> {
    if let Some(fault) = validity::machine_fault(seen.machine) {
        return Err(blocked(seen, Why::Invalid(fault), now));
    }
    let recipe = match seen.class {
        ClassView::Unnamed => return Err(blocked(seen, Why::ClassUnnamed, now)),
        ClassView::Missing(name) => return Err(blocked(seen, Why::ClassMissing(name.to_owned()), now)),
        ClassView::Present { guarded: false, .. } => return Err(Plan::rest(Why::ClassUnguarded)),
        ClassView::Present { readiness, .. } => match readiness {
            Readiness::Unchecked => return Err(Plan::rest(Why::ClassUnchecked)),
            Readiness::Faulty(fault) => return Err(blocked(seen, Why::ClassFaulty(fault.to_string()), now)),
            Readiness::Ready(recipe) => recipe,
        },
    };
    match delete::unaskable(seen) {
        None => Ok(recipe),
        Some(why) => Err(blocked(seen, why, now)),
    }
}

/// Says on the Machine what it waits for. One that nobody has looked at becomes Pending, so that whoever looks for machines that
/// wait finds it; waiting burns no timeout (MC-3), because the phase begins anew when a VM is asked for.
fn blocked(seen: &Observed<'_>, why: Why, now: Timestamp) -> Plan {
    waiting(seen, &why, now).plan(seen.machine, why)
}

fn waiting(seen: &Observed<'_>, why: &Why, now: Timestamp) -> StatusChange {
    let text = format!("Waiting: {why}");
    let change = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now)
        .because(OperationReason::Waiting);
    match seen.machine.phase().is_new() {
        true => change.entering(Phase::Pending),
        false => change,
    }
}

/// Another Machine has met what this one would meet too, and tries again for both. The code is what it would have got: the autoscaler
/// takes Machines without capacity by it (MC-9).
fn suspended(seen: &Observed<'_>, breaker: &CircuitBreaker, look: Timestamp, now: Timestamp) -> Plan {
    let why = Why::Parked(breaker.to_string());
    let change = waiting(seen, &why, now)
        .because(OperationReason::Suspended)
        .with_code(breaker.cause.code())
        .keeping_words(seen.machine, "");
    change.plan(seen.machine, why).or_at(Some(look), now)
}

/// What is said of a CreateMachine that failed.
fn told(seen: &Observed<'_>, trouble: &Trouble, now: Timestamp) -> StatusChange {
    let failure = &trouble.failure;
    let text = format!("{PROVIDER_SAYS}{}", failure.message);
    StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now)
        .with_code(failure.word())
        .with_crumb(seen.calls.crumb.as_ref())
}

/// CreateMachine failed in a way that ends the Machine, or this process's lead. `None`: it may be tried again some time.
fn ended(seen: &Observed<'_>, trouble: &Trouble, now: Timestamp) -> Option<Plan> {
    match trouble.failure.reaction() {
        Reaction::StepDown if !trouble.is_false_alarm => Some(Plan::act(vec![Step::StepDown], Why::StaleLeader)),
        Reaction::GiveUp => Some(failed(told(seen, trouble, now), Why::CreationFailed)),
        // The driver holds that this uid was deleted. If the Machine lives on all the same, its VM never will.
        Reaction::Reread => {
            let mut plan = failed(told(seen, trouble, now), Why::CreationFailed);
            plan.steps.insert(0, Step::Confirm);
            Some(plan)
        }
        // After a false alarm the Lease is ours, so it is the driver that is wrong: its own machines wait for it.
        Reaction::StepDown | Reaction::Repeat | Reaction::AwaitClass => None,
    }
}

/// CreateMachine failed. `None`: it may be tried again now.
fn troubled(seen: &Observed<'_>, trouble: &Trouble, recipe: &Recipe, now: Timestamp) -> Option<Plan> {
    let failure = &trouble.failure;
    let retry_at = seen.retry_at(trouble, Operation::Create, now);
    let is_changed = failure.reaction() == Reaction::AwaitClass && trouble.digest.as_ref() != Some(&recipe.digest);
    if is_changed && !matches!(seen.admit(Operation::Create, now), Admission::Deny(..)) {
        return None;
    }
    if let Some(plan) = out_of_time(seen, now) {
        return Some(plan);
    }
    // The clock of the creation timeout goes on from the first try, but for the time in which nobody of the class got anything (W50).
    let mut change = told(seen, trouble, now).carrying(Phase::CrashLoopBackOff);
    if was_stopped(seen.machine) && !failure.is_exhausted() && Cause::of(failure).is_none() {
        change.since = now;
    }
    told_until(seen, change, retry_at, Why::CreationFailed, now)
}

/// Tells that a call failed, and waits until it may be repeated. `None`: it may be.
pub(super) fn told_until(
    seen: &Observed<'_>,
    change: StatusChange,
    retry_at: Timestamp,
    why: Why,
    now: Timestamp,
) -> Option<Plan> {
    match (change.is_told(seen.machine), now >= retry_at) {
        (true, true) => None,
        (true, false) => Some(Plan::wait(retry_at, Why::CoolingOff)),
        // The failure was told, and after it that the Machine waits for another one's probe. Now it may call again.
        (false, true) if is_suspended(seen.machine) => None,
        (false, _) => Some(change.act(why).or_at(Some(retry_at), now)),
    }
}

/// Creation has been tried for as long as it may.
fn out_of_time(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    if *seen.machine.phase() != Phase::CrashLoopBackOff {
        return None;
    }
    // A Machine that is refused for capacity, quota or credentials waits: another Machine in its place would be refused too, and another
    // zone or other credentials are its owner's choice. A throttled one waits too: its turn comes.
    let is_stopped = |trouble: &Trouble| {
        let failure = &trouble.failure;
        failure.is_exhausted() || failure.reason == Some(Reason::RateLimited) || Cause::of(failure).is_some()
    };
    let is_exhausted = code_of(seen.machine) == Some(Code::ResourceExhausted.word());
    if is_exhausted || is_suspended(seen.machine) || seen.calls.trouble.as_ref().is_some_and(is_stopped) {
        return None;
    }
    let timeout = seen.creation_timeout();
    let since = seen.machine.phase_since()?;
    if !seen.sight.expired(since, timeout, Judging::Driver, now) {
        return None;
    }
    // A Machine whose driver was away, or whose manager has just begun, is tried once before it is given up.
    let last = &seen.calls.failed(Call::Create)?.failure;
    let timeout = GoDuration::from(timeout);
    let text = format!("{PROVIDER_SAYS}no VM within {timeout}: {}", last.message);
    let told = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now);
    Some(failed(told.with_code(last.word()), Why::CreationTimedOut))
}

/// Whether the last try that is stored found no capacity, no quota or no way in.
fn was_stopped(machine: &Machine) -> bool {
    let codes = [Code::ResourceExhausted, Code::Unauthenticated, Code::PermissionDenied];
    code_of(machine).is_some_and(|said| codes.iter().any(|code| code.word() == said))
}

fn code_of(machine: &Machine) -> Option<&str> {
    machine.last_operation().and_then(|last| last.error_code.as_deref())
}

fn failed(change: StatusChange, why: Why) -> Plan {
    change.entering(Phase::Failed).act(why)
}

/// The driver has described a VM: write down what identifies it, then wait for its node.
fn made(seen: &Observed<'_>, vm: &Vm, now: Timestamp) -> Plan {
    if vm.state == VmState::Failed {
        let said = Some(vm.state_message.as_str()).filter(|said| !said.trim().is_empty());
        let said = said.unwrap_or("the driver does not say why");
        let text = format!("{PROVIDER_SAYS}the VM will not run: {said}");
        let told = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now);
        return failed(told, Why::VmFailed);
    }
    if let Some(rival) = seen.rival.filter(|_| !seen.settings.has_target) {
        let why = Why::VmContested(rival.to_owned());
        let change = waiting(seen, &why, now);
        let plan = match change.is_told(seen.machine) {
            true => unfinished(seen, Vec::new(), now),
            false => change.act(why.clone()),
        };
        return Plan { why, ..plan };
    }
    let mut steps = Vec::new();
    if let Some(identify) = identify(seen, vm) {
        // Whether another Machine was given the same id shows only once both ids are stored.
        if !seen.settings.has_target {
            return Plan::act(vec![identify], Why::VmMade);
        }
        steps.push(identify);
    }
    let is_whole = match seen.settings.has_target {
        true => vm.node_name.is_some(),
        // No node tells that the VM runs.
        false => vm.state == VmState::Running,
    };
    if vm.provider_id.is_none() || !is_whole {
        return unfinished(seen, steps, now);
    }
    // Where a node is expected, `join` sees to it; where none is, the Machine would count from here on (W19).
    if !seen.settings.has_target
        && let Some(mut plan) = super::join::uninitialized(seen, now)
    {
        plan.steps.splice(0..0, steps);
        return plan;
    }
    let accepted = accepted(seen, vm, now);
    let crumb_known = accepted.last_known_state.is_none() || accepted.last_known_state == crumb(seen.machine);
    if *seen.machine.phase() != Phase::Pending || !seen.settings.has_target || !crumb_known {
        steps.push(Step::Record(Box::new(accepted)));
    }
    if vm.initialization == Initialization::Pending {
        steps.push(Step::Call(Call::Initialize));
    }
    Plan::act(steps, Why::VmMade)
}

/// A provider that gives ids late, or whose VM has to run before its Machine is available, is asked again, at its own pace, for as long as a
/// creation may take.
fn unfinished(seen: &Observed<'_>, mut steps: Vec<Step>, now: Timestamp) -> Plan {
    let deadline = super::join::deadline(seen, now);
    if deadline.is_some_and(|deadline| deadline <= now) {
        return super::join::timed_out(seen, now);
    }
    if let Some((told, why)) = room(seen, now) {
        steps.push(told);
        return Plan::act(steps, why).or_at(deadline, now);
    }
    let trouble = seen.calls.failed(Call::Status);
    // The later of the two: a question that could not be asked, its driver being away, is put off beyond an older failure.
    let retry_at = trouble.map(|trouble| trouble.retry_at);
    let again = seen.calls.asked_at.map(|at| later(at, LOOK_AGAIN));
    let due = retry_at.max(seen.calls.poll_at).or(again).filter(|at| *at > now);
    // Who is away is not asked; its return wakes the Machine.
    if due.is_none() && matches!(seen.driver, DriverView::Ready(_)) {
        steps.push(Step::Call(Call::Status));
    }
    Plan::act(steps, Why::VmBooting).or_at(due, now).or_at(deadline, now)
}

/// That the provider found that it has no room for the VM.
pub fn shortage<'a>(seen: &Observed<'a>) -> Option<&'a Trouble> {
    let trouble = seen.calls.failed(Call::Status);
    trouble.filter(|trouble| trouble.failure.is_exhausted())
}

/// Tells that there is no room for a VM that was accepted, where its provider finds that out only afterwards, and that there is room
/// after all: by the code the autoscaler chooses another pool.
pub fn room(seen: &Observed<'_>, now: Timestamp) -> Option<(Step, Why)> {
    let is_told = code_of(seen.machine) == Some(Code::ResourceExhausted.word());
    let (change, why) = match (shortage(seen), &seen.calls.vm) {
        (Some(shortage), _) => (told(seen, shortage, now), Why::NoRoom),
        (None, Some(vm)) if is_told && seen.settings.has_target => (accepted(seen, vm, now), Why::VmMade),
        (None, _) => return None,
    };
    (!change.is_told(seen.machine)).then(|| (Step::Record(Box::new(change)), why))
}

/// What identifies the VM, if the Machine does not carry all of it. What its driver says of this Machine's own uid counts more than
/// what the Machine says: a copied manifest carries another's VM and Node. Only a Machine that has not joined is put right.
pub fn identify(seen: &Observed<'_>, vm: &Vm) -> Option<Step> {
    let machine = seen.machine;
    let is_open = !machine.has_joined() && !meta::is_deleting(&machine.metadata);
    let provider_id = vm.provider_id.clone().filter(|id| match machine.provider_id() {
        None => true,
        Some(known) => is_open && known != *id,
    });
    let node = vm.node_name.clone().filter(|name| match machine.node_label() {
        None => seen.settings.has_target,
        Some(known) => seen.settings.has_target && is_open && known != *name,
    });
    (provider_id.is_some() || node.is_some()).then_some(Step::Identify { provider_id, node })
}

/// The VM exists (MC-9).
fn accepted(seen: &Observed<'_>, vm: &Vm, now: Timestamp) -> StatusChange {
    let told = |state, text: &str, phase| {
        StatusChange::told(seen.machine, OperationType::Create, state, text.to_owned(), now)
            .entering(phase)
            .with_crumb(seen.calls.crumb.as_ref())
    };
    if seen.settings.has_target {
        let text = "The provider has accepted the VM; waiting for its node";
        told(OperationState::Processing, text, Phase::Pending)
    } else {
        let text = "The VM has been created on the provider";
        told(OperationState::Successful, text, Phase::Available).with_addresses(vm)
    }
}
