//! Mistakes about machines that are updated in place.

use jiff::Timestamp;
use millwright::env::Planners;
use millwright_core::api::{MachineDeployment, OperationState, OperationType, Phase};
use millwright_core::deployment;
use millwright_core::machine::in_place::marks::Reason;
use millwright_core::machine::{self, Observed, Plan, StatusChange, Step, Why, node};
use millwright_core::merge;
use serde_json::json;

use super::Mutant;
use super::machines::deciding;
use crate::world::hooks::Hooks;

pub(super) const ALL: [Mutant; 3] = [
    Mutant {
        name: "selects-all",
        rows: "-",
        what: "all nodes are selected for their update in place at once",
        property: "S22",
        workload: "in-place-once",
        faults: &[],
        rests: false,
        hooks: || {
            let planners = Planners {
                deployment: selects_all,
                ..Planners::default()
            };
            Hooks {
                planners,
                ..Hooks::default()
            }
        },
    },
    Mutant {
        name: "undrained-update",
        rows: "-",
        what: "the agent on a node may begin while pods are on it",
        property: "S7",
        workload: "drain-in-place",
        faults: &[],
        rests: false,
        hooks: || deciding(undrained),
    },
    Mutant {
        name: "cordon-stays",
        rows: "-",
        what: "a node that was updated in place stays cordoned",
        property: "L1",
        workload: "in-place-once",
        faults: &[],
        rests: false,
        hooks: || deciding(cordon_stays),
    },
];

/// As if all might be missing.
fn selects_all(seen: &deployment::Observed<'_>, now: Timestamp) -> deployment::Plan {
    let mut body = json!(seen.deployment);
    let bounds = json!({"spec": {"strategy": {"inPlaceUpdate": {"maxUnavailable": "100%"}}}});
    merge::apply(&mut body, &bounds);
    let deployment: MachineDeployment = serde_json::from_value(body).expect("it is a deployment");
    deployment::plan(
        &deployment::Observed {
            deployment: &deployment,
            ..*seen
        },
        now,
    )
}

/// As soon as the node is cordoned.
fn undrained(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    let is_cordoned = seen.node.is_some_and(node::is_cordoned);
    if plan.why != Why::InPlace(Reason::Selected) || !is_cordoned {
        return plan;
    }
    let (operation, state) = (OperationType::InPlaceUpdate, OperationState::Processing);
    let change = StatusChange::told(seen.machine, operation, state, String::new(), now);
    let change = change.entering(Phase::InPlaceUpdating);
    Plan::act(vec![Step::Record(Box::new(change))], Why::UpdatingInPlace)
}

fn cordon_stays(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    for step in &mut plan.steps {
        if let Step::WriteNode(patch) = step {
            patch.unschedulable = patch.unschedulable.filter(|on| *on);
        }
    }
    plan
}
