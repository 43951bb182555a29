//! The node has joined: copy its conditions, tell a healthy one from an unhealthy one.
//!
//! May not fail a Machine: `judgement` says who is unhealthy, and who has failed for it.
//! MC-12, MC-13, MC-14, MC-16 (a deleted Node takes its Machine along).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::judgement::{Fault, LAST_LOOK, alone, is_reported, runs_after_all};
use super::node;
use super::node_sync::sync;
use super::observed::{DriverView, Observed};
use super::status::StatusChange;
use super::step::{Plan, Step, Why};
use crate::api::lenient::GoDuration;
use crate::api::{OperationState, OperationType, Phase, meta};
use crate::driver::Call;
use crate::replacement_limit::Tripped;
use crate::sight::later;

/// How often the driver is asked for the VM of an unhealthy node.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// How often a Machine whose Node was deleted looks whether others of its deployment are well again.
const OTHERS_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// Decides what a Machine in phase `Failed` needs that failed for its Node or its VM: nothing, unless both turn out to be well before it is
/// deleted; then it is Running again (MC-13).
pub fn given_up(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let staying = |joined: &&Node| node::belongs(joined, seen.machine) && !meta::is_deleting(&joined.metadata);
    let joined = seen.node.filter(staying);
    if is_reported(seen.machine) {
        return looked_again(seen, joined, now);
    }
    match joined.filter(|joined| node::is_healthy(joined, &seen.node_conditions())) {
        Some(joined) => judged(seen, joined, now),
        None => Plan::rest(Why::Failed),
    }
}

/// It failed because its driver said that its VM does not run. The driver is asked again, and only if it says that the VM runs does the
/// Node's health count.
fn looked_again(seen: &Observed<'_>, joined: Option<&Node>, now: Timestamp) -> Plan {
    let is_askable = matches!(seen.driver, DriverView::Ready(_)) && seen.machine.provider_id().is_some();
    let Some(since) = seen.machine.phase_since().filter(|_| is_askable) else {
        return Plan::rest(Why::Failed);
    };
    let look = later(since, LAST_LOOK);
    let due = match seen.calls.asked_at.is_some_and(|at| at >= look) {
        true => seen.calls.doubt_again(look, seen.node, ASK_AGAIN, now),
        false => seen.calls.at_least_paced(look),
    };
    match (runs_after_all(seen.machine, seen.calls), joined) {
        _ if due <= now => Plan::act(vec![Step::Call(Call::Status)], Why::VmDoubted),
        (Some(true), Some(joined)) => judged(seen, joined, now),
        (Some(true), None) if !seen.settings.has_target => runs_again(seen, now),
        (Some(_) | None, _) => Plan::wait(due, Why::Failed),
    }
}

/// Decides what a Machine in phase `Running` or `Unknown` needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = looked_at(seen, now);
    // Steps that write the Node are no reason to put the judgement off: the target cluster may refuse them again and again.
    let is_turning = plan
        .steps
        .iter()
        .any(|step| matches!(step, Step::Record(_) | Step::DeleteMachine));
    let is_doubted = *seen.machine.phase() == Phase::Unknown || seen.calls.doubt.is_some();
    if is_turning || !is_doubted {
        return plan;
    }
    match vm(seen, now) {
        Ok(wake) => alone(seen, plan.or_at(wake, now), now),
        // Writes of the Node wait for the driver's answer: a plan that calls does nothing else.
        Err(first) => first,
    }
}

/// Decides what a Machine in phase `Available` needs: it has no Node that could say how it is, so it is left alone until its provider tells
/// bad news of its VM, or does not show it (W10).
pub fn without_node(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let rest = Plan::rest(Why::NoNodeExpected);
    match seen.calls.doubt {
        Some(_) => vm(seen, now).map_or_else(|first| first, |wake| rest.or_at(wake, now)),
        None => rest,
    }
}

