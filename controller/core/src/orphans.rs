//! VMs at the provider that no Machine owns: which are deleted, which are told, which are left.
//!
//! The protocol (OR-1; S3). A VM is deleted as an orphan only if
//!
//! - its tags name this cluster, this namespace, and a Machine;
//! - two complete listings show it, apart by more than the time by which lookups at the provider may lag;
//! - it is older than any creation may take;
//! - from the end of the first of these listings on, without a gap, this process has led, the watches have shown all Machines, and the driver has answered;
//! - no Machine of its uid is known, none claims it by its id, and the API server itself, asked by the name, has none either;
//! - no breaker is open, and the VMs without a Machine are no more than `--max-orphans`: what befalls most has a common cause;
//! - not more than a tenth of the VMs, but one at least, is deleted in one look.
//!
//! Anything less is told and counted. `plan` makes [`Evidence`] of it, which whoever carries it out turns into a permit by the live read.
//! Pure: knows no driver and no API server.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::api::lenient::{IntOrPercent, Rounding};
use crate::ids::{Name, ProviderId};
use crate::kinds::{NodeBy, OwnedBy};
use crate::replacement_limit::tally;
use crate::settings::Settings;
use crate::sight::{Judging, Sight, later};
use crate::world::World;

mod due;
mod evidence;
pub(crate) mod inventory;
mod listing;
pub mod nodes;
mod noted;
mod owner;

pub use evidence::{Evidence, Proof, Spared};
pub use inventory::{Inventories, Inventory, Way};
pub use listing::{Gap, Listing, Sighting};
pub use noted::{Finding, Noted, Report, Suspicion, Why};
use owner::Owner;

/// How far apart two looks are at least, where the period between looks is not shorter: a list at the provider, or a watch, that is wrong
/// for a moment is right again by then.
const APART: SignedDuration = SignedDuration::from_mins(2);
/// Of a hundred VMs of this cluster so many are deleted in one look at most.
const CAP_PERCENT: usize = 10;
/// So many VMs without a Machine are nobody's common cause yet.
const FEW: usize = 2;
/// Of so many VMs people are told in one look at most, of the others in the next ones: a driver may show others each time.
const TOLD: usize = 20;

/// All that a look may read.
pub struct Observed<'a> {
    /// What the provider showed.
    pub listing: &'a Listing,
    /// What earlier looks noted.
    pub noted: &'a Noted,
    /// The objects.
    pub world: &'a World,
    /// Since when this process sees what it judges.
    pub sight: Sight,
    /// How long after an accepted creation the provider may still not show the VM.
    pub propagation_delay: SignedDuration,
    /// The namespace of our kinds.
    pub namespace: &'a str,
    /// The operator's wishes.
    pub settings: &'a Settings,
}

/// What a look comes to.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// In order; each is independent of the others.
    pub steps: Vec<Step>,
    /// When to look again, if sooner than usual.
    pub wake: Option<Timestamp>,
    /// Why no more is done.
    pub why: Why,
    /// What the next look is to know.
    pub noted: Noted,
    /// What there is.
    pub report: Report,
}

/// One effect of a look.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Tell people of a VM that is left alone.
    Tell(Finding, Box<Sighting>),
    /// Tell people why orphans are left alone.
    Hold(Why),
    /// Read the Machine live, and delete the VM if there is none.
    Delete(Box<Evidence>),
}

/// Decides what becomes of the VMs of a listing.
pub fn plan(seen: &Observed<'_>) -> Plan {
    let Some(since) = seen.sight.since(Judging::Driver) else {
        return Plan::nothing(Why::Blind, seen.noted.clone());
    };
    if let Some(gap) = &seen.listing.gap {
        return Plan::nothing(Why::Incomplete(gap.clone()), seen.noted.clone());
    }
    let sorted = Sorted::of(seen);
    let plan = Plan::nothing(Why::Accounted, Noted::default());
    let mut look = Look { seen, plan };
    for (finding, vm) in sorted.odd {
        look.tell(finding, vm);
    }
    let mut orphans = Vec::new();
    for (id, (name, vm)) in &sorted.nobodys {
        match look.examine(id, vm, since) {
            Ok(first) => orphans.push((*name, *vm, first)),
            Err(again) => look.plan.wake = [look.plan.wake, again].into_iter().flatten().min(),
        }
    }
    look.plan.report = Report {
        orphans: orphans.len(),
        suspected: sorted.nobodys.len() - orphans.len(),
        ..sorted.report
    };
    let why = look.act(orphans, sorted.nobodys.len(), sorted.ours);
    look.end(why)
}

