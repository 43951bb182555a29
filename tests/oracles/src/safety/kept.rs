//! S21: a Machine that failed and is preserved stays until its time is over: no manager deletes it, but where its set has one too many, goes,
//! or the autoscaler named it, or where somebody deleted its Node. And of the Machines of a deployment no more are preserved without being
//! asked than it allows.
//!
//! What a manager may not have seen yet is not charged to it. Runs in which a clock was set are not judged by the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::event::{Act, By, Event, Verb, Write};
use crate::object::{controller, is_deleting, name, number, phase, text, time, uid};
use crate::oracle::Oracle;
use crate::truth::{Truth, by_uid};

/// How far a manager's clock may be from the API server's without having been set.
const APART: SignedDuration = SignedDuration::from_secs(30);
/// Until when a Machine is preserved.
pub(crate) const UNTIL: &str = "/status/currentStatus/preserveExpiryTime";
/// What is wished for it.
pub(crate) const WISH: &str = "/metadata/annotations/node.machine.sapcloud.io~1preserve";
/// What its Node last wished.
pub(crate) const LAST: &str = "/metadata/annotations/node.machine.sapcloud.io~1last-applied-node-preserve-value";
/// Wishes by which a Machine that failed is kept.
pub(crate) const KEEPS: [&str; 3] = ["now", "when-failed", AUTO];
/// What a set writes there.
const AUTO: &str = "auto-preserved";
/// The autoscaler's list on a deployment, and its marks on a Machine.
const LIST: &str = "/metadata/annotations/node.machine.sapcloud.io~1trigger-deletion-by-mcm";
const MARK: &str = "/metadata/annotations/machine.sapcloud.io~1marked-for-deletion-time";
/// How many a deployment, or a set without one, preserves unasked.
const MOST: &str = "/spec/autoPreserveFailedMachineMax";

pub(crate) struct Kept {
    max_lag: SignedDuration,
    is_clock_set: bool,
    /// Since when Machines are Failed and preserved, by uid.
    since: BTreeMap<String, Timestamp>,
    /// Sets that have, or had, more Machines than they want: whether they have, and when they last had.
    surplus: BTreeMap<String, (bool, Timestamp)>,
    /// What owners last allowed to preserve unasked, and the most that they did since a while ago.
    most: BTreeMap<String, Vec<(Timestamp, i64)>>,
    hits: u64,
}

