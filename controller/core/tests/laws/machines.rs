//! Laws of Machines' plans, from any state that an object, a Node and a process's memory can be in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use millwright_core::api::{CreationRequest, Machine, keys, meta};
use millwright_core::change::Change;
use millwright_core::circuit_breaker::{Breakers, Operation, Outcome};
use millwright_core::class::{Fault, Readiness, Recipe};
use millwright_core::drain::{Drain, Volumes};
use millwright_core::driver::{Call, Capability, DriverInfo};
use millwright_core::ids::{DriverName, Name, NodeName, Uid};
use millwright_core::ledger::{Calls, Doubt, Trouble, Unmade};
use millwright_core::machine::steer::Standing;
use millwright_core::machine::{self, ClassView, DriverView, Observed, Plan, Step};
use millwright_core::refusal::Refusal;
use millwright_core::replacement_limit::Tally;
use millwright_core::settings::Settings;
use millwright_core::sight::Sight;
use millwright_core::{merge, narrate};
use millwright_laws as laws;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::dice::{Dice, now, tapes};

/// Everything that an observation borrows from.
#[derive(Debug)]
pub struct Scene {
    pub machine: Machine,
    class: u16,
    guarded: bool,
    readiness: Readiness,
    driver: u16,
    pub info: DriverInfo,
    pub node: Option<Node>,
    pub calls: Calls,
    breakers: Breakers,
    rival: bool,
    losers: Tally,
    standing: Standing,
    capacity: Option<BTreeMap<String, Quantity>>,
    /// How many pods run on the Node.
    pods: u16,
    drain: Option<Drain>,
    volumes: Volumes,
    sight: Sight,
    settings: Settings,
}

pub const CALLS: [Call; 4] = [Call::Create, Call::Initialize, Call::Status, Call::Delete];

impl Scene {
    pub fn throw(dice: &mut Dice) -> Self {
        let mut settings = Settings::new("test");
        settings.has_target = !dice.rarely();
        let readiness = match dice.number(6) {
            0..=3 => Readiness::Ready(Recipe {
                digest: dice.pick(&["a", "b"]).to_owned(),
                needs_token: dice.flag(),
                essentials: CreationRequest::default(),
            }),
            4 => Readiness::Unchecked,
            _ => Readiness::Faulty(Fault::NoProvider([].into())),
        };
        let capabilities: BTreeSet<Capability> = dice.maybe(|_| Capability::InitializeMachine).into_iter().collect();
        Self {
            machine: machine(dice),
            class: dice.number(6),
            guarded: !dice.rarely(),
            readiness,
            driver: dice.number(9),
            info: DriverInfo {
                name: DriverName::new("virtual"),
                vendor_version: "1".to_owned(),
                capabilities,
                propagation_delay: SignedDuration::from_secs(dice.pick(&[0, 60])),
            },
            node: dice.maybe(node),
            calls: calls(dice),
            breakers: breakers(dice),
            rival: dice.rarely(),
            losers: Tally {
                ill: usize::from(dice.number(6)),
                all: 6,
            },
            standing: dice.pick(&[
                Standing::Aside,
                Standing::Current,
                Standing::Old,
                Standing::InPlace,
                Standing::Free,
            ]),
            capacity: dice.maybe(resources),
            pods: dice.number(3),
            drain: dice.maybe(|dice| watched(dice.number(3))),
            volumes: Volumes::default(),
            sight: sight(dice),
            settings,
        }
    }

    /// A scene in which everything is there and only the driver is strange.
    pub fn served(dice: &mut Dice) -> Self {
        let mut scene = Self::throw(dice);
        (scene.class, scene.guarded, scene.driver) = (0, true, 0);
        scene.readiness = Readiness::Ready(Recipe {
            digest: "a".to_owned(),
            needs_token: false,
            essentials: CreationRequest::default(),
        });
        scene.sight = Sight::CLEAR;
        (scene.calls, scene.breakers) = (Calls::default(), Breakers::default());
        scene
    }

