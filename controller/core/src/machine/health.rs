//! The node has joined: copy its conditions, tell a healthy one from an unhealthy one.
//!
//! May not fail or replace a Machine: that is a feature of its own, not built yet, and the description says so.
//! Source: `spec/machine.md` §1.2 T6b and T7, §2.4 (a deleted Node takes its Machine along), §4.1–4.2.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::node;
use super::observed::Observed;
use super::status::StatusChange;
use super::steer::steer;
use super::step::{Plan, Step, Why};
use crate::api::{OperationState, OperationType, Phase};

const NOT_BUILT: &str = "this version does not replace unhealthy machines by itself";

/// Decides what a Machine in phase `Running` or `Unknown` needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let Some(joined) = seen.node.filter(|joined| node::belongs(joined, seen.machine)) else {
        return missing(seen, now);
    };
    if joined.metadata.deletion_timestamp.is_some() {
        return Plan::act(vec![Step::DeleteMachine], Why::NodeDeleted);
    }
    let mut plan = judged(seen, joined, now);
    if let Some(name) = node::unguarded(joined, seen.machine) {
        // Behind what is told of its health: a target cluster that lets nobody write Nodes would keep it from being told.
        plan.steps.push(Step::GuardNode(name));
    }
    plan.steps.extend(steer(seen, joined));
    plan
}

fn judged(seen: &Observed<'_>, joined: &Node, now: Timestamp) -> Plan {
    let healthy = node::is_healthy(joined, &super::node_conditions(seen));
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
        (false, false) if !changed => return Plan::rest(Why::NodeUnhealthy),
        (true, true) => {
            let text = "The machine is healthy".to_owned();
            (
                told(Phase::Running, OperationState::Successful, text),
                Why::ConditionsChanged,
            )
        }
        (true, false) => {
            let text = "The machine has re-joined the cluster".to_owned();
            (
                told(Phase::Running, OperationState::Successful, text),
                Why::NodeRecovered,
            )
        }
        (false, _) => {
            let bad = node::unhealthy_conditions(joined, &super::node_conditions(seen)).join(", ");
            let text = format!("The node is unhealthy: {bad}; {NOT_BUILT}");
            (
                told(Phase::Unknown, OperationState::Processing, text),
                Why::NodeUnhealthy,
            )
        }
    };
    Plan::act(vec![Step::Record(Box::new(change))], why)
}

/// T7a: the Node was there once and is not any more.
fn missing(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if let Some(rival) = seen.rival {
        return Plan::rest(Why::NodeContested(rival.to_owned()));
    }
    if *seen.machine.phase() != Phase::Running || !seen.machine.has_joined() {
        return Plan::rest(Why::NodeMissing);
    }
    let text = format!("The Node object is gone; {NOT_BUILT}");
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
