//! The human's accidents: edits and deletions of anything at any moment (F48), and the same name again with a new uid (F51).
//!
//! What this version leaves undone by its own word, the human does himself once faults have ended: VMs and Nodes of Machines
//! whose finalizer he took away. Those debts are kept here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millwright_provider_virtual::cloud::VmId;
use millwright_sandbox::api::Answer;
use millwright_sandbox::object;
use serde_json::{Value, json};

use crate::event::{Actor, What};
use crate::kinds;
use crate::workload;
use crate::world::World;

/// How often he tries to make again what is still going.
const RETRY: Duration = Duration::from_millis(250);
/// Milliseconds between two of his deeds that belong together.
const PAUSES: [u64; 6] = [500, 0, 20, 3000, 20_000, 70_000];

/// Machines whose finalizer the human took away, with the VMs that they had: nobody but him is to answer for what is left.
#[derive(Debug, Default)]
pub struct Debts(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl Debts {
    fn owe(&self, world: &World, machine: &Value) {
        let uid = object::uid(machine);
        let vms = world.cloud.everything();
        let ids = vms.iter().filter(|vm| vm.owner.uid == uid).map(|vm| vm.provider_id());
        let known = object::text(machine, "/spec/providerID").to_owned();
        // Nobody may have told the Machine its VM, and the VM may be gone: its Node has its name.
        let node = world.look(|truth| truth.named("nodes", object::name(machine)));
        let told = node.map(|node| object::text(&node, "/spec/providerID").to_owned());
        let ids = ids.chain([known]).chain(told).filter(|id| !id.is_empty());
        let mut owed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owed.entry(uid.to_owned()).or_default().extend(ids);
    }

    /// Removes what is left of Machines that he made go by force.
    pub async fn settle(&self, world: &World) {
        let mut owed = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        owed.retain(|uid, _| !world.look(|truth| truth.all("machines").any(|machine| object::uid(&machine) == uid)));
        for vm in world.cloud.everything() {
            let Some(ids) = owed.get_mut(&vm.owner.uid) else {
                continue;
            };
            let text = format!("removes VM {} of a Machine that he made go by force", vm.id);
            world.tell(What::UserAction { text });
            // It may be gone by itself.
            world.cloud.remove(&VmId::new(vm.id.as_str())).await.ok();
            ids.insert(vm.provider_id());
        }
        let is_owed = |node: &Value| {
            let id = object::text(node, "/spec/providerID");
            owed.values().any(|ids| ids.contains(id))
        };
        let nodes: Vec<String> = world.look(|truth| {
            let nodes = truth.all("nodes").filter(|node| is_owed(node));
            nodes.map(|node| object::name(&node).to_owned()).collect()
        });
        for name in nodes {
            let text = format!("removes node {name} of a Machine that he made go by force");
            world.tell(What::UserAction { text });
            let path = kinds::path("nodes", &name);
            world.order(Actor::Human, "DELETE", &path, &Value::Null);
            // The Machine that would let it go is no more.
            world.order(Actor::Human, "PATCH", &path, &without_finalizers());
        }
    }
}

fn without_finalizers() -> Value {
    json!({ "metadata": { "finalizers": null } })
}

/// The human edits or deletes something.
pub fn accidents(world: &Arc<World>, debts: &Debts) {
    match world.choose("accidents", 15) {
        0 => of(world, "machines", "DELETE", Value::Null),
        1 => of(world, "nodes", "DELETE", Value::Null),
        2 => of(world, "machines", "PATCH", annotation("note", "mine")),
        3 => of(
            world,
            "machines",
            "PATCH",
            annotation("machinepriority.machine.sapcloud.io", "1"),
        ),
        4 => of(
            world,
            "machinesets",
            "PATCH",
            json!({ "metadata": { "labels": { "note": "mine" } } }),
        ),
        5 => of(world, "machineclasses", "PATCH", annotation("note", "mine")),
        6 => of(
            world,
            "machines",
            "PATCH",
            json!({ "metadata": { "labels": { "name": "another" } } }),
        ),
        7 => of(world, "machinedeployments", "PATCH", replicas(world)),
        8 => of(world, "machinesets", "PATCH", replicas(world)),
        9 => of(world, "machinesets", "DELETE", Value::Null),
        10 => there_and_back(world),
        11 => again(world, "machineclasses", true),
        12 => again(world, "machineclasses", false),
        13 => again(world, "secrets", true),
        _ => force(world, debts),
    }
}

/// F51: an object is deleted and made again under its name, its children taken along or not.
pub fn replace(world: &Arc<World>) {
    let plural = world.pick("replace", &["machines", "machinesets", "machinedeployments"]);
    let policy = world.pick("replace-policy", &["Background", "Orphan", "Foreground"]);
    let Some(name) = one(world, plural) else { return };
    let Some(mut body) = copy(world, plural, &name) else {
        return;
    };
    let path = kinds::path(plural, &name);
    let about = format!("{plural} {name} is deleted ({policy}) and made again");
    world.tell(What::Fault { name: "F51", about });
    world.enter().returning.insert(path.clone());
    world.order(Actor::Human, "DELETE", &path, &json!({ "propagationPolicy": policy }));
    let pause = world.pick("replace-pause", &PAUSES);
    let world = Arc::clone(world);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        // Who goes on changing it while it goes wants it as changed.
        while is_going(&world, plural, &name) {
            body = copy(&world, plural, &name).unwrap_or(body);
            tokio::time::sleep(RETRY).await;
        }
        make(&world, plural, &name, &body).await;
        world.enter().returning.remove(&path);
    });
}

