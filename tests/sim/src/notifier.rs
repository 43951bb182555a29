//! A notifier with a deterministic wake order: tokio's `watch` wakes its waiters in an unseeded order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Wakes all who are subscribed.
#[derive(Debug, Default)]
pub struct Notifier {
    count: AtomicU64,
    notify: Notify,
}

impl Notifier {
    /// Wakes them.
    pub fn notify(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.notify.notify_waiters();
    }

    /// Subscribes from now on.
    pub fn subscribe(self: &Arc<Self>) -> Subscription {
        Subscription {
            seen: self.count.load(Ordering::Acquire),
            notifier: Arc::clone(self),
        }
    }
}

/// Learns of every notification, also of those while nobody waited.
#[derive(Debug)]
pub struct Subscription {
    seen: u64,
    notifier: Arc<Notifier>,
}

impl Subscription {
    /// Takes all notifications so far as seen.
    pub fn catch_up(&mut self) {
        self.seen = self.notifier.count.load(Ordering::Acquire);
    }

    /// Waits until there is one that was not seen.
    pub async fn changed(&mut self) {
        // Made before the count is read, so that a notification in between wakes it.
        let notifier = Arc::clone(&self.notifier);
        let next = notifier.notify.notified();
        if notifier.count.load(Ordering::Acquire) == self.seen {
            next.await;
        }
        self.catch_up();
    }
}
