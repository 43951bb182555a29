//! A start in any state that the API admits (L3): half-written children, statuses that say anything, owners that are gone.
//!
//! Not made here is what this version leaves to people by its own word, and what only an attacker writes: VMs of no Machine,
//! phases that are not built, the id of a VM on a Machine of another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use millwright_core::api::keys;
use millwright_provider_virtual::cloud::{Delays, Launch, Owner};
use millwright_sandbox::api::Answer;
use millwright_sandbox::object;
use millwright_sandbox::store::Tree;
use serde_json::{Value, json};

use crate::event::{Actor, What};
use crate::kinds::OURS;
use crate::life::{CLUSTER, NAMESPACE};
use crate::workload::body;
use crate::world::World;

/// Phases that a Machine of this version or of the original may be found in.
const PHASES: [&str; 6] = ["", "Pending", "Running", "Unknown", "Failed", "CrashLoopBackOff"];

/// Makes the objects and the VMs that the manager finds when it begins.
pub async fn prepare(world: &Arc<World>, delays: Delays) {
    let text = "nobody knows what happened before".to_owned();
    world.tell(What::UserAction { text });
    let mut owners = vec![Value::Null, gone("MachineDeployment")];
    if world.choose("any-deployment", 4) > 0 {
        let made = make(world, "machinedeployments", deployment(world));
        owners.extend(made.map(|made| owner("MachineDeployment", &made)));
    }
    let mut sets = vec![Value::Null, gone("MachineSet")];
    for number in 0..world.choose("any-sets", 4) {
        let body = set(world, number, &owners);
        let made = make(world, "machinesets", body);
        sets.extend(made.map(|made| owner("MachineSet", &made)));
    }
    for number in 0..world.choose("any-machines", 5) {
        machine(world, number, &sets, delays).await;
    }
}

/// Creates an object and writes its status. `None`: the API does not admit it.
fn make(world: &World, plural: &str, body: Value) -> Option<Tree> {
    let made = match world.order(Actor::Human, "POST", &format!("{OURS}/{plural}"), &body) {
        Answer::Object { code: 201, body, .. } => body,
        Answer::Object { .. } | Answer::List(_) | Answer::Text { .. } | Answer::Watch(_) => return None,
    };
    if let Some(status) = body.get("status") {
        let path = format!("{OURS}/{plural}/{}/status", object::name(&made));
        world.order(Actor::Human, "PATCH", &path, &json!({ "status": status }));
    }
    Some(made)
}