/// The VMs of a listing by whose they are.
struct Sorted<'a> {
    /// Those of which people are told whatever else is so.
    odd: Vec<(Finding, &'a Sighting)>,
    nobodys: BTreeMap<&'a ProviderId, (&'a Name, &'a Sighting)>,
    /// How many are tagged with this cluster and namespace.
    ours: usize,
    report: Report,
}

impl<'a> Sorted<'a> {
    fn of(seen: &Observed<'a>) -> Self {
        let uids = owner::uids(seen);
        let (mut report, mut ours) = (Report::default(), 0);
        let (mut odd, mut nobodys, mut twice) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        for vm in &seen.listing.vms {
            // A VM may be listed twice.
            if vm.provider_id.as_ref().is_some_and(|id| !twice.insert(id)) {
                continue;
            }
            ours += 1;
            match owner::of(seen, &uids, vm) {
                Owner::Machine => report.owned += 1,
                Owner::Unnamed => report.unclear += 1,
                Owner::Foreign => {
                    ours -= 1;
                    report.foreign += 1;
                }
                Owner::Unmarked => {
                    ours -= 1;
                    report.unclear += 1;
                    odd.push((Finding::Unmarked, vm));
                }
                Owner::Twin => {
                    report.unclear += 1;
                    odd.push((Finding::Duplicate, vm));
                }
                Owner::Nobody => nobodys.extend(vm.provider_id.as_ref().zip(vm.name.as_ref().map(|name| (name, vm)))),
            }
        }
        Self {
            odd,
            nobodys,
            ours,
            report,
        }
    }
}

/// A look under way.
struct Look<'a> {
    seen: &'a Observed<'a>,
    plan: Plan,
}

impl Look<'_> {
    /// Whether a VM of nobody is proven to be an orphan: since when. Else when that can be known at the earliest.
    fn examine(&mut self, id: &ProviderId, vm: &Sighting, since: Timestamp) -> Result<Timestamp, Option<Timestamp>> {
        let (listing, seen) = (self.seen.listing, self.seen);
        let known = seen.noted.suspects.get(id);
        // What was noted before a gap in the lead, the watches or the driver's presence proves nothing any more.
        let known = known.filter(|known| known.uid == vm.uid && known.since >= since);
        let suspicion = known.cloned().unwrap_or_else(|| Suspicion {
            uid: vm.uid.clone(),
            since: listing.ended,
        });
        let first = suspicion.since;
        self.plan.noted.suspects.insert(id.clone(), suspicion);
        let Some(created) = vm.created else {
            self.tell(Finding::Ageless, vm);
            return Err(None);
        };
        let old_at = later(created, seen.settings.orphan_min_age.max(seen.propagation_delay));
        let second_at = later(first, apart(seen));
        let proven_at = old_at.max(second_at);
        // The listing itself must be old enough, not the time at which it is judged.
        match listing.begun >= proven_at {
            true => Ok(first),
            false => Err(Some(proven_at)),
        }
    }

    /// Deletes orphans, as far as that may be.
    fn act(&mut self, mut orphans: Vec<(&Name, &Sighting, Timestamp)>, nobodys: usize, ours: usize) -> Why {
        let (seen, listing) = (self.seen, self.seen.listing);
        if orphans.is_empty() {
            return Why::Accounted;
        }
        if seen.settings.orphan_dry_run {
            for (_, vm, _) in orphans {
                self.tell(Finding::DryRun, vm);
            }
            return Why::DryRun;
        }
        let limit = limit(seen.settings, ours);
        if nobodys > limit {
            return Why::TooMany {
                orphans: nobodys,
                vms: ours,
                limit,
            };
        }
        if let Some(tripped) = tally::tripped(seen.world, None, seen.settings) {
            return Why::Breaker(tripped);
        }
        let (mut held, cap) = (None, (ours * CAP_PERCENT / 100).max(1));
        orphans.retain(|(_, vm, _)| {
            let zone = Some(vm.zone.as_str()).filter(|zone| !zone.is_empty());
            let tripped = tally::tripped(seen.world, zone, seen.settings);
            held = held.take().or(tripped.clone());
            tripped.is_none()
        });
        orphans.sort_by_key(|(_, vm, _)| vm.created);
        let is_capped = orphans.len() > cap;
        for (name, vm, first) in orphans.into_iter().take(cap) {
            let evidence = Evidence::of(vm, name, first, listing.begun);
            self.plan.steps.push(Step::Delete(Box::new(evidence)));
        }
        match (held, is_capped) {
            (Some(tripped), _) => Why::Breaker(tripped),
            (None, true) => Why::Capped,
            (None, false) => Why::Deleting,
        }
    }

    /// Tells once.
    fn tell(&mut self, finding: Finding, vm: &Sighting) {
        let Some(id) = &vm.provider_id else { return };
        if self.seen.noted.told.get(id) != Some(&finding) {
            if self.plan.steps.len() >= TOLD {
                return;
            }
            self.plan.steps.push(Step::Tell(finding, Box::new(vm.clone())));
        }
        self.plan.noted.told.insert(id.clone(), finding);
    }

    fn end(mut self, why: Why) -> Plan {
        match &why {
            Why::Breaker(_) | Why::TooMany { .. } => {
                if self.seen.noted.held.as_ref() != Some(&why) {
                    self.plan.steps.push(Step::Hold(why.clone()));
                }
                self.plan.noted.held = Some(why.clone());
            }
            Why::Accounted | Why::Deleting | Why::Capped | Why::DryRun | Why::Blind | Why::Incomplete(_) => {}
        }
        Plan { why, ..self.plan }
    }
}

