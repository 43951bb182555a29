//! A counter that rings. tokio's `watch` would do, but for whom it wakes first it throws dice of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Rings for all who listen.
#[derive(Debug, Default)]
pub struct Bell {
    rung: AtomicU64,
    notify: Notify,
}

impl Bell {
    /// Rings.
    pub fn ring(&self) {
        self.rung.fetch_add(1, Ordering::AcqRel);
        self.notify.notify_waiters();
    }

    /// Listens from now on.
    pub fn listen(self: &Arc<Self>) -> Ear {
        Ear {
            heard: self.rung.load(Ordering::Acquire),
            bell: Arc::clone(self),
        }
    }
}

/// Hears a bell, also what rang while nobody waited.
#[derive(Debug)]
pub struct Ear {
    heard: u64,
    bell: Arc<Bell>,
}

impl Ear {
    /// Takes all that rang so far as heard.
    pub fn catch_up(&mut self) {
        self.heard = self.bell.rung.load(Ordering::Acquire);
    }

    /// Waits until it has rung since it was last heard.
    pub async fn rung(&mut self) {
        // Made before the count is read, so that what rings in between wakes it.
        let bell = Arc::clone(&self.bell);
        let next = bell.notify.notified();
        if bell.rung.load(Ordering::Acquire) == self.heard {
            next.await;
        }
        self.catch_up();
    }
}
