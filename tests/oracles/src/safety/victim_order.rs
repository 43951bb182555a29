//! S16: of two Machines that a set could do without, the one deleted is the one that ranks first: by priority, then by phase, from those
//! that never were anything to those that run, then the oldest, then by name (MS-7).
//!
//! Judged by what a manager could have seen: a Machine counts with the worst place that it had at any time since the oldest view that the
//! deletion may rest on, the victim with its best. Sets in which somebody marked, preserved or chose otherwise are left out.
//!
//! And whom the autoscaler named is not exchanged for another: a name leaves the deployment's list only when its Machine is on its way.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::event::{Act, By, Event, Verb, Write};
use crate::object::{controller, is_deleting, name, phase, text, time, uid};
use crate::oracle::Oracle;
use crate::truth::{Truth, by_uid};

/// Wishes that come before the phase; whoever has one is left out, with its whole set.
const WISHES: &[&str] = &[
    "/metadata/annotations/node.machine.sapcloud.io~1preserve",
    "/metadata/annotations/machine.sapcloud.io~1marked-for-deletion-time",
    "/metadata/annotations/node.machine.sapcloud.io~1trigger-deletion-by-mcm",
    "/metadata/annotations/cluster.k8s.io~1delete-machine",
    "/metadata/labels/node.machine.sapcloud.io~1update-result",
    "/status/currentStatus/preserveExpiryTime",
];

/// The autoscaler's list on a deployment, `name~time,…`.
const LIST: &str = "/metadata/annotations/node.machine.sapcloud.io~1trigger-deletion-by-mcm";

/// The place of a Machine in the order of leaving: the smaller goes first.
type Place = (i64, u8, Option<Timestamp>, String);

/// The lowest rank of a phase in which a Machine serves.
const AVAILABLE: u8 = 5;

/// What a Machine was from some moment on.
#[derive(Clone)]
struct Stood {
    since: Timestamp,
    /// Its place in the set of this uid; none while it goes, or is no set's.
    place: Option<(String, Place)>,
    has_wish: bool,
}

pub(crate) struct VictimOrder {
    max_lag: SignedDuration,
    /// Of each Machine's uid.
    history: BTreeMap<String, Vec<Stood>>,
    /// Of each Machine's name: which manager wants it deleted, and since when.
    condemned: BTreeMap<String, (By, Timestamp)>,
    /// Of each set's uid: since when it was to have how many.
    sizes: BTreeMap<String, Vec<(Timestamp, i64)>>,
    /// The ids of VMs whose Node somebody deleted, and the names of such Nodes: their Machines go for that.
    gone_nodes: BTreeSet<String>,
    hits: u64,
}

impl VictimOrder {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self {
            max_lag,
            history: BTreeMap::new(),
            condemned: BTreeMap::new(),
            sizes: BTreeMap::new(),
            gone_nodes: BTreeSet::new(),
            hits: 0,
        }
    }

    fn note(&mut self, at: Timestamp, write: &Write) {
        let Some(object) = write.object() else { return };
        match write.resource.as_str() {
            "machines" => {
                let stands = write.after.as_ref().filter(|after| !is_deleting(after));
                let owned = stands.filter(|machine| !controller(machine).is_empty());
                self.history.entry(uid(object).to_owned()).or_default().push(Stood {
                    since: at,
                    place: owned.map(|machine| (controller(machine).to_owned(), place(machine))),
                    has_wish: WISHES.iter().any(|wish| object.pointer(wish).is_some()),
                });
            }
            "machinesets" => {
                let size = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
                self.sizes.entry(uid(object).to_owned()).or_default().push((at, size));
            }
            "nodes" if write.after.as_ref().is_none_or(|after| is_deleting(after)) => {
                self.gone_nodes.insert(text(object, "/spec/providerID").to_owned());
                self.gone_nodes.insert(name(object).to_owned());
            }
            _ => {}
        }
    }

    /// All that a Machine was at some time since then; nothing where it was not there then, or is not known of before.
    fn since<'a>(&self, history: &'a [Stood], from: Timestamp) -> Option<&'a [Stood]> {
        let first = history.iter().rposition(|stood| stood.since <= from)?;
        history.get(first..)
    }

    fn judge(&mut self, write: &Write, victim: &Value, truth: &dyn Truth) -> Result<(), String> {
        let condemned = self.condemned.get(name(victim)).filter(|(by, _)| *by == write.by);
        let chosen = condemned.map_or(write.sent, |(_, since)| write.sent.min(*since));
        let (set, from) = (controller(victim), chosen - self.max_lag);
        let Some(stands) = by_uid(truth, "machinesets", set) else {
            return Ok(());
        };
        // Whom the autoscaler named goes first, whether or not a mark of it could be written to the Machine.
        let deployments = truth.objects("machinedeployments");
        let mut owners = deployments.iter().filter(|it| uid(it) == controller(&stands));
        let has_named = owners.any(|deployment| !text(deployment, LIST).is_empty());
        let is_ordinary = !is_deleting(&stands) && stands.pointer("/spec/deletePolicy").is_none() && !has_named;
        // A Machine that failed, or whose Node went, goes for its own sake.
        let lost = |pointer| self.gone_nodes.contains(text(victim, pointer));
        if !is_ordinary || phase(victim) == "Failed" || lost("/spec/providerID") || lost("/metadata/labels/node") {
            return Ok(());
        }
        let Some(was) = self
            .history
            .get(uid(victim))
            .and_then(|history| self.since(history, from))
        else {
            return Ok(());
        };
        let Some(best) = was.iter().filter_map(|stood| in_set(stood, set)).min() else {
            return Ok(());
        };
        let of_set = |history: &[Stood]| history.iter().any(|stood| in_set(stood, set).is_some());
        let all: Vec<&[Stood]> = self
            .history
            .values()
            .map(Vec::as_slice)
            .filter(|it| of_set(it))
            .collect();
        let recent = |history: &'_ [Stood]| history.iter().rposition(|stood| stood.since <= from).unwrap_or(0);
        if all
            .iter()
            .any(|history| history.iter().skip(recent(history)).any(|stood| stood.has_wish))
        {
            return Ok(());
        }
        // Whoever was there at some time since may have been counted.
        let counted = all.iter().filter(|history| {
            history
                .iter()
                .skip(recent(history))
                .any(|stood| in_set(stood, set).is_some())
        });
        let counted = i64::try_from(counted.count()).unwrap_or(i64::MAX);
        let sizes = self.sizes.get(set).map(Vec::as_slice).unwrap_or_default();
        let first = sizes.iter().rposition(|(since, _)| *since <= from).unwrap_or(0);
        let Some(least) = sizes.iter().skip(first).map(|(_, size)| *size).min() else {
            return Ok(());
        };
        self.hits += 1;
        // Machines that ranked before the victim's best place all the time. A Machine that serves may stay although it ranks first, and one
        // that does not serve goes instead: the deployment may have no available Machine to spare.
        let before: Vec<&Place> = all
            .iter()
            .filter_map(|history| {
                let worst: Option<Vec<&Place>> = self
                    .since(history, from)?
                    .iter()
                    .map(|stood| in_set(stood, set))
                    .collect();
                let serves = |place: &Place| place.1 >= AVAILABLE;
                let may_stay = |worst: &Place| serves(worst) && !serves(best);
                worst?
                    .into_iter()
                    .max()
                    .filter(|worst| *worst < best && !may_stay(worst))
            })
            .collect();
        let surplus = counted - least;
        match i64::try_from(before.len()).unwrap_or(i64::MAX) < surplus {
            true => Ok(()),
            false => Err(format!(
                "machine {} was deleted, {surplus} too many at most, and {} rank before it: {:?}",
                name(victim),
                before.len(),
                before.first()
            )),
        }
    }
}

