//! S14: nothing is written and no driver is called by a manager whose lease has run out or is about to, nor in an epoch that is
//! over.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, By, Event, Method, Write};
use crate::object::{number, text};
use crate::oracle::Oracle;
use crate::truth::Truth;

/// What an accepted claim of the lease gives to a manager.
#[derive(Clone, Copy)]
struct Claim {
    /// When it was accepted.
    since: Timestamp,
    /// When it ends, less the margin in which nothing is begun.
    until: Timestamp,
    epoch: i64,
}

pub(crate) struct Fenced {
    elects: bool,
    margin: SignedDuration,
    /// All of each manager, the newest last: a write that comes late was sent under an earlier one.
    claims: BTreeMap<By, Vec<Claim>>,
    /// All epochs that drivers were told.
    told: BTreeSet<i64>,
    hits: u64,
}

impl Fenced {
    /// A driver is told the epoch that its caller holds. One that remembers a higher epoch than the Lease knows is told one above that, if
    /// it names it, else one that is higher by 1024; four times as much is added at each further try.
    fn may_tell(&self, told: i64, held: i64) -> bool {
        let above = |remembered: &i64| remembered.checked_add(1)?.checked_sub(held).filter(|ahead| *ahead > 0);
        let mut begins = self.told.iter().filter_map(above).chain([1024]);
        let leads_to = |ahead: i64| held.checked_add(ahead) == Some(told);
        told == held || begins.any(|ahead| successors(Some(ahead), |ahead| ahead.checked_mul(4)).any(leads_to))
    }

    pub(crate) fn new(elects: bool, margin: SignedDuration) -> Self {
        Self {
            elects,
            margin,
            claims: BTreeMap::new(),
            told: BTreeSet::new(),
            hits: 0,
        }
    }

    fn note(&mut self, at: Timestamp, write: &Write) {
        let Some(lease) = write.after.as_ref().filter(|_| write.accepted) else {
            return;
        };
        let claims = self.claims.entry(write.by).or_default();
        if text(lease, "/spec/holderIdentity").is_empty() {
            // Whoever gives the lease back has done its work before it says so.
            for claim in claims {
                claim.until = claim.until.min(write.sent);
            }
            return;
        }
        let lasts = SignedDuration::from_secs(number(lease, "/spec/leaseDurationSeconds"));
        let claim = Claim {
            since: at,
            // By the holder's own clock the lease runs from the moment at which it asked for it.
            until: write.sent + lasts - self.margin,
            epoch: number(lease, "/spec/leaseTransitions"),
        };
        claims.push(claim);
    }

    /// The epochs in which it may send this: two for a moment, where a new claim was accepted and its answer is on its way.
    fn judge(&mut self, by: By, sent: Timestamp, what: &str) -> Result<Vec<i64>, String> {
        self.hits += 1;
        let claims = self.claims.get(&by).map(Vec::as_slice).unwrap_or_default();
        let held = claims.iter().filter(|claim| claim.since <= sent && sent <= claim.until);
        let epochs: Vec<i64> = held.map(|claim| claim.epoch).collect();
        match claims.last() {
            Some(_) if !epochs.is_empty() => Ok(epochs),
            Some(claim) => Err(format!(
                "{by:?}, who had to end {} s before its lease, at {}, sent {what} at {sent}",
                self.margin.as_secs(),
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
                self.note(event.at, write);
                Ok(())
            }
            Act::Write(write) => {
                let what = format!("{:?} of {}", write.verb, write.resource);
                self.judge(write.by, write.sent, &what).map(drop)
            }
            Act::Call(call) if call.method != Method::Other => {
                let held = self.judge(call.by, event.at, &format!("{:?}", call.method))?;
                let epoch = call.epoch.and_then(|epoch| i64::try_from(epoch).ok());
                match epoch.is_some_and(|epoch| held.iter().any(|held| self.may_tell(epoch, *held))) {
                    true => {
                        self.told.extend(epoch);
                        Ok(())
                    }
                    false => Err(format!(
                        "{:?} carries epoch {epoch:?} and leads in {:?}",
                        call.by,
                        held.last()
                    )),
                }
            }
            Act::Call(call) => {
                self.told.extend(call.epoch.and_then(|epoch| i64::try_from(epoch).ok()));
                Ok(())
            }
            Act::List { .. }
            | Act::Listed { .. }
            | Act::Foreign { .. }
            | Act::Heard(_)
            | Act::Vm { .. }
            | Act::Said { .. }
            | Act::Started(_)
            | Act::Crashed(_)
            | Act::TargetAway
            | Act::TargetBack
            | Act::ClockSet
            | Act::Rest
            | Act::Unrest => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
