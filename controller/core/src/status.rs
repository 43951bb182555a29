//! What the statuses of sets and deployments have in common: how often they are written, and how they are compared.
//!
//! Decides nothing of what they say.

use jiff::{SignedDuration, Timestamp};

use crate::api::Time;
use crate::sight::later;

/// Changes of the counts within this time become one status write.
pub(crate) const STATUS_PACE: SignedDuration = SignedDuration::from_millis(250);

/// The write of a status if its turn has come, else when it will. The last one was `written`.
pub(crate) fn paced<C>(
    change: Option<C>,
    written: Option<Timestamp>,
    pace: SignedDuration,
    now: Timestamp,
) -> (Option<C>, Option<Timestamp>) {
    let due = written.map(|at| later(at, pace)).filter(|due| *due > now);
    match (change, due) {
        (None, _) => (None, None),
        (Some(_), Some(due)) => (None, Some(due)),
        (Some(change), None) => (Some(change), None),
    }
}

/// A time as the API server keeps it: in whole seconds.
pub(crate) fn stored_time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// Absent and empty say the same, as Go's writers leave out what is empty.
pub(crate) fn text_is_same(one: Option<&String>, other: Option<&String>) -> bool {
    one.map_or("", String::as_str) == other.map_or("", String::as_str)
}
