use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::watch;
use tower::service_fn;

use super::*;
use crate::kube::error::{ReadError, WriteError};
use crate::kube::leadership::Leadership;

fn policy(leadership: Option<LeadershipReader>) -> Policy {
    Policy {
        role: Role::Control,
        leadership,
        budget: None,
        metrics: Metrics::default(),
    }
}

fn answer(code: u16, body: &serde_json::Value) -> Answer {
    let body: Box<DynBody> = Box::new(Full::from(body.to_string()).map_err(|never| match never {}));
    Response::builder().status(code).body(body).unwrap()
}

/// A server that counts requests and gives every one the same answer.
fn server(code: u16, body: serde_json::Value, leadership: Option<LeadershipReader>) -> (Cluster, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let service = service_fn(move |_: Request<Body>| {
        let answer = answer(code, &body);
        let counter = counter.clone();
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok::<_, BoxError>(answer)
        }
    });
    (
        Cluster::over(ClientBuilder::new(service, "default"), policy(leadership)),
        seen,
    )
}

fn leader_for(time: Duration) -> LeadershipReader {
    let state = Leadership::Leader {
        epoch: Some(1),
        valid_until: Some(Instant::now() + time),
    };
    watch::channel(state).1
}

async fn create(cluster: &Cluster) -> Result<ConfigMap, WriteError> {
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    maps.create(&PostParams::default(), &map)
        .await
        .map_err(WriteError::of_create)
}

fn failure(code: u16, reason: &str, message: &str) -> serde_json::Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

#[tokio::test(start_paused = true)]
async fn a_follower_sends_no_write() {
    let (_sender, follower) = watch::channel(Leadership::Follower);
    let (cluster, seen) = server(201, json!({"metadata": {"name": "a"}}), Some(follower));

    assert!(matches!(create(&cluster).await, Err(WriteError::Fenced)));
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_writes_until_its_time_is_up_and_not_a_moment_longer() {
    let (cluster, seen) = server(
        201,
        json!({"metadata": {"name": "a"}}),
        Some(leader_for(Duration::from_secs(10))),
    );

    assert!(create(&cluster).await.is_ok());
    tokio::time::advance(Duration::from_secs(10)).await;

    assert!(matches!(create(&cluster).await, Err(WriteError::Fenced)));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waited_for_the_budget_past_the_end_of_leadership_is_not_sent() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let service = service_fn(move |_: Request<Body>| {
        let counter = counter.clone();
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok::<_, BoxError>(answer(201, &json!({"metadata": {"name": "a"}})))
        }
    });
    let mut policy = policy(Some(leader_for(Duration::from_secs(10))));
    policy.budget = Budget::new(0.05, 1);
    let cluster = Cluster::over(ClientBuilder::new(service, "default"), policy);

    assert!(create(&cluster).await.is_ok());
    assert!(matches!(create(&cluster).await, Err(WriteError::Fenced)));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_follower_reads_and_fights_for_the_lease() {
    let (_sender, follower) = watch::channel(Leadership::Follower);
    let (cluster, seen) = server(200, json!({"metadata": {"name": "a"}, "items": []}), Some(follower));
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let leases: Api<Lease> = Api::default_namespaced(cluster.client.clone());

    assert!(maps.get("a").await.is_ok());
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": "me"}}));
    assert!(leases.patch("a", &PatchParams::default(), &patch).await.is_ok());
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

/// Of hundreds of requests only those that were under way are refused, and the rest come when they may.
///
/// Rows: O16.
#[tokio::test(start_paused = true)]
async fn a_server_that_asks_to_be_left_alone_is_asked_no_more_than_once_a_place_until_then() {
    let (began, seen) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let counter = seen.clone();
    let service = service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            if began.elapsed() >= Duration::from_secs(10) {
                return Ok::<_, BoxError>(answer(201, &json!({"metadata": {"name": "a"}})));
            }
            let mut refusal = answer(
                429,
                &json!({"kind": "Status", "code": 429, "message": "too many requests"}),
            );
            refusal.headers_mut().insert("retry-after", "10".parse().unwrap());
            Ok(refusal)
        }
    });
    let cluster = Cluster::over(ClientBuilder::new(service, "default"), policy(None));
    let all = (0..300).map(|_| async {
        while create(&cluster).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    futures::future::join_all(all).await;
    let (seen, took) = (seen.load(Ordering::SeqCst), began.elapsed());
    assert!(seen <= 300 + 32, "{seen} requests");
    assert!(took < Duration::from_secs(12), "{took:?}");
}

/// The cluster of a kubeconfig with this entry and a user without credentials.
async fn opened(cluster: &serde_json::Value) -> Cluster {
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(file.path(), config.to_string()).unwrap();
    let access = Access::File(file.path().into());
    Cluster::open(&access, policy(None)).await.unwrap()
}

/// Each connection answers once and is dead from then on, as behind a load balancer that forgot it.
///
/// Rows: O17.
#[tokio::test]
async fn the_lease_is_read_over_new_connections_where_those_that_were_used_are_dead() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    tokio_util::task::TaskTracker::new().spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; 4096];
            let length = stream.read(&mut asked).await.unwrap();
            let body = match String::from_utf8_lossy(&asked[..length]).contains("/leases/") {
                true => r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"}}"#,
                false => r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#,
            };
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
            let answer = format!("{head}: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            kept.push(stream);
        }
    });
    let cluster = opened(&json!({ "server": server })).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    maps.get("a").await.unwrap();
    let leases: Api<Lease> = Api::default_namespaced(cluster.lease.clone());
    for _ in 0..3 {
        let read = tokio::time::timeout(Duration::from_secs(5), leases.get("a")).await;
        read.expect("over a new connection").unwrap();
    }
}

