//! What stands in MachineSets.

use std::sync::Arc;

use millwright_core::api::{MachineSet, MachineSetStatus, MachineSummary, meta};

use super::{Label, Table, status};

/// The metrics of sets.
pub(super) fn tables(sets: &[Arc<MachineSet>]) -> Vec<Table> {
    let spec = |name, help, value: fn(&MachineSet) -> i32| {
        Table::of(name, help, sets, move |set| Some((labels(set), f64::from(value(set)))))
    };
    let counter = |name, help, value: fn(&MachineSetStatus) -> i32| {
        Table::of(name, help, sets, move |set| {
            Some((labels(set), f64::from(value(set.status.as_ref()?))))
        })
    };
    vec![
        Table::count("machine_set_items_total", "MachineSets in the namespace", sets),
        Table::of("machine_set_info", "Always 1; what the set is", sets, |set| {
            Some((info(set), 1.0))
        }),
        spec("machine_set_info_spec_replicas", "Wanted Machines", |set| {
            set.spec.replicas
        }),
        spec("machine_set_info_spec_min_ready_seconds", "minReadySeconds", |set| {
            set.spec.min_ready_seconds
        }),
        counter("machine_set_status_replicas", "Machines", |status| status.replicas),
        counter("machine_set_status_ready_replicas", "Running Machines", |status| {
            status.ready_replicas
        }),
        counter(
            "machine_set_status_available_replicas",
            "Available Machines",
            |status| status.available_replicas,
        ),
        counter(
            "machine_set_status_fully_labelled_replicas",
            "Machines with all labels of the template",
            |status| status.fully_labeled_replicas,
        ),
        Table {
            name: "machine_set_status_condition",
            help: "Conditions of sets: True 1, False 0, Unknown 2",
            rows: sets.iter().flat_map(|set| conditions(set)).collect(),
        },
        Table {
            name: "machine_set_failed_machines",
            help: "Always 1; Machines whose last operation failed",
            rows: sets.iter().flat_map(|set| failed(set)).collect(),
        },
    ]
}

fn labels(set: &MachineSet) -> Vec<Label> {
    vec![
        ("name", meta::name(&set.metadata).to_owned()),
        ("namespace", meta::namespace(&set.metadata).to_owned()),
    ]
}

/// The original reads the class from a field that is always empty where a deployment owns the set; here it is the template's.
fn info(set: &MachineSet) -> Vec<Label> {
    let class = set.spec.template.class();
    let created = meta::created(&set.metadata).map(|at| at.as_second().to_string());
    let part = |part: Option<&Option<String>>| part.cloned().flatten().unwrap_or_default();
    let mut all = labels(set);
    all.extend([
        ("createdAt", created.unwrap_or_default()),
        (
            "spec_machine_class_api_group",
            part(class.as_ref().map(|class| &class.api_group)),
        ),
        ("spec_machine_class_kind", part(class.as_ref().map(|class| &class.kind))),
        ("spec_machine_class_name", part(class.as_ref().map(|class| &class.name))),
    ]);
    all
}

fn conditions(set: &MachineSet) -> Vec<(Vec<Label>, f64)> {
    let told = set.status.iter().flat_map(|status| &status.conditions);
    let row = |type_: &str, value: &str| {
        let mut all = labels(set);
        all.push(("condition", type_.to_owned()));
        (all, status(value))
    };
    told.map(|told| row(&told.type_, &told.status)).collect()
}

fn failed(set: &MachineSet) -> Vec<(Vec<Label>, f64)> {
    let failed = set.status.iter().filter_map(|status| status.failed_machines.as_ref());
    failed
        .flatten()
        .map(|summary| (of_failed(labels(set), summary), 1.0))
        .collect()
}

/// Adds what is told of a Machine whose last operation failed.
pub(super) fn of_failed(mut labels: Vec<Label>, summary: &MachineSummary) -> Vec<Label> {
    let last = summary.last_operation.as_ref();
    let state = last.and_then(|last| last.state.as_ref()).map(ToString::to_string);
    let operation = last.and_then(|last| last.type_.as_ref()).map(ToString::to_string);
    labels.extend([
        ("failed_machine_name", summary.name.clone().unwrap_or_default()),
        (
            "failed_machine_provider_id",
            summary.provider_id.clone().unwrap_or_default(),
        ),
        (
            "failed_machine_owner_ref",
            summary.owner_ref.clone().unwrap_or_default(),
        ),
        ("failed_machine_last_operation_state", state.unwrap_or_default()),
        (
            "failed_machine_last_operation_machine_operation_type",
            operation.unwrap_or_default(),
        ),
    ]);
    labels
}
