//! The composition root: clients, watches, drivers, workers, and the order in which they start and stop.
//!
//! Decides nothing about machines. One `JoinSet` holds every task, so that a panic of any ends the process. Order of
//! start: watches and drivers at once, work when this process leads and every watch has a list that is newer than its lead.
//! Order of stop: no new work, passes end, driver calls get a moment for their answers, events are flushed, the lease is
//! given up.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use millwright_core::ids::DriverName;
use millwright_core::wake;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::config::{Config, Election, TargetCluster};
use crate::driver::{
    CallObserver, CallRecord, Connect, Endpoint, Lead, ManagerIdentity, Pauses, Pool, PoolSettings, SecretStore,
};
use crate::env::Env;
use crate::kube::client::{Cluster, Policy, Role};
use crate::kube::events;
use crate::kube::leadership::Leadership;
use crate::kube::lease::{Candidate, LeaseSettings};
use crate::kube::watch::WatchHealth;
use crate::kube::write::Writer;
use crate::telemetry::Metrics;
use crate::work::dispatch;
use crate::work::shared::{Parts, Shared};

mod checks;
mod watches;

/// How long driver calls may take to answer after the stop; their work goes on in the driver either way.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A signal asked for it.
    Asked,
    /// Another process leads now.
    LostLead,
}

/// Runs the manager of this process until a signal or the loss of its lease.
pub async fn run(config: Config) -> anyhow::Result<End> {
    let metrics = Metrics::default();
    let (leads, leadership) = election(&config);
    let (control, target) = clusters(&config, &metrics, &leadership).await?;
    let port = admin::bind(config.metrics_addr).await?;
    let stop = CancellationToken::new();
    let mut signals = JoinSet::new();
    signals.spawn(catch(stop.clone())?);
    let given = Given {
        env: Env::begin(),
        control,
        target,
        leads,
        leadership,
        connect: Arc::new(Endpoint::wire),
        metrics,
        port: Some(port),
        stop,
    };
    manage(&config, given).await
}

/// What a manager is given by whoever runs it: the process, or a simulator of many.
pub struct Given {
    /// Time, chance, planners.
    pub env: Env,
    /// The cluster of our kinds.
    pub control: Cluster,
    /// The cluster of the nodes, if there is one.
    pub target: Option<Cluster>,
    /// Where the election tells its outcome.
    pub leads: watch::Sender<Leadership>,
    /// Where it is read; the clusters' fences read the same.
    pub leadership: watch::Receiver<Leadership>,
    /// How drivers are reached.
    pub connect: Connect,
    /// Numbers.
    pub metrics: Metrics,
    /// Where numbers and health are served, if anywhere.
    pub port: Option<TcpListener>,
    /// Ends the manager in order.
    pub stop: CancellationToken,
}

/// The channel of the election's outcome, which comes before the clients because their fences read it.
pub fn election(config: &Config) -> (watch::Sender<Leadership>, watch::Receiver<Leadership>) {
    watch::channel(match config.election {
        Some(_) => Leadership::Unknown,
        None => Leadership::ALONE,
    })
}

/// Manages until `stop` or the loss of the lease. Boxed, so that the manager's whole machinery is compiled here and not
/// again by whoever embeds it.
pub fn manage(config: &Config, given: Given) -> BoxFuture<'_, anyhow::Result<End>> {
    Box::pin(managed(config, given))
}

