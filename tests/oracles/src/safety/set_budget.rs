//! S4: after a creation of ours a set has no more machines than it was to have at some time since the view that the creation
//! rested on.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::event::{Act, By, Event, Verb, Write};
use crate::object::{controller, is_deleting, name, number, selects, uid};
use crate::oracle::Oracle;
use crate::settings::Settings;
use crate::truth::{Truth, by_uid};

pub(crate) struct SetBudget {
    max_lag: SignedDuration,
    /// Writes are refused in this run, so that a Machine that is to be released may stay.
    are_writes_refused: bool,
    /// Of each set's uid: since when it was to have how many.
    sizes: BTreeMap<String, Vec<(Timestamp, i64)>>,
    /// Since when a manager has had to count each Machine, by its uid: since its creation was sent, and since it could have been
    /// seen where somebody else made it.
    known: BTreeMap<String, Timestamp>,
    /// Uids of Machines that managers made.
    ours: BTreeSet<String>,
    /// Names that a Machine ever had.
    names: BTreeSet<String>,
    hits: u64,
}

impl SetBudget {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            max_lag: settings.max_lag,
            are_writes_refused: settings.writes_may_be_refused,
            sizes: BTreeMap::new(),
            known: BTreeMap::new(),
            ours: BTreeSet::new(),
            names: BTreeSet::new(),
            hits: 0,
        }
    }

    /// Gives whether a Machine was made under a name that none had before.
    fn note(&mut self, at: Timestamp, write: &Write) -> bool {
        let mut is_first = false;
        if let (Verb::Create, "machines", Some(made)) = (write.verb, write.resource.as_str(), &write.after) {
            is_first = self.names.insert(name(made).to_owned());
            let known = match write.by {
                By::Manager(_) => {
                    self.ours.insert(uid(made).to_owned());
                    write.sent
                }
                By::Human | By::Kubelet | By::Cluster | By::Cloud => at + self.max_lag,
            };
            self.known.insert(uid(made).to_owned(), known);
        }
        if let ("machinesets", Some(set)) = (write.resource.as_str(), &write.after) {
            let sizes = self.sizes.entry(uid(set).to_owned()).or_default();
            let size = number(set, "/spec/replicas");
            if sizes.last().is_none_or(|(_, last)| *last != size) {
                sizes.push((at, size));
            }
        }
        is_first
    }

    /// The largest size that held at some time since `from`.
    fn allowed(&self, set: &str, from: Timestamp) -> Option<i64> {
        let sizes = self.sizes.get(set)?;
        let first = sizes.iter().rposition(|(since, _)| *since <= from).unwrap_or(0);
        sizes.iter().skip(first).map(|(_, size)| *size).max()
    }
}

impl Oracle for SetBudget {
    fn id(&self) -> &'static str {
        "S4"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        let is_first = self.note(event.at, write);
        let (By::Manager(_), Verb::Create, "machines", Some(made)) =
            (write.by, write.verb, write.resource.as_str(), &write.after)
        else {
            return Ok(());
        };
        let owner = controller(made);
        if !write.accepted || owner.is_empty() {
            return Ok(());
        }
        self.hits += 1;
        let machines = truth.objects("machines");
        // A creation that arrives late is judged against what was there when it was sent: nothing can take it back. Creations that were
        // sent after it have to count it, because a name under which no Machine was seen yet stays open; they exceed the budget now.
        let is_earlier = |machine: &str| self.known.get(machine).is_none_or(|known| *known <= write.sent);
        let is_counted = |machine: &str| is_earlier(machine) || (is_first && self.ours.contains(machine));
        let set = by_uid(truth, "machinesets", owner);
        // One that its set does not select any more is to be released, and where that is refused it holds up nothing.
        let has_selector = |set: &Value| set.pointer("/spec/selector").is_some();
        let may_be_released = |set: &Value| self.are_writes_refused && has_selector(set);
        let is_selected = |machine: &Value| {
            let released = set.as_ref().filter(|set| may_be_released(set));
            released.is_none_or(|set| selects(set, machine))
        };
        let own = machines.iter().filter(|machine| {
            controller(machine) == owner && !is_deleting(machine) && is_counted(uid(machine)) && is_selected(machine)
        });
        let count = i64::try_from(own.count()).unwrap_or(i64::MAX);
        // A set that was there before the record began has the size that it has now.
        let now = set.as_ref().map_or(0, |set| number(set, "/spec/replicas"));
        let allowed = self.allowed(owner, write.sent - self.max_lag).unwrap_or(now);
        if count > allowed {
            return Err(format!(
                "with {} its set has {count} machines, and was to have {allowed} at most",
                name(made)
            ));
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
