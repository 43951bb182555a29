//! What stands in Machines.

use std::sync::Arc;

use millwright_core::api::{Machine, Phase, meta};

use super::{Label, Table, status};

/// The metrics of Machines.
pub(super) fn tables(machines: &[Arc<Machine>]) -> [Table; 4] {
    [
        Table::count("machine_items_total", "Machines in the namespace", machines),
        Table::of(
            "machine_current_status_phase",
            "Phase: Terminating -4, Failed -3, CrashLoopBackOff -2, Unknown -1, Running 1, any other 0",
            machines,
            |machine| Some((name(machine), phase(machine))),
        ),
        Table::of("machine_info", "Always 1; what the Machine is", machines, |machine| {
            Some((info(machine), 1.0))
        }),
        Table {
            name: "machine_status_condition",
            help: "Conditions that were copied from the Node: True 1, False 0, Unknown 2",
            rows: machines.iter().flat_map(|machine| conditions(machine)).collect(),
        },
    ]
}

fn name(machine: &Machine) -> Vec<Label> {
    vec![
        ("name", meta::name(&machine.metadata).to_owned()),
        ("namespace", meta::namespace(&machine.metadata).to_owned()),
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
    let class = machine.spec.class.as_ref();
    let of_class = |field: Option<&Option<String>>| field.cloned().flatten().unwrap_or_default();
    let created = meta::created(&machine.metadata).map(|at| at.as_second().to_string());
    let mut labels = name(machine);
    labels.extend([
        ("createdAt", created.unwrap_or_default()),
        (
            "spec_provider_id",
            machine.provider_id().map(|id| id.to_string()).unwrap_or_default(),
        ),
        ("spec_class_api_group", of_class(class.map(|class| &class.api_group))),
        ("spec_class_kind", of_class(class.map(|class| &class.kind))),
        ("spec_class_name", of_class(class.map(|class| &class.name))),
        (
            "node_name",
            machine.node_label().map(|node| node.to_string()).unwrap_or_default(),
        ),
    ]);
    labels
}

fn conditions(machine: &Machine) -> Vec<(Vec<Label>, f64)> {
    let told = machine.status.iter().flat_map(|status| &status.conditions);
    let row = |type_: &str, value: &str| {
        let mut labels = name(machine);
        labels.push(("condition", type_.to_owned()));
        (labels, status(value))
    };
    told.map(|told| row(&told.type_, &told.status)).collect()
}