fn owner(kind: &str, made: &Value) -> Value {
    let (name, uid) = (object::name(made), object::uid(made));
    json!([{ "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true }])
}

/// An owner that is no more.
fn gone(kind: &str) -> Value {
    let uid = "00000000-0000-4000-a000-000000000000";
    owner(kind, &json!({ "metadata": { "name": "gone", "uid": uid } }))
}

fn one_of(world: &World, point: &'static str, all: &[Value]) -> Value {
    let nth = world.choose(point, u32::try_from(all.len()).unwrap_or(1)) as usize;
    all.get(nth).cloned().unwrap_or(Value::Null)
}

fn finalizers(world: &World) -> Value {
    one_of(world, "any-finalizer", &[json!([keys::FINALIZER]), Value::Null])
}

/// Counts that need not be true.
fn counts(world: &World) -> Value {
    let any = || world.choose("any-count", 5);
    json!({ "replicas": any(), "readyReplicas": any(), "availableReplicas": any(), "observedGeneration": any() })
}

fn deployment(world: &World) -> Value {
    let mut body = body::deployment(world.choose("any-replicas", 4));
    put(&mut body, "/metadata", "finalizers", finalizers(world));
    let revisions = [
        Value::Null,
        json!({ keys::REVISION: "7" }),
        json!({ keys::REVISION: "x" }),
    ];
    let annotations = one_of(world, "any-revision", &revisions);
    put(&mut body, "/metadata", "annotations", annotations);
    put(&mut body, "", "status", counts(world));
    body
}

fn set(world: &World, number: u32, owners: &[Value]) -> Value {
    let class = world.pick("any-class", &["small", "large"]);
    let replicas = world.choose("any-replicas", 3);
    let mut body = body::set_of(&format!("set-{number}"), replicas, class);
    let metadata = [
        ("finalizers", finalizers(world)),
        ("ownerReferences", one_of(world, "any-owner", owners)),
        (
            "labels",
            one_of(
                world,
                "any-labels",
                &[json!({ "name": "workers" }), json!({ "name": "others" })],
            ),
        ),
    ];
    for (field, value) in metadata {
        put(&mut body, "/metadata", field, value);
    }
    put(&mut body, "", "status", counts(world));
    body
}

async fn machine(world: &Arc<World>, number: u32, sets: &[Value], delays: Delays) {
    let name = format!("machine-{number}");
    let (phase, is_known) = (world.pick("any-phase", &PHASES), world.choose("any-known", 3) > 0);
    let mut body = body::machine(&name);
    // A VM without a finalizer on its Machine nobody answers for.
    let (has_vm, guards) = (world.choose("any-vm", 2) == 1, finalizers(world));
    let has_vm = has_vm && !guards.is_null();
    put(&mut body, "/metadata", "finalizers", guards);
    // Labels that the deployment's sets look for, or one of the others.
    let labels = [
        json!({ "name": "workers" }),
        json!({ "name": "workers", "set": "set-0" }),
        json!({ "name": "workers", "set": "set-1" }),
    ];
    put(
        &mut body,
        "/metadata",
        "labels",
        one_of(world, "any-machine-labels", &labels),
    );
    put(
        &mut body,
        "/metadata",
        "ownerReferences",
        one_of(world, "any-owner", sets),
    );
    put(&mut body, "", "status", status(world, phase));
    let Some(made) = make(world, "machines", body) else {
        return;
    };
    let path = format!("{OURS}/machines/{name}");
    if has_vm {
        let id = launch(world, object::uid(&made), &name, delays).await;
        let patch = json!({ "metadata": { "labels": { "node": name } }, "spec": { "providerID": id } });
        if is_known {
            world.order(Actor::Human, "PATCH", &path, &patch);
        }
    } else if is_known && matches!(phase, "Running" | "Unknown" | "Failed") {
        let patch = json!({ "spec": { "providerID": "virtual:///local/local-a/i-lost" } });
        world.order(Actor::Human, "PATCH", &path, &patch);
    }
    if world.choose("any-deleted", 4) == 1 {
        world.order(Actor::Human, "DELETE", &path, &Value::Null);
    }
}

fn status(world: &World, phase: &str) -> Value {
    let seconds = world.pick("any-since", &[-30, -3600, 0, 3600]);
    let since = world.time.wall() + SignedDuration::from_secs(seconds);
    let operation = world.pick("any-operation", &["Create", "Delete", "HealthCheck"]);
    let state = world.pick("any-state", &["Processing", "Failed", "Successful"]);
    // Whoever was up once tells of its node.
    let conditions = match phase {
        "Running" | "Unknown" => json!([{ "type": "Ready", "status": "True" }]),
        _ => json!([]),
    };
    json!({
        "conditions": conditions,
        "currentStatus": { "phase": phase, "lastUpdateTime": format!("{since:.0}") },
        "lastOperation": { "type": operation, "state": state, "description": "as it was", "lastUpdateTime": format!("{since:.0}") },
    })
}

/// Makes a Machine in no phase, and its VM, of which it says nothing yet.
pub async fn leave(world: &Arc<World>, name: &str) {
    let text = format!("another controller has left machine {name} with a VM that nobody wrote down");
    world.tell(What::UserAction { text });
    let mut body = body::machine(name);
    put(&mut body, "/metadata", "finalizers", json!([keys::FINALIZER]));
    let delays = Delays {
        create: Duration::ZERO,
        join: Duration::from_secs(1),
        delete: Duration::ZERO,
    };
    if let Some(made) = make(world, "machines", body) {
        launch(world, object::uid(&made), name, delays).await;
    }
}

/// Runs a VM as an earlier manager did. Its id.
async fn launch(world: &World, uid: &str, name: &str, delays: Delays) -> Value {
    let owner = Owner {
        cluster: CLUSTER.to_owned(),
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    let launch = Launch {
        token: uid.to_owned(),
        owner,
        machine_class: "small".to_owned(),
        spec_digest: "of an earlier manager's".to_owned(),
        tags: BTreeMap::new(),
        region: "local".to_owned(),
        zone: body::ZONE.to_owned(),
        instance_type: "small".to_owned(),
        delays,
    };
    // An in-memory cloud has room for every VM.
    let vm = world.cloud.run_vm(launch).await.ok();
    vm.map_or(Value::Null, |vm| json!(vm.provider_id()))
}

fn put(body: &mut Value, place: &str, field: &str, value: Value) {
    if let Some(fields) = body.pointer_mut(place).and_then(Value::as_object_mut)
        && !value.is_null()
    {
        fields.insert(field.to_owned(), value);
    }
}
