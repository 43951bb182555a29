//! The keyed delay queue: which key is worked on next, and when.
//!
//! Decides order and pace; knows nothing of what a key stands for. Time is passed in as the process's uptime, so wall
//! clock jumps cannot move it. Rules:
//! - a key is held once and worked on by one worker at a time; what arrives meanwhile makes it run once more;
//! - the earliest wanted time wins;
//! - a back-off is never undercut by noise: while it runs, only [`Urgency::Prompt`] news wakes the key early, and only
//!   a run that waited its turn and failed again grows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How much a wake-up matters; the smallest is served first among keys that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A deletion, a change of spec, an answer of a driver: worth waking a key out of its back-off.
    Prompt,
    /// Something else changed.
    Event,
    /// A timer.
    Routine,
}

/// What becomes of a key after its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done; look again at that uptime, if given.
    Done {
        /// When to look again.
        wake: Option<Duration>,
    },
    /// Look again at once: the input of the next step is there.
    Again,
    /// It did not work: wait, longer with every failure in a row.
    BackOff,
    /// The object is gone: forget all about the key.
    Forget,
}

/// The first pause after a failure: long enough for a watch event of the conflicting write to arrive.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between tries of a key.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Entry {
    /// When the key wants to run, with the order of arrival; absent while it waits for nothing.
    due: Option<(Duration, Urgency, u64)>,
    /// A worker has it.
    taken: Option<Taken>,
    /// Failures in a row.
    failures: u32,
    /// End of the present back-off.
    held_until: Option<Duration>,
}

/// When a worker got a key, and how long the key had been due.
#[derive(Clone, Copy, Debug)]
struct Taken {
    at: Duration,
    waited: Duration,
}

/// Keys that wait for a worker, each once, by urgency and due time, with pauses after failures.
#[derive(Debug)]
pub struct Queue<K> {
    entries: BTreeMap<K, Entry>,
    waiting: BTreeSet<(Duration, Urgency, u64, K)>,
    ready: BTreeSet<(Urgency, u64, K)>,
    arrivals: u64,
}