impl Kept {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self {
            max_lag,
            is_clock_set: false,
            since: BTreeMap::new(),
            surplus: BTreeMap::new(),
            most: BTreeMap::new(),
            hits: 0,
        }
    }

    fn note(&mut self, at: Timestamp, write: &Write, truth: &dyn Truth) {
        let Some(object) = write.object() else { return };
        let (own, stored) = (uid(object).to_owned(), write.after.as_ref());
        let set = match write.resource.as_str() {
            "machines" => {
                match stored.is_some_and(|machine| is_kept(machine)) {
                    true => drop(self.since.entry(own).or_insert(at)),
                    false => drop(self.since.remove(&own)),
                }
                controller(object).to_owned()
            }
            "machinesets" | "machinedeployments" => {
                let most = number(object, MOST).max(0);
                self.most.entry(own.clone()).or_default().push((at, most));
                own
            }
            _ => return,
        };
        let has = by_uid(truth, "machinesets", &set).is_some_and(|set| has_surplus(truth, &set));
        let before = self.surplus.get(&set).copied();
        let last = match (has, before) {
            (true, _) | (false, Some((true, _))) => Some(at),
            (false, Some((false, last))) => Some(last),
            (false, None) => None,
        };
        self.surplus.extend(last.map(|last| (set, (has, last))));
    }

    /// A manager deletes a Machine.
    fn deleted(&mut self, write: &Write, victim: &Value, truth: &dyn Truth) -> Result<(), String> {
        let from = write.sent - self.max_lag;
        let is_seen = self.since.get(uid(victim)).is_some_and(|since| *since <= from);
        let runs = time(victim, UNTIL).is_some_and(|until| until > write.sent + APART);
        if !is_kept(victim) || !is_seen || !runs || self.is_clock_set {
            return Ok(());
        }
        self.hits += 1;
        let set = by_uid(truth, "machinesets", controller(victim));
        let owner = set
            .as_ref()
            .and_then(|set| by_uid(truth, "machinedeployments", controller(set)));
        let goes = |it: &Option<Arc<Value>>| it.as_ref().is_none_or(|it| is_deleting(it));
        let is_led = set.as_ref().is_some_and(|set| !controller(set).is_empty());
        let is_named = !text(victim, MARK).is_empty() || owner.as_ref().is_some_and(|it| !text(it, LIST).is_empty());
        let surplus = self.surplus.get(controller(victim));
        let is_surplus = surplus.is_some_and(|(has, last)| *has || *last >= from);
        let lost_node = !truth.objects("nodes").iter().any(|node| {
            let is_own = text(node, "/spec/providerID") == text(victim, "/spec/providerID");
            is_own && !is_deleting(node)
        });
        let may_go = goes(&set) || (is_led && goes(&owner)) || is_named || is_surplus || lost_node;
        match may_go {
            true => Ok(()),
            false => Err(format!(
                "machine {} was deleted, which is preserved until {}",
                name(victim),
                text(victim, UNTIL)
            )),
        }
    }

    /// A manager preserves a Machine without being asked.
    fn taken(&mut self, write: &Write, machine: &Value, truth: &dyn Truth) -> Result<(), String> {
        self.hits += 1;
        let sets = truth.objects("machinesets");
        let Some(set) = sets.iter().find(|set| uid(set) == controller(machine)) else {
            return Ok(());
        };
        let led = truth
            .objects("machinedeployments")
            .iter()
            .any(|it| uid(it) == controller(set));
        let owner = if led { controller(set) } else { uid(set) };
        let is_of_owner = |machine: &Arc<Value>| {
            let mut own = sets.iter().filter(|set| uid(set) == owner || controller(set) == owner);
            own.any(|set| uid(set) == controller(machine))
        };
        let marked = truth.objects("machines");
        let marked = marked
            .iter()
            .filter(|it| text(it, WISH) == AUTO && !is_deleting(it) && is_of_owner(it));
        let count = i64::try_from(marked.count()).unwrap_or(i64::MAX);
        let from = write.sent - self.max_lag;
        let known = self.most.get(owner).map(Vec::as_slice).unwrap_or_default();
        let first = known.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let most = known.iter().skip(first).map(|(_, most)| *most).max().unwrap_or(0);
        match count <= most {
            true => Ok(()),
            false => Err(format!("{count} machines are preserved unasked, where {most} may be")),
        }
    }
}

/// Failed, and its time is told.
fn is_kept(machine: &Value) -> bool {
    phase(machine) == "Failed" && time(machine, UNTIL).is_some() && !is_deleting(machine)
}

fn has_surplus(truth: &dyn Truth, set: &Value) -> bool {
    let machines = truth.objects("machines");
    let own = machines
        .iter()
        .filter(|it| controller(it) == uid(set) && !is_deleting(it));
    i64::try_from(own.count()).unwrap_or(i64::MAX) > number(set, "/spec/replicas")
}

impl Oracle for Kept {
    fn id(&self) -> &'static str {
        "S21"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let write = match &event.act {
            Act::ClockSet => {
                self.is_clock_set = true;
                return Ok(());
            }
            Act::Write(write) if write.accepted => write,
            _ => return Ok(()),
        };
        let judged = match (write.by, &write.before, &write.after) {
            (By::Manager(_), Some(victim), _) if write.resource == "machines" && write.verb == Verb::Delete => {
                self.deleted(write, victim, truth)
            }
            (By::Manager(_), Some(before), Some(after))
                if write.resource == "machines" && text(after, WISH) == AUTO && text(before, WISH) != AUTO =>
            {
                self.taken(write, after, truth)
            }
            _ => Ok(()),
        };
        self.note(event.at, write, truth);
        judged
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
