use std::collections::VecDeque;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::{Body, ClientBuilder, DynBody};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;
use crate::kube::client::{Policy, Role};

/// A server that answers lists and watches from a script, in order; when it is through, requests hang. A line `{"wait": 28}` is a silence of
/// so many seconds; a text is sent as it is.
fn scripted(answers: impl IntoIterator<Item = (u16, Vec<Value>)>) -> Cluster {
    overheard(answers).0
}

/// The same, and what it is asked: the query of each request.
fn overheard(answers: impl IntoIterator<Item = (u16, Vec<Value>)>) -> (Cluster, Arc<Mutex<Vec<String>>>) {
    let script: Mutex<VecDeque<_>> = Mutex::new(answers.into_iter().collect());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let queries = Arc::clone(&heard);
    let service = service_fn(move |request: Request<Body>| {
        queries
            .lock()
            .unwrap()
            .push(request.uri().query().unwrap_or_default().to_owned());
        let next = script.lock().unwrap().pop_front();
        async move {
            let Some((code, lines)) = next else {
                return std::future::pending().await;
            };
            let lines = futures::stream::iter(lines).filter_map(async |line| {
                if let Some(seconds) = line["wait"].as_u64() {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    return None;
                }
                let text = line.as_str().map_or_else(|| line.to_string(), str::to_owned);
                Some(Ok::<_, BoxError>(Frame::data(Bytes::from(format!("{text}\n")))))
            });
            let body: Box<DynBody> = Box::new(StreamBody::new(Box::pin(lines)));
            Ok::<_, BoxError>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let policy = Policy {
        role: Role::Control,
        leadership: None,
        budget: None,
        metrics: Metrics::default(),
    };
    (Cluster::over(ClientBuilder::new(service, "default"), policy), heard)
}

fn map(name: &str, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {"name": name, "resourceVersion": version, "managedFields": [{"manager": "kubectl"}]}})
}

fn list(items: &[Value]) -> (u16, Vec<Value>) {
    (
        200,
        vec![
            json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "10"}, "items": items}),
        ],
    )
}

/// What an API server sends to a quiet watch.
fn quiet_period() -> (u16, Vec<Value>) {
    let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "10"}}});
    (200, vec![json!({"wait": 28}), bookmark, json!({"wait": 2})])
}

fn wait(seconds: u64) -> (u16, Vec<Value>) {
    (200, vec![json!({ "wait": seconds })])
}

