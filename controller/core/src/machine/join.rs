//! A VM exists and its node has not joined: initialise, wait, time out.
//!
//! May not: create a VM, or fail a Machine whose node is there (that is `health`'s).
//! MC-10, MC-11; W19 (initialisation is never skipped), W42 (a Node counts by its providerID).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::node_sync::{Sync, sync};
use super::observed::{DriverView, Observed};
use super::outcome::Lost;
use super::status::{StatusChange, crumb_due};
use super::step::{Plan, Step, Why};
use super::{create, delete, node};
use crate::api::lenient::GoDuration;
use crate::api::{OperationReason, OperationState, OperationType, Phase, keys, meta};
use crate::driver::{Call, Capability, Initialization, VmState};
use crate::ledger::Trouble;
use crate::sight::{Judging, later};

/// Pause before a VM that its driver did not find is asked for again (MC-11).
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// How long a VM may take to boot before it is doubted that it runs, and the pause between two questions then.
const DOUBT: SignedDuration = SignedDuration::from_mins(2);

/// Decides what a Machine in phase `Pending` with a recorded VM needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if let Some(plan) = uninitialized(seen, now) {
        return plan;
    }
    if let Some(vm) = &seen.calls.vm
        && let Some(identify) = create::identify(seen, vm)
    {
        return Plan::act(vec![identify], Why::VmMade);
    }
    if seen.is_blind() {
        return Plan::rest(Why::TargetAway);
    }
    // A Node that is on its way out is none that has joined.
    let staying = seen.node.filter(|joined| joined.metadata.deletion_timestamp.is_none());
    if let Some(joined) = staying.filter(|joined| node::belongs(joined, seen.machine)) {
        return met(seen, joined, now);
    }
    let deadline = deadline(seen, now);
    if deadline.is_some_and(|deadline| deadline <= now) {
        return timed_out(seen, now);
    }
    if seen.calls.vm.as_ref().is_some_and(|vm| vm.state == VmState::Failed) {
        return create::plan(seen, now);
    }
    if let Some(plan) = crumb_due(seen, now).or_else(|| token_due(seen, deadline)) {
        return plan;
    }
    if let Some((told, why)) = create::room(seen, now) {
        return Plan::act(vec![told], why).or_at(deadline, now);
    }
    let why = obstacle(seen).unwrap_or(Why::Joining);
    if let Some(plan) = told(seen, &why, now) {
        return plan.or_at(deadline, now);
    }
    if let Some(lost) = lost(seen, now) {
        return never_joined(seen, lost, now);
    }
    let poll_at = seen.calls.poll_at.or_else(|| doubt_at(seen, now));
    match poll_at.filter(|_| matches!(seen.driver, DriverView::Ready(_))) {
        Some(at) if now >= at => Plan::act(vec![Step::Call(Call::Status)], Why::VmBooting).or_at(deadline, now),
        poll_at => Plan::rest(why).or_at(deadline, now).or_at(poll_at, now),
    }
}

/// Why no Node counts as the Machine's own yet. `None`: none has come.
fn obstacle(seen: &Observed<'_>) -> Option<Why> {
    if let Some(rival) = seen.rival {
        let rival = rival.to_owned();
        return Some(match seen.settings.has_target {
            true => Why::NodeContested(rival),
            false => Why::VmContested(rival),
        });
    }
    let found = seen.node?;
    let bad = node::unhealthy_conditions(found, &seen.node_conditions()).join(", ");
    Some(match node::belongs(found, seen.machine) {
        false => Why::NodeForeign,
        true if !bad.is_empty() => Why::NodeNotReady(bad),
        true => Why::NodeGated,
    })
}

/// What the Machine's status says of it: of another VM's Node at once, of its own when that takes long, because each kubelet begins so.
/// When the obstacle is gone, that is told too.
fn told(seen: &Observed<'_>, why: &Why, now: Timestamp) -> Option<Plan> {
    let machine = seen.machine;
    let was_told = machine.operation_reason() == Some(OperationReason::NodeRejected);
    let since = machine.phase_since().unwrap_or(now);
    let is_due = match why {
        Why::NodeForeign | Why::NodeContested(_) => true,
        Why::Joining => was_told,
        _ => was_told || later(since, DOUBT) <= now,
    };
    let text = format!("Waiting for the node: {why}");
    let mut change = StatusChange::told(machine, OperationType::Create, OperationState::Processing, text, now);
    change.reason = (*why != Why::Joining).then_some(OperationReason::NodeRejected);
    // A shortage is told before, and stays told: the autoscaler chooses another pool by it.
    let is_told = !is_due || create::shortage(seen).is_some() || change.is_told(machine);
    (!is_told).then(|| change.act(why.clone()))
}

