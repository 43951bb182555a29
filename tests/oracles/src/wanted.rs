//! What the world should come to: a small reference of its own, from the objects' specs alone.
//!
//! Covers what exists so far: sizes of deployments and sets, and templates that are rolled out. Drain, health and orphans come with their
//! features.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::bounds::bounds;
use crate::object::{controller, is_deleting, is_token, name, number, phase, text, time, uid};
use crate::truth::{Truth, Vm};

/// Judges whether everything is as the specs say and nothing is going any more. Machines of `broken` classes need only be there.
///
/// # Errors
/// The first thing that is otherwise.
pub fn settled(truth: &dyn Truth, broken: &BTreeSet<String>) -> Result<(), String> {
    for kind in ["machinedeployments", "machinesets", "machines"] {
        if let Some(going) = truth.objects(kind).iter().find(|object| is_deleting(object)) {
            return Err(format!("{kind} {} is still going", name(going)));
        }
    }
    if let Some(kept) = truth
        .objects("machines")
        .iter()
        .find(|machine| time(machine, UNTIL).is_some())
    {
        return Err(format!(
            "machine {} is preserved until {}",
            name(kept),
            text(kept, UNTIL)
        ));
    }
    reached(truth, broken)
}

/// Judges whether everything is as the specs say. Machines of `broken` classes need only be there.
///
/// # Errors
/// The first thing that is otherwise.
pub fn reached(truth: &dyn Truth, broken: &BTreeSet<String>) -> Result<(), String> {
    let machines = truth.objects("machines");
    for deployment in truth.objects("machinedeployments").iter().filter(|it| !is_deleting(it)) {
        deployment_reached(truth, deployment, broken)?;
        rolled_out(truth, deployment, broken)?;
    }
    let sets = truth.objects("machinesets");
    for set in sets.iter().filter(|it| !is_deleting(it)) {
        set_reached(set, &machines, broken)?;
    }
    let (vms, nodes) = (truth.vms(), truth.objects("nodes"));
    for machine in machines.iter().filter(|it| !is_deleting(it)) {
        not_forsaken(machine, &sets)?;
        not_left_in_an_update(truth, machine, &sets, &nodes, broken)?;
        let_go(truth, machine, &nodes)?;
        if !is_broken(machine, broken) {
            machine_reached(machine, &vms, &nodes)?;
        }
    }
    cloud_matches(&machines, &vms)?;
    nodes_match(&nodes, &machines, &vms)?;
    no_token_left(truth, &machines, broken)
}

/// Of a Machine of which no deployment is held up, the Node is in use and bears nothing of an update in place.
fn not_left_in_an_update(
    truth: &dyn Truth,
    machine: &Value,
    sets: &[Arc<Value>],
    nodes: &[Arc<Value>],
    broken: &BTreeSet<String>,
) -> Result<(), String> {
    let set = sets.iter().find(|set| uid(set) == controller(machine));
    let deployments = truth.objects("machinedeployments");
    let owner = set.and_then(|set| deployments.iter().find(|owner| uid(owner) == controller(set)));
    let id = text(machine, "/spec/providerID");
    let own = nodes
        .iter()
        .find(|node| !id.is_empty() && text(node, "/spec/providerID") == id);
    let (Some(owner), Some(node)) = (owner, own) else {
        return Ok(());
    };
    // A cluster autoscaler leaves nodes cordoned that it chose and that stayed.
    let is_theirs = !text(node, "/metadata/annotations/cluster-autoscaler~1cordoned").is_empty();
    let is_cordoned = !is_theirs && node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let is_marked = labels.is_some_and(|labels| {
        let of_update = ["candidate-for-update", "selected-for-update", "update-result"];
        let mut marks = of_update.iter().map(|mark| format!("node.machine.sapcloud.io/{mark}"));
        marks.any(|mark| labels.contains_key(&mark))
    });
    match (is_marked || is_cordoned) && !is_held(owner, broken) && !is_deleting(owner) {
        true => Err(format!("node {} is left in its update in place", name(node))),
        false => Ok(()),
    }
}

