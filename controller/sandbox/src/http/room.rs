//! The value behind its lock, and the bell that rings when it changed.
//!
//! Decides that nothing is seen half done: whoever enters is alone with the value, and leaves before it waits. And that
//! nothing is told before it is kept: what somebody saw inside he may say once [`Room::kept`] returns.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::disk::{Disk, Outbox, Saved};
use super::outside::Outside;
use super::users::Users;
use crate::api::Api;

pub(super) struct Room {
    inside: Mutex<Inside>,
    version: watch::Sender<u64>,
    /// Absent where nothing is kept.
    saved: Option<Saved>,
    pub(super) users: Users,
    pub(super) outside: Arc<dyn Outside>,
    pub(super) bookmarks: Duration,
    pub(super) stop: CancellationToken,
}

struct Inside {
    api: Api,
    outbox: Option<Outbox>,
}

impl Inside {
    fn send(&mut self) {
        if let Some(outbox) = &mut self.outbox {
            outbox.take(&self.api);
        }
    }
}

impl Room {
    pub(super) fn new(options: Options, stop: CancellationToken) -> Self {
        let (outbox, saved) = options.disk.map(Disk::begin).unzip();
        let mut inside = Inside {
            api: options.api,
            outbox,
        };
        inside.send();
        Self {
            version: watch::Sender::new(inside.api.version()),
            inside: Mutex::new(inside),
            saved,
            users: options.users,
            outside: options.outside,
            bookmarks: options.bookmarks,
            stop,
        }
    }

    /// Enters, acts, and rings if something changed.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Api) -> T) -> T {
        let (done, now) = {
            let mut inside = self.inside.lock().expect("no rule of the API panics");
            let done = act(&mut inside.api);
            // Under the lock, so that changes go their way in their order.
            inside.send();
            (done, inside.api.version())
        };
        // Two who left at once may ring in the wrong order; the bell never goes back.
        self.version.send_if_modified(|seen| {
            let newer = now > *seen;
            *seen = now.max(*seen);
            newer
        });
        done
    }

    /// Returns when everything up to a version is on disk, or at once where nothing is kept.
    ///
    /// # Errors
    /// It will never be.
    pub(super) async fn kept(&self, version: u64) -> Result<(), String> {
        match &self.saved {
            Some(saved) => saved.reaches(version).await,
            None => Ok(()),
        }
    }

    /// Lets no more changes out, and returns when the file is closed; says why, if that was not by our own wish.
    pub(super) async fn close(&self) -> Option<String> {
        self.inside.lock().expect("no rule of the API panics").outbox = None;
        match &self.saved {
            Some(saved) => saved.ended().await,
            None => None,
        }
    }

    /// Why the file cannot be written, if so.
    pub(super) fn fault(&self) -> Option<String> {
        self.saved.as_ref().and_then(Saved::fault)
    }

    /// The newest version, and a wait for the next.
    pub(super) fn bell(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}
