//! A user's own provider: whether it is there, and what it calls itself. The handshake is the manager's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use millwright::driver::{
    CallObserver, CallRecord, Deadlines, Endpoint, Endpoints, Health, Lead, ManagerIdentity, Method, Pauses, Peers,
    Pool, PoolSettings,
};
use millwright_core::ids::DriverName;

/// For a provider that is started at the same time.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);
/// Short, because nobody else asks meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

/// Nobody counts these calls.
struct Uncounted;

impl CallObserver for Uncounted {
    fn called(&self, _: CallRecord<'_>) {}
    fn held_up(&self, _: &DriverName, _: Method, _: Duration) {}
}

/// The name that the driver at an endpoint announces.
pub async fn name(endpoint: &Endpoint) -> anyhow::Result<String> {
    let (pool, upkeep) = Pool::new(PoolSettings {
        endpoints: Endpoints::listed([endpoint.clone()]),
        manager: ManagerIdentity {
            name: "millwright-dev".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        deadlines: Deadlines::default(),
        pauses: Pauses {
            away: PAUSE,
            least: PAUSE,
            ..Pauses::default()
        },
        connect: Peers::new(&[]).connect(),
        lead: Arc::new(Lead::alone()),
        observer: Arc::new(Uncounted),
        on_change: Arc::new(|_| {}),
    });
    tokio::select! {
        () = upkeep => unreachable!("a pool is kept up until it is dropped"),
        name = heard(&pool, endpoint) => name,
    }
}

async fn heard(pool: &Pool, endpoint: &Endpoint) -> anyhow::Result<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let states = pool.states();
        let state = states.first();
        if let Some(name) = state
            .filter(|state| state.is_ready())
            .and_then(|state| state.name.as_ref())
        {
            return Ok(name.to_string());
        }
        match state.map(|state| &state.health) {
            Some(health @ Health::Wrong { .. }) => bail!("what answers at {endpoint} is no usable driver: {health}"),
            Some(health) if Instant::now() > until => bail!(
                "no driver answers at {endpoint} ({health}); start your provider first, and let it run under this user id"
            ),
            Some(_) | None => tokio::time::sleep(LOOK).await,
        }
    }
}
