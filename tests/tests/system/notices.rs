//! What happens to VMs behind the manager's back is noticed in seconds, by the driver's watch, while their Nodes still look healthy.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::{Duration, Instant};

use millwright_tests::cloud::uids;
use millwright_tests::laws;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;

const LIMIT: Duration = Duration::from_secs(60);
/// A VM that is not found is looked for again after ten seconds; a Node falls silent after forty.
const SECONDS: Duration = Duration::from_secs(30);

/// Does something to the VM of some Machine, which it names.
async fn befalls(scene: &Scene, act: &str) -> String {
    let machine = scene.list(Kind::Machine).await.unwrap().swap_remove(0);
    let (name, uid) = (laws::name(&machine).to_owned(), laws::uid(&machine).to_owned());
    let vms = scene.vms().await.unwrap();
    let vm = vms.iter().find(|vm| vm.uid == uid).unwrap();
    scene.at_the_console(act, &vm.name).await.unwrap();
    name
}

/// How long it takes until the loss of a Machine's VM is told in these words.
async fn told(scene: &mut Scene, name: &str, words: &str) -> Duration {
    let began = Instant::now();
    let what = format!("{name} is told to be lost");
    scene
        .until(&what, SECONDS, async |scene: &Scene| {
            let told = scene.events_about(name).await?;
            match told
                .iter()
                .any(|(reason, note)| reason == "VmLost" && note.contains(words))
            {
                true => Ok(()),
                false => Err(format!("{told:?}")),
            }
        })
        .await;
    began.elapsed()
}

async fn replaced(scene: &mut Scene, name: &str) {
    let what = format!("{name} is replaced");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let machines = scene.list(Kind::Machine).await?;
            match machines.iter().any(|machine| laws::name(machine) == name) {
                false => Ok(()),
                true => Err("it is there".to_owned()),
            }
        })
        .await;
}

/// Rows: W13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vm_that_is_stopped_or_taken_away_is_replaced_in_seconds_while_its_node_looks_healthy() {
    let what = "VMs that end by themselves";
    let Some(plane) = shared_plane(what).await else { return };
    let mut scene = Script::new("notices").begin(&plane).await;
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;

    for (act, words) in [("stop", "its VM is powered off"), ("remove", "its VM is gone")] {
        let name = befalls(&scene, act).await;
        let took = told(&mut scene, &name, words).await;
        println!("{act}: told after {took:?}");
        replaced(&mut scene, &name).await;
        scene.settled_at(3, LIMIT).await;
    }

    // What happens while nobody listens is seen when the watch begins anew.
    scene.manager.service.kill();
    let name = befalls(&scene, "remove").await;
    scene.manager.service.restart();
    replaced(&mut scene, &name).await;
    scene.settled_at(3, LIMIT).await;
}

/// Many that fall ill at once are held; of those that are gone there is nothing to hold.
///
/// Rows: L2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_machines_whose_vms_are_all_taken_away_each_is_replaced() {
    let what = "all VMs gone";
    let Some(plane) = shared_plane(what).await else { return };
    let mut scene = Script::new("all-gone").begin(&plane).await;
    scene.deploy(3).await;
    let before = scene.settled_at(3, LIMIT).await;
    for vm in &before.vms {
        scene.at_the_console("remove", &vm.name).await.unwrap();
    }
    scene
        .until("three others run", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            laws::settled(&sight, 3)?;
            match uids(&sight.vms).is_disjoint(&uids(&before.vms)) {
                true => Ok(()),
                false => Err("old ones are there".to_owned()),
            }
        })
        .await;
    assert_eq!(laws::vms_made(&scene.journal().await.unwrap()), 6);
}

/// A VM that is resized, or that somebody stops and starts: its Node is Ready all the time, and its disk is worth keeping.
///
/// Rows: L3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vm_that_is_powered_off_for_four_seconds_is_not_replaced() {
    let what = "a VM that is off for 4 s";
    let Some(plane) = shared_plane(what).await else { return };
    let mut scene = Script::new("blink").begin(&plane).await;
    scene.deploy(3).await;
    let before = scene.settled_at(3, LIMIT).await;
    let name = befalls(&scene, "stop").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    scene.at_the_console("start", &name).await.unwrap();
    // Whoever wants to replace it has begun by now.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let after = scene.settled_at(3, LIMIT).await;
    assert_eq!(uids(&after.vms), uids(&before.vms));
    assert_eq!(laws::vms_made(&scene.journal().await.unwrap()), 3);
}
