//! Everything that is known, in one place: the stores of all kinds and what this process alone knows.
//!
//! One owner per fact (GE-3): the stores hold what was observed, the ledger what this process alone knows. Holds; `intake` takes changes
//! and answers in.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::api::{Machine, MachineClass, MachineDeployment, MachineSet};
use crate::drain::Volumes;
use crate::ids::Name;
use crate::kinds::SecretMeta;
use crate::ledger::Ledger;
use crate::queue::Queue;
use crate::store::{Store, Stored, Touched};
use crate::wake::{Key, Wake};

/// Everything that is known.
#[derive(Debug, Default)]
pub struct World {
    /// Machines of the namespace.
    pub machines: Store<Machine>,
    /// MachineSets of the namespace.
    pub sets: Store<MachineSet>,
    /// MachineDeployments of the namespace.
    pub deployments: Store<MachineDeployment>,
    /// MachineClasses of the namespace.
    pub classes: Store<MachineClass>,
    /// Secrets of the namespace, without their data.
    pub secrets: Store<SecretMeta>,
    /// Nodes of the target cluster.
    pub nodes: Store<Node>,
    /// Where volumes are attached, while any Node is drained whose pods have some.
    pub volumes: Volumes,
    /// What this process alone knows.
    pub ledger: Ledger,
    /// What must be looked at, and when.
    pub queue: Queue<Key>,
}

/// A kind that the world stores.
pub trait Kind: Stored + Sized {
    /// The kind's store.
    fn store(world: &mut World) -> &mut Store<Self>;
    /// Who must look when an object of the kind was touched.
    fn wakes(world: &World, touched: &Touched<Self>) -> Vec<Wake>;
    /// Which classes are in doubt then: what was found out about them may hold no longer.
    fn doubts(_world: &World, _touched: &Touched<Self>) -> Vec<Name> {
        Vec::new()
    }
    /// The Machine, if one went away that was not ours to let go, and may have left something in the target cluster.
    fn vanished(_touched: &Touched<Self>) -> Option<Arc<Machine>> {
        None
    }
}
