//! All drivers of the manager: which are there, by name.
//!
//! Decides nothing about machines. A driver that is away, slow or no driver at all has a task of its own and costs only
//! the machines of its own classes; who waits for one is told by the callback when it comes.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use millwright_core::ids::DriverName;
use tokio::task::{AbortHandle, JoinSet};

use super::call::{CallObserver, Driver};
use super::connection::{Connection, ManagerIdentity, Pauses, Shared};
use super::endpoint::{Connect, Endpoint, Endpoints, sockets_of};
use super::lanes::Deadlines;
use super::lead::Lead;
use super::roster::{EndpointState, Found, Health, Roster};

/// Told the name of a driver that came, went or was replaced.
pub type OnChange = Arc<dyn Fn(&DriverName) + Send + Sync>;

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
        /// Every endpoint has told its driver's name, so none of them will turn out to be this one.
        is_certain: bool,
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
        let roster = Mutex::new(Roster::new());
        let shared = Arc::new(Shared {
            roster,
            manager,
            deadlines,
            pauses,
            connect,
            lead,
            observer,
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
            Found::Nobody { unheard } => {
                let others: Vec<String> = unheard
                    .iter()
                    .map(|(endpoint, health)| format!("{endpoint}: {health}"))
                    .collect();
                let others = if others.is_empty() {
                    String::new()
                } else {
                    format!("; {}", others.join("; "))
                };
                DriverState::Missing {
                    is_certain: unheard.is_empty(),
                    why: format!("no driver calls itself {name}{others}"),
                }
            }
        }
    }

    /// Every driver that can be called.
    pub fn all(&self) -> Vec<Arc<Driver>> {
        let names = self.states().into_iter().filter_map(|state| state.name);
        let found = names.map(|name| self.get(&name));
        found
            .filter_map(|state| {
                if let DriverState::Ready(driver) = state {
                    Some(driver)
                } else {
                    None
                }
            })
            .collect()
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
            Endpoints::Directory(directory) => {
                let mut trouble = None;
                loop {
                    match sockets_of(&directory) {
                        Ok(sockets) => {
                            trouble = None;
                            self.forget_absent(&sockets);
                            self.begin(sockets).await;
                        }
                        Err(error) => {
                            let text = error.to_string();
                            if trouble.as_ref() != Some(&text) {
                                tracing::error!(directory = %directory.display(), %error, "directory of drivers cannot be read");
                            }
                            trouble = Some(text);
                        }
                    }
                    let _ = tokio::time::timeout(self.shared.pauses.scan, self.watch_over()).await;
                }
            }
        }
    }

    /// Connects to the endpoints that are new. Those that answer at once get their names in the order of the list, so
    /// that a restart of the manager does not deal them out differently.
    async fn begin(&mut self, endpoints: Vec<Endpoint>) {
        let mut connections = Vec::new();
        for endpoint in endpoints {
            if self.handles.contains_key(&endpoint) || connections.iter().any(|(known, _)| *known == endpoint) {
                continue;
            }
            self.shared.change(|roster| roster.add(endpoint.clone()));
            connections.push((endpoint.clone(), Connection::new(endpoint, Arc::clone(&self.shared))));
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
                Err(_) => std::time::Duration::ZERO,
            };
            let handle = self.connections.spawn(connection.run(pause));
            self.handles.insert(endpoint, handle);
        }
    }

    /// Forgets endpoints whose socket is gone from the directory. One that still answers is kept: its file may have been
    /// replaced, its connection has not.
    fn forget_absent(&mut self, present: &[Endpoint]) {
        let absent: Vec<Endpoint> = self
            .handles
            .keys()
            .filter(|known| !present.contains(known))
            .cloned()
            .collect();
        for endpoint in absent {
            if self
                .shared
                .roster
                .lock()
                .expect("nothing panics under this lock")
                .is_ready(&endpoint)
            {
                continue;
            }
            if let Some(handle) = self.handles.remove(&endpoint) {
                handle.abort();
            }
            self.shared.change(|roster| roster.remove(&endpoint));
            tracing::info!(%endpoint, "socket is gone, its driver is forgotten");
        }
    }

    /// Waits for ever. Connections end only by `forget_absent` or a fault of ours, which must not pass unseen.
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
            Self::Missing { why, .. } | Self::Away { why } => f.write_str(why),
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
