//! A process's lifetime: crash, freeze, partition. A process that was killed is dead: whatever of it still runs reaches nothing and
//! hears nothing.
//!
//! A frozen process does nothing, as far as the world can see: a call that was about to leave leaves when it thaws, and answers come in
//! then. Its tasks cannot be stopped from here, so its timers run on inside; whatever they ask for meanwhile is lost, as no frozen process
//! would have asked for it. Not modelled is, therefore, what a process does between its thaw and the moment at which it notices how late
//! it is; only what it had sent off before.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::notifier::{Notifier, Subscription};

/// For how long a process goes on at least before it stands still again: long enough to hear what it missed. How old its view may be
/// (`fault::Lags`) counts one standstill (`sim replay 881235891 --no-rest`).
const GOES_ON: Duration = Duration::from_secs(5);

/// How a process is cut off from the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Connections are refused, and those that there are break.
    Refused,
    /// Nothing is heard any more.
    Silent,
}

/// The way to one cluster, which may be cut for a while.
#[derive(Debug, Default)]
pub struct Link {
    cut: Mutex<Option<(Instant, Cut)>>,
    storms: Arc<Notifier>,
}

impl Link {
    fn state(&self) -> Option<(Instant, Cut)> {
        let cut = *self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        cut.filter(|(until, _)| Instant::now() < *until)
    }

    /// Cuts it for so long.
    pub fn cut(&self, lasts: Duration, how: Cut) {
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now() + lasts, how));
        if how == Cut::Refused {
            self.storms.notify();
        }
    }

    /// How it is cut, if it is.
    pub fn is_cut(&self) -> Option<Cut> {
        self.state().map(|(_, how)| how)
    }

    /// Returns when what was said can be heard: it is not cut off without a word.
    pub async fn heard(&self) {
        while let Some((until, Cut::Silent)) = self.state() {
            sleep_until(until).await;
        }
    }

    /// Rings when connections break.
    pub fn storms(&self) -> Subscription {
        self.storms.subscribe()
    }
}

/// One process, from its start to its death.
#[derive(Debug)]
pub struct Process {
    /// Which life.
    pub incarnation: u32,
    is_closed: AtomicBool,
    death: Notify,
    frozen_until: Mutex<Option<Instant>>,
    /// The process's own way to the API, of whichever cluster.
    pub link: Link,
}

impl Process {
    /// One that lives.
    pub fn new(incarnation: u32) -> Self {
        Self {
            incarnation,
            is_closed: AtomicBool::new(false),
            death: Notify::new(),
            frozen_until: Mutex::new(None),
            link: Link::default(),
        }
    }

    /// Ends the life.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.death.notify_waiters();
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
        let death = self.death.notified();
        if !self.is_closed() {
            death.await;
        }
    }

    /// Lets something go on for as long as the life lasts; then it never ends. What ends while the process stands still is
    /// heard when it thaws.
    pub async fn pass<T>(&self, work: impl Future<Output = T>) -> T {
        let work = async {
            let done = work.await;
            self.thawed().await;
            done
        };
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

    /// Makes the process stand still for so long.
    pub fn freeze(&self, lasts: Duration) {
        let now = Instant::now();
        let mut frozen_until = self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner);
        if frozen_until.is_some_and(|until| until <= now && now < until + GOES_ON) {
            return;
        }
        *frozen_until = (*frozen_until).max(Some(now + lasts));
    }

    /// Until when the process stands still, if it does.
    pub fn frozen_until(&self) -> Option<Instant> {
        let until = *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|until| Instant::now() < *until)
    }

    /// Returns when the process does not stand still.
    pub async fn thawed(&self) {
        while let Some(until) = self.frozen_until() {
            sleep_until(until).await;
        }
    }

    /// Returns when what was said to the process can be heard: it lives on, and is not cut off without a word.
    pub async fn hears(&self) {
        self.thawed().await;
        while self.link.is_cut() == Some(Cut::Silent) {
            self.link.heard().await;
            self.thawed().await;
        }
    }
}
