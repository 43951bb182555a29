//! Machines that failed are kept for somebody to look at: on a real API server, with a VM that is switched off.
//!
//! No kubelet and no scheduler run here: pods are bound by the test, and go when they are deleted without grace.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use millwright_core::api::keys;
use millwright_tests::laws;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

use crate::rollout_commands::millwright;

const LIMIT: Duration = Duration::from_secs(60);

/// A machine of the scene, by its place.
struct Chosen {
    name: String,
    node: String,
    uid: String,
}

async fn chosen(scene: &Scene, place: usize) -> Chosen {
    let machines = scene.list(Kind::Machine).await.unwrap();
    let found = &machines[place];
    Chosen {
        name: laws::name(found).to_owned(),
        node: found["metadata"]["labels"]["node"].as_str().unwrap().to_owned(),
        uid: laws::uid(found).to_owned(),
    }
}

fn annotated(value: &Value) -> Value {
    json!({ "metadata": { "annotations": { keys::PRESERVE: value } } })
}

async fn switch_off(scene: &Scene, machine: &Chosen) {
    let vms = scene.vms().await.unwrap();
    let vm = vms.iter().find(|vm| vm.uid == machine.uid).unwrap();
    scene.at_the_console("stop", &vm.name).await.unwrap();
}

/// The machine, once it is Failed, preserved, and its node is drained and says so.
async fn kept(scene: &mut Scene, machine: &str, node: &str, reason: &str) -> Value {
    let what = format!("machine {machine} is kept and its node {node} drained");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let found = scene.get(Kind::Machine, machine).await;
            let current = &found["status"]["currentStatus"];
            let nodes = Api::<Node>::all(scene.client.clone());
            let node = json!(nodes.get(node).await.map_err(|error| error.to_string())?);
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            let is_tainted = taints.into_iter().any(|taint| taint["key"] == keys::TAINT_PRESERVED);
            let told = laws::condition(&node["status"]["conditions"], keys::NODE_PRESERVED);
            let is_told = told.is_some_and(|told| {
                let message = told["message"].as_str().unwrap_or_default();
                told["status"] == "True" && told["reason"] == reason && message.starts_with(keys::PRESERVED_DRAINED)
            });
            let is_spared = node["metadata"]["annotations"][keys::SCALE_DOWN_DISABLED] == "true";
            let is_kept = current["phase"] == "Failed" && current["preserveExpiryTime"].is_string();
            match is_kept && is_tainted && is_told && is_spared {
                true => Ok(found),
                false => Err(format!("{current} {}", node["status"]["conditions"])),
            }
        })
        .await
}

/// A pod that runs on a node. The API server puts no pod on a node that is tainted; whoever binds it by hand may.
async fn runs(scene: &Scene, name: &str, node: &str) {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let body = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none"}]},
    });
    let pod: Pod = serde_json::from_value(body).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let status = json!({"status": {"phase": "Running"}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

async fn count(scene: &Scene, field: &str) -> i64 {
    let deployment = scene.get(Kind::Deployment, &scene.namespace).await;
    deployment["status"][field].as_i64().unwrap_or(0)
}

async fn until_gone(scene: &mut Scene, machine: &Chosen) {
    let what = format!("machine {} goes", machine.name);
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let machines = scene.list(Kind::Machine).await?;
            match machines.iter().any(|found| laws::uid(found) == machine.uid) {
                true => Err("it is there".to_owned()),
                false => Ok(()),
            }
        })
        .await;
}

/// Rows: W23, W24, pains 41.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_fails_is_kept_drained_and_tainted_until_its_time_is_over_and_then_replaced() {
    let Some(plane) = shared_plane("a preservation").await else {
        return;
    };
    let script = Script::new("preserve")
        .manager("--machine-health-timeout", "1s")
        .manager("--machine-preserve-timeout", "20s");
    let mut scene = script.begin(&plane).await;
    scene.deploy(2).await;
    scene.settled_at(2, LIMIT).await;
    let machine = chosen(&scene, 0).await;
    runs(&scene, "web", &machine.node).await;
    scene
        .patch(Kind::Machine, &machine.name, annotated(&json!("when-failed")))
        .await;

    switch_off(&scene, &machine).await;
    let found = kept(&mut scene, &machine.name, &machine.node, keys::REASON_PRESERVED_BY_USER).await;
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    assert!(pods.get_opt("web").await.unwrap().is_none(), "its pods went elsewhere");
    let until = found["status"]["currentStatus"]["preserveExpiryTime"]
        .as_str()
        .unwrap()
        .to_owned();
    let why = millwright(&scene, &["why", &format!("machine/{}", machine.name)]).await;
    assert!(
        why.out.contains("preserved until") && why.out.contains("when-failed"),
        "{}",
        why.out
    );

    // It counts as one of two, and nobody is made in its place; a manager that starts anew changes neither that nor the time.
    scene.manager.service.kill();
    scene.manager.service.restart();
    scene.manager.wait_until_ready().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let machines = scene.list(Kind::Machine).await.unwrap();
    assert_eq!(machines.len(), 2, "{machines:#?}");
    let again = scene.get(Kind::Machine, &machine.name).await;
    assert_eq!(again["status"]["currentStatus"]["preserveExpiryTime"], until.as_str());
    assert_eq!(count(&scene, "preservedFailedReplicas").await, 1);
    assert_eq!(scene.vms().await.unwrap().len(), 2, "its VM stays");

    until_gone(&mut scene, &machine).await;
    let over: Timestamp = until.parse().unwrap();
    assert!(Timestamp::now() >= over, "it went before {until}");
    scene.settled_at(2, LIMIT).await;
    assert_eq!(count(&scene, "preservedFailedReplicas").await, 0);
    let told = scene.events_about(&machine.name).await.unwrap();
    assert!(told.iter().any(|(reason, _)| reason == "MachinePreserved"), "{told:?}");
}

