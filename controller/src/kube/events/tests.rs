use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::{Body, ClientBuilder, DynBody};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;
use crate::kube::client::{Cluster, Policy, Role};

/// A server that keeps what it is sent.
fn server() -> (Client, Arc<Mutex<Vec<Value>>>) {
    let kept: Arc<Mutex<Vec<Value>>> = Arc::default();
    let sink = Arc::clone(&kept);
    let service = service_fn(move |request: Request<Body>| {
        let sink = Arc::clone(&sink);
        async move {
            let body = request.into_body().collect().await?.to_bytes();
            sink.lock().unwrap().push(serde_json::from_slice(&body)?);
            let body: Box<DynBody> = Box::new(Full::from(body).map_err(|never| match never {}));
            Ok::<_, BoxError>(Response::new(body))
        }
    });
    let policy = Policy {
        role: Role::Control,
        leadership: None,
        budget: None,
        metrics: Metrics::default(),
    };
    (
        Cluster::over(ClientBuilder::new(service, "default"), policy).client,
        kept,
    )
}

fn object(uid: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": "m1", "namespace": "shop", "uid": uid}})).unwrap()
}

/// Ends the postman and gives what reached the server.
async fn delivered(postman: Postman, kept: &Mutex<Vec<Value>>) -> Vec<Value> {
    let stop = CancellationToken::new();
    stop.cancel();
    postman.run(stop).await;
    std::mem::take(&mut kept.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_event_reaches_the_server_with_what_it_is_about() {
    let (client, kept) = server();
    let (publisher, postman) = channel(client, Metrics::default(), "host_1", Env::begin());

    publisher.publish(&object("u1"), Severity::Warning, "CreationFailed", "no capacity");

    let events = delivered(postman, &kept).await;
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!(event["regarding"]["uid"], "u1");
    assert_eq!(event["metadata"]["namespace"], "shop");
    assert_eq!(
        (&event["type"], &event["reason"], &event["note"]),
        (&json!("Warning"), &json!("CreationFailed"), &json!("no capacity"))
    );
    assert_eq!(event["reportingInstance"], "host_1");
}

#[tokio::test(start_paused = true)]
async fn the_same_words_are_told_once_in_five_minutes() {
    let (client, kept) = server();
    let (publisher, postman) = channel(client, Metrics::default(), "host_1", Env::begin());
    let say = |note: &str| publisher.publish(&object("u1"), Severity::Normal, "Waiting", note);

    say("one");
    say("one");
    say("two");
    tokio::time::advance(REPEAT_AFTER).await;
    say("one");

    let events = delivered(postman, &kept).await;
    let notes: Vec<&str> = events.iter().filter_map(|event| event["note"].as_str()).collect();
    assert_eq!(notes, ["one", "two", "one"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_talks_too_much_silences_only_itself_and_only_for_a_while() {
    let (client, kept) = server();
    let (publisher, postman) = channel(client, Metrics::default(), "host_1", Env::begin());
    for n in 0..100 {
        publisher.publish(&object("loud"), Severity::Normal, "Retry", &format!("try {n}"));
    }
    publisher.publish(&object("calm"), Severity::Normal, "Created", "here I am");
    tokio::time::advance(REPEAT_AFTER).await;
    publisher.publish(&object("loud"), Severity::Normal, "Retry", "again");

    let events = delivered(postman, &kept).await;

    let of = |uid: &str| events.iter().filter(|event| event["regarding"]["uid"] == uid).count();
    assert_eq!(of("loud"), usize::try_from(MOST_PER_OBJECT).unwrap() + 1);
    assert_eq!(of("calm"), 1);
}

#[tokio::test(start_paused = true)]
async fn publishing_never_waits_and_what_finds_no_place_is_counted() {
    let (client, _) = server();
    let metrics = Metrics::default();
    let (publisher, _postman) = channel(client, metrics.clone(), "host_1", Env::begin());

    for n in 0..WAITING + 7 {
        publisher.publish(&object(&format!("u{n}")), Severity::Normal, "Created", "here I am");
    }

    let text = metrics.render().unwrap();
    assert!(text.contains(r#"millwright_events_total{result="full"} 7"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_note_beyond_the_limit_is_cut_between_letters() {
    let (client, kept) = server();
    let (publisher, postman) = channel(client, Metrics::default(), "host_1", Env::begin());

    publisher.publish(&object("u1"), Severity::Normal, "Long", &"ü".repeat(1000));

    let events = delivered(postman, &kept).await;
    assert_eq!(events[0]["note"].as_str().map(str::len), Some(LONGEST_NOTE));
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_does_not_stay_in_memory() {
    let (client, _) = server();
    let (publisher, _postman) = channel(client, Metrics::default(), "host_1", Env::begin());
    publisher.publish(&object("u1"), Severity::Normal, "Created", "here I am");
    tokio::time::advance(REPEAT_AFTER).await;

    publisher.publish(&object("u2"), Severity::Normal, "Created", "here I am");

    assert_eq!(publisher.memory.lock().unwrap().told.len(), 1);
}
