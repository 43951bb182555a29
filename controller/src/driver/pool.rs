//! All drivers of the manager: which are there, by name.
//!
//! Decides nothing about machines. A driver that is away, slow or no driver at all has a task of its own and costs only
//! the machines of its own classes; who waits for one is told by the callback when it comes.
//!
//! A socket that goes from `--driver-dir` stays known, as away, for the life of the process or until another takes its driver's name; one
//! that never told a name, for [`Pauses::forget`].

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use millwright_core::driver::Drivers;
use millwright_core::ids::DriverName;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::call::{CallObserver, Driver};
use super::connection::{Connection, ManagerIdentity, OnChange, Pauses, Shared};
use super::endpoint::{Connect, Endpoint, Endpoints, NamedEndpoint, sockets_of};
use super::lanes::Deadlines;
use super::lead::Lead;
use super::roster::{EndpointState, Found, Health, News, Roster};

/// What a pool is made of.
pub struct PoolSettings {
    /// Where drivers are.
    pub endpoints: Endpoints,
    /// Who asks.
    pub manager: ManagerIdentity,
    /// Deadlines that the operator has set.
    pub deadlines: Deadlines,
    /// Pauses; `Pauses::default()` but in tests.
    pub pauses: Pauses,
    /// How an endpoint is reached.
    pub connect: Connect,
    /// Under which lead calls leave, begun once the lease is held.
    pub lead: Arc<Lead>,
    /// Hears of every call.
    pub observer: Arc<dyn CallObserver>,
    /// Wakes those who wait for a driver.
    pub on_change: OnChange,
}

/// What the name of a driver leads to.
#[derive(Clone, Debug)]
pub enum DriverState {
    /// No driver of this name has shown itself. `why` names the endpoints that might still be it.
    Missing {
        /// For people.
        why: String,
    },
    /// It was there and does not answer now.
    Away {
        /// For people.
        why: String,
    },
    /// It can be called.
    Ready(Arc<Driver>),
}

/// The drivers. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

impl Pool {
    /// A pool and its upkeep, which connects, asks and asks again until it is dropped.
    pub fn new(settings: PoolSettings) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let PoolSettings {
            endpoints,
            manager,
            deadlines,
            pauses,
            connect,
            lead,
            observer,
            on_change,
        } = settings;
        let mut roster = Roster::new();
        match &endpoints {
            Endpoints::Listed(listed) => listed.iter().for_each(|named| drop(roster.add(named.endpoint.clone()))),
            Endpoints::Directory(directory) => {
                roster.set_incomplete(Some(format!("{} was not read yet", directory.display())));
            }
        }
        let roster = Mutex::new(roster);
        let shared = Arc::new(Shared {
            roster,
            manager,
            deadlines,
            pauses,
            connect,
            lead,
            observer,
            accounts: Arc::default(),
            on_change,
        });
        (
            Self(Arc::clone(&shared)),
            Upkeep {
                shared,
                connections: JoinSet::new(),
                handles: BTreeMap::new(),
            }
            .run(endpoints),
        )
    }

    /// The driver of that name.
    pub fn get(&self, name: &DriverName) -> DriverState {
        match self.roster(|roster| roster.find(name)) {
            Found::Ready(driver) => DriverState::Ready(driver),
            Found::Away { endpoint, health } => DriverState::Away {
                why: format!("driver {name} at {endpoint} is away: {health}"),
            },
            Found::Nobody { unheard, incomplete } => {
                let unheard = unheard.iter().map(|(endpoint, health)| format!("{endpoint}: {health}"));
                let others: String = incomplete
                    .into_iter()
                    .chain(unheard)
                    .map(|why| format!("; {why}"))
                    .collect();
                DriverState::Missing {
                    why: format!("no driver calls itself {name}{others}"),
                }
            }
        }
    }

    /// Since when the driver of that name answers without interruption. `None`: it does not answer now.
    pub fn ready_since(&self, name: &DriverName) -> Option<Instant> {
        self.roster(|roster| roster.ready_since(name))
    }

    /// Which drivers there are.
    pub fn known(&self) -> Drivers {
        self.roster(Roster::known)
    }

    /// Every endpoint and how it stands, for health, readiness and metrics.
    pub fn states(&self) -> Vec<EndpointState> {
        self.roster(Roster::states)
    }

    fn roster<T>(&self, look: impl FnOnce(&Roster<Arc<Driver>>) -> T) -> T {
        look(&self.0.roster.lock().expect("nothing panics under this lock"))
    }
}

