//! S16: a Machine that the autoscaler named is not exchanged for another: a name leaves the deployment's list only when its Machine is on
//! its way. Which of the others goes first is judged at each plan (`controller/core-laws/src/set.rs`).

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::Value;

use crate::event::{Act, By, Event, Write};
use crate::object::{controller, is_deleting, name, phase, text, time, uid};
use crate::oracle::Oracle;
use crate::truth::Truth;

/// The autoscaler's list on a deployment, `name~time,…`.
const LIST: &str = "/metadata/annotations/node.machine.sapcloud.io~1trigger-deletion-by-mcm";

pub(crate) struct NamedVictims {
    max_lag: SignedDuration,
    hits: u64,
}

impl NamedVictims {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self { max_lag, hits: 0 }
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

impl Oracle for NamedVictims {
    fn id(&self) -> &'static str {
        "S16"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        if write.accepted && write.resource == "machinedeployments" && matches!(write.by, By::Manager(_)) {
            self.hits += u64::from(forgets(write, truth, self.max_lag)?);
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
