//! The order of leaving, against the table of MS-7 and `deletePolicy`, written down apart
//! from the code that ranks: named Machines, then unhealthy ones, then the policy.

use std::sync::Arc;

use millwright_core::api::machine_set::DeletePolicy;
use millwright_core::api::{Machine, keys};
use millwright_core::set::{MachineView, rank};
use serde_json::{Value, json};

use crate::dice::now;

/// A running Machine, made at 10:00, with something of its own.
fn machine(name: &str, created: &str, phase: &str, annotations: Value, preserved: Value) -> Machine {
    serde_json::from_value(json!({
        "metadata": {"name": name, "creationTimestamp": created, "annotations": annotations},
        "status": {"currentStatus": {"phase": phase, "preserveExpiryTime": preserved}},
    }))
    .expect("it is a Machine")
}

fn ranked(machines: Vec<Machine>, policy: Option<DeletePolicy>) -> Vec<String> {
    let machines: Vec<Arc<Machine>> = machines.into_iter().rev().map(Arc::new).collect();
    let views: Vec<MachineView<'_>> = machines.iter().map(MachineView::new).collect();
    let ranked = rank::rank(views.iter(), policy, now());
    ranked
        .iter()
        .map(|machine| machine.metadata.name.clone().unwrap_or_default())
        .collect()
}

const TEN: &str = "2026-01-01T10:00:00Z";
const ELEVEN: &str = "2026-01-01T11:00:00Z";

#[test]
fn every_key_of_the_table_decides_before_those_below_it() {
    let marked = |at: &str| json!({keys::MARKED_FOR_DELETION_TIME: at});
    let priority = |text: &str| json!({keys::PRIORITY: text});
    let until = |at: &str| json!(at);
    let auto = json!({keys::PRESERVE: keys::PRESERVE_AUTO, keys::PRIORITY: "1"});
    let user = json!({keys::PRESERVE: keys::PRESERVE_NOW, keys::PRIORITY: "1"});
    let plain = || json!({});
    let order = vec![
        machine("a-priority-below-zero", ELEVEN, "Running", priority("-1"), Value::Null),
        machine("b-priority-1", ELEVEN, "Running", priority("1"), Value::Null),
        machine("c-marked-early", ELEVEN, "Running", marked(TEN), Value::Null),
        machine("d-marked-late", TEN, "Running", marked(ELEVEN), Value::Null),
        machine("e-new-and-its-mark-unreadable", ELEVEN, "", marked("x"), Value::Null),
        machine("f-failed", ELEVEN, "Failed", priority("x"), Value::Null),
        machine("g-crash-looping", ELEVEN, "CrashLoopBackOff", plain(), Value::Null),
        machine("h-unknown", ELEVEN, "Unknown", plain(), Value::Null),
        machine("i-pending", ELEVEN, "Pending", plain(), Value::Null),
        machine("j-available", ELEVEN, "Available", plain(), Value::Null),
        machine("k-running-and-old", TEN, "Running", plain(), Value::Null),
        machine("l-once-preserved", ELEVEN, "Running", plain(), until(TEN)),
        machine("m-running-by-name", ELEVEN, "Running", plain(), Value::Null),
        machine("n-priority-4", TEN, "Failed", priority("4"), Value::Null),
        machine("o-preserved-by-us", TEN, "Failed", auto, until("2026-02-02T00:00:00Z")),
        machine(
            "p-preserved-by-a-user-for-short",
            ELEVEN,
            "",
            user.clone(),
            until("2026-01-02T00:00:00Z"),
        ),
        machine(
            "q-preserved-by-a-user-for-long",
            TEN,
            "",
            user,
            until("2026-01-03T00:00:00Z"),
        ),
    ];
    let expected: Vec<String> = order
        .iter()
        .map(|machine| machine.metadata.name.clone().unwrap_or_default())
        .collect();
    assert_eq!(ranked(order, None), expected);
}

/// Seed 002: annotated and unhealthy Machines first, then the policy.
///
/// Rows: R10.
#[test]
fn unhealthy_machines_leave_before_the_policy_decides_and_marked_ones_before_them() {
    let noon = "2026-01-01T10:30:00Z";
    let marked = json!({keys::DELETE_MACHINE: "yes"});
    let machines = || {
        vec![
            machine("old", TEN, "Running", json!({}), Value::Null),
            machine("young", ELEVEN, "Running", json!({}), Value::Null),
            machine("old-and-pending", TEN, "Pending", json!({}), Value::Null),
            machine("unknown", noon, "Unknown", json!({}), Value::Null),
            machine("marked", noon, "Running", marked.clone(), Value::Null),
        ]
    };
    let by = |policy| ranked(machines(), policy);
    let without = ["marked", "unknown", "old-and-pending", "old", "young"];
    assert_eq!(by(None), without);
    assert_eq!(by(Some(DeletePolicy::Random)), without);
    let newest = ["marked", "unknown", "old-and-pending", "young", "old"];
    assert_eq!(by(Some(DeletePolicy::Newest)), newest);
    let oldest = ["marked", "old-and-pending", "unknown", "old", "young"];
    assert_eq!(by(Some(DeletePolicy::Oldest)), oldest);
}
