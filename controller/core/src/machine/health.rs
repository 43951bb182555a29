//! The node has joined: copy its conditions, tell a healthy one from an unhealthy one.
//!
//! May not give a Machine up that has an owner: `set::repair` does, for all Machines of a deployment together. One that nobody owns
//! is given up here, and nobody replaces it.
//! Source: `spec/machine.md` §1.2 T6b, T7, T9 and T19, §2.4 (a deleted Node takes its Machine along), §4.1–4.2.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::node;
use super::node_sync::sync;
use super::observed::{Call, DriverView, Observed};
use super::outcome::Lost;
use super::status::StatusChange;
use super::step::{Plan, Step, Why};
use crate::api::lenient::GoDuration;
use crate::api::{Machine, OperationReason, OperationState, OperationType, Phase, meta};
use crate::driver::VmState;
use crate::sight::Judging;

/// How often the driver is asked for the VM of an unhealthy node.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// Decides what a Machine needs that was given up: nothing, but if its Node turns healthy before it goes, it is Running again (T19).
pub fn given_up(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let joined = seen.node.filter(|joined| node::belongs(joined, seen.machine));
    let Some(joined) = joined.filter(|joined| joined.metadata.deletion_timestamp.is_none()) else {
        return Plan::rest(Why::Failed);
    };
    if !node::is_healthy(joined, &super::node_conditions(seen)) {
        return Plan::rest(Why::Failed);
    }
    match seen.calls.lost_unasked().is_some() || is_said_to_be_lost(seen) {
        false => judged(seen, joined, now),
        // The Node may not have noticed yet: only the driver's word is one. Another process may have heard the news.
        true => match asked_again(seen, now) {
            Some(at) if at <= now => Plan::act(vec![Step::Call(Call::Status)], Why::VmDoubted),
            again => Plan::rest(Why::Failed).or_at(again, now),
        },
    }
}

/// Whether a Machine says that its provider told the end of its VM.
pub fn tells_of_vm(machine: &Machine) -> bool {
    machine.operation_reason() == Some(OperationReason::VmReported)
}

/// Whether the Machine says that its provider told the end of its VM, and its driver has not said since that it runs. What is said is
/// no more than a reason to ask.
fn is_said_to_be_lost(seen: &Observed<'_>) -> bool {
    let machine = seen.machine;
    let runs = machine.phase_since().is_some_and(|since| {
        let is_asked = seen.calls.asked_at.is_some_and(|at| at >= since);
        is_asked && seen.calls.vm.is_some() && seen.calls.lost(since).is_none()
    });
    tells_of_vm(machine) && !runs
}

/// When the driver is asked for the VM again, if it can be.
fn asked_again(seen: &Observed<'_>, now: Timestamp) -> Option<Timestamp> {
    let is_askable = matches!(seen.driver, DriverView::Ready(_)) && seen.machine.provider_id().is_some();
    let since = seen.machine.phase_since().filter(|_| is_askable)?;
    Some(seen.calls.doubt_again(since, ASK_AGAIN, now))
}

/// Decides what a Machine in phase `Running` or `Unknown` needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = looked_at(seen, now);
    // What is brought to its Node may be refused again and again, and puts no judgement off.
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
        // What is brought to the Node waits for the driver's answer: a call is a plan of its own.
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
        // Of a healthy node only what was said since the news counts.
        (_, Some(doubt)) => Some(doubt.since),
    };
    let (Some(since), DriverView::Ready(_)) = (began, seen.driver) else {
        return Ok(None);
    };
    let due = seen.calls.doubt_again(since, ASK_AGAIN, now);
    if machine.provider_id().is_none() || machine.spec.disable_health_timeout == Some(true) {
        return Ok(None);
    }
    if due <= now {
        return Err(Plan::act(vec![Step::Call(Call::Status)], Why::VmDoubted));
    }
    let Some(lost) = seen.calls.lost(since) else {
        return Ok(Some(due));
    };
    let text = format!("{}; {}", fault(seen, lost), end(machine));
    // One that is nobody's is given up at once, where it is Unknown: that is told then.
    let is_alone = meta::controller_of(&machine.metadata).is_none() && *machine.phase() == Phase::Unknown;
    let state = OperationState::Processing;
    let mut change =
        StatusChange::told(machine, OperationType::HealthCheck, state, text, now).entering(machine, Phase::Unknown);
    change.reason = reported(seen);
    if change.is_told(machine) || is_alone {
        return Ok(Some(due));
    }
    Err(Plan::act(vec![Step::Record(Box::new(change))], Why::VmLost(lost)))
}

