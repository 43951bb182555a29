//! The accounts that drivers are called with, and the lines of calls before those that a provider throttles.
//!
//! Decides nothing about rates ([`super::throttle`] does). A call waits here before it takes a place in its driver's lane, so that a
//! throttled account holds up neither other accounts nor other drivers. Calls of one kind wait in one line, and the heads of all lines
//! take turns: creations without number keep no deletion from being sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::SignedDuration;
use millwright_core::driver::{Code, Failure, Reason};
use millwright_core::ids::{DriverName, SecretKey};
use tokio::time::Instant;

use super::lanes::Method;
use super::throttle::Throttle;

/// Whom a provider counts calls against: a driver, and the Secrets that hold the credentials.
type Account = (DriverName, Vec<SecretKey>);

/// All accounts in use. An account that is not throttled is forgotten with its last call.
#[derive(Debug, Default)]
pub(super) struct Accounts(Mutex<BTreeMap<Account, Arc<Line>>>);

/// One account.
#[derive(Debug, Default)]
pub(super) struct Line {
    throttle: Mutex<Throttle>,
    queues: BTreeMap<Method, Queue>,
}

/// Calls of one kind that wait; the first of them holds the lock, and whoever asks for it next gets it next.
#[derive(Debug, Default)]
struct Queue {
    head: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

/// Leave to send one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leave {
    /// When it was given. The call may be sent later, but a rate that was cut meanwhile did not allow it.
    pub(super) at: Instant,
    /// It was waited for.
    pub(super) is_late: bool,
}

/// One call in the line, however its wait ends.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Accounts {
    /// The account of these Secrets at a driver.
    pub(super) fn line(&self, driver: &DriverName, secrets: &[SecretKey]) -> Arc<Line> {
        let mut all = self.0.lock().expect("nothing panics under this lock");
        let key = (driver.clone(), secrets.to_vec());
        if let Some(known) = all.get(&key) {
            return Arc::clone(known);
        }
        all.retain(|_, line| Arc::strong_count(line) > 1 || line.throttle().is_limited());
        let queues = Method::ALL.into_iter().map(|method| (method, Queue::default()));
        let line = Arc::new(Line {
            queues: queues.collect(),
            ..Line::default()
        });
        all.insert(key, Arc::clone(&line));
        line
    }
}

impl Line {
    fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().expect("nothing panics under this lock")
    }

    /// Waits until the account may be called. Gives when that was; an error where it takes longer than `patience`, which is told at once
    /// where it can be told.
    pub(super) async fn admit(&self, method: Method, patience: Duration) -> Result<Leave, Failure> {
        let queue = self
            .queues
            .get(&method)
            .expect("`Accounts::line` makes one of every method");
        let now = Instant::now();
        let ahead = queue.waiting.load(Ordering::Acquire);
        let pause = {
            let mut throttle = self.throttle();
            if ahead == 0 && throttle.take(method, now).is_ok() {
                return Ok(Leave {
                    at: now,
                    is_late: false,
                });
            }
            throttle.pause(method, now)
        };
        if pause > patience {
            return Err(no_leave(Some(pause)));
        }
        queue.waiting.fetch_add(1, Ordering::AcqRel);
        let _place = Place(&queue.waiting);
        let turn = tokio::time::timeout(patience, self.turn(queue, method)).await;
        turn.map(|at| Leave { at, is_late: true }).map_err(|_| no_leave(None))
    }

    /// The call is the first of its line, and the account may be called. What was learned while it waited counts.
    async fn turn(&self, queue: &Queue, method: Method) -> Instant {
        let _head = queue.head.lock().await;
        loop {
            let now = Instant::now();
            let taken = self.throttle().take(method, now);
            match taken {
                Ok(()) => return now,
                Err(next) => tokio::time::sleep_until(next).await,
            }
        }
    }

    /// Whether the provider has refused a call for its rate since that time.
    pub(super) fn is_refused_since(&self, at: Instant) -> bool {
        self.throttle().is_refused_since(at)
    }

    /// Takes what an answer says of the account's rate, to a call that had leave at that time. Gives whether the account is throttled now
    /// and was not before.
    pub(super) fn learn(&self, sent_at: Instant, failure: Option<&Failure>) -> bool {
        match failure {
            Some(failure) if failure.reason == Some(Reason::RateLimited) => {
                let pause = failure.retry_after.and_then(|pause| Duration::try_from(pause).ok());
                self.throttle().refused(sent_at, pause, Instant::now())
            }
            // Who knows what a call came to that no driver has answered.
            Some(failure) if failure.reason.is_none() => false,
            Some(_) | None => {
                self.throttle().succeeded();
                false
            }
        }
    }

    /// Calls a second that are allowed now. `None`: as many as there are.
    pub(super) fn rate(&self) -> Option<f64> {
        self.throttle().rate()
    }
}

