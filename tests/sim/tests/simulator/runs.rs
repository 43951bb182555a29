//! Runs as a whole: they come right without faults, are what their choices say, and shrink.

use std::time::Duration;

use millwright_core::machine::{self, Why};
use millwright_sim::call_fault::CallFault;
use millwright_sim::campaign;
use millwright_sim::event::{Actor, Event, Oracle, Truth, Violation, What};
use millwright_sim::kinds::{OURS, collection, path};
use millwright_sim::run::{Faults, Outcome, Plan, by_names, by_seed};
use millwright_sim::seed;
use millwright_sim::shrink::shrink;
use millwright_sim::workload;
use millwright_sim::zoo;
use serde_json::json;

fn plan(workload: &str, faults: Faults) -> Plan {
    Plan {
        workload: Some(workload.to_owned()),
        faults,
        ..Plan::default()
    }
}

fn right(outcome: &Outcome, how: &str) {
    assert_eq!(outcome.violation, None, "{how}: {:#?}", outcome.story);
}

#[test]
fn every_workload_comes_right_where_nothing_goes_wrong() {
    for name in workload::ALL {
        let plan = Plan {
            is_told: true,
            ..plan(name, Faults::None)
        };
        let (first, mut writes) = (seed::first(), 0);
        for seed in first..first + 3 {
            let outcome = by_seed(&plan, seed);
            right(&outcome, &format!("{name}, seed {seed}"));
            writes += outcome.writes;
        }
        // One seed may ask for next to nothing, such as the deletion of a set of none.
        assert!(writes > 5, "{name} did nothing");
    }
}

/// A drain that waited for a pod of a DaemonSet, which comes back for ever, would end by its deadline, and by force.
#[test]
fn pods_of_a_daemon_set_hold_no_drain_up() {
    let plan = Plan {
        is_told: true,
        ..plan("drain-volumes", Faults::None)
    };
    let outcome = by_names(&plan, &[]);
    right(&outcome, "drain-volumes");
    let count = |words: &str| outcome.story.iter().filter(|line| line.contains(words)).count();
    assert!(count("scheduler: Create pods agent-") > 2, "{:#?}", outcome.story);
    assert!(count("manager 1: Create pods/eviction") > 2, "{:#?}", outcome.story);
    assert_eq!(count("manager 1: Delete pods"), 0, "{:#?}", outcome.story);
}

#[test]
fn a_run_is_what_its_seed_says_and_what_its_choices_say() {
    let mut digests = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let (first, second) = (by_seed(&Plan::default(), seed), by_seed(&Plan::default(), seed));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        let again = by_names(&Plan::default(), &first.deviations);
        assert_eq!(first.digest, again.digest, "choices of seed {seed}");
        digests.insert(first.digest);
    }
    assert_eq!(digests.len(), 12, "different seeds are different runs");
}

#[test]
fn a_manager_that_dies_at_any_call_is_followed_by_one_that_ends_its_work() {
    let mut died = 0;
    for (plan, seed, how) in campaign::strikes(&plan("create", Faults::None), 0) {
        let dies = matches!(&plan.faults, Faults::Injected(strike) if strike.call_fault == CallFault::DieAfter);
        if !dies {
            continue;
        }
        let outcome = by_seed(&Plan { is_told: true, ..plan }, seed);
        assert_eq!(outcome.violation, None, "{how}");
        died += u64::from(outcome.story.iter().any(|line| line.contains("manager 2 starts")));
    }
    assert!(died > 20, "it died in {died} runs only");
}

/// Says that nobody may die.
struct Immortal;

