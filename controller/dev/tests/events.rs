//! What kubectl shows of an event that is said again: under the manager's role on the quick start's API, and on a real server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, as it should; what is run by hand here waits by the clock"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use millwright::env::Env;
use millwright::kube::client::Load;
use millwright::kube::events::{Severity, channel};
use millwright::telemetry::Metrics;
use millwright_dev::apiserver::{ControlPlane, StartError};
use millwright_dev::process::Process;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

fn kubectl(kubeconfig: &Path, args: &[&str]) -> String {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).args(args);
    let answer = command.output().unwrap();
    let error = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "kubectl {args:?}: {error}");
    String::from_utf8(answer.stdout).unwrap()
}

/// Waits until the metrics say so.
async fn told(metrics: &Metrics, line: &str) {
    let until = Instant::now() + PATIENCE;
    while !metrics.render().unwrap().contains(line) {
        assert!(Instant::now() < until, "{line}\n{}", metrics.render().unwrap());
        tokio::time::sleep(LOOK).await;
    }
}

/// Says one thing three times, once before and twice after the event is written, and two things at once as one event.
async fn counts_are_shown(admin: &Path, manager: &Path) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client(admin).await);
    let map = serde_json::from_value(serde_json::json!({ "metadata": { "name": "talker" } })).unwrap();
    let map = maps.create(&PostParams::default(), &map).await.unwrap();
    let metrics = Metrics::default();
    let (publisher, writer) = channel(
        client(manager).await,
        Load::default(),
        metrics.clone(),
        "test",
        Env::begin(),
    );
    // Said before anybody writes: it is created with its count.
    for _ in 0..2 {
        publisher.publish(&map, Severity::Warning, "Early", "said twice at once");
    }
    let stop = CancellationToken::new();
    let writer = tokio::spawn(writer.run(stop.clone()));
    publisher.publish(&map, Severity::Normal, "Repeated", "no capacity");
    told(&metrics, r#"{lane="prompt",result="written"} 2"#).await;
    for _ in 0..2 {
        publisher.publish(&map, Severity::Normal, "Repeated", "no capacity");
    }
    // The end does not wait for the ten seconds between two counts.
    stop.cancel();
    writer.await.unwrap();
    told(&metrics, r#"{lane="prompt",result="counted"} 1"#).await;

    let columns = "custom-columns=R:.reason,C:.series.count,N:.message";
    let listed = kubectl(admin, &["get", "events", "--no-headers", "-o", columns]);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let count = |reason: &str| {
        rows.iter()
            .find(|row| row.contains(&reason))
            .and_then(|row| row.get(1).copied())
    };
    assert_eq!((count("Early"), count("Repeated")), (Some("2"), Some("3")), "{listed}");
    let wide = kubectl(admin, &["get", "events", "-o", "wide"]);
    let row = wide.lines().find(|line| line.contains("Repeated")).unwrap();
    assert!(row.split_whitespace().any(|word| word == "3"), "{wide}");
    let described = kubectl(admin, &["describe", "configmap", "talker"]);
    assert!(described.contains("(x3 over "), "{described}");
}

#[tokio::test]
async fn kubectl_shows_the_count_of_a_repeated_event_that_the_managers_role_may_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_millwright-dev"));
    command.env("CARGO_TARGET_DIR", dir.path());
    let log = dir.path().join("output");
    let _run = Process::start("quick start", command, &log).unwrap();
    let until = Instant::now() + PATIENCE;
    let admin = loop {
        let output = std::fs::read_to_string(&log).unwrap_or_default();
        let path = output.lines().find_map(|line| line.split_once("kubeconfig  "));
        if let Some((_, path)) = path.filter(|_| output.contains("are ready")) {
            break PathBuf::from(path.trim());
        }
        assert!(Instant::now() < until, "{output}");
        tokio::time::sleep(LOOK).await;
    };
    let manager = admin.with_file_name("manager.kubeconfig");
    counts_are_shown(&admin, &manager).await;
}

#[tokio::test]
async fn kubectl_shows_the_count_of_a_repeated_event_on_a_real_api_server() {
    let plane = match ControlPlane::start().await {
        Ok(plane) => plane,
        Err(StartError::Find(error)) if error.is_absence() => {
            let demanded = std::env::var_os("MILLWRIGHT_REQUIRE_APISERVER").is_some_and(|value| value == "1");
            assert!(!demanded, "{error}");
            eprintln!("*** SKIPPED: counts of events on a real API server: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let admin = plane.kubeconfig();
    counts_are_shown(&admin, &admin).await;
}
