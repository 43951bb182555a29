//! Which Node is which Machine's, where the two do not say it themselves. Looks; changes nothing.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::machine_deployment::StrategyType;
use crate::api::template::Scope;
use crate::api::{Machine, keys, meta};
use crate::ids::{Name, NodeName, ProviderId};
use crate::kinds::{NodeBy, OwnedBy};
use crate::machine::node;
use crate::machine::steer::Standing;
use crate::world::World;

/// The Node of a Machine, and who else claims it.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The Node, where the Machine has the best claim to it.
    pub node: Option<&'a Node>,
    /// The Machine that has a better one.
    pub rival: Option<&'a str>,
}

/// The Node of a Machine: by the VM's id, else by the name that the VM registers with. Of several Nodes with that id, as after a kubelet
/// came back under another name, one that is ready. Where several Machines bear the same id, as after a copy of a manifest, one of them has
/// the Node and the others have none (MC-11).
pub fn node_of<'a>(world: &'a World, machine: &Machine) -> Claim<'a> {
    let by_id = machine.provider_id().and_then(|id| {
        let nodes = world.nodes.find(NodeBy::ProviderId, id.as_str());
        nodes.min_by(|one, other| rank(one).cmp(&rank(other)))
    });
    let by_name = || {
        machine
            .node_label()
            .and_then(|node| world.nodes.get(&Name::new(node.as_str())))
    };
    let Some(node) = by_id.or_else(by_name).map(AsRef::as_ref) else {
        return Claim {
            node: None,
            rival: None,
        };
    };
    let rival = rival(world, machine, node);
    Claim {
        node: rival.is_none().then_some(node),
        rival,
    }
}

/// Which of several Nodes of a VM comes first.
fn rank(node: &Node) -> (bool, &str) {
    (!node::is_ready(node), meta::name(&node.metadata))
}

/// The Machine whose claim to the Node is better than this one's: the one that the Node's label names, else the oldest.
fn rival<'a>(world: &'a World, machine: &Machine, node: &Node) -> Option<&'a str> {
    let id = node::provider_id(node).filter(|id| world.machines.count(OwnedBy::ProviderId, id) > 1)?;
    let labelled = meta::label(&node.metadata, keys::MACHINE_NAME);
    let age = |claimant: &Machine| {
        let name = meta::name(&claimant.metadata).to_owned();
        (labelled != Some(name.as_str()), meta::created(&claimant.metadata), name)
    };
    let claimants = world.machines.find(OwnedBy::ProviderId, id);
    let best = claimants.min_by_key(|claimant| age(claimant))?;
    (best.metadata.uid != machine.metadata.uid).then(|| meta::name(&best.metadata))
}

/// The Machine whose claim to the VM of that id is better than this one's: one that bears the id already, of several the oldest. For
/// clusters without Nodes; where there are some, [`node_of`] tells.
pub fn twin<'a>(world: &'a World, machine: &Machine, id: &ProviderId) -> Option<&'a str> {
    let claimants = world.machines.find(OwnedBy::ProviderId, id.as_str());
    let best = claimants.min_by_key(|claimant| (meta::created(&claimant.metadata), meta::name(&claimant.metadata)))?;
    (best.metadata.uid != machine.metadata.uid).then(|| meta::name(&best.metadata))
}

/// The Nodes that go with a Machine whose VM is gone: the one of that name, and all that bear the VM's id.
pub fn nodes_of(world: &World, machine: &Machine, name: &NodeName) -> BTreeSet<NodeName> {
    let id = machine.provider_id();
    let id = id.as_ref().map_or("", |id| id.as_str());
    let by_id = world.nodes.find(NodeBy::ProviderId, id).filter(|_| !id.is_empty());
    let by_id = by_id.map(|node| node::name(node));
    by_id.chain([name.clone()]).collect()
}

/// Whether a Node goes with a Machine whose VM is gone: its own; or, for a Machine that never learned anything of its VM, one
/// that can only be that VM's and that no other Machine claims.
pub fn goes_with(world: &World, machine: &Machine, node: &Node) -> bool {
    let is_own = node::belongs(node, machine) && rival(world, machine, node).is_none();
    is_own || (node::may_be_lost(node, machine) && !is_claimed(world, node))
}

/// How a Machine stands in its deployment's rollout. Where an owner is named and not seen, nobody can tell: it may be about to be seen.
pub fn standing(world: &World, machine: &Machine) -> Standing {
    let without = |child: &ObjectMeta| match meta::controller_uid(child) {
        Some(_) => Standing::Aside,
        None => Standing::Free,
    };
    let Some(set) = world.sets.controller(&machine.metadata) else {
        return without(&machine.metadata);
    };
    let Some(deployment) = world.deployments.controller(&set.metadata) else {
        return without(&set.metadata);
    };
    let spec = &deployment.spec;
    if set.spec.template.semantically_equal(&spec.template, Scope::Rollout) {
        return Standing::Current;
    }
    match deployment.strategy() {
        Some(StrategyType::Recreate) => Standing::Free,
        Some(StrategyType::RollingUpdate | StrategyType::InPlaceUpdate) | None if spec.paused => Standing::Aside,
        Some(StrategyType::InPlaceUpdate) => Standing::InPlace,
        Some(StrategyType::RollingUpdate) | None => Standing::Old,
    }
}

/// Whether any Machine knows the Node as its own.
fn is_claimed(world: &World, node: &Node) -> bool {
    let is_claimed_by_id =
        node::provider_id(node).is_some_and(|id| world.machines.find(OwnedBy::ProviderId, id).next().is_some());
    let name = meta::name(&node.metadata);
    is_claimed_by_id || world.machines.find(OwnedBy::Node, name).next().is_some()
}
