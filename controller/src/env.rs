//! The seam to everything that a simulator replaces: wall clock, monotonic clock, randomness.
//!
//! With `run.rs` and `config.rs` the only place that reads them (`architecture.md` §2.10).

use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt as _;
use tokio::time::Instant;
use zeroize::Zeroizing;

/// Time and chance of one process.
#[derive(Debug)]
pub struct Env {
    started: Instant,
}

impl Env {
    /// Begins the process's uptime.
    pub fn begin() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    /// The wall clock: for what is compared with times in objects.
    pub fn now(&self) -> Timestamp {
        Self::wall_clock()
    }

    /// The wall clock where there is no `Env` at hand: for what only people read.
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    pub fn wall_clock() -> Timestamp {
        Timestamp::now()
    }

    /// Time since the process began: for waiting. No clock change moves it.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The instant of an uptime, to sleep until.
    pub fn instant(&self, uptime: Duration) -> Instant {
        self.started + uptime
    }

    /// 16 characters of `a-z0-9` from the system's secure source, as Kubernetes wants a token's secret.
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    pub fn token_secret(&self) -> Zeroizing<String> {
        const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut rng = rand::rng();
        let letter = |_| {
            char::from(
                ALPHABET
                    .get(rng.random_range(0..ALPHABET.len()))
                    .copied()
                    .unwrap_or(b'a'),
            )
        };
        Zeroizing::new((0..16).map(letter).collect())
    }

    /// A factor of 0.8 … 1.2, so that what failed together is not repeated together.
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    pub fn jitter(&self) -> f64 {
        rand::rng().random_range(0.8..=1.2)
    }
}
