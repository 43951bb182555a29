//! S13: who was told to wait waits. After a driver call about a Machine has failed, the same call is not sent again before its backoff is
//! over: 5 s, doubled with each failure in a row up to 10 min, or what the driver asked for; a fifth earlier at most, for the jitter
//! that keeps what failed together from coming back together. And while a provider asks an account to pause, no other call of
//! that account leaves, whichever Machine it is about; a deletion waits for half a minute of it.
//!
//! Judged for each process and each of its terms as leader, since backoff is nobody's but its own, and for creations and deletions. A user
//! who changes the Machine, its class or a Secret meanwhile ends the wait. Runs in which a clock was set are not judged: backoff counts by
//! the wall clock.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::event::{Act, By, Call, Event, Heard, Method, Outcome, Write};
use crate::object::text;
use crate::oracle::Oracle;
use crate::truth::{Truth, by_uid};

const FIRST: SignedDuration = SignedDuration::from_secs(5);
const LEAST: SignedDuration = SignedDuration::from_secs(1);
const MOST: SignedDuration = SignedDuration::from_mins(10);
/// So long a deletion waits for a pause that was asked for on another call: one that is far too long holds up no end of a VM.
const FOR_DELETION: SignedDuration = SignedDuration::from_secs(30);
/// A driver's clock and a manager's share no instant.
const SLACK: SignedDuration = SignedDuration::from_millis(50);

/// The last call of a process about a Machine, which failed.
struct Failed {
    method: Method,
    times: u32,
    at: Timestamp,
    pause: SignedDuration,
}

#[derive(Default)]
pub(crate) struct Polite {
    failed: BTreeMap<(By, String), Failed>,
    /// When a provider asked an account of a process to pause, by the Secret's name, and until when.
    paused: BTreeMap<(By, String), (Timestamp, Timestamp)>,
    /// Under which epoch of leadership processes last sent such a call.
    epochs: BTreeMap<By, Option<u64>>,
    is_clock_set: bool,
    hits: u64,
}

impl Polite {
    fn heard(&mut self, at: Timestamp, heard: &Heard, truth: &dyn Truth) {
        let key = (heard.by, heard.uid.clone());
        let before = self.failed.remove(&key);
        if let Outcome::Throttled(pause) = heard.outcome
            && let Some(account) = account_of(truth, &heard.uid)
        {
            let until = at + pause.min(MOST);
            let known = self.paused.entry((heard.by, account)).or_insert((at, until));
            *known = (at, known.1.max(until));
        }
        let before = before.filter(|before| before.method == heard.method);
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let pause = match heard.outcome {
            Outcome::Transient => FIRST.saturating_mul(1 << (times - 1).min(8)).min(MOST),
            Outcome::Later(pause) | Outcome::Throttled(pause) => pause.clamp(LEAST, MOST),
            Outcome::Done | Outcome::Refused => return,
        };
        if heard.method != Method::Other {
            let (method, pause) = (heard.method, pause * 4 / 5 - SLACK);
            self.failed.insert(
                key,
                Failed {
                    method,
                    times,
                    at,
                    pause,
                },
            );
        }
    }

    fn called(&mut self, at: Timestamp, call: &Call, truth: &dyn Truth) -> Result<(), String> {
        if self.is_clock_set || call.method == Method::Other {
            return Ok(());
        }
        let before = self.epochs.insert(call.by, call.epoch);
        if before.is_some_and(|before| before != call.epoch) {
            self.failed.retain(|(by, _), _| *by != call.by);
            self.paused.retain(|(by, _), _| *by != call.by);
        }
        let account = account_of(truth, &call.uid);
        let paused = account.and_then(|account| self.paused.get(&(call.by, account)));
        if let Some((since, until)) = paused {
            self.hits += 1;
            let until = match call.method {
                Method::DeleteMachine => (*until).min(*since + FOR_DELETION),
                Method::CreateMachine | Method::Other => *until,
            };
            if at > *since && at + SLACK < until {
                return Err(format!(
                    "{:?} was sent for {} while the provider's pause lasts until {until}",
                    call.method, call.uid
                ));
            }
        }
        let Some(failed) = self.failed.get(&(call.by, call.uid.clone())) else {
            return Ok(());
        };
        if failed.method != call.method || by_uid(truth, "machines", &call.uid).is_none() {
            return Ok(());
        }
        self.hits += 1;
        if failed.at + failed.pause <= at {
            return Ok(());
        }
        Err(format!(
            "{:?} was sent again for {} {} ms after its failure number {} in a row",
            call.method,
            call.uid,
            at.duration_since(failed.at).as_millis(),
            failed.times
        ))
    }

    /// A user changed something that may have been the cause, or the Machine began to go.
    fn wrote(&mut self, write: &Write) {
        match write.resource.as_str() {
            "machineclasses" | "secrets" if !matches!(write.by, By::Manager(_)) => self.failed.clear(),
            "machines" if !matches!(write.by, By::Manager(_)) => {
                if let Some(machine) = write.object() {
                    let uid = crate::object::uid(machine);
                    self.failed.retain(|(_, of), _| of != uid);
                }
            }
            _ => {}
        }
    }
}

/// The name of the Secret with which the driver is called for a Machine.
fn account_of(truth: &dyn Truth, uid: &str) -> Option<String> {
    let machine = by_uid(truth, "machines", uid)?;
    let named = text(&machine, "/spec/class/name").to_owned();
    let classes = truth.objects("machineclasses");
    let mut classes = classes.iter().filter(|class| crate::object::name(class) == named);
    let of = |class: &Value| text(class, "/secretRef/name").to_owned();
    classes.next().map(|class| of(class))
}

impl Oracle for Polite {
    fn id(&self) -> &'static str {
        "S13"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Heard(heard) => self.heard(event.at, heard, truth),
            Act::Call(call) => return self.called(event.at, call, truth),
            Act::Write(write) if write.accepted => self.wrote(write),
            Act::ClockSet => self.is_clock_set = true,
            _ => {}
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
