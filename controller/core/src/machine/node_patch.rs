//! What one write changes about a Node, and the Node as it should be before that is known. Decides nothing.
//!
//! A plan works on a [`Sketch`]; what differs from the Node then is one patch, whoever had it changed. The patch names single keys, so
//! those of others are never part of it; taints are one list to the API server, so a patch of them holds only for the version that
//! was seen. A step carries the whole: what is written was decided on one version of the Node and is not decided anew.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::node;
use crate::api::qualified::value_fault;
use crate::api::{keys, meta};
use crate::ids::{Name, NodeName, NodeRef};
use crate::merge::{filled, given};

/// Keys and what they become; `None`: they go.
pub type Changes = BTreeMap<String, Option<String>>;

/// A patch of a Node, or of its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePatch {
    /// The Node.
    pub node: NodeName,
    /// The Node that was seen, and no other of its name.
    uid: Option<String>,
    /// The version that was seen, where the patch holds for no other.
    version: Option<String>,
    /// Our finalizer is put on or taken off.
    pub finalizer: Option<bool>,
    /// Labels.
    pub labels: Changes,
    /// Annotations.
    pub annotations: Changes,
    /// All taints, if any of them changes.
    pub taints: Option<Vec<Taint>>,
    /// Whether it is cordoned, if that changes.
    pub unschedulable: Option<bool>,
    /// Resources in `status.capacity`.
    pub capacity: Changes,
    /// A condition in `status.conditions`.
    pub condition: Option<NodeCondition>,
    /// What was left out of it because the API server would refuse it, in words; told once, when it is first left out.
    pub faults: Vec<String>,
}

impl NodePatch {
    /// A patch that changes nothing yet.
    pub fn of(seen: &Node) -> Self {
        Self {
            node: node::name(seen),
            uid: seen.metadata.uid.clone(),
            ..Self::default()
        }
    }

