//! Whether all is as the human wants it: judged from objects and VMs, written apart from the planners.

use std::collections::BTreeSet;

use millwright_sandbox::object;
use serde_json::Value;

use crate::event::Truth;

/// Exactly the wanted machines, each Running with its own VM and node; no other VM, node or token; sets and deployments that
/// say so. What is otherwise is told.
pub fn settled(truth: &Truth<'_>) -> Result<(), String> {
    for plural in ["machinedeployments", "machinesets", "machines"] {
        if let Some(going) = truth.ours(plural).find(|object| object::is_deleting(object)) {
            return Err(format!("{plural} {} is still going", object::name(going)));
        }
    }
    let deployments: Vec<&Value> = truth.ours("machinedeployments").map(|object| &**object).collect();
    let sets: Vec<&Value> = truth.ours("machinesets").map(|object| &**object).collect();
    for deployment in &deployments {
        carried_out(deployment)?;
        let owned = sets.iter().filter(|set| is_of(set, deployment));
        let sum: u64 = owned.map(|set| number(set, "/spec/replicas")).sum();
        if sum != number(deployment, "/spec/replicas") {
            return Err(format!(
                "the sets of {} are for {sum} machines",
                object::name(deployment)
            ));
        }
    }
    let machines: Vec<&Value> = truth.ours("machines").map(|object| &**object).collect();
    for set in &sets {
        carried_out(set)?;
        let owner = owner(set);
        if owner.is_none() && is_made_by_deployment(set) {
            return Err(format!("set {} has lost its deployment", object::name(set)));
        }
        let owned = machines.iter().filter(|machine| is_of(machine, set)).count() as u64;
        if owned != number(set, "/spec/replicas") {
            return Err(format!("set {} has {owned} machines", object::name(set)));
        }
    }
    for machine in &machines {
        let phase = object::text(machine, "/status/currentStatus/phase");
        if phase != "Running" {
            let operation = object::text(machine, "/status/lastOperation/description");
            return Err(format!("{} is {phase:?}: {operation}", object::name(machine)));
        }
        if let Some(owner) = owner(machine)
            && !sets.iter().any(|set| object::uid(set) == owner)
        {
            return Err(format!("{} is of a set that is gone", object::name(machine)));
        }
    }
    same(truth, &machines)
}

/// The VMs, nodes and tokens are those of the machines.
fn same(truth: &Truth<'_>, machines: &[&Value]) -> Result<(), String> {
    let wanted: BTreeSet<String> = machines
        .iter()
        .map(|machine| format!("{} {}", object::uid(machine), object::text(machine, "/spec/providerID")))
        .collect();
    let vms = truth.vms();
    let there: BTreeSet<String> = vms
        .iter()
        .map(|vm| format!("{} {}", vm.owner.uid, vm.provider_id()))
        .collect();
    if wanted != there || vms.len() != machines.len() {
        return Err(format!("machines {wanted:?}, VMs {there:?}"));
    }
    let by_machines: BTreeSet<&str> = machines
        .iter()
        .map(|machine| object::text(machine, "/spec/providerID"))
        .collect();
    let nodes: Vec<&str> = truth
        .core("nodes")
        .map(|node| object::text(node, "/spec/providerID"))
        .collect();
    if by_machines != nodes.iter().copied().collect() || nodes.len() != machines.len() {
        return Err(format!("machines {by_machines:?}, nodes {nodes:?}"));
    }
    let tokens = truth
        .core("secrets")
        .filter(|secret| object::name(secret).starts_with("bootstrap-token-"));
    match tokens.count() {
        0 => Ok(()),
        count => Err(format!("{count} bootstrap tokens are left")),
    }
}

/// The set or deployment was looked at since it changed, and counts what is wanted.
fn carried_out(object: &Value) -> Result<(), String> {
    let (generation, seen) = (
        number(object, "/metadata/generation"),
        number(object, "/status/observedGeneration"),
    );
    let wanted = number(object, "/spec/replicas");
    let counts =
        ["/status/replicas", "/status/readyReplicas", "/status/availableReplicas"].map(|at| number(object, at));
    if generation == seen && counts == [wanted; 3] {
        return Ok(());
    }
    let name = object::name(object);
    Err(format!(
        "{name} is at generation {seen} of {generation} and counts {counts:?} of {wanted}"
    ))
}

fn number(object: &Value, pointer: &str) -> u64 {
    object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// The uid of the controller.
fn owner(object: &Value) -> Option<&str> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    Some(object::text(owner, "/uid"))
}

fn is_of(object: &Value, controller: &Value) -> bool {
    owner(object) == Some(object::uid(controller))
}

fn is_made_by_deployment(set: &Value) -> bool {
    !object::text(set, "/metadata/labels/machine-template-hash").is_empty()
}