/// The reason of a Machine whose provider told the end of its VM.
fn reported(seen: &Observed<'_>) -> Option<OperationReason> {
    seen.calls.lost_unasked().map(|_| OperationReason::VmReported)
}

/// What ails a Machine whose VM does not run.
fn fault(seen: &Observed<'_>, lost: Lost) -> String {
    match seen.calls.lost_unasked() {
        Some(_) => format!("The provider says that {lost}"),
        None => format!("The node is unhealthy, and {lost}"),
    }
}

/// A Machine without an owner that was unhealthy for too long.
fn alone(seen: &Observed<'_>, plan: Plan, now: Timestamp) -> Plan {
    let machine = seen.machine;
    let is_judged = *machine.phase() == Phase::Unknown && machine.spec.disable_health_timeout != Some(true);
    let is_owned = meta::controller_of(&machine.metadata).is_some();
    let Some(since) = machine.phase_since().filter(|_| is_judged && !is_owned) else {
        return plan;
    };
    let timeout = machine.health_timeout().unwrap_or(seen.settings.health_timeout);
    let lost = seen.calls.lost(since).filter(|_| seen.sight.target_since.is_some());
    if lost.is_none() && !seen.sight.expired(since, timeout, Judging::Rollout, now) {
        return plan.or_at(seen.sight.deadline(since, timeout, Judging::Rollout), now);
    }
    let change = match lost {
        Some(lost) => vm_lost(machine, lost, now),
        None => timed_out(machine, timeout, now),
    };
    // The Node says nothing of a VM whose end its provider told.
    let live = node::likely_name(machine).filter(|_| seen.calls.lost_unasked().is_none());
    let live = live.map(Step::SeeNode);
    let steps = live.into_iter().chain([Step::Record(Box::new(change))]);
    Plan::act(steps.collect(), lost.map_or(Why::HealthTimedOut, Why::VmLost))
}

/// What the status of a Machine says that was unhealthy for longer than it may be (T9).
pub fn timed_out(machine: &Machine, timeout: SignedDuration, now: Timestamp) -> StatusChange {
    let said = machine.last_words();
    let fault = said.and_then(|said| said.split("; ").next());
    let text = format!(
        "{}; this lasted longer than the health timeout of {}, so {}",
        fault.unwrap_or("The node is unhealthy"),
        GoDuration::from(timeout),
        end(machine)
    );
    let mut change = StatusChange::told(machine, OperationType::HealthCheck, OperationState::Failed, text, now)
        .entering(machine, Phase::Failed);
    change.reason = tells_of_vm(machine).then_some(OperationReason::VmReported);
    change
}

/// What the status of a Machine says whose VM does not run any more.
pub fn vm_lost(machine: &Machine, lost: Lost, now: Timestamp) -> StatusChange {
    let said = machine.last_words();
    let fault = said.and_then(|said| said.split("; ").next());
    let fault = fault.filter(|fault| fault.ends_with(&lost.to_string()));
    let text = match fault {
        Some(fault) => format!("{fault}, so {}", end(machine)),
        None => format!("The node is unhealthy, and {lost}, so {}", end(machine)),
    };
    let mut change = StatusChange::told(machine, OperationType::HealthCheck, OperationState::Failed, text, now)
        .entering(machine, Phase::Failed);
    change.reason = tells_of_vm(machine).then_some(OperationReason::VmReported);
    change
}

/// What becomes of a Machine that is given up.
pub fn end(machine: &Machine) -> &'static str {
    match meta::controller_of(&machine.metadata) {
        Some(_) => "the machine is replaced",
        None => "the machine is Failed",
    }
}

fn looked_at(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let Some(joined) = seen.node.filter(|joined| node::belongs(joined, seen.machine)) else {
        return missing(seen, now);
    };
    if meta::is_deleting(&joined.metadata) && !node::is_unmanaged(joined) {
        return Plan::act(vec![Step::DeleteMachine], Why::NodeDeleted);
    }
    let mut plan = judged(seen, joined, now);
    // Behind what is told of its health: a target cluster that lets nobody write Nodes would keep it from being told.
    let sync = sync(seen, joined, now);
    plan.steps.extend(sync.steps);
    plan.or_at(sync.wake, now)
}