/// Rows: W25.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failed_machine_is_kept_unasked_where_one_may_be_and_let_go_when_none_may_be() {
    let Some(plane) = shared_plane("a preservation unasked").await else {
        return;
    };
    let script = Script::new("preserve-auto").manager("--machine-health-timeout", "1s");
    let mut scene = script.begin(&plane).await;
    scene.deploy(2).await;
    scene.settled_at(2, LIMIT).await;
    let deployment = scene.namespace.clone();
    let most = |most: i32| json!({ "spec": { "autoPreserveFailedMachineMax": most } });
    scene.patch(Kind::Deployment, &deployment, most(1)).await;
    let (first, second) = (chosen(&scene, 0).await, chosen(&scene, 1).await);

    switch_off(&scene, &first).await;
    let found = kept(&mut scene, &first.name, &first.node, keys::REASON_PRESERVED_BY_US).await;
    assert_eq!(found["metadata"]["annotations"][keys::PRESERVE], keys::PRESERVE_AUTO);
    switch_off(&scene, &second).await;
    until_gone(&mut scene, &second).await;
    let sets = scene.list(Kind::Set).await.unwrap();
    assert_eq!(sets[0]["status"]["autoPreserveFailedMachineCount"], 1);
    assert_eq!(
        scene.get(Kind::Machine, &first.name).await["status"]["currentStatus"]["phase"],
        "Failed"
    );

    scene.patch(Kind::Deployment, &deployment, most(0)).await;
    until_gone(&mut scene, &first).await;
    scene.settled_at(2, LIMIT).await;
}

/// Rows: W24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_that_is_taken_from_the_node_while_no_manager_runs_is_taken_back_and_nothing_is_left_on_it() {
    let Some(plane) = shared_plane("a preservation taken back").await else {
        return;
    };
    let mut scene = Script::new("preserve-node").begin(&plane).await;
    scene.deploy(1).await;
    scene.settled_at(1, LIMIT).await;
    let machine = chosen(&scene, 0).await;
    let nodes = Api::<Node>::all(scene.client.clone());
    let says = async |value: Value| {
        let patch = Patch::Merge(annotated(&value));
        nodes
            .patch(&machine.node, &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    says(json!("now")).await;
    let is_kept = async |scene: &Scene, wanted: bool| {
        let found = scene.get(Kind::Machine, &machine.name).await;
        let is_told = found["status"]["currentStatus"]["preserveExpiryTime"].is_string();
        let last = found["metadata"]["annotations"][keys::LAST_APPLIED_PRESERVE].as_str();
        let node = json!(nodes.get(&machine.node).await.unwrap());
        let is_spared = node["metadata"]["annotations"][keys::SCALE_DOWN_DISABLED].is_string();
        match (is_told, last.is_some(), is_spared) == (wanted, wanted, wanted) {
            true => Ok(()),
            false => Err(format!("{found} {}", node["metadata"])),
        }
    };
    scene
        .until("it is kept", LIMIT, async |scene: &Scene| is_kept(scene, true).await)
        .await;
    scene.manager.service.kill();
    says(Value::Null).await;
    scene.manager.service.restart();
    scene.manager.wait_until_ready().await;
    scene
        .until("it is kept no longer", LIMIT, async |scene: &Scene| {
            is_kept(scene, false).await
        })
        .await;
    scene
        .until("the node bears no taint of ours", LIMIT, async |_: &Scene| {
            let node = json!(nodes.get(&machine.node).await.map_err(|error| error.to_string())?);
            let taints = node["spec"]["taints"].to_string();
            match taints.contains("node.machine.sapcloud.io/preserved") {
                false => Ok(()),
                true => Err(taints),
            }
        })
        .await;
    scene.settled_at(1, LIMIT).await;
}
