//! A whole manager over an API server of a few lines, in virtual time: what it does when the Lease changes under it, and
//! when the target cluster is away.

use std::collections::BTreeMap;
use std::sync::Mutex;

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::{Body, ClientBuilder, DynBody};
use millwright_core::lease::Terms;
use millwright_core::settings::Settings;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;
use crate::config::Election;
use crate::driver::{Endpoints, Peers};
use crate::kube::access::Access;

/// An API server that lists what it has, minds no versions but the Lease's, and whose watches bring nothing but a bookmark.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
    machines: BTreeMap<String, Value>,
    /// Machines that were written.
    written: Vec<String>,
    /// Writes of Machines get no answer.
    hangs: bool,
}

type Answer = (u16, Value);

impl Server {
    fn cluster(&self, policy: Policy) -> Cluster {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                if head.uri.query().unwrap_or_default().contains("watch=") {
                    tokio::time::sleep(Duration::from_secs(28)).await;
                    let metadata = json!({"resourceVersion": "1"});
                    let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Any", "metadata": metadata}});
                    return Ok(answer(200, &bookmark.to_string()));
                }
                if server.stored().hangs && head.method != Method::GET && head.uri.path().contains("/machines/") {
                    return std::future::pending().await;
                }
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (code, value) = server.handle(&head.method, head.uri.path(), &body);
                Ok::<_, BoxError>(answer(code, &value.to_string()))
            }
        });
        Cluster::over(ClientBuilder::new(service, "default"), policy)
    }

    fn stored(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.0.lock().unwrap()
    }

    fn handle(&self, method: &Method, path: &str, body: &Value) -> Answer {
        let mut stored = self.stored();
        if path.contains("/leases") {
            return stored.lease(method, body);
        }
        match path.split_once("/machines/") {
            Some((_, name)) if *method == Method::PATCH => {
                let name = name.trim_end_matches("/status").to_owned();
                stored.write(&name, body)
            }
            Some(_) => failure(404, "NotFound"),
            None if *method == Method::GET => stored.list(path),
            None => (201, body.clone()),
        }
    }

    fn has_machine(&self, name: &str) {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"class": {"kind": "MachineClass", "name": "none"}},
        });
        self.stored().machines.insert(name.to_owned(), machine);
    }

    fn has_written(&self, name: &str) -> bool {
        self.stored().written.iter().any(|written| written == name)
    }

    fn epoch(&self) -> u64 {
        let lease = self.stored().lease.clone().unwrap_or_default();
        lease["spec"]["leaseTransitions"].as_u64().unwrap_or_default()
    }
}

impl Stored {
    fn lease(&mut self, method: &Method, body: &Value) -> Answer {
        match (self.lease.clone(), method) {
            (None, &Method::POST) => self.keep_lease(body.clone()),
            (None, _) => failure(404, "NotFound"),
            (Some(lease), &Method::GET) => (200, lease),
            (Some(_), &Method::POST) => failure(409, "AlreadyExists"),
            (Some(lease), _) if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] => {
                failure(409, "Conflict")
            }
            (Some(mut lease), _) => {
                merge(&mut lease, body);
                self.keep_lease(lease)
            }
        }
    }

    fn keep_lease(&mut self, mut lease: Value) -> Answer {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        (200, lease)
    }

    fn write(&mut self, name: &str, body: &Value) -> Answer {
        self.version += 1;
        let version = json!(self.version.to_string());
        self.written.push(name.to_owned());
        let Some(machine) = self.machines.get_mut(name) else {
            return failure(404, "NotFound");
        };
        merge(machine, body);
        machine["metadata"]["resourceVersion"] = version;
        (200, machine.clone())
    }

    fn list(&self, path: &str) -> Answer {
        let items: Vec<&Value> = if path.ends_with("/machines") {
            self.machines.values().collect()
        } else {
            Vec::new()
        };
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "10"}, "items": items});
        (200, list)
    }
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(fields), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(fields.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

fn answer(code: u16, text: &str) -> Response<Box<DynBody>> {
    let body: Box<DynBody> = Box::new(Full::from(text.to_owned()).map_err(|never| match never {}));
    Response::builder().status(code).body(body).unwrap()
}

fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason});
    (code, status)
}

