//! What this process alone knows, beside the objects: calls under way, requests without an answer, refusals, paces.
//!
//! It dies with the process, and nothing in it is needed for safety that cannot be asked for again. What is known of an object is
//! kept by its uid and goes with it by [`Ledger::forget`]; it is noted only while the object is known (`World::note`), so that an
//! answer which arrives after the end of its object leaves nothing behind. Four things are kept otherwise:
//!
//! - `unanswered` by the Machine's name, because what may still arrive has no uid yet; each entry ends by time.
//! - `classes` by the class's name, because that is how Machines, sets and Secrets mean a class, whichever object bears it; an entry
//!   is there exactly while a class of that name is ([`Ledger::doubt`], [`Ledger::forget_class`]).
//! - `inventories` by what a driver calls them; an entry is there while a class reaches it.
//! - `leftovers` by the uid of a Machine that is gone already; the pass over what it left ends them.
//!
//! Decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};

use crate::api::{CreationRequest, Machine, MachineClass, meta};
use crate::circuit_breaker::{Account, Breakers};
use crate::class::{self, InUse, Readiness};
use crate::drain::Drain;
use crate::ids::{DriverName, Name, Uid};
use crate::orphans::inventory::Inventories;
use crate::refusal::Refusal;
use crate::sight::later;

mod calls;

pub use calls::{Answer, Calls, Doubt, Trouble, Unmade};

/// A creation that was sent so long ago and not answered is taken for lost (GE-7). The simulator's fault F10 lets a request land minutes
/// late; this is also how old S4 lets a view be.
pub const LINGERS: SignedDuration = SignedDuration::from_mins(5);

/// What this process alone knows beside the objects: calls under way, refusals, requests without an answer.
#[derive(Debug, Default)]
pub struct Ledger {
    /// What is known of each Machine's VM.
    pub calls: BTreeMap<Uid, Calls>,
    /// When a deletion of the Machine was last sent that was not answered.
    pub condemned: BTreeMap<Uid, Timestamp>,
    /// Writes to a child that the API server refused, by the child.
    pub refusals: BTreeMap<Uid, Refusal>,
    /// What is known of each set and deployment.
    pub owners: BTreeMap<Uid, OwnerNotes>,
    /// When a creation of the Machine of that name was last sent that was not answered, and may still arrive.
    pub unanswered: BTreeMap<Name, Timestamp>,
    /// What is known of each class.
    classes: BTreeMap<Name, ClassNotes>,
    /// What stops driver calls, by account and class. A breaker goes with the last class that it stops.
    pub breakers: Breakers,
    /// What was last reported of an object that is being deleted and still needed.
    pub reports: BTreeMap<Uid, InUse>,
    /// The pods of Nodes that are drained, by the Machine.
    pub drains: BTreeMap<Uid, Drain>,
    /// Machines that ended while the target cluster was away, or vanished in spite of our finalizer, and may have left a Node or a token
    /// there.
    pub leftovers: BTreeMap<Uid, Arc<Machine>>,
    /// Looks at providers for VMs that no Machine owns, and what they brought. By inventory, and gone with its last class.
    pub inventories: Inventories,
    /// Counts doubts about classes, so that no two are taken for the same.
    doubts: u64,
}

/// What is known of a set or a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerNotes {
    /// When the status was last written.
    pub status_written: Option<Timestamp>,
    /// The last creation of a child that the API server refused.
    pub create_refused: Option<Refusal>,
    /// The last deletion of a child that the API server refused.
    pub delete_refused: Option<Refusal>,
    /// Batches of creations that succeeded in a row.
    pub batches: u32,
    /// When the last batch of creations ended.
    pub batch_ended: Option<Timestamp>,
    /// How often failed Machines were replaced with none of the set becoming ready in between, and when last.
    pub replaced: Option<(u32, Timestamp)>,
    /// When a deployment last changed the numbers of its sets.
    pub numbers_written: Option<Timestamp>,
    /// Sets whose creation a deployment sent and heard no answer of, or whose name was taken by a set that could not be read: the
    /// number that was asked for, and when.
    pub unanswered_sets: BTreeMap<Name, (i32, Timestamp)>,
}

impl OwnerNotes {
    /// The creation of a set of so many is about to be sent. Gives what an earlier one of its name asked for that may still come, for
    /// [`OwnerNotes::refused_set`].
    pub fn sends_set(&mut self, set: &Name, number: i32, now: Timestamp) -> Option<(i32, Timestamp)> {
        let earlier = self.unanswered_sets.get(set).copied();
        let most = number.max(earlier.map_or(0, |(number, _)| number));
        self.unanswered_sets.insert(set.clone(), (most, now));
        earlier
    }

    /// The creation of a set was refused, which says nothing of `earlier` ones.
    pub fn refused_set(&mut self, set: &Name, earlier: Option<(i32, Timestamp)>) {
        match earlier {
            Some(earlier) => self.unanswered_sets.insert(set.clone(), earlier),
            None => self.unanswered_sets.remove(set),
        };
    }
}

