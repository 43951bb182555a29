//! Whether the driver can work, as it says itself: what `grpc.health.v1` and `/healthz` tell.

use std::sync::Arc;

use tokio::sync::watch;

/// A handle on the driver's health. Clones are one handle: give one to [`ServeOptions::health`](crate::ServeOptions::health) and keep another in
/// the driver. A driver that is not asked is healthy, and calls are served whatever it says.
#[derive(Clone, Debug)]
pub struct Health(Arc<watch::Sender<bool>>);

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(true)))
    }
}

impl Health {
    /// Says whether the driver can work, for example that it has lost what it cannot do without.
    pub fn set_serving(&self, is_serving: bool) {
        let has_changed = |known: &mut bool| std::mem::replace(known, is_serving) != is_serving;
        if self.0.send_if_modified(has_changed) {
            tracing::info!(is_serving, "the driver's health has changed");
        }
    }

    /// What was said last.
    pub fn is_serving(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) fn follow(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}
