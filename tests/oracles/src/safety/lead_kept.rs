//! S20: what a driver says of leaders is no reason to give the lead up: the Lease says who leads. And where nobody elects a leader, no
//! lead can be lost.
//!
//! Judged is a manager that ends right after a driver has spoken of a leader that there is not. When it may have failed to renew its
//! lease is not seen from here: answers that it never heard look as if it had. Such a manager may take a lease that somebody emptied
//! once more before it ends; by that new epoch it is known.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, By, Event, Write};
use crate::object::text;
use crate::panel::Oracle;
use crate::truth::Truth;

/// How soon a manager ends that believes a driver: what it has under way is waited for.
const SOON: SignedDuration = SignedDuration::from_secs(8);
/// A claim that took longer to arrive may have been given up by then: its sender does not count on it.
const PROMPT: SignedDuration = SignedDuration::from_secs(1);

pub(crate) struct LeadKept {
    elects: bool,
    /// How long a claim of the lease holds for its holder, counted from when it was sent.
    holds: SignedDuration,
    /// When a driver last spoke of a leader that there is not.
    alarm: Option<Timestamp>,
    /// Who holds the lease, when the claim was sent, and whether it was renewed before the one before it ran out.
    holder: Option<(By, Timestamp, bool)>,
    /// Who claimed it last, when that was sent, and whether it was never late before. It outlives the Lease: who could not renew it in
    /// time has to end, even if it takes it again meanwhile.
    last: Option<(By, Timestamp, bool)>,
    /// Who gave it back while its claim was young: not because it could not be renewed.
    gave_back: BTreeMap<By, Timestamp>,
    /// The epoch of the last claim.
    epoch: Option<u64>,
    hits: u64,
}

impl LeadKept {
    pub(crate) fn new(elects: bool, holds: SignedDuration) -> Self {
        Self {
            elects,
            holds,
            alarm: None,
            holder: None,
            last: None,
            gave_back: BTreeMap::new(),
            epoch: None,
            hits: 0,
        }
    }

    fn note(&mut self, at: Timestamp, write: &Write) {
        let claims = write
            .after
            .as_ref()
            .is_some_and(|lease| !text(lease, "/spec/holderIdentity").is_empty());
        let is_claim = claims && matches!(write.by, By::Manager(_));
        if is_claim && at.duration_since(write.sent) > PROMPT {
            self.stands_anew(write);
            self.holder = Some((write.by, write.sent, false));
            return;
        }
        if is_claim {
            let is_steady = self
                .last
                .is_none_or(|(claimer, claimed, was)| claimer != write.by || was && write.sent < claimed + self.holds);
            self.last = Some((write.by, write.sent, is_steady));
            self.stands_anew(write);
            self.holder = Some((write.by, write.sent, is_steady));
            return;
        }
        let is_alarmed = self.alarm.is_some_and(|alarm| write.sent < alarm + SOON);
        if let Some((_, claimed, true)) = self.holder.take_if(|(holder, ..)| *holder == write.by)
            && write.sent < claimed + self.holds
            && is_alarmed
        {
            self.gave_back.insert(write.by, write.sent);
        }
        // Whoever else wrote it took the lead from its holder.
        self.holder = None;
    }

    /// Who believed the driver would not stand for the lease again: a claim under a new epoch that left after the alarm shows that the
    /// driver's word was not what ended the old term. Renewals show nothing: they go on while a term ends.
    fn stands_anew(&mut self, claim: &Write) {
        let lease = claim.object();
        let epoch = lease.and_then(|lease| lease.pointer("/spec/leaseTransitions")?.as_u64());
        if epoch != self.epoch {
            self.alarm.take_if(|alarm| *alarm < claim.sent);
        }
        self.epoch = epoch;
    }

    fn ended(&mut self, by: By) -> Result<(), String> {
        self.hits += 1;
        if !self.elects {
            return Err(format!(
                "{by:?} ended for the loss of a lead that nobody can take from it"
            ));
        }
        match self.gave_back.get(&by) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{by:?} gave its lease back at {at}, which was its own, and ended"
            )),
        }
    }
}

impl Oracle for LeadKept {
    fn id(&self) -> &'static str {
        "S20"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Write(write) if write.accepted && write.resource == "leases" => {
                self.note(event.at, write);
                Ok(())
            }
            Act::FalseLeader => {
                self.alarm = Some(event.at);
                Ok(())
            }
            Act::LostLead(by) => self.ended(*by),
            _ => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
