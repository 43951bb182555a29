//! In the place of machine-controller-manager, with that one's command line.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(30);

/// The scene's deployment as Gardener writes it: the original stores these seconds and does not look at them.
pub(crate) async fn deploy(scene: &Scene) {
    let mut body = manifests::deployment(&scene.namespace, 3);
    body["spec"]["minReadySeconds"] = json!(500);
    scene.create(Kind::Deployment, &body).await;
}

fn count(deployment: &Value, name: &str) -> i64 {
    deployment["status"][name].as_i64().unwrap_or(0)
}

/// Waits until three Machines of the present template, and no others, are so.
pub(crate) async fn three(scene: &mut Scene, what: &str) {
    scene
        .until(&format!("three are {what}"), LIMIT, async |scene: &Scene| {
            let name = scene.namespace.clone();
            let deployment = scene.get(Kind::Deployment, &name).await;
            let is_seen = deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"];
            let counts = ["replicas", "updatedReplicas", what].map(|name| count(&deployment, name));
            match is_seen && counts == [3, 3, 3] {
                true => Ok(()),
                false => Err(format!("{counts:?}")),
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_command_line_of_the_original_a_roll_waits_for_no_min_ready_seconds_and_lines_are_klogs() {
    let Some(plane) = shared_plane("the original's command line").await else {
        return;
    };
    let mut scene = Script::new("compat")
        .manager("--machine-safety-overshooting-period", "1m")
        .manager("--machine-safety-apiserver-statuscheck-timeout", "30s")
        .manager("--machine-safety-apiserver-statuscheck-period", "1m")
        .manager("--safety-up", "2")
        .manager("--safety-down", "1")
        .manager("--v", "2")
        .begin(&plane)
        .await;
    deploy(&scene).await;
    three(&mut scene, "availableReplicas").await;
    let name = scene.namespace.clone();
    let template = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
    scene.patch(Kind::Deployment, &name, template).await;
    three(&mut scene, "availableReplicas").await;
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;

    let log = scene.manager.service.log();
    assert!(log.contains("--safety-up is machine-controller-manager's"), "{log}");
    assert!(log.contains("--compatibility original is implied"), "{log}");
    for line in log.lines() {
        let (header, _) = line.split_once("] ").unwrap_or_else(|| panic!("no header: {line}"));
        let is_klogs = header.starts_with(['I', 'W', 'E']) && header.split_whitespace().count() == 4;
        assert!(is_klogs, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_our_own_command_line_min_ready_seconds_are_waited_for() {
    let Some(plane) = shared_plane("minReadySeconds").await else {
        return;
    };
    let mut scene = Script::new("minready").begin(&plane).await;
    deploy(&scene).await;
    three(&mut scene, "readyReplicas").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let name = scene.namespace.clone();
    let deployment = scene.get(Kind::Deployment, &name).await;
    assert_eq!(count(&deployment, "availableReplicas"), 0, "{deployment:#}");
}