/// Until when a Machine is preserved, and what is wished for it.
const UNTIL: &str = "/status/currentStatus/preserveExpiryTime";
const WISH: &str = "/metadata/annotations/node.machine.sapcloud.io~1preserve";

/// Nothing is left of a preservation that is over, and no mark of the set's on a Machine that has not failed.
fn let_go(truth: &dyn Truth, machine: &Value, nodes: &[Arc<Value>]) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("machine {} {what}", name(machine)));
    let until = time(machine, UNTIL);
    if until.is_some_and(|until| until <= truth.now()) {
        return wrong("is still told to be preserved, and its time is over");
    }
    if phase(machine) != "Failed" && text(machine, WISH) == "auto-preserved" {
        return wrong("has not failed, and bears the mark of one that is preserved unasked");
    }
    let id = text(machine, "/spec/providerID");
    let own = nodes
        .iter()
        .find(|node| !id.is_empty() && text(node, "/spec/providerID") == id);
    let taints = own.and_then(|node| node.pointer("/spec/taints")?.as_array());
    let mut taints = taints.into_iter().flatten();
    match until.is_none() && taints.any(|taint| text(taint, "/key") == "node.machine.sapcloud.io/preserved") {
        true => wrong("is not preserved, and its node is tainted as if it were"),
        false => Ok(()),
    }
}

/// Judges whether sets are served as far as their objects go: each has the Machines that it wants, and its status has seen its spec. What
/// must hold while drivers or the target cluster are away, or while one Machine takes no change. A Machine that its set no longer selects
/// counts until it is released, and only one that was in service is.
///
/// # Errors
/// The first thing that is otherwise.
pub fn served(truth: &dyn Truth) -> Result<(), String> {
    let machines = truth.objects("machines");
    for set in truth.objects("machinesets").iter().filter(|it| !is_deleting(it)) {
        let (wanted, count) = (number(set, "/spec/replicas"), own_machines(set, &machines));
        if count != wanted {
            return Err(format!("set {} wants {wanted} machines and has {count}", name(set)));
        }
        looked_at(set)?;
    }
    Ok(())
}

/// Judges whether each set that lacks Machines says so: its status has seen its spec, tells how many there are, and names the failure. What
/// must hold while the API server takes no new Machines.
///
/// # Errors
/// The first thing that is otherwise.
pub fn shortage_told(truth: &dyn Truth) -> Result<(), String> {
    let machines = truth.objects("machines");
    for set in truth.objects("machinesets").iter().filter(|it| !is_deleting(it)) {
        let count = own_machines(set, &machines);
        if count >= number(set, "/spec/replicas") {
            continue;
        }
        looked_at(set)?;
        let told = number(set, "/status/replicas");
        if told != count {
            return Err(format!("set {} has {count} machines and tells of {told}", name(set)));
        }
        let conditions = set.pointer("/status/machineSetCondition").and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        if !conditions.any(|it| text(it, "/type") == "ReplicaFailure" && text(it, "/status") == "True") {
            return Err(format!(
                "set {} lacks machines and has no condition ReplicaFailure",
                name(set)
            ));
        }
    }
    Ok(())
}

/// How many Machines that stay a set controls.
fn own_machines(set: &Value, machines: &[Arc<Value>]) -> i64 {
    let own = machines
        .iter()
        .filter(|machine| controller(machine) == uid(set) && !is_deleting(machine));
    i64::try_from(own.count()).unwrap_or(i64::MAX)
}

fn is_broken(machine: &Value, broken: &BTreeSet<String>) -> bool {
    broken.contains(text(machine, "/spec/class/name"))
}

