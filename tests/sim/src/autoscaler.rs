//! The cluster autoscaler (F49): changes how many machines a deployment wants, and says which are to go.
//!
//! It reads a deployment, decides, and writes what it read back whole; a newer version in the way is a conflict, and it comes again. It names
//! victims on the deployment, in one write with the lower count, and cordons their nodes; or, as older versions do, makes them the
//! first to go and lowers the count afterwards. It lowers nothing while a rollout is under way (MD-12).

use std::sync::Arc;

use millwright_core::api::keys;
use millwright_sandbox::api::Answer;
use millwright_sandbox::object;
use serde_json::{Value, json};

use crate::event::{Actor, What};
use crate::kinds::path;
use crate::workload::body::as_go_writes;
use crate::world::World;

/// Most machines that it wants.
const MOST: u64 = 6;

/// Scales now and then, until faults end. In runs without F49 there is none.
pub async fn run(world: Arc<World>) {
    if !world.enter().enabled.has("F49") {
        return;
    }
    loop {
        world
            .delay("autoscaler-pause", &[8000, 500, 2500, 25_000, 60_000])
            .await;
        if world.enter().is_quiet {
            return;
        }
        if let Some(name) = world.one("autoscaled", "machinedeployments") {
            scale(&world, &name).await;
        }
    }
}

async fn scale(world: &World, name: &str) {
    let Some(stored) = world.look(|truth| truth.named("machinedeployments", name)) else {
        return;
    };
    let size = replicas(&stored);
    let may_lower = size > 0 && !is_rolling(&stored);
    match world.pick("autoscaler", &["up", "down", "up by scale", "down by priority"]) {
        "up" if size < MOST => {
            tell(world, format!("scales {name} to {}", size + 1));
            delay(world).await;
            write(world, &stored, &json!({ "spec": { "replicas": size + 1 } }));
        }
        "up by scale" if size < MOST => {
            tell(world, format!("scales {name} to {} by the subresource", size + 1));
            let path = format!("{}/scale", path("machinedeployments", name));
            let body = json!({ "spec": { "replicas": size + 1 } });
            world.order(Actor::Autoscaler, "PATCH", &path, &body);
        }
        "down" if may_lower => lower(world, &stored).await,
        "down by priority" if may_lower => {
            let Some(victim) = victims(world, &stored).into_iter().next() else {
                return;
            };
            tell(world, format!("wants machine {victim} of {name} to go first"));
            let body = json!({ "metadata": { "annotations": { keys::PRIORITY: keys::PRIORITY_TRIGGERED } } });
            world.order(Actor::Autoscaler, "PATCH", &path("machines", &victim), &body);
            delay(world).await;
            write(world, &stored, &json!({ "spec": { "replicas": size - 1 } }));
        }
        _ => {}
    }
}

/// Lowers the count of a deployment by the machines that it names, and cordons their nodes.
async fn lower(world: &World, stored: &Value) {
    let size = replicas(stored);
    let victims = victims(world, stored);
    let most = usize::try_from(size).unwrap_or(usize::MAX).min(victims.len());
    let named: Vec<&str> = victims.iter().map(String::as_str).take(most).collect();
    let count = world.pick("autoscaler-victims", &[1, 2]);
    let Some(named) = named.get(..count.min(named.len())).filter(|named| !named.is_empty()) else {
        return;
    };
    let now = format!("{:.0}", world.time.wall());
    let entries = named
        .iter()
        .map(|name| format!("{name}{}{now}", keys::TRIGGER_DELETION_SEPARATOR));
    let before = Some(annotation(stored, keys::TRIGGER_DELETION)).filter(|list| !list.is_empty());
    let list: Vec<String> = before.into_iter().map(str::to_owned).chain(entries).collect();
    let size = size.saturating_sub(u64::try_from(named.len()).unwrap_or(0));
    let of = object::name(stored);
    tell(
        world,
        format!("scales {of} to {size} and wants to go: {}", list.join(",")),
    );
    delay(world).await;
    let annotations = json!({ keys::TRIGGER_DELETION: list.join(","), keys::SCALER_CHANGE_TIME: now });
    let change = json!({ "metadata": { "annotations": annotations }, "spec": { "replicas": size } });
    if write(world, stored, &change) {
        named.iter().for_each(|name| cordon(world, name));
    }
}