impl Plan {
    /// Nothing is concluded.
    fn nothing(why: Why, noted: Noted) -> Self {
        Self {
            steps: Vec::new(),
            wake: None,
            why,
            noted,
            report: Report::default(),
        }
    }
}

/// How far apart two looks are at least.
fn apart(seen: &Observed<'_>) -> SignedDuration {
    seen.propagation_delay.max(APART.min(seen.settings.orphan_period))
}

/// So many VMs may have no Machine, of so many.
fn limit(settings: &Settings, ours: usize) -> usize {
    let total = i32::try_from(ours).unwrap_or(i32::MAX);
    let limit = settings.max_orphans.resolve(total, Rounding::Down).unwrap_or(0);
    let least = match settings.max_orphans {
        IntOrPercent::Int(_) => 0,
        IntOrPercent::Text(_) => FEW,
    };
    usize::try_from(limit).unwrap_or(0).max(least)
}

/// What a look showed, and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What the provider showed.
    pub listing: &'a Listing,
    /// The namespace of our kinds.
    pub namespace: &'a str,
    /// The operator's wishes.
    pub settings: &'a Settings,
}

/// Keeps what a look came to, and what was seen in it.
pub fn note(world: &mut World, inventory: &Inventory, seen: Seen<'_>, noted: Noted, report: Report) {
    let inventories = &mut world.ledger.inventories;
    inventories.note(inventory, noted);
    if seen.listing.gap.is_some() {
        return;
    }
    let vms = seen.listing.vms.iter();
    let is_ours = |vm: &&Sighting| vm.cluster_id == seen.settings.cluster_id && vm.namespace == seen.namespace;
    let ours = vms.clone().filter(is_ours);
    let ours = ours.filter_map(|vm| vm.provider_id.clone().zip(vm.name.clone()));
    let nodes = &world.nodes;
    inventories.saw(ours.collect(), |id| nodes.count(NodeBy::ProviderId, id.as_str()) > 0);
    let machines = &world.machines;
    let ids = vms.filter_map(|vm| vm.provider_id.clone());
    let is_unclaimed = |id: &ProviderId| machines.count(OwnedBy::ProviderId, id.as_str()) == 0;
    inventories.shown(
        inventory,
        seen.listing.begun,
        ids.filter(is_unclaimed).collect(),
        report,
    );
}

#[cfg(test)]
mod tests;
