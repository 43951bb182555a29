//! How fast an account may be called once its provider has said that it is called too fast: the rate is halved, and rises by a fixed
//! step with each call that succeeds (SPEC.md, "What slows the account"; pains 104, 106, 112).
//!
//! A value: the time is passed in, and nothing waits here ([`super::accounts`] does). Nothing is limited before the first refusal,
//! and nothing any more once it is long ago. Crates for this (governor, leaky-bucket) keep a rate that is known; this one is to be
//! found out.

use std::time::Duration;

use tokio::time::Instant;

use super::lanes::Method;

/// Calls a second below which no refusal brings a rate: an account that may not be called at all is tried every 5 s.
const LEAST: f64 = 0.2;
/// Calls a second beyond which no rate rises.
const MOST: f64 = 10_000.0;
/// Successes by which a rate is back where it was refused: at the limit one call in about so many is refused.
const CLIMB: u32 = 50;
/// The first refusal says little of the limit: few calls may have been sent by then, or all at once. Until the next one each success
/// raises the rate by this part of itself, so that it doubles with every third.
const SEARCH: f64 = 0.25;
/// How long ago the last refusal must be for a limit that holds nobody up to be dropped, where at least two climbs went well since.
const CALM: Duration = Duration::from_secs(120);
/// After this time without a refusal it is dropped in any case: it was learned from another day's load.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Longest pause that a provider can ask for, that of `RetryInfo` (GE-12).
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A deletion is sent so long after the last refusal and the last deletion whatever pause was asked for: one that is far too long holds up
/// no end of a VM that is paid for.
const RESERVED: Duration = Duration::from_secs(30);

/// What is known of how fast one account may be called.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    sent: Sent,
    limit: Option<Limit>,
    /// When a deletion was last sent.
    deleted_at: Option<Instant>,
}

/// What a refusal has taught.
#[derive(Debug)]
struct Limit {
    /// Calls a second.
    rate: f64,
    /// By how much a success raises it. `None`: the limit is still searched for.
    step: Option<f64>,
    /// When the next call may be sent.
    next: Instant,
    /// When the rate was last halved. What was sent before that says nothing of the rate since.
    cut_at: Instant,
    refused_at: Instant,
    /// Successes since then.
    successes: u32,
}

impl Throttle {
    /// Takes leave to send one call now. The error is when to ask again.
    pub(super) fn take(&mut self, method: Method, now: Instant) -> Result<(), Instant> {
        if self.limit.as_ref().is_some_and(|limit| limit.is_over(now)) {
            self.limit = None;
        }
        let due = self.due(method);
        if due > Some(now) {
            return due.map_or(Ok(()), Err);
        }
        if method == Method::DeleteMachine {
            self.deleted_at = Some(now);
        }
        if let Some(limit) = self.limit.as_mut().filter(|limit| limit.next <= now) {
            // Who wakes a little late loses nothing by it, and who was idle has saved up no more than one call.
            let interval = limit.interval();
            limit.next = limit.next.max(now.checked_sub(interval).unwrap_or(now)) + interval;
        }
        self.sent.count(now);
        Ok(())
    }

    /// When a call may be sent. `None`: at once.
    fn due(&self, method: Method) -> Option<Instant> {
        let limit = self.limit.as_ref()?;
        let next = limit.next;
        match method {
            Method::DeleteMachine => Some(next.min(self.deleted_at.max(Some(limit.refused_at))? + RESERVED)),
            Method::CreateMachine
            | Method::InitializeMachine
            | Method::GetMachineStatus
            | Method::ListMachines
            | Method::WatchMachines
            | Method::ValidateMachineClass => Some(next),
        }
    }

    /// A call was not refused for its rate.
    pub(super) fn succeeded(&mut self) {
        let Some(limit) = &mut self.limit else { return };
        limit.successes = limit.successes.saturating_add(1);
        // The limit was found where it was refused. Who comes to twice that without a refusal searches anew.
        limit.step = limit.step.filter(|_| limit.successes < 3 * CLIMB);
        limit.rate = (limit.rate + limit.step.unwrap_or(limit.rate * SEARCH)).min(MOST);
    }

    /// A call that was sent at `sent_at` was refused for its rate. Gives whether the account was not limited before.
    pub(super) fn refused(&mut self, sent_at: Instant, retry_after: Option<Duration>, now: Instant) -> bool {
        let pause = retry_after.unwrap_or_default().min(LONGEST_PAUSE);
        let Some(limit) = &mut self.limit else {
            let mut limit = Limit::after(self.sent.rate(now), now);
            limit.step = None;
            limit.next = limit.next.max(now + pause);
            self.limit = Some(limit);
            return true;
        };
        let paused_until = limit.next.max(now + pause);
        match sent_at > limit.cut_at {
            true => *limit = Limit::after(limit.rate, now),
            false => (limit.refused_at, limit.successes) = (now, 0),
        }
        limit.next = limit.next.max(paused_until);
        false
    }

