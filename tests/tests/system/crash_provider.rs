//! The provider is killed with -9 at random moments of 0 → 20 → 5 → 0, alone or together with the manager, and started
//! again. The cloud inside it keeps what it accepted. At each stop there are exactly the wanted machines, VMs, nodes and
//! tokens, and no machine ever has two VMs.
//!
//! The hasty test scales back to 0 in the moment of the crash: then a cloud that lags knows of VMs that neither manager
//! nor provider remembers, and only patience finds them.
//!
//! The moments are drawn from the seed of [`sampling`], which is printed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::sync::Arc;
use std::time::Duration;

use millwright_dev::apiserver::ControlPlane;
use millwright_tests::sampling::Draw;
use millwright_tests::scene::{Scene, shared_plane};
use millwright_tests::script::Script;
use millwright_tests::{laws, sampling};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(150);
/// Kills at each size, at moments up to this long after it was asked for.
const KILLS: usize = 3;
const WITHIN: Duration = Duration::from_millis(1500);
/// How long a cloud that lags does not show a new VM.
const LAG: Duration = Duration::from_secs(3);

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victims {
    Provider,
    Both,
}

async fn killed_at_random(what: &str, prefix: &str, lag: &str, victims: Victims) {
    let Some(plane) = shared_plane(what).await else { return };
    let seed = sampling::seed(what);
    let began = Instant::now();
    let mut moments = Draw::of(seed);
    let mut scene = begin(&plane, prefix, lag).await;
    scene.deploy(0).await;
    for size in [20, 5, 0] {
        scene.scale(size).await;
        for _ in 0..KILLS {
            tokio::time::sleep(moments.time_below(WITHIN)).await;
            scene.provider.service.kill();
            if victims == Victims::Both {
                scene.manager.service.kill();
                scene.manager.service.restart();
            }
            scene.provider.service.restart();
        }
        scene
            .settled_at(usize::try_from(size).expect("it is small"), LIMIT)
            .await;
    }
    let journal = scene.journal().await.expect("the cloud's journal");
    laws::one_vm_a_machine(&journal).unwrap();
    let made = laws::vms_made(&journal);
    println!(
        "{what}: {} kills, {made} VMs made, {:.1} s",
        3 * KILLS,
        began.elapsed().as_secs_f64()
    );
    assert_eq!(made, 20, "no VM was made for nothing");
}

async fn begin(plane: &Arc<ControlPlane>, prefix: &str, lag: &str) -> Scene {
    let script = Script::new(prefix).provider("--list-lag", lag);
    // Long enough that kills meet VMs in all states.
    let script = script
        .provider("--create-delay", "500ms")
        .provider("--join-delay", "500ms");
    script.begin(plane).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_random_makes_no_second_vm_and_leaves_none() {
    killed_at_random("a provider killed at random", "kill-p", "0s", Victims::Provider).await;
}

/// Rows: pains 5, 6, 7, 11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_random_whose_cloud_lags_makes_no_second_vm_and_leaves_none() {
    killed_at_random(
        "a provider killed at random, lagging cloud",
        "kill-pl",
        "3s",
        Victims::Provider,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_and_manager_killed_at_random_make_no_second_vm_and_leave_none() {
    killed_at_random("provider and manager killed at random", "kill-b", "0s", Victims::Both).await;
}

/// Rows: pains 5, 8, 11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_and_manager_killed_at_random_whose_cloud_lags_make_no_second_vm_and_leave_none() {
    killed_at_random(
        "provider and manager killed at random, lagging cloud",
        "kill-bl",
        "3s",
        Victims::Both,
    )
    .await;
}

/// Rows: pains 28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_go_in_the_moment_of_a_crash_leave_no_vm_in_a_cloud_that_lags() {
    let what = "crashes while machines come and go, lagging cloud";
    let Some(plane) = shared_plane(what).await else { return };
    let seed = sampling::seed(what);
    let mut moments = Draw::of(seed);
    let mut scene = begin(&plane, "kill-haste", "3s").await;
    scene.deploy(0).await;
    for _ in 0..KILLS {
        scene.scale(20).await;
        tokio::time::sleep(moments.time_below(WITHIN) / 2).await;
        scene.manager.service.kill();
        scene.provider.service.kill();
        scene.scale(0).await;
        scene.provider.service.restart();
        scene.manager.service.restart();
        scene.settled_at(0, LIMIT).await;
    }
    // Whatever was under way has come to light by then.
    tokio::time::sleep(LAG + Duration::from_secs(1)).await;
    scene.settled_at(0, Duration::ZERO).await;
    let journal = scene.journal().await.expect("the cloud's journal");
    laws::one_vm_a_machine(&journal).unwrap();
    let made = laws::vms_made(&journal);
    println!("{what}: {made} VMs were made and went");
}
