//! A set and its Machines in any order, with crashes after any step: the end is the same.
//!
//! The tape of choices is proptest's, so what fails is shrunk to the fewest of them.

use std::time::Duration;

use jiff::SignedDuration;
use millwright_core::api::{Machine, MachineSet, meta};
use millwright_core::ids::Name;
use millwright_core::wake::Key;
use proptest::prelude::*;
use serde_json::json;

use crate::script;
use crate::stage::Stage;

/// The sizes that the set is asked for, one after the other.
const SIZES: [i32; 4] = [0, 5, 2, 0];

/// What the world looks like to a person.
#[derive(Debug, PartialEq, Eq)]
struct Ending {
    machines: usize,
    vms: usize,
    nodes: usize,
    tokens: usize,
    ready: i32,
    replicas: i32,
}

fn ending(stage: &Stage) -> Ending {
    let set = stage.etcd.sets.get(&Name::new("workers"));
    let status = set.and_then(|set| set.status.clone()).unwrap_or_default();
    Ending {
        machines: stage.etcd.machines.len(),
        vms: stage.cloud.vms.len(),
        nodes: stage.etcd.nodes.len(),
        tokens: stage.tokens.len(),
        ready: status.ready_replicas,
        replicas: status.replicas,
    }
}

fn expected(size: i32) -> Ending {
    let count = usize::try_from(size).expect("sizes are not negative");
    Ending {
        machines: count,
        vms: count,
        nodes: count,
        tokens: 0,
        ready: size,
        replicas: size,
    }
}

fn staged(delay: i64, has_target: bool) -> Stage {
    let mut stage = Stage::default();
    stage.settings.has_target = has_target;
    stage.cloud.honest = true;
    stage.cloud.info.propagation_delay = SignedDuration::from_secs(delay);
    script::line(&mut stage, "check small token");
    script::line(&mut stage, "create class small");
    script::line(&mut stage, "create set workers of 0");
    stage
}

fn scale(stage: &mut Stage, size: i32) {
    stage.patch::<MachineSet>("workers", &json!({"spec": {"replicas": size}}), false);
}

/// Kubelets of VMs that run and are recorded register their Nodes.
fn kubelets(stage: &mut Stage) {
    if !stage.settings.has_target {
        return;
    }
    let due: Vec<String> = stage
        .cloud
        .vms
        .values()
        .map(|vm| vm.machine.as_str().to_owned())
        .filter(|machine| !stage.etcd.nodes.contains_key(&Name::new(format!("node-of-{machine}"))))
        .collect();
    for machine in due {
        stage.join(&machine, &[]);
    }
}

/// Lets the manager run, undisturbed, by its queue alone.
fn calm(stage: &mut Stage) {
    for _ in 0..60 {
        stage
            .settle(stage.uptime + Duration::from_secs(20))
            .expect("nothing crashes in calm times");
        kubelets(stage);
    }
}

/// Names and uids are used once, and no more Machines stay than are or were wanted.
fn assert_budget(stage: &Stage, allowed: i32) {
    let staying = stage
        .etcd
        .machines
        .values()
        .filter(|machine| !meta::is_deleting(&machine.metadata));
    let count = i32::try_from(staying.count()).expect("few");
    assert!(
        count <= allowed,
        "{count} machines stay where {allowed} are allowed\n{}",
        stage.told.join("\n")
    );
}

/// One choice: whose turn it is, and what happens to them.
fn disturb(stage: &mut Stage, choice: u16) {
    let keys: Vec<Key> = stage
        .etcd
        .machines
        .keys()
        .map(|name| Key::Machine(name.clone()))
        .chain([Key::Set(Name::new("workers")), Key::Class(Name::new("small"))])
        .collect();
    let pick = usize::from(choice / 8);
    match choice % 8 {
        0..=3 => run(stage, &keys[pick % keys.len()], None),
        4 => run(stage, &keys[pick % keys.len()], Some(pick / keys.len() % 5)),
        5 if !stage.flights.is_empty() => {
            // The driver answers the calls about one machine in their order.
            let uid = stage.flights[pick % stage.flights.len()].uid.clone();
            stage.deliver(
                stage
                    .flights
                    .iter()
                    .position(|flight| flight.uid == uid)
                    .expect("it is one of them"),
            );
        }
        6 => kubelets(stage),
        _ => stage.uptime += Duration::from_millis(u64::from(choice)),
    }
    stage.assert_no_leak();
}

