//! Secrets of classes: fetched once for many, again when they change, never guessed. The API server is a scripted one.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test says by its panic what went wrong, and waits in real time"
)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use millwright::driver::{SecretError, SecretStore};
use millwright_core::ids::SecretKey;

/// An API server that knows Secrets, by path, and counts who asks.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<BTreeMap<String, (StatusCode, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn store(&self) -> SecretStore {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let path = request.uri().path().to_owned();
                server.asked.lock().unwrap().push(path.clone());
                // Time for others to ask meanwhile.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let answers = server.answers.lock().unwrap();
                let (code, body) = answers.get(&path).cloned().unwrap_or_else(|| status(404, "NotFound"));
                Ok::<_, Infallible>(
                    Response::builder()
                        .status(code)
                        .body(Body::from(body.into_bytes()))
                        .unwrap(),
                )
            }
        });
        SecretStore::new(kube::Client::new(service, "default"))
    }

    fn put(&self, name: &str, version: &str, data: &[(&str, &str)]) {
        let data: BTreeMap<_, _> = data
            .iter()
            .map(|(key, value)| (*key, k8s_openapi::ByteString(value.as_bytes().to_vec())))
            .collect();
        let secret = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": { "name": name, "namespace": "n", "resourceVersion": version },
        });
        self.answer(name, (StatusCode::OK, secret.to_string()));
    }

    fn answer(&self, name: &str, answer: (StatusCode, String)) {
        self.answers
            .lock()
            .unwrap()
            .insert(format!("/api/v1/namespaces/n/secrets/{name}"), answer);
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn status(code: u16, reason: &str) -> (StatusCode, String) {
    let body = serde_json::json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "m", "reason": reason, "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), body.to_string())
}

fn key(name: &str) -> SecretKey {
    SecretKey {
        namespace: "n".into(),
        name: name.into(),
    }
}

fn at(version: &str) -> impl Fn(&SecretKey) -> Option<String> + use<> {
    let version = version.to_owned();
    move |_| Some(version.clone())
}

/// The data of the class as text. Through the only way out that there is: a request's message.
fn shown(secrets: &millwright::driver::ClassSecrets) -> (bool, Option<String>) {
    let user_data = secrets
        .user_data
        .as_ref()
        .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    (secrets.data.is_empty(), user_data)
}

/// Rows: pains 102.
#[tokio::test(start_paused = true)]
async fn a_thousand_machines_of_one_class_cost_one_get() {
    let server = Server::default();
    server.put("s", "5", &[("user", "u"), ("userData", "#cloud-config")]);
    let store = server.store();
    let keys = [key("s")];
    let calls = (0..1000).map(|_| store.get(&keys, at("5")));
    for secrets in futures::future::join_all(calls).await {
        assert_eq!(
            shown(&secrets.expect("it is there")),
            (false, Some("#cloud-config".to_owned()))
        );
    }
    assert_eq!(server.asked(), 1);
}

/// Rows: W44.
#[tokio::test(start_paused = true)]
async fn a_changed_secret_is_fetched_again_and_a_watch_that_lags_is_no_change() {
    let server = Server::default();
    server.put("s", "5", &[("userData", "old")]);
    let store = server.store();
    let get = async |version: &str| {
        shown(&store.get(&[key("s")], at(version)).await.expect("it is there"))
            .1
            .unwrap()
    };
    assert_eq!(get("5").await, "old");
    server.put("s", "12", &[("userData", "new")]);
    assert_eq!(get("5").await, "old");
    assert_eq!(get("12").await, "new");
    assert_eq!(get("9").await, "new");
    assert_eq!(server.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_second_secret_wins_over_the_first_and_user_data_is_kept_apart() {
    let server = Server::default();
    server.put("first", "1", &[("userData", "first"), ("a", "1")]);
    server.put("second", "2", &[("userData", "second")]);
    let store = server.store();
    let secrets = store
        .get(&[key("first"), key("second")], |_| None)
        .await
        .expect("both are there");
    assert_eq!(shown(&secrets), (false, Some("second".to_owned())));
    let secrets = store
        .get(&[key("second"), key("first")], |_| None)
        .await
        .expect("both are there");
    assert_eq!(shown(&secrets), (false, Some("first".to_owned())));
    let alone = store.get(&[key("second")], |_| None).await.expect("it is there");
    assert_eq!(shown(&alone), (true, Some("second".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_secret_without_user_data_or_with_an_empty_one_has_none() {
    let server = Server::default();
    server.put("s", "1", &[("a", "1")]);
    server.put("empty", "1", &[("userData", "")]);
    let store = server.store();
    for name in ["s", "empty"] {
        let secrets = store.get(&[key(name)], |_| None).await.expect("it is there");
        assert_eq!(secrets.user_data.as_ref().map(|bytes| bytes.len()), None, "{name}");
    }
}

/// Rows: W7.
#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_named_and_found_as_soon_as_the_watch_has_it() {
    let server = Server::default();
    let store = server.store();
    let missing = async |current: Option<&str>| {
        let current = current.map(str::to_owned);
        store.get(&[key("s")], |_| current.clone()).await.err()
    };
    let calls = (0..100).map(|_| missing(None));
    assert!(
        futures::future::join_all(calls)
            .await
            .iter()
            .all(|error| *error == Some(SecretError::Missing(key("s"))))
    );
    assert_eq!(server.asked(), 1, "a hundred machines do not ask a hundred times");
    assert_eq!(SecretError::Missing(key("s")).to_string(), "Secret n/s does not exist");

    server.put("s", "3", &[("userData", "x")]);
    assert_eq!(missing(Some("3")).await, None);
    assert_eq!(server.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_nobody_watches_is_asked_for_again_soon() {
    let server = Server::default();
    server.put("s", "1", &[("userData", "old")]);
    let store = server.store();
    let get = async || {
        shown(&store.get(&[key("s")], |_| None).await.expect("it is there"))
            .1
            .unwrap()
    };
    assert_eq!(get().await, "old");
    server.put("s", "2", &[("userData", "new")]);
    assert_eq!(get().await, "old");
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!(get().await, "new");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_asked_for_within_a_minute_is_forgotten() {
    let server = Server::default();
    server.put("s", "1", &[("userData", "x")]);
    let store = server.store();
    let upkeep = tokio::spawn(store.clone().upkeep());
    for _ in 0..3 {
        store.get(&[key("s")], at("1")).await.expect("it is there");
        tokio::time::sleep(Duration::from_secs(40)).await;
    }
    assert_eq!(server.asked(), 1, "it is in use");
    tokio::time::sleep(Duration::from_secs(80)).await;
    store.get(&[key("s")], at("1")).await.expect("it is there");
    assert_eq!(server.asked(), 2);
    upkeep.abort();
}

#[tokio::test(start_paused = true)]
async fn each_way_of_failing_has_its_name_and_shows_no_content() {
    let server = Server::default();
    server.answer("forbidden", status(403, "Forbidden"));
    server.answer("broken", status(500, "InternalError"));
    server.answer(
        "garbled",
        (
            StatusCode::OK,
            r#"{"apiVersion":"v1","kind":"Secret","data":"canary-7"}"#.to_owned(),
        ),
    );
    let store = server.store();
    let failure = async |name: &str| match store.get(&[key(name)], |_| None).await {
        Ok(_) => panic!("{name} must fail"),
        Err(error) => error,
    };
    assert_eq!(failure("forbidden").await, SecretError::Forbidden(key("forbidden")));
    let SecretError::Unreachable { why, .. } = failure("broken").await else {
        panic!("the server failed")
    };
    assert!(why.contains("500"), "{why}");
    let SecretError::Unreachable { why, .. } = failure("garbled").await else {
        panic!("it is no Secret")
    };
    assert!(!why.contains("canary"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn only_the_api_servers_own_word_proves_that_a_secret_does_not_exist() {
    let server = Server::default();
    server.answer("forbidden", status(403, "Forbidden"));
    server.answer("broken", status(500, "InternalError"));
    server.answer("proxied", (StatusCode::NOT_FOUND, "404 page not found".to_owned()));
    server.put("large", "1", &[("a", &"x".repeat(200 * 1024))]);
    let store = server.store();
    for (name, is_proven) in [
        ("absent", true),
        ("forbidden", false),
        ("broken", false),
        ("proxied", false),
        ("large", false),
    ] {
        let Err(error) = store.get(&[key(name)], |_| None).await else {
            panic!("{name} must fail")
        };
        assert_eq!(matches!(error, SecretError::Missing(_)), is_proven, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_a_driver_takes_is_refused_with_both_numbers() {
    let server = Server::default();
    let half = "x".repeat(70 * 1024);
    server.put("one", "1", &[("a", &half)]);
    server.put("two", "1", &[("b", &half)]);
    let store = server.store();
    assert!(store.get(&[key("one")], |_| None).await.is_ok());
    let error = store.get(&[key("one"), key("two")], |_| None).await.err();
    assert_eq!(
        error,
        Some(SecretError::TooLarge {
            bytes: 2 * 70 * 1024 + 2,
            limit: 128 * 1024
        })
    );
}