impl Oracle for Immortal {
    fn see(&mut self, event: &Event, _: &Truth<'_>) -> Result<(), Violation> {
        match &event.what {
            What::End { how, .. } if how == "crash" => Err(Violation {
                property: "immortal",
                text: how.clone(),
            }),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_failing_run_shrinks_to_little_more_than_its_fault() {
    let plan = Plan {
        oracles: || vec![Box::new(Immortal)],
        ..plan("create", Faults::These(vec!["F1".to_owned(), "F8".to_owned()]))
    };
    let failed = (0..50)
        .map(|seed| by_seed(&plan, seed))
        .find(|outcome| outcome.violation.is_some())
        .unwrap();
    let outcome = shrink(&plan, &failed.deviations, 150).unwrap();
    assert_eq!(outcome.violation.unwrap().property, "immortal");
    assert!(
        outcome.deviations.len() <= 3,
        "of {} choices are left: {:?}",
        failed.deviations.len(),
        outcome.deviations
    );
    assert_eq!(by_names(&plan, &outcome.deviations).digest, outcome.digest);
}

#[test]
fn a_manager_that_plans_without_end_while_no_time_passes_is_stopped_and_told_of() {
    let mut plan = plan("create", Faults::None);
    plan.hooks.planners.machine = |_, now| machine::Plan::wait(now, Why::Joining);
    plan.hooks.planners.laws = None;
    let broken = by_seed(&plan, 0).violation.unwrap();
    assert_eq!(broken.property, "L1");
    let told = "a manager looked at its clock 2000 times while no time passes; last came: ";
    assert!(broken.text.starts_with(told), "{broken}");
    assert!(broken.text.contains("machines"), "{broken}");
}

#[test]
fn whoever_changes_the_api_without_end_while_no_time_passes_is_stopped_and_told_of() {
    let mut plan = plan("create", Faults::None);
    plan.hooks.beside = |world, _| {
        Box::pin(async move {
            for size in (0..2).cycle() {
                let body = json!({ "spec": { "replicas": size } });
                world.order(Actor::Human, "PATCH", &format!("{OURS}/machinesets/workers"), &body);
                tokio::task::yield_now().await;
            }
        })
    };
    let broken = by_seed(&plan, 0).violation.unwrap();
    assert_eq!(broken.property, "L1");
    let told = "event follows event while no time passes; last came: ";
    assert!(broken.text.starts_with(told), "{broken}");
    assert!(broken.text.contains("human: Patch machinesets workers"), "{broken}");
}

/// Each replacement has a token with minutes to live, which must not put the end of its run off.
#[test]
fn a_manager_that_makes_and_replaces_machines_for_ever_breaks_l1_and_its_run_ends() {
    let outcome = by_seed(&zoo::named("joins-unseen").unwrap().plan(), 0);
    assert_eq!(outcome.violation.unwrap().property, "L1");
    assert!(outcome.passed < Duration::from_hours(1), "{:?}", outcome.passed);
}

#[test]
fn what_the_garbage_collector_removes_is_seen_by_the_oracles_whatever_its_kind() {
    let mut plan = plan("create", Faults::None);
    plan.is_told = true;
    plan.hooks.beside = |world, _| {
        Box::pin(async move {
            let owner = json!({ "apiVersion": "v1", "kind": "Secret", "name": "gone", "uid": "gone" });
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "web-0", "namespace": "default", "ownerReferences": [owner] },
                "spec": { "containers": [{ "name": "web", "image": "web" }] },
            });
            world.order(Actor::Human, "POST", &collection("pods"), &pod);
            world.collect();
        })
    };
    let outcome = by_seed(&plan, 0);
    right(&outcome, "a collected pod");
    let told = "collector: Delete pods web-0";
    assert!(
        outcome.story.iter().any(|line| line.contains(told)),
        "{:#?}",
        &outcome.story[..20]
    );
}

#[test]
fn what_one_request_changes_beside_its_object_is_seen_by_the_oracles() {
    let mut plan = plan("create", Faults::None);
    plan.is_told = true;
    plan.hooks.beside = |world, _| {
        Box::pin(async move {
            let labels = json!({ "app": "web" });
            let pdb = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": { "name": "web", "namespace": "default" },
                "spec": { "minAvailable": 0, "selector": { "matchLabels": labels } },
            });
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web-0", "namespace": "default", "labels": labels },
                "spec": { "containers": [{ "name": "web", "image": "web" }] },
            });
            let pods = collection("pods");
            let budget = path("poddisruptionbudgets", "web");
            world.order(Actor::Human, "POST", &collection("poddisruptionbudgets"), &pdb);
            world.order(Actor::Human, "POST", &pods, &pod);
            world.order(
                Actor::Human,
                "PATCH",
                &format!("{pods}/web-0/status"),
                &json!({ "status": { "phase": "Running" } }),
            );
            let status = json!({ "status": {
                "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1,
            } });
            world.order(Actor::Human, "PATCH", &format!("{budget}/status"), &status);
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "web-0", "namespace": "default" },
            });
            world.order(Actor::Human, "POST", &format!("{pods}/web-0/eviction"), &eviction);
        })
    };
    let outcome = by_seed(&plan, 0);
    right(&outcome, "an eviction");
    for told in [
        "Create pods/eviction web-0",
        "API server: Patch poddisruptionbudgets web",
    ] {
        assert!(
            outcome.story.iter().any(|line| line.contains(told)),
            "{told}: {:#?}",
            &outcome.story[..20]
        );
    }
}
