//! L6: what a world comes to follows from what is wanted last, and not from the way there.
//!
//! An ending holds both, without names that somebody drew, ids and times. Two runs in which the same is wanted last must have come to
//! the same; of two others nothing can be said. What is left of the past on purpose (sets that are empty, events) is no part of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::diff;
use crate::object::{controller, is_token, name, text, uid};
use crate::truth::Truth;

/// The label whose value names one try of a deployment to make a set.
const HASH: &str = "machine-template-hash";

/// What was wanted last, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    wanted: Value,
    came: Value,
    is_rolled_out: bool,
}

impl Ending {
    /// Of a world that has come to rest. Machines of `broken` classes come to nothing that could be compared.
    pub fn of(truth: &dyn Truth, broken: &BTreeSet<String>) -> Self {
        Self {
            wanted: wanted(truth),
            came: came(truth, broken),
            is_rolled_out: is_rolled_out(truth),
        }
    }

    /// Whether the same was wanted, so that the same must have come of it. Machines that keep the template of before, as long as
    /// changes are not rolled out, are what is left of the way.
    pub fn is_of_the_same_wishes(&self, other: &Self) -> bool {
        self.is_rolled_out && other.is_rolled_out && self.wanted == other.wanted
    }

    /// Compares what came of the same wishes.
    ///
    /// # Errors
    /// What is otherwise than in `other`, and how it is there.
    pub fn is_the_same(&self, other: &Self) -> Result<(), String> {
        let differ = diff::paths(&other.came, &self.came);
        let Some(first) = differ.first() else { return Ok(()) };
        let pointer = first.iter().fold(String::new(), |pointer, step| pointer + "/" + step);
        let told = |came: &Value| came.pointer(&pointer).map_or("nothing".to_owned(), Value::to_string);
        Err(format!(
            "the same is wanted, and came to other {}: {} here, {} there",
            first.join("."),
            told(&self.came),
            told(&other.came),
        ))
    }
}

/// The specs of all that nobody made on behalf of something else.
fn wanted(truth: &dyn Truth) -> Value {
    let all = |kind: &str| truth.objects(kind);
    let own = |kind: &str| {
        let objects = all(kind);
        let own = objects.iter().filter(|object| controller(object).is_empty());
        let told = own.map(|object| json!({ "name": name(object), "spec": without_id(object.get("spec")) }));
        told.collect::<Vec<Value>>()
    };
    let classes: Vec<Value> = all("machineclasses").iter().map(|class| bare(class)).collect();
    let secrets = all("secrets");
    let secrets = secrets.iter().filter(|secret| !is_token(secret));
    let secrets: Vec<Value> = secrets
        .map(|secret| json!({ "name": name(secret), "data": secret.get("data") }))
        .collect();
    json!({
        "deployments": own("machinedeployments"), "sets": own("machinesets"), "machines": own("machines"),
        "classes": classes, "secrets": secrets,
    })
}

/// Whether every set that is in use has the template of its deployment.
fn is_rolled_out(truth: &dyn Truth) -> bool {
    let deployments = truth.objects("machinedeployments");
    let class = |object: &Value| object.pointer("/spec/template/spec").cloned();
    truth
        .objects("machinesets")
        .iter()
        .filter(|set| is_used(set))
        .all(|set| {
            let owner = deployments.iter().find(|it| uid(it) == controller(set));
            owner.is_none_or(|owner| class(owner) == class(set))
        })
}

fn is_used(set: &Value) -> bool {
    set.pointer("/spec/replicas") != Some(&json!(0))
}

fn came(truth: &dyn Truth, broken: &BTreeSet<String>) -> Value {
    let is_whole = |class: &str| !broken.contains(class);
    let all = |kind: &str| truth.objects(kind);
    let counts = |object: &Value| {
        let count = |field: &str| object.get("status").and_then(|status| status.get(field)).cloned();
        json!([
            count("replicas"),
            count("readyReplicas"),
            count("availableReplicas"),
            count("updatedReplicas")
        ])
    };
    let deployments = all("machinedeployments");
    let deployments = deployments
        .iter()
        .map(|it| json!({ "name": name(it), "held": finalizers(it), "counts": counts(it) }));
    let (sets, machines) = (all("machinesets"), all("machines"));
    let sets = sets
        .iter()
        .filter(|set| is_used(set))
        .filter(|set| is_whole(text(set, "/spec/template/spec/class/name")))
        .map(|set| {
            json!({
                "is_of_one": !controller(set).is_empty(), "held": finalizers(set), "spec": unhashed(set.get("spec")),
                "counts": counts(set),
            })
        });
    let machines = machines
        .iter()
        .filter(|machine| is_whole(text(machine, "/spec/class/name")))
        .map(|machine| {
            json!({
                "is_of_one": !controller(machine).is_empty(), "held": finalizers(machine),
                "spec": without_id(machine.get("spec")), "phase": machine.pointer("/status/currentStatus/phase"),
            })
        });
    let held = |kind: &str| {
        let objects = all(kind);
        let objects = objects.iter().filter(|object| !is_token(object));
        objects
            .map(|object| json!({ "name": name(object), "held": finalizers(object) }))
            .collect::<Vec<Value>>()
    };
    let nodes = all("nodes");
    // A machine of a broken class may have a token for as long as it is tried.
    let tokens = all("secrets").iter().filter(|secret| is_token(secret)).count();
    json!({
        "deployments": sorted(deployments), "sets": sorted(sets), "machines": sorted(machines),
        "classes": held("machineclasses"), "secrets": held("secrets"),
        "nodes": sorted(nodes.iter().map(|node| finalizers(node).clone())), "vms": truth.vms().len(),
        "tokens": if broken.is_empty() { tokens } else { 0 },
    })
}

fn finalizers(object: &Value) -> Value {
    object.pointer("/metadata/finalizers").cloned().unwrap_or(json!([]))
}

/// A spec without the VM that serves it.
fn without_id(spec: Option<&Value>) -> Value {
    let mut spec = spec.cloned().unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("providerID");
    }
    spec
}

/// A set's spec without the hash, which differs where the name that goes with it was still taken.
fn unhashed(spec: Option<&Value>) -> Value {
    let mut spec = spec.cloned().unwrap_or_default();
    for labels in ["/selector/matchLabels", "/template/metadata/labels"] {
        if let Some(labels) = spec.pointer_mut(labels).and_then(Value::as_object_mut) {
            labels.remove(HASH);
        }
    }
    spec
}

/// A class without what the server adds.
fn bare(class: &Value) -> Value {
    let mut bare = class.clone();
    if let Some(fields) = bare.as_object_mut() {
        fields.insert("metadata".to_owned(), json!({ "name": name(class) }));
    }
    bare
}

/// By number, as a name that was drawn is no place in an order.
fn sorted(all: impl Iterator<Item = Value>) -> Value {
    let mut all: Vec<Value> = all.collect();
    all.sort_by_cached_key(Value::to_string);
    json!(all)
}