fn event() -> k8s_openapi::api::events::v1::Event {
    serde_json::from_value(json!({"metadata": {"name": "a"}, "eventTime": null, "regarding": {}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_follower_writes_no_event() {
    let (_sender, follower) = watch::channel(Leadership::Follower);
    let (cluster, seen) = server(201, json!({"metadata": {"name": "a"}}), Some(follower));
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::default_namespaced(cluster.client.clone());

    let error = events.create(&PostParams::default(), &event()).await.unwrap_err();

    assert!(matches!(WriteError::of_create(error), WriteError::Fenced));
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_takes_nothing_of_the_budget_and_does_not_wait_for_it() {
    let seen =
        service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(answer(201, &json!({"metadata": {"name": "a"}}))) });
    let mut policy = policy(None);
    policy.budget = Budget::new(0.01, 1);
    let cluster = Cluster::over(ClientBuilder::new(seen, "default"), policy);
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::default_namespaced(cluster.client.clone());
    let began = Instant::now();

    for _ in 0..5 {
        events.create(&PostParams::default(), &event()).await.unwrap();
    }
    assert!(create(&cluster).await.is_ok());

    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Rows: W36.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_on() {
    let service = service_fn(|_: Request<Body>| std::future::pending::<Result<Answer, BoxError>>());
    let cluster = Cluster::over(ClientBuilder::new(service, "default"), policy(None));

    let error = create(&cluster).await.unwrap_err();

    assert!(
        matches!(&error, WriteError::Unreachable { reason } if reason.contains("30 s")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stops_in_the_middle_is_given_up_on() {
    let service = service_fn(|_: Request<Body>| async {
        let never = http_body_util::StreamBody::new(futures::stream::pending());
        let body: Box<DynBody> = Box::new(never);
        Ok::<_, BoxError>(Response::new(body))
    });
    let cluster = Cluster::over(ClientBuilder::new(service, "default"), policy(None));

    assert!(matches!(create(&cluster).await, Err(WriteError::Unreachable { .. })));
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_verb_resource_and_code() {
    let (cluster, _) = server(409, failure(409, "AlreadyExists", "there is one"), None);

    assert!(matches!(create(&cluster).await, Err(WriteError::AlreadyExists)));

    let text = cluster.metrics.render().unwrap();
    let line = r#"api_request_seconds_count{cluster="control",verb="create",resource="configmaps",code="409"} 1"#;
    assert!(text.contains(line), "{text}");
}

/// Rows: W22.
#[tokio::test(start_paused = true)]
async fn each_answer_of_the_server_has_one_meaning() {
    let meaning = async |code, reason, message| {
        let (cluster, _) = server(code, failure(code, reason, message), None);
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
        let patch = Patch::Merge(json!({}));
        let error = maps.patch("a", &PatchParams::default(), &patch).await.unwrap_err();
        WriteError::from(error).label()
    };

    // The words are those of kube-apiserver 1.36.
    let other_uid = "the UID in the precondition (x) does not match the UID in record (y)";
    let failed_test = "the server rejected our request due to an error in our request";
    assert_eq!(meaning(409, "Conflict", "the object has been modified").await, "stale");
    assert_eq!(meaning(409, "Conflict", other_uid).await, "gone");
    assert_eq!(meaning(404, "NotFound", "not found").await, "gone");
    assert_eq!(
        meaning(422, "Invalid", "metadata.uid: Invalid value: field is immutable").await,
        "gone"
    );
    assert_eq!(meaning(422, "Invalid", failed_test).await, "stale");
    assert_eq!(
        meaning(422, "Invalid", "spec.replicas: must not be negative").await,
        "refused"
    );
    assert_eq!(meaning(403, "Forbidden", "no permission").await, "refused");
    assert_eq!(meaning(429, "TooManyRequests", "later").await, "unreachable");
    assert_eq!(meaning(500, "InternalError", "etcd").await, "unreachable");
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_is_a_refusal_of_the_create_and_not_a_missing_object() {
    let (cluster, _) = server(404, failure(404, "NotFound", "namespaces \"x\" not found"), None);

    assert!(matches!(create(&cluster).await, Err(WriteError::Refused { reason }) if reason.contains("namespaces")));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_is_not_repeated_in_the_error() {
    let (cluster, _) = server(200, json!({"metadata": {"name": "a"}, "data": "hush-hush"}), None);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());

    let error = ReadError::from(maps.get("a").await.unwrap_err());

    assert!(matches!(error, ReadError::Unreadable));
    assert!(!format!("{error:?}").contains("hush-hush"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_server_repeats_in_its_refusal_is_not_repeated_by_us() {
    let message = r#" "" is invalid: patch: Invalid value: "{\"data\":{\"k\":\"hush-hush\"}}": json: cannot unmarshal"#;
    let mut body = failure(422, "Invalid", message);
    body["details"] = json!({"causes": [{"reason": "FieldValueInvalid", "message": message, "field": "patch"}]});
    let (cluster, _) = server(422, body, None);

    let error = create(&cluster).await.unwrap_err().to_string();

    assert!(
        error.contains("cannot unmarshal") && !error.contains("hush-hush"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named_with_the_reason() {
    let access = Access::File("/nowhere/kubeconfig".into());
    let error = Cluster::open(&access, policy(None)).await.err().unwrap().to_string();
    assert!(
        error.contains("/nowhere/kubeconfig") && error.contains("No such file"),
        "{error}"
    );
}

#[tokio::test]
async fn a_kubeconfig_that_is_none_is_named_with_the_reason_and_without_its_words() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let kubeconfigs = [
        "",
        "{",
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n",
        "users:\n- name: a\n  user: {token: hush-hush\n",
        "users: hush-hush\n",
    ];
    for text in kubeconfigs {
        std::fs::write(file.path(), text).unwrap();
        let opened = Cluster::open(&Access::File(file.path().into()), policy(None)).await;
        let error = opened.err().unwrap();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(&file.path().display().to_string()), "{shown}");
        assert!(!shown.contains("hush-hush"), "{shown}");
    }
}

/// Rows: O9.
#[tokio::test]
async fn the_way_to_the_server_leads_through_the_proxy_that_the_kubeconfig_names() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let cluster = opened(&json!({ "server": "https://server.example:6443", "proxy-url": url })).await;
    let heard = async {
        let (stream, _) = proxy.accept().await.unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await.unwrap();
        line
    };
    tokio::select! {
        line = heard => assert_eq!(line, "CONNECT server.example:6443 HTTP/1.1\r\n"),
        answer = create(&cluster) => panic!("the proxy was not asked: {answer:?}"),
    }
}

/// What a plugin prints before it fails may be half a token.
///
/// Rows: O5.
#[tokio::test]
async fn a_credential_plugin_that_fails_is_named_without_what_it_printed() {
    for end in ["exit 3", "exit 0"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh",
                "args": ["-c", format!("echo canary-4711; echo canary-4711 >&2; {end}")], "interactiveMode": "Never"}}}],
        });
        std::fs::write(file.path(), config.to_string()).unwrap();
        let access = Access::File(file.path().to_owned());
        let said = match Cluster::open(&access, policy(None)).await {
            Err(error) => error.to_string(),
            Ok(cluster) => create(&cluster).await.unwrap_err().to_string(),
        };
        assert!(said.contains("credential plugin") && !said.contains("canary"), "{said}");
    }
}
