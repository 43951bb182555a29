//! S18: a VM is asked for only for a Machine that was there, and was not being deleted, when the manager last asked the API server
//! itself. A cache may be minutes old; the answer to a read is not.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, Call, Event, Method};
use crate::object::{is_deleting, uid};
use crate::oracle::Oracle;
use crate::truth::Truth;

pub(crate) struct LiveRead {
    read_lag: SignedDuration,
    /// Since when each Machine is on its way out, or gone, by its uid.
    leaving: BTreeMap<String, Timestamp>,
    hits: u64,
}

impl LiveRead {
    pub(crate) fn new(read_lag: SignedDuration) -> Self {
        Self {
            read_lag,
            leaving: BTreeMap::new(),
            hits: 0,
        }
    }

    fn called(&mut self, at: Timestamp, call: &Call) -> Result<(), String> {
        self.hits += 1;
        match self.leaving.get(&call.uid) {
            Some(since) if *since + self.read_lag < at => Err(format!(
                "a VM was asked for the machine of uid {}, which is being deleted since {since}",
                call.uid
            )),
            Some(_) | None => Ok(()),
        }
    }
}

impl Oracle for LiveRead {
    fn id(&self) -> &'static str {
        "S18"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Write(write) if write.accepted && write.resource == "machines" => {
                let leaves = write.after.as_ref().is_none_or(|after| is_deleting(after));
                if let Some(machine) = write.object().filter(|_| leaves) {
                    self.leaving.entry(uid(machine).to_owned()).or_insert(event.at);
                }
                Ok(())
            }
            Act::Call(call) if call.method == Method::CreateMachine => self.called(event.at, call),
            _ => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
