//! S3: a VM is removed only if its Machine is to be deleted, or exists no more; and the manager deletes a Machine only for a
//! reason that its specs or its fate give: its set goes or has too many, it failed, its Node was deleted, the autoscaler
//! marked or named it.
//!
//! Whether a set has too many is judged by all that a manager could have seen: Machines that were there at any time within
//! the longest lag, but not those that this same manager had already deleted, and the smallest size that was wanted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::event::{Act, By, Event, Verb, VmChange, Write};
use crate::object::{controller, is_deleting, name, number, phase, text, uid};
use crate::oracle::Oracle;
use crate::truth::{Truth, by_uid};

/// The autoscaler's wish on a Machine, and its list on a deployment, `name~time,…`.
const TRIGGER: &str = "/metadata/annotations/node.machine.sapcloud.io~1trigger-deletion-by-mcm";

pub(crate) struct WrongKill {
    max_lag: SignedDuration,
    /// Machines of each set's uid, by their own uid: until when they stayed, if they went.
    staying: BTreeMap<String, BTreeMap<String, Option<Timestamp>>>,
    /// Which of them each manager deleted.
    deleted: BTreeMap<By, BTreeSet<String>>,
    /// Of each set's uid: since when it was to have how many.
    sizes: BTreeMap<String, Vec<(Timestamp, i64)>>,
    /// Sets that were deleted, by uid.
    gone_sets: BTreeSet<String>,
    /// The ids of VMs whose Node somebody deleted, and the names of such Nodes.
    gone_nodes: BTreeSet<String>,
    /// Names of Machines that stood on the autoscaler's list: until when, if they do no more.
    named: BTreeMap<String, Option<Timestamp>>,
    /// Which sets a Machine was of, and when last, by the Machine's uid.
    owners: BTreeMap<String, BTreeMap<String, Timestamp>>,
    hits: u64,
}