/// A cluster that cannot be reached.
fn nobody(policy: Policy) -> Cluster {
    let service =
        service_fn(|_: Request<Body>| async { Err::<Response<Box<DynBody>>, BoxError>("no route to host".into()) });
    Cluster::over(ClientBuilder::new(service, "default"), policy)
}

fn config(is_elected: bool) -> Config {
    Config {
        control: Access::InCluster,
        target: TargetCluster::SameAsControl,
        namespace: "default".to_owned(),
        settings: Settings::new("test"),
        drivers: Endpoints::Listed(Vec::new()),
        driver_uids: Vec::new(),
        driver_tls: None,
        workers: 4,
        kube_api_qps: 0.0,
        kube_api_burst: 0,
        bootstrap_groups: Vec::new(),
        election: is_elected.then(|| Election {
            lease_name: "millwright".to_owned(),
            identity: "me".to_owned(),
            terms: Terms::default(),
        }),
        metrics_addrs: Vec::new(),
    }
}

struct Running {
    server: Server,
    metrics: Metrics,
    stop: CancellationToken,
    managing: JoinSet<anyhow::Result<End>>,
}

impl Running {
    fn start(is_elected: bool, target_is_there: bool) -> Self {
        let server = Server::default();
        let config = config(is_elected);
        let (metrics, stop) = (Metrics::default(), CancellationToken::new());
        let (leads, leadership) = election(&config);
        let policy_of = |role| policy(&config, role, &metrics, &leadership);
        let control = server.cluster(policy_of(Role::Control));
        let target = match target_is_there {
            true => control.clone(),
            false => nobody(policy_of(Role::Target)),
        };
        let given = Given {
            predecessor: None,
            env: Env::begin(),
            control,
            target: Some(target),
            leads,
            leadership,
            connect: Peers::new(&[]).connect(),
            metrics: metrics.clone(),
            ports: Vec::new(),
            stop: stop.clone(),
        };
        let mut managing = JoinSet::new();
        managing.spawn(async move { manage(&config, given).await });
        Self {
            server,
            metrics,
            stop,
            managing,
        }
    }

    fn shows_lead(&self, is_leading: bool) -> bool {
        let line = format!("millwright_leader {}", u8::from(is_leading));
        self.metrics.render().unwrap().contains(&line)
    }

