//! Which looks there are to be: one for all classes that reach the same VMs, and when each is due. Decides nothing about VMs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::inventory::{Inventories, Inventory, Way};
use crate::api::{CreationRequest, MachineClass, meta};
use crate::ids::{DriverName, Name};
use crate::kinds::OwnedBy;
use crate::settings::Settings;
use crate::sight::later;
use crate::world::World;

/// How long after the lead began the first look is: a manager that has just begun has seen little.
const FIRST_LOOK: SignedDuration = SignedDuration::from_mins(2);

impl Way {
    /// The class, where it says this still.
    pub fn live<'a>(&self, world: &'a World) -> Option<&'a Arc<MachineClass>> {
        let class = world.classes.get(&self.class)?;
        self.request.is_same(&CreationRequest::of(class, None)).then_some(class)
    }
}

impl Inventories {
    /// Looks that are due, each with the ways by which it can be made; they count as begun. A driver that is not there is asked when it is.
    pub fn due(
        world: &mut World,
        lead_since: Timestamp,
        settings: &Settings,
        is_ready: impl Fn(&DriverName) -> bool,
        now: Timestamp,
    ) -> Vec<(Inventory, Vec<Way>)> {
        let all = Self::all(world);
        let first = later(lead_since, FIRST_LOOK.min(settings.orphan_period));
        let known = &mut world.ledger.inventories.known;
        known.retain(|inventory, known| known.is_running || all.contains_key(inventory));
        let mut due = Vec::new();
        for (inventory, ways) in all {
            let known = known.entry(inventory.clone()).or_default();
            let at = *known.due.get_or_insert(first);
            if at <= now && !known.is_running && is_ready(&inventory.driver) {
                known.is_running = true;
                due.push((inventory, ways));
            }
        }
        due
    }

    /// All of them, each with its classes in the order of their names. A class that was edited or never checked waits for that. VMs that no
    /// class reaches any more are reached by what they were asked for with.
    pub fn all(world: &World) -> BTreeMap<Inventory, Vec<Way>> {
        let mut all: BTreeMap<Inventory, Vec<Way>> = BTreeMap::new();
        for class in world.classes.iter() {
            let request = world.ledger.reached(class).cloned();
            let found = request.and_then(|request| Inventory::of(&request).zip(Some(request)));
            if let Some((inventory, request)) = found {
                let class = meta::identity(&class.metadata).0;
                all.entry(inventory).or_default().push(Way { class, request });
            }
        }
        for name in world.machines.texts(OwnedBy::Inventory) {
            let machine = world.machines.find(OwnedBy::Inventory, name).next();
            let Some((machine, request)) = machine.and_then(|machine| Some((machine, machine.creation_request()?)))
            else {
                continue;
            };
            let class = Name::new(machine.class_name().unwrap_or("unknown"));
            if let Some(inventory) = Inventory::of(request) {
                let request = request.clone();
                all.entry(inventory).or_insert_with(|| vec![Way { class, request }]);
            }
        }
        all
    }
}
