//! S14: nothing is written and no driver is called by a manager whose lease has run out, nor in an epoch that is over.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, By, Event, Method, Write};
use crate::object::{number, text};
use crate::panel::Oracle;
use crate::truth::Truth;

/// What a manager's last accepted claim of the lease gives it.
#[derive(Clone, Copy)]
struct Claim {
    until: Timestamp,
    epoch: i64,
}

pub(crate) struct Fenced {
    elects: bool,
    claims: BTreeMap<By, Claim>,
    hits: u64,
}

impl Fenced {
    pub(crate) fn new(elects: bool) -> Self {
        Self {
            elects,
            claims: BTreeMap::new(),
            hits: 0,
        }
    }

    fn note(&mut self, write: &Write) {
        let Some(lease) = write.after.as_ref().filter(|_| write.accepted) else {
            return;
        };
        if text(lease, "/spec/holderIdentity").is_empty() {
            self.claims.remove(&write.by);
            return;
        }
        let lasts = SignedDuration::from_secs(number(lease, "/spec/leaseDurationSeconds"));
        let claim = Claim {
            // By the holder's own clock the lease runs from the moment at which it asked for it.
            until: write.sent + lasts,
            epoch: number(lease, "/spec/leaseTransitions"),
        };
        self.claims.insert(write.by, claim);
    }

    fn judge(&mut self, by: By, sent: Timestamp, what: &str) -> Result<i64, String> {
        self.hits += 1;
        match self.claims.get(&by) {
            Some(claim) if sent <= claim.until => Ok(claim.epoch),
            Some(claim) => Err(format!(
                "{by:?}, whose lease ran out at {}, sent {what} at {sent}",
                claim.until
            )),
            None => Err(format!("{by:?}, who never held the lease, sent {what} at {sent}")),
        }
    }
}

impl Oracle for Fenced {
    fn id(&self) -> &'static str {
        "S14"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        if !self.elects {
            return Ok(());
        }
        match &event.act {
            Act::Write(write) if !matches!(write.by, By::Manager(_)) || write.resource == "events" => Ok(()),
            Act::Write(write) if write.resource == "leases" => {
                self.note(write);
                Ok(())
            }
            Act::Write(write) => {
                let what = format!("{:?} of {}", write.verb, write.resource);
                self.judge(write.by, write.sent, &what).map(drop)
            }
            Act::Call(call) if call.method != Method::Other => {
                let held = self.judge(call.by, event.at, &format!("{:?}", call.method))?;
                match call.epoch {
                    Some(epoch) if i64::try_from(epoch) == Ok(held) => Ok(()),
                    other => Err(format!("{:?} carries epoch {other:?} and leads in {held}", call.by)),
                }
            }
            Act::List { .. }
            | Act::Call(_)
            | Act::Vm { .. }
            | Act::Said { .. }
            | Act::Started(_)
            | Act::Crashed(_)
            | Act::Rest
            | Act::Unrest => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
