//! The server over its socket, as `kube::Client` sees it and as one who speaks HTTP by hand.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::net::SocketAddr;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Api, Client, Config, ResourceExt as _};
use millwright_core::api::Machine;
use millwright_sandbox::api::Api as Value;
use millwright_sandbox::http::outside::{Outside as _, System};
use millwright_sandbox::http::users::Users;
use millwright_sandbox::http::{Options, Running, ServeError, Server};
use millwright_sandbox::rbac::User;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const TOKEN: &str = "t0ken";
const PATIENCE: Duration = Duration::from_secs(10);

fn options() -> Options {
    let mut api = Value::new(System.moment().now);
    for definition in millwright_core::api::crds::all() {
        let definition = serde_json::to_value(definition).unwrap();
        api.install(&definition, &System.moment()).unwrap();
    }
    Options::new(api, Users::default().with("admin", TOKEN))
}

async fn server() -> Running {
    Server::start(options()).await.unwrap()
}

async fn client(server: &Running) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig("admin").unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

fn machine(name: &str) -> Machine {
    let machine =
        json!({ "metadata": { "name": name }, "spec": { "class": { "kind": "MachineClass", "name": "small" } } });
    serde_json::from_value(machine).unwrap()
}

fn map(value: serde_json::Value) -> ConfigMap {
    serde_json::from_value(value).unwrap()
}

fn code(error: &kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("not an answer of the API: {other}"),
    }
}

