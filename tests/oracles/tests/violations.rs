//! Each oracle flags a trace made by hand that breaks its property, and lets the nearest trace pass that does not.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use millwright_oracles::settings::Settings;
use millwright_oracles::wanted::{served, settled as is_settled};
use millwright_oracles::{
    Act, By, Call, Ending, Event, Heard, Method, Outcome, Panel, Truth, Verb, Violation, Vm, VmChange, Write,
};
use serde_json::{Value, json};

const MANAGER: By = By::Manager(1);

/// A world that a test makes.
#[derive(Clone, Default)]
struct Hand {
    seconds: i64,
    objects: BTreeMap<&'static str, Vec<Value>>,
    vms: Vec<Vm>,
    coming: BTreeSet<String>,
}

impl Truth for Hand {
    fn now(&self) -> Timestamp {
        at(self.seconds)
    }

    fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        self.objects
            .get(resource)
            .into_iter()
            .flatten()
            .cloned()
            .map(Arc::new)
            .collect()
    }

    fn vms(&self) -> Vec<Vm> {
        self.vms.clone()
    }

    fn may_appear(&self, uid: &str) -> bool {
        self.coming.contains(uid)
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn event(seconds: i64, act: Act) -> Event {
    Event { at: at(seconds), act }
}

fn write(verb: Verb, resource: &str, before: Option<Value>, after: Option<Value>) -> Write {
    Write {
        by: MANAGER,
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

fn status(mut write: Write) -> Act {
    write.subresource = "status".to_owned();
    Act::Write(write)
}

fn vm(uid: &str, id: &str) -> Vm {
    Vm {
        uid: uid.to_owned(),
        id: id.to_owned(),
        provider_id: format!("virtual:///{id}"),
        leaving: false,
        runs: true,
    }
}

fn machine(uid: &str, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": uid, "uid": uid, "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            "ownerReferences": [{"uid": "set", "controller": true}],
        },
        "spec": {"class": {"name": "small"}, "providerID": format!("virtual:///vm-{uid}")},
        "status": {"currentStatus": {"phase": phase}},
    })
}

/// `value` with one more field.
fn with(mut value: Value, pointer: &str, field: Value) -> Value {
    let mut at = &mut value;
    for step in pointer.split('/').filter(|step| !step.is_empty()) {
        at = at
            .as_object_mut()
            .unwrap()
            .entry(step.replace('~', "/"))
            .or_insert_with(|| json!({}));
    }
    *at = field;
    value
}

fn deleting(value: Value) -> Value {
    with(value, "metadata/deletionTimestamp", json!(at(0).to_string()))
}

fn set(uid: &str, replicas: i64) -> Value {
    json!({
        "metadata": {"name": uid, "uid": uid, "generation": 1, "ownerReferences": [{"uid": "deployment", "controller": true}]},
        "spec": {"replicas": replicas},
        "status": {
            "observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
        },
    })
}

fn deployment(replicas: i64) -> Value {
    json!({
        "metadata": {"name": "workers", "uid": "deployment", "generation": 1},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 1, "replicas": replicas},
    })
}

fn settings() -> Settings {
    Settings {
        elects: false,
        canaries: vec!["c4n4ry".to_owned()],
        ..Settings::default()
    }
}

