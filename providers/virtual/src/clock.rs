//! The one place of this crate that reads the clock, and the seam for those who lend another.
//!
//! Every instant in the simulated cloud is an absolute one, taken here and stored, so that a VM's life goes on while
//! the process is dead.

use std::time::Duration;

use jiff::Timestamp;

/// What a cloud gets from outside: the time, and ids that were never given before.
pub trait Outside: Send + Sync + 'static {
    /// The wall clock. Instants are stored across restarts, hence no monotonic one.
    fn now(&self) -> Timestamp;
    /// 128 bits of chance.
    fn chance(&self) -> u128;
}

/// The system's clock and its random ids.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Outside for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn chance(&self) -> u128 {
        uuid::Uuid::new_v4().as_u128()
    }
}

/// The system's wall clock.
pub(crate) fn now() -> Timestamp {
    System.now()
}

/// `at + wait`, held at the end of time instead of failing: no delay of a simulation is worth a panic.
pub(crate) fn after(at: Timestamp, wait: Duration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// How long until `at`; zero once it has passed.
pub(crate) fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}
