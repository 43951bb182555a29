//! The composition root: clients, watches, drivers, workers, and the order in which they start and stop.
//!
//! Decides nothing about machines. One `JoinSet` holds every task of a term, so that a panic of any ends the process. Order
//! of start: watches and drivers at once, work when this process leads and every watch of the control cluster has a list
//! that is newer than its lead. Order of stop: no new work, passes end, driver calls get a moment for their answers, events
//! are flushed, the lease is given up.
//!
//! A term is work under one epoch, and no two terms have the same. It ends when the epoch changes (somebody deleted or emptied the Lease),
//! when the Lease was not renewed in time, and when another process took it. Then this process stands for the lead again, with nothing of
//! the old term: new lists, new connections to drivers, an empty world.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use millwright_core::ids::DriverName;
use millwright_core::settings::Settings;
use millwright_core::sight::Judging;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::config::{Config, Election, TargetCluster};
use crate::driver::{
    CallObserver, CallRecord, Connect, Lead, ManagerIdentity, Method, Pauses, Peers, Pool, PoolSettings, SecretStore,
};
use crate::env::Env;
use crate::health::{Health, Heartbeat};
use crate::kube::client::{Cluster, Policy, Role};
use crate::kube::events;
use crate::kube::leadership::Leadership;
use crate::kube::lease::{Candidate, LeaseReader, LeaseSettings};
use crate::kube::predecessor::Predecessor;
use crate::kube::write::Writer;
use crate::telemetry::Metrics;
use crate::telemetry::original::Snapshot;
use crate::work::shared::{Parts, Shared};
use crate::work::{additions, dispatch};

mod checks;
mod watches;

use watches::{Views, Watches};

/// How long the start of work waits for the target cluster's Nodes. Work begins without them when it is over: a target
/// cluster that cannot be reached does not keep the control cluster from being served. Plans know what they could not see.
const TARGET_PATIENCE: Duration = Duration::from_secs(5);

/// The parts of the end, 22 s in all: a kubelet kills after 30 s, and by then the Lease must be given back.
///
/// How long passes may take after the stop. An API server that hangs would hold them for a minute.
const LAST_PASSES: Duration = Duration::from_secs(8);
/// How long driver calls may take to answer then; their work goes on in the driver either way.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How far apart two signals are at least, to be two.
const ONE_SIGNAL: Duration = Duration::from_millis(100);
/// How long the log has to be written where the end is at once.
const LAST_LINES: Duration = Duration::from_millis(50);
/// How long everything else of a term may take.
const LAST_TASKS: Duration = Duration::from_secs(2);
/// How long the Leases may take to be given back, and the port to be closed.
const LAST_STANDING: Duration = Duration::from_secs(7);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A signal asked for it.
    Asked,
    /// The original leads.
    OriginalLeads,
}

/// Runs the manager of this process until a signal, or until the original leads.
pub async fn run(config: Config) -> anyhow::Result<End> {
    let metrics = Metrics::default();
    let (leads, leadership) = election(&config);
    let (control, target) = clusters(&config, &metrics, &leadership).await?;
    let mut ports = Vec::new();
    for addr in &config.metrics_addrs {
        ports.push(admin::bind(*addr).await?);
    }
    // They may come later, as from a Secret that is mounted late: each connection reads them anew.
    if let Some(files) = &config.driver_tls
        && let Err(error) = files.check().await
    {
        tracing::error!(%error, "no driver at an https:// endpoint can be reached until this file is mended");
    }
    let stop = CancellationToken::new();
    let mut signals = JoinSet::new();
    signals.spawn(catch(stop.clone())?);
    let env = Env::begin();
    let elected_by = config.election.as_ref().map(|election| election.lease_name.as_str());
    let predecessor = Predecessor::new(&control.lease, &config.namespace, elected_by, &env);
    let given = Given {
        env,
        predecessor: Some(predecessor),
        control,
        target,
        leads,
        leadership,
        connect: Peers::new(&config.driver_uids)
            .with_tls(config.driver_tls.clone())
            .connect(),
        metrics,
        ports,
        stop,
    };
    manage(&config, given).await
}

/// What a manager is given by whoever runs it: the process, or a simulator of many.
pub struct Given {
    /// Time, chance, planners.
    pub env: Env,
    /// The original, which must not lead beside us.
    pub predecessor: Option<Predecessor>,
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
    pub ports: Vec<TcpListener>,
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

/// Manages until `stop`, or until the original leads. Boxed, so that the manager's whole machinery is compiled here and not
/// again by whoever embeds it.
pub fn manage(config: &Config, given: Given) -> BoxFuture<'_, anyhow::Result<End>> {
    Box::pin(managed(config, given))
}

