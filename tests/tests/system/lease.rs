//! The Lease is taken away from a leader: somebody leads again, and machines are made and deleted as before.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use millwright_tests::laws;
use millwright_tests::scene::{Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::json;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);
const LEASE: &str = "millwright";

fn leases(scene: &Scene) -> Api<Lease> {
    Api::namespaced(scene.client.clone(), &scene.namespace)
}

/// What is left of the minute that began then.
fn left_of(began: Instant) -> Duration {
    LIMIT.saturating_sub(began.elapsed())
}

/// Somebody holds the Lease, which is the time at which a leader could be stuck.
async fn held(scene: &mut Scene, began: Instant) {
    scene
        .until("the Lease is held", left_of(began), async |scene: &Scene| {
            let lease = leases(scene).get_opt(LEASE).await.map_err(|error| error.to_string())?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            if holder.is_empty() {
                Err("nobody holds it".to_owned())
            } else {
                Ok(())
            }
        })
        .await;
}

/// A leader with two machines.
async fn leader(what: &str) -> Option<Scene> {
    let plane = shared_plane(what).await?;
    let script = Script::new("lease").env("MILLWRIGHT_LEADER_ELECT", "true");
    let mut scene = script.begin(&plane).await;
    scene.revives = true;
    scene.deploy(2).await;
    scene.settled_at(2, LIMIT).await;
    assert_eq!(scene.revived, 0, "nothing was wrong so far");
    Some(scene)
}

/// The Leases of the original, and who holds them.
pub(crate) async fn holders(scene: &Scene) -> Result<Vec<String>, String> {
    let mut holders = Vec::new();
    for name in ["machine-controller", "machine-controller-manager"] {
        let lease = leases(scene).get_opt(name).await.map_err(|error| error.to_string())?;
        holders.push(lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default());
    }
    Ok(holders)
}

/// The leader holds the original's Leases.
async fn kept_out(scene: &mut Scene) {
    scene
        .until("the original's Leases are held", LIMIT, async |scene: &Scene| {
            let holders = holders(scene).await?;
            let all = holders.iter().all(|holder| holder.starts_with("millwright/"));
            if all { Ok(()) } else { Err(format!("{holders:?}")) }
        })
        .await;
}

/// Writes that the original leads, as it does once a Lease has run out.
async fn led_by_the_original(scene: &Scene) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({ "holderIdentity": "mcm-0", "leaseDurationSeconds": 15, "renewTime": now });
    let lease = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    let name = "machine-controller-manager";
    leases(scene).patch(name, &params, &lease).await.unwrap();
}

/// Rows: pains 34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_original_that_is_started_beside_a_leader_finds_its_leases_held_and_one_that_leads_ends_it() {
    let Some(mut scene) = leader("the original is started later").await else {
        return;
    };
    kept_out(&mut scene).await;
    scene.manager.service.stop(LIMIT).await;
    assert_eq!(holders(&scene).await.unwrap(), ["", ""], "both are given back");

    scene.manager.service.restart();
    kept_out(&mut scene).await;
    scene.revives = false;
    led_by_the_original(&scene).await;
    let status = scene.manager.service.wait_for_exit(LIMIT).await;
    assert!(!status.success(), "{status}");
    let log = scene.manager.service.log_tail();
    assert!(log.contains("this process ends: mcm-0 holds the Lease"), "{log}");
    assert_eq!(holders(&scene).await.unwrap(), ["", "mcm-0"]);
}

/// Rows: pains 34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_done_while_the_original_leads_and_all_once_it_has_gone() {
    let what = "the original leads";
    let Some(plane) = shared_plane(what).await else { return };
    let script = Script::new("original").env("MILLWRIGHT_LEADER_ELECT", "true");
    let mut scene = script.begin(&plane).await;
    kept_out(&mut scene).await;
    scene.manager.service.kill();
    led_by_the_original(&scene).await;
    scene.manager.service.restart();
    scene.deploy(1).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(scene.vms().await.unwrap().is_empty());
    // A rollout of the Deployment waits for the new pod before it ends the old one, which is the original.
    let (code, checks) = scene.manager.get("/readyz").await.unwrap();
    assert_eq!(code, 200, "{checks}");
    let log = scene.manager.service.log_tail();
    assert!(
        log.contains("mcm-0 holds the Lease machine-controller-manager"),
        "{log}"
    );
    scene.settled_at(1, LIMIT).await;
}

/// Within a minute of `began` machines are made, and then deleted.
async fn works_within_a_minute(scene: &mut Scene, began: Instant) {
    held(scene, began).await;
    scene.scale(4).await;
    scene.settled_at(4, left_of(began)).await;
    scene.scale(1).await;
    scene.settled_at(1, left_of(began)).await;
    println!(
        "at work {:.1} s after the Lease was taken away",
        began.elapsed().as_secs_f64()
    );
    let journal = scene.journal().await.unwrap();
    laws::one_vm_a_machine(&journal).unwrap();
    assert_eq!(scene.revived, 0, "who loses the lead stands for it again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_lease_is_deleted_makes_and_deletes_machines_within_a_minute() {
    let Some(mut scene) = leader("the Lease is deleted").await else {
        return;
    };
    let began = Instant::now();
    leases(&scene).delete(LEASE, &DeleteParams::default()).await.unwrap();
    works_within_a_minute(&mut scene, began).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_lease_is_emptied_makes_and_deletes_machines_within_a_minute() {
    let Some(mut scene) = leader("the Lease is emptied").await else {
        return;
    };
    let began = Instant::now();
    let nobody = Patch::Merge(json!({ "spec": { "holderIdentity": "" } }));
    leases(&scene)
        .patch(LEASE, &PatchParams::default(), &nobody)
        .await
        .unwrap();
    works_within_a_minute(&mut scene, began).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_deleted_and_then_emptied_stops_nobody_for_longer_than_a_minute() {
    let Some(mut scene) = leader("the Lease is deleted, then emptied").await else {
        return;
    };
    let began = Instant::now();
    leases(&scene).delete(LEASE, &DeleteParams::default()).await.unwrap();
    held(&mut scene, began).await;
    let nobody = Patch::Merge(json!({ "spec": { "holderIdentity": "" } }));
    leases(&scene)
        .patch(LEASE, &PatchParams::default(), &nobody)
        .await
        .unwrap();
    works_within_a_minute(&mut scene, Instant::now()).await;
}
