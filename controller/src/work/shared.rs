//! What all workers share: the world, the writer, the drivers, the seam to time.
//!
//! The world stands behind one lock that is never held over an await. Everything that enters it rings the bell of the
//! dispatcher.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use millwright_core::api::meta;
use millwright_core::ids::DriverName;
use millwright_core::settings::Settings;
use millwright_core::sight::Sight;
use millwright_core::world::{Kind, World};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::pods::PodWatches;
use crate::driver::{Driver, DriverState, Lead, Pool, SecretStore};
use crate::env::Env;
use crate::health::Heartbeat;
use crate::kube::client::Cluster;
use crate::kube::error::ReadError;
use crate::kube::events::Publisher;
use crate::kube::watch::WatchHealth;
use crate::kube::write::Writer;
use crate::telemetry::Metrics;

/// A dispatcher that did not come round for this long hangs: it comes round every few seconds with nothing to do.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// What all workers share: the world behind its lock, clients, settings, clocks.
pub struct Shared {
    world: Mutex<World>,
    /// Rung when a key may be due sooner than the dispatcher knows.
    pub bell: Notify,
    /// Rung when objects are listed anew, as where their CRD was replaced.
    pub relisted: Notify,
    /// Time and chance.
    pub env: Env,
    /// Writes to both clusters.
    pub write: Writer,
    /// The drivers.
    pub drivers: Pool,
    /// Credentials and user data.
    pub secrets: SecretStore,
    /// Kubernetes events.
    pub events: Publisher,
    /// The operator's wishes.
    pub settings: Settings,
    /// `auth-extra-groups` of bootstrap tokens.
    pub token_groups: String,
    /// Numbers.
    pub metrics: Metrics,
    /// The lead under which this term works; in doubt it asks the Lease.
    pub lead: Arc<Lead>,
    /// The watches of the control cluster: since when each has shown everything.
    pub control_views: Vec<Arc<WatchHealth>>,
    /// The watch of the target cluster's Nodes, where there is one.
    pub target_view: Option<Arc<WatchHealth>>,
    /// The cluster that nodes join, where there is one: pods of Nodes are watched in it while they are drained.
    pub target: Option<Cluster>,
    /// Those watches.
    pub pod_watches: PodWatches,
    /// Driver calls under way, and watches of pods.
    pub calls: TaskTracker,
    /// Sign of life of the dispatcher.
    pub heartbeat: Arc<Heartbeat>,
    /// Ends the term in order.
    pub stop: CancellationToken,
}

/// The parts of [`Shared`] that are made elsewhere.
pub struct Parts {
    /// Time and chance.
    pub env: Env,
    /// Writes to both clusters.
    pub write: Writer,
    /// The drivers.
    pub drivers: Pool,
    /// Credentials and user data.
    pub secrets: SecretStore,
    /// Kubernetes events.
    pub events: Publisher,
    /// The operator's wishes.
    pub settings: Settings,
    /// `auth-extra-groups` of bootstrap tokens.
    pub token_groups: String,
    /// Numbers.
    pub metrics: Metrics,
    /// The lead under which this term works; in doubt it asks the Lease.
    pub lead: Arc<Lead>,
    /// The watches of the control cluster: since when each has shown everything.
    pub control_views: Vec<Arc<WatchHealth>>,
    /// The watch of the target cluster's Nodes, where there is one.
    pub target_view: Option<Arc<WatchHealth>>,
    /// The cluster that nodes join, where there is one.
    pub target: Option<Cluster>,
    /// Ends the term in order.
    pub stop: CancellationToken,
}

impl Shared {
    /// A driver says that a newer leader has spoken to it. The Lease decides: if it is ours, the driver remembers an epoch that is none
    /// any more; it alone is told a higher one, and only its own machines wait for that (MAN-13). Gives what to tell of that. `None`: the
    /// Lease is not ours; the election has seen so or sees it at its next look, and ends the term.
    pub async fn leads_against(&self, driver: Option<&Driver>) -> Result<Option<&'static str>, ReadError> {
        let name = driver.map_or("", |driver| driver.info().name.as_str());
        if !self.lead.still_leads().await? {
            tracing::warn!(
                driver = name,
                "a driver has heard a newer leader, and the lease is not this term's any more"
            );
            return Ok(None);
        }
        if let Some(driver) = driver {
            driver.raise_epoch();
        }
        let text = "The driver claims that a newer leader has spoken to it, but the lease is held by this manager; \
                    it is told a higher epoch from now on";
        tracing::warn!(driver = name, "{text}");
        Ok(Some(text))
    }

    /// Puts the parts together around an empty world.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            env,
            write,
            drivers,
            secrets,
            events,
            settings,
            token_groups,
            metrics,
            lead,
            control_views,
            target_view,
            target,
            stop,
        } = parts;
        Arc::new(Self {
            world: Mutex::default(),
            bell: Notify::new(),
            relisted: Notify::new(),
            env,
            write,
            drivers,
            secrets,
            events,
            settings,
            token_groups,
            metrics,
            lead,
            control_views,
            target_view,
            target,
            pod_watches: PodWatches::default(),
            calls: TaskTracker::new(),
            heartbeat: Arc::new(Heartbeat::new(HANGS_AFTER)),
            stop,
        })
    }

    /// Looks at the world.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        let world = self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        look(&world)
    }

    /// Changes the world, and rings.
    pub fn change<T>(&self, change: impl FnOnce(&mut World, Duration) -> T) -> T {
        let uptime = self.env.uptime();
        let result = {
            let mut world = self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            change(&mut world, uptime)
        };
        self.bell.notify_one();
        result
    }

    /// Changes the world where nothing becomes due by it.
    pub fn quietly<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut world)
    }

    /// Takes an object that one of our writes returned, and gives it back as it is kept.
    pub fn wrote<K: Kind>(&self, object: K) -> Arc<K> {
        self.change(|world, uptime| world.wrote(object, uptime))
    }

    /// Takes an object that our finalizer was removed from. `None`: that was its end.
    pub fn released<K: Kind + kube::Resource>(&self, left: K) -> Option<Arc<K>> {
        let held = left.meta().finalizers.as_ref().is_some_and(|held| !held.is_empty());
        if held || !meta::is_deleting(left.meta()) {
            return Some(self.wrote(left));
        }
        let (name, uid) = meta::identity(left.meta());
        self.change(|world, uptime| world.ended::<K>(&name, &uid, uptime));
        None
    }

    /// Whether the driver can be called now.
    pub fn is_here(&self, driver: &DriverName) -> bool {
        matches!(self.drivers.get(driver), DriverState::Ready(_))
    }

    /// Since when this process sees what timeouts rest on, for an object of that driver.
    pub fn sight(&self, driver: Option<&DriverName>) -> Sight {
        let (now, instant) = (self.env.now(), Instant::now());
        let at = |since: Instant| {
            let ago = SignedDuration::try_from(instant.saturating_duration_since(since)).unwrap_or(SignedDuration::MAX);
            now.saturating_sub(ago).unwrap_or(Timestamp::MIN)
        };
        let views: Option<Vec<Instant>> = self.control_views.iter().map(|view| view.fresh_since()).collect();
        let control = views.and_then(|views| views.into_iter().max());
        let target = match &self.target_view {
            Some(view) => view.fresh_since(),
            None => control,
        };
        Sight {
            lead_since: self.lead.since().map_or(now, at),
            control_since: control.map(at),
            target_since: target.map(at),
            driver_since: driver.and_then(|driver| self.drivers.ready_since(driver)).map(at),
        }
    }
}
