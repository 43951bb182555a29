//! Virtual time: since a run began, as clocks that are right tell it, and as the cloud gets it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use millwright_provider_virtual::clock::Outside as CloudOutside;
use tokio::time::Instant;

use crate::choices::mix;

/// The wall clock when a run begins.
pub const DAWN: Timestamp = Timestamp::constant(1_893_456_000, 0);

/// Virtual time, for all who share the run.
#[derive(Clone, Copy, Debug)]
pub struct Time(Instant);

impl Time {
    /// Begins now.
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Since the run began.
    pub fn passed(self) -> Duration {
        self.0.elapsed()
    }

    /// As wall clocks that are right tell it.
    pub fn wall(self) -> Timestamp {
        after(DAWN, self.passed())
    }
}

/// A time on the wall clock.
pub fn after(at: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| at.checked_add(wait).ok())
        .unwrap_or(Timestamp::MAX)
}

/// What the cloud gets from outside.
pub struct CloudSky {
    time: Time,
    count: Mutex<u64>,
}

impl CloudSky {
    /// What such a cloud gets, over this run.
    pub fn new(time: Time) -> Self {
        Self {
            time,
            count: Mutex::new(0),
        }
    }
}

impl CloudOutside for CloudSky {
    fn now(&self) -> Timestamp {
        self.time.wall()
    }

    fn chance(&self) -> u128 {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        let (high, low) = (mix(*count), mix(!*count));
        u128::from(high) << 64 | u128::from(low)
    }
}
