//! No VM yet: intent first, then get-or-create, then what identifies the VM.
//!
//! Order (S1, S2 of `reliability.md`; `driver-api.md` §6): the finalizer is stored, the phase `Pending` is written as
//! the intent (that write is also the live read which shows that the Machine is not being deleted), then CreateMachine
//! with the uid as its key. A crash anywhere leaves a Machine whose next plan repeats the call and gets the same VM.
//! May not: read a Node, end the Machine's life otherwise than by phase `Failed`.

use jiff::Timestamp;

use super::observed::{Call, ClassView, DriverView, Observed, Trouble};
use super::status::StatusChange;
use super::step::{Plan, Step, Why};
use crate::api::{OperationState, OperationType, Phase};
use crate::class::{Readiness, Recipe};
use crate::driver::{Initialization, Reaction, Vm, VmState};

/// Prefix of the original's description of a failed creation (`spec/machine.md` T3).
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
    if let Some(trouble) = seen
        .calls
        .trouble
        .as_ref()
        .filter(|trouble| trouble.call == Call::Create)
        && let Some(plan) = troubled(seen, trouble, recipe, now)
    {
        return plan;
    }
    if let Some(plan) = out_of_time(seen, now) {
        return plan;
    }
    let mut steps = Vec::new();
    if *seen.machine.phase() == Phase::New {
        let text = "Creating the VM on the provider".to_owned();
        let change = StatusChange::told(
            seen.machine,
            OperationType::Create,
            OperationState::Processing,
            text,
            now,
        );
        steps.push(Step::Record(Box::new(change.entering(seen.machine, Phase::Pending))));
    } else {
        steps.push(Step::Confirm);
    }
    if recipe.needs_token && seen.settings.has_target {
        steps.push(Step::EnsureToken);
    }
    steps.push(Step::Call(Call::Create));
    Plan::act(steps, Why::NoVm)
}

/// What must be there before any driver is asked. The error is the plan that says what is missing.
fn prerequisites<'a>(seen: &Observed<'a>, now: Timestamp) -> Result<&'a Recipe, Plan> {
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
    match seen.driver {
        DriverView::Ready(_) => Ok(recipe),
        DriverView::Missing { name, .. } => Err(blocked(seen, Why::DriverMissing(name.to_owned()), now)),
        DriverView::Away { name, why } => Err(blocked(seen, Why::DriverAway(format!("{name}: {why}")), now)),
        DriverView::Unnamed { .. } => Err(blocked(seen, Why::DriverUnnamed, now)),
    }
}

/// Says on the Machine what it waits for. The phase stays, so waiting burns no timeout (`driver-api.md` §6h).
fn blocked(seen: &Observed<'_>, why: Why, now: Timestamp) -> Plan {
    let text = format!("Waiting: {why}");
    let change = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now);
    if change.is_told(seen.machine) {
        return Plan::rest(why);
    }
    Plan::act(vec![Step::Record(Box::new(change))], why)
}

/// CreateMachine failed. `None`: it may be tried again now.
fn troubled(seen: &Observed<'_>, trouble: &Trouble, recipe: &Recipe, now: Timestamp) -> Option<Plan> {
    let failure = &trouble.failure;
    let text = format!("{PROVIDER_SAYS}{}", failure.message);
    let told = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now)
        .with_code(failure.word())
        .with_crumb(failure.last_known_state.as_ref());
    match failure.reaction() {
        Reaction::StepDown => return Some(Plan::act(vec![Step::StepDown], Why::StaleLeader)),
        Reaction::GiveUp => return Some(failed(seen, told, Why::CreationFailed)),
        // The driver holds that this uid was deleted. If the Machine lives on all the same, its VM never will.
        Reaction::Reread => {
            let mut plan = failed(seen, told, Why::CreationFailed);
            plan.steps.insert(0, Step::Confirm);
            return Some(plan);
        }
        Reaction::Repeat => {}
        Reaction::AwaitClass if trouble.digest.as_ref() != Some(&recipe.digest) => return None,
        Reaction::AwaitClass => {}
    }
    if let Some(plan) = out_of_time(seen, now) {
        return Some(plan);
    }
    // The clock of the creation timeout goes on from the first try.
    let change = told.carrying(Phase::CrashLoopBackOff);
    let retry_due = now >= trouble.retry_at;
    match (change.is_told(seen.machine), retry_due) {
        (true, true) => None,
        (true, false) => Some(Plan::wait(trouble.retry_at, Why::CoolingOff)),
        (false, _) => {
            let steps = vec![Step::Record(Box::new(change))];
            Some(Plan::act(steps, Why::CreationFailed).or_at(Some(trouble.retry_at), now))
        }
    }
}

