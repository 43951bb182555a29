//! S20: a leader gives its lead up only when it is asked to end, when it could not renew its lease in time, or when the Lease is
//! somebody else's by then. What a driver says of leaders is no reason: the Lease says who leads.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, By, Event, Write};
use crate::object::text;
use crate::panel::Oracle;
use crate::truth::Truth;

pub(crate) struct LeadKept {
    elects: bool,
    /// How long a claim of the lease holds for its holder, counted from when it was sent.
    holds: SignedDuration,
    /// Who holds the lease, and when the claim was sent.
    holder: Option<(By, Timestamp)>,
    /// Who gave it back while its claim held.
    gave_back: BTreeMap<By, Timestamp>,
    hits: u64,
}

impl LeadKept {
    pub(crate) fn new(elects: bool, holds: SignedDuration) -> Self {
        Self {
            elects,
            holds,
            holder: None,
            gave_back: BTreeMap::new(),
            hits: 0,
        }
    }

    fn note(&mut self, write: &Write) {
        let claims = write
            .after
            .as_ref()
            .is_some_and(|lease| !text(lease, "/spec/holderIdentity").is_empty());
        if claims && matches!(write.by, By::Manager(_)) {
            self.holder = Some((write.by, write.sent));
            return;
        }
        if let Some((_, claimed)) = self.holder.take_if(|(holder, _)| *holder == write.by)
            && write.sent < claimed + self.holds
        {
            self.gave_back.insert(write.by, write.sent);
        }
        // Whoever else wrote it took the lead from its holder.
        self.holder = None;
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
                self.note(write);
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