/// The property that a trace breaks, if any; that it was counted as met, else.
fn broken_by(settings: &Settings, property: &'static str, trace: &[Event], world: &Hand) -> Option<&'static str> {
    let mut panel = Panel::new(settings);
    for event in trace {
        if let Err(violation) = panel.see(event, world) {
            assert!(violation.to_string().contains(property), "{violation}");
            return Some(violation.property);
        }
    }
    assert!(panel.hits()[property] > 0, "{property} had nothing to judge");
    None
}

/// One trace that breaks a property and one that keeps it.
fn tells_apart(property: &'static str, bad: (&[Event], &Hand), good: (&[Event], &Hand)) {
    assert_eq!(broken_by(&settings(), property, bad.0, bad.1), Some(property));
    assert_eq!(broken_by(&settings(), property, good.0, good.1), None);
}

#[test]
fn s1_two_vms_of_one_machine_are_flagged() {
    let accepted = |id: &str| {
        let change = VmChange::Accepted {
            uid: "m".to_owned(),
            id: id.to_owned(),
        };
        event(1, Act::Vm { by: MANAGER, change })
    };
    let one = Hand {
        vms: vec![vm("m", "a"), vm("other", "c")],
        ..Hand::default()
    };
    let two = Hand {
        vms: vec![vm("m", "a"), vm("m", "b")],
        ..Hand::default()
    };
    tells_apart("S1", (&[accepted("b")], &two), (&[accepted("a")], &one));
}

#[test]
fn s2_a_machine_released_before_its_vm_is_gone_or_while_one_may_come_is_flagged() {
    let held = deleting(machine("m", "Terminating"));
    let released = with(held.clone(), "metadata/finalizers", json!([]));
    let trace = [event(
        1,
        Act::Write(write(Verb::Patch, "machines", Some(held.clone()), Some(released))),
    )];
    let lives = Hand {
        vms: vec![vm("m", "a")],
        ..Hand::default()
    };
    let comes = Hand {
        coming: ["m".to_owned()].into(),
        ..Hand::default()
    };
    tells_apart("S2", (&trace, &lives), (&trace, &Hand::default()));
    tells_apart("S2", (&trace, &comes), (&trace, &Hand::default()));
    let gone = [event(1, Act::Write(write(Verb::Patch, "machines", Some(held), None)))];
    tells_apart("S2", (&gone, &lives), (&gone, &Hand::default()));
}

#[test]
fn s3_the_vm_of_a_wanted_machine_that_is_removed_is_flagged() {
    let leaving = |by| {
        let change = VmChange::Leaving {
            uid: "m".to_owned(),
            id: "a".to_owned(),
        };
        [event(1, Act::Vm { by, change })]
    };
    let wanted = Hand {
        objects: [("machines", vec![machine("m", "Running")])].into(),
        ..Hand::default()
    };
    let going = Hand {
        objects: [("machines", vec![deleting(machine("m", "Terminating"))])].into(),
        ..Hand::default()
    };
    tells_apart("S3", (&leaving(MANAGER), &wanted), (&leaving(MANAGER), &going));
    let mut panel = Panel::new(&settings());
    panel
        .see(&leaving(By::Human)[0], &wanted)
        .expect("a user at the cloud's console may");
}

#[test]
fn s3_a_vm_of_no_machine_that_is_removed_without_the_orphan_protocols_waits_is_flagged() {
    let world = Hand::default();
    let of_vm = |seconds, change| event(seconds, Act::Vm { by: MANAGER, change });
    let (uid, id) = ("m".to_owned(), "a".to_owned());
    let made = |seconds| {
        let (uid, id) = (uid.clone(), id.clone());
        of_vm(seconds, VmChange::Accepted { uid, id })
    };
    let removed = |seconds| {
        let (uid, id) = (uid.clone(), id.clone());
        of_vm(seconds, VmChange::Leaving { uid, id })
    };
    let listed = |seconds, by| {
        event(
            seconds,
            Act::Listed {
                by,
                ids: [id.clone()].into(),
            },
        )
    };
    let good = [made(0), listed(1300, MANAGER), listed(1400, MANAGER), removed(1401)];
    let once = [made(0), listed(1400, MANAGER), removed(1401)];
    let close = [made(0), listed(1399, MANAGER), listed(1400, MANAGER), removed(1401)];
    let of_two = [
        made(0),
        listed(1300, By::Manager(2)),
        listed(1400, MANAGER),
        removed(1401),
    ];
    let young = [made(900), listed(1300, MANAGER), listed(1400, MANAGER), removed(1401)];
    let foreign = event(0, Act::Foreign { id: id.clone() });
    let foreign = [vec![foreign], good.to_vec()].concat();
    for bad in [&once[..], &close, &of_two, &young, &foreign] {
        tells_apart("S3", (bad, &world), (&good, &world));
    }
    let held = deleting(machine("m", "Terminating"));
    let late = [
        event(1, Act::Write(write(Verb::Patch, "machines", Some(held), None))),
        removed(2),
    ];
    assert_eq!(
        broken_by(&settings(), "S3", &late, &world),
        None,
        "its Machine was deleted"
    );
}

#[test]
fn s4_a_machine_more_than_its_set_ever_was_to_have_is_flagged() {
    let sized = |seconds, size| {
        event(
            seconds,
            Act::Write(write(Verb::Patch, "machinesets", None, Some(set("set", size)))),
        )
    };
    let made = |sent| {
        let mut made = write(Verb::Create, "machines", None, Some(machine("c", "")));
        made.sent = at(sent);
        event(sent, Act::Write(made))
    };
    let three = Hand {
        objects: [("machines", vec![machine("a", ""), machine("b", ""), machine("c", "")])].into(),
        ..Hand::default()
    };
    let mut going = three.clone();
    going.objects.insert(
        "machines",
        vec![deleting(machine("a", "")), machine("b", ""), machine("c", "")],
    );
    tells_apart(
        "S4",
        (&[sized(0, 2), made(1)], &three),
        (&[sized(0, 3), made(1)], &three),
    );
    tells_apart(
        "S4",
        (&[sized(0, 2), made(1)], &three),
        (&[sized(0, 2), made(1)], &going),
    );
    // A view of before the set shrank excuses it, one of long before does not.
    tells_apart(
        "S4",
        (&[sized(0, 3), sized(10, 2), made(1000)], &three),
        (&[sized(0, 3), sized(10, 2), made(60)], &three),
    );
}

/// A set that is to have two machines, "b" and "c", both sent at second 10 after "a", which is gone, and then one more creation.
fn one_more(named: &str, sent: i64) -> Result<(), Violation> {
    let mut panel = Panel::new(&settings());
    let sized = write(Verb::Patch, "machinesets", None, Some(set("set", 2)));
    panel.see(&event(0, Act::Write(sized)), &Hand::default()).unwrap();
    let mut make = |name: &str, sent, there: &[&str]| {
        let mut made = write(Verb::Create, "machines", None, Some(machine(name, "")));
        made.sent = at(sent);
        let truth = Hand {
            objects: [("machines", there.iter().map(|name| machine(name, "")).collect())].into(),
            ..Hand::default()
        };
        panel.see(&event(20, Act::Write(made)), &truth)
    };
    make("a", 5, &["a"]).unwrap();
    make("b", 10, &["b"]).unwrap();
    make("c", 10, &["b", "c"]).unwrap();
    make(named, sent, &["b", "c", named])
}

#[test]
fn s4_a_creation_answers_for_those_sent_before_it() {
    assert_eq!(one_more("d", 11).unwrap_err().property, "S4");
}

#[test]
fn s4_creations_count_one_that_was_sent_before_them_and_arrives_later() {
    assert_eq!(one_more("d", 1).unwrap_err().property, "S4");
}

#[test]
fn s4_the_repeat_of_a_creation_whose_machine_was_seen_is_nobodys_fault() {
    one_more("a", 1).unwrap();
}

#[test]
fn s4_a_machine_that_somebody_else_made_counts_once_it_could_be_seen() {
    let last = |sent| {
        let mut panel = Panel::new(&settings());
        let sized = write(Verb::Patch, "machinesets", None, Some(set("set", 1)));
        panel.see(&event(0, Act::Write(sized)), &Hand::default()).unwrap();
        let truth = Hand {
            objects: [("machines", vec![machine("theirs", ""), machine("ours", "")])].into(),
            ..Hand::default()
        };
        let mut theirs = write(Verb::Create, "machines", None, Some(machine("theirs", "")));
        theirs.by = By::Human;
        panel.see(&event(10, Act::Write(theirs)), &truth).unwrap();
        let mut ours = write(Verb::Create, "machines", None, Some(machine("ours", "")));
        ours.sent = at(sent);
        panel.see(&event(1000, Act::Write(ours)), &truth)
    };
    assert_eq!(last(900).unwrap_err().property, "S4");
    last(11).unwrap();
    last(1).unwrap();
}

#[test]
fn s8_fields_of_others_are_flagged() {
    let before = deployment(3);
    let cases = [
        ("spec/replicas", json!(4), false),
        ("metadata/labels/team", json!("x"), false),
        (
            "metadata/annotations/deployment.kubernetes.io~revision",
            json!("2"),
            true,
        ),
        ("metadata/annotations/of-a-user", json!("2"), false),
        ("metadata/finalizers", json!(["x"]), true),
        ("status/replicas", json!(2), false),
    ];
    for (path, value, own) in cases {
        let after = with(before.clone(), path, value);
        let change = write(Verb::Patch, "machinedeployments", Some(before.clone()), Some(after));
        let found = broken_by(&settings(), "S8", &[event(1, Act::Write(change))], &Hand::default());
        assert_eq!(found.is_none(), own, "{path}");
    }
    let told = with(before.clone(), "status/replicas", json!(2));
    let told = write(Verb::Patch, "machinedeployments", Some(before), Some(told));
    assert_eq!(
        broken_by(&settings(), "S8", &[event(1, status(told))], &Hand::default()),
        None
    );
}

#[test]
fn s8_a_template_changes_only_with_the_order_to_go_back_that_is_taken_away() {
    let ordered = with(deployment(3), "spec/rollbackTo", json!({"revision": 1}));
    let went_back = with(
        deployment(3),
        "spec/template",
        json!({"spec": {"class": {"name": "small"}}}),
    );
    let of = |before: &Value, after: &Value| {
        let change = write(
            Verb::Patch,
            "machinedeployments",
            Some(before.clone()),
            Some(after.clone()),
        );
        [event(1, Act::Write(change))]
    };
    let still_ordered = with(ordered.clone(), "spec/template", json!({}));
    let world = Hand::default();
    tells_apart(
        "S8",
        (&of(&deployment(3), &went_back), &world),
        (&of(&ordered, &went_back), &world),
    );
    let bad = of(&ordered, &still_ordered);
    assert_eq!(broken_by(&settings(), "S8", &bad, &world), Some("S8"));
}

#[test]
fn s8_of_a_nodes_taints_only_that_of_old_machines_is_the_managers() {
    let node = |taints: Value| json!({"metadata": {"name": "n", "uid": "n"}, "spec": {"taints": taints}});
    let users = json!({"key": "mine", "effect": "NoSchedule"});
    let ours = json!({"key": "deployment.machine.sapcloud.io/prefer-no-schedule", "effect": "PreferNoSchedule"});
    let of = |after: Value| {
        let change = write(Verb::Patch, "nodes", Some(node(json!([users]))), Some(node(after)));
        [event(1, Act::Write(change))]
    };
    let world = Hand::default();
    tells_apart("S8", (&of(json!([ours])), &world), (&of(json!([users, ours])), &world));
}

#[test]
fn s8_a_node_gets_what_a_template_gives_and_loses_what_it_gave() {
    let place = "node.machine.sapcloud.io/last-applied-anno-labels-taints";
    let node = |labels: Value, applied: Value, taints: Value| {
        json!({
            "metadata": {"name": "n", "uid": "n", "labels": labels, "annotations": {place: applied.to_string()}},
            "spec": {"taints": taints},
        })
    };
    let gift =
        json!({"metadata": {"labels": {"pool": "a"}}, "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}});
    let told = with(machine("m", "Running"), "spec/nodeTemplate", gift.clone());
    let told = event(1, Act::Write(write(Verb::Update, "machines", None, Some(told))));
    let of = |before: &Value, after: Value| {
        let change = write(Verb::Patch, "nodes", Some(before.clone()), Some(after));
        [told.clone(), event(2, Act::Write(change))]
    };
    let world = Hand::default();
    let bare = node(json!({"mine": "1"}), json!({}), json!([]));
    let gpu = json!({"key": "gpu", "effect": "NoSchedule"});
    let given = node(json!({"mine": "1", "pool": "a"}), gift.clone(), json!([gpu]));
    let other = node(json!({"mine": "1", "pool": "b"}), gift.clone(), json!([gpu]));
    tells_apart("S8", (&of(&bare, other), &world), (&of(&bare, given.clone()), &world));
    let emptied = node(json!({"mine": "1"}), json!({}), json!([]));
    let robbed = node(json!({}), json!({}), json!([]));
    tells_apart("S8", (&of(&given, robbed), &world), (&of(&given, emptied), &world));
    let others = json!({"key": "gpu", "effect": "NoExecute"});
    let tainted = node(json!({"mine": "1", "pool": "a"}), gift, json!([gpu, others]));
    assert_eq!(broken_by(&settings(), "S8", &of(&given, tainted), &world), Some("S8"));
}

#[test]
fn s8_capacity_is_the_classes_and_the_kubelets() {
    let node = |capacity: Value, applied: &str| {
        json!({
            "metadata": {"name": "n", "uid": "n", "annotations": {
                "node.machine.sapcloud.io/last-applied-virtual-capacity": applied,
            }},
            "status": {"capacity": capacity},
        })
    };
    let class = json!({"metadata": {"name": "c"}, "nodeTemplate": {"virtualCapacity": {"example.com/slots": "3"}}});
    let told = event(1, Act::Write(write(Verb::Create, "machineclasses", None, Some(class))));
    let of = |before: &Value, after: Value| {
        let change = write(Verb::Patch, "nodes", Some(before.clone()), Some(after));
        [told.clone(), event(2, status(change))]
    };
    let world = Hand::default();
    let bare = node(json!({"cpu": "4"}), "{}");
    let slots = "{\"example.com/slots\":\"3\"}";
    let given = node(json!({"cpu": "4", "example.com/slots": "3"}), slots);
    tells_apart(
        "S8",
        (&of(&bare, node(json!({"cpu": "8"}), "{}")), &world),
        (&of(&bare, given.clone()), &world),
    );
    tells_apart(
        "S8",
        (&of(&given, node(json!({"example.com/slots": "3"}), slots)), &world),
        (&of(&given, bare), &world),
    );
}

#[test]
fn s8_the_size_of_a_users_own_set_is_its_users() {
    let owned = set("set", 1);
    let free = with(owned.clone(), "metadata/ownerReferences", json!([]));
    let grown = |set: &Value| {
        let after = with(set.clone(), "spec/replicas", json!(2));
        [event(
            1,
            Act::Write(write(Verb::Patch, "machinesets", Some(set.clone()), Some(after))),
        )]
    };
    tells_apart(
        "S8",
        (&grown(&free), &Hand::default()),
        (&grown(&owned), &Hand::default()),
    );
}

#[test]
fn s9_a_phase_that_may_not_follow_and_a_second_identity_are_flagged() {
    let to = |from: &str, to: &str| {
        [event(
            1,
            status(write(
                Verb::Patch,
                "machines",
                Some(machine("m", from)),
                Some(machine("m", to)),
            )),
        )]
    };
    let world = Hand::default();
    tells_apart(
        "S9",
        (&to("Running", "Pending"), &world),
        (&to("Running", "Unknown"), &world),
    );
    tells_apart(
        "S9",
        (&to("Running", "Terminating"), &world),
        (&to("", "Pending"), &world),
    );
    let identity = |id: &str| {
        let before = machine("m", "Pending");
        let after = with(before.clone(), "spec/providerID", json!(id));
        [
            event(1, Act::Write(write(Verb::Patch, "machines", Some(before), Some(after)))),
            to("", "Pending")[0].clone(),
        ]
    };
    tells_apart(
        "S9",
        (&identity("virtual:///b"), &world),
        (&identity("virtual:///vm-m"), &world),
    );
}

#[test]
fn s10_writes_that_bind_themselves_to_nothing_are_flagged() {
    let bound = |verb, uid, version| {
        let mut write = write(verb, "machines", Some(machine("m", "")), Some(machine("m", "")));
        (write.names_uid, write.names_version) = (uid, version);
        [event(1, Act::Write(write))]
    };
    let world = Hand::default();
    tells_apart(
        "S10",
        (&bound(Verb::Patch, false, false), &world),
        (&bound(Verb::Patch, false, true), &world),
    );
    tells_apart(
        "S10",
        (&bound(Verb::Delete, false, true), &world),
        (&bound(Verb::Delete, true, false), &world),
    );
}

#[test]
fn s11_a_secret_in_a_log_or_a_status_is_flagged_and_not_repeated() {
    let said = |text: &str| {
        [event(
            1,
            Act::Said {
                by: MANAGER,
                place: "log".to_owned(),
                text: text.to_owned(),
            },
        )]
    };
    let world = Hand::default();
    tells_apart("S11", (&said("token=c4n4ry"), &world), (&said("token=…"), &world));
    let leaky = with(
        machine("m", "Failed"),
        "status/lastOperation/description",
        json!("bad c4n4ry"),
    );
    let patched = |before: Option<Value>, after: &Value| {
        let verb = if before.is_some() { Verb::Patch } else { Verb::Create };
        [event(1, status(write(verb, "machines", before, Some(after.clone()))))]
    };
    let leak = patched(Some(machine("m", "Failed")), &leaky);
    tells_apart("S11", (&leak, &world), (&said("fine"), &world));
    // What stood there before is whoever's doing who wrote it.
    tells_apart(
        "S11",
        (&patched(None, &leaky), &world),
        (&patched(Some(leaky.clone()), &leaky), &world),
    );
    let fine = (&said("fine")[..], &world);
    for (path, value) in [
        ("status/lastOperation", json!({ "of-c4n4ry": "x" })),
        ("status/conditions", json!([{ "message": "c4n4ry" }])),
    ] {
        let leaky = with(machine("m", "Failed"), path, value);
        tells_apart("S11", (&patched(Some(machine("m", "Failed")), &leaky), &world), fine);
    }
    let violation = Panel::new(&settings()).see(&leak[0], &world).unwrap_err();
    assert!(!violation.to_string().contains("c4n4ry"), "{violation}");
}

#[test]
fn s12_writes_and_lists_at_rest_are_flagged() {
    let list = |seconds| {
        event(
            seconds,
            Act::List {
                by: MANAGER,
                resource: "machines".to_owned(),
            },
        )
    };
    let told = event(
        5,
        status(write(
            Verb::Patch,
            "machines",
            Some(machine("m", "Running")),
            Some(machine("m", "Running")),
        )),
    );
    let lease = event(
        5,
        Act::Write(write(Verb::Patch, "leases", Some(json!({})), Some(json!({})))),
    );
    let world = Hand::default();
    let rest = || event(0, Act::Rest);
    tells_apart("S12", (&[rest(), told.clone()], &world), (&[rest(), lease], &world));
    tells_apart(
        "S12",
        (&[rest(), list(1), list(2)], &world),
        (&[rest(), list(1), list(3601)], &world),
    );
    assert_eq!(
        broken_by(&settings(), "S12", &[rest(), event(1, Act::Unrest), told], &world),
        None
    );
}

#[test]
fn s14_a_write_without_the_lease_or_when_it_has_run_out_or_is_about_to_is_flagged() {
    let electing = Settings {
        elects: true,
        ..settings()
    };
    let lease = |epoch: i64| {
        let lease = json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": epoch}});
        event(0, Act::Write(write(Verb::Patch, "leases", None, Some(lease))))
    };
    let act = |sent| {
        let mut made = write(Verb::Create, "secrets", None, Some(json!({})));
        made.sent = at(sent);
        event(sent, Act::Write(made))
    };
    let call = |epoch| {
        let call = Call {
            by: MANAGER,
            method: Method::CreateMachine,
            uid: "m".to_owned(),
            epoch,
        };
        event(1, Act::Call(call))
    };
    let world = Hand {
        objects: [("machines", vec![machine("m", "Pending")])].into(),
        ..Hand::default()
    };
    let judged = |trace: &[Event]| broken_by(&electing, "S14", trace, &world);
    assert_eq!(judged(&[act(1)]), Some("S14"), "never held");
    assert_eq!(judged(&[lease(3), act(10)]), None);
    assert_eq!(
        judged(&[lease(3), act(11)]),
        Some("S14"),
        "within the margin of its end"
    );
    assert_eq!(judged(&[lease(3), act(16)]), Some("S14"), "ran out");
    let gives_back = || {
        let lease = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3}});
        let mut made = write(Verb::Patch, "leases", None, Some(lease));
        made.sent = at(5);
        event(6, Act::Write(made))
    };
    let late = |sent| {
        let Act::Write(mut made) = act(sent).act else {
            unreachable!()
        };
        made.sent = at(sent);
        event(200, Act::Write(made))
    };
    assert_eq!(judged(&[lease(3), late(10)]), None, "sent in time, late on its way");
    assert_eq!(
        judged(&[lease(3), gives_back(), late(4)]),
        None,
        "sent before it gave up"
    );
    assert_eq!(judged(&[lease(3), gives_back(), late(6)]), Some("S14"), "gave up");
    assert_eq!(judged(&[lease(3), call(Some(3))]), None);
    assert_eq!(judged(&[lease(3), call(Some(2))]), Some("S14"), "another epoch");
    assert_eq!(judged(&[lease(3), call(None)]), Some("S14"), "no epoch");
    assert_eq!(judged(&[lease(3), call(Some(3 + 1024))]), None, "the driver named none");
    assert_eq!(judged(&[lease(3), call(Some(51))]), Some("S14"), "nobody spoke of 50");
    let deposed = [lease(50), call(Some(50)), lease(3), call(Some(51))];
    assert_eq!(judged(&deposed), None, "the driver remembers 50");
}

