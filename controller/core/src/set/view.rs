//! What a plan of one set reads, gathered from the world.
//!
//! One place for the shell, which plans, and for everybody who explains a plan. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::observed::{Allowance, MachineView, Observed};
use crate::api::{Machine, MachineSet, Phase, keys, meta};
use crate::class::Readiness;
use crate::ids::Name;
use crate::kin;
use crate::kinds::{self, NodeBy, OwnedBy};
use crate::machine::node;
use crate::machine::preserve::request;
use crate::replacement_limit::{Tally, tally};
use crate::settings::Settings;
use crate::sight::Sight;
use crate::world::World;

/// What a plan asks of the world while it is made.
pub struct Asked<'a> {
    /// All that is known.
    pub world: &'a World,
    /// Whether any Machine bears a name.
    pub machine_exists: &'a dyn Fn(&str) -> bool,
    /// Whether the driver of a class is there to check it: while it is away, Machines are made and say so.
    pub can_check: &'a dyn Fn(&Name) -> bool,
    /// Since when this process leads and sees Machines and Nodes.
    pub sight: Sight,
    /// The operator's wishes.
    pub settings: &'a Settings,
}

/// Makes a plan of a set, or whatever looks at the same.
pub fn look<T>(asked: &Asked<'_>, set: &Arc<MachineSet>, look: impl FnOnce(&Observed<'_>) -> T) -> T {
    look(&Observed::of(asked, set, &machines(asked, set)))
}

/// The Machines that a set controls, and those that nobody controls.
pub(crate) fn machines<'a>(asked: &Asked<'a>, set: &Arc<MachineSet>) -> Vec<MachineView<'a>> {
    let world = asked.world;
    let owned = world.machines.children(&set.metadata);
    let orphans = world.machines.find(OwnedBy::Controller, "");
    let ledger = &world.ledger;
    let known = owned.chain(orphans).map(|machine| {
        let uid = machine.metadata.uid.as_deref().unwrap_or_default();
        let requested = || request::request(machine, kin::node_of(world, machine).node).value;
        // What is asked of each of thousands of Machines in each plan is asked only where it matters.
        let is_ill = is_ill(machine.phase());
        MachineView {
            refusal: ledger.refusals.get(uid),
            deletion_sent: ledger.condemned.get(uid).copied(),
            request: (*machine.phase() == Phase::Failed).then(requested).flatten(),
            calls: (is_ill || *machine.phase() == Phase::Failed)
                .then(|| ledger.calls.get(uid))
                .flatten(),
            ..MachineView::new(machine)
        }
    });
    let mut machines: Vec<MachineView<'a>> = known.collect();
    look_around(asked, set, &mut machines);
    machines
}

fn is_ill(phase: &Phase) -> bool {
    matches!(phase, Phase::Unknown | Phase::InPlaceUpdateFailed)
}

/// Nodes that somebody has deleted, by the names under which their Machines know them. Mostly they are few, and looking for the Node of
/// each Machine would cost most of a plan.
struct DeletedNodes<'a> {
    ids: BTreeSet<&'a str>,
    names: BTreeSet<&'a str>,
}

impl<'a> DeletedNodes<'a> {
    fn of(world: &'a World) -> Self {
        let nodes = || world.nodes.find(NodeBy::Leaving, "");
        Self {
            ids: nodes().filter_map(|node| node::provider_id(node)).collect(),
            names: nodes().map(|node| meta::name(&node.metadata)).collect(),
        }
    }

    /// Whether one of them may be the Machine's.
    fn may_include_that_of(&self, machine: &Machine) -> bool {
        let has = |known: &BTreeSet<&str>, name: Option<&str>| name.is_some_and(|name| known.contains(name));
        has(&self.ids, machine.spec.provider_id.as_deref())
            || has(&self.names, meta::label(&machine.metadata, keys::NODE))
    }
}

/// What the world says of those that are unhealthy, and of those whose Node somebody has deleted.
fn look_around<'a>(asked: &Asked<'a>, set: &Arc<MachineSet>, machines: &mut [MachineView<'a>]) {
    let world = asked.world;
    let deleted = DeletedNodes::of(world);
    let (mut group, mut zones) = (None, BTreeMap::<&str, Tally>::new());
    for view in machines {
        let is_ill = is_ill(view.phase());
        let may_lose_its_node = !meta::is_deleting(&view.metadata) && deleted.may_include_that_of(view);
        if !view.is_own || !(is_ill || may_lose_its_node) {
            continue;
        }
        let node = kin::node_of(world, view).node;
        if !is_ill && !node.is_some_and(|node| meta::is_deleting(&node.metadata)) {
            continue;
        }
        view.group = *group.get_or_insert_with(|| tally::of_group(world, set, asked.settings));
        view.node = node.filter(|node| node::belongs(node, view));
        let zone = view.node.and_then(kinds::zone);
        view.zone = zone.map_or_else(Tally::default, |zone| {
            *zones.entry(zone).or_insert_with(|| tally::of_zone(world, zone))
        });
    }
}

impl<'a> Observed<'a> {
    /// A set of the world, with what is known of its Machines; it may do all that a set without a deployment may.
    pub fn of(asked: &Asked<'a>, set: &'a Arc<MachineSet>, machines: &'a [MachineView<'a>]) -> Self {
        let ledger = &asked.world.ledger;
        let uid = meta::identity(&set.metadata).1;
        let class = set.spec.template.class().and_then(|class| class.name).map(Name::new);
        let readiness = class.as_ref().map(|class| ledger.readiness(class));
        Observed {
            set,
            machines,
            exists: asked.machine_exists,
            refusal: match readiness {
                Some(Readiness::Faulty(fault)) if fault.refuses_machines() => Some(fault),
                Some(Readiness::Faulty(_) | Readiness::Unchecked | Readiness::Ready(_)) | None => None,
            },
            class_unchecked: readiness == Some(&Readiness::Unchecked) && class.as_ref().is_some_and(asked.can_check),
            notes: ledger.notes(&uid),
            unanswered: &ledger.unanswered,
            allowance: Allowance::all(asked.settings.replacements_of(set.spec.replicas)),
            is_frozen: false,
            unfreeze: false,
            sight: asked.sight,
            settings: asked.settings,
        }
    }
}