    /// The patch that makes the Node say so in its status; `None`: it does. Words count, the time of the last look does not.
    pub fn telling(
        seen: &Node,
        type_: &str,
        status: &str,
        reason: &str,
        message: String,
        now: Timestamp,
    ) -> Option<Self> {
        let known = node::condition(seen, type_);
        let says = |told: &NodeCondition| {
            let words = told.message.as_deref().unwrap_or_default();
            told.status == status && told.reason.as_deref() == Some(reason) && words == message
        };
        if known.is_some_and(says) {
            return None;
        }
        let since = known.filter(|told| told.status == status);
        let since = since.and_then(|told| told.last_transition_time.clone());
        let condition = NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(since.unwrap_or(Time(now))),
        };
        Some(Self {
            condition: Some(condition),
            ..Self::of(seen)
        })
    }

    /// The patch that changes labels of a Node of which no more is known, in this version of it.
    pub fn labelling(node: &NodeRef, version: &str, labels: Changes) -> Self {
        Self {
            node: node.name.clone(),
            uid: Some(node.uid.as_str().to_owned()),
            version: Some(version.to_owned()),
            labels,
            ..Self::default()
        }
    }

    /// The same, in the version that was seen and no other.
    pub fn of_version(mut self, seen: &Node) -> Self {
        self.version.clone_from(&seen.metadata.resource_version);
        self
    }

    /// The same, whose condition counts from then, although its status is the same.
    pub fn since(mut self, at: Timestamp) -> Self {
        if let Some(condition) = &mut self.condition {
            condition.last_transition_time = Some(Time(at));
        }
        self
    }

    /// The same, with what was left out of it.
    pub fn leaving_out(mut self, faults: Vec<String>) -> Self {
        self.faults = faults;
        self
    }

    /// The body of a strategic merge patch.
    pub fn body(&self) -> Value {
        let changes = |changes: &Changes| (!changes.is_empty()).then(|| json!(changes));
        let finalizer = |on: bool| (self.finalizer == Some(on)).then(|| json!([keys::NODE_FINALIZER]));
        let metadata = given([
            ("uid", Some(json!(self.uid))),
            ("resourceVersion", self.version.as_ref().map(|version| json!(version))),
            ("labels", changes(&self.labels)),
            ("annotations", changes(&self.annotations)),
            ("finalizers", finalizer(true)),
            ("$deleteFromPrimitiveList/finalizers", finalizer(false)),
        ]);
        let spec = given([
            ("taints", self.taints.as_ref().map(|taints| json!(taints))),
            ("unschedulable", self.unschedulable.map(|on| json!(on.then_some(true)))),
        ]);
        let status = given([
            ("capacity", changes(&self.capacity)),
            // Conditions are merged by their type.
            (
                "conditions",
                self.condition.as_ref().map(|condition| json!([condition])),
            ),
        ]);
        let parts = [
            ("metadata", filled(metadata)),
            ("spec", filled(spec)),
            ("status", filled(status)),
        ];
        Value::Object(given(parts))
    }

    /// Whether only our label and finalizer are put on, and how long the Node took to join.
    pub fn only_guards(&self) -> bool {
        let own = |key: &String| key == keys::MACHINE_NAME;
        let took = |key: &String| key == keys::MACHINE_JOIN_DURATION;
        let rest = self.annotations.keys().all(took) && self.taints.is_none() && self.capacity.is_empty();
        let rest = rest && self.condition.is_none() && self.unschedulable.is_none();
        rest && self.finalizer != Some(false) && self.labels.keys().all(own)
    }

    /// How long the Node took to join, where the patch says so.
    pub fn join_duration(&self) -> Option<&str> {
        self.annotations.get(keys::MACHINE_JOIN_DURATION)?.as_deref()
    }

    /// What changes, in words.
    pub fn told(&self) -> Vec<String> {
        let changed = |what: &'static str, changes: &Changes| {
            let told = changes.iter().map(move |(key, value)| match (key.as_str(), value) {
                (_, None) => format!("no {what} {key}"),
                (keys::LAST_APPLIED_NODE_TEMPLATE | keys::LAST_APPLIED_VIRTUAL_CAPACITY, Some(_)) => {
                    "what was applied".to_owned()
                }
                (_, Some(value)) => format!("{what} {key}={value}"),
            });
            told.collect::<Vec<String>>()
        };
        let mut told: Vec<String> = Vec::new();
        told.extend(self.finalizer.map(|on| match on {
            true => "our finalizer".to_owned(),
            false => "no finalizer of ours".to_owned(),
        }));
        told.extend(changed("label", &self.labels));
        told.extend(changed("annotation", &self.annotations));
        told.extend(changed("capacity", &self.capacity));
        told.extend(self.taints.as_ref().map(|taints| {
            let each: Vec<String> = taints.iter().map(taint_text).collect();
            format!("taints [{}]", each.join(" "))
        }));
        told.extend(self.unschedulable.map(|on| match on {
            true => "cordoned".to_owned(),
            false => "not cordoned".to_owned(),
        }));
        told.extend(self.condition.as_ref().map(|told| {
            let word = |text: &Option<String>| text.clone().unwrap_or_default();
            let (reason, message) = (word(&told.reason), word(&told.message));
            format!("condition {}={} {reason} {message}", told.type_, told.status)
                .trim_end()
                .to_owned()
        }));
        told
    }

    /// The Node as the API server makes it of one that the patch was planned on.
    pub fn applied(&self, before: &Node) -> Node {
        let mut after = before.clone();
        change(&mut after.metadata.labels, &self.labels, String::clone);
        change(&mut after.metadata.annotations, &self.annotations, String::clone);
        if let Some(on) = self.finalizer {
            let held = after.metadata.finalizers.get_or_insert_default();
            held.retain(|held| held != keys::NODE_FINALIZER);
            held.extend(on.then(|| keys::NODE_FINALIZER.to_owned()));
        }
        if let Some(taints) = &self.taints {
            after.spec.get_or_insert_default().taints = Some(taints.clone());
        }
        if let Some(on) = self.unschedulable {
            after.spec.get_or_insert_default().unschedulable = on.then_some(true);
        }
        if !self.capacity.is_empty() {
            let capacity = &mut after.status.get_or_insert_default().capacity;
            change(capacity, &self.capacity, |amount| Quantity(amount.clone()));
        }
        if let Some(condition) = &self.condition {
            let conditions = after.status.get_or_insert_default().conditions.get_or_insert_default();
            conditions.retain(|held| held.type_ != condition.type_);
            conditions.push(condition.clone());
        }
        after
    }

    fn is_empty(&self) -> bool {
        let is_bare = self.finalizer.is_none() && self.labels.is_empty() && self.annotations.is_empty();
        is_bare && self.taints.is_none() && self.unschedulable.is_none()
    }
}

