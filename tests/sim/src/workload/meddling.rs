//! Workloads in which a person or another tool changes what the manager decides by: labels, phases, the class of running machines, and
//! the owner of what stays.

use serde_json::json;

use super::action::{Action, abandon, begin, moment, patch, phase, relabel, scale};

/// Workloads in which somebody changes what the manager decides by.
pub fn workload(name: &str) -> Option<Vec<Action>> {
    Some(match name {
        "abandon" => vec![
            begin(3),
            Action::Settle,
            abandon("machinedeployments/workers"),
            moment(),
            begin(3),
            moment(),
            abandon("machinedeployments/workers"),
            moment(),
            begin(2),
        ],
        // Machines that run stay where their VMs are; new ones are made in the new place.
        "edit-class" => vec![
            begin(2),
            moment(),
            region("elsewhere"),
            moment(),
            scale(3),
            moment(),
            Action::DeleteOne("machines"),
            moment(),
            scale(1),
        ],
        "phases" => vec![
            begin(3),
            moment(),
            phase("Stopped"),
            moment(),
            phase("Terminating"),
            moment(),
            scale(2),
        ],
        "relabel" => vec![
            begin(3),
            moment(),
            relabel(json!("others")),
            moment(),
            relabel(json!(null)),
            moment(),
            scale(4),
        ],
        _ => return None,
    })
}

fn region(name: &str) -> Action {
    let body = json!({ "providerSpec": { "region": name } });
    patch(
        &format!("moves the class to region {name}"),
        "machineclasses/small",
        body,
    )
}
