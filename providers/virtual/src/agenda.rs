//! What is due when: one heap for all VMs, so that a thousand VMs cost one timer and not a thousand tasks.
//!
//! Knows no VMs and no effects; the clock is handed in.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use jiff::Timestamp;

use crate::clock;

/// Entries that fall due within one slice are handed out together.
const SLICE: Duration = Duration::from_millis(20);

/// Entries ordered by when they are due.
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Reverse<(Timestamp, T)>>,
}

impl<T: Ord> Agenda<T> {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
        }
    }

    pub(crate) fn add(&mut self, due: Timestamp, entry: T) {
        self.heap.push(Reverse((due, entry)));
    }

    /// The next entry that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<T> {
        let Reverse((due, _)) = self.heap.peek()?;
        if *due > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, entry))| entry)
    }

    /// Sleeps from `now` until something is due; for ever if nothing is planned. Safe to drop and call again.
    pub(crate) async fn wait(&self, now: Timestamp) {
        let Some(Reverse((due, _))) = self.heap.peek() else {
            return std::future::pending().await;
        };
        let left = clock::until(*due, now);
        if !left.is_zero() {
            tokio::time::sleep(left.max(SLICE)).await;
        }
    }
}
