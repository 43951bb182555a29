//! The oracles see what happens: a manager with a mistake is caught by the property that the mistake breaks, and by none
//! before it; a manager without is not, and each property had something to judge.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeMap;

use jiff::Timestamp;
use millwright::env::Planners;
use millwright_core::api::{keys, meta};
use millwright_core::machine::{self, Observed, Step, Why};
use millwright_sandbox::request::{Request, Verb};
use millwright_sim::run::{Faults, Outcome, Plan, by_seed};
use millwright_sim::workload::CANARY;
use serde_json::{Value, json};

/// Seeds of which one at least must show a mistake.
const SEEDS: u64 = 12;

fn plan(workload: &str) -> Plan {
    Plan {
        workload: Some(workload.to_owned()),
        faults: Faults::None,
        ..Plan::default()
    }
}

fn tampered(workload: &str, tamper: fn(&mut Request)) -> Plan {
    Plan {
        tamper,
        ..plan(workload)
    }
}

fn planned(workload: &str, machine: fn(&Observed<'_>, Timestamp) -> machine::Plan) -> Plan {
    Plan {
        planners: Planners {
            machine,
            ..Planners::default()
        },
        ..plan(workload)
    }
}

/// The first thing that breaks in any of a few runs.
fn broken(plan: &Plan) -> (&'static str, String) {
    let broken = (0..SEEDS).find_map(|seed| by_seed(plan, seed).violation);
    broken.map(|violation| (violation.property, violation.text)).unwrap()
}

#[track_caller]
fn breaks(plan: &Plan, property: &str) {
    let (found, text) = broken(plan);
    assert_eq!(found, property, "{text}");
}

fn change(request: &mut Request, change: impl FnOnce(&mut Value)) {
    let mut body: Value = serde_json::from_slice(&request.body).unwrap();
    change(&mut body);
    request.body = body.to_string().into_bytes();
}

fn is_patch_of(request: &Request, resource: &str, subresource: &str) -> bool {
    let target = &request.target;
    request.verb == Verb::Patch && target.resource == resource && target.subresource == subresource
}

#[test]
fn a_deletion_without_a_uid_breaks_s10() {
    let plan = tampered("scale", |request| {
        if request.verb == Verb::Delete {
            change(request, |body| body["preconditions"] = Value::Null);
        }
    });
    breaks(&plan, "S10");
}

#[test]
fn a_finalizer_that_is_removed_before_the_vm_breaks_s2() {
    let plan = planned("again", |seen, now| {
        let metadata = &seen.machine.metadata;
        if metadata.deletion_timestamp.is_some() && meta::has_finalizer(metadata, keys::FINALIZER) {
            return machine::Plan::act(vec![Step::RemoveFinalizer], Why::VmGone);
        }
        machine::plan(seen, now)
    });
    breaks(&plan, "S2");
}

#[test]
fn a_field_of_somebody_else_that_is_changed_breaks_s8() {
    let plan = tampered("create", |request| {
        if is_patch_of(request, "machines", "") {
            change(request, |body| body["metadata"]["labels"]["theirs"] = json!("changed"));
        }
    });
    breaks(&plan, "S8");
}

#[test]
fn user_data_in_a_status_breaks_s11() {
    let plan = tampered("create", |request| {
        if is_patch_of(request, "machines", "status") {
            change(request, |body| {
                body["status"]["lastOperation"]["description"] = json!(format!("cannot read {CANARY}"));
            });
        }
    });
    breaks(&plan, "S11");
}

#[test]
fn every_property_that_can_be_judged_without_faults_is_judged() {
    let mut hits: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let Outcome {
            violation, antecedents, ..
        } = by_seed(&plan("scale"), seed);
        assert_eq!(violation, None, "seed {seed}");
        for (name, count) in antecedents {
            *hits.entry(name).or_default() += count;
        }
    }
    // L3, L4 and L7 begin or end otherwise than any of these runs.
    for name in [
        "S1", "S2", "S3", "S4", "S8", "S9", "S10", "S11", "S12", "S14", "S15", "L1", "L2",
    ] {
        assert!(hits[name] > 0, "{name} judged nothing: {hits:?}");
    }
}