async fn managed(config: &Config, given: Given) -> anyhow::Result<End> {
    let mut tasks = JoinSet::new();
    let lead = Arc::new(Lead::new(given.leadership.clone()));
    let shared = build(config, &given, &lead, &mut tasks);
    let Given {
        env,
        control,
        target,
        leads,
        leadership,
        metrics,
        port,
        stop,
        ..
    } = given;
    let watches = watches::start(&mut tasks, &shared, &control, target.as_ref(), &config.namespace, &stop);

    // The lease and the admin port outlive all other work: from the moment the lease is given back, another may lead.
    let held = CancellationToken::new();
    let mut standing = JoinSet::new();
    let candidate = config
        .election
        .as_ref()
        .map(|election| candidate(&control, &config.namespace, election, leads, env));
    let beat = candidate.as_ref().map(Candidate::heartbeat);
    if let Some(port) = port {
        let health = checks::all(&shared, &watches, leadership.clone(), beat);
        standing.spawn(serve(admin::run(port, Arc::new(health), metrics, held.clone())));
    }
    if let Some(candidate) = candidate {
        standing.spawn(candidate.run(held.clone()));
    }
    tracing::info!(
        namespace = config.namespace,
        cluster = config.settings.cluster_id,
        "manager started"
    );

    let end = tokio::select! {
        biased;
        failed = watch_over(&mut tasks) => Err(failed),
        end = work(config, &shared, &watches, leadership, &lead) => end,
    };
    close(&shared, &mut tasks).await;
    held.cancel();
    while standing.join_next().await.is_some() {}
    tracing::info!(?end, "manager stopped");
    end
}

/// The control cluster, and the target where there is one.
async fn clusters(
    config: &Config,
    metrics: &Metrics,
    leadership: &watch::Receiver<Leadership>,
) -> anyhow::Result<(Cluster, Option<Cluster>)> {
    let policy = |role| policy(config, role, metrics, leadership);
    let control = Cluster::open(&config.control, policy(Role::Control)).await?;
    let target = match &config.target {
        TargetCluster::SameAsControl => Some(control.clone()),
        TargetCluster::Other(access) => Some(Cluster::open(access, policy(Role::Target)).await?),
        TargetCluster::None => None,
    };
    Ok((control, target))
}

/// What decides about requests to a cluster.
pub fn policy(config: &Config, role: Role, metrics: &Metrics, leadership: &watch::Receiver<Leadership>) -> Policy {
    Policy {
        role,
        leadership: Some(leadership.clone()),
        budget: config.budget(),
        metrics: metrics.clone(),
    }
}

/// What all workers share, and the tasks behind it.
fn build(config: &Config, given: &Given, lead: &Arc<Lead>, tasks: &mut JoinSet<()>) -> Arc<Shared> {
    let Given {
        env,
        control,
        target,
        metrics,
        stop,
        ..
    } = given;
    // The pool tells of changes to what is built with the pool: it gets to know it afterwards.
    let known: Arc<OnceLock<Weak<Shared>>> = Arc::default();
    let (drivers, upkeep) = Pool::new(pool_settings(config, given, lead, &known));
    let secrets = SecretStore::new(control.client.clone());
    let identity = config
        .election
        .as_ref()
        .map_or("millwright", |election| election.identity.as_str());
    let (publisher, postman) = events::channel(control.client.clone(), metrics.clone(), identity, env.clone());
    tasks.spawn(until(stop.clone(), upkeep));
    tasks.spawn(until(stop.clone(), secrets.clone().upkeep()));
    tasks.spawn(postman.run(stop.clone()));
    let target = target.as_ref().map(|target| target.client.clone());
    let shared = Shared::new(Parts {
        env: env.clone(),
        write: Writer::new(control.client.clone(), target, &config.namespace),
        drivers,
        secrets,
        events: publisher,
        settings: config.settings.clone(),
        token_groups: config.bootstrap_groups.join(","),
        metrics: metrics.clone(),
        stop: stop.clone(),
    });
    known.get_or_init(|| Arc::downgrade(&shared));
    shared
}

async fn serve(serving: impl Future<Output = Result<(), admin::AdminError>>) {
    if let Err(error) = serving.await {
        tracing::error!(%error, "metrics and health are not served any more");
    }
}

/// Returns when a task that should run to the end has panicked.
async fn watch_over(tasks: &mut JoinSet<()>) -> anyhow::Error {
    while let Some(ended) = tasks.join_next().await {
        if let Err(panic) = ended {
            return anyhow::Error::new(panic).context("a task of the manager panicked");
        }
    }
    std::future::pending().await
}

/// Ends what is under way, in order.
async fn close(shared: &Shared, tasks: &mut JoinSet<()>) {
    shared.stop.cancel();
    shared.calls.close();
    if tokio::time::timeout(LAST_ANSWERS, shared.calls.wait()).await.is_err() {
        tracing::info!("driver calls are still under way; the next leader repeats them and gets their answers");
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(panic) = ended {
            tracing::error!(%panic, "a task panicked");
        }
    }
}

