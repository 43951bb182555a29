//! The agents on nodes that update them in place: each begins when its Node says that it may, and says how it went.
//!
//! Decides by choice how long that takes, and whether it goes well; some are never heard of. A run in which no Node is ever ready for an
//! update has no choice of theirs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use millwright_core::api::keys;
use millwright_sandbox::object;
use serde_json::{Value, json};

use crate::clock::after;
use crate::event::{Actor, Truth};
use crate::kinds;
use crate::world::World;

/// For how many milliseconds an agent works; the last of them is never heard of.
const WORK: [u64; 4] = [3000, 100, 45_000, 1_000_000_000];
/// How often it is looked whether a cluster that is away is back.
const AWAY: Duration = Duration::from_secs(30);
/// How it may go.
const OUTCOMES: [&str; 3] = [keys::UPDATE_SUCCESSFUL, keys::UPDATE_SUCCESSFUL, keys::UPDATE_FAILED];

/// An update, from when a Node said that it may begin.
type Job = (String, String);

/// All agents, to the end of the run.
pub async fn agents(world: Arc<World>) {
    let mut bell = world.bell_of(kinds::place("nodes"));
    let mut agenda: BTreeMap<Job, Timestamp> = BTreeMap::new();
    loop {
        if world.target.is_cut().is_some() {
            tokio::time::sleep(AWAY).await;
            continue;
        }
        bell.catch_up();
        let now = world.time.wall();
        let before = std::mem::take(&mut agenda);
        for job in world.look(ready) {
            let due = before.get(&job).copied();
            let due = due.unwrap_or_else(|| after(now, Duration::from_millis(world.pick("agent-works", &WORK))));
            agenda.insert(job, due);
        }
        let next = agenda.iter().min_by_key(|(job, due)| (**due, *job));
        let wait = match next {
            Some(((node, _), due)) if *due <= now => {
                report(&world, node);
                continue;
            }
            Some((_, due)) => Duration::try_from(due.duration_since(now)).unwrap_or_default(),
            None => Duration::MAX,
        };
        tokio::select! {
            biased;
            _ = bell.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Nodes whose agents are at work.
fn ready(truth: &Truth<'_>) -> Vec<Job> {
    let nodes = truth.all("nodes").filter(|node| !object::is_deleting(node));
    nodes.filter_map(|node| job(&node)).collect()
}

fn job(node: &Value) -> Option<Job> {
    let conditions = node.pointer("/status/conditions")?.as_array()?;
    let told = conditions
        .iter()
        .find(|told| object::text(told, "/type") == keys::NODE_IN_PLACE_UPDATE)?;
    let labels = node.pointer("/metadata/labels");
    let is_done = labels.is_some_and(|labels| labels.get(keys::UPDATE_RESULT).is_some());
    let since = object::text(told, "/lastTransitionTime").to_owned();
    let is_ready = object::text(told, "/reason") == keys::REASON_READY_FOR_UPDATE;
    (is_ready && !is_done).then(|| (object::name(node).to_owned(), since))
}

/// Says on its Node how it went.
fn report(world: &World, node: &str) {
    let outcome = world.pick("agent-ends", &OUTCOMES);
    let body = json!({ "metadata": { "labels": { keys::UPDATE_RESULT: outcome } } });
    world.order(Actor::Kubelet, "PATCH", &format!("/api/v1/nodes/{node}"), &body);
}
