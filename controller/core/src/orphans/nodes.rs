//! Nodes that are left of VMs which are gone, with no Machine to remove them.
//!
//! The same protocol as for VMs. A Node is removed only if
//!
//! - a complete listing of this term showed its VM, by the id, with the tags of this cluster and namespace; nobody has asked to leave it alone;
//! - it is not ready, and as old as an orphan must be: no kubelet is a witness of its VM;
//! - no Machine of the name in these tags is known, none claims the Node or its VM, and the API server itself has none of that name;
//! - of every inventory the last complete listing lacks its VM, at two looks that are apart; while one inventory cannot be listed, no Node goes;
//! - from before the first look on, without a gap, this process has led and the watches have shown all Machines and Nodes;
//! - no breaker is open.
//!
//! A Node that somebody deletes needs the first, third and fifth of these alone, whether its VM is there or not: it only loses our finalizer.
//!
//! The marks of Nodes do not count: other managers of the same cluster write them, too. So a Node whose VM went before this term began is left.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::APART;
use crate::api::{Machine, keys, meta};
use crate::ids::{Name, NodeRef, ProviderId, Uid};
use crate::kinds::OwnedBy;
use crate::machine::node;
use crate::replacement_limit::tally;
use crate::settings::Settings;
use crate::sight::{Judging, Sight, later};
use crate::world::World;

/// Two looks showed the Node without Machine and VM. Not `Clone`.
#[derive(Debug, PartialEq, Eq)]
pub struct Evidence {
    node: NodeRef,
    id: ProviderId,
    machine: Name,
}

impl Evidence {
    /// The Node.
    pub fn node(&self) -> &NodeRef {
        &self.node
    }

    /// The Machine that must be read live.
    pub fn machine(&self) -> &Name {
        &self.machine
    }

    /// What the API servers themselves have just said. Gives the Node that may be removed.
    pub fn confirm(self, machine: Option<&Machine>, live: &Node) -> Option<NodeRef> {
        let is_same = node::reference(live) == self.node;
        let seen = BTreeMap::from([(self.id, self.machine)]);
        let is_left = left(live, &seen).is_some();
        (machine.is_none() && is_same && is_left).then_some(self.node)
    }
}

/// What a look comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Nodes to remove, after a live read.
    pub removals: Vec<Evidence>,
    /// Nodes that were seen so, and since when.
    suspects: BTreeMap<Uid, Timestamp>,
}

/// A Node that may be a leftover by what it says itself.
struct Left {
    machine: Name,
    id: ProviderId,
}

/// `seen` are VMs that were ours by their tags: what the Node itself bears, another manager's may bear, too.
fn left(node: &Node, seen: &BTreeMap<ProviderId, Name>) -> Option<Left> {
    if node::is_unmanaged(node) || (node::is_ready(node) && !is_held(node)) {
        return None;
    }
    let id = ProviderId::non_empty(node::provider_id(node))?;
    let machine = seen.get(&id).cloned()?;
    Some(Left { machine, id })
}

/// Whether somebody has deleted the Node, and our finalizer holds it.
fn is_held(node: &Node) -> bool {
    meta::is_deleting(&node.metadata) && meta::has_finalizer(&node.metadata, keys::NODE_FINALIZER)
}

/// Decides which Nodes are removed.
pub fn plan(world: &World, sight: &Sight, settings: &Settings, now: Timestamp) -> Plan {
    let inventories = &world.ledger.inventories;
    let (Some(since), Some(listed)) = (sight.since(Judging::Rollout), inventories.all_seen()) else {
        return Plan::default();
    };
    let mut plan = Plan::default();
    for node in world.nodes.iter() {
        let is_lost = |left: &Left| !is_owned(world, node, left) && (is_held(node) || !inventories.shows(&left.id));
        let Some(left) = left(node, &inventories.seen).filter(is_lost) else {
            continue;
        };
        let reference = node::reference(node);
        let known = inventories.nodes.get(&reference.uid).copied();
        let first = known.filter(|first| *first >= since).unwrap_or(now);
        plan.suspects.insert(reference.uid.clone(), first);
        let created = meta::created(&node.metadata).unwrap_or(Timestamp::MAX);
        let is_old = later(created, settings.orphan_min_age) <= listed;
        let is_seen_twice = listed >= later(first, APART.min(settings.orphan_period));
        let zone = crate::kinds::zone(node);
        let is_due = || is_old && is_seen_twice && tally::tripped(world, zone, settings).is_none();
        if is_held(node) || is_due() {
            plan.removals.push(Evidence {
                node: reference,
                id: left.id,
                machine: left.machine,
            });
        }
    }
    plan
}

/// Remembers what a look saw.
pub fn note(world: &mut World, plan: &mut Plan) {
    world.ledger.inventories.nodes = std::mem::take(&mut plan.suspects);
}

fn is_owned(world: &World, node: &Node, left: &Left) -> bool {
    let machines = &world.machines;
    let by_id = machines.find(OwnedBy::ProviderId, left.id.as_str()).next();
    let by_node = machines.find(OwnedBy::Node, meta::name(&node.metadata)).next();
    let will_be_removed = |machine: &Machine| meta::name(&machine.metadata) == left.machine.as_str();
    machines.get(&left.machine).is_some()
        || by_id.is_some()
        || by_node.is_some()
        || world.ledger.unanswered.contains_key(&left.machine)
        || world.ledger.leftovers.values().any(|machine| will_be_removed(machine))
}
