//! What the API server refused of what we write, and when it may be tried again (GE-8).
//!
//! Decides only the pause. Whom a refusal stops, plans decide; where it is remembered, the ledger.

use jiff::{SignedDuration, Timestamp};

use crate::sight::later;

/// A write that the API server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The server's words.
    pub message: String,
    /// When it may be tried again.
    pub retry_at: Timestamp,
    /// How often in a row.
    pub times: u32,
}

impl Refusal {
    /// Whether it is too early to try again.
    pub fn holds(&self, now: Timestamp) -> bool {
        now < self.retry_at
    }

    /// The refusal after `before`, with a pause that doubles from 5 s to 1 min: quotas and webhooks are mended by people, who look at once.
    pub fn after(before: Option<&Self>, message: String, now: Timestamp) -> Self {
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let doublings = times.saturating_sub(1).min(4);
        let pause = SignedDuration::from_secs(5 << doublings).min(SignedDuration::from_mins(1));
        Self {
            message,
            retry_at: later(now, pause),
            times,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_refusal_grows_up_to_a_minute() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let mut refusal = Refusal::after(None, "no".to_owned(), now);
        assert_eq!(refusal.retry_at, now + SignedDuration::from_secs(5));
        for _ in 0..20 {
            refusal = Refusal::after(Some(&refusal), "no".to_owned(), now);
        }
        assert_eq!(refusal.retry_at, now + SignedDuration::from_mins(1));
    }
}