/// A write of the manager to a deployment that takes the name of a Machine from the autoscaler's list although it stays.
fn forgets(write: &Write, truth: &dyn Truth, max_lag: SignedDuration) -> Result<bool, String> {
    let (Some(before), Some(after)) = (&write.before, &write.after) else {
        return Ok(false);
    };
    let kept = listed(after);
    let dropped: Vec<&str> = listed(before).into_iter().filter(|name| !kept.contains(name)).collect();
    let sets = truth.objects("machinesets");
    let is_own = |machine: &Value| {
        let mut sets = sets.iter().filter(|set| controller(set) == uid(before));
        sets.any(|set| uid(set) == controller(machine))
    };
    let is_known =
        |machine: &Value| time(machine, "/metadata/creationTimestamp").is_some_and(|made| made <= write.sent - max_lag);
    let stays = |machine: &Value| !is_deleting(machine) && phase(machine) != "Terminating";
    let machines = truth.objects("machines");
    let mut forgotten = machines
        .iter()
        .filter(|machine| dropped.contains(&name(machine)) && is_own(machine) && is_known(machine) && stays(machine));
    match forgotten.next() {
        Some(machine) => Err(format!(
            "the autoscaler named machine {}, which stays and is on the list no more",
            name(machine)
        )),
        None => Ok(!dropped.is_empty()),
    }
}

/// The names on a deployment's list.
fn listed(deployment: &Value) -> BTreeSet<&str> {
    let list = text(deployment, LIST).split(',');
    let names = list.filter_map(|entry| entry.split('~').next()).map(str::trim);
    names.filter(|name| !name.is_empty()).collect()
}

fn in_set<'a>(stood: &'a Stood, set: &str) -> Option<&'a Place> {
    stood.place.as_ref().filter(|(of, _)| of == set).map(|(_, place)| place)
}

fn place(machine: &Value) -> Place {
    let priority = text(machine, "/metadata/annotations/machinepriority.machine.sapcloud.io");
    let rank = match phase(machine) {
        "Failed" => 1,
        "CrashLoopBackOff" => 2,
        "Unknown" | "InPlaceUpdateFailed" => 3,
        "Pending" => 4,
        "Available" => AVAILABLE,
        "Running" | "InPlaceUpdating" | "InPlaceUpdateSuccessful" => 6,
        _ => 0,
    };
    let made = time(machine, "/metadata/creationTimestamp");
    (priority.parse().unwrap_or(3), rank, made, name(machine).to_owned())
}

impl Oracle for VictimOrder {
    fn id(&self) -> &'static str {
        "S16"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        if let Act::Condemns { by, machine } = &event.act {
            let known = self.condemned.entry(machine.clone()).or_insert((*by, event.at));
            if known.0 != *by {
                *known = (*by, event.at);
            }
        }
        let Act::Write(write) = &event.act else { return Ok(()) };
        if !write.accepted {
            return Ok(());
        }
        let is_victim =
            write.verb == Verb::Delete && write.resource == "machines" && matches!(write.by, By::Manager(_));
        let victim = write
            .before
            .as_ref()
            .filter(|machine| is_victim && !is_deleting(machine));
        let judged = match victim {
            Some(victim) if !controller(victim).is_empty() => self.judge(write, victim, truth),
            Some(_) | None => Ok(()),
        };
        if let Some(victim) = victim {
            self.condemned.remove(name(victim));
        }
        self.note(event.at, write);
        judged?;
        if write.resource == "machinedeployments" && matches!(write.by, By::Manager(_)) {
            self.hits += u64::from(forgets(write, truth, self.max_lag)?);
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