async fn managed(config: &Config, given: Given) -> anyhow::Result<End> {
    let Given {
        env,
        predecessor,
        control,
        target,
        leads,
        leadership,
        connect,
        metrics,
        ports,
        stop,
    } = given;
    // The lease and the admin port outlive all other work: from the moment the lease is given back, another may lead.
    let held = CancellationToken::new();
    let mut standing = JoinSet::new();
    standing.spawn(tell_lead(metrics.clone(), leadership.clone()));
    let lease = config
        .election
        .as_ref()
        .map(|election| lease_settings((&config.namespace, &config.settings), election, &env));
    let candidate = lease
        .clone()
        .map(|lease| Candidate::new(control.lease.clone(), lease, leads));
    let election = candidate.as_ref().map(Candidate::heartbeat);
    let original = CancellationToken::new();
    let health = Arc::new(Health::default());
    for port in ports {
        standing.spawn(admin::run(port, Arc::clone(&health), metrics.clone(), held.clone()));
    }
    if let Some(candidate) = candidate {
        standing.spawn(stand(
            candidate,
            predecessor,
            leadership.clone(),
            Ends {
                held: held.clone(),
                original: original.clone(),
                stop: stop.clone(),
            },
        ));
    }
    tracing::info!(
        namespace = config.namespace,
        cluster = config.settings.cluster_id,
        "manager started"
    );
    let process = Process {
        env,
        control,
        target,
        leadership,
        lease,
        election,
        connect,
        metrics,
        health,
        stop,
    };
    let end = loop {
        match term(config, &process).await {
            Ok(TermEnd::Process(end)) => break Ok(end),
            Ok(TermEnd::LeadLost) => {}
            Err(error) => break Err(error),
        }
    };
    held.cancel();
    if !joined(&mut standing, LAST_STANDING).await {
        tracing::warn!(
            "the Leases could not be given back in time, or the port not be closed: they end with the process"
        );
    }
    let original_leads = original.is_cancelled().then_some(End::OriginalLeads);
    let end = end.map(|end| original_leads.unwrap_or(end));
    tracing::info!(?end, "manager stopped");
    end
}

/// How an election ends, and what ends with it.
struct Ends {
    /// All work has ended: the Leases are given back.
    held: CancellationToken,
    /// The original leads.
    original: CancellationToken,
    /// Ends the process in order.
    stop: CancellationToken,
}

/// Stands for the lead when the original does not lead, and keeps it out from then on.
async fn stand(
    mut candidate: Candidate,
    predecessor: Option<Predecessor>,
    leadership: watch::Receiver<Leadership>,
    ends: Ends,
) {
    let Some(mut predecessor) = predecessor else {
        return candidate.run(ends.held).await;
    };
    // A pod that were not ready meanwhile would hold up the very rollout that ends the original's.
    predecessor.ended(&ends.held, || candidate.stands_by()).await;
    let process = candidate.identity().to_owned();
    let guard = async {
        if let Some(reason) = predecessor.kept_out(&process, leadership, &ends.held).await {
            tracing::error!("this process ends: {reason}");
            ends.original.cancel();
            ends.stop.cancel();
        }
    };
    tokio::join!(candidate.run(ends.held.clone()), guard);
}

/// What stays from term to term.
struct Process {
    env: Env,
    control: Cluster,
    target: Option<Cluster>,
    leadership: watch::Receiver<Leadership>,
    lease: Option<LeaseSettings>,
    /// Sign of life of the election.
    election: Option<Arc<Heartbeat>>,
    connect: Connect,
    metrics: Metrics,
    health: Arc<Health>,
    /// Ends the process in order.
    stop: CancellationToken,
}

/// How a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TermEnd {
    /// And the process with it.
    Process(End),
    /// This process does not hold the lease any more under the epoch under which work began. It stands for the lead again: an API server that
    /// is away for seconds is no reason to end.
    LeadLost,
}

