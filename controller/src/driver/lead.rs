//! What this process's lead means to its driver calls: the epoch that they carry, and whether they may still leave.
//!
//! Kubernetes refuses an older leader's writes by their resourceVersion and the client's fence; a cloud knows nothing of the
//! lease. So a call that changes something is asked here at the last moment, after all waiting (S14).

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::kube::error::ReadError;
use crate::kube::leadership::{Leadership, LeadershipReader};
use crate::kube::lease::LeaseReader;

/// The lead under which a process works, one for each term, each of which has an epoch of its own.
#[derive(Debug)]
pub struct Lead {
    term: Mutex<Option<Term>>,
    leadership: LeadershipReader,
    lease: Option<LeaseReader>,
}

/// A term that was begun.
#[derive(Clone, Copy, Debug)]
struct Term {
    epoch: Option<u32>,
    since: Instant,
}

impl Lead {
    /// Not begun: calls carry no epoch, and drivers serve them. Nobody is asked who leads.
    pub const fn new(leadership: LeadershipReader) -> Self {
        Self {
            term: Mutex::new(None),
            leadership,
            lease: None,
        }
    }

    /// Not begun. In doubt the Lease itself is read.
    pub fn of_lease(leadership: LeadershipReader, lease: LeaseReader) -> Self {
        Self {
            lease: Some(lease),
            ..Self::new(leadership)
        }
    }

    /// Of a process beside which there is no other.
    pub fn alone() -> Self {
        Self::new(watch::channel(Leadership::ALONE).1)
    }

    /// Work begins under this epoch, `Lease.spec.leaseTransitions`; under none without leader election.
    pub fn begin(&self, epoch: impl Into<Option<u32>>) {
        let term = Term {
            epoch: epoch.into(),
            since: Instant::now(),
        };
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = Some(term);
    }

    fn term(&self) -> Option<Term> {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When work began under this lead. `None`: it did not yet.
    pub fn since(&self) -> Option<Instant> {
        self.term().map(|term| term.since)
    }

    /// Asks the API server whether the Lease is still this term's: for who hears from a driver that a newer leader has
    /// spoken. One driver's word is no proof, because it may remember an epoch that was never ours or be at fault.
    /// Without leader election there is no other leader.
    pub async fn still_leads(&self) -> Result<bool, ReadError> {
        let Some(lease) = &self.lease else {
            return Ok(true);
        };
        match self.term().and_then(|term| term.epoch) {
            Some(epoch) => lease.is_held_under(epoch).await,
            None => Ok(false),
        }
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        self.term()?.epoch.map(u64::from)
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
    async fn work_counts_from_the_beginning_of_its_term() {
        let lead = Lead::alone();
        assert_eq!(lead.since(), None);
        tokio::time::advance(Duration::from_secs(60)).await;
        lead.begin(None);
        assert_eq!(lead.since(), Some(Instant::now()));
        assert_eq!(lead.epoch(), None);
    }

    #[tokio::test]
    async fn without_an_election_no_other_leader_is_believed_in() {
        let lead = Lead::alone();
        lead.begin(None);
        assert!(matches!(lead.still_leads().await, Ok(true)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_no_lease_changes_what_it_will() {
        assert!(Lead::alone().may_change(Instant::now()));
    }
}
