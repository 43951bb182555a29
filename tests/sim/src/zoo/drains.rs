//! Mistakes in what comes before a VM goes: its pods, their budgets, and the deadline of it all.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use millwright_core::api::{Phase, keys, meta};
use millwright_core::drain::Volumes;
use millwright_core::ledger::Calls;
use millwright_core::machine::{self, Observed, Plan, Step, Why, node};
use millwright_core::sight::later;
use millwright_sandbox::object;
use serde_json::json;

use super::Mutant;
use super::machines::{deciding, is_deleting, told_at};
use crate::event::Actor;
use crate::kinds::path;
use crate::process::Process;
use crate::world::World;
use crate::world::hooks::Hooks;

pub(super) const ALL: [Mutant; 11] = [
    Mutant {
        name: "goes-undrained",
        rows: "57",
        what: "a VM is removed without a look at the pods of its node",
        property: "S7",
        workload: "drain",
        faults: &[],
        rests: false,
        hooks: || deciding(goes_undrained),
    },
    Mutant {
        name: "unseen-is-empty",
        rows: "32, 58",
        what: "a node that is out of sight counts as one without pods",
        property: "S7",
        workload: "drain",
        faults: &["F57", "F4"],
        rests: false,
        hooks: || deciding(unseen_is_empty),
    },
    Mutant {
        name: "deletes-pods",
        rows: "54, 64",
        what: "pods are deleted where they should be evicted, as no budget holds them then",
        property: "S7",
        workload: "drain",
        faults: &[],
        rests: false,
        hooks: || deciding(deletes_pods),
    },
    Mutant {
        name: "dead-at-once",
        rows: "57, 64",
        what: "a node counts as dead, and its pods as nobody's, as soon as it is not ready",
        property: "S7",
        workload: "drain-stuck",
        faults: &["F41"],
        rests: false,
        hooks: || deciding(dead_at_once),
    },
    Mutant {
        name: "drains-the-ill",
        rows: "37",
        what: "the pods of a machine that is unhealthy go before it is given up",
        property: "S7",
        workload: "drain",
        faults: &["F41"],
        rests: false,
        hooks: || deciding(drains_the_ill),
    },
    Mutant {
        name: "deadline-slides",
        rows: "53, 67",
        what: "the deadline of a drain counts from the last word on it",
        property: "L2",
        workload: "drain",
        faults: &[],
        rests: false,
        hooks: || deciding(deadline_slides),
    },
    Mutant {
        name: "forced-by-eviction",
        rows: "54, 64",
        what: "pods are evicted past the deadline, too, and wait for their budget for ever",
        property: "L2",
        workload: "drain-stuck",
        faults: &[],
        rests: false,
        hooks: || deciding(forced_by_eviction),
    },
    Mutant {
        name: "leaves-volumes",
        rows: "56, 65",
        what: "a VM is removed as soon as its pods are gone, whether their volumes are detached or not",
        property: "S7",
        workload: "drain-volumes",
        faults: &[],
        rests: false,
        hooks: || deciding(leaves_volumes),
    },
    Mutant {
        name: "detaches-at-once",
        rows: "55, 65",
        what: "VolumeAttachments are deleted as soon as a drain begins, whether their volumes are unmounted or not",
        property: "S7",
        workload: "drain-volumes",
        faults: &[],
        rests: false,
        hooks: || deciding(detaches_at_once),
    },
    Mutant {
        name: "evicts-daemons",
        rows: "-",
        what: "pods of DaemonSets are evicted as all others are, and come back",
        property: "S7",
        workload: "drain-volumes",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            beside: |world, process| evicts_daemons(world, process).boxed(),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "waits-for-its-node",
        rows: "68, 70",
        what: "a machine that is deleted waits for its Node, which is gone already",
        property: "L2",
        workload: "machine",
        faults: &["F9x3"],
        rests: false,
        hooks: || deciding(waits_for_its_node),
    },
];

/// Between two looks for pods of DaemonSets.
const LOOK: Duration = Duration::from_secs(1);
/// Between two evictions of a pod past the deadline.
const PAUSE: SignedDuration = SignedDuration::from_secs(20);

/// The plan of a machine whose VM was asked to go before, so that its drain is over.
fn past_the_drain(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let is_asked = seen.calls.delete_at.is_some() || seen.calls.gone_since.is_some();
    if !is_deleting(seen.machine) || is_asked {
        return machine::plan(seen, now);
    }
    let calls = &Calls {
        delete_at: Some(now),
        ..seen.calls.clone()
    };
    machine::plan(&Observed { calls, ..*seen }, now)
}

