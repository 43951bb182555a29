//! The breaker of replacements: where many machines are unhealthy at once, the cause is not theirs, and replacing them mends nothing.
//!
//! Source: `user-pains.md` 35–37, 41; S6 of `reliability.md`. The threshold is that of the node lifecycle controller of Kubernetes.
//! Counts come from indexes, so that asking costs the same whatever the number of Machines is. Decides nothing about single Machines.

use std::fmt;

use crate::api::Machine;
use crate::kin;
use crate::kinds::{Health, NodeBy, OwnedBy};
use crate::world::World;

/// So many unhealthy ones are nobody's common cause yet.
const FEW: usize = 2;
/// Of a hundred, so many are.
const PERCENT: usize = 55;

/// Why nothing is replaced now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tripped {
    /// Most machines are unhealthy.
    Cluster {
        /// So many.
        ill: usize,
        /// Of so many that have joined.
        all: usize,
    },
    /// Most nodes of one zone are not ready.
    Zone {
        /// The zone, by the Node's label.
        name: String,
        /// So many.
        ill: usize,
        /// Of so many.
        all: usize,
    },
}

impl fmt::Display for Tripped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { ill, all } => write!(f, "{ill} of {all} machines are unhealthy"),
            Self::Zone { name, ill, all } => write!(f, "{ill} of {all} nodes of zone {name} are not ready"),
        }
    }
}

/// Whether a Machine may not be given up for being unhealthy, because too many others are.
pub fn tripped(world: &World, machine: &Machine) -> Option<Tripped> {
    of_zone(world, kin::node_of(world, machine).node.and_then(crate::kinds::zone))
}

/// Whether too many machines of the cluster, or nodes of a zone, are unhealthy.
pub fn of_zone(world: &World, zone: Option<&str>) -> Option<Tripped> {
    let machines = |health| world.machines.count(OwnedBy::Health, Health::text(health));
    let (ill, well) = (machines(Health::Ill), machines(Health::Well));
    if is_common(ill, ill + well) {
        return Some(Tripped::Cluster { ill, all: ill + well });
    }
    let zone = zone?;
    let nodes = |health| world.nodes.count(NodeBy::Zone, &crate::kinds::in_zone(zone, health));
    let (ill, well) = (nodes(Health::Ill), nodes(Health::Well));
    is_common(ill, ill + well).then(|| Tripped::Zone {
        name: zone.to_owned(),
        ill,
        all: ill + well,
    })
}

fn is_common(ill: usize, all: usize) -> bool {
    ill > FEW && ill.saturating_mul(100) >= all.saturating_mul(PERCENT)
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
        let told = of_zone(&world, Some("a")).map(|tripped| tripped.to_string());
        assert_eq!(told.as_deref(), Some("3 of 5 nodes of zone a are not ready"));
        assert_eq!(of_zone(&world, Some("b")), None);
        assert_eq!(of_zone(&world, None), None);
    }

    #[test]
    fn two_are_few_and_more_than_half_are_many() {
        assert!(!is_common(2, 2));
        assert!(is_common(3, 5));
        assert!(!is_common(3, 6));
        assert!(!is_common(54, 100));
        assert!(is_common(55, 100));
        assert!(!is_common(0, 0));
    }
}
