//! Everybody else: kubelets, the node lifecycle controller, the garbage collector, the operator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use millwright_core::api::keys;
use millwright_provider_virtual::cloud::{Event as CloudEvent, Phase, Vm, VmId};
use millwright_sandbox::api::Answer;
use millwright_sandbox::object;
use serde_json::{Value, json};

use crate::accidents::Debts;
use crate::clock::after;
use crate::event::{Actor, What};
use crate::judge::expiration;
use crate::world::World;

/// After this long without a heartbeat the node lifecycle controller says Unknown.
const NODE_GRACE: Duration = Duration::from_secs(40);
/// Between two tries of a kubelet to register.
const RETRY: Duration = Duration::from_secs(5);

/// What kubelets and the node lifecycle controller have to do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Duty {
    Register(VmId),
    /// Registers although its VM is on its way out.
    Barge(VmId),
    Miss {
        node: String,
        provider_id: String,
    },
    Return {
        node: String,
        provider_id: String,
    },
}

/// Registers a node for each VM that lives, and marks those whose VM is silent.
pub async fn kubelets(world: Arc<World>) {
    let (_, mut happenings) = world.cloud.follow();
    let mut agenda: BTreeMap<(Timestamp, u64), Duty> = BTreeMap::new();
    let mut count = 0;
    loop {
        let next = agenda.first_key_value().map(|((due, _), _)| *due);
        let wait = async {
            match next {
                Some(due) => {
                    let left = due.duration_since(world.time.wall());
                    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
                }
                None => std::future::pending().await,
            }
        };
        let mut add = |agenda: &mut BTreeMap<_, _>, due: Timestamp, duty: Duty| {
            count += 1;
            agenda.insert((due, count), duty);
        };
        tokio::select! {
            biased;
            happening = happenings.recv() => {
                let Some(happening) = happening else { return };
                for (due, duty) in caused(&world, happening.event, &happening.vm) {
                    add(&mut agenda, due, duty);
                }
            }
            () = wait => {
                while let Some(entry) = agenda.first_entry().filter(|entry| entry.key().0 <= world.time.wall()) {
                    let duty = entry.remove();
                    if let Some((due, duty)) = carry_out(&world, duty).await {
                        add(&mut agenda, due, duty);
                    }
                }
            }
        }
    }
}

fn caused(world: &World, event: CloudEvent, vm: &Vm) -> Vec<(Timestamp, Duty)> {
    let now = world.time.wall();
    match event {
        CloudEvent::Accepted => {
            if !world.strikes("F45") {
                return vec![(vm.joins_at, Duty::Register(vm.id.clone()))];
            }
            let seconds = world.pick("kubelet-late", &[20, 120, 235, 245, 1_000_000]);
            let about = format!("the kubelet of {} comes {seconds} s late", vm.owner.name);
            world.tell(What::Fault { name: "F45", about });
            vec![(
                after(vm.joins_at, Duration::from_secs(seconds)),
                Duty::Register(vm.id.clone()),
            )]
        }
        CloudEvent::Joined if world.strikes("F45") => falls_silent(world, vm),
        CloudEvent::Stopped | CloudEvent::Deleting | CloudEvent::Removed => {
            let (node, provider_id) = (vm.node_name(), vm.provider_id());
            let mut duties = vec![(after(now, NODE_GRACE), Duty::Miss { node, provider_id })];
            if event == CloudEvent::Deleting && !vm.node_registered && world.strikes("F45") {
                let seconds = world.pick("kubelet-barges", &[1, 0, 10, 28]);
                let due = after(now, Duration::from_secs(seconds));
                duties.push((due, Duty::Barge(vm.id.clone())));
            }
            duties
        }
        CloudEvent::Booted | CloudEvent::Joined => Vec::new(),
    }
}

