//! S22: of a deployment whose Machines are updated in place, a manager takes none out of service that has to serve: with each that it
//! selects, as many others are available as the bounds say. And it moves only those to another set whose agents said that they are updated.
//!
//! What a manager may not have seen yet is not charged to it. Whoever labels a Node by hand is not judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::bounds::bounds;
use crate::event::{Act, By, Event, Write};
use crate::object::{controller, is_deleting, name, number, phase, text, uid};
use crate::oracle::Oracle;
use crate::truth::{Truth, by_uid};

/// Labels of a Node.
pub(crate) const SELECTED: &str = "/metadata/labels/node.machine.sapcloud.io~1selected-for-update";
const RESULT: &str = "/metadata/labels/node.machine.sapcloud.io~1update-result";
const SUCCESSFUL: &str = "successful";

pub(crate) struct InPlace {
    max_lag: SignedDuration,
    /// Since when Machines serve, by uid; until when they last did.
    serving: BTreeMap<String, (Option<Timestamp>, Timestamp)>,
    /// How many have to serve, as deployments last said, and since a while ago.
    floors: BTreeMap<String, Vec<(Timestamp, i64)>>,
    /// Machines that managers selected, and which; until they serve again.
    selected: BTreeMap<String, By>,
    /// When Nodes last said that they are updated, by providerID.
    updated: BTreeMap<String, Timestamp>,
    hits: u64,
}

impl InPlace {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self {
            max_lag,
            serving: BTreeMap::new(),
            floors: BTreeMap::new(),
            selected: BTreeMap::new(),
            updated: BTreeMap::new(),
            hits: 0,
        }
    }

    /// A manager labels a Node.
    fn selected(&mut self, write: &Write, node: &Value, truth: &dyn Truth) -> Result<(), String> {
        let from = write.sent - self.max_lag;
        let machines = truth.objects("machines");
        let Some(machine) = machines.iter().find(|machine| is_of(machine, node)) else {
            return Ok(());
        };
        let Some(deployment) = deployment_of(truth, machine) else {
            return Ok(());
        };
        self.selected.insert(uid(machine).to_owned(), write.by);
        let served = self.serving.get(uid(machine)).and_then(|(since, _)| *since);
        if served.is_none_or(|since| since > from) {
            return Ok(());
        }
        let others = machines.iter().filter(|other| {
            let until = self.serving.get(uid(other));
            let own = self.selected.get(uid(other)) == Some(&write.by);
            let serves = until.is_some_and(|(since, until)| since.is_some() || (*until >= from && !own));
            uid(other) != uid(machine) && deployment_of(truth, other).as_ref() == Some(&deployment) && serves
        });
        let left = i64::try_from(others.count()).unwrap_or(i64::MAX);
        let floors = self.floors.get(&deployment).map_or(&[][..], Vec::as_slice);
        let first = floors.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let least = floors.iter().skip(first).map(|(_, floor)| *floor).min().unwrap_or(0);
        self.hits += 1;
        match left >= least {
            true => Ok(()),
            false => Err(format!(
                "machine {} is to be updated in place: {left} others serve, or did not long ago, and {least} have to",
                name(machine)
            )),
        }
    }

    /// A manager gives a Machine another controller.
    fn moved(&mut self, write: &Write, before: &Value, after: &Value, truth: &dyn Truth) -> Result<(), String> {
        if controller(before).is_empty() || controller(after).is_empty() || controller(before) == controller(after) {
            return Ok(());
        }
        // A set that somebody made again may have the same template.
        let class = |owner: &str| {
            let set = by_uid(truth, "machinesets", owner);
            set.map(|set| text(&set, "/spec/template/spec/class/name").to_owned())
        };
        let (from, to) = (class(controller(before)), class(controller(after)));
        if from.is_some() && from == to {
            return Ok(());
        }
        self.hits += 1;
        let id = text(after, "/spec/providerID");
        let was_updated = self
            .updated
            .get(id)
            .is_some_and(|last| *last + self.max_lag >= write.sent);
        let mut nodes = truth.objects("nodes").into_iter();
        let is_updated = was_updated || nodes.any(|node| is_of(after, &node) && text(&node, RESULT) == SUCCESSFUL);
        match is_updated && phase(before) != "InPlaceUpdating" {
            true => Ok(()),
            false => Err(format!(
                "machine {} ({}) was moved to another set, and nobody said that it is updated",
                name(after),
                phase(before)
            )),
        }
    }

    fn note(&mut self, at: Timestamp, write: &Write, truth: &dyn Truth) {
        let Some(object) = write.object() else { return };
        match write.resource.as_str() {
            "machinedeployments" => {
                let least = (number(object, "/spec/replicas") - bounds(object).1).max(0);
                self.floors.entry(uid(object).to_owned()).or_default().push((at, least));
            }
            "machines" => self.serves(at, object, truth),
            "nodes" => {
                let said = write.before.iter().chain(&write.after);
                if said.into_iter().any(|node| text(node, RESULT) == SUCCESSFUL) {
                    self.updated.insert(text(object, "/spec/providerID").to_owned(), at);
                }
                let machines = truth.objects("machines");
                let own = machines.iter().find(|machine| is_of(machine, object));
                own.into_iter().for_each(|machine| self.serves(at, machine, truth));
            }
            _ => {}
        }
    }

    fn serves(&mut self, at: Timestamp, machine: &Value, truth: &dyn Truth) {
        let nodes = truth.objects("nodes");
        let node = nodes.iter().find(|node| is_of(machine, node));
        let is_updated = node.is_some_and(|node| !text(node, SELECTED).is_empty() || text(node, RESULT) == SUCCESSFUL);
        let stands = by_uid(truth, "machines", uid(machine)).is_some_and(|machine| !is_deleting(&machine));
        let serves = stands && phase(machine) == "Running" && !is_updated;
        let entry = self
            .serving
            .entry(uid(machine).to_owned())
            .or_insert((None, Timestamp::MIN));
        match (serves, entry.0) {
            (true, None) => {
                entry.0 = Some(at);
                self.selected.remove(uid(machine));
            }
            (false, Some(_)) => *entry = (None, at),
            (true, Some(_)) | (false, None) => {}
        }
    }
}

fn is_of(machine: &Value, node: &Value) -> bool {
    let id = text(machine, "/spec/providerID");
    !id.is_empty() && text(node, "/spec/providerID") == id
}

fn deployment_of(truth: &dyn Truth, machine: &Value) -> Option<String> {
    let set = by_uid(truth, "machinesets", controller(machine))?;
    Some(controller(&set).to_owned()).filter(|owner| !owner.is_empty())
}

impl Oracle for InPlace {
    fn id(&self) -> &'static str {
        "S22"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        if !write.accepted {
            return Ok(());
        }
        let is_new = |before: &Arc<Value>, after: &Arc<Value>| {
            text(before, SELECTED).is_empty() && !text(after, SELECTED).is_empty()
        };
        let judged = match (write.by, write.resource.as_str(), &write.before, &write.after) {
            (By::Manager(_), "nodes", Some(before), Some(after)) if is_new(before, after) => {
                self.selected(write, after, truth)
            }
            (By::Manager(_), "machines", Some(before), Some(after)) => self.moved(write, before, after, truth),
            _ => Ok(()),
        };
        self.note(event.at, write, truth);
        judged
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