impl<K: Ord + Clone> Default for Queue<K> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            waiting: BTreeSet::new(),
            ready: BTreeSet::new(),
            arrivals: 0,
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Asks for `key` to be worked on at `at`, or sooner if it was wanted sooner.
    pub fn push(&mut self, key: K, at: Duration, urgency: Urgency) {
        let entry = self.entries.entry(key.clone()).or_default();
        let at = match (entry.held_until, urgency) {
            (Some(held), Urgency::Event | Urgency::Routine) => at.max(held),
            (Some(_) | None, _) => at,
        };
        let wanted = Self::sooner(entry.due, at, urgency, &mut self.arrivals);
        if entry.due == Some(wanted) {
            return;
        }
        let before = entry.due.replace(wanted);
        if entry.taken.is_some() {
            return; // scheduled when it is given back
        }
        self.unschedule(&key, before);
        self.schedule(key, wanted);
    }

    /// Hands out the most urgent key that is due. It stays with the caller until it is given back.
    pub fn take(&mut self, now: Duration) -> Option<K> {
        while let Some(first) = self.waiting.first() {
            if first.0 > now {
                break;
            }
            let (_, urgency, arrival, key) = self.waiting.pop_first()?;
            self.ready.insert((urgency, arrival, key));
        }
        let (_, _, key) = self.ready.pop_first()?;
        let entry = self.entries.entry(key.clone()).or_default();
        let due = entry.due.take().map_or(now, |(due, ..)| due);
        entry.taken = Some(Taken {
            at: now,
            waited: now.saturating_sub(due),
        });
        Some(key)
    }

    /// Gives a key back. Returns the uptime until which it is held, if it backs off.
    pub fn give_back(&mut self, key: K, verdict: Verdict, now: Duration) -> Option<Duration> {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.taken = None;
        let meanwhile = entry.due.take();
        let mut wanted = meanwhile;
        let mut held = None;
        match verdict {
            Verdict::Done { wake } => {
                entry.failures = 0;
                entry.held_until = None;
                if let Some(at) = wake {
                    wanted = Some(Self::sooner(wanted, at, Urgency::Routine, &mut self.arrivals));
                }
            }
            Verdict::Again => {
                entry.failures = 0;
                entry.held_until = None;
                wanted = Some(Self::sooner(wanted, now, Urgency::Event, &mut self.arrivals));
            }
            Verdict::BackOff => {
                // A run that was pulled out of its pause by news proves nothing about the cause of the failure.
                if entry.held_until.is_none_or(|until| until <= now) {
                    entry.failures = entry.failures.saturating_add(1);
                }
                let doublings = entry.failures.saturating_sub(1).min(16);
                let until = now + FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
                entry.held_until = Some(until);
                held = Some(until);
                wanted = Some(match meanwhile {
                    Some((at, Urgency::Prompt, arrived)) => (at, Urgency::Prompt, arrived),
                    Some((at, urgency, arrived)) => (at.max(until), urgency, arrived),
                    None => Self::sooner(None, until, Urgency::Routine, &mut self.arrivals),
                });
            }
            Verdict::Forget => {
                if meanwhile.is_none() {
                    self.entries.remove(&key);
                    return None;
                }
                *entry = Entry::default();
            }
        }
        entry.due = wanted;
        match wanted {
            Some(wanted) => self.schedule(key, wanted),
            None if entry.failures == 0 => drop(self.entries.remove(&key)),
            None => {}
        }
        held
    }

    /// Ends the back-off of every key: what made the keys fail is over. The back-off of a key that fails again goes on growing.
    pub fn end_back_offs(&mut self, now: Duration) {
        let held = |entry: &Entry| entry.held_until.is_some_and(|until| until > now);
        let keys: Vec<K> = self
            .entries
            .iter()
            .filter(|(_, entry)| held(entry))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.held_until = None;
            }
            self.push(key, now, Urgency::Routine);
        }
    }

    /// The uptime at which [`Self::take`] will have something, if nothing arrives before.
    pub fn next_due(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        self.waiting.first().map(|(at, ..)| *at)
    }

    /// The keys that wait for a worker at `now`.
    pub fn due(&self, now: Duration) -> impl Iterator<Item = &K> {
        let due = self.waiting.iter().take_while(move |(at, ..)| *at <= now);
        let ready = self.ready.iter().map(|(.., key)| key);
        ready.chain(due.map(|(.., key)| key))
    }

    /// The keys that workers have at `now`, and for how long.
    pub fn under_way(&self, now: Duration) -> impl Iterator<Item = (&K, Duration)> {
        let taken = self.entries.iter().filter_map(|(key, entry)| Some((key, entry.taken?)));
        taken.map(move |(key, taken)| (key, now.saturating_sub(taken.at)))
    }

    /// How long a key that a worker has was due before.
    pub fn waited(&self, key: &K) -> Duration {
        let taken = self.entries.get(key).and_then(|entry| entry.taken);
        taken.map_or(Duration::ZERO, |taken| taken.waited)
    }

    /// How often `key` has failed in a row.
    pub fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    fn sooner(
        before: Option<(Duration, Urgency, u64)>,
        at: Duration,
        urgency: Urgency,
        arrivals: &mut u64,
    ) -> (Duration, Urgency, u64) {
        match before {
            Some((due, kept, arrived)) => (due.min(at), kept.min(urgency), arrived),
            None => {
                *arrivals += 1;
                (at, urgency, *arrivals)
            }
        }
    }

    fn schedule(&mut self, key: K, (at, urgency, arrival): (Duration, Urgency, u64)) {
        self.waiting.insert((at, urgency, arrival, key));
    }

    fn unschedule(&mut self, key: &K, wanted: Option<(Duration, Urgency, u64)>) {
        let Some((at, urgency, arrival)) = wanted else { return };
        if !self.waiting.remove(&(at, urgency, arrival, key.clone())) {
            self.ready.remove(&(urgency, arrival, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_key_is_held_once_and_its_earliest_time_wins() {
        let mut queue = Queue::default();
        queue.push("a", secs(9), Urgency::Routine);
        queue.push("a", secs(3), Urgency::Routine);
        queue.push("a", secs(5), Urgency::Event);
        assert_eq!(queue.next_due(), Some(secs(3)));
        assert_eq!(queue.take(secs(2)), None);
        assert_eq!(queue.take(secs(3)), Some("a"));
        assert_eq!(queue.take(secs(100)), None);
    }

    /// Rows: W33.
    #[test]
    fn nobody_gets_a_key_that_is_being_worked_on_but_news_makes_it_run_once_more() {
        let mut queue = Queue::default();
        queue.push("a", secs(0), Urgency::Event);
        assert_eq!(queue.take(secs(0)), Some("a"));
        queue.push("a", secs(0), Urgency::Event);
        queue.push("a", secs(0), Urgency::Event);
        assert_eq!(queue.take(secs(0)), None);
        queue.give_back("a", Verdict::Done { wake: None }, secs(1));
        assert_eq!(queue.take(secs(1)), Some("a"));
        queue.give_back("a", Verdict::Done { wake: None }, secs(1));
        assert_eq!(queue.take(secs(1)), None);
    }

    #[test]
    fn deletions_overtake_events_and_events_overtake_timers() {
        let mut queue = Queue::default();
        queue.push("timer", secs(0), Urgency::Routine);
        queue.push("event", secs(1), Urgency::Event);
        queue.push("deletion", secs(2), Urgency::Prompt);
        queue.push("event 2", secs(1), Urgency::Event);
        let order: Vec<_> = std::iter::from_fn(|| queue.take(secs(5))).collect();
        assert_eq!(order, ["deletion", "event", "event 2", "timer"]);
    }

    #[test]
    fn noise_neither_undercuts_nor_inflates_a_back_off() {
        let mut queue = Queue::default();
        queue.push("a", secs(0), Urgency::Event);
        queue.take(secs(0));
        assert_eq!(
            queue.give_back("a", Verdict::BackOff, secs(0)),
            Some(Duration::from_millis(200))
        );
        queue.push("a", secs(0), Urgency::Event);
        assert_eq!(queue.take(Duration::from_millis(199)), None);
        queue.push("a", secs(0), Urgency::Prompt);
        assert_eq!(queue.take(Duration::from_millis(199)), Some("a"));
        // It was pulled out of its pause, so the pause does not grow.
        queue.give_back("a", Verdict::BackOff, Duration::from_millis(199));
        assert_eq!(queue.failures(&"a"), 1);
        assert_eq!(queue.take(Duration::from_millis(399)), Some("a"));
        queue.give_back("a", Verdict::BackOff, Duration::from_millis(399));
        assert_eq!(queue.failures(&"a"), 2);
    }

    #[test]
    fn back_off_grows_to_a_minute_and_success_ends_it() {
        let mut queue = Queue::default();
        let mut now = Duration::ZERO;
        queue.push("a", now, Urgency::Event);
        let mut pauses = Vec::new();
        for _ in 0..11 {
            assert_eq!(queue.take(now), Some("a"));
            let until = queue.give_back("a", Verdict::BackOff, now).expect("it backs off");
            pauses.push((until - now).as_millis());
            now = until;
        }
        assert_eq!(
            pauses,
            [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]
        );
        queue.take(now);
        queue.give_back("a", Verdict::Done { wake: None }, now);
        assert_eq!(queue.failures(&"a"), 0);
    }

    #[test]
    fn the_end_of_an_outage_ends_back_offs_and_the_back_off_of_a_key_that_fails_again_goes_on_growing() {
        let mut queue = Queue::default();
        for key in ["a", "b"] {
            queue.push(key, secs(0), Urgency::Event);
            queue.take(secs(0));
        }
        queue.give_back("a", Verdict::BackOff, secs(0));
        queue.give_back("b", Verdict::Done { wake: Some(secs(9)) }, secs(0));
        let soon = Duration::from_millis(10);
        queue.end_back_offs(soon);
        assert_eq!(queue.take(soon), Some("a"));
        assert_eq!(queue.take(soon), None, "a key that waits for its time goes on waiting");
        let until = queue.give_back("a", Verdict::BackOff, soon);
        assert_eq!(until, Some(soon + Duration::from_millis(400)));
    }

    #[test]
    fn how_long_keys_wait_and_how_long_workers_have_them_is_known() {
        let mut queue = Queue::default();
        for (key, at) in [("a", 1), ("b", 2), ("c", 9)] {
            queue.push(key, secs(at), Urgency::Event);
        }
        assert!(queue.due(secs(3)).eq(&["a", "b"]));
        queue.take(secs(3));
        assert_eq!(queue.waited(&"a"), secs(2));
        assert!(queue.due(secs(3)).eq(&["b"]));
        assert!(queue.under_way(secs(7)).eq([(&"a", secs(4))]));
        queue.give_back("a", Verdict::Done { wake: None }, secs(7));
        assert_eq!(queue.under_way(secs(7)).count(), 0);
    }

    #[test]
    fn a_forgotten_key_leaves_nothing_behind() {
        let mut queue = Queue::default();
        queue.push("a", secs(0), Urgency::Event);
        queue.take(secs(0));
        queue.give_back("a", Verdict::Forget, secs(0));
        assert!(queue.entries.is_empty() && queue.next_due().is_none());
    }
}
