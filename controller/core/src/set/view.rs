//! What a plan of one set reads, gathered from the world.
//!
//! One place for the shell, which plans, and for everybody who explains a plan. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::observed::{Allowance, Observed};
use super::repair::{Repair, Surroundings};
use crate::api::{Machine, MachineSet, Phase, meta};
use crate::class::Readiness;
use crate::ids::{Name, Uid};
use crate::kin;
use crate::kinds::OwnedBy;
use crate::ledger::{Ledger, OwnerNotes};
use crate::machine::in_place::marks::{Marks, Update};
use crate::machine::node;
use crate::machine::preserve::request::{self, Value};
use crate::settings::Settings;
use crate::sight::Sight;
use crate::world::World;

/// A set with its Machines, as they are known now.
#[derive(Clone, Debug)]
pub struct View {
    /// The set.
    pub set: Arc<MachineSet>,
    /// Machines that it controls, and Machines that nobody controls.
    pub machines: Vec<Arc<Machine>>,
    refusal: Option<String>,
    class_unchecked: bool,
    named: BTreeSet<Uid>,
    is_frozen: bool,
    unfreeze: bool,
    surroundings: Surroundings,
    requests: BTreeMap<Uid, Value>,
    updates: BTreeMap<Uid, Update>,
}

impl View {
    /// Gathers a set. `can_check` says whether the driver of a class is there to check it: while it is away, Machines are made and
    /// say so.
    pub fn of(world: &World, set: &Arc<MachineSet>, can_check: &dyn Fn(&Name) -> bool) -> Self {
        let uid = meta::identity(&set.metadata).1;
        let owned = world.machines.find(OwnedBy::Controller, uid.as_str());
        let orphans = world.machines.find(OwnedBy::Controller, "");
        let class = set.spec.template.class().and_then(|class| class.name).map(Name::new);
        let readiness = class.as_ref().map(|class| world.ledger.readiness(class));
        let refusal = match readiness {
            Some(Readiness::Faulty(fault)) if fault.refuses_machines() => Some(fault.to_string()),
            Some(Readiness::Faulty(_) | Readiness::Unchecked | Readiness::Ready(_)) | None => None,
        };
        let class_unchecked = readiness == Some(&Readiness::Unchecked) && class.as_ref().is_some_and(can_check);
        let machines: Vec<Arc<Machine>> = owned.chain(orphans).cloned().collect();
        let surroundings = Surroundings::of(world, set, &machines);
        let failed = machines.iter().filter(|machine| *machine.phase() == Phase::Failed);
        let requested = |machine: &Arc<Machine>| request::request(machine, kin::node_of(world, machine).node).value;
        let requests = failed.filter_map(|machine| Some((machine.uid()?, requested(machine)?)));
        let requests = requests.collect();
        Self {
            set: Arc::clone(set),
            machines,
            refusal,
            class_unchecked,
            named: BTreeSet::new(),
            is_frozen: false,
            unfreeze: false,
            surroundings,
            requests,
            updates: BTreeMap::new(),
        }
    }

    /// A set of which nothing but itself is asked.
    pub(crate) fn bare(set: &Arc<MachineSet>) -> Self {
        Self {
            set: Arc::clone(set),
            machines: Vec::new(),
            refusal: None,
            class_unchecked: false,
            named: BTreeSet::new(),
            is_frozen: false,
            unfreeze: false,
            surroundings: Surroundings::default(),
            requests: BTreeMap::new(),
            updates: BTreeMap::new(),
        }
    }

    /// The same set, whose deployment may be frozen, and on which somebody may have asked for the end of a freeze.
    pub(crate) fn under(mut self, is_frozen: bool, unfreeze: bool) -> Self {
        self.is_frozen = is_frozen;
        self.unfreeze = unfreeze;
        self
    }

    /// The same set, of which the autoscaler named these Machines as victims.
    pub(crate) fn naming(mut self, named: BTreeSet<Uid>) -> Self {
        self.named = named;
        self
    }

    /// The same set, whose Machines its deployment updates in place.
    pub(crate) fn updating(mut self, world: &World) -> Self {
        let update = |machine: &Arc<Machine>| {
            let found = kin::node_of(world, machine).node?;
            let update = Update {
                node: node::reference(found),
                version: found.metadata.resource_version.clone().unwrap_or_default(),
                marks: Marks::of(found),
            };
            Some((machine.uid()?, update))
        };
        self.updates = self.machines.iter().filter_map(update).collect();
        self
    }

    /// What a plan may read. `exists` says whether any Machine bears a name, `sight` since when Nodes are seen.
    pub fn seen<'a>(
        &'a self,
        ledger: &'a Ledger,
        exists: &'a dyn Fn(&str) -> bool,
        sight: Sight,
        settings: &'a Settings,
    ) -> Observed<'a> {
        let uid = meta::identity(&self.set.metadata).1;
        Observed {
            set: &self.set,
            machines: &self.machines,
            exists,
            refusal: self.refusal.as_deref(),
            class_unchecked: self.class_unchecked,
            notes: ledger.owners.get(&uid).unwrap_or(OwnerNotes::NONE),
            refusals: &ledger.refusals,
            condemned: &ledger.condemned,
            unanswered: &ledger.unanswered,
            named: &self.named,
            requests: &self.requests,
            updates: &self.updates,
            allowance: Allowance::all(settings.replacements_of(self.set.spec.replicas)),
            is_frozen: self.is_frozen,
            unfreeze: self.unfreeze,
            repair: Repair {
                sight,
                settings,
                vms: &ledger.calls,
                surroundings: &self.surroundings,
            },
        }
    }
}
