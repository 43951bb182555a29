//! The limit of replacements: where many machines are unhealthy at once, the cause is not theirs, and replacing them mends nothing.
//!
//! Counts; `set::repair` decides about single Machines. A Machine whose VM is proven gone, or announced to go, is not counted: nothing
//! that is kept would recover. A Machine whose driver reports that its VM does not run is counted before a second report confirms it.
//! MS-9; pains 35–37, 41; S6. The default is that of the node lifecycle controller of Kubernetes; Cluster
//! API calls such a limit `maxUnhealthy`.

use std::fmt;
use std::sync::Arc;

use crate::api::lenient::{IntOrPercent, Rounding};
use crate::api::{Machine, MachineSet, meta};
use crate::kin;
use crate::kinds::{Health, NodeBy, OwnedBy, in_zone};
use crate::ledger::Calls;
use crate::machine::judgement::is_ended;
use crate::settings::Settings;
use crate::world::World;

/// A share of unhealthy ones is nobody's common cause while there are no more than these.
const FEW: usize = 2;

/// How many of some are unhealthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// So many.
    pub ill: usize,
    /// Of so many that have joined.
    pub all: usize,
}

/// Why unhealthy machines are not replaced now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tripped {
    /// Too many machines of the deployment, or of the set that has none, are unhealthy.
    Group(Tally, IntOrPercent),
    /// Too many machines of the namespace are unhealthy.
    Namespace(Tally, IntOrPercent),
    /// Too many nodes of one zone are not ready.
    Zone(String, Tally, IntOrPercent),
}

impl fmt::Display for Tripped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(Tally { ill, all }, limit) => {
                write!(
                    f,
                    "{ill} of its owner's {all} machines are unhealthy (--unhealthy-threshold {limit})"
                )
            }
            Self::Namespace(Tally { ill, all }, limit) => {
                write!(
                    f,
                    "{ill} of {all} machines are unhealthy (--unhealthy-threshold {limit})"
                )
            }
            Self::Zone(name, Tally { ill, all }, limit) => {
                write!(
                    f,
                    "{ill} of {all} nodes of zone {name} are not ready (--unhealthy-zone-threshold {limit})"
                )
            }
        }
    }
}

impl Tally {
    /// Whether these are so many that nothing is replaced: a number means so many, a percentage at least three.
    pub fn reaches(self, limit: &IntOrPercent) -> bool {
        let all = i32::try_from(self.all).unwrap_or(i32::MAX);
        // What cannot be read was refused where the settings were read.
        let share = limit.resolve(all, Rounding::Up).unwrap_or(0);
        let least = match limit {
            IntOrPercent::Int(_) => 1,
            IntOrPercent::Text(_) => FEW + 1,
        };
        self.ill >= usize::try_from(share).unwrap_or(0).max(least)
    }

    fn add(&mut self, health: Option<Health>) {
        self.ill += usize::from(health == Some(Health::Ill));
        self.all += usize::from(health.is_some());
    }
}

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

/// The same of a Machine whose Node somebody has deleted: whoever deletes all Nodes at once, as a cloud controller manager of another
/// region does, is not to take all VMs along. Nobody unhealthy: its Node stays, or no set owns it, or it goes itself.
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

/// Whether too many Nodes of a zone are not ready.
pub fn tripped_zone(zone: &str, tally: Tally, settings: &Settings) -> Option<Tripped> {
    let limit = &settings.unhealthy_zone_threshold;
    tally
        .reaches(limit)
        .then(|| Tripped::Zone(zone.to_owned(), tally, limit.clone()))
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

    #[test]
    fn two_are_few_and_more_than_half_are_many_but_a_number_is_meant_as_it_is() {
        let reaches = |ill, all, limit: &IntOrPercent| Tally { ill, all }.reaches(limit);
        let share = IntOrPercent::Text("55%".to_owned());
        for (ill, all, many) in [
            (2, 2, false),
            (3, 5, true),
            (3, 6, false),
            (54, 100, false),
            (55, 100, true),
            (0, 0, false),
        ] {
            assert_eq!(reaches(ill, all, &share), many, "{ill} of {all}");
        }
        for (ill, number, many) in [(1, 2, false), (2, 2, true), (0, 0, false), (1, 0, true)] {
            assert_eq!(reaches(ill, 9, &IntOrPercent::Int(number)), many, "{ill} with {number}");
        }
    }
}