#[test]
fn s15_a_restart_that_writes_on_a_converged_world_is_flagged() {
    let restart = || {
        vec![
            event(0, Act::Rest),
            event(1, Act::Crashed(MANAGER)),
            event(2, Act::Started(By::Manager(2))),
        ]
    };
    let mut wrote = restart();
    let mut touched = write(
        Verb::Patch,
        "machines",
        Some(machine("m", "Running")),
        Some(machine("m", "Running")),
    );
    touched.by = By::Manager(2);
    wrote.push(event(3, Act::Write(touched)));
    let world = Hand::default();
    tells_apart("S15", (&wrote, &world), (&restart(), &world));
}

/// One machine with all that belongs to it.
fn settled() -> Hand {
    let node = json!({
        "metadata": {"name": "node", "labels": {"node.gardener.cloud/machine-name": "m"}},
        "spec": {"providerID": "virtual:///vm-m"},
    });
    Hand {
        seconds: 0,
        objects: [
            ("machinedeployments", vec![deployment(1)]),
            ("machinesets", vec![set("set", 1)]),
            ("machines", vec![machine("m", "Running")]),
            ("nodes", vec![node]),
        ]
        .into(),
        vms: vec![vm("m", "vm-m")],
        ..Hand::default()
    }
}

fn end(settings: &Settings, world: &Hand) -> Result<(), (&'static str, String)> {
    let mut panel = Panel::new(settings);
    panel
        .end(world)
        .map_err(|violation| (violation.property, violation.what))
}

