//! What stands between one life of a process and the world. A process whose gate is closed is dead: whatever of it still
//! runs reaches nothing and hears nothing.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// One life's gate.
#[derive(Debug)]
pub struct Gate {
    /// Which life.
    pub incarnation: u32,
    is_closed: AtomicBool,
    bell: Notify,
}

impl Gate {
    /// An open gate.
    pub fn new(incarnation: u32) -> Self {
        Self {
            incarnation,
            is_closed: AtomicBool::new(false),
            bell: Notify::new(),
        }
    }

    /// Ends the life.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    /// Ends the life of whoever calls, who never hears of it.
    pub async fn die(&self) {
        self.close();
        std::future::pending().await
    }

    /// Whether the life has ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns when the life ends.
    pub async fn closed(&self) {
        let bell = self.bell.notified();
        if !self.is_closed() {
            bell.await;
        }
    }

    /// Lets something go on for as long as the life lasts; then it never ends.
    pub async fn pass<T>(&self, work: impl Future<Output = T>) -> T {
        let done = tokio::select! {
            biased;
            () = self.closed() => None,
            done = work => Some(done),
        };
        match done {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }
}