/// What the driver says of the VM of an unhealthy node, or of one of which its provider told bad news (W13): one that does not run any
/// more is not waited for. The plan that asks it, or that tells its answer; else when to ask again.
fn vm(seen: &Observed<'_>, now: Timestamp) -> Result<Option<Timestamp>, Plan> {
    let machine = seen.machine;
    let began = match (machine.phase(), seen.calls.doubt) {
        (Phase::Unknown, _) | (_, None) => machine.phase_since(),
        // While the node is healthy, only what the driver said since the bad news counts.
        (_, Some(doubt)) => Some(doubt.since),
    };
    let (Some(since), DriverView::Ready(_)) = (began, seen.driver) else {
        return Ok(None);
    };
    let due = seen.calls.doubt_again(since, seen.node, ASK_AGAIN, now);
    if machine.provider_id().is_none() || machine.spec.disable_health_timeout == Some(true) {
        return Ok(None);
    }
    if due <= now {
        return Err(Plan::act(vec![Step::Call(Call::Status)], Why::VmDoubted));
    }
    let Some(lost) = seen.calls.lost(since, seen.node) else {
        return Ok(Some(due));
    };
    let fault = Fault::Vm(lost);
    // A Machine that is Unknown and has no owner fails in this same plan (`alone`), which tells the cause.
    let is_alone = meta::controller_of(&machine.metadata).is_none() && *machine.phase() == Phase::Unknown;
    let change = ailing(seen, fault, now);
    if change.is_told(machine) || is_alone {
        return Ok(Some(due));
    }
    Err(change.act(Why::VmLost(lost)))
}

/// What the status of a Machine says that is unhealthy.
fn ailing(seen: &Observed<'_>, fault: Fault, now: Timestamp) -> StatusChange {
    let words = seen.witnesses().words(fault);
    let text = format!("{words}; {}", outlook(seen, fault));
    let (operation, state) = (OperationType::HealthCheck, OperationState::Processing);
    let mut change = StatusChange::told(seen.machine, operation, state, text, now).entering(Phase::Unknown);
    change.reason = fault.stored();
    change
}

/// What will be done about it. Whether limits keep the Machine is said by its set, which knows the others.
fn outlook(seen: &Observed<'_>, fault: Fault) -> String {
    let machine = seen.machine;
    if machine.spec.disable_health_timeout == Some(true) {
        return "its health timeout is disabled, so it is kept".to_owned();
    }
    let due = match meta::controller_of(&machine.metadata) {
        Some(_) => "the machine is due for replacement",
        None => "the machine is Failed",
    };
    match fault {
        Fault::Vm(_) => due.to_owned(),
        Fault::Reported => "the driver is asked again".to_owned(),
        Fault::NodeUnhealthy | Fault::NodeGone | Fault::NotUpdated => {
            let timeout = GoDuration::from(seen.witnesses().timeout());
            format!("{due} if this lasts for {timeout}")
        }
    }
}

fn looked_at(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let Some(joined) = seen.node.filter(|joined| node::belongs(joined, seen.machine)) else {
        return missing(seen, now);
    };
    if meta::is_deleting(&joined.metadata) && !node::is_unmanaged(joined) {
        return node_deleted(seen, now);
    }
    let mut plan = judged(seen, joined, now);
    // After the step that writes the Machine's status: a target cluster that refuses writes of Nodes must not keep that from being told.
    let sync = sync(seen, joined, now);
    plan.steps.extend(sync.steps);
    plan.or_at(sync.wake, now)
}

/// Somebody deleted the Node, and its Machine is deleted too (MC-16), unless the limit of unhealthy machines is reached.
pub fn node_deleted(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let limit = &seen.settings.unhealthy_threshold;
    if !seen.losers.reaches(limit) {
        return Plan::act(vec![Step::DeleteMachine], Why::NodeDeleted);
    }
    let why = Why::NodesDeleted(Box::new(Tripped::Group(seen.losers, limit.clone())));
    let text = "The Node object was deleted; the machine is kept, because too many machines of its owner lost theirs or are unhealthy";
    let (operation, state) = (OperationType::HealthCheck, OperationState::Processing);
    let mut change = StatusChange::told(seen.machine, operation, state, text.to_owned(), now);
    if matches!(seen.machine.phase(), Phase::Terminating | Phase::Other(_)) {
        change = change.entering(Phase::Unknown);
    }
    let again = later(now, OTHERS_AGAIN);
    change.plan(seen.machine, why).or_at(Some(again), now)
}

