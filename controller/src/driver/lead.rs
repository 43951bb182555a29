//! What this process's lead means to its driver calls: the epoch that they carry, and whether they may still leave.
//!
//! Kubernetes refuses an older leader's writes by their resourceVersion and the client's fence; a cloud knows nothing of the
//! lease. So a call that changes something is asked here at the last moment, after all waiting (S14).

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::kube::leadership::{Leadership, LeadershipReader};

/// The lead under which a process works. One for its life: a manager that loses the lease exits.
#[derive(Debug)]
pub struct Lead {
    /// One higher than the epoch, so that zero can mean "not known".
    epoch: AtomicU64,
    leadership: LeadershipReader,
}

impl Lead {
    /// Not begun: calls carry no epoch, and drivers serve them.
    pub const fn new(leadership: LeadershipReader) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            leadership,
        }
    }

    /// Of a process beside which there is no other.
    pub fn alone() -> Self {
        Self::new(watch::channel(Leadership::ALONE).1)
    }

    /// Work begins under this epoch, `Lease.spec.leaseTransitions`.
    pub fn begin(&self, epoch: u32) {
        self.epoch.store(u64::from(epoch) + 1, Ordering::Release);
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        self.epoch.load(Ordering::Acquire).checked_sub(1)
    }

    /// Whether a call that changes something may leave at `now`. What was planned under one lead may not under a later one,
    /// before which somebody else may have led.
    pub(super) fn may_change(&self, now: Instant) -> bool {
        let leadership = *self.leadership.borrow();
        let is_that_one = leadership.epoch().map(u64::from) == self.epoch();
        is_that_one && leadership.may_act(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn leading(epoch: u32, valid_until: Option<Instant>) -> Leadership {
        Leadership::Leader {
            epoch: Some(epoch),
            valid_until,
        }
    }

    #[test]
    fn the_first_leader_has_an_epoch_too() {
        let (_leads, leadership) = watch::channel(Leadership::Unknown);
        let lead = Lead::new(leadership);
        assert_eq!(lead.epoch(), None);
        lead.begin(0);
        assert_eq!(lead.epoch(), Some(0));
        lead.begin(7);
        assert_eq!(lead.epoch(), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_changed_before_the_lead_after_its_time_or_under_another_one() {
        let now = Instant::now();
        let (leads, leadership) = watch::channel(Leadership::Unknown);
        let lead = Lead::new(leadership);
        assert!(!lead.may_change(now));

        lead.begin(3);
        let until = now + Duration::from_secs(10);
        leads.send_replace(leading(3, Some(until)));
        assert!(lead.may_change(now));
        assert!(!lead.may_change(until));

        leads.send_replace(leading(5, None));
        assert!(!lead.may_change(now), "somebody else led in between");
        leads.send_replace(Leadership::Follower);
        assert!(!lead.may_change(now));
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_no_lease_changes_what_it_will() {
        assert!(Lead::alone().may_change(Instant::now()));
    }
}
