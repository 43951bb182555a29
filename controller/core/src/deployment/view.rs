//! What a plan of one deployment reads, gathered from the world: it, its sets, their Machines.
//!
//! One place for the shell, which plans, and for everybody who explains a plan. Decides nothing.

use std::sync::Arc;

use super::observed::{Observed, PlanSet};
use super::{freeze, named};
use crate::api::machine_deployment::StrategyType;
use crate::api::{MachineDeployment, MachineSet, meta};
use crate::kin;
use crate::kinds::OwnedBy;
use crate::machine::in_place::marks::{Marks, Update};
use crate::machine::node;
use crate::set::{self, Asked, MachineView};

/// Makes a plan of a deployment, or whatever looks at the same. `set_exists`: whether any set bears a name.
pub fn look<T>(
    asked: &Asked<'_>,
    deployment: &MachineDeployment,
    set_exists: &dyn Fn(&str) -> bool,
    plan_set: PlanSet,
    look: impl FnOnce(&Observed<'_>) -> T,
) -> T {
    let world = asked.world;
    let uid = meta::identity(&deployment.metadata).1;
    let owned = world.sets.children(&deployment.metadata);
    let orphans = world.sets.find(OwnedBy::Controller, "");
    let owned = owned.map(|set| (set, machines(asked, deployment, set)));
    // Of a set that nobody controls nothing but itself is asked.
    let sets: Vec<(&Arc<MachineSet>, Vec<MachineView<'_>>)> =
        owned.chain(orphans.map(|set| (set, Vec::new()))).collect();
    let (is_frozen, unfreeze) = (freeze::is_frozen(deployment), freeze::is_asked(deployment));
    let sets = sets.iter().map(|(set, machines)| set::Observed {
        is_frozen,
        unfreeze,
        ..set::Observed::of(asked, set, machines)
    });
    look(&Observed {
        deployment,
        sets: &sets.collect::<Vec<set::Observed<'_>>>(),
        exists: set_exists,
        notes: world.ledger.notes(&uid),
        refusals: &world.ledger.refusals,
        sight: asked.sight,
        has_target: asked.settings.has_target,
        replacements: asked.settings.replacements_of(deployment.spec.replicas),
        plan_set,
    })
}

/// The Machines of a set, with what the deployment knows of them.
fn machines<'a>(asked: &Asked<'a>, deployment: &MachineDeployment, set: &Arc<MachineSet>) -> Vec<MachineView<'a>> {
    let world = asked.world;
    let mut machines = set::view::machines(asked, set);
    named::tell(deployment, &mut machines);
    if deployment.strategy() == Some(StrategyType::InPlaceUpdate) {
        for view in &mut machines {
            view.update = kin::node_of(world, view).node.map(|found| Update {
                node: node::reference(found),
                version: found.metadata.resource_version.clone().unwrap_or_default(),
                marks: Marks::of(found),
            });
        }
    }
    machines
}
