//! Between the manager and the API server stands something that spoils answers, cuts connections or is away. While it lasts no machine
//! is destroyed and the API server is left alone; soon after its end the manager is at work.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use millwright_dev::apiserver::ControlPlane;
use millwright_tests::cloud::uids;
use millwright_tests::faults::{Fault, FaultProxy};
use millwright_tests::laws;
use millwright_tests::proxy::{Passage, Proxy};
use millwright_tests::scene::{Scene, shared_plane};
use millwright_tests::script::Script;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);
/// How long a fault lasts: longer than a watch is believed without a sign of life, and longer than both timeouts below.
const LASTS: Duration = Duration::from_secs(75);
/// In which a machine must join, and after which one that is ill is replaced.
const TIMEOUT: Duration = Duration::from_secs(15);
/// From the beginning of a fault until the rate of requests is judged.
const UNREST: Duration = Duration::from_secs(15);
/// How soon after the end of a fault the manager is at work.
const BACK: Duration = Duration::from_secs(5);

/// The API server, a proxy that spoils answers before it, and before that one a way that can be shut.
struct Way {
    faults: FaultProxy,
    connections: Proxy,
}

impl Way {
    async fn to(plane: &ControlPlane) -> Self {
        let faults = FaultProxy::before(plane).await;
        let connections = Proxy::before(faults.address(), Passage::Open).await;
        Self { faults, connections }
    }

    fn script(&self, prefix: &str) -> Script {
        let timeout = format!("{}s", TIMEOUT.as_secs());
        Script::new(prefix)
            .env("MILLWRIGHT_LEADER_ELECT", "true")
            .manager("--machine-creation-timeout", &timeout)
            .manager("--machine-health-timeout", &timeout)
            .manager_sees_the_server_at(format!("http://{}", self.connections.address()))
    }
}

/// Three machines, and a fourth is wanted as soon as the fault has begun.
async fn lives_through(what: &str, prefix: &str, lasts: Duration, begin: impl AsyncFn(&Way), end: impl AsyncFn(&Way)) {
    let Some(plane) = shared_plane(what).await else { return };
    let way = Way::to(&plane).await;
    let mut scene = way.script(prefix).begin(&plane).await;
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;
    let before = scene.vms().await.unwrap();

    begin(&way).await;
    scene.scale(4).await;
    tokio::time::sleep(UNREST).await;
    way.faults.requests().await;
    tokio::time::sleep(lasts - UNREST).await;
    at_rest(&way.faults.requests().await, lasts - UNREST, &scene);

    end(&way).await;
    let ended = Instant::now();
    scene
        .until("the fourth machine has a VM", LIMIT, async |scene: &Scene| {
            let vms = scene.vms().await?;
            (vms.len() == 4).then_some(()).ok_or(format!("{} VMs", vms.len()))
        })
        .await;
    let took = ended.elapsed();
    eprintln!("{what}: at work again after {took:?}");
    assert!(
        took <= BACK,
        "{what}: at work again only after {took:?}\n{}",
        scene.manager.service.log_tail()
    );
    scene.settled_at(4, LIMIT).await;
    let (after, journal) = (scene.vms().await.unwrap(), scene.journal().await.unwrap());
    assert!(
        uids(&after).is_superset(&uids(&before)),
        "the three machines are still there: {after:?}"
    );
    assert_eq!(laws::vms_made(&journal), 4, "{journal:?}");
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
}

/// At most one request a second and kind.
fn at_rest(requests: &BTreeMap<String, u32>, time: Duration, scene: &Scene) {
    eprintln!("{}: {requests:?}", scene.namespace);
    let most = u32::try_from(time.as_secs()).unwrap();
    let over: Vec<_> = requests.iter().filter(|(_, count)| **count > most).collect();
    assert!(
        over.is_empty(),
        "in {most} s: {over:?}\n{}",
        scene.manager.service.log_tail()
    );
}

async fn spoilt(what: &str, prefix: &str, fault: Fault) {
    let begin = async |way: &Way| way.faults.set(fault);
    lives_through(what, prefix, LASTS, begin, async |way: &Way| {
        way.faults.set(Fault::None)
    })
    .await;
}

/// Rows: O1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_bring_nothing_destroy_nothing() {
    spoilt("watches that bring nothing", "silent", Fault::SilentWatches).await;
}

/// Rows: O1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_are_answered_with_html_destroy_nothing() {
    spoilt("watches of HTML", "html", Fault::HtmlWatches).await;
}

/// Rows: O2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_end_at_once_are_not_opened_in_a_loop() {
    spoilt("watches that end at once", "ended", Fault::EndedWatches).await;
}

/// Rows: O11, O24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_every_version_is_not_asked_for_lists_in_a_loop() {
    spoilt("a storm of 410", "gone", Fault::ExpiredWatches).await;
}

/// Rows: O16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_many_requests_is_left_alone() {
    spoilt("waves of 429", "many", Fault::TooManyRequests(1)).await;
}

/// Rows: O17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_over_which_nothing_passes_any_more_are_given_up() {
    let begin = async |way: &Way| way.connections.silence_connections();
    lives_through("silenced connections", "pool", LASTS, begin, async |_: &Way| ()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_away_for_longer_than_any_timeout_costs_no_machine() {
    let begin = async |way: &Way| way.connections.set(Passage::Refusing).await;
    let end = async |way: &Way| way.connections.set(Passage::Open).await;
    lives_through(
        "an API server that is away",
        "away-api",
        Duration::from_mins(2),
        begin,
        end,
    )
    .await;
}