    /// Whether a call was refused for its rate since that time, or at it: leave that was taken in the same moment was taken before.
    pub(super) fn is_refused_since(&self, at: Instant) -> bool {
        self.limit.as_ref().is_some_and(|limit| limit.refused_at >= at)
    }

    /// Whether calls may have to wait.
    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Calls a second that are allowed. `None`: as many as there are.
    pub(super) fn rate(&self) -> Option<f64> {
        self.limit.as_ref().map(|limit| limit.rate)
    }

    /// How long no call at all may be sent. How long those wait that have others before them nobody knows: the rate changes.
    pub(super) fn pause(&self, method: Method, now: Instant) -> Duration {
        self.due(method)
            .map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }
}

impl Limit {
    /// Half of what was refused.
    fn after(refused: f64, now: Instant) -> Self {
        let rate = (refused / 2.0).clamp(LEAST, MOST);
        let limit = Self {
            rate,
            step: Some(rate / f64::from(CLIMB)),
            next: now,
            cut_at: now,
            refused_at: now,
            successes: 0,
        };
        Self {
            next: now + limit.interval(),
            ..limit
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.rate.max(LEAST).recip())
    }

    /// Whether it has lost its reason. While it holds calls up it has not, but for the climb: all that wait would go at once.
    fn is_over(&self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.refused_at);
        let holds_nobody = now >= self.next + self.interval();
        holds_nobody && (quiet >= FORGOTTEN || (quiet >= CALM && self.successes >= 2 * CLIMB))
    }
}

/// How many calls were sent lately: this second and the one before.
#[derive(Debug, Default)]
struct Sent {
    since: Option<Instant>,
    current: u32,
    before: u32,
}

/// Over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(1);

/// The part of that from which a whole is concluded.
const SHORTEST_PART: f64 = 0.1;

impl Sent {
    fn count(&mut self, now: Instant) {
        self.turn(now);
        self.current = self.current.saturating_add(1);
    }

    /// Calls a second, lately. Of calls that have only just begun to come, what they would be if they went on so.
    fn rate(&mut self, now: Instant) -> f64 {
        let part = self.turn(now);
        match self.before {
            0 => f64::from(self.current) / part.max(SHORTEST_PART),
            before => f64::from(self.current) + f64::from(before) * (1.0 - part),
        }
    }

    /// Begins another second where this one is over. Gives how much of it has passed.
    fn turn(&mut self, now: Instant) -> f64 {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed < WINDOW {
            return passed.as_secs_f64() / WINDOW.as_secs_f64();
        }
        let follows = passed < WINDOW * 2;
        self.before = if follows { self.current } else { 0 };
        self.current = 0;
        self.since = Some(if follows { since + WINDOW } else { now });
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn rate(throttle: &Throttle) -> f64 {
        throttle.rate().expect("it is limited")
    }

    /// Sends so many calls a second for a second and has the last one refused.
    fn refused_at(calls: u32, now: Instant) -> Throttle {
        let mut throttle = Throttle::default();
        for n in 0..calls {
            throttle
                .take(Method::CreateMachine, now + WINDOW * n / (calls + 1))
                .expect("nothing is limited");
        }
        assert!(throttle.refused(now, None, now + millis(990)));
        throttle
    }

    #[test]
    fn nothing_is_limited_before_the_first_refusal() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..100_000 {
            throttle.take(Method::CreateMachine, now).expect("nothing is limited");
        }
        assert!(!throttle.is_limited());
        assert_eq!(throttle.pause(Method::CreateMachine, now), Duration::ZERO);
    }

    /// Rows: pains 106.
    #[test]
    fn a_refusal_halves_the_rate_and_those_of_calls_from_before_do_not_halve_it_again() {
        let now = Instant::now();
        let mut throttle = refused_at(100, now);
        assert!((rate(&throttle) - 50.0).abs() < 1.0, "{throttle:?}");
        for _ in 0..60 {
            assert!(!throttle.refused(now, None, now + secs(1)));
        }
        assert!((rate(&throttle) - 50.0).abs() < 1.0, "{throttle:?}");
        throttle.refused(now + millis(995), None, now + secs(1));
        assert!((rate(&throttle) - 25.0).abs() < 1.0, "{throttle:?}");
    }

    #[test]
    fn the_limit_is_searched_for_after_the_first_refusal_and_approached_in_steps_after_the_second() {
        let now = Instant::now();
        let mut throttle = refused_at(4, now);
        let first = rate(&throttle);
        (0..9).for_each(|_| throttle.succeeded());
        assert!(rate(&throttle) > 6.0 * first, "{throttle:?}");
        throttle.refused(now + secs(1), None, now + secs(1));
        let before = rate(&throttle);
        throttle.succeeded();
        let step = rate(&throttle) - before;
        (1..CLIMB).for_each(|_| throttle.succeeded());
        assert!((rate(&throttle) - 2.0 * before).abs() < 0.1, "{throttle:?}");
        assert!((step - before / f64::from(CLIMB)).abs() < 0.001, "{throttle:?}");
    }