/// A world that has lost or gained something, and a word that tells of it.
type Otherwise = (fn(&mut Hand), &'static str);

/// What is not as specs say, each with a word of how it is told.
const OTHERWISE: [Otherwise; 13] = [
    (
        |world| world.objects.get_mut("nodes").unwrap().clear(),
        "without a node",
    ),
    (
        |world| {
            let machine = &mut world.objects.get_mut("machines").unwrap()[0];
            let owner = json!([{"uid": "gone", "controller": true}]);
            let mut orphan = with(machine.clone(), "metadata/ownerReferences", owner);
            orphan["metadata"]["uid"] = json!("orphan");
            world.objects.get_mut("machines").unwrap().push(orphan);
        },
        "of a set that is gone",
    ),
    (
        |world| {
            let set = &mut world.objects.get_mut("machinesets").unwrap()[0];
            *set = with(set.clone(), "status/availableReplicas", json!(0));
        },
        "0 ready and available",
    ),
    (
        |world| {
            let deployment = &mut world.objects.get_mut("machinedeployments").unwrap()[0];
            *deployment = with(deployment.clone(), "status/replicas", json!(0));
        },
        "tells of 0",
    ),
    (
        |world| world.objects.get_mut("machinedeployments").unwrap()[0] = deployment(2),
        "its sets [1]",
    ),
    (
        |world| world.objects.get_mut("machinesets").unwrap()[0] = set("set", 2),
        "its sets [2]",
    ),
    (
        |world| world.objects.get_mut("machines").unwrap().clear(),
        "wants 1 machines",
    ),
    (
        |world| world.objects.get_mut("machines").unwrap()[0] = machine("m", "Pending"),
        "is \"Pending\"",
    ),
    (|world| world.vms.push(vm("stranger", "x")), "belongs to no machine"),
    (
        |world| world.vms[0].provider_id = "virtual:///y".to_owned(),
        "without the VM",
    ),
    (
        |world| {
            let node = json!({"metadata": {"name": "old"}, "spec": {"providerID": "virtual:///z"}});
            world.objects.get_mut("nodes").unwrap().push(node);
        },
        "which is gone",
    ),
    (
        |world| {
            let token = json!({"metadata": {"name": "t"}, "type": "bootstrap.kubernetes.io/token"});
            world.objects.insert("secrets", vec![token]);
        },
        "bootstrap tokens",
    ),
    (
        |world| {
            let set = &mut world.objects.get_mut("machinesets").unwrap()[0];
            *set = with(set.clone(), "metadata/generation", json!(2));
        },
        "its status at 1",
    ),
];

#[test]
fn l1_a_world_that_is_not_as_its_specs_say_is_flagged() {
    end(&settings(), &settled()).expect("nothing is wrong with it");
    for (change, word) in OTHERWISE {
        let mut world = settled();
        change(&mut world);
        let (property, what) = end(&settings(), &world).unwrap_err();
        assert_eq!(property, "L1");
        assert!(what.contains(word), "{what}");
    }
}

#[test]
fn what_is_still_going_is_not_settled() {
    is_settled(&settled(), &BTreeSet::new()).expect("nothing is going");
    let mut world = settled();
    world
        .objects
        .get_mut("machines")
        .unwrap()
        .push(deleting(machine("old", "Terminating")));
    assert!(
        is_settled(&world, &BTreeSet::new())
            .unwrap_err()
            .contains("old is still going")
    );
}

#[test]
fn l2_a_deletion_that_does_not_end_is_flagged() {
    let mut world = settled();
    world
        .objects
        .get_mut("machines")
        .unwrap()
        .push(deleting(machine("old", "Terminating")));
    world.vms.push(vm("old", "vm-old"));
    world.seconds = 15 * 60 + 1;
    let (property, what) = end(&settings(), &world).unwrap_err();
    assert_eq!((property, what.contains("machines/old")), ("L2", true), "{what}");
    world.seconds = 15 * 60;
    end(&settings(), &world).expect("it may still end");
}

#[test]
fn l2_a_class_that_goes_may_take_as_long_as_a_machine_is_made_of_it() {
    let class = |name: &str| deleting(json!({ "metadata": { "name": name } }));
    let mut world = settled();
    world.seconds = 15 * 60 + 1;
    world.objects.insert("machineclasses", vec![class("small")]);
    end(&settings(), &world).expect("machine m is made of it");
    world.objects.insert("machineclasses", vec![class("unused")]);
    let (property, what) = end(&settings(), &world).unwrap_err();
    assert_eq!(
        (property, what.contains("machineclasses/unused")),
        ("L2", true),
        "{what}"
    );
}

#[test]
fn l3_l4_and_l7_are_the_same_judgement_under_their_own_names() {
    let mut world = settled();
    world.vms.push(vm("stranger", "x"));
    let named = |settings: Settings| end(&settings, &world).unwrap_err().0;
    let (any_state, repaired) = (true, true);
    assert_eq!(
        named(Settings {
            any_state,
            ..settings()
        }),
        "L3"
    );
    assert_eq!(named(Settings { repaired, ..settings() }), "L7");
    assert_eq!(
        named(Settings {
            beside: true,
            ..settings()
        }),
        "L4"
    );
}

#[test]
fn l4_machines_of_a_broken_class_need_not_be_up_but_all_others_do() {
    let mut world = settled();
    world.objects.get_mut("machines").unwrap()[0] = machine("m", "CrashLoopBackOff");
    let broken = |class: &str| Settings {
        broken_classes: [class.to_owned()].into(),
        beside: true,
        ..settings()
    };
    end(&broken("small"), &world).expect("its class is broken");
    assert_eq!(end(&broken("large"), &world).unwrap_err().0, "L4");
}

#[test]
fn l4_a_machine_counts_for_the_set_that_controls_it_whatever_its_labels_say() {
    let selecting = with(set("s", 0), "spec/selector/matchLabels", json!({"set": "s"}));
    let owner = json!([{"uid": "s", "controller": true}]);
    let of_set = |labels| {
        let owned = with(machine("m", "Running"), "metadata/ownerReferences", owner.clone());
        let machine = with(owned, "metadata/labels", labels);
        let objects = [("machinesets", vec![selecting.clone()]), ("machines", vec![machine])];
        Hand {
            objects: BTreeMap::from(objects),
            ..settled()
        }
    };
    for labels in [json!({"set": "another"}), json!({"set": "s"})] {
        let why = served(&of_set(labels)).unwrap_err();
        assert_eq!(why, "set s wants 0 machines and has 1");
    }
}

/// A world as it ended.
fn ending(world: &Hand) -> Ending {
    Ending::of(world, &BTreeSet::new())
}

#[test]
fn l6_two_ways_to_the_same_wishes_that_end_otherwise_are_flagged() {
    let mut renamed = settled();
    renamed.objects.get_mut("machines").unwrap()[0] = machine("other", "Running");
    renamed.vms = vec![vm("other", "vm-other")];
    assert_eq!(ending(&renamed).is_the_same(&ending(&settled())), Ok(()));

    let mut more = renamed.clone();
    more.vms.push(vm("more", "x"));
    let mut held = renamed.clone();
    let secret = json!({ "metadata": { "name": "s", "finalizers": ["a"] } });
    held.objects.insert("secrets", vec![secret.clone()]);
    let mut free = renamed.clone();
    free.objects
        .insert("secrets", vec![with(secret, "metadata/finalizers", json!([]))]);
    let mut elsewhere = renamed.clone();
    elsewhere.objects.get_mut("machinesets").unwrap()[0] = with(set("set", 1), "spec/minReadySeconds", json!(5));
    for (one, other, what) in [
        (&more, &renamed, "vms"),
        (&held, &free, "secrets"),
        (&elsewhere, &renamed, "sets"),
    ] {
        let (one, other) = (ending(one), ending(other));
        assert!(one.is_of_the_same_wishes(&other), "{what}");
        let told = one.is_the_same(&other).unwrap_err();
        assert!(told.contains(what), "{told}");
    }
}

#[test]
fn l6_says_nothing_of_worlds_in_which_something_else_is_wanted_or_a_class_is_broken() {
    let mut larger = settled();
    larger.objects.insert("machinedeployments", vec![deployment(2)]);
    assert!(!ending(&larger).is_of_the_same_wishes(&ending(&settled())));

    let mut changed = settled();
    let template = with(deployment(1), "spec/template/spec/class/name", json!("large"));
    changed.objects.insert("machinedeployments", vec![template]);
    let owned = with(
        set("set", 1),
        "metadata/ownerReferences",
        json!([{"uid": "deployment", "controller": true}]),
    );
    changed.objects.insert("machinesets", vec![owned.clone()]);
    assert!(
        !ending(&changed).is_of_the_same_wishes(&ending(&changed)),
        "not rolled out"
    );
    changed.objects.insert(
        "machinesets",
        vec![with(owned, "spec/template/spec/class/name", json!("large"))],
    );
    assert!(ending(&changed).is_of_the_same_wishes(&ending(&changed)));

    let mut crashed = settled();
    crashed.objects.get_mut("machines").unwrap()[0] = machine("m", "CrashLoopBackOff");
    assert!(ending(&crashed).is_the_same(&ending(&settled())).is_err());
    let broken = ["small".to_owned()].into();
    let of = |world: &Hand| Ending::of(world, &broken);
    assert_eq!(of(&crashed).is_the_same(&of(&settled())), Ok(()));
}

/// A Machine that failed and is preserved until that second.
fn kept(uid: &str, until: i64) -> Value {
    let until = json!(at(until).to_string());
    with(machine(uid, "Failed"), "status/currentStatus/preserveExpiryTime", until)
}

#[test]
fn s21_a_preserved_machine_that_is_deleted_before_its_time_is_flagged() {
    let node = json!({ "metadata": { "name": "n" }, "spec": { "providerID": "virtual:///vm-a" } });
    let world = |set: Value| Hand {
        objects: [("machinesets", vec![set]), ("nodes", vec![node.clone()])].into(),
        ..Hand::default()
    };
    let stays = world(with(set("set", 1), "metadata/ownerReferences", json!([])));
    let goes = world(deleting(set("set", 1)));
    let trace = |until| vec![made(1, &kept("a", until)), deletion(MANAGER, 10, &kept("a", until))];
    assert_eq!(broken_by(&short_lags(), "S21", &trace(600), &stays), Some("S21"));
    assert_eq!(broken_by(&short_lags(), "S21", &trace(600), &goes), None);
}

/// A Node of a Machine, with the label by which its update in place begins, or without.
fn node_of(uid: &str, is_selected: bool) -> Value {
    let node =
        json!({ "metadata": { "name": uid, "uid": uid }, "spec": { "providerID": format!("virtual:///vm-{uid}") } });
    let label = "metadata/labels/node.machine.sapcloud.io~selected-for-update";
    match is_selected {
        true => with(node, label, json!("true")),
        false => node,
    }
}

#[test]
fn s22_a_machine_that_is_selected_while_another_one_is_updated_in_place_is_flagged() {
    let strategy = json!({ "type": "InPlaceUpdate", "inPlaceUpdate": {
        "maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Auto",
    } });
    let owner = with(deployment(2), "spec/strategy", strategy);
    let world = |is_first_selected| Hand {
        objects: [
            ("machinedeployments", vec![owner.clone()]),
            ("machinesets", vec![set("set", 2)]),
            ("machines", vec![machine("a", "Running"), machine("b", "Running")]),
            ("nodes", vec![node_of("a", is_first_selected), node_of("b", false)]),
        ]
        .into(),
        ..Hand::default()
    };
    let sized = write(Verb::Patch, "machinedeployments", None, Some(owner.clone()));
    let selection = write(
        Verb::Patch,
        "nodes",
        Some(node_of("b", false)),
        Some(node_of("b", true)),
    );
    let trace = [
        written(0, sized),
        made(1, &machine("a", "Running")),
        made(1, &machine("b", "Running")),
        written(10, selection),
    ];
    assert_eq!(broken_by(&short_lags(), "S22", &trace, &world(true)), Some("S22"));
    assert_eq!(broken_by(&short_lags(), "S22", &trace, &world(false)), None);
}

#[test]
fn s22_a_machine_that_moves_to_another_set_before_its_agent_is_done_is_flagged() {
    let label = "metadata/labels/node.machine.sapcloud.io~update-result";
    let world = |result: &str| Hand {
        objects: [("nodes", vec![with(node_of("a", true), label, json!(result))])].into(),
        ..Hand::default()
    };
    let before = machine("a", "InPlaceUpdateSuccessful");
    let owners = json!([{ "uid": "other", "controller": true }]);
    let after = with(before.clone(), "metadata/ownerReferences", owners);
    let trace = [written(10, write(Verb::Patch, "machines", Some(before), Some(after)))];
    assert_eq!(broken_by(&short_lags(), "S22", &trace, &world("failed")), Some("S22"));
    assert_eq!(broken_by(&short_lags(), "S22", &trace, &world("successful")), None);
}

#[test]
fn s21_more_machines_preserved_unasked_than_may_be_are_flagged() {
    let wish = "metadata/annotations/node.machine.sapcloud.io~preserve";
    let taken = |uid: &str| with(machine(uid, "Failed"), wish, json!("auto-preserved"));
    let alone = with(
        with(set("set", 2), "metadata/ownerReferences", json!([])),
        "spec/autoPreserveFailedMachineMax",
        json!(1),
    );
    let world = |machines: Vec<Value>| Hand {
        objects: [("machinesets", vec![alone.clone()]), ("machines", machines)].into(),
        ..Hand::default()
    };
    let sized = event(
        0,
        Act::Write(write(Verb::Patch, "machinesets", None, Some(alone.clone()))),
    );
    let mark = write(Verb::Patch, "machines", Some(machine("b", "Failed")), Some(taken("b")));
    let trace = [sized, written(5, mark)];
    let (both, one) = (world(vec![taken("a"), taken("b")]), world(vec![taken("b")]));
    assert_eq!(broken_by(&short_lags(), "S21", &trace, &both), Some("S21"));
    assert_eq!(broken_by(&short_lags(), "S21", &trace, &one), None);
}

#[test]
fn a_run_knows_which_properties_had_nothing_to_judge() {
    let hits = Panel::new(&Settings::default()).hits();
    assert_eq!(hits.len(), 26, "{hits:?}");
    assert!(hits.values().all(|count| *count == 0));
    assert_eq!(Settings::default().resync, SignedDuration::from_hours(1));
}

#[test]
fn s2_a_vm_asked_for_before_the_finalizer_is_there_is_flagged() {
    let bare = with(machine("m", ""), "metadata/finalizers", json!([]));
    let call = |uid: &str| {
        let call = Call {
            by: MANAGER,
            method: Method::CreateMachine,
            uid: uid.to_owned(),
            epoch: None,
        };
        event(2, Act::Call(call))
    };
    let unheld = Hand {
        objects: [("machines", vec![bare.clone()])].into(),
        ..Hand::default()
    };
    let held = Hand {
        objects: [("machines", vec![machine("m", "")])].into(),
        ..Hand::default()
    };
    tells_apart("S2", (&[call("m")], &unheld), (&[call("m")], &held));
    // Somebody may take it away by force, and the Machine with it, while the call is made.
    let once = write(Verb::Patch, "machines", Some(bare), Some(machine("m", "")));
    let forced = [event(1, Act::Write(once)), call("m")];
    tells_apart("S2", (&[call("m")], &unheld), (&forced, &unheld));
    tells_apart("S2", (&[call("m")], &Hand::default()), (&forced, &Hand::default()));
}

/// A manager's deletion of a Machine, sent and accepted at that second.
fn deletion(by: By, seconds: i64, machine: &Value) -> Event {
    let mut gone = write(
        Verb::Delete,
        "machines",
        Some(machine.clone()),
        Some(deleting(machine.clone())),
    );
    gone.by = by;
    gone.sent = at(seconds);
    event(seconds, Act::Write(gone))
}

fn made(seconds: i64, machine: &Value) -> Event {
    event(
        seconds,
        Act::Write(write(Verb::Create, "machines", None, Some(machine.clone()))),
    )
}

fn sized(seconds: i64, size: i64) -> Event {
    let sized = write(Verb::Patch, "machinesets", None, Some(set("set", size)));
    event(seconds, Act::Write(sized))
}

#[test]
fn s3_a_machine_that_is_deleted_though_its_set_has_none_too_many_is_flagged() {
    let (a, b) = (machine("a", "Running"), machine("b", "Running"));
    let world = Hand {
        objects: [("machinesets", vec![set("set", 1)])].into(),
        ..Hand::default()
    };
    let both = [made(1, &a), made(1, &b)];
    let one_too_many: Vec<Event> = [
        vec![sized(0, 2)],
        both.to_vec(),
        vec![sized(2, 1), deletion(MANAGER, 3, &a)],
    ]
    .concat();
    let another = [one_too_many.clone(), vec![deletion(MANAGER, 4, &b)]].concat();
    tells_apart("S3", (&another, &world), (&one_too_many, &world));

    // Another manager cannot know what the first one did, until the longest lag has passed.
    let successor = |seconds| [one_too_many.clone(), vec![deletion(By::Manager(2), seconds, &b)]].concat();
    tells_apart("S3", (&successor(400), &world), (&successor(4), &world));
}

#[test]
fn s3_a_machine_may_be_deleted_that_failed_or_lost_its_node_or_whose_set_goes() {
    let well = machine("a", "Running");
    let world = Hand {
        objects: [("machinesets", vec![set("set", 1)])].into(),
        ..Hand::default()
    };
    let trace = |machine: &Value| vec![sized(0, 1), made(1, machine), deletion(MANAGER, 2, machine)];
    let bad = trace(&well);
    tells_apart("S3", (&bad, &world), (&trace(&machine("a", "Failed")), &world));
    let marked = with(
        well.clone(),
        "metadata/annotations/node.machine.sapcloud.io~trigger-deletion-by-mcm",
        json!("true"),
    );
    tells_apart("S3", (&bad, &world), (&trace(&marked), &world));

    let node = json!({ "metadata": { "name": "n" }, "spec": { "providerID": "virtual:///vm-a" } });
    let mut lost = write(Verb::Delete, "nodes", Some(node), None);
    lost.by = By::Human;
    let without_node = [vec![event(1, Act::Write(lost))], bad.clone()].concat();
    tells_apart("S3", (&bad, &world), (&without_node, &world));

    let leaving = Hand {
        objects: [("machinesets", vec![deleting(set("set", 1))])].into(),
        ..Hand::default()
    };
    tells_apart("S3", (&bad, &world), (&bad, &leaving));
    let alone = with(well, "metadata/ownerReferences", json!([]));
    tells_apart("S3", (&trace(&alone), &world), (&without_node, &world));
}

/// A write of the manager's that was sent at that second and took effect at once.
fn written(seconds: i64, mut write: Write) -> Event {
    write.sent = at(seconds);
    let phases = (&write.before, &write.after);
    if let (Some(before), Some(after)) = phases
        && before.pointer("/status/currentStatus/phase") != after.pointer("/status/currentStatus/phase")
    {
        write.subresource = "status".to_owned();
    }
    event(seconds, Act::Write(write))
}

fn short_lags() -> Settings {
    Settings {
        max_lag: SignedDuration::from_secs(2),
        read_lag: SignedDuration::from_secs(1),
        ..settings()
    }
}

/// One trace that breaks a property where views are seconds old at most, and one that keeps it.
fn tells_apart_soon(property: &'static str, bad: &[Event], good: &[Event], world: &Hand) {
    assert_eq!(broken_by(&short_lags(), property, bad, world), Some(property));
    assert_eq!(broken_by(&short_lags(), property, good, world), None);
}

#[test]
fn s6_a_machine_that_nobody_could_see_join_or_that_had_time_left_is_not_given_up() {
    let pending = |seconds| {
        let (before, after) = (machine("m", ""), machine("m", "Pending"));
        written(seconds, write(Verb::Patch, "machines", Some(before), Some(after)))
    };
    let given_up = |seconds| {
        let text = json!("The machine failed to join the cluster in 20m0s");
        let after = with(machine("m", "Failed"), "status/lastOperation/description", text);
        written(
            seconds,
            write(Verb::Patch, "machines", Some(machine("m", "Pending")), Some(after)),
        )
    };
    let (away, back) = (|at| event(at, Act::TargetAway), |at| event(at, Act::TargetBack));
    let (good, world) = ([pending(0), given_up(1200)], Hand::default());
    tells_apart_soon("S6", &[pending(0), given_up(60)], &good, &world);
    tells_apart_soon("S6", &[pending(0), away(60), given_up(1200)], &good, &world);
    tells_apart_soon("S6", &[pending(0), away(60), back(1199), given_up(1200)], &good, &world);
    let set = [pending(0), event(10, Act::ClockSet), given_up(60)];
    assert_eq!(broken_by(&short_lags(), "S6", &set, &world), None);
}

#[test]
fn s6_unhealthy_machines_of_a_set_are_given_up_one_at_a_time_and_in_sight() {
    // Nobody can say of their VMs that they are gone.
    let machine = |name: &str, phase: &str| with(machine(name, phase), "spec/providerID", json!(""));
    let given_up = |seconds, name| {
        let (before, after) = (machine(name, "Unknown"), machine(name, "Failed"));
        written(seconds, write(Verb::Patch, "machines", Some(before), Some(after)))
    };
    let gone = |seconds, name| {
        written(
            seconds,
            write(Verb::Delete, "machines", Some(machine(name, "Failed")), None),
        )
    };
    let world = Hand::default();
    let good = [given_up(0, "a"), gone(10, "a"), given_up(20, "b")];
    tells_apart_soon("S6", &[given_up(0, "a"), given_up(20, "b")], &good, &world);
    let released = with(machine("a", "Failed"), "metadata/ownerReferences", json!([]));
    let let_go = write(Verb::Patch, "machines", Some(machine("a", "Failed")), Some(released));
    let good = [given_up(0, "a"), written(10, let_go), given_up(20, "b")];
    tells_apart_soon("S6", &[given_up(0, "a"), given_up(20, "b")], &good, &world);
    let away = |at| event(at, Act::TargetAway);
    tells_apart_soon("S6", &[away(0), given_up(60, "a")], &good, &world);
}

#[test]
fn s6_a_machine_is_not_given_up_whose_node_has_been_well_for_as_long_as_a_view_may_be_old() {
    let node = |ready| {
        json!({ "metadata": { "name": "n" }, "spec": { "providerID": "virtual:///vm-m" },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] } })
    };
    let turned = |seconds, from, to| {
        let mut write = write(Verb::Patch, "nodes", Some(node(from)), Some(node(to)));
        write.by = By::Cluster;
        event(seconds, Act::Write(write))
    };
    let given_up = |seconds| {
        let of_vm = |phase| with(machine("m", phase), "spec/providerID", json!("virtual:///vm-m"));
        let write = write(Verb::Patch, "machines", Some(of_vm("Unknown")), Some(of_vm("Failed")));
        written(seconds, write)
    };
    let (ill, well) = (|at| turned(at, "True", "Unknown"), |at| turned(at, "Unknown", "True"));
    let (bad, world) = ([ill(0), well(10), given_up(60)], Hand::default());
    tells_apart_soon("S6", &bad, &[ill(0), well(59), given_up(60)], &world);
    tells_apart_soon("S6", &bad, &[ill(0), well(10), ill(20), given_up(60)], &world);
}