    /// Ends in order; says how.
    async fn end(&mut self) -> End {
        self.stop.cancel();
        self.managing.join_next().await.unwrap().unwrap().unwrap()
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_is_deleted_and_then_emptied_works_on_in_new_terms() {
    let mut running = Running::start(true, true);
    let server = running.server.clone();
    server.has_machine("m-1");
    pass(10).await;
    assert!(server.has_written("m-1"));
    let first = server.epoch();

    server.stored().lease = None;
    // No watch tells of it: only a list of the new term does.
    server.has_machine("m-2");
    pass(20).await;
    let second = server.epoch();
    assert!(second > first, "{second} after {first}");
    assert!(server.has_written("m-2"), "the new term lists anew and works");

    server.stored().lease.as_mut().unwrap()["spec"]["holderIdentity"] = json!("");
    server.stored().lease.as_mut().unwrap()["metadata"]["resourceVersion"] = json!("x");
    server.has_machine("m-3");
    pass(20).await;
    assert!(server.epoch() > second);
    assert!(server.has_written("m-3"), "the third term lists anew and works");
    assert!(running.shows_lead(true));
    assert_eq!(running.end().await, End::Asked);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_another_took_does_nothing_until_it_leads_again() {
    let mut running = Running::start(true, true);
    let server = running.server.clone();
    pass(10).await;
    let thief = json!({"metadata": {"resourceVersion": "x"},
        "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15, "leaseTransitions": 2_000_000_000}});
    server.stored().lease = Some(thief);
    pass(4).await;
    assert!(running.shows_lead(false));
    server.has_machine("m-1");
    pass(5).await;
    assert!(!server.has_written("m-1"), "another process leads");

    // Whoever took it is silent from now on.
    pass(30).await;
    assert!(running.shows_lead(true));
    assert!(server.has_written("m-1"), "the new term works");
    assert_eq!(running.end().await, End::Asked);
}

/// Rows: O12.
#[tokio::test(start_paused = true)]
async fn writes_that_hang_hold_the_end_up_for_25_seconds_at_most() {
    let mut running = Running::start(true, true);
    let server = running.server.clone();
    server.stored().hangs = true;
    server.has_machine("m-1");
    pass(10).await;
    let asked = tokio::time::Instant::now();
    assert_eq!(running.end().await, End::Asked);
    let took = asked.elapsed();
    assert!((LAST_PASSES..=Duration::from_secs(25)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_control_cluster_is_served_while_the_target_cluster_cannot_be_reached() {
    for is_elected in [false, true] {
        let mut running = Running::start(is_elected, false);
        running.server.has_machine("m-1");
        pass(30).await;
        assert!(running.server.has_written("m-1"), "elected: {is_elected}");
        assert_eq!(running.end().await, End::Asked);
    }
}

#[tokio::test(start_paused = true)]
async fn the_metric_of_leadership_is_one_while_this_process_leads_and_zero_otherwise() {
    let mut running = Running::start(true, true);
    assert!(running.shows_lead(false));
    pass(10).await;
    assert!(running.shows_lead(true));
    running.end().await;
    assert!(running.shows_lead(false));

    let mut alone = Running::start(false, true);
    pass(1).await;
    assert!(alone.shows_lead(true), "without leader election there is no other");
    alone.end().await;
}

/// What a term is made of, over a server, with a target that cannot be reached.
fn process(leadership: Leadership) -> (Config, Process) {
    let config = config(true);
    let metrics = Metrics::default();
    let leadership = watch::channel(leadership).1;
    let policy_of = |role| policy(&config, role, &metrics, &leadership);
    let process = Process {
        env: Env::begin(),
        control: Server::default().cluster(policy_of(Role::Control)),
        target: Some(nobody(policy_of(Role::Target))),
        leadership: leadership.clone(),
        lease: None,
        election: None,
        connect: Peers::new(&[]).connect(),
        metrics,
        health: Arc::default(),
        stop: CancellationToken::new(),
    };
    (config, process)
}

/// Rows: W48.
#[tokio::test(start_paused = true)]
async fn a_standby_that_wins_after_an_hour_is_alive_while_it_lists_and_until_its_dispatcher_hangs() {
    let (config, process) = process(Leadership::ALONE);
    let watches = Watches::new(&process.control, process.target.as_ref(), "default", &process.env);
    let views = watches.views();
    let shared = build(&config, &process, &views, &mut JoinSet::new());
    tokio::time::advance(Duration::from_secs(3600)).await;
    let health = checks::all(&shared, &views, process.leadership.clone(), None);
    assert!(health.liveness().holds(), "{}", health.liveness());

    shared.heartbeat.beat();
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(!health.liveness().holds());
}

#[tokio::test(start_paused = true)]
async fn a_target_cluster_that_is_away_is_told_and_leaves_the_watches_of_the_control_cluster_ready() {
    let (config, process) = process(Leadership::ALONE);
    let mut tasks = JoinSet::new();
    let watches = Watches::new(&process.control, process.target.as_ref(), "default", &process.env);
    let views = watches.views();
    let shared = build(&config, &process, &views, &mut tasks);
    let health = checks::all(&shared, &views, process.leadership.clone(), None);
    watches.start(&mut tasks, &shared);
    pass(60).await;

    let report = health.readiness().to_string();
    let counted: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
    assert!(
        report.contains("[!]watch-nodes failed, which does not count: the first listing is not complete: "),
        "{report}"
    );
    assert_eq!(counted, ["drivers failed: no driver was found"]);
    let metrics = process.metrics.render().unwrap();
    assert!(metrics.contains("\nmcm_machine_controller_frozen 1.0\n"), "{metrics}");
    assert!(
        shared
            .target_view
            .as_ref()
            .is_some_and(|view| view.fresh_since().is_none())
    );
    assert!(shared.control_views.iter().all(|view| view.fresh_since().is_some()));
}

#[tokio::test]
async fn a_term_ends_with_any_change_of_the_epoch() {
    let leading = |epoch| Leadership::Leader {
        epoch: Some(epoch),
        valid_until: None,
    };
    for change in [leading(8), Leadership::Follower] {
        let (leads, leadership) = watch::channel(leading(7));
        let mut over = std::pin::pin!(term_is_over(Some(7), leadership));
        leads.send_replace(leading(7));
        assert!(futures::poll!(over.as_mut()).is_pending(), "a renewal ends nothing");
        leads.send_replace(change);
        over.await;
    }
}
