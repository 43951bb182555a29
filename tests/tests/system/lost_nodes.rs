//! Many nodes are lost at once, or nobody can see them: the cause is not theirs, and nothing healthy is replaced for it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use millwright_tests::apiserver;
use millwright_tests::laws;
use millwright_tests::sampling;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
/// For how long a node may be unhealthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// What the node lifecycle controller writes of nodes that it does not hear of any more, and the kubelets when they are back.
async fn nodes_say(scene: &Scene, ready: &str) {
    let nodes: Api<Node> = Api::all(scene.client.clone());
    for machine in scene.list(Kind::Machine).await.unwrap() {
        let name = machine["metadata"]["labels"]["node"].as_str().unwrap();
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({"type": "Ready", "status": ready, "reason": "Test", "message": "", "lastTransitionTime": now,
            "lastHeartbeatTime": now});
        let body = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        nodes.patch_status(name, &PatchParams::default(), &body).await.unwrap();
    }
}

/// Machines, with their phases.
async fn phases(scene: &Scene) -> BTreeSet<(String, String)> {
    let machines = scene.list(Kind::Machine).await.unwrap();
    let told = machines
        .iter()
        .map(|machine| (laws::name(machine).to_owned(), laws::phase(machine).to_owned()));
    told.collect()
}

fn names(of: &BTreeSet<(String, String)>) -> BTreeSet<&String> {
    of.iter().map(|(name, _)| name).collect()
}

/// Rows: pains 35, 36, 37, 41.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_machines_that_lose_their_nodes_at_once_none_is_replaced_and_all_serve_again_when_the_nodes_return() {
    let what = "ten lost nodes";
    let Some(plane) = shared_plane(what).await else { return };
    let timeout = format!("{}s", HEALTH_TIMEOUT.as_secs());
    let script = Script::new("lost-nodes").manager("--machine-health-timeout", timeout);
    let mut scene = script.begin(&plane).await;
    scene.deploy(10).await;
    scene.settled_at(10, LIMIT).await;
    let before = phases(&scene).await;

    nodes_say(&scene, "Unknown").await;
    scene
        .until(
            "the deployment says why nothing is replaced",
            LIMIT,
            async |scene: &Scene| {
                let deployments = scene.list(Kind::Deployment).await?;
                let told = deployments[0]["status"]["conditions"].to_string();
                match told.contains("10 of its owner's 10 machines are unhealthy") {
                    true => Ok(()),
                    false => Err(told),
                }
            },
        )
        .await;
    // Long after the health timeout of each.
    tokio::time::sleep(HEALTH_TIMEOUT * 4).await;
    let lost = phases(&scene).await;
    assert_eq!(names(&lost), names(&before));
    assert!(lost.iter().all(|(_, phase)| phase == "Unknown"), "{lost:?}");

    nodes_say(&scene, "True").await;
    scene.settled_at(10, LIMIT).await;
    assert_eq!(phases(&scene).await, before);
    assert_eq!(laws::vms_made(&scene.journal().await.unwrap()), 10);
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
}

/// For ten minutes in the long suite.
///
/// Rows: pains 40.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_was_away_makes_no_machine_failed_although_a_node_was_ill_before_it() {
    let what = "an API server that is away";
    let Some(plane) = apiserver::start_with_crds(what).await else {
        return;
    };
    let plane = Arc::new(plane);
    let timeout = Duration::from_secs(20);
    let script = Script::new("api-away").manager("--machine-health-timeout", format!("{}s", timeout.as_secs()));
    let mut scene = script.begin(&plane).await;
    scene.deploy(5).await;
    scene.settled_at(5, LIMIT).await;
    let before = phases(&scene).await;
    nodes_say(&scene, "Unknown").await;
    scene
        .until("the machines are Unknown", LIMIT, async |scene: &Scene| {
            let told = phases(scene).await;
            match told.iter().all(|(_, phase)| phase == "Unknown") {
                true => Ok(()),
                false => Err(format!("{told:?}")),
            }
        })
        .await;

    let away = if sampling::is_long() {
        Duration::from_secs(600)
    } else {
        timeout * 2
    };
    signal(&plane.apiserver_pid().to_string(), "STOP").await;
    tokio::time::sleep(away).await;
    signal(&plane.apiserver_pid().to_string(), "CONT").await;
    // The kubelets are heard of again before their time is over, which did not run while nobody could see them.
    tokio::time::sleep(Duration::from_secs(5)).await;
    nodes_say(&scene, "True").await;
    scene.settled_at(5, LIMIT).await;
    assert_eq!(phases(&scene).await, before, "none was replaced");
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
}

async fn signal(pid: &str, signal: &str) {
    let sent = tokio::process::Command::new("kill")
        .args([&format!("-{signal}"), pid])
        .status()
        .await;
    assert!(sent.unwrap().success());
}