/// A kubelet leaves for a while, is missed, and comes back.
fn falls_silent(world: &World, vm: &Vm) -> Vec<(Timestamp, Duty)> {
    let from = world.pick("kubelet-leaves", &[5, 60]);
    let silent = world.pick("kubelet-silent", &[50, 100, 400]);
    let name = &vm.owner.name;
    let about = format!("the kubelet of {name} is silent from {from} s on, for {silent} s");
    world.tell(What::Fault { name: "F45", about });
    let (now, node, provider_id) = (world.time.wall(), vm.node_name(), vm.provider_id());
    let miss = Duty::Miss {
        node: node.clone(),
        provider_id: provider_id.clone(),
    };
    let back = Duty::Return { node, provider_id };
    vec![
        (after(now, Duration::from_secs(from) + NODE_GRACE), miss),
        (after(now, Duration::from_secs(from + silent)), back),
    ]
}

async fn carry_out(world: &World, duty: Duty) -> Option<(Timestamp, Duty)> {
    match duty {
        // The node would register at the cluster that is away.
        Duty::Register(_) | Duty::Miss { .. } | Duty::Return { .. } if world.target.is_cut().is_some() => {
            Some((after(world.time.wall(), RETRY), duty))
        }
        Duty::Register(id) => {
            let registration = world.cloud.begin_registration(&id)?;
            let node = node(registration.vm(), world.time.wall());
            match world.order(Actor::Kubelet, "POST", "/api/v1/nodes", &node) {
                Answer::Object { code: 201, .. } => {
                    // An in-memory cloud always takes it.
                    registration.joined().await.ok();
                    None
                }
                Answer::Object { .. } | Answer::List(_) | Answer::Text { .. } | Answer::Watch(_) => {
                    Some((after(world.time.wall(), RETRY), Duty::Register(id)))
                }
            }
        }
        Duty::Barge(id) => {
            let vms = world.cloud.everything();
            let vm = vms.iter().find(|vm| vm.id == id && !vm.node_registered)?;
            let about = format!("the kubelet of {} joins although its VM goes", vm.owner.name);
            world.tell(What::Fault { name: "F45", about });
            let node = node(vm, world.time.wall());
            world.order(Actor::Kubelet, "POST", "/api/v1/nodes", &node);
            None
        }
        Duty::Miss { node, provider_id } => {
            mark(world, &node, &provider_id, "Unknown");
            None
        }
        Duty::Return { node, provider_id } => {
            let lives = world
                .cloud
                .everything()
                .iter()
                .any(|vm| vm.provider_id() == provider_id && vm.phase(world.time.wall()) == Phase::Running);
            if lives {
                mark(world, &node, &provider_id, "True");
            }
            None
        }
    }
}

/// Sets the Ready condition of a VM's node, if the node is there.
fn mark(world: &World, node: &str, provider_id: &str, status: &str) {
    let found = world.look(|truth| truth.named("nodes", node));
    let Some(found) = found.filter(|found| object::text(found, "/spec/providerID") == provider_id) else {
        return;
    };
    if millwright_oracles::object::condition(&found, "Ready")
        .is_some_and(|ready| object::text(ready, "/status") == status)
    {
        return;
    }
    // The real one patches its own condition alone, by type; a merge patch takes the list as a whole.
    let known = found.pointer("/status/conditions").and_then(Value::as_array);
    let others = known
        .into_iter()
        .flatten()
        .filter(|other| object::text(other, "/type") != "Ready");
    let conditions: Vec<Value> = others.cloned().chain([ready(status, world.time.wall())]).collect();
    let body = json!({ "status": { "conditions": conditions } });
    world.order(
        Actor::NodeController,
        "PATCH",
        &format!("/api/v1/nodes/{node}/status"),
        &body,
    );
}

fn node(vm: &Vm, now: Timestamp) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": vm.node_name(), "labels": { "kubernetes.io/hostname": vm.node_name() } },
        "spec": { "providerID": vm.provider_id() },
        "status": { "conditions": [ready("True", now)] },
    })
}

fn ready(status: &str, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({ "type": "Ready", "status": status, "reason": "Sim", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now })
}

