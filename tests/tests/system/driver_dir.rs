//! Drivers whose sockets come and go in the directory of `--driver-dir`. Beside the one that comes and goes there is one
//! that stays: that it can be asked says nothing about the other's VMs.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use millwright_tests::laws;
use millwright_tests::manifests;
use millwright_tests::programs::programs;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use millwright_tests::service::{Recipe, Service};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
/// So long a provider's socket is away: several looks of the manager into the directory.
const AWAY: Duration = Duration::from_secs(6);

/// A driver of another name in the same directory, which the manager knows when this returns.
async fn beside_another_driver(scene: &Scene) -> Service {
    let dir = scene.provider.socket.parent().unwrap();
    let other = Service::start(Recipe {
        name: "hello".to_owned(),
        program: programs().await.hello_provider.clone(),
        args: vec![
            "--listen".to_owned(),
            format!("unix://{}", dir.join("hello.sock").display()),
        ],
        env: Vec::new(),
        log: scene.file("hello.log"),
    });
    scene.manager.service.wait_for_log("hello.sock", LIMIT).await;
    other
}

/// The provider ends and its socket goes, as when a sidecar is replaced.
fn take_away(scene: &mut Scene) {
    scene.provider.service.kill();
    std::fs::remove_file(&scene.provider.socket).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_whose_socket_comes_after_the_manager_has_started_is_used() {
    let Some(plane) = shared_plane("a socket that comes later").await else {
        return;
    };
    let mut scene = Script::new("dir-late").drivers_of_a_directory().begin(&plane).await;
    scene.manager.service.kill();
    take_away(&mut scene);
    scene.manager.service.restart();
    scene.manager.wait_until_live().await;
    scene.deploy(2).await;
    tokio::time::sleep(AWAY).await;
    assert!(
        scene.manager.service.is_running(),
        "{}",
        scene.manager.service.log_tail()
    );
    scene.provider.service.restart();
    scene.settled_at(2, LIMIT).await;
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
}

/// Its class is taken away with force, so that only the drivers themselves know whose VM it is.
async fn machine_without_class(scene: &mut Scene) -> String {
    let name = format!("{}-m", scene.namespace);
    scene.create(Kind::Machine, &manifests::machine(&name)).await;
    scene.settled_at(1, LIMIT).await;
    let classes = scene.api(Kind::Class);
    classes
        .delete(manifests::CLASS, &DeleteParams::default())
        .await
        .unwrap();
    let mut gone = false;
    while !gone {
        // The manager may put its finalizer back until it has seen the deletion.
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let freed = classes.patch(manifests::CLASS, &PatchParams::default(), &free).await;
        gone = freed.is_err() || classes.get_opt(manifests::CLASS).await.unwrap().is_none();
    }
    name
}

async fn gone_without_trace(scene: &mut Scene) {
    scene
        .until("the machine and its VM are gone", LIMIT, async |scene: &Scene| {
            let (machines, vms) = (scene.list(Kind::Machine).await?.len(), scene.vms().await?.len());
            match (machines, vms) {
                (0, 0) => Ok(()),
                other => Err(format!("machines, VMs: {other:?}")),
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_class_that_is_deleted_while_the_socket_is_away_leaves_no_vm() {
    let Some(plane) = shared_plane("a socket that is away").await else {
        return;
    };
    let mut scene = Script::new("dir-away").drivers_of_a_directory().begin(&plane).await;
    let _other = beside_another_driver(&scene).await;
    let name = machine_without_class(&mut scene).await;
    take_away(&mut scene);
    scene.delete(Kind::Machine, &name).await;
    tokio::time::sleep(AWAY).await;
    let left = scene.list(Kind::Machine).await.unwrap();
    assert_eq!(
        left.len(),
        1,
        "its finalizer stays while nobody can be asked about its VM"
    );
    scene.provider.service.restart();
    gone_without_trace(&mut scene).await;
}

/// Also a manager that has just started knows nothing of a driver whose socket is not there yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_class_that_is_deleted_before_any_socket_is_there_leaves_no_vm() {
    let Some(plane) = shared_plane("no socket at the start").await else {
        return;
    };
    let mut scene = Script::new("dir-none").drivers_of_a_directory().begin(&plane).await;
    let _other = beside_another_driver(&scene).await;
    let name = machine_without_class(&mut scene).await;
    scene.manager.service.kill();
    take_away(&mut scene);
    scene.delete(Kind::Machine, &name).await;
    scene.manager.service.restart();
    scene.manager.wait_until_live().await;
    tokio::time::sleep(AWAY).await;
    let left = scene.list(Kind::Machine).await.unwrap();
    assert_eq!(
        left.len(),
        1,
        "its finalizer stays while nobody can be asked about its VM"
    );
    scene.provider.service.restart();
    gone_without_trace(&mut scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_goes_and_comes_while_machines_without_class_are_deleted_leaves_no_vm() {
    let Some(plane) = shared_plane("a socket that goes and comes").await else {
        return;
    };
    let script = Script::new("dir-flap").provider("--delete-delay", "1s");
    let mut scene = script.drivers_of_a_directory().begin(&plane).await;
    let _other = beside_another_driver(&scene).await;
    let name = machine_without_class(&mut scene).await;
    scene.delete(Kind::Machine, &name).await;
    for pause in [50, 400, 1500] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        take_away(&mut scene);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        scene.provider.service.restart();
        scene.provider.wait_until_it_listens().await;
    }
    gone_without_trace(&mut scene).await;
    laws::one_vm_a_machine(&scene.journal().await.unwrap()).unwrap();
}
