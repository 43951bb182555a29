use std::collections::VecDeque;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::{Body, ClientBuilder, DynBody};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;
use crate::kube::client::{Policy, Role};

/// A server that answers lists and watches from a script, in order; when it is through, requests hang.
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
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let body: Box<DynBody> = Box::new(Full::from(text).map_err(|never| match never {}));
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
async fn a_server_that_refuses_for_long_makes_the_watch_unhealthy() {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"});
    let cluster = scripted(std::iter::repeat_n((403, vec![status]), 100));

    let (_, health) = story(&cluster, Duration::from_secs(1)).await;
    assert!(health.check().unwrap_err().contains("not complete"));

    let (_, health) = story(&cluster, Duration::from_secs(100)).await;
    assert!(health.check().unwrap_err().contains("failing"), "{:?}", health.check());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_hears_nothing_at_all_becomes_unhealthy() {
    let cluster = scripted([list(&[])]);
    let (_, health) = story(&cluster, Duration::from_secs(1)).await;
    assert_eq!(health.check(), Ok(()));

    tokio::time::advance(BLIND_AFTER).await;

    assert!(health.check().unwrap_err().contains("nothing heard"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_is_healthy_because_its_watches_are_opened_again() {
    let mut script = vec![list(&[])];
    script.extend(std::iter::repeat_n((200, Vec::new()), 3));
    let cluster = scripted(script);
    let (_, health) = story(&cluster, Duration::from_secs(1)).await;
    tokio::time::advance(BLIND_AFTER - Duration::from_secs(2)).await;

    assert_eq!(health.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_read_is_asked_for_ever_more_seldom_and_makes_the_watch_unhealthy() {
    let unreadable =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"x": null}}});
    let script = || std::iter::repeat_with(|| list(std::slice::from_ref(&unreadable))).take(20);
    let good = [list(&[map("a", "1")])];
    let (told, health) = story(&scripted(script().chain(good.clone())), Duration::from_secs(60)).await;
    assert!(!told.contains(&"synced".to_owned()), "20 tries in a minute: {told:?}");
    assert!(health.check().unwrap_err().contains("failing"), "{:?}", health.check());
    let (told, health) = story(&scripted(script().chain(good)), Duration::from_hours(1)).await;
    assert!(told.contains(&"synced".to_owned()), "{told:?}");
    health.heard();
    assert_eq!(health.check(), Ok(()));
}

/// A view that has just been listed.
fn listed() -> WatchHealth {
    let health = WatchHealth::new("nodes", Arc::default());
    health.begins_list();
    health.heard();
    health.completes_list(0);
    health
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

/// What a quiet watch gives: it is opened again each minute.
async fn quiet(health: &WatchHealth, minutes: u64) {
    for _ in 0..minutes {
        pass(60).await;
        health.contact.answered("nodes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_is_fresh_since_its_first_complete_list_however_long_nothing_happens() {
    let health = WatchHealth::new("nodes", Arc::default());
    assert_eq!(health.fresh_since(), None, "never listed");
    health.begins_list();
    health.heard();
    assert_eq!(health.fresh_since(), None, "the list is not complete");
    pass(5).await;
    health.completes_list(0);
    let since = Instant::now();
    assert_eq!(health.fresh_since(), Some(since));
    quiet(&health, 60).await;
    assert_eq!(health.fresh_since(), Some(since));
}

/// Rows: W3.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_for_longer_than_a_restart_makes_the_view_blind_and_then_new() {
    let health = listed();
    let since = health.fresh_since();
    health.failed(false);
    pass(20).await;
    health.failed(false);
    assert_eq!(health.fresh_since(), since, "a restart of the API server is no gap");
    pass(20).await;
    health.failed(false);
    assert_eq!(health.fresh_since(), None);
    pass(3600).await;
    health.failed(false);
    assert_eq!(health.fresh_since(), None);
    pass(10).await;
    health.contact.answered("nodes");
    let opened = Instant::now();
    pass(10).await;
    assert_eq!(health.fresh_since(), Some(opened), "it goes on where it stopped");
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_nobody_asked_about_is_a_gap_all_the_same() {
    let health = listed();
    health.failed(false);
    pass(600).await;
    health.heard();
    assert_eq!(health.fresh_since(), Some(Instant::now()));
}

/// Rows: W3.
#[tokio::test(start_paused = true)]
async fn short_breaks_put_off_no_timeout_however_many_they_are() {
    let health = listed();
    let since = health.fresh_since();
    for _ in 0..100 {
        pass(10).await;
        health.failed(false);
        pass(2).await;
        health.contact.answered("nodes");
        assert_eq!(health.fresh_since(), since);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_had_makes_the_view_blind_until_one_is_complete() {
    let health = listed();
    health.failed(false);
    health.begins_list();
    for _ in 0..4 {
        pass(10).await;
        health.contact.answered("nodes");
        health.failed(true);
    }
    assert_eq!(health.fresh_since(), None, "answers that cannot be read are no list");
    health.heard();
    assert_eq!(
        health.fresh_since(),
        None,
        "the first object of a list is not all of it"
    );
    pass(1).await;
    health.completes_list(0);
    assert_eq!(health.fresh_since(), Some(Instant::now()));
}

/// Rows: pains 40.
#[tokio::test(start_paused = true)]
async fn a_silence_without_an_error_is_a_gap() {
    let health = listed();
    pass(BLIND_AFTER.as_secs()).await;
    assert_eq!(health.fresh_since(), None);
    // As after a process stood still: the next answer comes before anybody asks.
    pass(3600).await;
    health.contact.answered("nodes");
    let heard = Instant::now();
    pass(5).await;
    assert_eq!(health.fresh_since(), Some(heard));
}

#[tokio::test(start_paused = true)]
async fn a_view_that_is_doubted_is_not_fresh_until_it_was_listed_again() {
    let health = listed();
    health.doubt();
    assert_eq!(health.fresh_since(), None);
    pass(1).await;
    health.begins_list();
    health.completes_list(0);
    assert_eq!(health.fresh_since(), None, "that list was begun before the doubt");
    health.completes_list(1);
    assert_eq!(health.fresh_since(), Some(Instant::now()));
}
