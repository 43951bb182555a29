//! What stands in Machines.

use std::sync::Arc;

use millwright_core::api::{Machine, Phase};

use super::{Label, Table, class, conditions, created, labels};

/// The metrics of Machines.
pub(super) fn tables(machines: &[Arc<Machine>]) -> [Table; 4] {
    [
        Table::count("machine_items_total", "Machines in the namespace", machines),
        Table::of(
            "machine_current_status_phase",
            "Phase: Terminating -4, Failed -3, CrashLoopBackOff -2, Unknown -1, Running 1, any other 0",
            machines,
            |machine| Some((labels(&machine.metadata), phase(machine))),
        ),
        Table::of("machine_info", "Always 1; what the Machine is", machines, |machine| {
            Some((info(machine), 1.0))
        }),
        Table {
            name: "machine_status_condition",
            help: "Conditions that were copied from the Node: True 1, False 0, Unknown 2",
            rows: machines.iter().flat_map(|machine| told(machine)).collect(),
        },
    ]
}

fn phase(machine: &Machine) -> f64 {
    match machine.phase() {
        Phase::Terminating => -4.0,
        Phase::Failed => -3.0,
        Phase::CrashLoopBackOff => -2.0,
        Phase::Unknown => -1.0,
        Phase::Running => 1.0,
        Phase::New
        | Phase::Pending
        | Phase::Available
        | Phase::InPlaceUpdating
        | Phase::InPlaceUpdateSuccessful
        | Phase::InPlaceUpdateFailed
        | Phase::Other(_) => 0.0,
    }
}

fn info(machine: &Machine) -> Vec<Label> {
    let names = ["spec_class_api_group", "spec_class_kind", "spec_class_name"];
    let id = machine.provider_id().map(|id| id.to_string());
    let node = machine.node_label().map(|node| node.to_string());
    let mut all = labels(&machine.metadata);
    all.push(created(&machine.metadata));
    all.push(("spec_provider_id", id.unwrap_or_default()));
    all.extend(class(machine.spec.class.as_ref(), names));
    all.push(("node_name", node.unwrap_or_default()));
    all
}

fn told(machine: &Machine) -> Vec<(Vec<Label>, f64)> {
    let told = machine.status.iter().flat_map(|status| &status.conditions);
    let told = told.map(|told| (told.type_.as_str(), told.status.as_str()));
    conditions(&machine.metadata, told)
}
