use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder, DynBody};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;
use crate::env::{Outside, Planners};
use crate::kube::client::{Cluster, Policy, Role};
use crate::telemetry::Metrics;

/// A server that knows one Lease and minds versions.
#[derive(Clone, Default)]
pub(in crate::kube) struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
    is_down: bool,
}

impl Server {
    pub(in crate::kube) fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(
            move |request: Request<Body>| -> BoxFuture<'static, Result<Response<Box<DynBody>>, BoxError>> {
                let server = server.clone();
                Box::pin(async move {
                    if server.0.lock().unwrap().is_down {
                        return std::future::pending().await;
                    }
                    let method = request.method().clone();
                    let body = request.into_body().collect().await?.to_bytes();
                    let (code, answer) = server.answer(&method, serde_json::from_slice(&body).unwrap_or_default());
                    let body: Box<DynBody> = Box::new(Full::from(answer.to_string()).map_err(|never| match never {}));
                    Ok(Response::builder().status(code).body(body)?)
                })
            },
        );
        let policy = Policy {
            role: Role::Control,
            leadership: None,
            budget: None,
            metrics: Metrics::default(),
        };
        Cluster::over(ClientBuilder::new(service, "default"), policy).client
    }

    fn answer(&self, method: &Method, body: Value) -> (u16, Value) {
        let mut stored = self.0.lock().unwrap();
        let Some(lease) = stored.lease.clone() else {
            return match *method {
                Method::POST => stored.store(body),
                _ => failure(404, "NotFound"),
            };
        };
        match *method {
            Method::GET => (200, lease),
            Method::POST => failure(409, "AlreadyExists"),
            // Roles for leader election allow no patch.
            _ if *method != Method::PUT => failure(403, "Forbidden"),
            _ if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] => {
                failure(409, "Conflict")
            }
            _ => stored.store(body),
        }
    }

    /// Somebody deletes the Lease.
    fn delete(&self) {
        self.0.lock().unwrap().lease = None;
    }

    /// Somebody takes the holder's name out of the Lease, as `kubectl edit` can.
    fn empty(&self) {
        let mut stored = self.0.lock().unwrap();
        let mut lease = stored.lease.clone().unwrap();
        lease["spec"]["holderIdentity"] = json!("");
        stored.store(lease);
    }

    pub(in crate::kube) fn spec(&self) -> Value {
        self.0.lock().unwrap().lease.clone().unwrap_or_default()["spec"].clone()
    }

    /// What the Lease tells of the settings.
    fn told(&self) -> Value {
        let lease = self.0.lock().unwrap().lease.clone().unwrap_or_default();
        lease["metadata"]["annotations"][keys::MANAGER_SETTINGS].clone()
    }

    fn set_down(&self, is_down: bool) {
        self.0.lock().unwrap().is_down = is_down;
    }

    /// Somebody else writes the Lease; who names nobody gives it back, as client-go does.
    pub(in crate::kube) fn write(&self, holder: &str, transitions: u32) {
        let seconds = if holder.is_empty() { 1 } else { 15 };
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": transitions});
        self.0
            .lock()
            .unwrap()
            .store(json!({"metadata": {"name": "millwright"}, "spec": spec}));
    }
}

impl Stored {
    fn store(&mut self, mut lease: Value) -> (u16, Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        (200, lease)
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}),
    )
}

/// A wall clock that is wrong but never stands still: a renewal must differ from the one before.
pub(in crate::kube) struct Ticking;

impl Outside for Ticking {
    fn now(&self) -> Timestamp {
        static TICKS: AtomicI64 = AtomicI64::new(0);
        Timestamp::from_microsecond(TICKS.fetch_add(1, Ordering::Relaxed)).unwrap()
    }

    fn chance(&self) -> u64 {
        0
    }
}

/// A wall clock that says the time it is set to.
#[derive(Clone)]
struct Set(Arc<AtomicI64>);

impl Outside for Set {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }

    fn chance(&self) -> u64 {
        0
    }
}

pub(in crate::kube) fn settings(identity: &str, outside: impl Outside) -> LeaseSettings {
    LeaseSettings {
        namespace: "default".to_owned(),
        name: "millwright".to_owned(),
        identity: identity.to_owned(),
        terms: Terms::default(),
        told: format!("settings of {identity}"),
        env: Env::within(Arc::new(outside), Planners::default()),
    }
}

struct Running {
    state: watch::Receiver<Leadership>,
    stop: CancellationToken,
    task: tokio::task::JoinSet<()>,
}

impl Running {
    fn start(server: &Server, identity: &str) -> Self {
        Self::at(server, identity, Ticking)
    }

