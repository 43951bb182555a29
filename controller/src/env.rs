//! The seam to everything that a simulator replaces: wall clock, monotonic clock, chance, and who plans.
//!
//! With `run.rs` and `config.rs` the only place that reads them (`architecture.md` §2.10).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use millwright_core::{deployment, machine, set};
use rand::RngExt as _;
use tokio::time::Instant;
use zeroize::Zeroizing;

/// What a process gets from outside of itself.
pub trait Outside: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> Timestamp;
    /// 64 bits that nobody can guess.
    fn chance(&self) -> u64;
}

/// The system's clock and its secure source.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Outside for System {
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    fn chance(&self) -> u64 {
        rand::rng().random()
    }
}

/// Who decides, one for each kind: core's planners.
#[derive(Clone, Copy)]
pub struct Planners {
    /// For Machines.
    pub machine: fn(&machine::Observed<'_>, Timestamp) -> machine::Plan,
    /// For MachineSets.
    pub set: fn(&set::Observed<'_>, Timestamp) -> set::Plan,
    /// For MachineDeployments.
    pub deployment: fn(&deployment::Observed<'_>, Timestamp) -> deployment::Plan,
}

impl Default for Planners {
    fn default() -> Self {
        Self {
            machine: machine::plan,
            set: set::plan,
            deployment: deployment::plan,
        }
    }
}

/// Time, chance and planners of one process. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    started: Instant,
    outside: Arc<dyn Outside>,
    /// Who decides.
    pub planners: Planners,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("started", &self.started)
            .finish_non_exhaustive()
    }
}

impl Env {
    /// Begins the uptime of a process on this system.
    pub fn begin() -> Self {
        Self::within(Arc::new(System), Planners::default())
    }

    /// Begins the uptime of a process within these surroundings.
    pub fn within(outside: Arc<dyn Outside>, planners: Planners) -> Self {
        Self {
            started: Instant::now(),
            outside,
            planners,
        }
    }

    /// The wall clock: for what is compared with times in objects, and for what only people read.
    pub fn now(&self) -> Timestamp {
        self.outside.now()
    }

    /// Time since the process began: for waiting. No clock change moves it.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The instant of an uptime, to sleep until.
    pub fn instant(&self, uptime: Duration) -> Instant {
        self.started + uptime
    }

    /// 16 characters of `a-z0-9` from the secure source, as Kubernetes wants a token's secret.
    pub fn token_secret(&self) -> Zeroizing<String> {
        const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        // 2^64 is no multiple of 36: some letters are likelier by one in 10^17.
        let letter = |_| {
            let nth = usize::try_from(self.outside.chance() % 36).unwrap_or_default();
            char::from(ALPHABET.get(nth).copied().unwrap_or(b'a'))
        };
        Zeroizing::new((0..16).map(letter).collect())
    }

    /// A factor of 0.8 … 1.2, so that what failed together is not repeated together.
    pub fn jitter(&self) -> f64 {
        // The upper 32 bits, which a float holds exactly.
        let [a, b, c, d, ..] = self.outside.chance().to_be_bytes();
        0.8 + 0.4 * f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
    }

    /// A seed for jitter that is made elsewhere.
    pub fn seed(&self) -> u64 {
        self.outside.chance()
    }
}