/// A pass out of turn; with fuel, the process dies after so many steps.
fn run(stage: &mut Stage, key: &Key, fuel: Option<usize>) {
    stage.fuel = fuel;
    let result = stage.pass(key);
    stage.fuel = None;
    match result {
        Ok(verdict) => drop(stage.world.queue.give_back(key.clone(), verdict, stage.uptime)),
        Err(_) => stage.restart(),
    }
}

#[test]
fn in_fixed_order_a_set_grows_shrinks_and_ends_exactly() {
    let mut stage = staged(0, true);
    for size in SIZES {
        scale(&mut stage, size);
        calm(&mut stage);
        assert_eq!(ending(&stage), expected(size));
    }
    assert_eq!(stage.cloud.made.len(), 5, "no VM is made in vain");
}

#[test]
fn a_set_at_rest_writes_nothing() {
    let mut stage = staged(0, true);
    scale(&mut stage, 3);
    calm(&mut stage);
    let (writes, told) = (stage.etcd.writes, stage.told.len());
    stage
        .settle(stage.uptime + Duration::from_secs(3600))
        .expect("nothing crashes");
    assert_eq!((stage.etcd.writes, stage.told.len()), (writes, told));
    // A new process finds everything as it should be, too (S15).
    stage.restart();
    stage
        .settle(stage.uptime + Duration::from_secs(3600))
        .expect("nothing crashes");
    assert_eq!(stage.etcd.writes, writes, "{}", stage.told[told..].join("\n"));
}

#[test]
fn a_crash_after_any_step_of_growth_leaves_nothing_behind_and_nothing_twice() {
    for fuel in 0..80 {
        let mut stage = staged(2, true);
        scale(&mut stage, 3);
        stage.fuel = Some(fuel);
        let crashed = stage.settle(stage.uptime + Duration::from_secs(30)).is_err();
        stage.restart();
        calm(&mut stage);
        assert_eq!(
            ending(&stage),
            expected(3),
            "after {fuel} steps\n{}",
            stage.told.join("\n")
        );
        scale(&mut stage, 0);
        stage.fuel = Some(fuel);
        let crashed_again = stage.settle(stage.uptime + Duration::from_secs(30)).is_err();
        stage.restart();
        calm(&mut stage);
        assert_eq!(
            ending(&stage),
            expected(0),
            "after {fuel} steps\n{}",
            stage.told.join("\n")
        );
        if !crashed && !crashed_again {
            assert!(fuel > 20, "crashes were tried");
            return;
        }
    }
    panic!("more than 80 steps for three machines");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_with_any_crashes_ends_as_the_fixed_order_does(
        tapes in prop::collection::vec(prop::collection::vec(any::<u16>(), 0..60), SIZES.len()),
        delay in 0i64..4,
        has_target in any::<bool>(),
    ) {
        let mut stage = staged(delay, has_target);
        let mut before = 0;
        for (size, tape) in SIZES.into_iter().zip(tapes) {
            scale(&mut stage, size);
            for choice in tape {
                disturb(&mut stage, choice);
                assert_budget(&stage, size.max(before));
            }
            if size == 0 {
                calm(&mut stage);
                prop_assert_eq!(ending(&stage), expected(size), "{}", stage.told.join("\n"));
            }
            before = size.max(i32::try_from(stage.etcd.machines.len()).expect("few"));
        }
        prop_assert!(stage.etcd.machines.is_empty() && stage.cloud.vms.is_empty());
    }
}

#[test]
fn what_the_template_lost_is_taken_from_the_machines_too_and_written_once() {
    let mut stage = staged(0, true);
    let node_template = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    let patch = json!({"spec": {"template": {"spec": {"nodeTemplate": node_template}}}});
    stage.patch::<MachineSet>("workers", &patch, false);
    scale(&mut stage, 1);
    calm(&mut stage);
    let patch = json!({"spec": {"template": {"spec": {"nodeTemplate": {"metadata": {"labels": {"b": null}}}}}}});
    stage.patch::<MachineSet>("workers", &patch, false);
    calm(&mut stage);
    let machine: Machine = stage.etcd.machines.values().next().expect("it is there").clone();
    let labels = machine
        .spec
        .node_template
        .as_ref()
        .map(|template| template.labels())
        .unwrap_or_default();
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["a"]);
    stage.told.clear();
    run(&mut stage, &Key::Set(Name::new("workers")), None);
    assert!(
        !stage.told.iter().any(|told| told.contains("bring")),
        "{:?}",
        stage.told
    );
}