#[test]
fn s17_a_machine_that_is_released_before_its_token_is_revoked_is_flagged() {
    let token = json!({
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-x", "uid": "t", "annotations": {"machine.sapcloud.io/machine-uid": "m"}},
    });
    let made = written(0, write(Verb::Create, "secrets", None, Some(token.clone())));
    let held = deleting(machine("m", "Terminating"));
    let released = with(held.clone(), "metadata/finalizers", json!([]));
    let release = written(60, write(Verb::Patch, "machines", Some(held), Some(released)));
    let left = Hand {
        objects: [("secrets", vec![token.clone()])].into(),
        ..Hand::default()
    };
    let bad = [made, release.clone()];
    assert_eq!(broken_by(&short_lags(), "S17", &bad, &left), Some("S17"));
    assert_eq!(broken_by(&short_lags(), "S17", &bad, &Hand::default()), None);
    // A token that came late, after somebody had looked for it, is nobody's fault.
    let mut late = write(Verb::Create, "secrets", None, Some(token));
    late.sent = at(0);
    let late = event(59, Act::Write(late));
    assert_eq!(broken_by(&short_lags(), "S17", &[late, release], &left), None);
}

#[test]
fn s18_a_vm_that_is_asked_for_a_machine_that_is_going_is_flagged() {
    let (stays, goes) = (machine("m", "Pending"), deleting(machine("m", "Pending")));
    let deleted = written(10, write(Verb::Delete, "machines", Some(stays), Some(goes)));
    let asked = |seconds| {
        let call = Call {
            by: MANAGER,
            method: Method::CreateMachine,
            uid: "m".to_owned(),
            epoch: None,
        };
        event(seconds, Act::Call(call))
    };
    let world = Hand {
        objects: [("machines", vec![machine("m", "Pending")])].into(),
        ..Hand::default()
    };
    tells_apart_soon(
        "S18",
        &[deleted.clone(), asked(12)],
        &[asked(9), deleted, asked(10)],
        &world,
    );
}

