//! The one place of this crate that reads the clock.
//!
//! Every instant in the simulated cloud is an absolute one, taken here and stored, so that a VM's life goes on while
//! the process is dead.

use std::time::Duration;

use jiff::Timestamp;

/// The wall clock. Instants are stored across restarts, hence no monotonic clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// `at + wait`, held at the end of time instead of failing: no delay of a simulation is worth a panic.
pub(crate) fn after(at: Timestamp, wait: Duration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// How long until `at`; zero once it has passed.
pub(crate) fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}
