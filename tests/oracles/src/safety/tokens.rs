//! S17: when a Machine is released, its bootstrap token is gone: nobody who comes later looks for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::event::{Act, By, Event, Verb, Write};
use crate::object::{FINALIZER, has_finalizer, is_token, name, text, uid};
use crate::oracle::Oracle;
use crate::truth::Truth;

/// On a token's Secret: the uid of its Machine.
const OWNER: &str = "/metadata/annotations/machine.sapcloud.io~1machine-uid";

/// A request that took no longer was answered, if its sender lived on.
const PROMPT: SignedDuration = SignedDuration::from_millis(200);

/// One that took longer was delayed by the network, and its sender gave it up long ago. What it makes expires with its token.
const HELD: SignedDuration = SignedDuration::from_secs(60);

pub(crate) struct Tokens {
    max_lag: SignedDuration,
    may_be_away: bool,
    /// From when on each token must be known of, by its Secret's uid.
    made: BTreeMap<String, Timestamp>,
    hits: u64,
}

impl Tokens {
    pub(crate) fn new(max_lag: SignedDuration, may_be_away: bool) -> Self {
        Self {
            max_lag,
            may_be_away,
            made: BTreeMap::new(),
            hits: 0,
        }
    }

    /// A token that comes while its Machine is released may have been sent long before, by a request that was given up. One that came as
    /// soon as it was sent is known to whoever sent it.
    fn released(&mut self, write: &Write, truth: &dyn Truth) -> Result<(), String> {
        let Some(machine) = &write.before else { return Ok(()) };
        self.hits += 1;
        let tokens = truth.objects("secrets");
        let left = tokens.iter().find(|secret| {
            let since = self.made.get(uid(secret));
            is_token(secret) && text(secret, OWNER) == uid(machine) && since.is_none_or(|since| *since < write.sent)
        });
        match left {
            None => Ok(()),
            // The end of the run judges what is left for good.
            Some(_) if self.may_be_away => Ok(()),
            Some(token) => Err(format!(
                "machine {} was released, and its bootstrap token {} is left",
                name(machine),
                name(token)
            )),
        }
    }
}

impl Oracle for Tokens {
    fn id(&self) -> &'static str {
        "S17"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        if !write.accepted {
            return Ok(());
        }
        if let ("secrets", Verb::Create, Some(made)) = (write.resource.as_str(), write.verb, &write.after) {
            let known = match event.at.duration_since(write.sent) {
                took if took < PROMPT => event.at + PROMPT,
                took if took < HELD => event.at + self.max_lag,
                _ => Timestamp::MAX,
            };
            self.made.insert(uid(made).to_owned(), known);
        }
        let held = |object: &Option<Arc<Value>>| object.as_ref().is_some_and(|it| has_finalizer(it, FINALIZER));
        let is_release = write.resource == "machines" && held(&write.before) && !held(&write.after);
        match (write.by, is_release) {
            (By::Manager(_), true) => self.released(write, truth),
            (_, _) => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
