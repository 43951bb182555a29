//! What stands in MachineSets.

use std::sync::Arc;

use millwright_core::api::{MachineSet, MachineSetStatus};

use super::{Label, Table, class, conditions, created, failed, labels};

/// The metrics of sets.
pub(super) fn tables(sets: &[Arc<MachineSet>]) -> Vec<Table> {
    let spec = |name, help, value: fn(&MachineSet) -> i32| {
        Table::of(name, help, sets, move |set| {
            Some((labels(&set.metadata), f64::from(value(set))))
        })
    };
    let counter = |name, help, value: fn(&MachineSetStatus) -> i32| {
        Table::of(name, help, sets, move |set| {
            Some((labels(&set.metadata), f64::from(value(set.status.as_ref()?))))
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
            rows: sets.iter().flat_map(|set| told(set)).collect(),
        },
        Table {
            name: "machine_set_failed_machines",
            help: "Always 1; Machines whose last operation failed",
            rows: sets.iter().flat_map(|set| ill(set)).collect(),
        },
    ]
}

/// The original reads the class from a field that is always empty where a deployment owns the set; here it is the template's.
fn info(set: &MachineSet) -> Vec<Label> {
    let names = [
        "spec_machine_class_api_group",
        "spec_machine_class_kind",
        "spec_machine_class_name",
    ];
    let mut all = labels(&set.metadata);
    all.push(created(&set.metadata));
    all.extend(class(set.spec.template.class().as_ref(), names));
    all
}

fn told(set: &MachineSet) -> Vec<(Vec<Label>, f64)> {
    let told = set.status.iter().flat_map(|status| &status.conditions);
    let told = told.map(|told| (told.type_.as_str(), told.status.as_str()));
    conditions(&set.metadata, told)
}

fn ill(set: &MachineSet) -> Vec<(Vec<Label>, f64)> {
    let told = set.status.iter().filter_map(|status| status.failed_machines.as_ref());
    failed(&set.metadata, told.flatten())
}