fn change<V>(held: &mut Option<BTreeMap<String, V>>, changes: &Changes, read: impl Fn(&String) -> V) {
    for (key, value) in changes {
        let held = held.get_or_insert_default();
        match value {
            Some(value) => drop(held.insert(key.clone(), read(value))),
            None => drop(held.remove(key)),
        }
    }
}

/// A taint as kubectl writes it.
pub fn taint_text(taint: &Taint) -> String {
    match taint.value.as_deref().filter(|value| !value.is_empty()) {
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
        None => format!("{}:{}", taint.key, taint.effect),
    }
}

/// A Node as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Sketch<'a> {
    seen: &'a Node,
    /// Whether our finalizer is on it.
    pub is_guarded: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it takes no new pods.
    pub is_cordoned: bool,
}

impl<'a> Sketch<'a> {
    /// A Node as it is.
    pub fn of(seen: &'a Node) -> Self {
        Self {
            seen,
            is_guarded: meta::has_finalizer(&seen.metadata, keys::NODE_FINALIZER),
            labels: seen.metadata.labels.clone().unwrap_or_default(),
            annotations: seen.metadata.annotations.clone().unwrap_or_default(),
            taints: node::taints(seen).to_vec(),
            is_cordoned: node::is_cordoned(seen),
        }
    }

    /// Puts a taint on, if it is not there.
    pub fn taint(&mut self, key: &str, value: Option<&str>, effect: &str) {
        let is_it = |taint: &Taint| taint.key == key && taint.effect == effect;
        if !self.taints.iter().any(is_it) {
            self.taints.push(Taint {
                key: key.to_owned(),
                value: value.map(str::to_owned),
                effect: effect.to_owned(),
                time_added: None,
            });
        }
    }

    /// Puts our finalizer on, and our label where the Machine's name can be the value of one: else the API server would refuse all that
    /// is written with it.
    pub fn guard(&mut self, machine: &Name) {
        self.is_guarded = true;
        if value_fault(machine.as_str()).is_none() {
            self.labels
                .insert(keys::MACHINE_NAME.to_owned(), machine.as_str().to_owned());
        }
    }

    /// Tells the autoscaler to leave the Node alone, and that it is we who do so; not where a user has told it already.
    pub fn hold_from_autoscaler(&mut self) {
        if !self.annotations.contains_key(keys::SCALE_DOWN_DISABLED) {
            for key in [keys::SCALE_DOWN_DISABLED, keys::SCALE_DOWN_DISABLED_BY_US] {
                self.annotations.insert(key.to_owned(), keys::PRESENT.to_owned());
            }
        }
    }

    /// Takes that back, where it is ours.
    pub fn leave_to_autoscaler(&mut self) {
        if self.annotations.remove(keys::SCALE_DOWN_DISABLED_BY_US).is_some() {
            self.annotations.remove(keys::SCALE_DOWN_DISABLED);
        }
    }

    /// What makes the Node like this; `None`: it is.
    pub fn patch(self) -> Option<NodePatch> {
        let mut patch = NodePatch::of(self.seen);
        let metadata = &self.seen.metadata;
        let was_guarded = meta::has_finalizer(metadata, keys::NODE_FINALIZER);
        patch.finalizer = (was_guarded != self.is_guarded).then_some(self.is_guarded);
        patch.labels = differences(metadata.labels.as_ref(), self.labels);
        patch.annotations = differences(metadata.annotations.as_ref(), self.annotations);
        if node::taints(self.seen) != self.taints {
            patch.taints = Some(self.taints);
            // The list is written whole, so nobody else's taint may have come meanwhile.
            patch.version.clone_from(&metadata.resource_version);
        }
        if node::is_cordoned(self.seen) != self.is_cordoned {
            patch.unschedulable = Some(self.is_cordoned);
            // One that arrives late would cordon a Node that is in use again.
            patch.version.clone_from(&metadata.resource_version);
        }
        (!patch.is_empty()).then_some(patch)
    }
}

fn differences(before: Option<&BTreeMap<String, String>>, after: BTreeMap<String, String>) -> Changes {
    let had = |key: &String| before.and_then(|before| before.get(key));
    let gone = before
        .into_iter()
        .flatten()
        .filter(|(key, _)| !after.contains_key(*key));
    let mut changes: Changes = gone.map(|(key, _)| (key.clone(), None)).collect();
    let changed = after.into_iter().filter(|(key, value)| had(key) != Some(value));
    changes.extend(changed.map(|(key, value)| (key, Some(value))));
    changes
}