    fn at(server: &Server, identity: &str, outside: impl Outside) -> Self {
        let (sender, state) = watch::channel(Leadership::Unknown);
        let stop = CancellationToken::new();
        let candidate = Candidate::new(server.client(), settings(identity, outside), sender);
        let mut task = tokio::task::JoinSet::new();
        task.spawn(candidate.run(stop.clone()));
        Self { state, stop, task }
    }

    fn epoch(&self) -> Option<u32> {
        let state = *self.state.borrow();
        state.may_act(Instant::now()).then(|| state.epoch().unwrap())
    }

    async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.unwrap();
        }
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_and_keeps_leading() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(1).await;
    assert_eq!(first.epoch(), Some(0));
    pass(3600).await;
    assert_eq!(first.epoch(), Some(0));
    assert_eq!(server.spec()["leaseDurationSeconds"], 15);
}

#[tokio::test(start_paused = true)]
async fn a_second_candidate_waits_and_takes_over_at_once_after_a_release() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(1).await;
    let second = Running::start(&server, "second");
    pass(60).await;
    assert_eq!(second.epoch(), None);

    first.end().await;
    assert_eq!(server.spec()["holderIdentity"], "");
    pass(3).await;

    assert_eq!(second.epoch(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_lease_tells_the_settings_of_whoever_leads() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(1).await;
    assert_eq!(server.told(), "settings of first");
    let second = Running::start(&server, "second");
    pass(60).await;
    assert_eq!(server.told(), "settings of first", "the second one only waits");
    first.end().await;
    pass(3).await;
    assert_eq!(second.epoch(), Some(1));
    assert_eq!(server.told(), "settings of second");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_comes_back_after_its_own_release_has_a_new_epoch() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(1).await;
    first.end().await;
    let again = Running::start(&server, "first");
    pass(1).await;
    assert_eq!(again.epoch(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_silent_leader_is_replaced_after_its_time_and_not_before() {
    let server = Server::default();
    server.write("dead", 4);
    let second = Running::start(&server, "second");
    pass(14).await;
    assert_eq!(second.epoch(), None);
    pass(4).await;
    assert_eq!(second.epoch(), Some(5));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_hears_nothing_stops_before_another_may_begin() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(3).await;
    assert_eq!(first.epoch(), Some(0));

    server.set_down(true);
    pass(10).await;

    assert_eq!(first.epoch(), None);
    assert_eq!(*first.state.borrow(), Leadership::Follower);
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_a_short_outage_with_its_epoch() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(3).await;
    server.set_down(true);
    pass(4).await;
    server.set_down(false);
    for _ in 0..30 {
        pass(1).await;
        assert_eq!(first.epoch(), Some(0));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_long_outage_a_new_term_begins_although_nobody_took_over() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(3).await;
    server.set_down(true);
    pass(60).await;
    assert_eq!(first.epoch(), None);
    server.set_down(false);
    pass(10).await;
    assert_eq!(first.epoch(), Some(1), "what was planned before is over");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_at_its_next_renewal() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(1).await;
    server.write("thief", 9);
    pass(5).await;
    assert_eq!(first.epoch(), None);
    assert_eq!(*first.state.borrow(), Leadership::Follower);
    assert_eq!(server.spec()["holderIdentity"], "thief");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_anew_with_a_higher_epoch() {
    let server = Server::default();
    server.write("", 6);
    let first = Running::start(&server, "first");
    pass(1).await;
    assert_eq!(first.epoch(), Some(7));
    server.delete();
    pass(6).await;
    assert_eq!(first.epoch(), Some(8));
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_holder_somebody_took_out_is_taken_again_with_a_higher_epoch() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(1).await;
    assert_eq!(first.epoch(), Some(0));
    server.empty();
    pass(6).await;
    assert_eq!(first.epoch(), Some(1));
    assert_eq!(server.spec()["holderIdentity"], "first");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_or_empties_never_makes_a_second_leader() {
    let server = Server::default();
    let candidates: Vec<Running> = (0..3).map(|n| Running::start(&server, &format!("c{n}"))).collect();
    let leaders = || {
        candidates
            .iter()
            .filter(|candidate| candidate.epoch().is_some())
            .count()
    };
    for moment in 0..60_u64 {
        // At another moment between two renewals each time.
        tokio::time::sleep(Duration::from_millis(7_000 + moment * 37)).await;
        assert_eq!(leaders(), 1, "at moment {moment}");
        match moment % 2 {
            0 => server.delete(),
            _ => server.empty(),
        }
        for _ in 0..500 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(leaders() <= 1, "after moment {moment}");
        }
    }
}

/// It never saw the claim (`sim replay 8007979`).
#[tokio::test(start_paused = true)]
async fn who_comes_when_the_lease_was_emptied_leaves_it_to_the_leader() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(1).await;
    server.empty();
    let second = Running::start(&server, "second");
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(second.epoch(), None);
    }
    assert_eq!(first.epoch(), Some(1));
}

/// Nobody holds it: the leader died, and somebody emptied the Lease to help.
#[tokio::test(start_paused = true)]
async fn who_comes_when_the_lease_was_emptied_and_nobody_leads_takes_it_after_the_time_that_it_says() {
    let server = Server::default();
    server.write("dead", 3);
    server.empty();
    let (log, _guard) = logged();
    let first = Running::start(&server, "first");
    pass(14).await;
    assert_eq!(first.epoch(), None);
    assert_eq!(
        log.lines_with("taken out").len(),
        1,
        "{:?}",
        log.lines_with("holds the lease")
    );
    pass(3).await;
    assert_eq!(first.epoch(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_finds_its_lease_taken_stops_within_the_same_renewal() {
    let server = Server::default();
    let first = Running::start(&server, "first");
    pass(1).await;
    server.write("thief", 9);
    // The renewal comes 2 s after the last one.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(first.epoch(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_while_no_manager_ran_is_made_with_an_epoch_that_no_driver_finds_old() {
    const NOON: i64 = 1_800_000_000;
    let server = Server::default();
    let clock = Arc::new(AtomicI64::new(NOON));
    let before = Running::at(&server, "before", Set(clock.clone()));
    pass(1).await;
    let epoch = before.epoch().unwrap();
    before.end().await;
    server.delete();
    clock.store(NOON + 120, Ordering::Relaxed);

    let after = Running::at(&server, "after", Set(clock));
    pass(1).await;

    assert!(after.epoch().unwrap() > epoch, "{:?} after {epoch}", after.epoch());
    assert_eq!(server.spec()["leaseTransitions"], epoch_floor(NOON + 120));
}

#[tokio::test(start_paused = true)]
async fn the_lease_itself_says_whether_a_term_still_holds() {
    let server = Server::default();
    let reader = LeaseReader::new(server.client(), &settings("first", Ticking));
    assert!(!reader.is_held_under(4).await.unwrap(), "there is none");
    server.write("first", 4);
    assert!(reader.is_held_under(4).await.unwrap());
    assert!(!reader.is_held_under(3).await.unwrap(), "the term is over");
    server.write("second", 4);
    assert!(!reader.is_held_under(4).await.unwrap(), "it is another's");
    server.empty();
    assert!(!reader.is_held_under(4).await.unwrap(), "it is nobody's");
}

/// The lines that are logged on this thread while the guard lives.
fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    // A line that a thread without a subscriber comes to first, in another test, could else be taken for one that nobody wants.
    static LISTENED_TO: std::sync::Once = std::sync::Once::new();
    LISTENED_TO.call_once(|| {
        let all = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        tracing::subscriber::set_global_default(all).expect("no other test sets one");
    });
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines_with(&self, words: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .filter(|line| line.contains(words))
            .map(str::to_owned)
            .collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_anothers_lease_says_at_once_whose_it_is_and_until_when_and_says_it_once() {
    let (log, _guard) = logged();
    let server = Server::default();
    server.write("dead", 4);
    let clock = Arc::new(AtomicI64::new(1_800_000_000));
    let _second = Running::at(&server, "second", Set(clock));
    pass(1).await;

    let told = log.lines_with("another process holds the lease");
    let [line] = told.as_slice() else {
        panic!("one line, not {told:?}")
    };
    assert!(line.contains("INFO") && line.contains(r#"holder="dead""#), "{line}");
    assert!(line.contains("2027-01-15T08:00:15Z"), "{line}");
    pass(10).await;
    assert_eq!(log.lines_with("another process holds the lease").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn that_the_lease_was_deleted_is_logged() {
    let (log, _guard) = logged();
    let server = Server::default();
    let _first = Running::start(&server, "first");
    pass(1).await;
    server.delete();
    pass(6).await;
    assert_eq!(log.lines_with("the lease was deleted: it is made anew").len(), 1);
    assert_eq!(log.lines_with("holds it again, as a new leader").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_many_candidates_at_most_one_leads_at_any_time() {
    let server = Server::default();
    let candidates: Vec<Running> = (0..5).map(|n| Running::start(&server, &format!("c{n}"))).collect();
    for second in 0..120 {
        pass(1).await;
        server.set_down((30..55).contains(&second));
        let leaders = candidates
            .iter()
            .filter(|candidate| candidate.epoch().is_some())
            .count();
        assert!(leaders <= 1, "{leaders} leaders at second {second}");
    }
    assert_eq!(
        candidates
            .iter()
            .filter(|candidate| candidate.epoch().is_some())
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_ends_leaves_the_lease_alone() {
    let server = Server::default();
    server.write("other", 1);
    let second = Running::start(&server, "second");
    pass(1).await;
    second.end().await;
    assert_eq!(server.spec()["holderIdentity"], "other");
}
