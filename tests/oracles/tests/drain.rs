//! S7 by hand: VMs that go too early, pods that are removed the wrong way, and the nearest of each that is right.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use millwright_oracles::settings::Settings;
use millwright_oracles::{Act, By, Call, Event, Method, Panel, Truth, Verb, Vm, Write};
use serde_json::{Value, json};

const MANAGER: By = By::Manager(1);

/// A machine that is being deleted since second 0, its node, and a pod on it.
#[derive(Clone)]
struct Hand {
    objects: BTreeMap<&'static str, Vec<Value>>,
    is_leaving: bool,
    is_off: bool,
}

impl Truth for Hand {
    fn now(&self) -> Timestamp {
        at(0)
    }

    fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        let objects = self.objects.get(resource).into_iter().flatten();
        objects.cloned().map(Arc::new).collect()
    }

    fn vms(&self) -> Vec<Vm> {
        vec![Vm {
            uid: "m".to_owned(),
            id: "vm-m".to_owned(),
            provider_id: "virtual:///vm-m".to_owned(),
            leaving: self.is_leaving,
            runs: !self.is_off,
        }]
    }

    fn may_appear(&self, _: &str) -> bool {
        false
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn event(seconds: i64, act: Act) -> Event {
    Event { at: at(seconds), act }
}

fn merged(mut value: Value, change: &Value) -> Value {
    match (&mut value, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, change) in change {
                let before = into.remove(key).unwrap_or_else(|| json!({}));
                into.insert(key.clone(), merged(before, change));
            }
            value
        }
        _ => change.clone(),
    }
}

