//! Which looks there are to be: one for all classes that reach the same VMs, and when each is due. Decides nothing about VMs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{Noted, Report};
use crate::api::{CreationRequest, MachineClass, meta};
use crate::ids::{DriverName, Name, ProviderId, Uid};
use crate::kinds::OwnedBy;
use crate::settings::Settings;
use crate::sight::later;
use crate::world::World;

/// How long after the lead began the first look is: a manager that has just begun has seen little.
const FIRST_LOOK: SignedDuration = SignedDuration::from_mins(2);

/// The VMs that one or several classes reach, or that were asked for by what a class said before it was changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inventory {
    /// Whose driver shows them.
    pub driver: DriverName,
    /// `CreationRequest::inventory`.
    name: String,
}

impl Inventory {
    /// That of VMs which are asked for so.
    pub fn of(request: &CreationRequest) -> Option<Self> {
        let name = request.inventory();
        request.driver().map(|driver| Self { driver, name })
    }

    /// By which its Machines are found.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// By what an inventory is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The class that says it, or said it when a VM was asked for.
    pub class: Name,
    /// What it says, or said.
    pub request: CreationRequest,
}

impl Way {
    /// The class, where it says this still.
    pub fn live<'a>(&self, world: &'a World) -> Option<&'a Arc<MachineClass>> {
        let class = world.classes.get(&self.class)?;
        self.request.is_same(&CreationRequest::of(class, None)).then_some(class)
    }
}

/// What is known of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// When it is to be looked at.
    due: Option<Timestamp>,
    /// A look is under way.
    is_running: bool,
    /// What earlier looks brought.
    pub noted: Noted,
    /// VMs that the last complete listing showed and that no Machine names by their id, and when it began.
    pub(super) present: Option<(Timestamp, BTreeSet<ProviderId>)>,
    /// How many VMs were what, when it was last complete.
    report: Report,
    /// Why it could not be listed, if the last try failed.
    failure: Option<String>,
}

/// All inventories, and what is suspected in the target cluster. Dies with the term.
#[derive(Debug, Default)]
pub struct Inventories {
    known: BTreeMap<Inventory, Known>,
    /// Nodes that no Machine owns and whose VM no listing shows, and since when.
    pub(super) nodes: BTreeMap<Uid, Timestamp>,
    /// VMs that a complete listing showed to be ours, with the Machines that they are tagged with, as long as they are listed or have a Node.
    pub(super) seen: BTreeMap<ProviderId, Name>,
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

    /// What is known of an inventory.
    pub fn noted(&self, inventory: &Inventory) -> Noted {
        self.known
            .get(inventory)
            .map(|known| known.noted.clone())
            .unwrap_or_default()
    }

    /// A look has ended; the next is at `due`.
    pub fn ended(&mut self, inventory: &Inventory, due: Timestamp) {
        if let Some(known) = self.known.get_mut(inventory) {
            known.is_running = false;
            known.due = Some(due);
        }
    }

    /// Notes that it could be listed, or why not. Whether it is news that it could not.
    pub fn listed(&mut self, inventory: &Inventory, failure: Option<&str>) -> bool {
        let Some(known) = self.known.get_mut(inventory) else {
            return false;
        };
        let is_news = failure.is_some() && known.failure.as_deref() != failure;
        known.failure = failure.map(str::to_owned);
        is_news
    }

    /// What a look noted.
    pub fn note(&mut self, inventory: &Inventory, noted: Noted) {
        if let Some(known) = self.known.get_mut(inventory) {
            known.noted = noted;
        }
    }

    /// What a complete listing, begun at that time, showed: VMs that no Machine names by their id, and how many there were of what.
    pub fn shown(&mut self, inventory: &Inventory, begun: Timestamp, present: BTreeSet<ProviderId>, report: Report) {
        if let Some(known) = self.known.get_mut(inventory) {
            known.present = Some((begun, present));
            known.report = report;
        }
    }

    /// A complete listing showed these VMs of ours; others are remembered where they have a Node.
    pub(super) fn saw(&mut self, vms: BTreeMap<ProviderId, Name>, has_node: impl Fn(&ProviderId) -> bool) {
        self.seen.retain(|id, _| has_node(id));
        self.seen.extend(vms);
    }

    /// How many VMs there are at each driver, by whose they are.
    pub fn totals(&self) -> BTreeMap<(String, &'static str), usize> {
        let mut totals = BTreeMap::new();
        for (inventory, known) in self.known.iter().filter(|(_, known)| known.present.is_some()) {
            for (state, vms) in known.report.states() {
                *totals.entry((inventory.driver.to_string(), state)).or_default() += vms;
            }
        }
        totals
    }

    /// When the oldest of the last complete listings of all inventories began. `None`: one of them has none, or there is no inventory.
    pub(super) fn all_seen(&self) -> Option<Timestamp> {
        let begun = |known: &Known| known.present.as_ref().map(|(begun, _)| *begun);
        let all: Option<Vec<Timestamp>> = self.known.values().map(begun).collect();
        all.and_then(|all| all.into_iter().min())
    }

    /// Whether any of these listings shows the VM.
    pub(super) fn shows(&self, id: &ProviderId) -> bool {
        let mut shown = self.known.values().filter_map(|known| known.present.as_ref());
        shown.any(|(_, present)| present.contains(id))
    }
}