fn pool_settings(
    config: &Config,
    given: &Given,
    lead: &Arc<Lead>,
    shared: &Arc<OnceLock<Weak<Shared>>>,
) -> PoolSettings {
    let shared = Arc::clone(shared);
    PoolSettings {
        endpoints: config.drivers.clone(),
        manager: ManagerIdentity {
            name: "millwright".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        deadlines: crate::driver::Deadlines::new(),
        pauses: Pauses::default(),
        connect: Arc::clone(&given.connect),
        lead: Arc::clone(lead),
        observer: Arc::new(Observer(given.metrics.clone())),
        on_change: Arc::new(move |driver: &DriverName| {
            if let Some(shared) = shared.get().and_then(Weak::upgrade) {
                shared.change(|world, uptime| wake::driver_changed(world, driver, uptime));
            }
        }),
    }
}

/// Gives driver calls to the metrics.
struct Observer(Metrics);

impl CallObserver for Observer {
    fn called(&self, record: CallRecord<'_>) {
        self.0.driver_call(
            record.driver.as_str(),
            record.method.name(),
            record.code,
            record.reason,
            record.took,
        );
    }
}

fn candidate(
    control: &Cluster,
    namespace: &str,
    election: &Election,
    leads: watch::Sender<Leadership>,
    env: Env,
) -> Candidate {
    let settings = LeaseSettings {
        namespace: namespace.to_owned(),
        name: election.lease_name.clone(),
        identity: election.identity.clone(),
        terms: election.terms,
        env,
    };
    Candidate::new(control.client.clone(), settings, leads)
}

async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    stop.run_until_cancelled(task).await;
}

/// Ends the process in order at SIGTERM and SIGINT.
fn catch(stop: CancellationToken) -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            () = stop.cancelled() => {}
        }
        stop.cancel();
    })
}

async fn synced(watches: &[Arc<WatchHealth>]) {
    while !watches.iter().all(|watch| watch.is_synced()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for the lead, and for lists that are newer than it: each watch lags on its own, so a follower may know that the last
/// leader's Machines were counted and not know the Machines.
async fn lead(
    config: &Config,
    watches: &[Arc<WatchHealth>],
    leadership: &mut watch::Receiver<Leadership>,
) -> Result<Option<u32>, watch::error::RecvError> {
    loop {
        let leading = leadership.wait_for(|leadership| matches!(leadership, Leadership::Leader { .. }));
        let epoch = leading.await?.epoch();
        if config.election.is_none() {
            return Ok(epoch);
        }
        watches.iter().for_each(|watch| watch.doubt());
        synced(watches).await;
        // Who lost the lead meanwhile, and perhaps won it again, begins anew.
        if epoch.is_some() && leadership.borrow().epoch() == epoch {
            return Ok(epoch);
        }
    }
}

/// Waits for the first lists and the lead, then works until the end of either.
async fn work(
    config: &Config,
    shared: &Arc<Shared>,
    watches: &[Arc<WatchHealth>],
    mut leadership: watch::Receiver<Leadership>,
    term: &Lead,
) -> anyhow::Result<End> {
    let ready = async {
        synced(watches).await;
        tracing::info!("every watch has its first list");
        lead(config, watches, &mut leadership).await
    };
    let Some(leading) = shared.stop.run_until_cancelled(ready).await else {
        return Ok(End::Asked);
    };
    if let Some(number) = leading.context("the election ended")? {
        term.begin(number);
    }
    tracing::info!("this process leads");
    // An error means that the election has ended, and then nobody renews either.
    let lost = async {
        drop(
            leadership
                .wait_for(|leadership| !matches!(leadership, Leadership::Leader { .. }))
                .await,
        )
    };
    tokio::select! {
        biased;
        () = lost, if config.election.is_some() => {
            tracing::error!("the lease is lost; another process leads, this one ends");
            Ok(End::LostLead)
        }
        () = dispatch::run(Arc::clone(shared), config.workers) => {
            let deposed = shared.deposed.load(Ordering::Acquire);
            Ok(if deposed { End::LostLead } else { End::Asked })
        }
    }
}
