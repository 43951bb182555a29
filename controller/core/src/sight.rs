//! Since when this process sees what it judges, and the one rule of timeouts that follows from it.
//!
//! Time counts only while the manager could see (GE-5): an outage, a restart or a lost
//! lease burns no timeout, because nobody knows what would have been seen meanwhile. Persisted times may have been written by a
//! wrong clock too; a timeout that begins no earlier than this process's own view is immune to that. Pure: times are passed in.

use jiff::{SignedDuration, Timestamp};

/// Since when, without a gap, this process leads and its views are complete and current. `None`: not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// This process leads.
    pub lead_since: Timestamp,
    /// Objects of the control cluster.
    pub control_since: Option<Timestamp>,
    /// Nodes of the target cluster. Without a target cluster the same as `control_since`.
    pub target_since: Option<Timestamp>,
    /// The driver of the object in question answers.
    pub driver_since: Option<Timestamp>,
}

/// What must have been seen all the while for a timeout to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judging {
    /// Whether a driver brings a VM: the driver must have been there.
    Driver,
    /// Whether a Node joins: the driver and the target cluster must have been there.
    Join,
    /// Whether a rollout moves: the target cluster must have been there.
    Rollout,
    /// Whether pods go: the target cluster must have been there.
    Drain,
}

impl Sight {
    /// A process that has always seen everything; for tests.
    pub const CLEAR: Self = Self {
        lead_since: Timestamp::MIN,
        control_since: Some(Timestamp::MIN),
        target_since: Some(Timestamp::MIN),
        driver_since: Some(Timestamp::MIN),
    };

    /// Since when everything is seen that the judgement rests on. `None`: something is out of sight now.
    pub fn since(&self, judging: Judging) -> Option<Timestamp> {
        let base = self.lead_since.max(self.control_since?);
        match judging {
            Judging::Driver => Some(base.max(self.driver_since?)),
            Judging::Rollout | Judging::Drain => Some(base.max(self.target_since?)),
            Judging::Join => Some(base.max(self.driver_since?).max(self.target_since?)),
        }
    }

    /// When a timeout of `limit` that began at `since` runs out. `None`: it does not run now.
    pub fn deadline(&self, since: Timestamp, limit: SignedDuration, judging: Judging) -> Option<Timestamp> {
        Some(later(since.max(self.since(judging)?), limit))
    }

    /// Whether a timeout of `limit` that began at `since` has run out.
    pub fn expired(&self, since: Timestamp, limit: SignedDuration, judging: Judging, now: Timestamp) -> bool {
        self.deadline(since, limit, judging)
            .is_some_and(|deadline| deadline <= now)
    }
}

/// A time so much later, or the last one there is: durations come from users and drivers, and an overflow would panic.
pub fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: SignedDuration = SignedDuration::from_mins(20);

    fn at(minute: i64) -> Timestamp {
        Timestamp::constant(1_893_456_000, 0) + SignedDuration::from_mins(minute)
    }

    fn seen(lead: i64, target: Option<i64>, driver: Option<i64>) -> Sight {
        Sight {
            lead_since: at(lead),
            control_since: Some(at(0)),
            target_since: target.map(at),
            driver_since: driver.map(at),
        }
    }

    #[test]
    fn a_timeout_counts_from_when_all_was_in_sight() {
        let sight = seen(5, Some(30), Some(10));
        assert_eq!(sight.deadline(at(0), LIMIT, Judging::Driver), Some(at(30)));
        assert_eq!(sight.deadline(at(0), LIMIT, Judging::Join), Some(at(50)));
        assert_eq!(sight.deadline(at(40), LIMIT, Judging::Join), Some(at(60)));
    }

    #[test]
    fn a_timeout_does_not_run_out_in_the_dark() {
        let late = at(10_000);
        assert!(!seen(0, None, Some(0)).expired(at(0), LIMIT, Judging::Join, late));
        assert!(!seen(0, Some(0), None).expired(at(0), LIMIT, Judging::Driver, late));
        assert!(seen(0, None, Some(0)).expired(at(0), LIMIT, Judging::Driver, late));
    }

    #[test]
    fn a_limit_without_end_never_runs_out() {
        let sight = seen(0, Some(0), Some(0));
        assert_eq!(
            sight.deadline(at(0), SignedDuration::MAX, Judging::Join),
            Some(Timestamp::MAX)
        );
        assert!(!sight.expired(at(0), SignedDuration::MAX, Judging::Join, at(1)));
    }
}