/// The account is throttled, and calls that came before take all it allows. Nothing was sent, so nothing is left behind.
fn no_leave(pause: Option<Duration>) -> Failure {
    let message =
        "not sent: the provider throttles the account, and calls that came before take all that it allows now";
    Failure {
        reason: Some(Reason::RateLimited),
        retry_after: pause.and_then(|pause| SignedDuration::try_from(pause).ok()),
        ..Failure::not_sent(Code::Unavailable, message)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test waits for what it has spawned")]
mod tests {
    use millwright_core::driver::Effect;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);

    fn secret(name: &str) -> Vec<SecretKey> {
        vec![SecretKey {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }]
    }

    fn throttled(seconds: i64) -> Failure {
        Failure {
            reason: Some(Reason::RateLimited),
            retry_after: Some(SignedDuration::from_secs(seconds)),
            ..Failure::transport(Code::Unavailable, "slow down")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_account_slows_no_other_and_no_other_driver() {
        let accounts = Accounts::default();
        let (x, y) = (DriverName::new("x"), DriverName::new("y"));
        let slow = accounts.line(&x, &secret("a"));
        assert!(slow.learn(Instant::now(), Some(&throttled(30))));
        let begun = Instant::now();
        for other in [accounts.line(&x, &secret("b")), accounts.line(&y, &secret("a"))] {
            other
                .admit(Method::CreateMachine, PATIENCE)
                .await
                .expect("it is not throttled");
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        accounts
            .line(&x, &secret("a"))
            .admit(Method::CreateMachine, PATIENCE)
            .await
            .expect("it waits");
        assert!(begun.elapsed() >= Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn creations_without_number_keep_no_deletion_waiting() {
        let line = Accounts::default().line(&DriverName::new("x"), &secret("a"));
        line.learn(Instant::now(), Some(&throttled(1)));
        let creations: Vec<_> = (0..20)
            .map(|_| {
                let line = Arc::clone(&line);
                tokio::spawn(async move {
                    line.admit(Method::CreateMachine, PATIENCE).await.expect("in time");
                    Instant::now()
                })
            })
            .collect();
        tokio::task::yield_now().await;
        line.admit(Method::DeleteMachine, PATIENCE).await.expect("in time");
        let deleted = Instant::now();
        let created = futures::future::join_all(creations).await;
        let later = created
            .into_iter()
            .filter(|at| at.as_ref().is_ok_and(|at| *at > deleted))
            .count();
        assert!(later >= 17, "{later} of 20 creations were sent after the deletion");
    }

    /// Rows: D5.
    #[tokio::test(start_paused = true)]
    async fn a_pause_of_a_day_holds_no_deletion() {
        let line = Accounts::default().line(&DriverName::new("x"), &secret("a"));
        line.learn(Instant::now(), Some(&throttled(100_000)));
        let begun = Instant::now();
        for seconds in [30, 60, 90] {
            line.admit(Method::DeleteMachine, PATIENCE)
                .await
                .expect("it has a share");
            assert_eq!(begun.elapsed(), Duration::from_secs(seconds));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_is_told_so_at_once_and_when_to_come_again() {
        let line = Accounts::default().line(&DriverName::new("x"), &secret("a"));
        line.learn(Instant::now(), Some(&throttled(500)));
        let begun = Instant::now();
        let failure = line
            .admit(Method::CreateMachine, PATIENCE)
            .await
            .expect_err("it takes longer");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(failure.retry_after, Some(SignedDuration::from_secs(500)));
        assert_eq!((failure.effect, failure.word()), (Effect::None, "Unavailable"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_learned_meanwhile_counts_for_those_who_wait() {
        let line = Accounts::default().line(&DriverName::new("x"), &secret("a"));
        line.learn(Instant::now(), Some(&throttled(10)));
        let begun = Instant::now();
        let waiting = {
            let line = Arc::clone(&line);
            tokio::spawn(async move {
                line.admit(Method::CreateMachine, PATIENCE).await.expect("in time");
                Instant::now()
            })
        };
        tokio::time::sleep(Duration::from_secs(5)).await;
        line.learn(begun, Some(&throttled(60)));
        let at = waiting.await.expect("no panic");
        assert_eq!(at - begun, Duration::from_secs(65));
    }

    #[test]
    fn an_account_that_is_not_throttled_is_forgotten_with_its_last_call() {
        let (accounts, x) = (Accounts::default(), DriverName::new("x"));
        drop(accounts.line(&x, &secret("a")));
        accounts
            .line(&x, &secret("b"))
            .learn(Instant::now(), Some(&throttled(1)));
        let _kept = accounts.line(&x, &secret("c"));
        let known: Vec<String> = accounts
            .0
            .lock()
            .unwrap()
            .keys()
            .map(|key| key.1[0].name.clone())
            .collect();
        assert_eq!(known, ["b", "c"]);
    }
}
