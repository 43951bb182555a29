//! S6: unhealthy Machines of a set are given up one at a time, none while nobody can see the Nodes, and none whose Node is well. One whose
//! VM is gone cannot recover: it does not wait for others, nor they for it.
//!
//! One counts from when it was given up until it is deleted or runs again. What another process gave up counts for this one when it
//! could have seen it, and so does a Node's recovery. One that is preserved is not on its way to be replaced, and does not count until its
//! time is over; where a clock was set, it does not count at all.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::kept;
use crate::event::{Act, By, Event, Write};
use crate::object::{controller, is_deleting, is_true, name, phase, text, time, uid};
use crate::oracle::Oracle;
use crate::truth::Truth;

pub(crate) struct OneAtATime {
    max_lag: SignedDuration,
    /// Machines that are given up, by uid: of which set, by whom, since when.
    given_up: BTreeMap<String, (String, By, Timestamp)>,
    /// Until when Machines that are given up are preserved, by uid.
    kept: BTreeMap<String, Timestamp>,
    /// Since when Nodes are well, by the id of their VM.
    well: BTreeMap<String, Timestamp>,
    /// Since when the target cluster is away.
    away: Option<Timestamp>,
    /// Somebody set a clock: when a preservation ends is by a manager's own.
    is_clock_set: bool,
    hits: u64,
}

impl OneAtATime {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self {
            max_lag,
            given_up: BTreeMap::new(),
            kept: BTreeMap::new(),
            well: BTreeMap::new(),
            away: None,
            is_clock_set: false,
            hits: 0,
        }
    }

    fn wrote(&mut self, at: Timestamp, write: &Write, truth: &dyn Truth) -> Result<(), String> {
        let Some(before) = &write.before else { return Ok(()) };
        let Some(after) = write.after.as_ref().filter(|after| !is_deleting(after)) else {
            self.given_up.remove(uid(before));
            return Ok(());
        };
        match kept_until(after) {
            Some(until) => self.kept.insert(uid(after).to_owned(), until),
            None => self.kept.remove(uid(after)),
        };
        match (phase(before), phase(after)) {
            ("Unknown", "Failed") if matches!(write.by, By::Manager(_)) => {
                let id = text(after, "/spec/providerID");
                let is_gone = !id.is_empty() && !truth.vms().iter().any(|vm| vm.provider_id == id);
                let judged = self.judge(write, after, is_gone);
                if is_gone {
                    return judged;
                }
                let entry = (controller(after).to_owned(), write.by, at);
                self.given_up.insert(uid(after).to_owned(), entry);
                judged
            }
            (_, "Failed") => {
                // One that its set let go of is replaced already.
                if let Some((set, ..)) = self.given_up.get_mut(uid(after)) {
                    controller(after).clone_into(set);
                }
                Ok(())
            }
            _ => {
                self.given_up.remove(uid(after));
                Ok(())
            }
        }
    }

    fn note(&mut self, at: Timestamp, write: &Write) {
        if let Some(before) = &write.before {
            let is_well = write.after.as_ref().is_some_and(|after| is_well(after));
            if !is_well {
                self.well.remove(text(before, "/spec/providerID"));
            }
        }
        let after = write.after.as_ref().filter(|after| is_well(after));
        let id = after.map_or("", |after| text(after, "/spec/providerID"));
        if !id.is_empty() {
            self.well.entry(id.to_owned()).or_insert(at);
        }
    }

    fn judge(&mut self, write: &Write, machine: &Value, is_gone: bool) -> Result<(), String> {
        self.hits += 1;
        if let Some(away) = self.away.filter(|away| *away + self.max_lag < write.sent) {
            return Err(format!(
                "machine {} was given up while the target cluster is away, since {away}",
                name(machine)
            ));
        }
        let well = self.well.get(text(machine, "/spec/providerID"));
        if let Some(well) = well.filter(|well| **well + self.max_lag < write.sent) {
            return Err(format!(
                "machine {} was given up, and its node is well since {well}",
                name(machine)
            ));
        }
        let set = controller(machine);
        if set.is_empty() || is_gone {
            return Ok(());
        }
        let is_known = |by: &By, since: &Timestamp| *by == write.by || *since + self.max_lag < write.sent;
        let is_kept = |other: &String| {
            self.kept
                .get(other)
                .is_some_and(|until| self.is_clock_set || *until > write.sent - self.max_lag)
        };
        let others = self.given_up.iter().filter(|(other, (of, by, since))| {
            other.as_str() != uid(machine) && of == set && is_known(by, since) && !is_kept(other)
        });
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

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Write(write) if write.accepted && write.resource == "machines" => self.wrote(event.at, write, truth),
            Act::Write(write) if write.accepted && write.resource == "nodes" => {
                self.note(event.at, write);
                Ok(())
            }
            Act::TargetAway => {
                self.away = Some(event.at);
                Ok(())
            }
            Act::TargetBack => {
                self.away = None;
                Ok(())
            }
            Act::ClockSet => {
                self.is_clock_set = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

/// Until when a Machine that failed is preserved; where somebody wants that and no time is told yet, without end.
fn kept_until(machine: &Value) -> Option<Timestamp> {
    let until = time(machine, kept::UNTIL);
    let is_wished = [kept::WISH, kept::LAST]
        .iter()
        .any(|key| kept::KEEPS.contains(&text(machine, key)));
    match (phase(machine), until) {
        ("Failed", Some(until)) => Some(until),
        ("Failed", None) if is_wished => Some(Timestamp::MAX),
        _ => None,
    }
}

/// Whether a Node is ready and stays, and has no other condition, which might be one that its Machine watches.
fn is_well(node: &Value) -> bool {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let others = |told: &&Value| text(told, "/type") != "Preserved";
    let is_alone = conditions.is_some_and(|conditions| conditions.iter().filter(others).count() == 1);
    is_alone && is_true(node, "Ready") && !is_deleting(node)
}
