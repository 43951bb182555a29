//! How many Machines and Nodes are unhealthy, counted from all that is known.
//!
//! Counts, and compares with the limits of `replacement_limit`; decides about no single Machine. A Machine whose VM is proven gone, or announced to
//! go, is not counted: nothing that is kept would recover. A Machine whose driver reports that its VM does not run is counted before a
//! second report confirms it. MS-9.

use std::sync::Arc;

use super::{Tally, Tripped, tripped_zone};
use crate::api::{Machine, MachineSet, meta};
use crate::kin;
use crate::kinds::{Health, NodeBy, OwnedBy, in_zone};
use crate::ledger::Calls;
use crate::machine::judgement::is_ended;
use crate::settings::Settings;
use crate::world::World;

/// The Machines of a set's deployment; of the set alone, where no deployment is seen that controls it.
fn group<'a>(world: &'a World, set: &'a Arc<MachineSet>) -> impl Iterator<Item = &'a Arc<Machine>> {
    let deployment = world.deployments.controller(&set.metadata);
    let siblings = deployment.into_iter().flat_map(|of| world.sets.children(&of.metadata));
    let alone = Some(set).filter(|_| deployment.is_none());
    let sets = siblings.chain(alone);
    sets.flat_map(|set| world.machines.children(&set.metadata))
}

/// How many Machines of a set's deployment, or of the set without one, are unhealthy.
pub fn of_group(world: &World, set: &Arc<MachineSet>, settings: &Settings) -> Tally {
    let mut tally = Tally::default();
    for machine in group(world, set) {
        tally.add(health(world, machine, settings));
    }
    tally
}

/// The unhealthy Machines of the group of a Machine whose Node was deleted. A component that deletes all Nodes at once, such as the cloud
/// controller manager of another region, must not make the manager delete all VMs. No Machine counts as unhealthy where the Node is not
/// deleted, no set owns the Machine, or the Machine itself is being deleted.
pub fn of_losers(world: &World, machine: &Machine, settings: &Settings) -> Tally {
    if meta::is_deleting(&machine.metadata) {
        return Tally::default();
    }
    let node = kin::node_of(world, machine).node;
    let set = world.sets.controller(&machine.metadata);
    let set = set.filter(|_| node.is_some_and(|node| meta::is_deleting(&node.metadata)));
    set.map_or_else(Tally::default, |set| of_group(world, set, settings))
}

fn health(world: &World, machine: &Machine, settings: &Settings) -> Option<Health> {
    let node = kin::node_of(world, machine).node;
    // One whose Node was deleted goes for that, and is not well meanwhile.
    if node.is_some_and(|node| meta::is_deleting(&node.metadata)) {
        return Some(Health::Ill);
    }
    let calls = machine.uid().and_then(|uid| world.ledger.calls.get(&uid));
    if meta::is_deleting(&machine.metadata) || is_ended(machine, node, calls, settings) {
        return None;
    }
    // Verdicts ripen one by one: each of many would be the only unhealthy one when its time has come.
    let is_doubted = calls.is_some_and(Calls::is_doubted);
    Health::of(machine).map(|health| if is_doubted { Health::Ill } else { health })
}

/// How many Nodes of a zone are not ready.
pub fn of_zone(world: &World, zone: &str) -> Tally {
    let nodes = |health| world.nodes.count(NodeBy::Zone, &in_zone(zone, health));
    let (ill, well) = (nodes(Health::Ill), nodes(Health::Well));
    Tally { ill, all: ill + well }
}

/// Whether too many Machines of the namespace, or Nodes of the zone, are unhealthy for anything to be removed.
pub fn tripped(world: &World, zone: Option<&str>, settings: &Settings) -> Option<Tripped> {
    let machines = |health| world.machines.count(OwnedBy::Health, Health::text(health));
    let (ill, well) = (machines(Health::Ill), machines(Health::Well));
    let tally = Tally { ill, all: ill + well };
    let limit = &settings.unhealthy_threshold;
    let namespace = tally.reaches(limit).then(|| Tripped::Namespace(tally, limit.clone()));
    namespace.or_else(|| zone.and_then(|zone| tripped_zone(zone, of_zone(world, zone), settings)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::change::Change;

    /// So many Nodes of a zone, and how many of them are ready.
    fn sees_zone(world: &mut World, zone: &str, all: usize, ready: usize) {
        for number in 0..all {
            let status = if number < ready { "True" } else { "Unknown" };
            let node = json!({
                "metadata": {"name": format!("{zone}-{number}"), "uid": format!("{zone}-{number}"), "resourceVersion": "1",
                    "labels": {"topology.kubernetes.io/zone": zone}},
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            });
            let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node).expect("a Node");
            world.observe(Change::Applied(node), Duration::ZERO);
        }
    }

    /// Rows: pains 37.
    #[test]
    fn a_zone_that_is_cut_off_keeps_its_machines_and_holds_back_no_other() {
        let mut world = World::default();
        sees_zone(&mut world, "a", 5, 2);
        sees_zone(&mut world, "b", 20, 18);
        let settings = Settings::new("test");
        let told = |zone| tripped(&world, zone, &settings).map(|tripped| tripped.to_string());
        assert_eq!(
            told(Some("a")).as_deref(),
            Some("3 of 5 nodes of zone a are not ready (--unhealthy-zone-threshold 55%)")
        );
        assert_eq!(told(Some("b")), None);
        assert_eq!(told(None), None);
    }
}