impl WrongKill {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self {
            max_lag,
            staying: BTreeMap::new(),
            deleted: BTreeMap::new(),
            sizes: BTreeMap::new(),
            gone_sets: BTreeSet::new(),
            gone_nodes: BTreeSet::new(),
            named: BTreeMap::new(),
            owners: BTreeMap::new(),
            hits: 0,
        }
    }

    fn note(&mut self, at: Timestamp, write: &Write) {
        if let ("machines", Some(machine)) = (write.resource.as_str(), &write.before) {
            let owners = self.owners.entry(uid(machine).to_owned()).or_default();
            owners.insert(controller(machine).to_owned(), at);
        }
        match (write.resource.as_str(), &write.before, &write.after) {
            ("machinedeployments", before, after) => {
                self.named.extend(names(before.as_deref()).map(|name| (name, Some(at))));
                self.named.extend(names(after.as_deref()).map(|name| (name, None)));
            }
            ("machinesets", _, Some(set)) if !is_deleting(set) => {
                let sizes = self.sizes.entry(uid(set).to_owned()).or_default();
                let size = number(set, "/spec/replicas");
                if sizes.last().is_none_or(|(_, last)| *last != size) {
                    sizes.push((at, size));
                }
            }
            ("machinesets", Some(set), _) => drop(self.gone_sets.insert(uid(set).to_owned())),
            ("machines", _, Some(machine)) if !is_deleting(machine) => {
                let of_set = self.staying.entry(controller(machine).to_owned()).or_default();
                of_set.insert(uid(machine).to_owned(), None);
            }
            ("machines", Some(machine), _) => {
                let of_set = self.staying.entry(controller(machine).to_owned()).or_default();
                of_set.entry(uid(machine).to_owned()).or_insert(None).get_or_insert(at);
            }
            ("nodes", Some(node), after) if after.as_ref().is_none_or(|after| is_deleting(after)) => {
                self.gone_nodes.insert(text(node, "/spec/providerID").to_owned());
                self.gone_nodes.insert(name(node).to_owned());
            }
            _ => {}
        }
    }

    /// A Machine that a manager deletes, as it was until now.
    fn deletion(&mut self, write: &Write, machine: &Value, truth: &dyn Truth) -> Result<(), String> {
        self.hits += 1;
        let of = uid(machine);
        let has_reason = phase(machine) == "Failed"
            || self.gone_nodes.contains(text(machine, "/spec/providerID"))
            || self.gone_nodes.contains(text(machine, "/metadata/labels/node"))
            || text(machine, TRIGGER) == "true"
            || self.was_named(write, name(machine))
            || self.is_surplus(write, controller(machine), truth)
            || self.was_surplus(write, of, truth);
        self.deleted.entry(write.by).or_default().insert(of.to_owned());
        match has_reason {
            true => Ok(()),
            false => Err(format!(
                "machine {} was deleted, which was wanted and well",
                name(machine)
            )),
        }
    }

    /// Whether a manager could have seen the Machine on the autoscaler's list.
    fn was_named(&self, write: &Write, machine: &str) -> bool {
        let from = write.sent - self.max_lag;
        let until = self.named.get(machine);
        until.is_some_and(|until| until.is_none_or(|until| until >= from))
    }

    /// The same for sets that the Machine was of as late as a manager could have seen: a human may have orphaned it since.
    fn was_surplus(&self, write: &Write, machine: &str, truth: &dyn Truth) -> bool {
        let from = write.sent - self.max_lag;
        let owners = self.owners.get(machine).into_iter().flatten();
        owners
            .filter(|(_, until)| **until >= from)
            .any(|(owner, _)| self.is_surplus(write, owner, truth))
    }

    /// Whether a manager could have seen a set that goes, or has more than it wants.
    fn is_surplus(&self, write: &Write, set: &str, truth: &dyn Truth) -> bool {
        if set.is_empty() {
            return false;
        }
        let Some(stands) = by_uid(truth, "machinesets", set) else {
            return true;
        };
        if self.gone_sets.contains(set) || is_deleting(&stands) {
            return true;
        }
        let from = write.sent - self.max_lag;
        let own = self.deleted.get(&write.by);
        let machines = self.staying.get(set).into_iter().flatten();
        let seen = machines
            .filter(|(_, until)| until.is_none_or(|until| until >= from))
            .filter(|(machine, _)| !own.is_some_and(|own| own.contains(*machine)));
        let count = i64::try_from(seen.count()).unwrap_or(i64::MAX);
        let sizes = self.sizes.get(set).map(Vec::as_slice).unwrap_or_default();
        let first = sizes.iter().rposition(|(since, _)| *since <= from).unwrap_or(0);
        let least = sizes.iter().skip(first).map(|(_, size)| *size).min();
        count > least.unwrap_or_else(|| number(&stands, "/spec/replicas"))
    }
}

/// The names on a deployment's list.
fn names(deployment: Option<&Value>) -> impl Iterator<Item = String> {
    let list = deployment.map_or("", |deployment| text(deployment, TRIGGER)).split(',');
    let names = list.filter_map(|entry| entry.split('~').next());
    names.filter(|name| !name.is_empty()).map(|name| name.trim().to_owned())
}

impl Oracle for WrongKill {
    fn id(&self) -> &'static str {
        "S3"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Write(write) if write.accepted => {
                let deleted = write
                    .before
                    .as_ref()
                    .filter(|_| write.verb == Verb::Delete && write.resource == "machines")
                    .filter(|machine| matches!(write.by, By::Manager(_)) && !is_deleting(machine));
                let judged = match deleted {
                    Some(machine) => self.deletion(write, machine, truth),
                    None => Ok(()),
                };
                self.note(event.at, write);
                judged
            }
            Act::Vm {
                by: By::Manager(_),
                change: VmChange::Leaving { uid, id },
            } => {
                self.hits += 1;
                match by_uid(truth, "machines", uid) {
                    Some(machine) if !is_deleting(&machine) => Err(format!(
                        "VM {id} was removed, but nobody deleted its machine {}",
                        name(&machine)
                    )),
                    Some(_) | None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
