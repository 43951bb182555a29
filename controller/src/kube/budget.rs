//! How fast requests may be sent: a token bucket for those who ask for one (`--kube-api-qps`).
//!
//! Off by default, since API servers share themselves out fairly (API Priority and Fairness). Where it is on, it holds
//! back neither watches nor the lease: a leader that waits for its own writes would lose the lease to them.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// A token bucket. Tokens may be owed: who comes when it is empty is told how long to wait, in order of arrival.
#[derive(Debug)]
pub struct Budget {
    /// Time that one token takes to come back.
    every: Duration,
    /// How far ahead of the present the bucket may be drained: the burst, as time.
    depth: Duration,
    /// When the bucket will be full again.
    full_at: Mutex<Option<Instant>>,
}

impl Budget {
    /// A bucket of `burst` tokens that come back at `qps` a second. `None` where `qps` is no positive number: no limit.
    pub fn new(qps: f64, burst: u32) -> Option<Self> {
        if !qps.is_finite() || qps <= 0.0 {
            return None;
        }
        let every = Duration::try_from_secs_f64(1.0 / qps).ok()?;
        Some(Self::each(every, burst))
    }

    /// A bucket of `burst` tokens, of which one comes back in that time.
    pub fn each(every: Duration, burst: u32) -> Self {
        Self {
            every,
            depth: every.saturating_mul(burst.max(1)),
            full_at: Mutex::new(None),
        }
    }

    /// Takes a token and waits until it is there.
    pub async fn take(&self) {
        let wait = self.reserve(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// How long nobody could have a token yet. Takes none.
    pub fn wait(&self, now: Instant) -> Duration {
        let full_at = *self.full_at.lock().expect("no holder of this lock panics");
        let next = full_at.map_or(now, |at| at.max(now)) + self.every;
        (next - now).saturating_sub(self.depth)
    }

    /// Takes a token, and says how long to wait for it.
    pub fn reserve(&self, now: Instant) -> Duration {
        let mut full_at = self.full_at.lock().expect("no holder of this lock panics");
        let next = full_at.map_or(now, |at| at.max(now)) + self.every;
        *full_at = Some(next);
        (next - now).saturating_sub(self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let budget = Budget::new(10.0, 3).unwrap();
        let now = Instant::now();

        let waits: Vec<u128> = (0..5).map(|_| budget.reserve(now).as_millis()).collect();

        assert_eq!(waits, [0, 0, 0, 100, 200]);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_come_back_with_time_but_never_beyond_the_burst() {
        let budget = Budget::new(10.0, 2).unwrap();
        let now = Instant::now();
        budget.reserve(now);
        let later = now + Duration::from_secs(60);

        let waits: Vec<u128> = (0..3).map(|_| budget.reserve(later).as_millis()).collect();

        assert_eq!(waits, [0, 0, 100]);
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert!(Budget::new(0.0, 30).is_none());
        assert!(Budget::new(f64::NAN, 30).is_none());
    }
}