fn machine(change: &Value) -> Value {
    let machine = json!({
        "metadata": {"name": "m", "uid": "m", "deletionTimestamp": at(0).to_string()},
        "spec": {"providerID": "virtual:///vm-m"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    merged(machine, change)
}

fn node(change: &Value) -> Value {
    let node = json!({
        "metadata": {"name": "n", "uid": "n"}, "spec": {"providerID": "virtual:///vm-m"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(-600).to_string()}]},
    });
    merged(node, change)
}

fn pod(change: &Value) -> Value {
    let pod = json!({
        "metadata": {"name": "web", "uid": "web", "labels": {"app": "web"}}, "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    merged(pod, change)
}

fn silent(since: i64) -> Value {
    let condition = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": at(since).to_string()}]);
    node(&json!({"status": {"conditions": condition}}))
}

fn going() -> Value {
    json!({"metadata": {"deletionTimestamp": at(5).to_string()}})
}

fn world(machine: Value, node: Value, pods: Vec<Value>) -> Hand {
    Hand {
        objects: BTreeMap::from([("machines", vec![machine]), ("nodes", vec![node]), ("pods", pods)]),
        is_leaving: false,
        is_off: false,
    }
}

fn plain() -> Hand {
    world(machine(&json!({})), node(&json!({})), vec![pod(&json!({}))])
}

/// A write of a manager's or of the cluster's.
fn write(by: By, verb: Verb, resource: &str, before: Option<Value>, after: Option<Value>) -> Write {
    Write {
        by,
        sent: at(0),
        verb,
        resource: resource.to_owned(),
        subresource: String::new(),
        before: before.map(Arc::new),
        after: after.map(Arc::new),
        names_uid: true,
        names_version: true,
        accepted: true,
    }
}

fn came(seconds: i64, pod: &Value) -> Event {
    let write = write(By::Cluster, Verb::Create, "pods", None, Some(pod.clone()));
    event(seconds, Act::Write(write))
}

fn node_seen(seconds: i64, node: &Value) -> Event {
    let write = write(
        By::Cluster,
        Verb::Patch,
        "nodes",
        Some(node.clone()),
        Some(node.clone()),
    );
    event(seconds, Act::Write(write))
}

fn asked(seconds: i64) -> Event {
    let call = Call {
        by: MANAGER,
        method: Method::DeleteMachine,
        uid: "m".to_owned(),
        epoch: None,
    };
    event(seconds, Act::Call(call))
}

fn deleted(seconds: i64) -> Event {
    let deletion = Write {
        sent: at(seconds),
        ..write(
            MANAGER,
            Verb::Delete,
            "pods",
            Some(pod(&json!({}))),
            Some(pod(&going())),
        )
    };
    event(seconds, Act::Write(deletion))
}

fn evicted(pod: &Value) -> Event {
    let eviction = Write {
        subresource: "eviction".to_owned(),
        ..write(
            MANAGER,
            Verb::Create,
            "pods",
            Some(pod.clone()),
            Some(merged(pod.clone(), &going())),
        )
    };
    event(5, Act::Write(eviction))
}

/// What S7 says of a trace in such a world, and how often it had something to judge.
fn judged(trace: &[Event], world: &Hand) -> (Option<String>, u64) {
    let settings = Settings {
        elects: false,
        max_lag: SignedDuration::from_secs(2),
        drain_timeout: SignedDuration::from_mins(3),
        ..Settings::default()
    };
    let mut panel = Panel::new(&settings);
    let mut broken = trace.iter().filter_map(|event| panel.see(event, world).err());
    let broken = broken.next().map(|violation| {
        assert_eq!(violation.property, "S7", "{violation}");
        violation.what
    });
    (broken, panel.hits()["S7"])
}

#[track_caller]
fn breaks(trace: &[Event], world: &Hand, told: &str) {
    let broken = judged(trace, world).0.expect("it is wrong");
    assert!(broken.contains(told), "{broken}");
}

#[track_caller]
fn keeps(trace: &[Event], world: &Hand) {
    let (broken, hits) = judged(trace, world);
    assert_eq!(broken, None);
    assert!(hits > 0, "there was nothing to judge");
}

#[test]
fn a_vm_that_goes_before_its_pods_is_flagged() {
    let trace = [came(-60, &pod(&json!({}))), asked(10)];
    breaks(&trace, &plain(), "while pod web is on its node n");
    let ending = world(machine(&json!({})), node(&json!({})), vec![pod(&going())]);
    breaks(&trace, &ending, "while pod web is on its node n");
}

#[test]
fn pods_that_stay_or_do_no_work_any_more_hold_no_vm() {
    let daemon = json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": true}]}});
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
    let cordoned = node(&json!({"spec": {"unschedulable": true}}));
    for change in [daemon, mirror, json!({"status": {"phase": "Succeeded"}})] {
        let world = world(machine(&json!({})), cordoned.clone(), vec![pod(&change)]);
        keeps(&[node_seen(1, &cordoned), asked(10)], &world);
    }
}

#[test]
fn of_a_machine_that_stays_pods_go_only_where_it_failed_is_preserved_and_lets_no_new_ones_come() {
    let current = |phase: &str| {
        json!({"metadata": {"deletionTimestamp": null}, "status": {"currentStatus": {
            "phase": phase, "lastUpdateTime": at(0).to_string(), "preserveExpiryTime": at(9000).to_string()}}})
    };
    let taint = json!([{"key": "node.machine.sapcloud.io/preserved", "effect": "NoSchedule"}]);
    let closed = node(&json!({"spec": {"taints": taint}}));
    let of = |phase: &str, node: &Value| world(machine(&current(phase)), node.clone(), vec![pod(&json!({}))]);
    let eviction = [evicted(&pod(&json!({})))];
    keeps(&eviction, &of("Failed", &closed));
    breaks(&eviction, &of("Failed", &node(&json!({}))), "new ones may come");
    breaks(&eviction, &of("Running", &closed), "its machine stays");
    breaks(&[deleted(5)], &of("Failed", &closed), "before the deadline");
    keeps(&[deleted(200)], &of("Failed", &closed));
}

#[test]
fn who_waited_as_long_as_was_to_be_waited_removes_the_vm_with_its_pods() {
    let trace = |seconds| [came(-60, &pod(&json!({}))), asked(seconds)];
    breaks(&trace(140), &plain(), "while pod web");
    keeps(&trace(181), &plain());
}

#[test]
fn who_forces_it_and_a_node_that_is_dead_need_no_deadline() {
    let trace = [came(-60, &pod(&json!({}))), asked(10)];
    let labelled = |value: &str| machine(&json!({"metadata": {"labels": {"force-deletion": value}}}));
    keeps(
        &trace,
        &world(labelled("True"), node(&json!({})), vec![pod(&json!({}))]),
    );
    breaks(
        &trace,
        &world(labelled("no"), node(&json!({})), vec![pod(&json!({}))]),
        "while pod web",
    );
    keeps(&trace, &world(machine(&json!({})), silent(-295), vec![pod(&json!({}))]));
    breaks(
        &trace,
        &world(machine(&json!({})), silent(-200), vec![pod(&json!({}))]),
        "while pod web",
    );
}

#[test]
fn a_silent_node_holds_no_pod_once_its_vm_does_not_run() {
    let off = |node: Value| Hand {
        is_off: true,
        ..world(machine(&json!({})), node, vec![pod(&json!({}))])
    };
    let ask = |seconds| {
        let Act::Call(call) = asked(seconds).act else {
            unreachable!()
        };
        let call = Call {
            method: Method::Other,
            ..call
        };
        event(seconds, Act::Call(call))
    };
    keeps(&[ask(5), deleted(10)], &off(silent(-20)));
    breaks(&[deleted(10)], &off(silent(-20)), "was deleted and not evicted");
    breaks(
        &[ask(-30), deleted(10)],
        &off(silent(-20)),
        "was deleted and not evicted",
    );
    breaks(&[deleted(10)], &off(node(&json!({}))), "was deleted and not evicted");
    let runs = world(machine(&json!({})), silent(-20), vec![pod(&json!({}))]);
    breaks(&[deleted(10)], &runs, "was deleted and not evicted");
}

#[test]
fn a_pod_that_came_just_now_or_to_a_node_that_was_cordoned_and_empty_could_not_be_waited_for() {
    keeps(&[came(9, &pod(&json!({}))), asked(10)], &plain());
    breaks(&[came(7, &pod(&json!({}))), asked(10)], &plain(), "while pod web");
    let cordoned = node(&json!({"spec": {"unschedulable": true}}));
    let empty = world(machine(&json!({})), cordoned.clone(), Vec::new());
    let full = world(machine(&json!({})), cordoned.clone(), vec![pod(&json!({}))]);
    let mut panel = Panel::new(&Settings {
        elects: false,
        max_lag: SignedDuration::from_secs(2),
        ..Settings::default()
    });
    panel.see(&node_seen(1, &cordoned), &empty).unwrap();
    panel.see(&came(3, &pod(&json!({}))), &full).unwrap();
    panel.see(&asked(60), &full).unwrap();
}

#[test]
fn a_vm_that_is_asked_to_go_again_went_before() {
    let again = Hand {
        is_leaving: true,
        ..plain()
    };
    assert_eq!(judged(&[came(-60, &pod(&json!({}))), asked(10)], &again), (None, 0));
}

#[test]
fn a_node_that_nobody_saw_because_its_cluster_is_away_holds_no_vm() {
    let unseen = machine(&json!({"status": {"conditions": []}}));
    let trace = [came(-60, &pod(&json!({}))), event(-50, Act::TargetAway), asked(10)];
    keeps(&trace, &world(unseen, node(&json!({})), vec![pod(&json!({}))]));
    breaks(&trace, &plain(), "while pod web");
}

#[test]
fn pods_are_evicted_and_deleted_only_when_their_time_is_over() {
    breaks(&[deleted(10)], &plain(), "was deleted and not evicted");
    keeps(&[deleted(181)], &plain());
    keeps(&[evicted(&pod(&json!({})))], &plain());
}

#[test]
fn pods_of_machines_that_stay_and_of_the_node_itself_are_left_alone() {
    let stays = machine(&json!({"metadata": {"deletionTimestamp": null}}));
    let stays = world(stays, node(&json!({})), vec![pod(&json!({}))]);
    breaks(&[evicted(&pod(&json!({})))], &stays, "and its machine stays");
    let mirror = pod(&json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}));
    breaks(&[evicted(&mirror)], &plain(), "belongs to its node");
    let owner = json!([{"kind": "DaemonSet", "controller": true}]);
    let daemon = pod(&json!({"metadata": {"ownerReferences": owner}}));
    breaks(&[evicted(&daemon)], &plain(), "belongs to its node");
}

fn attachment() -> Value {
    json!({"metadata": {"name": "csi", "uid": "csi"}, "status": {"attached": true},
        "spec": {"nodeName": "n", "source": {"persistentVolumeName": "pv"}}})
}

fn attached(seconds: i64) -> Event {
    let write = write(By::Cluster, Verb::Create, "volumeattachments", None, Some(attachment()));
    event(seconds, Act::Write(write))
}

#[test]
fn a_vm_that_goes_before_the_volumes_of_its_pods_are_detached_is_flagged() {
    let attaches = json!([{"name": "kubernetes.io/csi/sim^pv", "devicePath": ""}]);
    let cordoned = node(&json!({"spec": {"unschedulable": true}, "status": {"volumesAttached": attaches}}));
    let mut held = world(machine(&json!({})), cordoned.clone(), Vec::new());
    held.objects.insert("volumeattachments", vec![attachment()]);
    let trace = |asks| [attached(-60), node_seen(5, &cordoned), asked(asks)];
    breaks(
        &trace(20),
        &held,
        "volume pv is attached to node n, before the detach deadline",
    );
    breaks(&trace(80), &held, "before the detach deadline");
    keeps(&trace(126), &held);
    keeps(&[node_seen(5, &cordoned), attached(19), asked(20)], &held);
    // The Node does not name it any more, as it is being detached: who began afterwards does not know of it.
    let told = node(&json!({"spec": {"unschedulable": true}}));
    held.objects.insert("nodes", vec![told.clone()]);
    let detaching = event(
        15,
        Act::Write(write(
            By::Cluster,
            Verb::Patch,
            "nodes",
            Some(cordoned.clone()),
            Some(told),
        )),
    );
    let began = event(16, Act::Started(MANAGER));
    let trace_of = |more: &[Event]| [&[attached(-60), detaching.clone()], more, &[asked(30)]].concat();
    breaks(&trace_of(&[]), &held, "before the detach deadline");
    keeps(&trace_of(&[began]), &held);
    held.objects.remove("volumeattachments");
    keeps(&trace(20), &held);
}

#[test]
fn a_volume_that_the_manager_detaches_itself_before_it_may_force_the_drain_is_flagged() {
    let detached = |seconds| {
        let deletion = write(
            MANAGER,
            Verb::Delete,
            "volumeattachments",
            Some(attachment()),
            Some(merged(attachment(), &going())),
        );
        let sent = at(seconds);
        event(seconds, Act::Write(Write { sent, ..deletion }))
    };
    breaks(&[detached(10)], &plain(), "was deleted and not waited for");
    keeps(&[detached(181)], &plain());
}

#[test]
fn an_eviction_that_leaves_a_budget_less_than_it_wants_is_flagged() {
    let budget = |least: i64| json!({"metadata": {"name": "web"}, "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}}});
    let other = pod(&json!({"metadata": {"name": "other", "uid": "other"}, "spec": {"nodeName": "o"}}));
    let with = |least: i64| {
        let mut world = world(
            machine(&json!({})),
            node(&json!({})),
            vec![pod(&going()), other.clone()],
        );
        world.objects.insert("poddisruptionbudgets", vec![budget(least)]);
        world
    };
    breaks(&[evicted(&pod(&json!({})))], &with(2), "which budget web did not allow");
    keeps(&[evicted(&pod(&json!({})))], &with(1));
    let unwell = pod(&json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    keeps(&[evicted(&unwell)], &with(2));
}

/// The API server evicts by the status of a budget: until the disruption controller has counted a pod that was lost, what it allows is not
/// the manager's fault.
#[test]
fn an_eviction_is_judged_by_what_the_disruption_controller_could_have_counted() {
    let budget = json!({"metadata": {"name": "web", "uid": "budget"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}});
    let mut short = plain();
    short.objects.insert("poddisruptionbudgets", vec![budget.clone()]);
    let other = pod(&json!({"metadata": {"name": "other", "uid": "other"}}));
    let lost = |seconds| {
        let deletion = write(By::Cluster, Verb::Delete, "pods", Some(other.clone()), None);
        event(seconds, Act::Write(deletion))
    };
    let counted = |accepted| {
        let status = Write {
            subresource: "status".to_owned(),
            accepted,
            ..write(
                By::Cluster,
                Verb::Patch,
                "poddisruptionbudgets",
                None,
                Some(budget.clone()),
            )
        };
        event(4, Act::Write(status))
    };
    let goes = evicted(&pod(&json!({})));
    let told = "which budget web did not allow";
    keeps(&[lost(3), goes.clone()], &short);
    keeps(&[lost(3), counted(false), goes.clone()], &short);
    breaks(&[lost(3), counted(true), goes.clone()], &short, told);
    breaks(&[lost(-60), goes], &short, told);
}

#[test]
fn a_request_that_the_network_delayed_and_one_for_a_machine_that_somebody_took_away_are_nobodys_fault() {
    let mut late = deleted(20);
    let Act::Write(write) = &mut late.act else {
        panic!("it is a write")
    };
    write.sent = at(9);
    assert_eq!(judged(&[late], &plain()), (None, 0));
    breaks(&[deleted(20)], &plain(), "was deleted and not evicted");
    let mut alone = plain();
    alone.objects.remove("machines");
    keeps(&[deleted(20)], &alone);
}
