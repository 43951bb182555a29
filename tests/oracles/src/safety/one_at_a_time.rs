//! S6: unhealthy Machines of a set are given up one at a time, and none while nobody can see the Nodes.
//!
//! One counts from when it was given up until it is deleted or runs again. What another process gave up counts for this one when it
//! could have seen it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, By, Event, Write};
use crate::object::{controller, is_deleting, name, phase, uid};
use crate::panel::Oracle;
use crate::truth::Truth;

pub(crate) struct OneAtATime {
    max_lag: SignedDuration,
    /// Machines that are given up, by uid: of which set, by whom, since when.
    given_up: BTreeMap<String, (String, By, Timestamp)>,
    /// Since when the target cluster is away.
    away: Option<Timestamp>,
    hits: u64,
}

impl OneAtATime {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self {
            max_lag,
            given_up: BTreeMap::new(),
            away: None,
            hits: 0,
        }
    }

    fn wrote(&mut self, at: Timestamp, write: &Write) -> Result<(), String> {
        let Some(before) = &write.before else { return Ok(()) };
        let Some(after) = write.after.as_ref().filter(|after| !is_deleting(after)) else {
            self.given_up.remove(uid(before));
            return Ok(());
        };
        match (phase(before), phase(after)) {
            ("Unknown", "Failed") if matches!(write.by, By::Manager(_)) => {
                let judged = self.judge(write, after);
                let entry = (controller(after).to_owned(), write.by, at);
                self.given_up.insert(uid(after).to_owned(), entry);
                judged
            }
            (_, "Failed") => Ok(()),
            _ => {
                self.given_up.remove(uid(after));
                Ok(())
            }
        }
    }

    fn judge(&mut self, write: &Write, machine: &serde_json::Value) -> Result<(), String> {
        self.hits += 1;
        if let Some(away) = self.away.filter(|away| *away + self.max_lag < write.sent) {
            return Err(format!(
                "machine {} was given up while the target cluster is away, since {away}",
                name(machine)
            ));
        }
        let set = controller(machine);
        if set.is_empty() {
            return Ok(());
        }
        let is_known = |by: &By, since: &Timestamp| *by == write.by || *since + self.max_lag < write.sent;
        let others = self
            .given_up
            .iter()
            .filter(|(other, (of, by, since))| other.as_str() != uid(machine) && of == set && is_known(by, since));
        match others.count() {
            0 => Ok(()),
            others => Err(format!(
                "machine {} was given up beside {others} of its set that are not replaced yet",
                name(machine)
            )),
        }
    }
}

impl Oracle for OneAtATime {
    fn id(&self) -> &'static str {
        "S6"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Write(write) if write.accepted && write.resource == "machines" => self.wrote(event.at, write),
            Act::TargetAway => {
                self.away = Some(event.at);
                Ok(())
            }
            Act::TargetBack => {
                self.away = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
