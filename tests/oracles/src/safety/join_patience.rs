//! S6, as far as machines exist: no Machine is given up for not having joined while nobody can see whether it has, nor before its time
//! has passed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::event::{Act, By, Event, Write};
use crate::object::{name, phase, text, uid};
use crate::oracle::Oracle;
use crate::truth::Truth;

/// How the status says so; people and programs look for these words of the original's.
const GIVEN_UP: &str = "failed to join the cluster";

/// A manager follows a wall clock that was set by one part in so many of the time that passes.
const FOLLOWED: i32 = 10;

pub(crate) struct JoinPatience {
    timeout: SignedDuration,
    /// How old a view may be, and how far clocks may be apart.
    slack: SignedDuration,
    /// Whether a clock that was set is judged.
    is_steady: bool,
    /// Since when the target cluster is away; when it last came back.
    away: Option<Timestamp>,
    back: Option<Timestamp>,
    /// When a wall clock was last set.
    set: Option<Timestamp>,
    /// When each Machine came into its phase, by its uid.
    since: BTreeMap<String, Timestamp>,
    hits: u64,
}

impl JoinPatience {
    pub(crate) fn new(timeout: SignedDuration, slack: SignedDuration, is_steady: bool) -> Self {
        Self {
            timeout,
            slack,
            is_steady,
            away: None,
            back: None,
            set: None,
            since: BTreeMap::new(),
            hits: 0,
        }
    }

    fn judge(&mut self, write: &Write, machine: &serde_json::Value) -> Result<(), String> {
        self.hits += 1;
        if let Some(away) = self.away.filter(|away| *away + self.slack < write.sent) {
            return Err(format!(
                "machine {} was given up for not joining while the target cluster is away, since {away}",
                name(machine)
            ));
        }
        let Some(since) = self.since.get(uid(machine)).copied() else {
            return Ok(());
        };
        if self
            .back
            .is_some_and(|back| since < back && write.sent < back + self.slack)
        {
            return Err(format!(
                "machine {} was given up for not joining as soon as the target cluster was back",
                name(machine)
            ));
        }
        let waited = write.sent.duration_since(since);
        let was_set = self.set.is_some_and(|set| set >= since);
        // A clock that was set earlier may still be followed.
        let followed = self.set.map_or(SignedDuration::ZERO, |_| self.timeout / FOLLOWED);
        match self.is_steady && !was_set && waited < self.timeout - self.slack - followed {
            false => Ok(()),
            true => Err(format!(
                "machine {} was given up for not joining after {waited:#}, and had {:#}",
                name(machine),
                self.timeout
            )),
        }
    }

    fn wrote(&mut self, at: Timestamp, write: &Write) -> Result<(), String> {
        let Some(after) = &write.after else { return Ok(()) };
        let before = write.before.as_ref().map_or("", |before| phase(before));
        if write.before.is_some() && before == phase(after) {
            return Ok(());
        }
        let is_given_up =
            phase(after) == "Failed" && text(after, "/status/lastOperation/description").contains(GIVEN_UP);
        let judged = match write.by {
            By::Manager(_) if is_given_up => self.judge(write, after),
            _ => Ok(()),
        };
        self.since.insert(uid(after).to_owned(), at);
        judged
    }
}

impl Oracle for JoinPatience {
    fn id(&self) -> &'static str {
        "S6"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Write(write) if write.accepted && write.resource == "machines" => self.wrote(event.at, write),
            Act::TargetAway => {
                self.away = Some(event.at);
                Ok(())
            }
            Act::TargetBack => {
                self.away = None;
                self.back = Some(event.at);
                Ok(())
            }
            Act::ClockSet => {
                self.set = Some(event.at);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
