//! How the cluster autoscaler takes machines away: it names them, and lowers the count.

use millwright_core::api::keys;
use millwright_sandbox::object;
use serde_json::{Value, json};

use super::body;
use crate::event::{Actor, What};
use crate::kinds::path;
use crate::world::World;

/// Makes a machine the first to go, by choice.
pub fn prefer(world: &World) {
    if let Some(name) = world.one("one", "machines") {
        let text = format!("wants machine {name} to go first");
        world.tell(What::UserAction { text });
        let body = json!({ "metadata": { "annotations": { keys::PRIORITY: keys::PRIORITY_TRIGGERED } } });
        world.order(Actor::Human, "PATCH", &path("machines", &name), &body);
    }
}

/// Takes one off the deployment's count and puts one of its machines on the list of those to go.
pub fn name_victim(world: &World) {
    let names: Vec<String> = world.look(|truth| {
        let staying = truth.all("machines").filter(|machine| !object::is_deleting(machine));
        staying.map(|machine| object::name(&machine).to_owned()).collect()
    });
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(stored) = world.look(|truth| truth.named("machinedeployments", "workers")) else {
        return;
    };
    let size = stored.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(0);
    if names.is_empty() || size == 0 {
        return;
    }
    let name = world.pick("one", &names);
    let pointer = format!("/metadata/annotations/{}", keys::TRIGGER_DELETION.replace('/', "~1"));
    let before = stored.pointer(&pointer).and_then(Value::as_str);
    let entry = format!("{name}{}{:.0}", keys::TRIGGER_DELETION_SEPARATOR, world.time.wall());
    let list: Vec<&str> = before.into_iter().chain([entry.as_str()]).collect();
    let text = format!("scales to {} and wants to go: {}", size - 1, list.join(","));
    world.tell(What::UserAction { text });
    let change = json!({
        "metadata": { "annotations": { keys::TRIGGER_DELETION: list.join(",") } },
        "spec": { "replicas": size - 1 },
    });
    let path = path("machinedeployments", "workers");
    // A whole object that a newer one is in the way of is refused, and the autoscaler comes again when it likes.
    match world.pick("whole", &["PATCH", "PUT"]) {
        "PUT" => world.order(
            Actor::Human,
            "PUT",
            &path,
            &body::as_go_writes(stored.as_ref().clone(), &change),
        ),
        _ => world.order(Actor::Human, "PATCH", &path, &change),
    };
}
