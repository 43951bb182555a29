//! What a plan of one deployment reads, gathered from the world: it, its sets, their Machines.
//!
//! One place for the shell, which plans, and for everybody who explains a plan. Decides nothing.

use std::sync::Arc;

use super::observed::{Observed, PlanSet};
use super::{freeze, named};
use crate::api::machine_deployment::StrategyType;
use crate::api::{Machine, MachineDeployment, MachineSet, meta};
use crate::ids::Name;
use crate::kinds::OwnedBy;
use crate::ledger::{Ledger, OwnerNotes};
use crate::set;
use crate::settings::Settings;
use crate::sight::Sight;
use crate::world::World;

/// A deployment with its sets and their Machines, as they are known now.
#[derive(Clone, Debug)]
pub struct View {
    /// The deployment.
    pub deployment: Arc<MachineDeployment>,
    sets: Vec<set::View>,
}

/// What a plan asks of the world while it is made.
pub struct Asked<'a> {
    /// What this process alone knows.
    pub ledger: &'a Ledger,
    /// Whether any Machine bears a name.
    pub machine_exists: &'a dyn Fn(&str) -> bool,
    /// Whether any set bears a name.
    pub set_exists: &'a dyn Fn(&str) -> bool,
    /// Since when this process leads and sees Machines and Nodes.
    pub sight: Sight,
    /// The operator's wishes.
    pub settings: &'a Settings,
    /// Who decides about sets.
    pub plan_set: PlanSet,
}

impl View {
    /// Gathers a deployment. `can_check`: as for [`set::View::of`].
    pub fn of(world: &World, deployment: &Arc<MachineDeployment>, can_check: &dyn Fn(&Name) -> bool) -> Self {
        let uid = meta::identity(&deployment.metadata).1;
        let owned = world.sets.find(OwnedBy::Controller, uid.as_str());
        let orphans = world.sets.find(OwnedBy::Controller, "");
        let is_frozen = freeze::is_frozen(deployment);
        let unfreeze = freeze::is_asked(deployment);
        let updates_in_place = deployment.strategy() == Some(StrategyType::InPlaceUpdate);
        let gather = |set: &Arc<MachineSet>| {
            let view = set::View::of(world, set, can_check);
            let own = |machine: &&Arc<Machine>| crate::owner::controls(&set.metadata, &machine.metadata);
            let machines: Vec<Arc<Machine>> = view.machines.iter().filter(own).cloned().collect();
            let named = named::named(deployment, &machines);
            let view = view.naming(named).under(is_frozen, unfreeze);
            match updates_in_place {
                true => view.updating(world),
                false => view,
            }
        };
        let bare = |set: &Arc<MachineSet>| set::View::bare(set);
        Self {
            deployment: Arc::clone(deployment),
            sets: owned.map(gather).chain(orphans.map(bare)).collect(),
        }
    }

    /// Makes a plan, or whatever looks at the same.
    pub fn look<T>(&self, asked: &Asked<'_>, look: impl FnOnce(&Observed<'_>) -> T) -> T {
        let sets: Vec<set::Observed<'_>> = self
            .sets
            .iter()
            .map(|view| view.seen(asked.ledger, asked.machine_exists, asked.sight, asked.settings))
            .collect();
        let uid = meta::identity(&self.deployment.metadata).1;
        look(&Observed {
            deployment: &self.deployment,
            sets: &sets,
            exists: asked.set_exists,
            notes: asked.ledger.owners.get(&uid).unwrap_or(OwnerNotes::NONE),
            sight: asked.sight,
            has_target: asked.settings.has_target,
            replacements: asked.settings.replacements_of(self.deployment.spec.replicas),
            plan_set: asked.plan_set,
        })
    }

    /// A set of the deployment.
    pub fn set(&self, name: &Name) -> Option<&Arc<MachineSet>> {
        let mut sets = self.sets.iter().map(|view| &view.set);
        sets.find(|set| meta::name(&set.metadata) == name.as_str())
    }
}