/// Keeps one connection for each endpoint.
struct Upkeep {
    shared: Arc<Shared>,
    connections: JoinSet<()>,
    handles: BTreeMap<Endpoint, AbortHandle>,
}

impl Upkeep {
    async fn run(mut self, endpoints: Endpoints) {
        match endpoints {
            Endpoints::Listed(listed) => {
                self.begin(listed).await;
                self.watch_over().await;
            }
            Endpoints::Directory(directory) => self.follow(&directory).await,
        }
    }

    /// Looks into the directory again and again.
    async fn follow(&mut self, directory: &Path) {
        let mut told = None;
        loop {
            let (sockets, trouble) = match sockets_of(directory) {
                Ok(sockets) => (Some(sockets), None),
                Err(error) => (None, Some(format!("{} cannot be read: {error}", directory.display()))),
            };
            if let Some(reason) = trouble.as_ref().filter(|_| told != trouble) {
                tracing::error!(reason, "no driver is looked for in the directory");
            }
            told.clone_from(&trouble);
            self.shared.change(|roster| {
                roster.set_incomplete(trouble);
                News::nothing()
            });
            if let Some(sockets) = sockets {
                self.mark_absent(&sockets);
                self.begin(sockets.into_iter().map(NamedEndpoint::from).collect()).await;
            }
            let _ = tokio::time::timeout(self.shared.pauses.scan, self.watch_over()).await;
        }
    }

    /// Connects to the endpoints that are new. Those that answer at once get their names in the order of the list, so
    /// that a restart of the manager does not deal them out differently.
    async fn begin(&mut self, endpoints: Vec<NamedEndpoint>) {
        let mut connections = Vec::new();
        for named in endpoints {
            let endpoint = named.endpoint.clone();
            if self.handles.contains_key(&endpoint) || connections.iter().any(|(known, _)| *known == endpoint) {
                continue;
            }
            self.shared.change(|roster| roster.add(endpoint.clone()));
            connections.push((endpoint, Connection::new(named, Arc::clone(&self.shared))));
        }
        let first = self.shared.pauses.first;
        let answers = join_all(
            connections
                .iter()
                .map(|(_, connection)| tokio::time::timeout(first, connection.handshake())),
        )
        .await;
        for ((endpoint, mut connection), answer) in connections.into_iter().zip(answers) {
            let pause = match answer {
                Ok(answer) => connection.absorb(answer),
                Err(_) => Duration::ZERO,
            };
            let handle = self.connections.spawn(connection.run(pause));
            self.handles.insert(endpoint, handle);
        }
    }

    /// Takes note of which sockets are there and which are gone. Behind one that is gone the driver is asked at once whether
    /// it is there: if it answers it is kept as it is, because its file may have been replaced, its connection has not.
    /// The others are asked on and count as away.
    fn mark_absent(&mut self, present: &[Endpoint]) {
        let now = Instant::now();
        let forgotten_by = now.checked_sub(self.shared.pauses.forget);
        let known: Vec<Endpoint> = self.handles.keys().cloned().collect();
        for endpoint in known {
            let is_present = present.contains(&endpoint);
            let mut is_newly_absent = false;
            let mut is_known = true;
            self.shared.change(|roster| {
                match (is_present, roster.driver_of(&endpoint)) {
                    (true, _) => roster.present(&endpoint),
                    (false, Some(driver)) if roster.is_ready(&endpoint) => driver.doubted.notify_one(),
                    (false, _) => is_newly_absent = roster.absent(&endpoint, now),
                }
                if let Some(by) = forgotten_by {
                    roster.forget_nameless(by);
                }
                is_known = roster.knows(&endpoint);
                News::nothing()
            });
            if is_newly_absent {
                tracing::warn!(%endpoint, "socket is gone: its driver counts as away until it is back or another socket takes its name");
            }
            if !is_known && let Some(handle) = self.handles.remove(&endpoint) {
                handle.abort();
                tracing::info!(%endpoint, "socket is gone, its driver is forgotten");
            }
        }
    }

    /// Waits for ever. Connections end only by `mark_absent` or a fault of ours, which must not pass unseen.
    async fn watch_over(&mut self) {
        while let Some(ended) = self.connections.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        std::future::pending::<()>().await;
    }
}

impl fmt::Display for DriverState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { why } | Self::Away { why } => f.write_str(why),
            Self::Ready(driver) => write!(f, "driver {} is ready", driver.info().name),
        }
    }
}

impl EndpointState {
    /// Whether machines can be made through this endpoint.
    pub fn is_ready(&self) -> bool {
        self.health == Health::Ready
    }
}
