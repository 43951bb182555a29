//! A size that is never reached keeps nobody else waiting. A target of its own, because its limit is a time: no other test runs beside it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::sync::Arc;
use std::time::Duration;

use millwright_tests::apiserver;
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene};
use millwright_tests::script::Script;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);

async fn scaled_to_two(scene: &mut Scene) -> Duration {
    let asked = Instant::now();
    scene.scale(2).await;
    scene
        .until("two machines are available", LIMIT, async |scene: &Scene| {
            let own = scene.get(Kind::Deployment, &scene.namespace).await;
            match own["status"]["availableReplicas"].as_u64() {
                Some(2) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    asked.elapsed()
}

/// How far the great one comes depends on this computer; the control plane ends with it.
///
/// Rows: R2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_scaled_in_five_seconds_beside_one_that_wants_a_hundred_thousand_machines() {
    let Some(plane) = apiserver::start_with_crds("a hundred thousand machines").await else {
        return;
    };
    let mut scene = Script::new("crowd").begin(&Arc::new(plane)).await;
    scene.deploy(1).await;
    scene.settled_at(1, LIMIT).await;
    let great = format!("{}-great", scene.namespace);
    scene
        .create(Kind::Deployment, &manifests::deployment(&great, 100_000))
        .await;
    // Among the first batches.
    tokio::time::sleep(Duration::from_secs(2)).await;

    let took = scaled_to_two(&mut scene).await;
    println!("scaled in {:.1} s", took.as_secs_f64());
    assert!(took <= Duration::from_secs(5), "it took {took:?}");
    let great = scene.get(Kind::Deployment, &great).await;
    assert!(great["status"]["replicas"].as_u64() > Some(0), "{}", great["status"]);
}