/// What is known of a class.
#[derive(Debug, Default)]
struct ClassNotes {
    readiness: Readiness,
    /// The driver by which it was last checked.
    driver: Option<DriverName>,
    /// What reached its VMs when it was last checked.
    reached: Option<CreationRequest>,
    /// When its driver is asked again, where it could not be asked.
    ask_again: Option<Timestamp>,
    /// Which doubt the readiness answers.
    doubt: u64,
    is_being_checked: bool,
    /// The last write of its status, if the API server refused it.
    status_refused: Option<Refusal>,
}

/// Names the state of knowledge about a class that a check began with: its outcome counts only if nothing was doubted since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

/// What the outcome of a check means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is believed, and another than before.
    News,
    /// It is believed, and the same as before.
    Same,
    /// The class, its Secrets or its driver changed while it was made: it is not believed.
    Outdated,
}

impl Ledger {
    /// Forgets all about an object that is gone.
    pub fn forget(&mut self, uid: &Uid) {
        // Names all, so that what is added here says how it ends.
        let Self {
            calls,
            condemned,
            refusals,
            owners,
            reports,
            drains,
            unanswered: _,
            classes: _,
            breakers: _,
            leftovers: _,
            inventories: _,
            doubts: _,
        } = self;
        calls.remove(uid);
        condemned.remove(uid);
        refusals.remove(uid);
        owners.remove(uid);
        reports.remove(uid);
        drains.remove(uid);
    }

    /// What is known of a set or a deployment.
    pub fn notes(&self, owner: &Uid) -> &OwnerNotes {
        static NOTHING: LazyLock<OwnerNotes> = LazyLock::new(OwnerNotes::default);
        self.owners.get(owner).unwrap_or(&NOTHING)
    }

    /// A creation of a Machine is about to be sent. Gives when an earlier one was that may still arrive, for
    /// [`Ledger::answered`].
    pub fn sends(&mut self, machine: &Name, now: Timestamp) -> Option<Timestamp> {
        self.unanswered.retain(|_, sent| now < later(*sent, LINGERS));
        self.unanswered.insert(machine.clone(), now)
    }

    /// A creation of a Machine was answered, whatever the answer is; `earlier` was not.
    pub fn answered(&mut self, machine: &Name, earlier: Option<Timestamp>) {
        match earlier {
            Some(earlier) => self.unanswered.insert(machine.clone(), earlier),
            None => self.unanswered.remove(machine),
        };
    }

    /// What is known of a class.
    pub fn readiness(&self, class: &Name) -> &Readiness {
        const UNCHECKED: &Readiness = &Readiness::Unchecked;
        self.classes.get(class).map_or(UNCHECKED, |notes| &notes.readiness)
    }

    /// What reaches the VMs of the class, as its driver knows them. `None`: it was not checked since it was edited.
    pub fn reached(&self, class: &MachineClass) -> Option<&CreationRequest> {
        let reached = self.classes.get(&meta::identity(&class.metadata).0)?.reached.as_ref();
        reached.filter(|reached| reached.is_same(&CreationRequest::of(class, None)))
    }

    /// The driver of the class: the one that it names, else the one by which it was last checked.
    pub fn driver_of(&self, class: &MachineClass) -> Option<DriverName> {
        let checked = || self.classes.get(&meta::identity(&class.metadata).0)?.driver.clone();
        class.driver().or_else(checked)
    }

    /// What a check found to reach the VMs of the class, and when the driver is asked again where it could not say so.
    pub fn note_reached(&mut self, class: &Name, reached: CreationRequest, ask_again: Option<Timestamp>) {
        if let Some(notes) = self.classes.get_mut(class) {
            notes.reached = Some(reached);
            notes.ask_again = ask_again;
        }
    }

    /// By which driver a class was checked, if there was one. What is known of another driver's account says nothing of it. Gives whether
    /// it is another driver than before.
    pub fn note_driver(&mut self, class: &MachineClass, driver: Option<DriverName>) -> bool {
        let name = meta::identity(&class.metadata).0;
        let before = self.driver_of(class);
        if let Some(notes) = self.classes.get_mut(&name) {
            notes.driver = driver;
        }
        let is_another = self.driver_of(class) != before;
        if is_another {
            self.breakers.class_changed(&name, self.account(class), Vec::new);
        }
        is_another
    }

    fn account(&self, class: &MachineClass) -> Option<Account> {
        class::account(class, self.driver_of(class)?)
    }

    /// Whether the driver could not be asked about the class when it was last checked, and is to be asked again.
    pub fn is_unheard(&self, class: &Name, now: Timestamp) -> bool {
        let ask_again = self.classes.get(class).and_then(|notes| notes.ask_again);
        ask_again.is_some_and(|at| at <= now)
    }

    /// The last write of the class's status, if the API server refused it.
    pub fn status_refused(&self, class: &Name) -> Option<&Refusal> {
        self.classes.get(class)?.status_refused.as_ref()
    }

    /// The API server refused a write of the class's status. Gives whether that is news.
    pub fn refuses_status(&mut self, class: &Name, words: String, now: Timestamp) -> bool {
        let Some(notes) = self.classes.get_mut(class) else {
            return false;
        };
        let before = notes.status_refused.take();
        let is_news = before.is_none();
        notes.status_refused = Some(Refusal::after(before.as_ref(), words, now));
        is_news
    }