fn goes_undrained(seen: &Observed<'_>, now: Timestamp) -> Plan {
    match seen.node {
        Some(_) => past_the_drain(seen, now),
        None => machine::plan(seen, now),
    }
}

fn unseen_is_empty(seen: &Observed<'_>, now: Timestamp) -> Plan {
    match seen.sight.target_since {
        Some(_) => machine::plan(seen, now),
        None => past_the_drain(seen, now),
    }
}

fn deletes_pods(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    for step in &mut plan.steps {
        if let Step::Evict(pods) = step {
            let (pods, grace) = (std::mem::take(pods), SignedDuration::ZERO);
            *step = Step::DeletePods { pods, grace };
        }
    }
    plan
}

fn forced_by_eviction(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    let mut steps = plan.steps.iter();
    let forced = steps.find_map(|step| match step {
        Step::DeletePods { pods, .. } => Some(pods.clone()),
        _ => None,
    });
    let Some(pods) = forced else { return plan };
    Plan::act(vec![Step::Evict(pods)], Why::DrainForced).or_at(Some(later(now, PAUSE)), now)
}

fn dead_at_once(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut node = seen.node.cloned();
    let status = node.as_mut().and_then(|node| node.status.as_mut());
    let conditions = status.and_then(|status| status.conditions.as_mut());
    let not_ready = conditions
        .into_iter()
        .flatten()
        .filter(|told| told.type_ == "Ready" && told.status != "True");
    for since in not_ready.filter_map(|told| told.last_transition_time.as_mut()) {
        since.0 = Timestamp::UNIX_EPOCH;
    }
    let node = node.as_ref();
    machine::plan(&Observed { node, ..*seen }, now)
}

fn drains_the_ill(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    let is_ill = *seen.machine.phase() == Phase::Unknown && !is_deleting(seen.machine);
    let found = seen.node.filter(|found| is_ill && node::belongs(found, seen.machine));
    let Some(found) = found else { return plan };
    plan.steps.retain(|step| !matches!(step, Step::LeavePods));
    match seen.drain {
        None => plan.steps.insert(0, Step::WatchPods(node::name(found))),
        Some(drain) => {
            let due = drain.due(seen.volumes, seen.settings, None, now);
            if !due.is_empty() {
                plan.steps.insert(0, Step::Evict(due));
            }
        }
    }
    plan
}

fn deadline_slides(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut machine = seen.machine.clone();
    if let (Some(at), Some(since)) = (told_at(seen.machine), &mut machine.metadata.deletion_timestamp) {
        since.0 = since.0.max(at);
    }
    let machine = &machine;
    machine::plan(&Observed { machine, ..*seen }, now)
}

fn leaves_volumes(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut node = seen.node.cloned();
    if let Some(status) = node.as_mut().and_then(|node| node.status.as_mut()) {
        status.volumes_attached = None;
    }
    let (node, volumes) = (node.as_ref(), &Volumes::default());
    let mut plan = machine::plan(&Observed { node, volumes, ..*seen }, now);
    plan.steps.retain(|step| !matches!(step, Step::WatchVolumes));
    plan
}

fn detaches_at_once(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    let found = seen.node.filter(|found| node::belongs(found, seen.machine));
    let attached = found.map_or_else(Vec::new, |found| seen.volumes.on(&node::name(found)));
    if is_deleting(seen.machine) && !attached.is_empty() {
        plan.steps.insert(0, Step::Detach(attached));
    }
    plan
}

/// Evicts, as the manager, the DaemonSet's pods of each node whose machine is deleted.
async fn evicts_daemons(world: Arc<World>, process: Arc<Process>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let names: Vec<String> = world.look(|truth| {
            let leaving = truth.all("machines").filter(|machine| object::is_deleting(machine));
            leaving.map(|machine| object::name(&machine).to_owned()).collect()
        });
        for name in names {
            let pod = format!("agent-{name}");
            if world.look(|truth| truth.named("pods", &pod)).is_some() {
                let path = format!("{}/eviction", path("pods", &pod));
                let eviction = json!({
                    "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": "default" },
                });
                world.order(Actor::Manager(process.incarnation), "POST", &path, &eviction);
            }
        }
    }
}

fn waits_for_its_node(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let is_held = meta::has_finalizer(&seen.machine.metadata, keys::FINALIZER);
    let is_alone = seen.node.is_none() && seen.sight.target_since.is_some() && seen.machine.has_joined();
    match is_deleting(seen.machine) && is_held && is_alone {
        true => Plan::rest(Why::NodeMissing),
        false => machine::plan(seen, now),
    }
}