#[tokio::test]
async fn a_client_creates_lists_patches_and_deletes_machines() {
    let server = server().await;
    let machines: Api<Machine> = Api::namespaced(client(&server).await, "default");
    let made = machines.create(&PostParams::default(), &machine("m1")).await.unwrap();
    assert!(made.uid().is_some() && made.metadata.creation_timestamp.is_some());
    let again = machines
        .create(&PostParams::default(), &machine("m1"))
        .await
        .unwrap_err();
    assert_eq!(code(&again), (409, "AlreadyExists".to_owned()));

    let patch = Patch::Merge(json!({ "spec": { "providerID": "virtual:///m1" } }));
    let patched = machines.patch("m1", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.spec.provider_id.as_deref(), Some("virtual:///m1"));
    assert_eq!(patched.metadata.generation, Some(2));

    let stale =
        Patch::Merge(json!({ "metadata": { "resourceVersion": made.resource_version(), "labels": { "a": "b" } } }));
    let refused = machines.patch("m1", &PatchParams::default(), &stale).await.unwrap_err();
    assert_eq!(code(&refused), (409, "Conflict".to_owned()));

    let listed = machines.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        listed.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(),
        ["m1"]
    );
    machines.delete("m1", &DeleteParams::default()).await.unwrap();
    assert_eq!(
        code(&machines.get("m1").await.unwrap_err()),
        (404, "NotFound".to_owned())
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_applied_machine_belongs_to_its_manager() {
    let server = server().await;
    let machines: Api<Machine> = Api::namespaced(client(&server).await, "default");
    let intent = |class: &str| {
        Patch::Apply(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": { "name": "m1" },
            "spec": { "class": { "kind": "MachineClass", "name": class } },
        }))
    };
    machines
        .patch("m1", &PatchParams::apply("one"), &intent("small"))
        .await
        .unwrap();
    let taken = machines
        .patch("m1", &PatchParams::apply("two"), &intent("big"))
        .await
        .unwrap_err();
    assert_eq!(code(&taken), (409, "Conflict".to_owned()));
    machines
        .patch("m1", &PatchParams::apply("two").force(), &intent("big"))
        .await
        .unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_finalizer_holds_an_object_and_the_watch_sees_each_step() {
    let server = server().await;
    let nodes: Api<Node> = Api::all(client(&server).await);
    let mut seen = nodes.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let node = json!({ "metadata": { "name": "n1", "finalizers": ["example.org/hold"] } });
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node).unwrap())
        .await
        .unwrap();
    let held = nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    assert!(held.left().unwrap().metadata.deletion_timestamp.is_some());
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    nodes.patch("n1", &PatchParams::default(), &release).await.unwrap();

    let mut story = Vec::new();
    while story.len() < 3 {
        let event = timeout(PATIENCE, seen.try_next())
            .await
            .expect("an event comes at once");
        story.push(match event.unwrap().expect("the watch lasts") {
            WatchEvent::Added(node) => format!("added {}", node.name_any()),
            WatchEvent::Modified(node) => format!("modified {}", node.metadata.deletion_timestamp.is_some()),
            WatchEvent::Deleted(node) => format!("deleted {}", node.name_any()),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("{status:?}"),
        });
    }
    assert_eq!(story, ["added n1", "modified true", "deleted n1"]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_watcher_lists_and_follows() {
    let server = server().await;
    let machines: Api<Machine> = Api::namespaced(client(&server).await, "default");
    machines.create(&PostParams::default(), &machine("m1")).await.unwrap();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = watcher(machines.clone(), config).boxed();
        let mut names = Vec::new();
        loop {
            match timeout(PATIENCE, events.try_next())
                .await
                .expect("an event comes")
                .unwrap()
                .unwrap()
            {
                watcher::Event::Init => {}
                watcher::Event::InitApply(machine) => names.push(machine.name_any()),
                watcher::Event::InitDone => break,
                other => panic!("{other:?} before the list was done"),
            }
        }
        assert_eq!(names, ["m1"]);
        machines.create(&PostParams::default(), &machine("m2")).await.unwrap();
        let next = timeout(PATIENCE, events.try_next())
            .await
            .expect("an event comes")
            .unwrap();
        assert!(
            matches!(&next, Some(watcher::Event::Apply(machine)) if machine.name_any() == "m2"),
            "{next:?}"
        );
        machines.delete("m2", &DeleteParams::default()).await.unwrap();
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_from_before_the_compaction_is_told_so_and_ends() {
    let server = server().await;
    let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
    let first = maps
        .create(&PostParams::default(), &map(json!({ "metadata": { "name": "a" } })))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &map(json!({ "metadata": { "name": "b" } })))
        .await
        .unwrap();
    server.with(|api| api.compact(api.version()));
    let mut seen = maps
        .watch(&WatchParams::default(), &first.resource_version().unwrap())
        .await
        .unwrap()
        .boxed();
    let event = timeout(PATIENCE, seen.try_next())
        .await
        .expect("an answer comes")
        .unwrap();
    assert!(
        matches!(&event, Some(WatchEvent::Error(status)) if status.code == 410),
        "{event:?}"
    );
    assert!(
        timeout(PATIENCE, seen.try_next())
            .await
            .expect("the stream ends")
            .unwrap()
            .is_none()
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_is_told_how_far_it_has_come_and_ends_on_time() {
    let server = Server::start(Options {
        bookmarks: Duration::from_millis(300),
        ..options()
    })
    .await
    .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
    let params = WatchParams::default().timeout(1);
    let seen = maps.watch(&params, "0").await.unwrap().map_ok(|event| match event {
        WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
        other => panic!("{other:?}"),
    });
    let versions: Vec<String> = timeout(PATIENCE, seen.try_collect())
        .await
        .expect("a second is over")
        .unwrap();
    let now = server.with(|api| api.version()).to_string();
    assert!(
        versions.len() >= 3 && versions.iter().all(|version| *version == now),
        "{versions:?} at {now}"
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn dependents_follow_their_owner_without_being_asked() {
    let server = server().await;
    let client = client(&server).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let owner = maps
        .create(&PostParams::default(), &map(json!({ "metadata": { "name": "owner" } })))
        .await
        .unwrap();
    let reference = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid() }]);
    let child = map(json!({ "metadata": { "name": "child", "ownerReferences": reference } }));
    maps.create(&PostParams::default(), &child).await.unwrap();
    let background = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    maps.delete("owner", &background).await.unwrap();
    gone(&maps, "child").await;

    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "brief" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let inner: Api<ConfigMap> = Api::namespaced(client, "brief");
    inner
        .create(&PostParams::default(), &map(json!({ "metadata": { "name": "a" } })))
        .await
        .unwrap();
    namespaces.delete("brief", &DeleteParams::default()).await.unwrap();
    gone(&namespaces, "brief").await;
    server.stop().await.unwrap();
}

async fn gone<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let wait = async {
        while api.get_opt(name).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{name} is still there"));
}

/// Sends a request as it stands and gives the whole answer.
async fn raw(addr: SocketAddr, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let host = if head.contains("\r\nHost: ") { "" } else { "\r\nHost: a" };
    let head = format!(
        "{head}{host}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Who sends too much may find the door shut before he is done.
    stream.write_all(body).await.ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn who_shows_no_known_token_learns_health_and_version_only() {
    let server = server().await;
    let addr = server.addr();
    for head in [
        "GET /api/v1/nodes HTTP/1.1",
        "GET /nothing HTTP/1.1",
        "GET /api/v1/nodes HTTP/1.1\r\nAuthorization: Bearer wrong",
        "GET /healthz HTTP/1.1\r\nAuthorization: Bearer wrong",
    ] {
        let answer = raw(addr, head, b"").await;
        assert!(answer.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{head}: {answer}");
        // What a kube-apiserver 1.36.3 answers, in another order of fields.
        let body = r#"{"apiVersion":"v1","kind":"Status","code":401,"message":"Unauthorized","metadata":{},"reason":"Unauthorized","status":"Failure"}"#;
        assert!(answer.ends_with(&format!("{body}\n")), "{head}: {answer}");
    }
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
        let answer = raw(addr, &format!("GET {path} HTTP/1.1"), b"").await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"),
            "{path}: {answer}"
        );
    }
    assert!(
        raw(addr, "GET /version HTTP/1.1", b"")
            .await
            .contains("\"minor\":\"36\"")
    );
    let client = client(&server).await;
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn one_without_a_token_is_let_in_only_where_that_was_asked_for_and_no_page_in_a_browser_is() {
    let mut options = options();
    options.users = options.users.with_unnamed("admin");
    let server = Server::start(options).await.unwrap();
    let addr = server.addr();
    let ask = async |head: &str| raw(addr, &format!("GET /api/v1/nodes HTTP/1.1\r\n{head}"), b"").await;
    assert!(ask("Host: localhost:1").await.starts_with("HTTP/1.1 200 "));
    for head in [
        "Host: localhost\r\nAuthorization: Bearer wrong",
        "Host: localhost\r\nOrigin: http://example.org",
        "Host: example.org",
    ] {
        assert!(ask(head).await.starts_with("HTTP/1.1 401 "), "{head}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_as_by_the_server() {
    let server = server().await;
    let head = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json"
    );
    let answer = raw(server.addr(), &head, &vec![b' '; 3 * 1024 * 1024 + 1]).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(
        answer.contains("\"message\":\"Request entity too large: limit is 3145728\""),
        "{answer}"
    );
    assert!(answer.contains("\"reason\":\"RequestEntityTooLarge\""), "{answer}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_ends_watches_and_the_port() {
    let server = server().await;
    let addr = server.addr();
    let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
    let seen = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    server.stop().await.unwrap();
    let rest: Vec<_> = timeout(PATIENCE, seen.collect()).await.expect("the stream has ended");
    assert!(rest.iter().all(Result::is_ok), "{rest:?}");
    TcpStream::connect(addr).await.unwrap_err();
}

#[tokio::test]
async fn only_loopback_is_served() {
    let mut options = options();
    options.addr = "0.0.0.0:0".parse().unwrap();
    let refused = Server::start(options).await.err().expect("no port for others");
    assert!(matches!(refused, ServeError::NotLoopback(_)), "{refused}");
}

/// One who may list machines in one namespace, and nothing else.
async fn limited() -> Running {
    let mut options = options();
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": { "name": "reader", "namespace": "default" },
        "rules": [{ "apiGroups": ["machine.sapcloud.io"], "resources": ["machines"], "verbs": ["list"] }],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": { "name": "reader", "namespace": "default" },
        "roleRef": { "apiGroup": group, "kind": "Role", "name": "reader" },
        "subjects": [{ "kind": "ServiceAccount", "name": "bot", "namespace": "default" }],
    });
    for object in [role, binding] {
        options.api.install(&object, &System.moment()).unwrap();
    }
    options.users = options.users.with_user(User::service_account("default", "bot"), "b0t");
    Server::start(options).await.unwrap()
}

async fn get(server: &Running, token: &str, path: &str, more: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}{more}");
    raw(server.addr(), &head, b"").await
}

#[tokio::test]
async fn a_token_may_do_what_its_roles_say_and_nothing_else() {
    let server = limited().await;
    let machines = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines";
    let allowed = get(&server, "b0t", machines, "").await;
    assert!(allowed.starts_with("HTTP/1.1 200"), "{allowed}");
    let refused = get(&server, "b0t", "/api/v1/namespaces/default/secrets", "").await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let why = r#"User \"system:serviceaccount:default:bot\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\""#;
    assert!(refused.contains(why), "{refused}");
    let discovery = get(&server, "b0t", "/apis", "").await;
    assert!(discovery.starts_with("HTTP/1.1 200"), "{discovery}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn only_who_may_speaks_as_another() {
    let server = limited().await;
    let as_bot = "\r\nImpersonate-User: system:serviceaccount:default:bot";
    let secrets = "/api/v1/namespaces/default/secrets";
    let as_itself = get(&server, TOKEN, secrets, "").await;
    assert!(as_itself.starts_with("HTTP/1.1 200"), "{as_itself}");
    let in_disguise = get(&server, TOKEN, secrets, as_bot).await;
    assert!(in_disguise.starts_with("HTTP/1.1 403"), "{in_disguise}");
    let as_admin = get(
        &server,
        "b0t",
        secrets,
        "\r\nImpersonate-User: admin\r\nImpersonate-Group: system:masters",
    )
    .await;
    assert!(as_admin.starts_with("HTTP/1.1 403"), "{as_admin}");
    assert!(
        as_admin.contains("cannot impersonate-on:user-info:list resource"),
        "{as_admin}"
    );
    server.stop().await.unwrap();
}