    pub fn seen(&self) -> Observed<'_> {
        let class = match self.class {
            4 => ClassView::Missing("small"),
            5 => ClassView::Unnamed,
            _ => ClassView::Present {
                name: "small",
                guarded: self.guarded,
                readiness: &self.readiness,
            },
        };
        let driver = match self.driver {
            4 | 8 => DriverView::Missing { name: "virtual" },
            5 => DriverView::Away {
                name: "virtual",
                why: "it restarts",
            },
            6 | 7 => DriverView::Unnamed,
            _ => DriverView::Ready(&self.info),
        };
        let node = self.node.as_ref();
        Observed {
            machine: &self.machine,
            class,
            driver,
            node: node.filter(|_| !self.rival),
            rival: self.rival.then_some("rival"),
            losers: self.losers,
            virtual_capacity: self.capacity.as_ref(),
            standing: self.standing,
            drain: self.drain.as_ref(),
            volumes: &self.volumes,
            sight: self.sight,
            calls: &self.calls,
            circuits: self.breakers.circuits(&Name::new("small")),
            settings: &self.settings,
        }
    }

    pub fn plan(&self, now: Timestamp) -> Plan {
        machine::plan(&self.seen(), now)
    }

    /// What the steps change, as far as it is observed. `false`: the Machine's story ends here.
    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    pub fn apply(&mut self, steps: &[Step]) -> bool {
        for step in steps {
            match step {
                Step::AddFinalizer => {
                    self.machine
                        .metadata
                        .finalizers
                        .get_or_insert_default()
                        .push(keys::FINALIZER.to_owned());
                }
                Step::Record(change) => {
                    self.machine = merged(&self.machine, &change.patch());
                    let partial = change.conditions.is_some() || change.addresses.is_some();
                    assert!(
                        partial || change.is_told(&self.machine),
                        "what was written is told: {change:?}"
                    );
                }
                Step::Identify { provider_id, node } => {
                    if let Some(id) = provider_id {
                        self.machine.spec.provider_id = Some(id.to_string());
                    }
                    if let Some(node) = node {
                        let labels = self.machine.metadata.labels.get_or_insert_default();
                        labels.insert(keys::NODE.to_owned(), node.to_string());
                    }
                }
                Step::WriteNode(patch) | Step::WriteCapacity(patch) => {
                    let node = self.node.as_ref().expect("only a Node that is seen is written");
                    let after = patch.applied(node);
                    assert_ne!(&after, node, "a write changes something");
                    self.node = Some(after);
                    self.calls.node_written = Some(now());
                }
                Step::WriteCondition(patch) => {
                    let node = self.node.as_ref().expect("only a Node that is seen is written");
                    let after = patch.applied(node);
                    assert_ne!(&after, node, "a write changes something");
                    self.node = Some(after);
                }
                Step::Keep(keeping) => {
                    let after = merged(&self.machine, &keeping.patch());
                    assert_ne!(json!(after), json!(self.machine), "a write changes something");
                    self.machine = after;
                }
                Step::Annotate(changes) => {
                    let body = machine::preserve::annotations(changes);
                    let after = merged(&self.machine, &body);
                    assert_ne!(json!(after), json!(self.machine), "a write changes something");
                    self.machine = after;
                }
                Step::Complain(fault) => self.calls.complaint = Some(fault.clone()),
                Step::LeavePods => self.drain = None,
                Step::Cordon(_) => {
                    let node = self.node.as_mut().expect("only a Node that is seen is cordoned");
                    node.spec.get_or_insert_default().unschedulable = Some(true);
                    self.drain = None;
                }
                Step::WatchPods(_) => self.drain = Some(watched(self.pods)),
                Step::WatchVolumes => drop(self.volumes.begin()),
                Step::LearnVolumes(_) => {
                    let drain = self.drain.as_mut().expect("only pods that are known use volumes");
                    drain.staying = Some(BTreeSet::new());
                }
                Step::Detach(_) => {}
                Step::Evict(_) => self.drain = Some(watched(0)),
                Step::DeletePods { .. } => {
                    let mut drain = watched(0);
                    drain.is_forced = true;
                    self.drain = Some(drain);
                }
                Step::Call(call) => self.calls.begin(*call),
                Step::DeleteMachine => self.machine.metadata.deletion_timestamp = Some(Time(now())),
                Step::RemoveNode(_) => self.node = None,
                Step::EnsureToken => self.calls.token_until = Some(Timestamp::MAX),
                Step::Confirm | Step::SeeNode(_) | Step::DropToken | Step::LeaveBehind => {}
                Step::Probe(operation) => {
                    let is_probe = self.breakers.reserve(*operation, &self.machine, now());
                    assert!(is_probe, "nobody else is there");
                }
                Step::RemoveFinalizer | Step::StepDown => return false,
            }
        }
        true
    }
}

