//! Which Node is which Machine's, where the two do not say it themselves. Looks; changes nothing.

use k8s_openapi::api::core::v1::Node;

use crate::api::{Machine, meta};
use crate::ids::Name;
use crate::kinds::{NodeBy, OwnedBy};
use crate::machine::node;
use crate::world::World;

/// The Node of a Machine: by the VM's id, else by the name that the VM registers with.
pub fn node_of<'a>(world: &'a World, machine: &Machine) -> Option<&'a Node> {
    let by_id = machine
        .provider_id()
        .and_then(|id| world.nodes.find(NodeBy::ProviderId, id.as_str()).next());
    let by_name = || {
        machine
            .node_label()
            .and_then(|node| world.nodes.get(&Name::new(node.as_str())))
    };
    by_id.or_else(by_name).map(AsRef::as_ref)
}

/// Whether a Node goes with a Machine whose VM is gone: its own; or, for a Machine that never learned anything of its VM, one
/// that can only be that VM's and that no other Machine claims.
pub fn goes_with(world: &World, machine: &Machine, node: &Node) -> bool {
    node::belongs(node, machine) || (node::may_be_lost(node, machine) && !is_claimed(world, node))
}

/// Whether any Machine knows the Node as its own.
fn is_claimed(world: &World, node: &Node) -> bool {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    let by_id = id.filter(|id| !id.is_empty());
    let is_claimed_by_id = by_id.is_some_and(|id| world.machines.find(OwnedBy::ProviderId, id).next().is_some());
    let name = meta::name(&node.metadata);
    is_claimed_by_id || world.machines.find(OwnedBy::Node, name).next().is_some()
}