fn judged(seen: &Observed<'_>, joined: &Node, now: Timestamp) -> Plan {
    // Of a Machine that runs `vm` tells first what its provider told.
    let is_told = *seen.machine.phase() != Phase::Running;
    let lost = seen.calls.lost_unasked().filter(|_| is_told);
    let is_doubtful = lost.is_some() || (is_told && is_said_to_be_lost(seen));
    let is_fit = node::is_healthy(joined, &super::node_conditions(seen));
    let healthy = is_fit && !is_doubtful;
    let ailing = match lost {
        Some(lost) => Why::VmLost(lost),
        None if is_fit => Why::VmDoubted,
        None => Why::NodeUnhealthy,
    };
    let copied = seen
        .machine
        .status
        .as_ref()
        .map_or(&[][..], |status| status.conditions.as_slice());
    let changed = node::conditions_differ(copied, node::conditions(joined));
    let told = |phase, state, text: String| {
        StatusChange::told(seen.machine, OperationType::HealthCheck, state, text, now)
            .entering(seen.machine, phase)
            .with_conditions(node::conditions(joined))
    };
    let (change, why) = match (healthy, *seen.machine.phase() == Phase::Running) {
        (true, true) if !changed => return Plan::rest(Why::Running),
        // One that was updated in place has only this way out of its phase (W10).
        (false, false) if !changed && *seen.machine.phase() != Phase::InPlaceUpdateSuccessful => {
            return Plan::rest(ailing);
        }
        (true, true) => {
            let text = "The machine is healthy".to_owned();
            (
                told(Phase::Running, OperationState::Successful, text),
                Why::ConditionsChanged,
            )
        }
        (true, false) => {
            let text = match seen.machine.phase() {
                Phase::InPlaceUpdateSuccessful => "The machine is healthy after its update in place".to_owned(),
                _ => "The machine has re-joined the cluster".to_owned(),
            };
            (
                told(Phase::Running, OperationState::Successful, text),
                match seen.machine.phase() {
                    Phase::InPlaceUpdateSuccessful => Why::UpdatedInPlace,
                    _ => Why::NodeRecovered,
                },
            )
        }
        (false, _) => {
            let bad = node::unhealthy_conditions(joined, &super::node_conditions(seen)).join(", ");
            let text = match lost {
                Some(lost) => format!("{}; {}", fault(seen, lost), end(seen.machine)),
                // The Node looks healthy, and its VM is not known to run.
                None if bad.is_empty() => seen.machine.last_words().unwrap_or("The node is unhealthy").to_owned(),
                None => format!("The node is unhealthy: {bad}; {}", outlook(seen)),
            };
            (told(Phase::Unknown, OperationState::Processing, text), ailing)
        }
    };
    let mut change = change;
    change.reason =
        (!healthy && (lost.is_some() || (is_fit && tells_of_vm(seen.machine)))).then_some(OperationReason::VmReported);
    Plan::act(vec![Step::Record(Box::new(change))], why)
}

/// What will be done about it.
fn outlook(seen: &Observed<'_>) -> String {
    let machine = seen.machine;
    if machine.spec.disable_health_timeout == Some(true) {
        return "its health timeout is disabled, so it is kept".to_owned();
    }
    let timeout = machine.health_timeout().unwrap_or(seen.settings.health_timeout);
    format!("{} if this lasts for {}", end(machine), GoDuration::from(timeout))
}

/// Without a target cluster the VM is all there is to judge by, and its driver says that it runs after all.
fn runs_again(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let machine = seen.machine;
    let since = machine
        .phase_since()
        .filter(|_| !seen.settings.has_target && *machine.phase() == Phase::Unknown)?;
    let is_answered = seen.calls.doubt.is_none() && seen.calls.asked_at.is_some_and(|at| at >= since);
    let runs = seen.calls.vm.as_ref().is_some_and(|vm| vm.state == VmState::Running);
    let text = "The VM runs".to_owned();
    let change = StatusChange::told(
        machine,
        OperationType::HealthCheck,
        OperationState::Successful,
        text,
        now,
    )
    .entering(machine, Phase::Available);
    (is_answered && runs).then(|| Plan::act(vec![Step::Record(Box::new(change))], Why::VmRuns))
}

/// T7a: the Node was there once and is not any more.
fn missing(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if let Some(rival) = seen.rival {
        return Plan::rest(Why::NodeContested(rival.to_owned()));
    }
    if let Some(plan) = runs_again(seen, now) {
        return plan;
    }
    let was_there = matches!(seen.machine.phase(), Phase::Running | Phase::InPlaceUpdateSuccessful);
    if !was_there || !seen.machine.has_joined() {
        return Plan::rest(Why::NodeMissing);
    }
    let text = format!("The Node object is gone; {}", outlook(seen));
    let change = StatusChange::told(
        seen.machine,
        OperationType::HealthCheck,
        OperationState::Processing,
        text,
        now,
    )
    .entering(seen.machine, Phase::Unknown);
    Plan::act(vec![Step::Record(Box::new(change))], Why::NodeMissing)
}