/// Stands by, works, and ends what is under way.
async fn term(config: &Config, process: &Process) -> anyhow::Result<TermEnd> {
    let mut tasks = JoinSet::new();
    let watches = Watches::new(
        &process.control,
        process.target.as_ref(),
        &config.namespace,
        &process.env,
    );
    let views = watches.views();
    let shared = build(config, process, &views, &mut tasks);
    let checks = checks::all(&shared, &views, process.leadership.clone(), process.election.clone());
    process.health.replace(checks);
    watches.start(&mut tasks, &shared);
    let ended = tokio::select! {
        biased;
        failed = watch_over(&mut tasks) => Err(failed),
        ended = work(config, &shared, &views, process.leadership.clone()) => ended,
        () = overdue(&process.stop) => {
            tracing::warn!("requests to the API server have no answer: they are given up");
            Ok(TermEnd::Process(End::Asked))
        }
    };
    close(&shared, &mut tasks).await;
    ended
}

/// Keeps the metric of leadership true until the election ends.
async fn tell_lead(metrics: Metrics, mut leadership: watch::Receiver<Leadership>) {
    loop {
        let leads = matches!(*leadership.borrow_and_update(), Leadership::Leader { .. });
        metrics.leader(leads);
        if leadership.changed().await.is_err() {
            return;
        }
    }
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

/// What all workers of a term share, and the tasks behind it.
fn build(config: &Config, process: &Process, views: &Views, tasks: &mut JoinSet<()>) -> Arc<Shared> {
    let Process {
        env,
        control,
        metrics,
        leadership,
        ..
    } = process;
    // A term can end before the process does.
    let stop = process.stop.child_token();
    let lead = Arc::new(match &process.lease {
        Some(lease) => Lead::of_lease(leadership.clone(), LeaseReader::new(control.lease.clone(), lease)),
        None => Lead::new(leadership.clone()),
    });
    // The pool tells of changes to what is built with the pool: it gets to know it afterwards.
    let known: Arc<OnceLock<Weak<Shared>>> = Arc::default();
    let (drivers, upkeep) = Pool::new(pool_settings(config, process, &lead, &known));
    let secrets = SecretStore::new(control.client.clone());
    let identity = config
        .election
        .as_ref()
        .map_or("millwright", |election| election.identity.as_str());
    let (client, load) = (control.client.clone(), control.load.clone());
    let (publisher, event_writer) = events::channel(client, load, metrics.clone(), identity, env.clone());
    tasks.spawn(until(stop.clone(), upkeep));
    tasks.spawn(until(stop.clone(), secrets.clone().upkeep()));
    tasks.spawn(event_writer.run(stop.clone()));
    let target = process.target.as_ref().map(|target| target.client.clone());
    let shared = Shared::new(Parts {
        env: env.clone(),
        write: Writer::new(control.client.clone(), target, &config.namespace),
        drivers,
        secrets,
        events: publisher,
        settings: config.settings.clone(),
        token_groups: config.bootstrap_groups.join(","),
        metrics: metrics.clone(),
        lead,
        control_views: views.control.clone(),
        target_view: views.target.clone(),
        target: process.target.clone(),
        stop,
    });
    for cluster in std::iter::once(control).chain(&process.target) {
        let follow = dispatch::follow_outages(Arc::clone(&shared), cluster.outages.clone());
        tasks.spawn(until(shared.stop.clone(), follow));
    }
    let definitions = additions::watch_over(Arc::clone(&shared), control.client.clone());
    tasks.spawn(until(shared.stop.clone(), definitions));
    known.get_or_init(|| Arc::downgrade(&shared));
    let objects = Arc::downgrade(&shared);
    let look = move || {
        let shared = objects.upgrade()?;
        let is_blind = shared.sight(None).since(Judging::Rollout).is_none();
        let uptime = shared.env.uptime();
        Some(shared.look(|world| Snapshot::of(world, uptime, is_blind)))
    };
    metrics.original.look_at(Box::new(look));
    shared
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
        tracing::info!(
            "driver calls are still under way; they are repeated in the next term, which gets their answers"
        );
    }
    if !joined(tasks, LAST_TASKS).await {
        tracing::warn!("some tasks hang: they are given up");
    }
}

/// Returns when passes had their time after the stop.
async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LAST_PASSES).await;
}

/// Waits until all tasks have ended, no longer than `limit`; then they are aborted, and the answer is no.
async fn joined(tasks: &mut JoinSet<()>, limit: Duration) -> bool {
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            if let Err(panic) = ended {
                tracing::error!(%panic, "a task panicked");
            }
        }
    };
    let has_ended = tokio::time::timeout(limit, all).await.is_ok();
    tasks.abort_all();
    has_ended
}

