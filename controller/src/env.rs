//! The seam to everything that a simulator replaces: wall clock, monotonic clock, chance, and who plans.
//!
//! With `run.rs` and `config.rs` the only place that reads them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use millwright_core::laws::Laws;
use millwright_core::{class, deployment, machine, orphans, set};
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
    /// For MachineClasses.
    pub class: fn(&class::Observed<'_>) -> class::Plan,
    /// For the Secrets that classes name.
    pub secret: fn(&class::SecretObserved<'_>) -> class::SecretPlan,
    /// For VMs that no Machine owns.
    pub orphans: fn(&orphans::Observed<'_>) -> orphans::Plan,
    /// What every plan is held against before it is carried out; a plan that breaks a law is not. Only tests and the simulator give any.
    pub laws: Option<Laws>,
}

impl Planners {
    /// The laws that a plan breaks, where there are any.
    pub(crate) fn broken(&self, look: impl FnOnce(&Laws) -> Vec<String>) -> Vec<String> {
        self.laws.as_ref().map(look).unwrap_or_default()
    }
}

impl Default for Planners {
    fn default() -> Self {
        Self {
            machine: machine::plan,
            set: set::plan,
            deployment: deployment::plan,
            class: class::plan,
            secret: class::plan_secret,
            orphans: orphans::plan,
            laws: None,
        }
    }
}

/// What the wall clock may differ from the time that has passed without having been set.
const UNSET: SignedDuration = SignedDuration::from_secs(1);
/// A clock that was set is followed by one part in so many of the time that passes: an hour within ten hours.
const FOLLOWED: i32 = 10;

/// The wall clock, as a process may plan by it.
///
/// A wall clock that is set forward must not end every deadline at once, and one that is set back must not put off by hours
/// what is due in seconds: it is followed slowly.
#[derive(Clone, Copy, Debug)]
struct Followed {
    told: Timestamp,
    looked: Instant,
}

impl Followed {
    fn look(&mut self, wall: Timestamp) -> Timestamp {
        let now = Instant::now();
        let passed = SignedDuration::try_from(now - self.looked).unwrap_or(SignedDuration::MAX);
        let expected = self.told.saturating_add(passed).unwrap_or(Timestamp::MAX);
        let wrong = wall.duration_since(expected);
        self.looked = now;
        self.told = if wrong.abs() < UNSET {
            wall
        } else {
            let most = passed / FOLLOWED;
            let (least, most) = (-most, most + SignedDuration::from_nanos(1));
            expected
                .saturating_add(wrong.clamp(least, most))
                .unwrap_or(Timestamp::MAX)
        };
        self.told
    }
}

/// Time, chance and planners of one process. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    started: Instant,
    followed: Arc<Mutex<Followed>>,
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
        let started = Instant::now();
        let followed = Followed {
            told: outside.now(),
            looked: started,
        };
        Self {
            started,
            followed: Arc::new(Mutex::new(followed)),
            outside,
            planners,
        }
    }

    /// The time to plan by: the wall clock, which is followed slowly where it was set.
    pub fn now(&self) -> Timestamp {
        let wall = self.wall();
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).look(wall)
    }

    /// A term of leadership begins: time is told by the wall clock as it is now, as when a process begins. A follower counted no
    /// deadline, so a clock that was set while it waited needs no following.
    pub fn begin_term(&self) {
        let begun = Followed {
            told: self.wall(),
            looked: Instant::now(),
        };
        *self.followed.lock().unwrap_or_else(PoisonError::into_inner) = begun;
    }

    /// The wall clock: for what others compare with theirs, and for what only people read.
    pub fn wall(&self) -> Timestamp {
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::constant(1_893_456_000, 0);

    fn after(seconds: i64) -> Timestamp {
        NOON + SignedDuration::from_secs(seconds)
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    fn begun() -> Followed {
        Followed {
            told: NOON,
            looked: Instant::now(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_not_set_is_told_as_it_is() {
        let mut followed = begun();
        pass(60).await;
        let wall = after(60) + SignedDuration::from_millis(900);
        assert_eq!(followed.look(wall), wall);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_forward_ends_no_deadline_at_once_and_is_reached_in_the_end() {
        let mut followed = begun();
        pass(60).await;
        assert_eq!(followed.look(after(3660)), after(66) + SignedDuration::from_nanos(1));
        pass(40_000).await;
        assert_eq!(followed.look(after(43_660)), after(43_660));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_goes_on_slowly_and_never_backwards() {
        let mut followed = begun();
        let mut last = NOON;
        for minute in 1..=300 {
            pass(60).await;
            let told = followed.look(after(minute * 60 - 1500));
            assert!(told > last);
            last = told;
        }
        assert_eq!(last, after(300 * 60 - 1500), "reached after 250 minutes");
    }
    struct Fast;

    impl Outside for Fast {
        fn now(&self) -> Timestamp {
            NOON + SignedDuration::from_hours(1)
        }

        fn chance(&self) -> u64 {
            0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_for_the_lead_with_a_wrong_clock_leads_by_the_right_one() {
        let mut env = Env::within(Arc::new(Fast), Planners::default());
        env.followed = Arc::new(Mutex::new(begun()));
        pass(600).await;
        assert!(env.now() < after(900), "it is followed slowly");
        env.begin_term();
        assert_eq!(env.now(), after(3600));
    }
}
