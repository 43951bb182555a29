//! Whether this process may act, as a value that everything which writes can ask.
//!
//! `lease.rs` is the only one that sets it; the client's fence, the workers and the driver calls read it.

use tokio::sync::watch;
use tokio::time::Instant;

/// What is known of who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// The lease was not read yet.
    Unknown,
    /// Somebody else leads, or nobody, or we did and the time is up.
    Follower,
    /// We lead.
    Leader {
        /// Grows with every new leader; sent to drivers. Absent where leader election is off.
        epoch: Option<u32>,
        /// Nothing may be started from this moment on, unless a renewal moved it. It lies before the moment at which
        /// others may take over, so that what is under way can end. Absent where leader election is off.
        valid_until: Option<Instant>,
    },
}

impl Leadership {
    /// The state without leader election: one process, always leading.
    pub const ALONE: Self = Self::Leader {
        epoch: None,
        valid_until: None,
    };

    /// Whether something that changes the world may be started at `now`.
    pub fn may_act(&self, now: Instant) -> bool {
        match self {
            Self::Unknown | Self::Follower => false,
            Self::Leader { valid_until, .. } => valid_until.is_none_or(|until| now < until),
        }
    }

    /// Whether we lead, and under this epoch: the term in which the work that asks was begun.
    pub fn is_term(&self, begun_under: Option<u32>) -> bool {
        match self {
            Self::Unknown | Self::Follower => false,
            Self::Leader { epoch, .. } => *epoch == begun_under,
        }
    }

    /// What drivers are told, where we lead.
    pub fn epoch(&self) -> Option<u32> {
        match self {
            Self::Unknown | Self::Follower => None,
            Self::Leader { epoch, .. } => *epoch,
        }
    }
}

/// Where leadership is read. Cheap to clone.
pub type LeadershipReader = watch::Receiver<Leadership>;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_leader_stops_at_the_end_of_its_time_even_when_nobody_says_so() {
        let now = Instant::now();
        let leader = Leadership::Leader {
            epoch: Some(3),
            valid_until: Some(now + Duration::from_secs(10)),
        };

        assert!(leader.may_act(now));
        assert!(!leader.may_act(now + Duration::from_secs(10)));
    }

    #[test]
    fn another_epoch_is_another_term_even_without_a_pause_between_them() {
        let leader = |epoch| Leadership::Leader {
            epoch,
            valid_until: None,
        };
        assert!(leader(Some(3)).is_term(Some(3)));
        assert!(!leader(Some(4)).is_term(Some(3)));
        assert!(!Leadership::Follower.is_term(Some(3)));
        assert!(Leadership::ALONE.is_term(None));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_know_or_follows_does_not_act() {
        assert!(!Leadership::Unknown.may_act(Instant::now()));
        assert!(!Leadership::Follower.may_act(Instant::now()));
        assert!(Leadership::ALONE.may_act(Instant::now()));
    }
}