/// How often the operator and the token cleaner look.
const ROUNDS: Duration = Duration::from_secs(60);

/// Does by hand what the manager leaves to people: a Machine that failed and belongs to no set is deleted, and one that is unhealthy
/// with most others. Also plays kube-controller-manager's token cleaner.
pub async fn operator(world: Arc<World>, debts: Arc<Debts>) {
    loop {
        tokio::time::sleep(ROUNDS).await;
        let tokens = expired_tokens(&world);
        for name in tokens {
            let path = format!("/api/v1/namespaces/kube-system/secrets/{name}");
            world.order(Actor::Collector, "DELETE", &path, &Value::Null);
        }
        if !world.enter().is_quiet {
            continue;
        }
        debts.settle(&world).await;
        for name in lost_machines(&world) {
            world.tell(What::UserAction {
                text: format!("deletes {name}, which nobody else mends"),
            });
            let path = format!("/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines/{name}");
            world.order(Actor::Human, "DELETE", &path, &Value::Null);
        }
    }
}

fn expired_tokens(world: &World) -> Vec<String> {
    let now = world.time.wall();
    let is_expired = |secret: &Value| expiration(secret).is_some_and(|expiration| expiration < now);
    world.look(|truth| {
        let tokens = truth
            .all("secrets")
            .filter(|secret| object::name(secret).starts_with("bootstrap-token-"));
        tokens
            .filter(|secret| is_expired(secret))
            .map(|secret| object::name(&secret).to_owned())
            .collect()
    })
}

/// Machines that the manager leaves to people: bad ones that nobody owns, and unhealthy ones that it keeps because most are unhealthy,
/// as the condition of their set says.
fn lost_machines(world: &World) -> Vec<String> {
    let now = world.time.wall();
    world.look(|truth| {
        let vms = truth.vms();
        let held: Vec<String> = truth
            .all("machinesets")
            .filter(|set| is_held(set))
            .map(|set| object::uid(&set).to_owned())
            .collect();
        let is_lost = |machine: &Value| {
            let phase = object::text(machine, "/status/currentStatus/phase");
            let owner = object::text(machine, "/metadata/ownerReferences/0/uid");
            let (uid, provider_id) = (object::uid(machine), object::text(machine, "/spec/providerID"));
            let runs = vms
                .iter()
                .any(|vm| vm.owner.uid == uid && vm.phase(now) == Phase::Running);
            let node = truth
                .all("nodes")
                .find(|node| object::text(node, "/spec/providerID") == provider_id);
            let is_ready = node.is_some_and(|node| millwright_oracles::object::is_true(&node, "Ready"));
            let is_left = owner.is_empty() || held.iter().any(|set| set == owner);
            (phase == "Failed" && owner.is_empty()) || (phase == "Unknown" && is_left && !(runs && is_ready))
        };
        let lost = truth
            .all("machines")
            .filter(|machine| !object::is_deleting(machine) && is_lost(machine));
        lost.map(|machine| object::name(&machine).to_owned()).collect()
    })
}

/// Whether a set says that it replaces no unhealthy machines now.
fn is_held(set: &Value) -> bool {
    let conditions = set.pointer("/status/machineSetCondition").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| {
        object::text(condition, "/type") == keys::CONDITION_REPLACEMENTS_HELD
            && object::text(condition, "/status") == "True"
    })
}

/// kube-controller-manager's garbage collector, which is never in a hurry.
pub async fn collector(world: Arc<World>) {
    let mut bell = world.bell();
    let mut seen = 0;
    loop {
        bell.catch_up();
        let (is_due, version) = world.look(|truth| (truth.api.may_be_due_since(seen), truth.api.version()));
        seen = version;
        if is_due {
            world.delay("collector", &[50, 5, 400, 3000]).await;
            world.collect();
            seen = world.look(|truth| truth.api.version());
        }
        bell.changed().await;
    }
}