fn pool_settings(
    config: &Config,
    process: &Process,
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
        connect: Arc::clone(&process.connect),
        lead: Arc::clone(lead),
        observer: Arc::new(Observer(process.metrics.clone())),
        on_change: Arc::new(move |driver: &DriverName| {
            if let Some(shared) = shared.get().and_then(Weak::upgrade) {
                shared.change(|world, uptime| world.driver_changed(driver, uptime));
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

    fn held_up(&self, driver: &DriverName, method: Method, took: Duration) {
        self.0.held_up(driver.as_str(), method.name(), took);
    }
}

fn lease_settings((namespace, settings): (&str, &Settings), election: &Election, env: &Env) -> LeaseSettings {
    LeaseSettings {
        namespace: namespace.to_owned(),
        name: election.lease_name.clone(),
        identity: election.identity.clone(),
        terms: election.terms,
        told: json!(settings).to_string(),
        env: env.clone(),
    }
}

async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    stop.run_until_cancelled(task).await;
}

/// Ends the process in order at SIGTERM and SIGINT; at once at the second one.
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
        // `timeout` signals its child and then the child's group: that is one signal.
        tokio::time::sleep(ONE_SIGNAL).await;
        let _ = (terminate.recv().now_or_never(), interrupt.recv().now_or_never());
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("a signal during the end: this process ends at once, and its Lease runs out");
        // The log's own thread writes it.
        tokio::time::sleep(LAST_LINES).await;
        std::process::exit(1);
    })
}

/// Waits for the lead, and for lists of the control cluster that are newer than it: each watch lags on its own, so a follower
/// may know that the last leader's Machines were counted and not know the Machines.
async fn lead(
    config: &Config,
    views: &Views,
    leadership: &mut watch::Receiver<Leadership>,
) -> Result<Option<u32>, watch::error::RecvError> {
    loop {
        let leading = leadership.wait_for(|leadership| matches!(leadership, Leadership::Leader { .. }));
        let epoch = leading.await?.epoch();
        if config.election.is_none() {
            return Ok(epoch);
        }
        views.doubt();
        views.control_synced().await;
        nodes(views).await;
        // Who lost the lead meanwhile, and perhaps won it again, begins anew.
        if epoch.is_some() && leadership.borrow().is_term(epoch) {
            return Ok(epoch);
        }
    }
}

/// Waits for the target cluster's Nodes, but not for ever. Returns whether they are known.
async fn nodes(views: &Views) -> bool {
    let listed = tokio::time::timeout(TARGET_PATIENCE, views.target_synced()).await;
    listed.is_ok()
}

/// Waits for the first lists and the lead, then works until the end of either.
async fn work(
    config: &Config,
    shared: &Arc<Shared>,
    views: &Views,
    mut leadership: watch::Receiver<Leadership>,
) -> anyhow::Result<TermEnd> {
    let ready = async {
        views.control_synced().await;
        if nodes(views).await {
            tracing::info!("every watch has its first list");
        } else {
            tracing::warn!("the target cluster's nodes are not listed yet: the control cluster is served without them");
        }
        lead(config, views, &mut leadership).await
    };
    let Some(leading) = shared.stop.run_until_cancelled(ready).await else {
        return Ok(TermEnd::Process(End::Asked));
    };
    let epoch = leading.context("the election ended")?;
    shared.env.begin_term();
    shared.lead.begin(epoch);
    shared.change(|world, uptime| world.begin_term(uptime));
    shared.heartbeat.beat();
    tracing::info!("this process leads");
    tokio::select! {
        biased;
        () = term_is_over(epoch, leadership) => Ok(TermEnd::LeadLost),
        () = dispatch::run(Arc::clone(shared), config.workers) => Ok(TermEnd::Process(End::Asked)),
    }
}

/// Waits until this process does not lead any more, or leads under another epoch: what was planned in one term is never
/// carried out in another, before which somebody else may have led.
async fn term_is_over(epoch: Option<u32>, mut leadership: watch::Receiver<Leadership>) {
    if epoch.is_none() {
        // Without leader election there is one term.
        return std::future::pending().await;
    }
    // An error means that the election has ended, and then nobody renews either.
    let leads_again = leadership
        .wait_for(|leadership| !leadership.is_term(epoch))
        .await
        .is_ok_and(|now| matches!(*now, Leadership::Leader { .. }));
    match leads_again {
        true => {
            tracing::warn!("this process leads under another epoch now: what is under way ends, and a new term begins")
        }
        false => {
            tracing::warn!("the lease is lost: what is under way ends, and this process stands for the lead again")
        }
    }
}

#[cfg(test)]
mod tests;