fn deployment_reached(truth: &dyn Truth, deployment: &Value, broken: &BTreeSet<String>) -> Result<(), String> {
    let wanted = number(deployment, "/spec/replicas");
    let sets = truth.objects("machinesets");
    let own = sets
        .iter()
        .filter(|set| controller(set) == uid(deployment) && !is_deleting(set));
    let sizes: Vec<i64> = own.map(|set| number(set, "/spec/replicas")).collect();
    let sum = sizes.iter().sum::<i64>();
    let is_right = match is_held(deployment, broken) {
        // The surge of a rollout that does not go on stays; while it is paused no set is made.
        true => (wanted..=wanted + bounds(deployment).0).contains(&sum) || (is_paused(deployment) && sizes.is_empty()),
        false => sum == wanted,
    };
    if !is_right {
        return Err(format!(
            "deployment {} wants {wanted} machines, its sets {sizes:?}",
            name(deployment)
        ));
    }
    looked_at(deployment)?;
    let list = text(
        deployment,
        "/metadata/annotations/node.machine.sapcloud.io~1trigger-deletion-by-mcm",
    );
    if !list.is_empty() {
        return Err(format!(
            "deployment {} still has machines to go: {list}",
            name(deployment)
        ));
    }
    // How many of them are up is judged set by set, where broken classes are told apart.
    let told = number(deployment, "/status/replicas");
    match told == sum {
        true => Ok(()),
        false => Err(format!(
            "deployment {} has sets of {sum} machines and tells of {told}",
            name(deployment)
        )),
    }
}

const CLASS: &str = "/spec/template/spec/class/name";

/// Nothing moves between its sets to the end: it is paused, updated in place by hand, or of a class by which nothing comes up.
fn is_held(deployment: &Value, broken: &BTreeSet<String>) -> bool {
    is_paused(deployment)
        || text(deployment, "/spec/strategy/inPlaceUpdate/orchestrationType") == "Manual"
        || broken.contains(text(deployment, CLASS))
}

fn is_paused(deployment: &Value) -> bool {
    deployment.pointer("/spec/paused") == Some(&Value::Bool(true))
}

/// One set has all Machines: one with the deployment's template. A template that does not work, and a deployment that is paused, leave
/// what there is.
fn rolled_out(truth: &dyn Truth, deployment: &Value, broken: &BTreeSet<String>) -> Result<(), String> {
    if is_held(deployment, broken) {
        return Ok(());
    }
    let (sets, machines) = (truth.objects("machinesets"), truth.objects("machines"));
    let is_used = |set: &&Arc<Value>| number(set, "/spec/replicas") > 0 || own_machines(set, &machines) > 0;
    let own = sets
        .iter()
        .filter(|set| controller(set) == uid(deployment))
        .filter(is_used);
    let used: Vec<(&str, &str)> = own.map(|set| (name(set), text(set, CLASS))).collect();
    match used.as_slice() {
        [] => Ok(()),
        [(_, class)] if *class == text(deployment, CLASS) => Ok(()),
        others => Err(format!(
            "deployment {} is of class {}, and in use are {others:?}",
            name(deployment),
            text(deployment, CLASS)
        )),
    }
}

/// The status tells of the spec as it is now. Without this, the moment before anybody began is taken for rest.
fn looked_at(object: &Value) -> Result<(), String> {
    let (is, seen) = (
        number(object, "/metadata/generation"),
        number(object, "/status/observedGeneration"),
    );
    match is == seen {
        true => Ok(()),
        false => Err(format!("{} is at generation {is}, its status at {seen}", name(object))),
    }
}

