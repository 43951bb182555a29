//! The value behind its lock, and the bell that rings when it changed.
//!
//! Decides that nothing is seen half done: whoever enters is alone with the value, and leaves before it waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::outside::Outside;
use super::users::Users;
use crate::api::Api;

pub(super) struct Room {
    api: Mutex<Api>,
    version: watch::Sender<u64>,
    pub(super) users: Users,
    pub(super) outside: Arc<dyn Outside>,
    pub(super) bookmarks: Duration,
    pub(super) stop: CancellationToken,
}

impl Room {
    pub(super) fn new(options: Options, stop: CancellationToken) -> Self {
        Self {
            version: watch::Sender::new(options.api.version()),
            api: Mutex::new(options.api),
            users: options.users,
            outside: options.outside,
            bookmarks: options.bookmarks,
            stop,
        }
    }

    /// Enters, acts, and rings if something changed.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Api) -> T) -> T {
        let (done, now) = {
            let mut api = self.api.lock().expect("no rule of the API panics");
            let done = act(&mut api);
            (done, api.version())
        };
        // Two who left at once may ring in the wrong order; the bell never goes back.
        self.version.send_if_modified(|seen| {
            let newer = now > *seen;
            *seen = now.max(*seen);
            newer
        });
        done
    }

    /// The newest version, and a wait for the next.
    pub(super) fn bell(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}
