//! S19: nobody takes over what is on its way out: a Machine or set that is being deleted gets no new controller.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, By, Event, Write};
use crate::object::{controller, is_deleting, name, uid};
use crate::oracle::Oracle;
use crate::truth::Truth;

pub(crate) struct Adoption {
    max_lag: SignedDuration,
    /// Since when each object is on its way out, by its uid.
    leaving: BTreeMap<String, Timestamp>,
    hits: u64,
}

impl Adoption {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self {
            max_lag,
            leaving: BTreeMap::new(),
            hits: 0,
        }
    }

    fn judge(&mut self, write: &Write) -> Result<(), String> {
        let (Some(before), Some(after)) = (&write.before, &write.after) else {
            return Ok(());
        };
        if !controller(before).is_empty() || controller(after).is_empty() {
            return Ok(());
        }
        self.hits += 1;
        match self.leaving.get(uid(before)) {
            Some(since) if *since + self.max_lag < write.sent => Err(format!(
                "{} {} was adopted, which is being deleted since {since}",
                write.resource,
                name(before)
            )),
            Some(_) | None => Ok(()),
        }
    }
}

impl Oracle for Adoption {
    fn id(&self) -> &'static str {
        "S19"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        if !write.accepted || !matches!(write.resource.as_str(), "machines" | "machinesets") {
            return Ok(());
        }
        let judged = match write.by {
            By::Manager(_) => self.judge(write),
            By::Human | By::Cluster | By::Kubelet | By::Cloud => Ok(()),
        };
        if let Some(object) = write.after.as_ref().filter(|after| is_deleting(after)) {
            self.leaving.entry(uid(object).to_owned()).or_insert(event.at);
        }
        judged
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
