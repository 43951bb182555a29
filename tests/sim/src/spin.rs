//! Bounds on what may happen in a run, and while no time passes in it. Virtual time moves when nothing can run any more, so
//! whatever goes round without waiting would hang its run for ever; what goes round and waits would end it too late.
//!
//! Decides when it is too much. A task that neither waits, nor asks for the time, nor does anything that is told cannot be
//! seen from here, and hangs its run as before.

use std::time::Duration;

/// Events in one instant. The busiest instant of 1,500 runs by choice held 21.
const EVENTS: u64 = 1_000;
/// How often one manager may look at its clock in one instant, which it does for each plan. The most in those runs was 23.
pub const LOOKS: u64 = 2_000;

/// Events of one run. The longest of hundreds of runs by choice had a few thousand.
const RUN_EVENTS: u64 = 200_000;
/// Virtual time of one run: a day in which something is away, and half a day for all else.
const RUN_TIME: Duration = Duration::from_hours(36);

/// Whether a run has gone on for longer than any that ends; how.
pub fn is_endless(at: Duration, events: u64) -> Option<String> {
    if events == RUN_EVENTS {
        return Some(format!("{RUN_EVENTS} events and no end"));
    }
    (at > RUN_TIME).then(|| format!("{} h of virtual time and no end", RUN_TIME.as_secs() / 3600))
}

/// What happens in the current instant.
#[derive(Debug, Default)]
pub struct Instant {
    at: Duration,
    events: u64,
}

impl Instant {
    /// Counts an event. Whether it is one too many, which is said once.
    ///
    /// # Panics
    ///
    /// Where it goes on all the same: who does not even let the run end can only be stopped so.
    pub fn is_overfull(&mut self, at: Duration) -> bool {
        if self.at != at {
            *self = Self { at, events: 0 };
        }
        self.events += 1;
        stop(self.events, EVENTS)
    }
}

/// Whether this one of so many is the first too many.
///
/// # Panics
///
/// See [`Instant::is_overfull`].
pub fn stop(nth: u64, most: u64) -> bool {
    assert!(nth < 2 * most, "{nth} times while no time passes");
    nth == most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_overfull_once_and_time_that_passes_begins_anew() {
        let mut instant = Instant::default();
        let (now, next) = (Duration::from_secs(1), Duration::from_secs(2));
        let mut fill = |at, count| (0..count).filter(|_| instant.is_overfull(at)).count();
        assert_eq!(fill(now, EVENTS - 1), 0);
        assert_eq!(fill(next, EVENTS - 1), 0);
        assert_eq!(fill(next, 100), 1);
    }

    #[test]
    fn a_run_of_more_events_or_more_time_than_any_that_ends_is_endless() {
        assert_eq!(is_endless(RUN_TIME, RUN_EVENTS - 1), None);
        assert!(is_endless(Duration::ZERO, RUN_EVENTS).is_some());
        assert!(is_endless(RUN_TIME + Duration::from_secs(1), 1).is_some());
    }

    #[test]
    #[should_panic(expected = "4000 times while no time passes")]
    fn who_goes_on_all_the_same_is_stopped() {
        let told = (1..=2 * LOOKS).filter(|nth| stop(*nth, LOOKS)).count();
        unreachable!("told {told} times and not stopped");
    }
}