#[test]
fn s19_the_adoption_of_a_machine_that_is_going_is_flagged() {
    let orphan = with(machine("m", "Running"), "metadata/ownerReferences", json!([]));
    let adopted = |seconds, going: bool| {
        let of = |value: Value| if going { deleting(value) } else { value };
        let (before, after) = (of(orphan.clone()), of(machine("m", "Running")));
        written(seconds, write(Verb::Patch, "machines", Some(before), Some(after)))
    };
    let mut deleted = write(
        Verb::Delete,
        "machines",
        Some(orphan.clone()),
        Some(deleting(orphan.clone())),
    );
    deleted.by = By::Human;
    let deleted = written(10, deleted);
    let world = Hand::default();
    tells_apart_soon(
        "S19",
        &[deleted.clone(), adopted(20, true)],
        &[adopted(20, false)],
        &world,
    );
    assert_eq!(
        broken_by(&short_lags(), "S19", &[deleted, adopted(11, true)], &world),
        None
    );
}

/// A deployment of three Machines that are in sets of two templates.
struct Rollout {
    deployment: Value,
    old: (i64, Vec<Value>),
    new: (i64, Vec<Value>),
}

impl Rollout {
    fn of(old: (i64, &[&str]), new: (i64, &[&str])) -> Self {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        let of_set = |set: &str, machines: &[&str]| {
            let owner = json!([{"uid": set, "controller": true}]);
            let running = machines.iter().map(|name| machine(name, "Running"));
            running
                .map(|it| with(it, "metadata/ownerReferences", owner.clone()))
                .collect::<Vec<Value>>()
        };
        let deployment = with(deployment(3), "spec/strategy", strategy);
        Self {
            deployment: with(deployment, "spec/template/spec/class/name", json!("large")),
            old: (old.0, of_set("old", old.1)),
            new: (new.0, of_set("new", new.1)),
        }
    }