/// What speaks against a Machine whose Node is there. While the Machine is Running, what its driver said is left to [`vm`].
fn fault(seen: &Observed<'_>, joined: &Node) -> Option<Fault> {
    let machine = seen.machine;
    let since = machine.phase_since().filter(|_| *machine.phase() != Phase::Running);
    let lost = since.and_then(|since| seen.calls.lost(since, Some(joined)));
    let is_believed = since.and_then(|since| seen.calls.runs_since(since)) == Some(true);
    match lost.filter(|_| seen.calls.doubt.is_some() || is_reported(machine)) {
        Some(lost) => Some(Fault::Vm(lost)),
        None if !node::is_healthy(joined, &seen.node_conditions()) => Some(Fault::NodeUnhealthy),
        None => (is_reported(machine) && since.is_some() && !is_believed).then_some(Fault::Reported),
    }
}

fn judged(seen: &Observed<'_>, joined: &Node, now: Timestamp) -> Plan {
    let machine = seen.machine;
    let status = machine.status.as_ref();
    let copied = status.map_or(&[][..], |status| status.conditions.as_slice());
    let is_told = !node::conditions_differ(copied, node::conditions(joined));
    let (change, why) = match (fault(seen, joined), machine.phase()) {
        (None, Phase::Running) if is_told => return Plan::rest(Why::Running),
        (Some(fault), Phase::Unknown) if is_told => {
            return Plan::rest(match fault {
                Fault::Vm(lost) => Why::VmLost(lost),
                Fault::Reported => Why::VmDoubted,
                Fault::NodeUnhealthy | Fault::NodeGone | Fault::NotUpdated => Why::NodeUnhealthy,
            });
        }
        (Some(fault), _) => (ailing(seen, fault, now), Why::NodeUnhealthy),
        (None, Phase::Running) => (well(seen, "The machine is healthy", now), Why::ConditionsChanged),
        (None, Phase::InPlaceUpdateSuccessful) => (
            well(seen, "The machine is healthy after its update in place", now),
            Why::UpdatedInPlace,
        ),
        (None, _) => (
            well(seen, "The machine has re-joined the cluster", now),
            Why::NodeRecovered,
        ),
    };
    change.with_conditions(node::conditions(joined)).act(why)
}

fn well(seen: &Observed<'_>, text: &str, now: Timestamp) -> StatusChange {
    let (operation, state) = (OperationType::HealthCheck, OperationState::Successful);
    StatusChange::told(seen.machine, operation, state, text.to_owned(), now).entering(Phase::Running)
}

/// Without a target cluster the VM is all there is to judge by, and its driver says that it runs after all.
fn runs_again(seen: &Observed<'_>, now: Timestamp) -> Plan {
    well(seen, "The VM runs", now)
        .entering(Phase::Available)
        .act(Why::VmRuns)
}

/// The Node was there once and is not any more.
fn missing(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let machine = seen.machine;
    if let Some(rival) = seen.rival.filter(|_| seen.settings.has_target) {
        return Plan::rest(Why::NodeContested(rival.to_owned()));
    }
    if *machine.phase() == Phase::Unknown {
        let since = machine.phase_since().filter(|_| !seen.settings.has_target);
        let runs = since.and_then(|since| seen.calls.runs_since(since)) == Some(true);
        return match runs && seen.calls.doubt.is_none() {
            true => runs_again(seen, now),
            false => Plan::rest(Why::NodeMissing),
        };
    }
    if !machine.has_joined() {
        return Plan::rest(Why::NodeMissing);
    }
    ailing(seen, Fault::NodeGone, now).act(Why::NodeMissing)
}
