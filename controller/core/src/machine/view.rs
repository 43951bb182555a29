//! What a plan of one Machine reads, gathered from the world.
//!
//! One place for the shell, which plans, and for everybody who explains a plan. Decides nothing.

use super::observed::{ClassView, DriverView, Observed};
use crate::api::{Machine, keys, meta};
use crate::ids::Name;
use crate::kin;
use crate::ledger::Calls;
use crate::replacement_limit::tally;
use crate::settings::Settings;
use crate::sight::Sight;
use crate::world::World;

/// What is asked about a Machine besides the world.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// All that is known.
    pub world: &'a World,
    /// The driver of the Machine.
    pub driver: DriverView<'a>,
    /// What is known of the Machine's VM.
    pub calls: &'a Calls,
    /// Since when all is seen that timeouts rest on.
    pub sight: Sight,
    /// The operator's wishes.
    pub settings: &'a Settings,
}

/// Makes a plan of a Machine, or whatever looks at the same.
pub fn look<T>(asked: Asked<'_>, machine: &Machine, look: impl FnOnce(&Observed<'_>) -> T) -> T {
    let Asked {
        world,
        driver,
        calls,
        sight,
        settings,
    } = asked;
    let class_name = machine.class_name().map(Name::new);
    let class = class_name.as_ref().and_then(|class| world.classes.get(class));
    let claim = kin::node_of(world, machine);
    let twin = || {
        let told = calls.vm.as_ref().and_then(|vm| vm.provider_id.clone());
        kin::twin(world, machine, &told.or_else(|| machine.provider_id())?)
    };
    look(&Observed {
        machine,
        class: ClassView::of(world, class_name.as_ref()),
        driver,
        node: claim.node,
        rival: match settings.has_target {
            true => claim.rival,
            false => twin(),
        },
        losers: tally::of_losers(world, machine, settings),
        virtual_capacity: class.and_then(|class| class.virtual_capacity()),
        standing: kin::standing(world, machine),
        drain: world.ledger.drains.get(&meta::identity(&machine.metadata).1),
        volumes: &world.volumes,
        sight,
        calls,
        circuits: world.circuits_of(machine),
        settings,
    })
}

impl<'a> ClassView<'a> {
    /// The class that a Machine names, as it is known now.
    fn of(world: &'a World, name: Option<&'a Name>) -> Self {
        let Some(name) = name else { return Self::Unnamed };
        match world.classes.get(name) {
            None => Self::Missing(name.as_str()),
            Some(class) => Self::Present {
                name: name.as_str(),
                guarded: meta::has_finalizer(&class.metadata, keys::FINALIZER),
                readiness: world.ledger.readiness(name),
            },
        }
    }
}