    fn specified(mut self, path: &str, value: Value) -> Self {
        self.deployment = with(self.deployment, path, value);
        self
    }

    fn set(name: &str, replicas: i64) -> Value {
        let class = if name == "old" { "small" } else { "large" };
        with(set(name, replicas), "spec/template/spec/class/name", json!(class))
    }

    fn world(&self) -> Hand {
        let machines = [self.old.1.clone(), self.new.1.clone()].concat();
        let sets = vec![Self::set("old", self.old.0), Self::set("new", self.new.0)];
        let objects = BTreeMap::from([
            ("machinedeployments", vec![self.deployment.clone()]),
            ("machinesets", sets),
            ("machines", machines),
        ]);
        Hand {
            objects,
            ..Hand::default()
        }
    }

    /// What breaks S5, if anything, of this write of the manager's long after all of this was made.
    fn breaks(&self, last: Write) -> Option<&'static str> {
        let world = self.world();
        let all = world
            .objects
            .iter()
            .flat_map(|(kind, objects)| objects.iter().map(move |it| (*kind, it)));
        let made = all.map(|(kind, object)| {
            let mut made = write(Verb::Create, kind, None, Some(object.clone()));
            made.by = By::Human;
            written(0, made)
        });
        let mut trace: Vec<Event> = made.collect();
        trace.push(written(10, last));
        broken_by(&short_lags(), "S5", &trace, &world)
    }

    fn breaks_by_deleting(&self, name: &str) -> Option<&'static str> {
        let machines = [self.old.1.clone(), self.new.1.clone()].concat();
        let victim = machines.into_iter().find(|it| it["metadata"]["name"] == name).unwrap();
        self.breaks(write(
            Verb::Delete,
            "machines",
            Some(victim.clone()),
            Some(deleting(victim)),
        ))
    }

    /// The set has the first number before and the one of this rollout after it.
    fn breaks_by_sizing(&self, name: &str, before: i64) -> Option<&'static str> {
        let after = if name == "old" { self.old.0 } else { self.new.0 };
        let after = Self::set(name, after);
        let before = with(after.clone(), "spec/replicas", json!(before));
        self.breaks(write(Verb::Patch, "machinesets", Some(before), Some(after)))
    }
}

#[test]
fn s5_an_available_machine_goes_only_while_another_can_stand_in_for_it() {
    let three = Rollout::of((1, &["a", "b"]), (2, &["x"]));
    assert_eq!(three.breaks_by_deleting("a"), Some("S5"));
    let four = Rollout::of((1, &["a", "b"]), (2, &["x", "y"]));
    assert_eq!(four.breaks_by_deleting("a"), None);
    // Nobody else is there, and its set was told to shrink below what is wanted.
    assert_eq!(
        Rollout::of((2, &["a", "b", "c"]), (0, &[])).breaks_by_deleting("a"),
        Some("S5")
    );
    // One may be missing.
    let bound = "spec/strategy/rollingUpdate/maxUnavailable";
    let three = Rollout::of((1, &["a", "b"]), (2, &["x"])).specified(bound, json!(1));
    assert_eq!(three.breaks_by_deleting("a"), None);
}