/// When the driver is asked whether a VM still runs whose node has not joined (W15).
fn doubt_at(seen: &Observed<'_>, now: Timestamp) -> Option<Timestamp> {
    let since = later(seen.machine.phase_since().filter(|since| *since <= now)?, DOUBT);
    Some(seen.calls.doubt_again(since, None, DOUBT, now).max(since))
}

/// Why the VM does not run any more, as its driver said long after it was made: the first answers may come from a list that does not
/// show it yet.
fn lost(seen: &Observed<'_>, now: Timestamp) -> Option<Lost> {
    let since = seen.machine.phase_since().filter(|since| *since <= now)?;
    let DriverView::Ready(info) = seen.driver else {
        return None;
    };
    seen.calls.lost(later(since, DOUBT.max(info.propagation_delay)), None)
}

fn never_joined(seen: &Observed<'_>, lost: Lost, now: Timestamp) -> Plan {
    let text = format!(
        "The node has not joined, and {lost}, so {}",
        super::judgement::end(seen.machine)
    );
    StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now)
        .entering(Phase::Failed)
        .with_crumb(seen.calls.crumb.as_ref())
        .act(Why::VmLost(lost))
}

/// When the Machine is given up. `None`: its time does not run, because its driver or the target cluster is away.
pub fn deadline(seen: &Observed<'_>, now: Timestamp) -> Option<Timestamp> {
    let since = seen.machine.phase_since().unwrap_or(now);
    seen.sight.deadline(since, seen.creation_timeout(), Judging::Join)
}

/// The bootstrap token was made for the creation timeout. Where that counts anew, because nobody could look for a while, the token
/// must live on.
fn token_due(seen: &Observed<'_>, deadline: Option<Timestamp>) -> Option<Plan> {
    let recipe = seen.class.recipe()?;
    let deadline = deadline.filter(|_| recipe.needs_token && seen.settings.has_target)?;
    let written = seen
        .machine
        .phase_since()
        .map(|since| later(since, seen.creation_timeout()));
    let until = seen.calls.token_until.max(written)?;
    (deadline > until).then(|| Plan::act(vec![Step::EnsureToken], Why::Joining))
}

/// InitializeMachine has work to do, or nobody knows: the knowledge died with an earlier process.
pub fn uninitialized(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let known = seen.calls.vm.as_ref().map(|vm| vm.initialization);
    if matches!(known, Some(Initialization::NotNeeded | Initialization::Done)) {
        return None;
    }
    // A node that joined meanwhile is no proof (W19). The driver's return wakes the Machine.
    if let Some(why) = delete::unaskable(seen) {
        return Some(Plan::rest(why));
    }
    if never_initializes(seen) {
        return None;
    }
    let call = if known.is_some() {
        Call::Initialize
    } else {
        Call::Status
    };
    let deadline = deadline(seen, now);
    let is_late = deadline.is_some_and(|deadline| deadline <= now);
    if let Some(trouble) = seen.calls.failed(call) {
        return Some(if is_late {
            timed_out(seen, now)
        } else {
            failing(seen, trouble, now)
        });
    }
    // Asked anew at once, a driver that does not know the VM, or does not move, would be asked without end.
    let lost = seen.calls.not_found_at.filter(|_| known.is_none());
    let again = lost.map(|at| later(at, LOOK_AGAIN)).or(seen.calls.poll_at);
    match again {
        Some(_) if is_late => Some(timed_out(seen, now)),
        Some(again) if now < again => {
            let wait = Plan::wait(again, Why::NotInitialized).or_at(deadline, now);
            Some(crumb_due(seen, now).unwrap_or(wait))
        }
        Some(_) | None => Some(Plan::act(vec![Step::Call(call)], Why::NotInitialized)),
    }
}

/// The driver answers, and has no InitializeMachine.
fn never_initializes(seen: &Observed<'_>) -> bool {
    matches!(seen.driver, DriverView::Ready(info) if !info.capabilities.contains(&Capability::InitializeMachine))
}

/// InitializeMachine, or the question whether it has work to do, failed.
fn failing(seen: &Observed<'_>, trouble: &Trouble, now: Timestamp) -> Plan {
    // The original's text, so that its readers find it.
    let text = format!("Provider error: {}. {}", trouble.failure.message, keys::MARK_INITIALIZE);
    let change = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now)
        .with_code(trouble.failure.word())
        .with_crumb(seen.calls.crumb.as_ref());
    if !change.is_told(seen.machine) {
        let steps = vec![Step::Record(Box::new(change))];
        return Plan::act(steps, Why::InitializationFailed).or_at(Some(trouble.retry_at), now);
    }
    if now < trouble.retry_at {
        return Plan::wait(trouble.retry_at, Why::InitializationFailed);
    }
    Plan::act(vec![Step::Call(trouble.call)], Why::NotInitialized)
}

