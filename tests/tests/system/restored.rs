//! What a backup brings back of a namespace: names, labels, annotations and specs, under new uids, without statuses and owner references,
//! while the VMs run on.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use millwright_tests::accounts::{self, Accounts};
use millwright_tests::fleet::Manager;
use millwright_tests::scene::{Kind, Scene, Sight, shared_plane};
use millwright_tests::script::Script;
use millwright_tests::{laws, manifests};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(90);
/// In the order in which they are taken away.
const KINDS: [Kind; 4] = [Kind::Machine, Kind::Set, Kind::Deployment, Kind::Class];

/// An object as a backup holds it.
fn saved(object: &Value) -> Value {
    let mut kept = object.clone();
    let metadata = &object["metadata"];
    kept["metadata"] = json!({
        "name": metadata["name"], "labels": metadata["labels"], "annotations": metadata["annotations"],
    });
    kept.as_object_mut().unwrap().remove("status");
    kept
}

/// Every object of ours is lost, with its finalizers, while no manager is there. Gives what the backup holds.
async fn lose_all(scene: &mut Scene) -> Vec<(Kind, Value)> {
    scene.manager.service.kill();
    let mut backup = Vec::new();
    for kind in KINDS {
        for object in scene.list(kind).await.unwrap() {
            backup.push((kind, saved(&object)));
            let name = laws::name(&object);
            scene
                .patch(kind, name, json!({ "metadata": { "finalizers": null } }))
                .await;
            scene.delete(kind, name).await;
        }
    }
    scene
        .until("all objects are gone", LIMIT, async |scene: &Scene| {
            for kind in KINDS {
                let left = scene.api(kind).list(&ListParams::default()).await;
                let left = left.map_err(|error| error.to_string())?.items.len();
                if left > 0 {
                    return Err(format!("{left} of {kind:?} are left"));
                }
            }
            Ok(())
        })
        .await;
    backup
}

/// How many Nodes of the deployment's machines there are.
async fn nodes(scene: &Scene, deployment: &str) -> Result<usize, String> {
    let nodes = Api::<Node>::all(scene.client.clone())
        .list(&ListParams::default())
        .await;
    let nodes = nodes.map_err(|error| error.to_string())?;
    let ours = format!("{deployment}-");
    Ok(nodes.iter().filter(|node| node.name_any().starts_with(&ours)).count())
}

/// Waits until so many machines of the deployment run, each with a VM, and there is no other VM.
async fn run(
    scene: &mut Scene,
    deployment: &str,
    machines: usize,
    is_right: impl Fn(&Sight) -> bool,
) -> BTreeSet<String> {
    let what = format!("{machines} machines run and nothing else");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            let phases: Vec<&str> = sight.machines.iter().map(laws::phase).collect();
            let ids: BTreeSet<String> = sight.vms.iter().map(|vm| vm.provider_id.clone()).collect();
            let run = phases.len() == machines && phases.iter().all(|phase| *phase == "Running");
            let nodes = nodes(scene, deployment).await?;
            match run && ids.len() == machines && nodes == machines && is_right(&sight) {
                true => Ok(ids),
                false => Err(format!("{phases:?}, VMs {ids:?}, {nodes} nodes")),
            }
        })
        .await
}

async fn made(scene: &Scene) -> usize {
    laws::vms_made(&scene.journal().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_restored_from_a_backup_keep_their_vms_and_can_be_rolled_and_removed() {
    let Some(plane) = shared_plane("a restored namespace").await else {
        return;
    };
    let mut scene = Script::new("restored").begin(&plane).await;
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;
    let deployment = scene.namespace.clone();
    let before = run(&mut scene, &deployment, 3, |_| true).await;
    let backup = lose_all(&mut scene).await;
    for (kind, object) in backup.iter().rev() {
        scene.create(*kind, object).await;
    }
    scene.manager.service.restart();
    keep_roll_and_end(&mut scene, &deployment, &before).await;
    scene.remove_all(LIMIT).await;
}

/// Restored machines keep the VMs of before, are rolled, and go.
async fn keep_roll_and_end(scene: &mut Scene, deployment: &str, before: &BTreeSet<String>) {
    let after = run(scene, deployment, 3, |_| true).await;
    assert_eq!(after, *before, "no VM was lost or made anew");
    assert_eq!(made(scene).await, 3, "no VM was made");

    let change = json!({ "spec": { "template": { "metadata": { "annotations": { "note": "two" } } } } });
    scene.patch(Kind::Deployment, deployment, change).await;
    let is_rolled = |sight: &Sight| sight.vms.iter().all(|vm| !before.contains(&vm.provider_id));
    run(scene, deployment, 3, is_rolled).await;
    let none = json!({ "spec": { "replicas": 0 } });
    scene.patch(Kind::Deployment, deployment, none).await;
    run(scene, deployment, 0, |_| true).await;
    assert_eq!(made(scene).await, 6, "three before and three by the rollout");
}

/// As Velero does it with `--namespace-mappings`. The manager of the new namespace is told the former one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_restored_into_another_namespace_keep_their_vms_and_can_be_rolled_and_removed() {
    let Some(plane) = shared_plane("a moved namespace").await else {
        return;
    };
    let mut scene = Script::new("moved").begin(&plane).await;
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;
    let former = scene.namespace.clone();
    let before = run(&mut scene, &former, 3, |_| true).await;
    let backup = lose_all(&mut scene).await;

    scene.namespace = plane.create_namespace("moved-to").await.expect("a namespace");
    scene.accounts = Accounts::granted(&plane, &scene.namespace, accounts::SHIPPED).await;
    scene.create_secret(&manifests::secret()).await;
    for (kind, object) in backup.iter().rev() {
        scene.create(*kind, object).await;
    }
    let manager = Manager::of_account(&plane, &scene.namespace, &scene.accounts.manager).await;
    let manager = manager
        .driver(&scene.provider.endpoint)
        .flag("--former-namespace", former.clone());
    scene.manager = manager.start();
    keep_roll_and_end(&mut scene, &former, &before).await;
    scene.delete(Kind::Deployment, &former).await;
}
