//! A manager among servers that are away, wrong or not what they should be, one test each: it says what, where and what
//! to do, keeps trying where waiting can heal, and serves everybody else.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use millwright_dev::apiserver::ControlPlane;
use millwright_tests::fleet::VirtualProvider;
use millwright_tests::programs::programs;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use millwright_tests::service::{Recipe, Service};
use millwright_tests::{apiserver, laws, manifests};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const LIMIT: Duration = Duration::from_secs(60);

/// A manager with a kubeconfig of the test's own, its files in `dir`.
async fn manager_with(dir: &Path, kubeconfig: &Path) -> Service {
    let path = kubeconfig.display().to_string();
    let flags = [
        "manager",
        "--kubeconfig",
        &path,
        "--cluster-id",
        "local",
        "--metrics-addr",
        "127.0.0.1:0",
    ];
    let driver = ["--driver", "unix:///nonexistent/driver.sock"];
    Service::start(Recipe {
        name: "manager".to_owned(),
        program: programs().await.manager.clone(),
        args: flags.iter().chain(&driver).map(|flag| (*flag).to_owned()).collect(),
        env: vec![("MILLWRIGHT_LEADER_ELECT".to_owned(), "false".to_owned())],
        log: dir.join("manager.log"),
    })
}

fn write(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    path
}

fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: \"{server}\", insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{token: wrong-token}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_that_is_missing_ends_the_start_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let mut manager = manager_with(dir.path(), &dir.path().join("not-there")).await;
    let status = manager.wait_for_exit(LIMIT).await;
    assert!(!status.success());
    assert!(manager.log().contains("not-there"), "{}", manager.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_that_is_no_yaml_ends_the_start_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "clusters: [\n  {{{ no yaml");
    let mut manager = manager_with(dir.path(), &path).await;
    assert!(!manager.wait_for_exit(LIMIT).await.success());
    let log = manager.log();
    assert!(log.contains(&path.display().to_string()), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_without_a_context_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "apiVersion: v1\nkind: Config\n");
    let mut manager = manager_with(dir.path(), &path).await;
    assert!(!manager.wait_for_exit(LIMIT).await.success());
    let log = manager.log();
    assert!(log.contains("context") && log.contains("kubeconfig"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_the_api_server_does_not_take_is_told_and_shown_in_readiness() {
    let Some(plane) = shared_plane("a wrong token").await else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &kubeconfig(&plane.url()));
    let mut manager = manager_with(dir.path(), &path).await;
    manager.wait_for_log("watch failed, trying again", LIMIT).await;
    let log = manager.log();
    assert!(log.contains("401") || log.contains("Unauthorized"), "{log}");
    assert!(log.contains("credentials"), "what to do is said: {log}");
    assert!(!log.contains("wrong-token"), "the token itself is never printed");
    assert!(manager.is_running());
    // Said once for each resource, not at every try.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let lines = manager.log().matches("watch failed").count();
    assert!(lines <= 12, "{lines} complaints in a few seconds\n{}", manager.log());
}

/// Needs a control plane of its own, because it is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_is_there_before_its_api_server_says_so_and_works_when_it_comes() {
    let Some(plane) = apiserver::start_with_crds("an API server that comes later").await else {
        return;
    };
    let mut plane: ControlPlane = plane;
    plane.stop_apiserver();
    let dir = tempfile::tempdir().unwrap();
    let mut manager = manager_with(dir.path(), &plane.kubeconfig()).await;
    manager.wait_for_log("watch failed, trying again", LIMIT).await;
    let log = manager.log();
    assert!(log.contains("refused") || log.contains("onnect"), "{log}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(manager.is_running(), "{}", manager.log());
    assert!(!manager.log().contains("this process leads"));
    plane.restart_apiserver().await.unwrap();
    manager.wait_for_log("every watch has its first list", LIMIT).await;
    manager.wait_for_log("this process leads", LIMIT).await;
    assert!(
        manager.stop(Duration::from_secs(15)).await.success(),
        "{}",
        manager.log()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_is_away_at_the_start_keeps_machines_waiting_until_it_comes() {
    let Some(plane) = shared_plane("a driver that comes later").await else {
        return;
    };
    let mut scene = Script::new("in-late").begin(&plane).await;
    scene.manager.service.kill();
    scene.provider.service.kill();
    scene.manager.service.restart();
    scene.manager.service.wait_for_log("driver is away", LIMIT).await;
    scene.deploy(1).await;
    scene
        .until(
            "the machine says that its driver is away",
            LIMIT,
            async |scene: &Scene| {
                let machines = scene.list(Kind::Machine).await?;
                let machine = machines.first().ok_or("no machine")?;
                let said = machine["status"]["lastOperation"]["description"]
                    .as_str()
                    .unwrap_or_default();
                let found = said.contains("virtual") && said.contains("driver");
                if found {
                    Ok(())
                } else {
                    Err(format!("it says {said:?}"))
                }
            },
        )
        .await;
    scene.provider.service.restart();
    scene.settled_at(1, LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_drivers_of_one_name_neither_is_used_until_one_ends() {
    let Some(plane) = shared_plane("two drivers of one name").await else {
        return;
    };
    let second = VirtualProvider::alone(plane.dir(), "second").await.start();
    let mut scene = Script::new("in-two")
        .manager("--driver", second.endpoint.clone())
        .begin(&plane)
        .await;
    scene
        .manager
        .service
        .wait_for_log("two drivers have one name", LIMIT)
        .await;
    let log = scene.manager.service.log();
    let line = log
        .lines()
        .find(|line| line.contains("two drivers have one name"))
        .unwrap_or_default();
    assert!(line.contains("virtual") && line.matches(".sock").count() == 2, "{line}");
    scene.deploy(1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let machines = scene.list(Kind::Machine).await.expect("the machines");
    assert!(
        machines.iter().all(|machine| laws::phase(machine) != "Running"),
        "{machines:?}"
    );
    drop(second);
    scene.settled_at(1, LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_speaks_http_1_is_named_and_costs_only_its_own_machines() {
    let Some(plane) = shared_plane("a driver of another protocol").await else {
        return;
    };
    let path = plane.dir().join("http1.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked).await;
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    });
    let endpoint = format!("unix://{}", path.display());
    let mut scene = Script::new("in-http").manager("--driver", endpoint).begin(&plane).await;
    scene.manager.service.wait_for_log("http1.sock", LIMIT).await;
    let log = scene.manager.service.log();
    let line = log
        .lines()
        .find(|line| line.contains("http1.sock"))
        .unwrap_or_default()
        .to_owned();
    assert!(line.contains("gRPC") || line.contains("no driver"), "{line}");
    scene.deploy(1).await;
    scene.settled_at(1, LIMIT).await;
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_ends_and_comes_back_is_used_again() {
    let Some(plane) = shared_plane("a driver that comes back").await else {
        return;
    };
    let mut scene = Script::new("in-back").begin(&plane).await;
    scene.deploy(1).await;
    scene.settled_at(1, LIMIT).await;
    scene.provider.service.kill();
    scene.scale(2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.provider.service.restart();
    scene.settled_at(2, LIMIT).await;
    let class = scene.get(Kind::Class, manifests::CLASS).await;
    assert_eq!(class["provider"], json!("virtual"));
}
