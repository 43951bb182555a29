//! Machines are updated in place, on a real API server, with a pod that a budget would hold and an agent that the test plays.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use millwright_core::api::keys;
use millwright_tests::laws;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

use crate::rollout_commands::millwright;

const LIMIT: Duration = Duration::from_secs(60);

/// The strategy, by which one of the machines may be missing.
fn in_place() -> Value {
    let bounds = json!({ "maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Auto" });
    json!({ "type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": bounds })
}

async fn nodes(scene: &Scene) -> Result<Vec<Value>, String> {
    let nodes = Api::<Node>::all(scene.client.clone());
    let all = nodes
        .list(&Default::default())
        .await
        .map_err(|error| error.to_string())?;
    Ok(all.items.iter().map(|node| json!(node)).collect())
}

/// Nodes whose agents may begin and have not said anything yet. Never more than one: the others serve.
async fn ready_for_update(scene: &Scene) -> Result<String, String> {
    let nodes = nodes(scene).await?;
    let selected = nodes
        .iter()
        .filter(|node| !node["metadata"]["labels"][keys::SELECTED_FOR_UPDATE].is_null());
    assert!(selected.count() <= 1, "one may be missing, and more are selected");
    let ready = nodes.iter().find(|node| {
        let told = laws::condition(&node["status"]["conditions"], keys::NODE_IN_PLACE_UPDATE);
        let is_ready = told.is_some_and(|told| told["reason"] == keys::REASON_READY_FOR_UPDATE);
        is_ready && node["metadata"]["labels"][keys::UPDATE_RESULT].is_null()
    });
    let ready = ready.ok_or("no agent may begin")?;
    assert_eq!(ready["spec"]["unschedulable"], true, "its pods would come back");
    Ok(laws::name(ready).to_owned())
}

/// The agent of a node has done its work.
async fn updated(scene: &Scene, node: &str) {
    let nodes = Api::<Node>::all(scene.client.clone());
    let said = json!({ "metadata": { "labels": { keys::UPDATE_RESULT: keys::UPDATE_SUCCESSFUL } } });
    nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(said))
        .await
        .unwrap();
}

async fn vms(scene: &Scene) -> BTreeSet<String> {
    scene
        .vms()
        .await
        .unwrap()
        .into_iter()
        .map(|vm| vm.provider_id)
        .collect()
}

/// Rows: W9, W32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_keep_their_vms_when_their_template_changes_and_a_killed_manager_goes_on() {
    let Some(plane) = shared_plane("updates in place").await else {
        return;
    };
    let mut scene = Script::new("in-place").begin(&plane).await;
    scene.deploy(3).await;
    let name = scene.namespace.clone();
    scene
        .patch(Kind::Deployment, &name, json!({ "spec": { "strategy": in_place() } }))
        .await;
    scene.settled_at(3, LIMIT).await;
    let before = vms(&scene).await;

    let changed = json!({ "spec": { "template": { "metadata": { "annotations": { "version": "2" } } } } });
    scene.patch(Kind::Deployment, &name, changed).await;
    for round in 0..3 {
        let node = scene.until("an agent may begin", LIMIT, ready_for_update).await;
        if round == 0 {
            let why = millwright(&scene, &["why", &format!("machinedeployment/{name}")]).await;
            assert!(why.out.contains("updated in place"), "{}{}", why.out, why.err);
        }
        if round == 1 {
            scene.manager.service.kill();
            scene.manager.service.restart();
            scene.manager.wait_until_ready().await;
        }
        updated(&scene, &node).await;
    }
    scene
        .until("all machines are of the new set", LIMIT, async |scene: &Scene| {
            let told = scene.get(Kind::Deployment, &name).await["status"].clone();
            let is_done = told["updatedReplicas"] == 3 && told["availableReplicas"] == 3 && told["replicas"] == 3;
            let left = nodes(scene).await?;
            let left = left.iter().find(|node| {
                let labels = &node["metadata"]["labels"];
                let marks = [
                    keys::CANDIDATE_FOR_UPDATE,
                    keys::SELECTED_FOR_UPDATE,
                    keys::UPDATE_RESULT,
                ];
                marks.iter().any(|mark| !labels[*mark].is_null()) || node["spec"]["unschedulable"] == true
            });
            match (is_done, left) {
                (true, None) => Ok(()),
                (_, left) => Err(format!("{told} {left:?}")),
            }
        })
        .await;
    assert_eq!(vms(&scene).await, before, "the VMs are the same");
    let sets = scene.list(Kind::Set).await.unwrap();
    let sizes: Vec<i64> = sets.iter().filter_map(|set| set["spec"]["replicas"].as_i64()).collect();
    assert!(sizes.contains(&0) && sizes.contains(&3), "{sizes:?}");
    let status = millwright(&scene, &["rollout", "status", &name]).await;
    assert!(status.out.contains("successfully rolled out"), "{}", status.out);
}