#[test]
fn s5_whom_the_autoscaler_named_goes_in_any_case() {
    let list = "metadata/annotations/node.machine.sapcloud.io~trigger-deletion-by-mcm";
    let rollout = |named: &str| {
        let rollout = Rollout::of((1, &["a", "b"]), (2, &["x"]));
        let entry = format!("{named}~2026-01-01T00:00:00Z");
        let mut rollout = rollout.specified(list, json!(entry));
        // The others went unanswered for, so that S5 has had something to judge.
        rollout.new.0 = 1;
        rollout
    };
    assert_eq!(rollout("b").breaks_by_deleting("a"), Some("S5"));
    let world = rollout("a");
    let held = world.world();
    let mut panel = Panel::new(&short_lags());
    let victim = held.objects["machines"][0].clone();
    let mut made = write(Verb::Create, "machinedeployments", None, Some(world.deployment.clone()));
    made.by = By::Human;
    panel.see(&written(0, made), &held).unwrap();
    let deleted = write(Verb::Delete, "machines", Some(victim.clone()), Some(deleting(victim)));
    panel.see(&written(10, deleted), &held).unwrap();
}

#[test]
fn s5_machines_in_all_stay_within_wanted_and_surge_with_those_that_leave() {
    assert_eq!(
        Rollout::of((3, &["a", "b", "c"]), (2, &[])).breaks_by_sizing("new", 0),
        Some("S5")
    );
    assert_eq!(
        Rollout::of((3, &["a", "b", "c"]), (1, &[])).breaks_by_sizing("new", 0),
        None
    );
    let leaves = |leaving: bool| {
        let mut rollout = Rollout::of((2, &["a", "b", "c"]), (2, &["x"]));
        match leaving {
            true => rollout.old.1[2] = deleting(rollout.old.1[2].clone()),
            false => drop(rollout.old.1.pop()),
        }
        rollout
    };
    assert_eq!(leaves(true).breaks_by_sizing("new", 1), Some("S5"));
    assert_eq!(leaves(false).breaks_by_sizing("new", 1), None);
    // More than wanted, whatever else there is.
    assert_eq!(
        Rollout::of((0, &[]), (4, &["x"])).breaks_by_sizing("new", 3),
        Some("S5")
    );
}

#[test]
fn s5_an_old_set_grows_only_by_what_it_has_and_only_a_pause_lets_it() {
    let old = || Rollout::of((2, &["a"]), (1, &["x"]));
    assert_eq!(old().breaks_by_sizing("old", 1), Some("S5"));
    assert_eq!(
        old().specified("spec/paused", json!(true)).breaks_by_sizing("old", 1),
        None
    );
}

#[test]
fn s5_a_paused_deployment_only_follows_its_size() {
    let paused = |new| Rollout::of((2, &["a", "b"]), new).specified("spec/paused", json!(true));
    assert_eq!(paused((2, &["x"])).breaks_by_sizing("new", 1), Some("S5"));
    assert_eq!(paused((1, &[])).breaks_by_sizing("new", 0), None);
}

#[test]
fn s5_recreate_makes_new_machines_when_the_old_ones_are_gone() {
    let recreated =
        |old: (i64, &[&str])| Rollout::of(old, (3, &[])).specified("spec/strategy", json!({"type": "Recreate"}));
    assert_eq!(recreated((0, &["a"])).breaks_by_sizing("new", 0), Some("S5"));
    assert_eq!(recreated((0, &[])).breaks_by_sizing("new", 0), None);
}

#[test]
fn s16_a_name_leaves_the_autoscalers_list_only_with_its_machine() {
    let list = "metadata/annotations/node.machine.sapcloud.io~trigger-deletion-by-mcm";
    let listed = with(deployment(3), list, json!("m~2026-01-01T00:00:00Z"));
    let forgot = || {
        written(
            10,
            write(
                Verb::Patch,
                "machinedeployments",
                Some(listed.clone()),
                Some(deployment(3)),
            ),
        )
    };
    let made = with(
        machine("m", "Running"),
        "metadata/creationTimestamp",
        json!(at(0).to_string()),
    );
    let world = |machine: Value| Hand {
        objects: BTreeMap::from([("machinesets", vec![set("set", 1)]), ("machines", vec![machine])]),
        ..Hand::default()
    };
    let stays = world(made.clone());
    assert_eq!(broken_by(&short_lags(), "S16", &[forgot()], &stays), Some("S16"));
    assert_eq!(
        broken_by(&short_lags(), "S16", &[forgot()], &world(deleting(made))),
        None
    );
}

#[test]
fn machines_of_another_template_than_the_deployments_are_not_as_wanted() {
    let class = "spec/template/spec/class/name";
    let of = |name: &str| Hand {
        objects: BTreeMap::from([
            ("machinedeployments", vec![with(deployment(1), class, json!("large"))]),
            ("machinesets", vec![with(set("set", 1), class, json!(name))]),
        ]),
        ..Hand::default()
    };
    let why = |name: &str| is_settled(&of(name), &BTreeSet::new()).unwrap_err();
    assert!(why("small").contains("in use are"), "{}", why("small"));
    assert!(!why("large").contains("in use are"), "{}", why("large"));
}

fn creation(seconds: i64, uid: &str) -> Event {
    let call = Call {
        by: MANAGER,
        method: Method::CreateMachine,
        uid: uid.to_owned(),
        epoch: None,
    };
    event(seconds, Act::Call(call))
}

fn heard(seconds: i64, uid: &str, outcome: Outcome) -> Event {
    let heard = Heard {
        by: MANAGER,
        method: Method::CreateMachine,
        uid: uid.to_owned(),
        outcome,
    };
    event(seconds, Act::Heard(heard))
}

/// Two machines of one class, which have no VMs yet.
fn two_wanted() -> Hand {
    let class = json!({"metadata": {"name": "small", "uid": "small"}, "secretRef": {"name": "user-data"}});
    let machines = vec![machine("m", ""), machine("n", "")];
    Hand {
        objects: BTreeMap::from([("machines", machines), ("machineclasses", vec![class])]),
        ..Hand::default()
    }
}

#[test]
fn s13_a_call_that_failed_is_not_sent_again_before_its_backoff_is_over() {
    let world = two_wanted();
    let failed = |seconds| heard(seconds, "m", Outcome::Transient);
    tells_apart(
        "S13",
        (&[failed(1), creation(4, "m")], &world),
        (&[failed(1), creation(5, "m")], &world),
    );
    // The third pause is of 20 s, and a fifth of it may be jitter.
    let thrice = |last: i64| [failed(1), failed(6), failed(20), creation(20 + last, "m")];
    tells_apart("S13", (&thrice(15), &world), (&thrice(16), &world));
    let told = |seconds| heard(seconds, "m", Outcome::Later(SignedDuration::from_secs(60)));
    tells_apart(
        "S13",
        (&[told(1), creation(40, "m")], &world),
        (&[told(1), creation(50, "m")], &world),
    );
    let class = write(
        Verb::Patch,
        "machineclasses",
        None,
        Some(json!({"metadata": {"uid": "small"}})),
    );
    let mended = Act::Write(Write { by: By::Human, ..class });
    let trace = [
        failed(1),
        creation(6, "m"),
        failed(7),
        event(8, mended),
        creation(8, "m"),
    ];
    assert_eq!(broken_by(&settings(), "S13", &trace, &world), None);
}

#[test]
fn s13_while_an_account_pauses_no_call_for_any_machine_leaves() {
    let world = two_wanted();
    let throttled = heard(1, "m", Outcome::Throttled(SignedDuration::from_secs(30)));
    tells_apart(
        "S13",
        (&[throttled.clone(), creation(20, "n")], &world),
        (&[throttled.clone(), creation(31, "n")], &world),
    );
    let long = heard(1, "m", Outcome::Throttled(SignedDuration::from_mins(5)));
    let deletion = |at| {
        let call = Call {
            by: MANAGER,
            method: Method::DeleteMachine,
            uid: "n".to_owned(),
            epoch: None,
        };
        event(at, Act::Call(call))
    };
    tells_apart(
        "S13",
        (&[long.clone(), deletion(20)], &world),
        (&[long, deletion(31)], &world),
    );
    let other = event(
        20,
        Act::Call(Call {
            by: By::Manager(2),
            method: Method::CreateMachine,
            uid: "n".to_owned(),
            epoch: None,
        }),
    );
    let trace = [throttled, other, creation(31, "n")];
    assert_eq!(broken_by(&settings(), "S13", &trace, &world), None);
}