/// Circuit breakers that another Machine, or this one, has opened.
fn breakers(dice: &mut Dice) -> Breakers {
    let (mut breakers, class) = (Breakers::default(), Name::new("small"));
    breakers.class_changed(&class, None, Vec::new);
    for _ in 0..dice.number(3) {
        let failure = dice.failure();
        let (uid, until) = (dice.pick(&["uid-m", "other"]), dice.pick(&[-60, 60, 600]));
        let outcome = Outcome {
            uid: &Uid::new(uid),
            operation: Some(dice.pick(&[Operation::Create, Operation::Delete])),
            failure: Some(&failure),
            retry_at: now() + SignedDuration::from_secs(until),
            waiting: 3,
        };
        breakers.record(&class, outcome);
    }
    breakers
}

/// So many pods, as a watch that has just begun shows them.
fn watched(pods: u16) -> Drain {
    let mut drain = Drain::begin(Name::new("m"), NodeName::new("n"), now());
    let pod = |number| {
        let pod = json!({"metadata": {"name": format!("p{number}"), "namespace": "a", "uid": format!("p{number}")}});
        Change::Listed(serde_json::from_value(pod).expect("it is a Pod"))
    };
    let changes = [Change::Restarted]
        .into_iter()
        .chain((0..pods).map(pod))
        .chain([Change::Synced]);
    changes.for_each(|change| drain.observe(change, now()));
    drain
}

pub fn merged<K: serde::Serialize + serde::de::DeserializeOwned>(object: &K, patch: &Value) -> K {
    let mut body = json!(object);
    merge::apply(&mut body, patch);
    serde_json::from_value(body).expect("a patched object is of its kind")
}

const PHASES: [&str; 13] = [
    "",
    "Pending",
    "Running",
    "CrashLoopBackOff",
    "Terminating",
    "Failed",
    "Unknown",
    "Available",
    "InPlaceUpdating",
    "InPlaceUpdateSuccessful",
    "InPlaceUpdateFailed",
    "Lost",
    "Pending",
];

/// What the annotation of a Machine or a Node may say.
const WISHES: [&str; 6] = ["now", "when-failed", "auto-preserved", "false", "", "yes"];

/// A Machine as anybody may have left it.
fn machine(dice: &mut Dice) -> Machine {
    let mut metadata = json!({"name": "m", "namespace": "test", "uid": "uid-m", "creationTimestamp": dice.stamp()});
    let mut finalizers = if dice.rarely() {
        json!([])
    } else {
        json!([keys::FINALIZER])
    };
    if dice.flag() {
        metadata["deletionTimestamp"] = dice.stamp();
        if dice.rarely() {
            finalizers = json!(["another"]);
        }
    }
    metadata["finalizers"] = finalizers;
    if dice.flag() {
        metadata["labels"] = json!({keys::NODE: dice.pick(&["node-1", "node-2", ""])});
    }
    if dice.rarely() {
        metadata["annotations"] =
            json!({keys::EFFECTIVE_CREATION_TIMEOUT: dice.pick(&["1m", "soon", "-1h", "10000h"])});
    }
    for key in [keys::PRESERVE, keys::LAST_APPLIED_PRESERVE] {
        if dice.rarely() {
            metadata["annotations"][key] = json!(dice.pick(&WISHES));
        }
    }
    if dice.rarely() {
        metadata["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true}]);
    }
    let mut spec = json!({"class": {"kind": "MachineClass", "name": "small"}});
    if dice.flag() {
        spec["providerID"] = json!(dice.pick(&["id-1", "id-2", ""]));
    }
    if dice.flag() {
        spec["nodeTemplate"] = template(dice);
    }
    if dice.rarely() {
        spec["creationTimeout"] = json!(dice.pick(&["0s", "x", "1m"]));
    }
    let mut body = json!({"metadata": metadata, "spec": spec});
    if dice.flag() {
        let operation = dice.maybe(|dice| {
            json!({
                "description": dice.pick(&["", "Cloud provider message - no", "Initiate VM deletion", "?"]),
                "errorCode": dice.pick(&["", "Internal"]),
                "state": dice.pick(&["Processing", "Failed", "Successful", "Lost"]),
                "type": dice.pick(&["Create", "Delete", "HealthCheck", "Lost"]),
                "lastUpdateTime": dice.stamp(),
            })
        });
        let current = dice.maybe(|dice| {
            let since = if dice.rarely() { Value::Null } else { dice.stamp() };
            let until = if dice.rarely() { dice.stamp() } else { Value::Null };
            let drained = if dice.rarely() { dice.stamp() } else { Value::Null };
            json!({"phase": dice.pick(&PHASES), "lastUpdateTime": since, "preserveExpiryTime": until,
                "preserveDrainedTime": drained})
        });
        let crumb = dice.maybe(|_| "crumb");
        let conditions = dice.conditions();
        let request = dice.maybe(|_| json!({"provider": "virtual"}));
        body["status"] = json!({
            "lastOperation": operation, "currentStatus": current, "lastKnownState": crumb, "conditions": conditions,
            "creationRequest": request,
        });
    }
    serde_json::from_value(body).expect("it is a Machine")
}

/// A node template as anybody may have worded it.
fn template(dice: &mut Dice) -> Value {
    let map = |dice: &mut Dice| {
        let key = dice.pick(&[
            "a",
            "b",
            "bad key",
            keys::MACHINE_NAME,
            keys::SCALE_DOWN_DISABLED,
            keys::NOT_MANAGED,
        ]);
        let value = dice.pick(&[json!("1"), json!("2"), json!("no way"), json!(3), Value::Null]);
        dice.pick(&[json!({ key: value }), json!({}), json!("none")])
    };
    let key = dice.pick(&["a", "", keys::TAINT_PREFER_NO_SCHEDULE, keys::TAINT_CRITICAL_COMPONENTS]);
    let effect = dice.pick(&["NoSchedule", "PreferNoSchedule", "Never"]);
    let taints = dice.pick(&[
        json!([{"key": key, "effect": effect}]),
        json!([1]),
        json!([]),
        json!("none"),
    ]);
    let (labels, annotations) = (map(dice), map(dice));
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"taints": taints}})
}