fn annotation(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

fn replicas(world: &World) -> Value {
    json!({ "spec": { "replicas": world.pick("accidents-size", &[0, 1, 2, 4]) } })
}

/// One object of a kind, if there is any.
fn one(world: &World, plural: &'static str) -> Option<String> {
    world.one("accidents-with", plural)
}

/// Does one thing to one object of a kind.
fn of(world: &World, plural: &'static str, method: &str, body: Value) {
    if let Some(name) = one(world, plural) {
        tell(world, format!("{method} {plural} {name} {body}"));
        world.order(Actor::Human, method, &kinds::path(plural, &name), &body);
    }
}

fn tell(world: &World, about: String) {
    world.tell(What::Fault { name: "F48", about });
}

/// A deployment's template is changed and changed back.
fn there_and_back(world: &Arc<World>) {
    let Some(name) = one(world, "machinedeployments") else {
        return;
    };
    let path = kinds::path("machinedeployments", &name);
    let now = world.look(|truth| {
        let stored = truth.named("machinedeployments", &name)?;
        Some(object::text(&stored, "/spec/template/spec/class/name").to_owned())
    });
    let Some(now) = now else { return };
    let other = if now == "small" { "large" } else { "small" };
    let of_class = |class: &str| json!({ "spec": { "template": { "spec": { "class": { "kind": "MachineClass", "name": class } } } } });
    tell(world, format!("template of {name}: {now}, {other}, {now}"));
    world.order(Actor::Human, "PATCH", &path, &of_class(other));
    let pause = world.pick("accidents-pause", &PAUSES);
    let (world, back) = (Arc::clone(world), of_class(&now));
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        world.order(Actor::Human, "PATCH", &path, &back);
    });
}

/// A class or the Secret is deleted, by force or not, and made again.
fn again(world: &Arc<World>, plural: &'static str, by_force: bool) {
    let name = match plural {
        "secrets" => "user-data".to_owned(),
        _ => world.pick("accidents-class", &["small", "large"]).to_owned(),
    };
    let Some(body) = workload::fixtures().into_iter().find(|it| object::name(it) == name) else {
        return;
    };
    let path = kinds::path(plural, &name);
    let how = if by_force { "by force, " } else { "" };
    tell(world, format!("{plural} {name} is deleted {how}and made again"));
    world.order(Actor::Human, "DELETE", &path, &Value::Null);
    if by_force {
        world.order(Actor::Human, "PATCH", &path, &without_finalizers());
    }
    let pause = world.pick("accidents-pause", &PAUSES);
    let world = Arc::clone(world);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        make(&world, plural, &name, &body).await;
    });
}

/// Finalizers are taken from an object.
fn force(world: &World, debts: &Debts) {
    let plural = world.pick("force", &["machines", "machinesets"]);
    let Some(name) = one(world, plural) else { return };
    let stored = world.look(|truth| truth.named(plural, &name));
    if let Some(machine) = stored.filter(|_| plural == "machines") {
        debts.owe(world, &machine);
    }
    tell(world, format!("takes the finalizers from {plural} {name}"));
    world.order(
        Actor::Human,
        "PATCH",
        &kinds::path(plural, &name),
        &without_finalizers(),
    );
}

/// An object as its owner would write it down again.
fn copy(world: &World, plural: &'static str, name: &str) -> Option<Value> {
    let stored = world.look(|truth| truth.named(plural, name))?;
    let mut spec = stored.get("spec")?.clone();
    let mut labels = stored.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    // What the manager wrote there is of the VM that goes.
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("providerID");
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.remove("node");
    }
    Some(json!({
        "apiVersion": stored.get("apiVersion"), "kind": stored.get("kind"),
        "metadata": { "name": name, "namespace": "default", "labels": labels },
        "spec": spec,
    }))
}

/// Makes an object as soon as its name is free, unless somebody else did.
async fn make(world: &World, plural: &'static str, name: &str, body: &Value) {
    let collection = kinds::collection(plural);
    while is_going(world, plural, name) {
        tokio::time::sleep(RETRY).await;
    }
    // A conflict is an answer, too: it was made by somebody meanwhile.
    match world.order(Actor::Human, "POST", &collection, body) {
        Answer::Object { code: 201 | 409, .. } => {}
        Answer::Object { code, body, .. } => world.broken("simulator", format!("POST {plural} {name}: {code} {body}")),
        Answer::List(_) | Answer::Text { .. } | Answer::Watch(_) => {}
    }
}

/// Whether there is an object of this name that is on its way out.
fn is_going(world: &World, plural: &'static str, name: &str) -> bool {
    world.look(|truth| {
        let stored = truth.named(plural, name);
        stored.is_some_and(|stored| object::is_deleting(&stored))
    })
}
