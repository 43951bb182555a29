//! Until when an API server asked to be left alone, by `Retry-After`.
//!
//! Every request to it waits for that, so that of hundreds of machines only those that were under way are refused; then they come back one
//! after the other and not all at once. One refusal alone may speak of one object, as an admission webhook's does: only when several came
//! in a row does it speak of the server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use tokio::time::Instant;

/// The longest time that is waited for: an API server asks for seconds. A proxy may ask for anything.
const LONGEST: Duration = Duration::from_secs(30);
/// So many refusals in a row, with no other answer between them, speak of the server.
const IN_A_ROW: u32 = 4;
/// Over how long those who waited come back.
const SPREAD: Duration = Duration::from_secs(1);

/// The layer of a client that remembers until when a server wants to be left alone.
#[derive(Debug, Default)]
pub(super) struct RetryAfter {
    until: Mutex<Option<Instant>>,
    refused: AtomicU32,
    waited: AtomicU32,
}

impl RetryAfter {
    /// Reads what an answer asks for.
    pub(super) fn note<B>(&self, answer: &Response<B>) {
        let is_later = matches!(
            answer.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let asked = answer.headers().get(RETRY_AFTER).filter(|_| is_later);
        let Some(seconds) = asked.and_then(|value| value.to_str().ok()?.parse().ok()) else {
            self.refused.store(0, Ordering::Relaxed);
            return;
        };
        if self.refused.fetch_add(1, Ordering::Relaxed) + 1 < IN_A_ROW {
            return;
        }
        let until = Instant::now() + Duration::from_secs(seconds).min(LONGEST);
        let mut known = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(known.map_or(until, |known| known.max(until)));
    }

    /// Waits until the server may be asked again.
    pub(super) async fn passed(&self) {
        while let Some(until) = self.until() {
            // Parts of the golden ratio lie apart, however many there are.
            let place = f64::from(self.waited.fetch_add(1, Ordering::Relaxed)) * 0.618_033_988_749_895;
            tokio::time::sleep_until(until + SPREAD.mul_f64(place.fract())).await;
        }
    }

    fn until(&self) -> Option<Instant> {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|until| *until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_object_between_other_answers_hold_nobody_up_and_those_in_a_row_hold_all() {
        let answer = |status: u16, after: &str| {
            let answer = Response::builder().status(status).header(RETRY_AFTER, after);
            answer.body(()).expect("it is an answer")
        };
        let asked = RetryAfter::default();
        for _ in 0..20 {
            asked.note(&answer(429, "30"));
            asked.note(&answer(200, "30"));
        }
        assert_eq!(asked.until(), None, "one object is refused");
        for after in ["-1", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"] {
            (0..20).for_each(|_| asked.note(&answer(429, after)));
        }
        assert_eq!(asked.until(), None, "no number of seconds");
        (0..IN_A_ROW).for_each(|_| asked.note(&answer(503, "99999999")));
        let until = asked.until().expect("the server is left alone");
        assert!(until <= Instant::now() + LONGEST);
    }
}