fn refusal(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": "r", "message": "m"})
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn unreadable(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": "11"}, "data": "no map"})
}

fn word(change: &Change<ConfigMap>) -> String {
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap();
    match change {
        Change::Restarted => "restarted".into(),
        Change::Listed(map) => format!("listed {}", name(map)),
        Change::Synced => "synced".into(),
        Change::Applied(map) => format!("applied {}", name(map)),
        Change::Deleted(map) => format!("deleted {}", name(map)),
        Change::Unreadable(name) => format!("unreadable {name}"),
    }
}

/// Runs a watch over the script for `time` and tells what it brought.
async fn story(cluster: &Cluster, time: Duration) -> (Vec<String>, Arc<WatchHealth>) {
    let watch = Watch::<ConfigMap>::namespaced(cluster, "default", &Env::begin());
    let health = watch.health();
    let mut told = Vec::new();
    let sink = |change: Change<ConfigMap>| {
        if let Change::Listed(map) | Change::Applied(map) = &change {
            assert!(map.metadata.managed_fields.is_none(), "managedFields are kept");
        }
        told.push(word(&change));
    };
    let run = watch.run(CancellationToken::new(), sink);
    tokio::time::timeout(time, run).await.unwrap_err();
    (told, health)
}

#[tokio::test(start_paused = true)]
async fn a_list_and_a_watch_become_changes_in_order() {
    let events = vec![event("MODIFIED", &map("a", "11")), event("DELETED", &map("b", "12"))];
    let cluster = scripted([list(&[map("a", "1"), map("b", "2")]), (200, events)]);

    let (told, health) = story(&cluster, Duration::from_secs(1)).await;

    assert_eq!(
        told,
        ["restarted", "listed a", "listed b", "synced", "applied a", "deleted b"]
    );
    assert_eq!(health.check(), Ok(()));
}

/// A list from an API server's own cache may be older than what was read before.
/// Rows: pains 98.
#[tokio::test(start_paused = true)]
async fn every_list_asks_for_the_newest_state() {
    let expired = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
    let (cluster, heard) = overheard([
        list(&[map("a", "1")]),
        (200, vec![event("ERROR", &expired)]),
        list(&[map("a", "1")]),
    ]);

    let (told, _) = story(&cluster, Duration::from_secs(60)).await;

    assert_eq!(
        told,
        ["restarted", "listed a", "synced", "restarted", "listed a", "synced"]
    );
    let heard = heard.lock().unwrap();
    let lists: Vec<&String> = heard.iter().filter(|query| !query.contains("watch=")).collect();
    assert_eq!(lists.len(), 2, "{heard:?}");
    for query in lists {
        assert!(!query.contains("resourceVersion"), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_costs_only_itself() {
    let events = vec![
        event("MODIFIED", &unreadable("bad")),
        event("MODIFIED", &map("a", "13")),
    ];
    let cluster = scripted([list(&[map("a", "1"), unreadable("bad")]), (200, events)]);

    let (told, _) = story(&cluster, Duration::from_secs(1)).await;

    assert_eq!(
        told,
        [
            "restarted",
            "listed a",
            "unreadable bad",
            "synced",
            "unreadable bad",
            "applied a"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_object_that_cannot_be_read_is_found_by_listing_again() {
    let cluster = scripted([
        list(&[unreadable("bad")]),
        (200, vec![event("DELETED", &unreadable("bad"))]),
        list(&[]),
    ]);

    let (told, _) = story(&cluster, Duration::from_secs(1)).await;

    assert_eq!(told, ["restarted", "unreadable bad", "synced", "restarted", "synced"]);
}

/// Rows: W31, pains 101.
#[tokio::test(start_paused = true)]
async fn a_lost_place_is_followed_by_a_new_listing() {
    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version"});
    let cluster = scripted([
        list(&[map("a", "1")]),
        (200, vec![event("ERROR", &gone)]),
        list(&[map("b", "20")]),
    ]);

    let (told, _) = story(&cluster, Duration::from_secs(20)).await;

    assert_eq!(
        told,
        ["restarted", "listed a", "synced", "restarted", "listed b", "synced"]
    );
    assert!(
        cluster
            .metrics
            .render()
            .unwrap()
            .contains(r#"watch_errors_total{kind="configmaps"} 1"#)
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_doubted_is_not_synced_until_it_has_listed_again() {
    let cluster = scripted([list(&[map("a", "1")]), list(&[map("b", "20")])]);
    let watch = Watch::<ConfigMap>::namespaced(&cluster, "default", &Env::begin());
    let health = watch.health();
    let mut told = Vec::new();
    let run = watch.run(CancellationToken::new(), |change| {
        let word = word(&change);
        if word == "listed b" {
            assert!(!health.is_synced(), "it is doubted");
        } else if word == "synced" && told.len() == 2 {
            assert!(health.is_synced());
            health.doubt();
        }
        told.push(word);
    });
    tokio::time::timeout(Duration::from_secs(20), run).await.unwrap_err();

    assert_eq!(
        told,
        ["restarted", "listed a", "synced", "restarted", "listed b", "synced"]
    );
    assert!(health.is_synced());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_makes_the_watch_unhealthy_and_says_why() {
    let cluster = scripted(std::iter::repeat_n((403, vec![refusal(403)]), 100));
    let (_, health) = story(&cluster, Duration::from_secs(1)).await;
    assert_eq!(
        health.check().unwrap_err(),
        "the first listing is not complete: m (HTTP 403)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_is_healthy_because_its_watches_end_in_their_time() {
    for period in [quiet_period(), wait(30)] {
        stays_fresh(period).await;
    }
}

async fn stays_fresh(period: (u16, Vec<Value>)) {
    let cluster = scripted(std::iter::once(list(&[])).chain(std::iter::repeat_n(period, 200)));
    let (told, health) = story(&cluster, Duration::from_hours(1)).await;
    assert_eq!(told, ["restarted", "synced"]);
    assert_eq!(health.check(), Ok(()));
    let since = health.fresh_since().unwrap();
    assert_eq!(since.elapsed(), Duration::from_hours(1));
    let errors = cluster.metrics.render().unwrap();
    assert!(!errors.contains("watch_errors_total{"), "{errors}");
}

/// What a proxy makes of a watch: none of it is a sign of life, whatever the status of the answer is.
///
/// Rows: O1, O25.
#[tokio::test(start_paused = true)]
async fn a_watch_that_brings_nothing_makes_the_view_blind_within_two_periods() {
    let page = (200, vec![json!("<html><body>Bad gateway</body></html>")]);
    let held_back = wait(50);
    for answer in [page, held_back, (200, Vec::new())] {
        let script = std::iter::once(list(&[])).chain(std::iter::repeat_n(answer.clone(), 1000));
        let (_, health) = story(&scripted(script), Duration::from_secs(61)).await;
        let why = health.check().expect_err(&format!("{answer:?}"));
        assert!(why.starts_with("no sign of life for 61 s: "), "{why}");
        assert_eq!(health.fresh_since(), None);
    }
}

/// Counts requests of a minute and the lists among them.
async fn asked_in_a_minute(answers: impl IntoIterator<Item = (u16, Vec<Value>)>) -> (usize, usize) {
    let (cluster, heard) = overheard(answers);
    story(&cluster, Duration::from_secs(60)).await;
    let heard = heard.lock().unwrap();
    let lists = heard.iter().filter(|query| !query.contains("watch=")).count();
    (heard.len(), lists)
}

/// Rows: O2.
#[tokio::test(start_paused = true)]
async fn whatever_a_watch_ends_with_at_once_it_is_opened_ever_more_seldom() {
    let ends = [
        (200, Vec::new()),
        (200, vec![event("MODIFIED", &map("a", "11"))]),
        (500, vec![refusal(500)]),
        (429, vec![refusal(429)]),
        (200, vec![json!("<html>")]),
    ];
    for end in ends {
        let script = std::iter::once(list(&[])).chain(std::iter::repeat_n(end.clone(), 1000));
        let (all, lists) = asked_in_a_minute(script).await;
        assert!(
            (5..=18).contains(&all) && lists <= 5,
            "{all} requests, {lists} lists: {end:?}"
        );
    }
}

/// Hundreds of Nodes may be drained at once.
/// Rows: O10.
#[tokio::test(start_paused = true)]
async fn a_watch_without_a_place_lists_and_watches_when_a_place_is_free() {
    let script = std::iter::repeat_n(list(&[map("a", "1")]), 4);
    let (cluster, heard) =
        overheard(script.chain([(200, vec![event("MODIFIED", &map("a", "11")), json!({"wait": 28})])]));
    let places = Arc::new(Semaphore::new(1));
    let taken = Arc::clone(&places).try_acquire_owned().unwrap();
    let watch = Watch::<ConfigMap>::namespaced(&cluster, "default", &Env::begin()).within(&places);
    let mut told = Vec::new();
    let run = watch.run(CancellationToken::new(), |change| told.push(word(&change)));
    let free = async {
        tokio::time::sleep(Duration::from_secs(35)).await;
        drop(taken);
        std::future::pending::<()>().await;
    };
    tokio::time::timeout(Duration::from_secs(39), async { tokio::join!(run, free) })
        .await
        .unwrap_err();
    let queries = heard.lock().unwrap();
    let (watches, lists): (Vec<_>, Vec<_>) = queries.iter().partition(|query| query.contains("watch="));
    assert_eq!((lists.len(), watches.len()), (4, 1), "{queries:?}");
    assert_eq!(told.last().unwrap(), "applied a");
}

/// Rows: O11, O23, O24.
#[tokio::test(start_paused = true)]
async fn a_place_that_is_lost_again_and_again_is_listed_for_ever_more_seldom() {
    let ends = [
        (410, vec![refusal(410)]),
        (504, vec![refusal(504)]),
        (200, vec![event("ERROR", &refusal(410))]),
        (200, vec![event("DELETED", &unreadable("bad"))]),
    ];
    for end in ends {
        let script = std::iter::repeat_n([list(&[unreadable("bad")]), end.clone()], 500).flatten();
        let (all, lists) = asked_in_a_minute(script).await;
        assert!((3..=16).contains(&lists), "{all} requests, {lists} lists: {end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_now_and_then_is_opened_again_at_once() {
    let cut = (200, vec![json!({"wait": 15}), event("MODIFIED", &map("a", "11"))]);
    let script = std::iter::once(list(&[])).chain(std::iter::repeat_n(cut, 100));
    let (cluster, heard) = overheard(script);
    let (_, health) = story(&cluster, Duration::from_mins(10)).await;
    assert!(heard.lock().unwrap().len() >= 39, "each is opened within 0.2 s");
    assert_eq!(health.fresh_since().unwrap().elapsed(), Duration::from_mins(10));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_read_is_asked_for_ever_more_seldom_and_makes_the_watch_unhealthy() {
    let unreadable =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"x": null}}});
    let script = || std::iter::repeat_with(|| list(std::slice::from_ref(&unreadable))).take(20);
    let good = [list(&[map("a", "1")])];
    let (told, health) = story(&scripted(script().chain(good.clone())), Duration::from_secs(60)).await;
    assert!(!told.contains(&"synced".to_owned()), "20 tries in a minute: {told:?}");
    assert!(health.check().is_err());
    let (told, _) = story(&scripted(script().chain(good)), Duration::from_hours(1)).await;
    assert!(told.contains(&"synced".to_owned()), "{told:?}");
}

/// A view that has just been listed.
fn listed() -> WatchHealth {
    let health = WatchHealth::new("nodes");
    health.completes_list(0);
    health
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

/// Rows: W3.
#[tokio::test(start_paused = true)]
async fn a_short_break_is_no_gap_and_a_long_one_makes_the_view_blind_and_then_new() {
    let health = listed();
    let since = health.fresh_since();
    for _ in 0..100 {
        pass(50).await;
        health.failed("refused".to_owned());
        assert_eq!(health.fresh_since(), since, "a restart of the API server is no gap");
        health.heard();
    }
    pass(BLIND_AFTER.as_secs()).await;
    assert_eq!(health.fresh_since(), None);
    pass(3600).await;
    health.heard();
    let heard = Instant::now();
    pass(5).await;
    assert_eq!(health.fresh_since(), Some(heard), "it goes on where it stopped");
}

#[tokio::test(start_paused = true)]
async fn a_view_that_is_doubted_is_not_fresh_until_it_was_listed_again() {
    let health = listed();
    health.doubt();
    assert_eq!(health.fresh_since(), None);
    pass(1).await;
    health.completes_list(0);
    assert_eq!(health.fresh_since(), None, "that list was begun before the doubt");
    health.completes_list(1);
    assert_eq!(health.fresh_since(), Some(Instant::now()));
}
