//! S3, of VMs that no Machine owns: a manager has one removed only after the orphan protocol's waits. It was old enough, it is this cluster's and
//! this namespace's by its tags, and this same manager was shown it by two complete listings that lie apart.
//!
//! Of a VM whose Machine is there, or was seen to be deleted, `wrong_kill` judges.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, By, Event, VmChange};
use crate::object::{is_deleting, uid};
use crate::oracle::Oracle;
use crate::settings::Settings;
use crate::truth::{Truth, by_uid};

/// Clocks of managers may be off by so much.
const OFF: SignedDuration = SignedDuration::from_secs(45);

pub(crate) struct Orphan {
    min_age: SignedDuration,
    apart: SignedDuration,
    /// When each VM's order was accepted.
    made: BTreeMap<String, Timestamp>,
    /// VMs that are no business of this manager's.
    foreign: BTreeSet<String>,
    /// Uids of Machines that were seen to be deleted.
    leaving: BTreeSet<String>,
    /// When each manager was shown each VM by a complete listing: first and last.
    shown: BTreeMap<(By, String), (Timestamp, Timestamp)>,
    /// A clock was set: ages are not what they seem.
    is_clock_set: bool,
    hits: u64,
}

impl Orphan {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            min_age: settings.orphan_min_age,
            apart: settings.orphan_apart,
            made: BTreeMap::new(),
            foreign: BTreeSet::new(),
            leaving: BTreeSet::new(),
            shown: BTreeMap::new(),
            is_clock_set: false,
            hits: 0,
        }
    }

    fn removed(&mut self, at: Timestamp, by: By, id: &str) -> Result<(), String> {
        self.hits += 1;
        if self.foreign.contains(id) {
            return Err(format!("VM {id} was removed, which is another's by its tags"));
        }
        let age = self.made.get(id).map(|made| at.duration_since(*made));
        let is_young = age.is_none_or(|age| age + OFF < self.min_age);
        if is_young && !self.is_clock_set {
            return Err(format!("VM {id} was removed as an orphan at the age of {age:?}"));
        }
        let shown = self.shown.get(&(by, id.to_owned()));
        match shown.is_some_and(|(first, last)| last.duration_since(*first) >= self.apart) {
            true => Ok(()),
            false => Err(format!(
                "VM {id} was removed as an orphan without two complete listings that lie apart"
            )),
        }
    }
}

impl Oracle for Orphan {
    fn id(&self) -> &'static str {
        "S3"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Write(write) if write.resource == "machines" => {
                let both = write.before.iter().chain(&write.after);
                self.leaving
                    .extend(both.filter(|it| is_deleting(it)).map(|it| uid(it).to_owned()));
            }
            Act::Listed { by, ids } => {
                for id in ids {
                    let shown = self.shown.entry((*by, id.clone())).or_insert((event.at, event.at));
                    shown.1 = event.at;
                }
            }
            Act::Foreign { id } => drop(self.foreign.insert(id.clone())),
            Act::ClockSet => self.is_clock_set = true,
            Act::Vm { by, change } => match (by, change) {
                (_, VmChange::Accepted { id, .. }) => drop(self.made.insert(id.clone(), event.at)),
                (By::Manager(_), VmChange::Leaving { uid, id })
                    if !self.leaving.contains(uid) && by_uid(truth, "machines", uid).is_none() =>
                {
                    return self.removed(event.at, *by, id);
                }
                (_, VmChange::Leaving { .. } | VmChange::Gone { .. }) => {}
            },
            Act::Write(_)
            | Act::List { .. }
            | Act::Call(_)
            | Act::Heard(_)
            | Act::Said { .. }
            | Act::Started(_)
            | Act::Crashed(_)
            | Act::TargetAway
            | Act::TargetBack
            | Act::Rest
            | Act::Unrest => {}
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
