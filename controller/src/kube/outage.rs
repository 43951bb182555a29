//! The moment at which an API server answers again.
//!
//! What got no answer is tried again after pauses that grow, so at the end of a long outage the next try may be a minute away. The first
//! answer after an outage ends these pauses: of watches, and of keys that back off.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// An outage that is shorter has left only short pauses.
const LONG: Duration = Duration::from_secs(3);

/// Notices outages in what becomes of requests.
#[derive(Debug)]
pub(super) struct Outage {
    /// When the first request failed after the last answer.
    since: Mutex<Option<Instant>>,
    /// Wakes its receivers in the order in which they began to wait. A `watch` channel wakes them in a random order, and no simulated run
    /// could be replayed.
    ends: broadcast::Sender<()>,
}

impl Outage {
    pub(super) fn new() -> Self {
        Self {
            since: Mutex::default(),
            ends: broadcast::Sender::new(1),
        }
    }

    /// Notes what became of a request: the status of its answer, if there was one.
    pub(super) fn note(&self, status: Option<StatusCode>) {
        let is_answer = status.is_some_and(|status| {
            let is_busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
            !is_busy && !status.is_server_error()
        });
        let now = Instant::now();
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_answer {
            since.get_or_insert(now);
            return;
        }
        if since.take().is_some_and(|since| now - since >= LONG) {
            // An error only says that nobody waits.
            let _ = self.ends.send(());
        }
    }

    /// The ends of outages from now on.
    pub(super) fn ends(&self) -> OutageEnds {
        OutageEnds(self.ends.subscribe())
    }
}

/// Tells the end of each outage that ends after it was made. A clone begins anew.
#[derive(Debug)]
pub struct OutageEnds(broadcast::Receiver<()>);

impl Clone for OutageEnds {
    fn clone(&self) -> Self {
        Self(self.0.resubscribe())
    }
}

impl OutageEnds {
    /// Waits until an outage ends. `None`: there is no client any more that could notice it.
    pub async fn next(&mut self) -> Option<()> {
        match self.0.recv().await {
            // Whoever lags has missed ends. To be told once more of the last one does no harm.
            Ok(()) | Err(RecvError::Lagged(_)) => Some(()),
            Err(RecvError::Closed) => None,
        }
    }

    /// Forgets ends until now.
    pub fn skip_past(&mut self) {
        self.0 = self.0.resubscribe();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn is_told(ends: &mut OutageEnds) -> bool {
        ends.next().now_or_never().is_some()
    }

    const OK: Option<StatusCode> = Some(StatusCode::OK);

    #[tokio::test(start_paused = true)]
    async fn the_first_answer_after_an_outage_is_told_once() {
        let outage = Outage::new();
        let mut ends = outage.ends();
        for failure in [
            None,
            Some(StatusCode::SERVICE_UNAVAILABLE),
            Some(StatusCode::TOO_MANY_REQUESTS),
        ] {
            outage.note(failure);
            tokio::time::advance(LONG).await;
            outage.note(failure);
            assert!(!is_told(&mut ends), "{failure:?}");
            outage.note(OK);
            assert!(is_told(&mut ends), "{failure:?}");
            outage.note(OK);
            assert!(!is_told(&mut ends), "{failure:?}");
        }
    }

    /// An admission webhook that is away fails the writes of some objects, between answers for all others.
    #[tokio::test(start_paused = true)]
    async fn failures_between_answers_are_no_outage() {
        let outage = Outage::new();
        let mut ends = outage.ends();
        for _ in 0..10 {
            outage.note(Some(StatusCode::INTERNAL_SERVER_ERROR));
            tokio::time::advance(Duration::from_secs(1)).await;
            outage.note(Some(StatusCode::CONFLICT));
        }
        assert!(!is_told(&mut ends));
    }
}
