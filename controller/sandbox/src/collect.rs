//! What follows deletions later: dependents of owners that went, owners that wait for dependents, namespaces on their way out.
//!
//! The server leaves this to controllers, so it is not part of any request: whoever plays those controllers calls
//! [`Api::collect`] when it pleases, until nothing is left to do.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::Api;
use crate::failure::Failure;
use crate::kinds::Kind;
use crate::moment::Moment;
use crate::object;
use crate::object::{FOREGROUND, ORPHAN};
use crate::store::{Facts, Key, Object, Owner, Place};
use crate::write::Options;
use crate::write::delete::{DeleteOptions, Propagation, delete, set_finalizers};
use crate::write::part::Part;
use crate::write::update;

/// One thing to do.
enum Step {
    Delete(Propagation),
    /// Takes the finalizer off.
    Release(&'static str),
    /// Takes the owner of this uid off.
    Disown(Box<str>),
    /// The namespace is empty.
    Finalize,
}

/// All objects by uid.
type Alive<'a> = BTreeMap<&'a str, &'a Facts>;

type Found = (Place, Key, Object, Step);

impl Api {
    /// Does what is due now; tells how many objects it touched. What it did may make more due.
    pub fn collect(&mut self, moment: &Moment) -> Result<usize, Failure> {
        let due = self.due();
        let touched = due.len();
        for (place, key, old, step) in due {
            let Some(kind) = self.kinds.at(&place).cloned() else {
                continue;
            };
            self.follow(&kind, &key, &old, step, moment)?;
        }
        Ok(touched)
    }

    /// Whether anything after a version can have made a round due, if none was at that version. Cheap, where a round looks at
    /// every object: most changes touch neither a deletion nor an owner.
    pub fn may_be_due_since(&self, version: u64) -> bool {
        self.store.any_since(version, |change| {
            let Some(after) = &change.after else {
                return true;
            };
            let (before, after) = (change.before.as_ref().map(Object::facts), after.facts());
            after.is_deleting || after.owners[..] != *before.map_or(&[][..], |before| &before.owners)
        })
    }

    fn due(&self) -> Vec<Found> {
        let all = self.store.everything();
        let alive: Alive<'_> = all
            .map(|(_, _, object)| (&*object.facts().uid, object.facts()))
            .collect();
        let mut due = Vec::new();
        for (place, key, object) in self.store.everything() {
            if let Some(step) = self.step(place, key, object.facts(), &alive) {
                due.push((place.clone(), key.clone(), object.clone(), step));
            }
        }
        due
    }

    fn step(&self, place: &Place, key: &Key, object: &Facts, alive: &Alive<'_>) -> Option<Step> {
        let deleting = object.is_deleting;
        if deleting && object.orphans && !self.has_dependents(&object.uid, |_| true) {
            return Some(Step::Release(ORPHAN));
        }
        if deleting && object.awaits && !self.has_dependents(&object.uid, |owner| owner.is_held) {
            return Some(Step::Release(FOREGROUND));
        }
        if deleting && place.group.is_empty() && place.plural == "namespaces" {
            let empty = !self.store.everything().any(|(_, inner, _)| inner.namespace == key.name);
            return empty.then_some(Step::Finalize);
        }
        if let Some(step) = Self::step_of_dependent(object, alive) {
            return Some(step);
        }
        let namespace = self.store.object(&namespaces(), &Key::new("", &key.namespace));
        let ending = namespace.is_some_and(|namespace| namespace.facts().is_deleting);
        (ending && !deleting).then_some(Step::Delete(Propagation::Background))
    }

    /// An owner that orphans is taken off; an object without any living owner left goes, and so does one whose owner waits.
    fn step_of_dependent(object: &Facts, alive: &Alive<'_>) -> Option<Step> {
        let state = |owner: &Owner, waits: fn(&Facts) -> bool| {
            let found = alive.get(&*owner.uid);
            found.is_some_and(|owner| owner.is_deleting && waits(owner))
        };
        if let Some(owner) = object.owners.iter().find(|owner| state(owner, |owner| owner.orphans)) {
            return Some(Step::Disown(owner.uid.clone()));
        }
        if object.owners.is_empty() || object.is_deleting {
            return None;
        }
        let all = object.owners.iter();
        let (here, gone): (Vec<&Owner>, Vec<&Owner>) = all.partition(|owner| alive.contains_key(&*owner.uid));
        let waiting = here.iter().filter(|owner| state(owner, |owner| owner.awaits)).count();
        if here.is_empty() {
            return Some(Step::Delete(Propagation::Background));
        }
        if waiting == here.len() {
            return Some(Step::Delete(Propagation::Foreground));
        }
        gone.first().map(|owner| Step::Disown(owner.uid.clone()))
    }

    fn has_dependents(&self, uid: &str, counts: impl Fn(&Owner) -> bool) -> bool {
        let mut all = self.store.everything();
        all.any(|(_, _, object)| {
            let mut owners = object.facts().owners.iter();
            owners.any(|owner| *owner.uid == *uid && counts(owner))
        })
    }

    fn follow(&mut self, kind: &Kind, key: &Key, stored: &Object, step: Step, moment: &Moment) -> Result<(), Failure> {
        // An earlier step of the same round may have changed or removed it; the next round looks again.
        let is_here = |now: &Object| now.is(stored);
        if !self.store.object(&kind.place(), key).is_some_and(is_here) {
            return Ok(());
        }
        let old = &stored.tree();
        let mut new = Value::clone(old);
        match step {
            Step::Delete(propagation) => {
                let options = DeleteOptions {
                    uid: Some(object::uid(old).to_owned()),
                    propagation: Some(propagation),
                    ..DeleteOptions::default()
                };
                delete(self, kind, key, &options, moment)?;
                return Ok(());
            }
            Step::Finalize => {
                self.remove(kind, key);
                return Ok(());
            }
            Step::Release(finalizer) => {
                let left = object::finalizers(old).into_iter().filter(|one| *one != finalizer);
                set_finalizers(&mut new, left.map(str::to_owned).collect());
            }
            Step::Disown(uid) => {
                let left: Vec<&Value> = object::owners(old)
                    .filter(|owner| object::text(owner, "/uid") != &*uid)
                    .collect();
                object::metadata(&mut new).insert("ownerReferences".to_owned(), json!(left));
            }
        }
        update::store(self, kind, key, old, new, Part::Whole, &Options::default())?;
        Ok(())
    }
}

fn namespaces() -> Place {
    Place {
        group: String::new(),
        plural: "namespaces".to_owned(),
    }
}