    #[test]
    fn no_call_is_sent_before_the_time_that_the_provider_names() {
        let now = Instant::now();
        let mut throttle = refused_at(100, now);
        throttle.refused(now, Some(secs(30)), now + secs(1));
        assert!(
            throttle.is_refused_since(now + secs(1)),
            "leave of the same moment is from before"
        );
        assert!(!throttle.is_refused_since(now + millis(1001)));
        assert_eq!(
            throttle.take(Method::CreateMachine, now + secs(30)),
            Err(now + secs(31))
        );
        throttle
            .take(Method::CreateMachine, now + secs(31))
            .expect("the pause is over");
        // A pause without end would stop the account for ever.
        throttle.refused(now, Some(Duration::MAX), now + secs(40));
        assert_eq!(
            throttle.take(Method::CreateMachine, now + secs(41)),
            Err(now + secs(640))
        );
    }

    /// Rows: D5.
    #[test]
    fn a_deletion_is_sent_now_and_then_whatever_pause_the_provider_names() {
        let now = Instant::now();
        let mut throttle = refused_at(100, now);
        throttle.refused(now, Some(secs(100_000)), now + secs(1));
        let (create, delete) = (Method::CreateMachine, Method::DeleteMachine);
        assert_eq!(throttle.take(create, now + secs(2)), Err(now + secs(601)));
        assert_eq!(throttle.take(delete, now + secs(2)), Err(now + secs(31)));
        throttle.take(delete, now + secs(31)).expect("it has a share");
        assert_eq!(throttle.take(delete, now + secs(32)), Err(now + secs(61)));
        throttle.take(delete, now + secs(61)).expect("so has the next");
        assert_eq!(
            throttle.take(create, now + secs(62)),
            Err(now + secs(601)),
            "others wait on"
        );
    }

    #[test]
    fn who_was_idle_has_not_saved_up_a_burst() {
        let now = Instant::now();
        let mut throttle = refused_at(20, now);
        let later = now + secs(60);
        let sent = (0..50)
            .take_while(|_| throttle.take(Method::CreateMachine, later).is_ok())
            .count();
        assert_eq!(sent, 2, "one that was saved up and one that is due");
    }

    #[test]
    fn a_limit_is_dropped_once_nothing_speaks_for_it_and_not_while_it_holds_calls_up() {
        let now = Instant::now();
        let mut busy = refused_at(20, now);
        let mut at = now + secs(1);
        // Calls without pause, none of which is refused: the rate rises, and the limit stays for as long as calls wait for it.
        for _ in 0..1000 {
            match busy.take(Method::CreateMachine, at) {
                Ok(()) => busy.succeeded(),
                Err(next) => at = next,
            }
        }
        assert!(busy.is_limited(), "{busy:?}");
        busy.take(Method::CreateMachine, at + CALM).expect("nobody waits");
        assert!(!busy.is_limited(), "{busy:?}");

        let mut idle = refused_at(20, now);
        let _ = idle.take(Method::CreateMachine, now + FORGOTTEN - secs(1));
        assert!(idle.is_limited());
        let _ = idle.take(Method::CreateMachine, now + FORGOTTEN + secs(1));
        assert!(!idle.is_limited());
    }

    /// An account that allows so many calls a second, of which it saves up one.
    struct Provider {
        every: Duration,
        free_at: Instant,
        refused: usize,
    }

    impl Provider {
        fn is_called(&mut self, at: Instant) -> bool {
            let is_free = at >= self.free_at;
            match is_free {
                true => self.free_at = self.free_at.max(at - self.every) + self.every,
                false => self.refused += 1,
            }
            is_free
        }
    }

    /// Rows: pains 112.
    #[test]
    fn an_account_of_any_limit_is_used_well_with_few_refusals() {
        for allowed in [1u32, 10, 100] {
            let begun = Instant::now();
            let every = secs(1) / allowed;
            let mut provider = Provider {
                every,
                free_at: begun,
                refused: 0,
            };
            let (mut throttle, mut at, mut done) = (Throttle::default(), begun, 0);
            while done < 500 {
                // Calls come at 1000 a second at most, as a scale-up sends them.
                match throttle.take(Method::CreateMachine, at) {
                    Ok(()) if provider.is_called(at) => {
                        throttle.succeeded();
                        done += 1;
                    }
                    Ok(()) => drop(throttle.refused(at, None, at + millis(1))),
                    Err(next) => at = at.max(next),
                }
                at += millis(1);
            }
            let ideal = every * 500;
            let took = at - begun;
            assert!(took < ideal * 2, "{allowed}: {took:?} where {ideal:?} would do");
            assert!(provider.refused <= 60, "{allowed}: {} refused", provider.refused);
        }
    }
}