/// The machines of a deployment that may be named, in an order by choice.
fn victims(world: &World, deployment: &Value) -> Vec<String> {
    let list = annotation(deployment, keys::TRIGGER_DELETION);
    let is_listed = |name: &str| {
        let mut names = list
            .split(',')
            .filter_map(|entry| entry.split(keys::TRIGGER_DELETION_SEPARATOR).next());
        names.any(|listed| listed == name)
    };
    let mut names: Vec<String> = world.look(|truth| {
        let is_kept = |machine: &Value| {
            let node = node_of(truth.all("nodes"), machine);
            node.is_some_and(|node| annotation(&node, keys::SCALE_DOWN_DISABLED) == "true")
        };
        let of_it = truth.all("machines").filter(|machine| {
            let is_its = object::text(machine, "/metadata/labels/name") == object::name(deployment);
            let is_failed = object::text(machine, "/status/currentStatus/phase") == "Failed";
            let stays = !is_failed && !object::is_deleting(machine) && !is_kept(machine);
            is_its && stays && !is_listed(object::name(machine))
        });
        of_it.map(|machine| object::name(&machine).to_owned()).collect()
    });
    if let Ok(count @ 1..) = u32::try_from(names.len()) {
        names.rotate_left(world.choose("autoscaler-victim", count) as usize);
    }
    names
}

/// Writes a deployment back whole as it was read, with a change. Gives whether that was taken.
fn write(world: &World, stored: &Value, change: &Value) -> bool {
    let path = path("machinedeployments", object::name(stored));
    let body = as_go_writes(stored.clone(), change);
    let answer = world.order(Actor::Autoscaler, "PUT", &path, &body);
    matches!(answer, Answer::Object { code: 200, .. })
}

fn cordon(world: &World, machine: &str) {
    let node = world.look(|truth| node_of(truth.all("nodes"), &*truth.named("machines", machine)?));
    if let Some(node) = node {
        let noted = json!({ "annotations": { "cluster-autoscaler/cordoned": "true" } });
        let body = json!({ "metadata": noted, "spec": { "unschedulable": true } });
        world.order(Actor::Autoscaler, "PATCH", &path("nodes", object::name(&node)), &body);
    }
}

fn node_of(mut nodes: impl Iterator<Item = Arc<Value>>, machine: &Value) -> Option<Arc<Value>> {
    let id = Some(object::text(machine, "/spec/providerID")).filter(|id| !id.is_empty())?;
    nodes.find(|node| object::text(node, "/spec/providerID") == id)
}

fn replicas(deployment: &Value) -> u64 {
    deployment
        .pointer("/spec/replicas")
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    let annotations = object.pointer("/metadata/annotations");
    let value = annotations.and_then(|annotations| annotations.get(key));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// Whether its first condition of progress is one on which nothing is lowered.
fn is_rolling(deployment: &Value) -> bool {
    let Some(told) = millwright_oracles::object::condition(deployment, "Progressing") else {
        return false;
    };
    let (status, reason) = (object::text(told, "/status"), object::text(told, "/reason"));
    !matches!(
        (status, reason),
        ("True", "NewMachineSetAvailable") | ("Unknown", "DeploymentPaused")
    )
}

/// Between what it read and what it writes.
async fn delay(world: &World) {
    world.delay("autoscaler-lag", &[20, 0, 300, 2000]).await;
}

fn tell(world: &World, about: String) {
    world.tell(What::Fault { name: "F49", about });
}