fn resources(dice: &mut Dice) -> BTreeMap<String, Quantity> {
    let key = dice.pick(&["example.com/slots", "cpu", "bad key/x"]);
    let amount = dice.pick(&["1", "1k", "500m", "many"]);
    dice.maybe(|_| (key.to_owned(), Quantity(amount.to_owned())))
        .into_iter()
        .collect()
}

fn node(dice: &mut Dice) -> Node {
    let mut metadata = json!({"name": dice.pick(&["node-1", "node-2"]), "uid": "uid-n"});
    if dice.rarely() {
        metadata["deletionTimestamp"] = dice.stamp();
    }
    if dice.flag() {
        metadata["finalizers"] = json!([keys::NODE_FINALIZER]);
        metadata["labels"] = json!({keys::MACHINE_NAME: dice.pick(&["m", "other"])});
    }
    if dice.flag() {
        let applied = match dice.number(4) {
            0 => "{".to_owned(),
            _ => template(dice).to_string(),
        };
        let mut annotations = json!({ keys::LAST_APPLIED_NODE_TEMPLATE: applied });
        if dice.rarely() {
            annotations[keys::NOT_MANAGED] = json!("1");
        }
        if dice.flag() {
            annotations[keys::LAST_APPLIED_VIRTUAL_CAPACITY] =
                json!(dice.pick(&["{", "{}", r#"{"example.com/old":"1"}"#]));
        }
        metadata["annotations"] = annotations;
    }
    if dice.rarely() {
        metadata["annotations"][keys::PRESERVE] = json!(dice.pick(&WISHES));
        metadata["annotations"][keys::SCALE_DOWN_DISABLED_BY_US] = json!("true");
    }
    let key = dice.pick(&[keys::TAINT_CRITICAL_COMPONENTS, keys::TAINT_PRESERVED]);
    let taints = dice.maybe(|_| json!([{"key": key, "effect": "NoSchedule"}]));
    let id = dice.pick(&[json!("id-1"), json!("id-2"), Value::Null]);
    let mut conditions = dice.conditions();
    let cordoned = dice.maybe(|_| json!(true));
    if dice.flag() {
        updated_in_place(dice, &mut metadata, &mut conditions);
    }
    let spec = json!({"providerID": id, "taints": taints, "unschedulable": cordoned});
    let body = json!({"metadata": metadata, "spec": spec, "status": {
        "conditions": conditions, "capacity": dice.pick(&[json!({}), json!({"example.com/old": "1", "example.com/slots": "1000"})]),
    }});
    serde_json::from_value(body).expect("it is a Node")
}

/// What an update in place, or somebody who tries one, may have left on a Node.
fn updated_in_place(dice: &mut Dice, metadata: &mut Value, conditions: &mut Value) {
    let mut label = |key: &str, values: &[&str]| {
        if dice.flag() {
            metadata["labels"][key] = json!(dice.pick(values));
        }
    };
    label(keys::CANDIDATE_FOR_UPDATE, &["true"]);
    label(keys::SELECTED_FOR_UPDATE, &["true", ""]);
    label(
        keys::UPDATE_RESULT,
        &[keys::UPDATE_SUCCESSFUL, keys::UPDATE_FAILED, "perhaps"],
    );
    let reason = dice.pick(&[
        keys::REASON_CANDIDATE,
        keys::REASON_SELECTED,
        keys::REASON_DRAINED,
        keys::REASON_READY_FOR_UPDATE,
        keys::REASON_UPDATE_SUCCESSFUL,
        keys::REASON_UPDATE_FAILED,
        "Else",
    ]);
    let since = dice.maybe(Dice::stamp);
    let told =
        json!({"type": keys::NODE_IN_PLACE_UPDATE, "status": "True", "reason": reason, "lastTransitionTime": since});
    if let (true, Some(conditions)) = (dice.flag(), conditions.as_array_mut()) {
        conditions.push(told);
    }
}

fn sight(dice: &mut Dice) -> Sight {
    let side = |dice: &mut Dice| dice.maybe(Dice::time).filter(|at| *at <= now());
    Sight {
        lead_since: side(dice).unwrap_or(Timestamp::MIN),
        control_since: side(dice),
        target_since: side(dice),
        driver_since: side(dice),
    }
}

fn request(dice: &mut Dice) -> CreationRequest {
    CreationRequest {
        provider: "virtual".to_owned(),
        provider_spec: dice.pick(&[Value::Null, json!({"region": "b"})]),
        inventory_key: dice.maybe(|dice| dice.pick(&["a", "b"]).to_owned()),
        ..CreationRequest::default()
    }
}

fn calls(dice: &mut Dice) -> Calls {
    let trouble = dice.maybe(|dice| Trouble {
        call: dice.pick(&CALLS),
        failure: dice.failure(),
        times: u32::from(dice.number(5)) + 1,
        retry_at: dice.time(),
        digest: dice.maybe(|dice| dice.pick(&["a", "b"]).to_owned()),
        is_false_alarm: dice.flag(),
    });
    Calls {
        asked_under: None,
        reached: dice.maybe(|dice| Arc::new(request(dice))),
        asked_at: dice.maybe(|_| now()),
        question_ended: dice.maybe(Dice::time),
        unmade: dice.maybe(|dice| Unmade {
            since: dice.time(),
            is_locked_out: dice.flag(),
        }),
        made_at: dice.maybe(Dice::time),
        running: if dice.rarely() { Some(dice.pick(&CALLS)) } else { None },
        vm: dice.maybe(Dice::vm),
        heard_at: dice.maybe(Dice::time),
        not_found_at: dice.maybe(Dice::time),
        not_running_at: dice.maybe(Dice::time).into_iter().collect(),
        poll_at: dice.maybe(Dice::time),
        delete_at: dice.maybe(Dice::time),
        doubt: dice.maybe(|dice| Doubt {
            since: dice.time(),
            during_call: dice.flag(),
        }),
        trouble,
        gone_since: dice.maybe(Dice::time),
        crumb: dice.maybe(|dice| dice.pick(&["crumb", "other"]).to_owned()),
        cordon_refused: dice.maybe(|dice| Refusal::after(None, "no".to_owned(), dice.time())),
        node_written: dice.maybe(Dice::time),
        token_until: dice.maybe(Dice::time),
        complaint: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows: pains 3, 14, 15, 27.
    #[test]
    fn no_plan_of_a_machine_breaks_a_law_whatever_is_observed(tape in tapes()) {
        let scene = Scene::throw(&mut Dice::new(tape));
        let plan = scene.plan(now());
        let broken = laws::machine(&scene.seen(), &plan, now());
        prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{scene:#?}", narrate::plan(&plan, now()));
        prop_assert_eq!(plan, scene.plan(now()));
    }

    #[test]
    fn a_machine_comes_to_rest_when_nothing_else_moves(tape in tapes()) {
        let mut scene = Scene::throw(&mut Dice::new(tape));
        let mut told = Vec::new();
        for _ in 0..16 {
            let plan = scene.plan(now());
            told.push(narrate::plan(&plan, now()));
            if plan.steps.is_empty() || !scene.apply(&plan.steps) {
                return Ok(());
            }
        }
        prop_assert!(false, "it writes and writes:\n{}\n{scene:#?}", told.join("\n"));
    }

    #[test]
    fn no_driver_is_asked_for_a_vm_that_is_not_wanted(tape in tapes()) {
        let scene = Scene::throw(&mut Dice::new(tape));
        let plan = scene.plan(now());
        if meta::is_deleting(&scene.machine.metadata) {
            prop_assert!(!plan.steps.contains(&Step::Call(Call::Create)) && !plan.steps.contains(&Step::EnsureToken));
        }
    }
}