/// Creation has been tried for as long as it may.
fn out_of_time(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    if *seen.machine.phase() != Phase::CrashLoopBackOff {
        return None;
    }
    let timeout = super::creation_timeout(seen);
    let since = seen.machine.phase_since()?;
    if now < since + timeout {
        return None;
    }
    let last = seen
        .calls
        .trouble
        .as_ref()
        .map_or("no answer", |trouble| trouble.failure.message.as_str());
    let text = format!(
        "{PROVIDER_SAYS}no VM within {}: {last}",
        crate::api::lenient::GoDuration::from(timeout)
    );
    let told = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now);
    let told = match &seen.calls.trouble {
        Some(trouble) => told.with_code(trouble.failure.word()),
        None => told,
    };
    Some(failed(seen, told, Why::CreationTimedOut))
}

fn failed(seen: &Observed<'_>, change: StatusChange, why: Why) -> Plan {
    let change = change.entering(seen.machine, Phase::Failed);
    Plan::act(vec![Step::Record(Box::new(change))], why)
}

/// The driver has described a VM: write down what identifies it, then wait for its node.
fn made(seen: &Observed<'_>, vm: &Vm, now: Timestamp) -> Plan {
    if vm.state == VmState::Failed {
        let text = format!("{PROVIDER_SAYS}the VM will not run: {}", vm.state_message);
        let told = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now);
        return failed(seen, told, Why::VmFailed);
    }
    let mut steps = Vec::new();
    if let Some(identify) = identify(seen, vm) {
        steps.push(identify);
    }
    if vm.provider_id.is_none() || (seen.settings.has_target && vm.node_name.is_none()) {
        return unnamed(seen, steps, now);
    }
    // Where a node is expected, `join` sees to it; where none is, the Machine would count from here on (W19).
    if !seen.settings.has_target
        && let Some(mut plan) = super::join::uninitialized(seen, now)
    {
        plan.steps.splice(0..0, steps);
        return plan;
    }
    let accepted = accepted(seen, vm, now);
    let crumb_known = accepted.last_known_state.is_none() || accepted.last_known_state == super::crumb(seen.machine);
    if *seen.machine.phase() != Phase::Pending || !seen.settings.has_target || !crumb_known {
        steps.push(Step::Record(Box::new(accepted)));
    }
    if vm.initialization == Initialization::Pending {
        steps.push(Step::Call(Call::Initialize));
    }
    Plan::act(steps, Why::VmMade)
}

/// A provider that gives ids late is asked again, at its own pace, for as long as a creation may take.
fn unnamed(seen: &Observed<'_>, mut steps: Vec<Step>, now: Timestamp) -> Plan {
    let deadline = seen.machine.phase_since().unwrap_or(now) + super::creation_timeout(seen);
    if now >= deadline {
        return super::join::timed_out(seen, now);
    }
    let trouble = seen
        .calls
        .trouble
        .as_ref()
        .filter(|trouble| trouble.call == Call::Status);
    // The later of the two: a question that could not be asked, its driver being away, is put off beyond an older failure.
    let retry_at = trouble.map(|trouble| trouble.retry_at);
    let due = retry_at.max(seen.calls.poll_at).filter(|at| *at > now);
    // Who is away is not asked; its return wakes the Machine.
    if due.is_none() && matches!(seen.driver, DriverView::Ready(_)) {
        steps.push(Step::Call(Call::Status));
    }
    Plan::act(steps, Why::VmBooting)
        .or_at(due, now)
        .or_at(Some(deadline), now)
}

/// What identifies the VM, if the Machine does not carry all of it.
pub fn identify(seen: &Observed<'_>, vm: &Vm) -> Option<Step> {
    let provider_id = vm.provider_id.clone().filter(|_| seen.machine.provider_id().is_none());
    let node = vm
        .node_name
        .clone()
        .filter(|_| seen.settings.has_target && seen.machine.node_label().is_none());
    (provider_id.is_some() || node.is_some()).then_some(Step::Identify { provider_id, node })
}

/// T1 and T2: the VM exists.
fn accepted(seen: &Observed<'_>, vm: &Vm, now: Timestamp) -> StatusChange {
    if seen.settings.has_target {
        let text = "The provider has accepted the VM; waiting for its node".to_owned();
        StatusChange::told(
            seen.machine,
            OperationType::Create,
            OperationState::Processing,
            text,
            now,
        )
        .entering(seen.machine, Phase::Pending)
        .with_crumb(vm.last_known_state.as_ref())
    } else {
        let text = "The VM has been created on the provider".to_owned();
        StatusChange::told(
            seen.machine,
            OperationType::Create,
            OperationState::Successful,
            text,
            now,
        )
        .entering(seen.machine, Phase::Available)
        .with_addresses(vm)
        .with_crumb(vm.last_known_state.as_ref())
    }
}
