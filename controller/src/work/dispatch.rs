//! Takes keys that are due, has each worked on by one task at a time, gives it back with its verdict.
//!
//! Chooses nothing but how many at once. A panic in one pass is logged, counted and costs that key a back-off, nothing
//! else.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use millwright_core::circuit_breaker::Circuits;
use millwright_core::queue::Verdict;
use millwright_core::wake::Key;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::class::{Classes, Secrets};
use super::deployment::Deployments;
use super::leftover;
use super::machine::Machines;
use super::notices;
use super::orphans;
use super::pass::{Pass, pass};
use super::set::Sets;
use super::shared::Shared;
use crate::kube::outage::OutageEnds;

/// Works until the process stops. Keys under way are finished first.
pub async fn run(shared: Arc<Shared>, workers: usize) {
    let mut passes: JoinSet<()> = JoinSet::new();
    let mut tick = tokio::time::interval(TICK);
    let mut round = tokio::time::interval_at(Instant::now() + ROUND, ROUND);
    let mut target = TargetSeen::begin(&shared);
    let mut left = leftover::Search::default();
    let mut streams = notices::Streams::default();
    while !shared.stop.is_cancelled() {
        shared.heartbeat.beat();
        start_due(&shared, &mut passes, workers);
        let free = passes.len() < workers;
        let next = shared.look(|world| world.queue.next_due()).filter(|_| free);
        let idle = async {
            match next {
                Some(uptime) => tokio::time::sleep_until(shared.env.instant(uptime)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            Some(_) = async { if passes.is_empty() { None } else { passes.join_next().await } } => {}
            () = shared.bell.notified() => {}
            _ = tick.tick() => {
                measure(&shared);
                orphans::look(&shared);
                target.look(&shared);
                left.look(&shared);
                streams.look(&shared);
            }
            _ = round.tick() => shared.change(|world, uptime| world.look_at_all(uptime, ROUND / 2)),
            () = idle => {}
        }
    }
    while passes.join_next().await.is_some() {}
}

/// Ends back-offs when an API server is back after an outage.
pub async fn follow_outages(shared: Arc<Shared>, mut outages: OutageEnds) {
    while outages.next().await.is_some() {
        shared.change(|world, uptime| world.queue.end_back_offs(uptime));
    }
}

/// How often the dispatcher comes round with nothing to do, and the gauges are set.
const TICK: Duration = Duration::from_secs(5);

/// How often everything is looked at, whether it changed or not, as in the original.
const ROUND: Duration = Duration::from_secs(600);

/// Since when the target cluster's Nodes can be seen. Whoever waits for them waits for no object that changes: that they are back
/// must wake them.
struct TargetSeen(Option<Instant>);

impl TargetSeen {
    fn begin(shared: &Shared) -> Self {
        Self(shared.target_view.as_ref().and_then(|view| view.fresh_since()))
    }

    fn look(&mut self, shared: &Shared) {
        let Self(now) = Self::begin(shared);
        if now.is_some() && now != self.0 {
            shared.change(|world, uptime| world.look_at_all(uptime, TICK));
        }
        self.0 = now;
    }
}

/// Sets the gauges.
fn measure(shared: &Shared) {
    let now = shared.env.uptime();
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    let mut parked: BTreeMap<&'static str, usize> = BTreeMap::new();
    let (depth, vms) = shared.look(|world| {
        for cause in world.ledger.breakers.all().flat_map(Circuits::causes) {
            *parked.entry(cause.label()).or_default() += 1;
        }
        for machine in world.machines.iter() {
            *phases.entry(machine.phase().as_str().to_owned()).or_default() += 1;
        }
        (world.queue.due(now).count(), world.ledger.inventories.totals())
    });
    shared.metrics.vms(vms);
    shared.metrics.machines(phases);
    shared.metrics.parked(parked);
    shared.metrics.queue_depth("all", depth);
}

fn start_due(shared: &Arc<Shared>, passes: &mut JoinSet<()>, workers: usize) {
    while passes.try_join_next().is_some() {}
    while passes.len() < workers {
        let now = shared.env.uptime();
        let Some(key) = shared.take(now) else { return };
        let shared = Arc::clone(shared);
        passes.spawn(async move { work(&shared, key).await });
    }
}

impl Shared {
    /// Takes a key without ringing: nobody waits for that.
    fn take(&self, now: Duration) -> Option<Key> {
        let (key, waited) = self.quietly(|world| {
            let key = world.queue.take(now)?;
            let waited = world.queue.waited(&key);
            Some((key, waited))
        })?;
        self.metrics.original.queues.taken(&key, waited);
        Some(key)
    }
}

async fn work(shared: &Arc<Shared>, key: Key) {
    let begun = Instant::now();
    let pass = AssertUnwindSafe(look_at(shared, &key)).catch_unwind().await;
    let pass = pass.unwrap_or_else(|_| {
        tracing::error!(kind = key.kind(), name = %key.name(), "a pass panicked; the key backs off");
        Pass {
            verdict: Verdict::BackOff,
            why: "Panic".to_owned(),
            result: "panic",
        }
    });
    let (metrics, took) = (&shared.metrics, begun.elapsed());
    metrics.reconciled(key.kind(), &pass.why, pass.result, took);
    let backs_off = pass.verdict == Verdict::BackOff;
    metrics.original.queues.worked(&key, took, backs_off);
    shared.change(|world, uptime| world.queue.give_back(key, pass.verdict, uptime));
}

async fn look_at(shared: &Arc<Shared>, key: &Key) -> Pass {
    match key {
        Key::Machine(name) => pass::<Machines>(shared, name).await,
        Key::Set(name) => pass::<Sets>(shared, name).await,
        Key::Deployment(name) => pass::<Deployments>(shared, name).await,
        Key::Class(name) => pass::<Classes>(shared, name).await,
        Key::Secret(name) => pass::<Secrets>(shared, name).await,
        Key::Leftover(uid) => leftover::pass(shared, uid).await,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use millwright_core::api::{Machine, MachineClass};
    use millwright_core::change::Change;
    use millwright_core::ids::{DriverName, Name};
    use millwright_proto::v1;
    use millwright_proto::v1::driver_service_server::{DriverService, DriverServiceServer};
    use serde_json::{Value, json};
    use tonic::body::Body;
    use tonic::{Request, Response, Status};
    use tower::ServiceExt;
    use tower::util::BoxCloneSyncService;

    use super::*;
    use crate::driver::DriverState;
    use crate::env::Planners;
    use crate::work::scripted::{Answer, Scripted, failure};

    /// A driver that can check classes and never does.
    struct Hangs;

    #[tonic::async_trait]
    impl DriverService for Hangs {
        async fn get_driver_info(
            &self,
            _: Request<v1::GetDriverInfoRequest>,
        ) -> Result<Response<v1::GetDriverInfoResponse>, Status> {
            Ok(Response::new(v1::GetDriverInfoResponse {
                name: "slow".to_owned(),
                vendor_version: "1".to_owned(),
                capabilities: vec![v1::Capability::ValidateMachineClass.into()],
                ..Default::default()
            }))
        }

        async fn validate_machine_class(
            &self,
            _: Request<v1::ValidateMachineClassRequest>,
        ) -> Result<Response<v1::ValidateMachineClassResponse>, Status> {
            std::future::pending().await
        }
    }

    fn class(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
            "provider": "slow", "providerSpec": {"size": "s"}, "secretRef": {"name": "cred", "namespace": "default"},
        })
    }

    fn machine(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
            "spec": {"class": {"kind": "MachineClass", "name": "none"}},
        })
    }

    fn answer(method: &Method, path: &str, _: &Value) -> Answer {
        match path.rsplit_once('/') {
            Some((_, "cred")) => (
                200,
                json!({"metadata": {"name": "cred"}, "data": {"userData": "I2Nsb3Vk"}}),
            ),
            Some((_, name)) if *method == Method::PATCH && path.contains("/machines/") => (200, machine(name)),
            _ => failure(404, "NotFound"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn classes_whose_check_never_ends_hold_no_worker() {
        let server = DriverServiceServer::new(Hangs);
        let wire = ServiceExt::<http::Request<Body>>::map_err(server, |never| match never {});
        let wire = BoxCloneSyncService::new(wire);
        let scripted = Scripted::with(answer, Planners::default(), Some(wire));
        let shared = &scripted.shared;
        let mut dispatcher = JoinSet::new();
        dispatcher.spawn(run(Arc::clone(shared), 1));
        let moment = || tokio::time::sleep(Duration::from_secs(2));
        moment().await;
        let driver = shared.drivers.get(&DriverName::new("slow"));
        assert!(matches!(driver, DriverState::Ready(_)), "{driver:?}");

        let names = ["small", "large"];
        for name in names {
            let class: MachineClass = serde_json::from_value(class(name)).unwrap();
            shared.change(|world, uptime| world.observe(Change::Applied(class), uptime));
        }
        moment().await;
        let hangs = |name| shared.look(|world| world.ledger.is_being_checked(&Name::new(name)));
        assert!(
            names.into_iter().all(hangs),
            "both are asked about, and neither is answered"
        );

        let machine: Machine = serde_json::from_value(machine("m-1")).unwrap();
        shared.change(|world, uptime| world.observe(Change::Applied(machine), uptime));
        moment().await;
        assert!(
            !scripted.heard("PATCH").is_empty(),
            "the one worker is free for a Machine"
        );
        assert!(names.into_iter().all(hangs));
    }
}
