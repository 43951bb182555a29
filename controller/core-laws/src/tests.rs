//! That the laws see what they are there for: a plan of ours with its steps in another order.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, MachineDeployment, MachineSet, OperationState, OperationType, Phase};
use millwright_core::ledger::{Calls, OwnerNotes};
use millwright_core::machine::node_patch::NodePatch;
use millwright_core::machine::{ClassView, DriverView, StatusChange};
use millwright_core::refusal::Refusal;
use millwright_core::settings::Settings;
use millwright_core::sight::Sight;
use millwright_core::{deployment, machine, set};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

/// A refusal whose pause is over: it is tried again now.
fn refused() -> Option<Refusal> {
    Some(Refusal::after(
        None,
        "quota is used up".to_owned(),
        now() - SignedDuration::from_mins(1),
    ))
}

fn object<K: DeserializeOwned>(uid: &str, rest: Value) -> K {
    let metadata = json!({"name": uid, "namespace": "test", "uid": uid, "finalizers": [keys::FINALIZER]});
    let mut body = json!({"metadata": metadata});
    millwright_core::merge::apply(&mut body, &rest);
    serde_json::from_value(body).expect("it is of its kind")
}

fn owner_spec(replicas: i32) -> Value {
    json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"pool": "workers"}},
        "template": {
            "metadata": {"labels": {"pool": "workers"}},
            "spec": {"class": {"kind": "MachineClass", "name": "small"}},
        },
    })
}

/// A set's plan, and what the laws say of it and of its mirror image.
fn set_told(replicas: i32, machines: &[Arc<Machine>], notes: &OwnerNotes) -> [Vec<Broken>; 2] {
    let spec = json!({"spec": owner_spec(replicas), "status": {"nextMachineNumber": 5, "replicas": 9}});
    let set: Arc<MachineSet> = Arc::new(object("workers", spec));
    let machines: Vec<set::MachineView<'_>> = machines.iter().map(set::MachineView::new).collect();
    let seen = set::Observed {
        set: &set,
        machines: &machines,
        exists: &|_| false,
        refusal: None,
        class_unchecked: false,
        notes,
        unanswered: &BTreeMap::new(),
        allowance: set::Allowance::all(0),
        is_frozen: false,
        unfreeze: false,
        sight: Sight::CLEAR,
        settings: &Settings::new("test"),
    };
    let mut plan = set::plan(&seen, now());
    let right = super::set(&seen, &plan, now());
    assert!(matches!(plan.steps.first(), Some(set::Step::Record(_))), "{plan:?}");
    plan.steps.reverse();
    [right, super::set(&seen, &plan, now())]
}

fn machine_of_set(phase: &str) -> Arc<Machine> {
    let owner = json!([{"apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": "workers", "controller": true}]);
    Arc::new(object(
        "m-1",
        json!({
            "metadata": {"labels": {"pool": "workers"}, "ownerReferences": owner},
            "spec": {"class": {"kind": "MachineClass", "name": "small"}},
            "status": {"currentStatus": {"phase": phase, "lastUpdateTime": "2025-01-01T00:00:00Z"}},
        }),
    ))
}

#[test]
fn a_set_whose_creations_are_refused_says_so_before_it_tries_again() {
    let notes = OwnerNotes {
        create_refused: refused(),
        ..OwnerNotes::default()
    };
    let [right, wrong] = set_told(1, &[], &notes);
    assert_eq!(right, []);
    assert!(wrong.contains(&Broken::ReportBehindFailure), "{wrong:?}");
}

#[test]
fn a_set_whose_deletions_are_refused_says_so_before_it_tries_again() {
    let notes = OwnerNotes {
        delete_refused: refused(),
        ..OwnerNotes::default()
    };
    // One too many; one that failed, where none is too many.
    for (replicas, phase) in [(0, "Running"), (1, "Failed")] {
        let [right, wrong] = set_told(replicas, &[machine_of_set(phase)], &notes);
        assert_eq!(right, [], "{phase}");
        assert!(wrong.contains(&Broken::ReportBehindFailure), "{phase}: {wrong:?}");
    }
}

#[test]
fn a_deployment_whose_set_is_refused_says_so_before_it_tries_again() {
    let mut body = json!({"spec": owner_spec(1)});
    millwright_core::merge::apply(&mut body, &json!({"spec": {"strategy": {"type": "Recreate"}}}));
    let deployment: MachineDeployment = object("workers", body);
    let notes = OwnerNotes {
        create_refused: refused(),
        ..OwnerNotes::default()
    };
    let seen = deployment::Observed {
        deployment: &deployment,
        sets: &[],
        exists: &|_| false,
        notes: &notes,
        refusals: &BTreeMap::new(),
        sight: Sight::CLEAR,
        has_target: true,
        replacements: 1,
        plan_set: set::plan,
    };
    let mut plan = deployment::plan(&seen, now());
    assert_eq!(super::deployment(&seen, &plan, now()), []);
    plan.steps.reverse();
    assert_eq!(
        super::deployment(&seen, &plan, now()),
        [Broken::ReportBehindFailure],
        "{plan:?}"
    );
}

#[test]
fn a_machines_bad_health_is_told_before_its_node_is_written() {
    let machine: Machine = object(
        "m-1",
        json!({"spec": {}, "status": {"currentStatus": {"phase": "Running"}}}),
    );
    let (calls, settings) = (Calls::default(), Settings::new("test"));
    let seen = machine::Observed {
        machine: &machine,
        class: ClassView::Unnamed,
        driver: DriverView::Unnamed,
        node: None,
        rival: None,
        losers: millwright_core::replacement_limit::Tally::default(),
        virtual_capacity: None,
        standing: machine::steer::Standing::Aside,
        drain: None,
        volumes: &millwright_core::drain::Volumes::default(),
        sight: Sight::CLEAR,
        calls: &calls,
        circuits: millwright_core::circuit_breaker::Circuits::default(),
        settings: &settings,
    };
    let change = StatusChange::told(
        &machine,
        OperationType::HealthCheck,
        OperationState::Processing,
        "The node is unhealthy".to_owned(),
        now(),
    );
    let record = machine::Step::Record(Box::new(change.entering(Phase::Unknown)));
    let mut patch = NodePatch::of(&Node::default());
    patch.finalizer = Some(true);
    let guard = machine::Step::WriteNode(Box::new(patch));
    let told = |steps| super::machine(&seen, &machine::Plan::act(steps, machine::Why::NodeUnhealthy), now());
    assert_eq!(told(vec![record.clone(), guard.clone()]), []);
    assert_eq!(told(vec![guard, record]), [Broken::ReportBehindFailure]);
}