    /// The API server takes the class's status, or may do so from now on.
    pub fn takes_status(&mut self, class: &Name) {
        if let Some(notes) = self.classes.get_mut(class) {
            notes.status_refused = None;
        }
    }

    /// Whether a check of the class is under way.
    pub fn is_being_checked(&self, class: &Name) -> bool {
        self.classes.get(class).is_some_and(|notes| notes.is_being_checked)
    }

    /// A check of the class begins.
    pub fn begins_check(&mut self, class: &Name) -> Stamp {
        let Some(notes) = self.classes.get_mut(class) else {
            // It is gone meanwhile. No doubt has this number, so nobody believes the outcome.
            return Stamp(0);
        };
        notes.is_being_checked = true;
        Stamp(notes.doubt)
    }

    /// A check of the class has ended.
    pub fn judged(&mut self, class: &Name, stamp: Stamp, readiness: Readiness) -> Finding {
        let Some(notes) = self.classes.get_mut(class) else {
            return Finding::Outdated;
        };
        notes.is_being_checked = false;
        if stamp != Stamp(notes.doubt) {
            return Finding::Outdated;
        }
        if notes.readiness == readiness {
            return Finding::Same;
        }
        notes.readiness = readiness;
        Finding::News
    }

    /// What was found out about a class may hold no longer, and what a check that is under way finds out neither.
    pub fn doubt(&mut self, class: &MachineClass) {
        let name = meta::identity(&class.metadata).0;
        self.doubts += 1;
        let notes = self.classes.entry(name.clone()).or_default();
        notes.readiness = Readiness::Unchecked;
        notes.doubt = self.doubts;
        let (account, stored) = (self.account(class), || class::open_breakers(class));
        self.breakers.class_changed(&name, account, stored);
    }

    /// What is known now of a class, for comparison with later: what was learned under another stamp is about another class.
    pub fn stamp(&self, class: &Name) -> Option<Stamp> {
        self.classes.get(class).map(|notes| Stamp(notes.doubt))
    }

    /// The class is gone.
    pub fn forget_class(&mut self, class: &Name) {
        // A check that is under way finds its stamp gone.
        self.classes.remove(class);
        self.breakers.forget_class(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Fault;

    fn small() -> Name {
        Name::new("small")
    }

    fn class() -> MachineClass {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "small"}})).expect("it is a class")
    }

    #[test]
    fn what_a_check_finds_out_about_a_class_that_changed_meanwhile_is_not_believed() {
        let mut ledger = Ledger::default();
        ledger.doubt(&class());
        let stamp = ledger.begins_check(&small());
        ledger.doubt(&class());
        assert_eq!(
            ledger.judged(&small(), stamp, Readiness::Faulty(Fault::NoDriver)),
            Finding::Outdated
        );
        assert_eq!(*ledger.readiness(&small()), Readiness::Unchecked);
        let stamp = ledger.begins_check(&small());
        assert_eq!(
            ledger.judged(&small(), stamp, Readiness::Faulty(Fault::NoDriver)),
            Finding::News
        );
        assert!(!ledger.is_being_checked(&small()));
    }

    #[test]
    fn what_a_check_finds_out_about_a_class_that_is_gone_leaves_nothing_behind() {
        let mut ledger = Ledger::default();
        ledger.doubt(&class());
        let before = ledger.begins_check(&small());
        ledger.forget_class(&small());
        let after = ledger.begins_check(&small());
        for stamp in [before, after] {
            assert_eq!(
                ledger.judged(&small(), stamp, Readiness::Faulty(Fault::NoDriver)),
                Finding::Outdated
            );
            assert!(ledger.classes.is_empty());
        }
        ledger.doubt(&class());
        assert_eq!(
            ledger.judged(&small(), after, Readiness::Faulty(Fault::NoDriver)),
            Finding::Outdated,
            "another class has the name"
        );
    }

    #[test]
    fn nothing_is_left_of_an_object_that_is_forgotten() {
        let (mut ledger, uid) = (Ledger::default(), Uid::new("1"));
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        ledger.calls.entry(uid.clone()).or_default();
        ledger.condemned.insert(uid.clone(), now);
        ledger
            .refusals
            .insert(uid.clone(), Refusal::after(None, "no".to_owned(), now));
        ledger.owners.entry(uid.clone()).or_default();
        let in_use = InUse {
            kind: "Machine",
            users: 1,
            first: "m1".to_owned(),
        };
        ledger.reports.insert(uid.clone(), in_use);
        ledger.drains.insert(
            uid.clone(),
            Drain::begin(Name::new("m"), crate::ids::NodeName::new("n"), now),
        );
        ledger.forget(&uid);
        let left = (
            ledger.calls.len(),
            ledger.condemned.len(),
            ledger.refusals.len(),
            ledger.owners.len(),
            ledger.reports.len(),
            ledger.drains.len(),
        );
        assert_eq!(left, (0, 0, 0, 0, 0, 0));
    }
}
