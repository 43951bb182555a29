//! What a backup brings back of a namespace: names, labels, annotations and specs, under new uids, without statuses and owner references,
//! while the VMs run on.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::ListParams;
use millwright_tests::laws;
use millwright_tests::scene::{Kind, Scene, Sight, shared_plane};
use millwright_tests::script::Script;
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

/// Waits until so many machines run, each with a VM, and there is no other VM.
async fn run(scene: &mut Scene, machines: usize, is_right: impl Fn(&Sight) -> bool) -> BTreeSet<String> {
    let what = format!("{machines} machines run and nothing else");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            let phases: Vec<&str> = sight.machines.iter().map(laws::phase).collect();
            let ids: BTreeSet<String> = sight.vms.iter().map(|vm| vm.provider_id.clone()).collect();
            let run = phases.len() == machines && phases.iter().all(|phase| *phase == "Running");
            match run && ids.len() == machines && sight.nodes.len() == machines && is_right(&sight) {
                true => Ok(ids),
                false => Err(format!("{phases:?}, VMs {ids:?}, {} nodes", sight.nodes.len())),
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
    let before = run(&mut scene, 3, |_| true).await;
    let backup = lose_all(&mut scene).await;
    for (kind, object) in backup.iter().rev() {
        scene.create(*kind, object).await;
    }
    scene.manager.service.restart();
    let after = run(&mut scene, 3, |_| true).await;
    assert_eq!(after, before, "no VM was lost or made anew");
    assert_eq!(made(&scene).await, 3, "no VM was made");

    let change = json!({ "spec": { "template": { "metadata": { "annotations": { "note": "two" } } } } });
    scene.patch(Kind::Deployment, &scene.namespace, change).await;
    let is_rolled = |sight: &Sight| sight.vms.iter().all(|vm| !before.contains(&vm.provider_id));
    run(&mut scene, 3, is_rolled).await;
    scene.scale(0).await;
    run(&mut scene, 0, |_| true).await;
    scene.remove_all(LIMIT).await;
    assert_eq!(made(&scene).await, 6, "three before and three by the rollout");
}