fn set_reached(set: &Value, machines: &[Arc<Value>], broken: &BTreeSet<String>) -> Result<(), String> {
    let wanted = number(set, "/spec/replicas");
    let own = || {
        machines
            .iter()
            .filter(|machine| controller(machine) == uid(set) && !is_deleting(machine))
    };
    let count = i64::try_from(own().count()).unwrap_or(i64::MAX);
    if count != wanted {
        let phases: Vec<&str> = own().map(|machine| phase(machine)).collect();
        return Err(format!("set {} wants {wanted} machines and has {phases:?}", name(set)));
    }
    looked_at(set)?;
    let told = number(set, "/status/replicas");
    let ready = number(set, "/status/readyReplicas").min(number(set, "/status/availableReplicas"));
    let up = i64::try_from(own().filter(|machine| !is_broken(machine, broken)).count()).unwrap_or(i64::MAX);
    match told == wanted && ready >= up {
        true => Ok(()),
        false => Err(format!(
            "set {} has {wanted} machines, {up} of them up, and tells of {told}, {ready} ready and available",
            name(set)
        )),
    }
}

/// The set that owns a machine is there.
fn not_forsaken(machine: &Value, sets: &[Arc<Value>]) -> Result<(), String> {
    let owner = controller(machine);
    match owner.is_empty() || sets.iter().any(|set| uid(set) == owner) {
        true => Ok(()),
        false => Err(format!("machine {} is of a set that is gone", name(machine))),
    }
}

fn machine_reached(machine: &Value, vms: &[Vm], nodes: &[Arc<Value>]) -> Result<(), String> {
    if phase(machine) != "Running" {
        return Err(format!(
            "machine {} is {:?}: {}",
            name(machine),
            phase(machine),
            text(machine, "/status/lastOperation/description")
        ));
    }
    let id = text(machine, "/spec/providerID");
    match vms
        .iter()
        .any(|vm| vm.uid == uid(machine) && vm.provider_id == id && !vm.leaving)
    {
        true => {}
        false => return Err(format!("machine {} is Running without the VM {id:?}", name(machine))),
    }
    match nodes.iter().any(|node| text(node, "/spec/providerID") == id) {
        true => Ok(()),
        false => Err(format!("machine {} is Running without a node of {id:?}", name(machine))),
    }
}

/// Every VM belongs to a machine that is there.
fn cloud_matches(machines: &[Arc<Value>], vms: &[Vm]) -> Result<(), String> {
    let wanted: BTreeSet<&str> = machines.iter().map(|machine| uid(machine)).collect();
    match vms.iter().find(|vm| !wanted.contains(vm.uid.as_str())) {
        None => Ok(()),
        Some(vm) => Err(format!("VM {} of uid {} belongs to no machine", vm.id, vm.uid)),
    }
}

/// Every Node is of a VM that is there, and bears its machine's name.
fn nodes_match(nodes: &[Arc<Value>], machines: &[Arc<Value>], vms: &[Vm]) -> Result<(), String> {
    let named: BTreeMap<&str, &str> = machines
        .iter()
        .map(|machine| (text(machine, "/spec/providerID"), name(machine)))
        .filter(|(id, _)| !id.is_empty())
        .collect();
    for node in nodes {
        let id = text(node, "/spec/providerID");
        if !vms.iter().any(|vm| vm.provider_id == id) {
            return Err(format!("node {} is of the VM {id:?}, which is gone", name(node)));
        }
        let labelled = text(node, "/metadata/labels/node.gardener.cloud~1machine-name");
        if named.get(id).is_some_and(|machine| *machine != labelled) {
            return Err(format!(
                "node {} of {id} bears the machine name {labelled:?}",
                name(node)
            ));
        }
    }
    Ok(())
}

/// Tokens of machines that have joined, or are gone, are revoked.
fn no_token_left(truth: &dyn Truth, machines: &[Arc<Value>], broken: &BTreeSet<String>) -> Result<(), String> {
    let secrets = truth.objects("secrets");
    let tokens = secrets.iter().filter(|secret| is_token(secret)).count();
    let joining = machines.iter().filter(|machine| is_broken(machine, broken)).count();
    match tokens <= joining {
        true => Ok(()),
        false => Err(format!(
            "{tokens} bootstrap tokens are left for {joining} machines that have not joined"
        )),
    }
}
