//! A class that is edited under running machines: their VMs are looked for, watched and removed where they were made.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::collections::BTreeSet;
use std::time::Duration;

use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
/// A VM that is not found is looked for again after ten seconds, and a listing is made each two.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

async fn names(scene: &Scene) -> BTreeSet<String> {
    let vms = scene.vms().await.unwrap();
    vms.into_iter().map(|vm| vm.provider_id).collect()
}

/// Rows: L1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn editing_the_region_of_a_class_ends_no_running_vm_and_leaks_none() {
    let what = "a class whose region is edited";
    let Some(plane) = shared_plane(what).await else { return };
    let script = Script::new("edited-class").manager("--machine-safety-orphan-vms-period", "2s");
    let mut scene = script.begin(&plane).await;
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;
    let before = names(&scene).await;
    let spec = json!({ "providerSpec": { "region": "mars", "zone": "mars-a" } });
    scene.patch(Kind::Class, manifests::CLASS, spec).await;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(names(&scene).await, before, "nothing was killed, and nothing made");
    // A stopped VM is noticed by the watch of its own region, and its successor is made where the class says.
    let lost = scene.vms().await.unwrap().swap_remove(0);
    scene.at_the_console("remove", &lost.name).await.unwrap();
    let is_mended = async |scene: &Scene| {
        let vms = names(scene).await;
        let moved = vms.iter().filter(|id| id.starts_with("virtual:///mars/")).count();
        match (moved, vms.len(), vms.contains(&lost.provider_id)) {
            (1, 3, false) => Ok(()),
            _ => Err(format!("{vms:?}")),
        }
    };
    scene.until("the lost one is replaced on mars", LIMIT, is_mended).await;
    scene.settled_at(3, LIMIT).await;
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
    assert_eq!(names(&scene).await, BTreeSet::new(), "nothing was leaked");
}