/// The Machine's own Node is there.
fn met(seen: &Observed<'_>, joined: &Node, now: Timestamp) -> Plan {
    let healthy = node::is_healthy(joined, &seen.node_conditions());
    // Before the node is fit: pods must not come to it that its taints would have kept away.
    let Sync {
        mut steps,
        is_gated,
        wake,
    } = sync(seen, joined, now);
    if !healthy || is_gated {
        let deadline = deadline(seen, now);
        if deadline.is_some_and(|deadline| deadline <= now) {
            return timed_out(seen, now);
        }
        let why = obstacle(seen).unwrap_or(Why::NodeGated);
        let told = told(seen, &why, now).map(|plan| plan.steps);
        steps.splice(0..0, told.into_iter().flatten());
        let tells_at = later(seen.machine.phase_since().unwrap_or(now), DOUBT);
        let plan = Plan::act(steps, why).or_at(deadline, now).or_at(wake, now);
        return plan.or_at(Some(tells_at).filter(|at| *at > now), now);
    }
    arrived(seen, joined, steps, now)
}

/// Decides what a Machine needs that failed before it joined: nothing, but if its node has come all the same, it has joined (MC-13).
pub fn late(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let fits = |joined: &&Node| {
        let is_own = node::belongs(joined, seen.machine) && !meta::is_deleting(&joined.metadata);
        is_own && node::is_healthy(joined, &seen.node_conditions())
    };
    let Some(joined) = seen.node.filter(|_| seen.awaits_node()).filter(fits) else {
        return Plan::rest(Why::Failed);
    };
    let known = seen.calls.vm.as_ref().map(|vm| vm.initialization);
    match (seen.driver, known) {
        _ if never_initializes(seen) => {}
        (_, Some(Initialization::NotNeeded | Initialization::Done)) => {}
        // A node that joined meanwhile is no proof that it was initialised (W19).
        (DriverView::Ready(_), None) => {
            let due = seen.calls.asked_at.map_or(now, |at| later(at, LOOK_AGAIN));
            return match due <= now {
                true => Plan::act(vec![Step::Call(Call::Status)], Why::NotInitialized),
                false => Plan::wait(due, Why::Failed),
            };
        }
        (_, Some(Initialization::Pending) | None) => return Plan::rest(Why::Failed),
    }
    let Sync { steps, is_gated, wake } = sync(seen, joined, now);
    match is_gated {
        true => Plan::act(steps, Why::Failed).or_at(wake, now),
        false => arrived(seen, joined, steps, now),
    }
}

/// The node is fit.
fn arrived(seen: &Observed<'_>, joined: &Node, mut steps: Vec<Step>, now: Timestamp) -> Plan {
    // The token goes before the success is told: a Machine that says Running has none left.
    if needs_token(seen) {
        steps.push(Step::DropToken);
    }
    let took = now.duration_since(meta::created(&seen.machine.metadata).unwrap_or(now));
    let took = GoDuration::from(node::whole_seconds(took));
    let (operation, state) = (OperationType::Create, OperationState::Successful);
    let text = format!("The machine joined the cluster in {took}");
    let change = StatusChange::told(seen.machine, operation, state, text, now)
        .entering(Phase::Running)
        .with_crumb(seen.calls.crumb.as_ref())
        .with_conditions(node::conditions(joined));
    steps.push(Step::Record(Box::new(change)));
    Plan::act(steps, Why::Joined)
}

/// Whether a bootstrap token may have been made for the Machine.
pub(super) fn needs_token(seen: &Observed<'_>) -> bool {
    seen.calls.token_until.is_some() || seen.class.recipe().is_none_or(|recipe| recipe.needs_token)
}

/// The creation timeout ran out (MC-11). The Node is read live before that costs the VM: a watch behind a proxy may bring nothing and be
/// taken for a quiet one.
pub fn timed_out(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let timeout = GoDuration::from(seen.creation_timeout());
    let why = obstacle(seen).map_or_else(String::new, |why| format!(": {why}"));
    let text = match seen.settings.has_target {
        true => format!("The machine failed to join the cluster in {timeout}{why}"),
        false => format!("The VM did not run within {timeout}{why}"),
    };
    let change = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now)
        .entering(Phase::Failed)
        .with_crumb(seen.calls.crumb.as_ref());
    let node = node::likely_name(seen.machine).filter(|_| seen.sight.target_since.is_some());
    let mut plan = change.act(Why::JoinTimedOut);
    plan.steps.splice(0..0, node.map(Step::SeeNode));
    plan
}
