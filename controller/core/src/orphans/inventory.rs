//! Inventories: the VMs that classes reach, and what looks at each have brought. Remembers; `due` says when each is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use super::noted::{Noted, Report};
use crate::api::CreationRequest;
use crate::ids::{DriverName, Name, ProviderId, Uid};

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

/// What is known of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// When it is to be looked at.
    pub(super) due: Option<Timestamp>,
    /// A look is under way.
    pub(super) is_running: bool,
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
    pub(super) known: BTreeMap<Inventory, Known>,
    /// Nodes that no Machine owns and whose VM no listing shows, and since when.
    pub(super) nodes: BTreeMap<Uid, Timestamp>,
    /// VMs that a complete listing showed to be ours, with the Machines that they are tagged with, as long as they are listed or have a Node.
    pub(super) seen: BTreeMap<ProviderId, Name>,
}

impl Inventories {
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
