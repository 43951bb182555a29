//! The cluster that nodes join cannot be reached: the control cluster is served all the same, and no Machine is judged by
//! what nobody can see.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::net::SocketAddr;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use millwright_dev::apiserver::ControlPlane;
use millwright_tests::laws;
use millwright_tests::manifests;
use millwright_tests::proxy::{Passage, Proxy};
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
/// In which a machine must join, where its cluster can be seen.
const CREATION_TIMEOUT: Duration = Duration::from_secs(20);
/// In which a machine that never joined ends after its deletion.
const END: Duration = Duration::from_secs(60);

fn script(prefix: &str, proxy: &Proxy) -> Script {
    let timeout = format!("{}s", CREATION_TIMEOUT.as_secs());
    Script::new(prefix)
        .manager("--machine-creation-timeout", timeout)
        .manager_sees_its_nodes_at(proxy.address())
}

/// A way to the cluster that nodes join.
async fn way_to(plane: &ControlPlane, passage: Passage) -> Proxy {
    let server = SocketAddr::from(([127, 0, 0, 1], plane.port()));
    Proxy::before(server, passage).await
}

/// User data for which nothing has to be made in the target cluster.
async fn without_bootstrap_token(scene: &Scene) {
    let plain = Patch::Merge(json!({ "stringData": { "userData": "#cloud-config\n" } }));
    let secrets = scene.secrets();
    secrets
        .patch(manifests::SECRET, &PatchParams::default(), &plain)
        .await
        .unwrap();
}

async fn vms_exist(scene: &mut Scene, wanted: usize) {
    scene
        .until("every machine has its VM", LIMIT, async |scene: &Scene| {
            let (machines, vms) = (scene.list(Kind::Machine).await?, scene.vms().await?);
            let known = machines
                .iter()
                .filter(|machine| machine["spec"]["providerID"].is_string());
            let counts = (machines.len(), known.count(), vms.len());
            if counts == (wanted, wanted, wanted) {
                Ok(())
            } else {
                Err(format!("machines, with a provider id, VMs: {counts:?}"))
            }
        })
        .await;
}

/// Nobody is judged while nobody can see, however long it lasts.
async fn nobody_fails_for(scene: &Scene, wanted: usize, time: Duration) {
    let until = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < until {
        let machines = scene.list(Kind::Machine).await.unwrap();
        let phases: Vec<&str> = machines.iter().map(laws::phase).collect();
        assert_eq!(phases.len(), wanted, "{phases:?}");
        assert!(
            !phases.contains(&"Failed"),
            "{phases:?}\n{}",
            scene.manager.service.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn machines_end(scene: &mut Scene, limit: Duration) {
    scene
        .until("machines and VMs are gone", limit, async |scene: &Scene| {
            let counts = (scene.list(Kind::Machine).await?.len(), scene.vms().await?.len());
            if counts == (0, 0) {
                Ok(())
            } else {
                Err(format!("machines, VMs: {counts:?}"))
            }
        })
        .await;
}

async fn away_from_the_start(what: &str, prefix: &str, passage: Passage) {
    let Some(plane) = shared_plane(what).await else { return };
    let proxy = way_to(&plane, passage).await;
    let script = script(prefix, &proxy).nodes_register_at(proxy.address());
    let mut scene = script.begin(&plane).await;
    without_bootstrap_token(&scene).await;
    scene.deploy(3).await;
    vms_exist(&mut scene, 3).await;
    nobody_fails_for(&scene, 3, CREATION_TIMEOUT * 2 + Duration::from_secs(5)).await;

    // The one that is deleted ends; another takes its place.
    let machines = scene.list(Kind::Machine).await.unwrap();
    let first = laws::name(&machines[0]).to_owned();
    scene.delete(Kind::Machine, &first).await;
    scene
        .until("a machine that never joined ends", END, async |scene: &Scene| {
            let machines = scene.list(Kind::Machine).await?;
            match machines.iter().any(|machine| laws::name(machine) == first) {
                true => Err(format!("{first} is still there")),
                false => Ok(()),
            }
        })
        .await;
    vms_exist(&mut scene, 3).await;
    scene.scale(2).await;
    vms_exist(&mut scene, 2).await;

    // The cluster is there: what waited joins, and all is as if nothing had been.
    proxy.set(Passage::Open).await;
    scene.settled_at(2, LIMIT).await;
    let journal = scene.journal().await.unwrap();
    laws::one_vm_a_machine(&journal).unwrap();
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_made_and_deleted_while_the_target_cluster_refuses_from_the_start() {
    away_from_the_start("a target cluster that refuses", "away-no", Passage::Refusing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_made_and_deleted_while_the_target_cluster_hangs_from_the_start() {
    away_from_the_start("a target cluster that hangs", "away-hang", Passage::Hanging).await;
}

/// Which manager removes what a machine has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remover {
    /// The one under which the machine ended.
    Same,
    /// The next one, because the first is killed before the target cluster is back.
    Next,
}

async fn ends_while_away(what: &str, prefix: &str, remover: Remover) {
    let Some(plane) = shared_plane(what).await else { return };
    let proxy = way_to(&plane, Passage::Open).await;
    // Its VM exists and its bootstrap token too; its node registers when the manager can see it no more.
    let script = script(prefix, &proxy).provider("--join-delay", "5s");
    let mut scene = script.begin(&plane).await;
    scene.deploy(1).await;
    vms_exist(&mut scene, 1).await;
    proxy.set(Passage::Refusing).await;
    scene
        .until("node and token are there", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            match (sight.nodes.len(), sight.tokens.len()) {
                (1, 1) => Ok(()),
                other => Err(format!("nodes, tokens: {other:?}")),
            }
        })
        .await;

    scene.scale(0).await;
    machines_end(&mut scene, END).await;
    let left = scene.look().await.unwrap();
    assert_eq!(
        (left.nodes.len(), left.tokens.len()),
        (1, 1),
        "nobody can have removed them: the way was shut"
    );
    if remover == Remover::Next {
        scene.manager.service.kill();
        scene.manager.service.restart();
        scene.manager.wait_until_live().await;
    }

    proxy.set(Passage::Open).await;
    scene
        .until("nothing is left in the target cluster", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            match (sight.nodes.len(), sight.tokens.len()) {
                (0, 0) => Ok(()),
                other => Err(format!("nodes, tokens: {other:?}")),
            }
        })
        .await;
}

/// Rows: pains 23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_ends_while_the_target_cluster_is_away_leaves_neither_node_nor_token_once_it_is_back() {
    let what = "a target cluster that goes away before a machine joins";
    ends_while_away(what, "away-left", Remover::Same).await;
}

/// Rows: pains 23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_leaves_neither_either_where_its_manager_dies_before_the_target_cluster_is_back() {
    let what = "a target cluster that comes back to another manager";
    ends_while_away(what, "away-next", Remover::Next).await;
}
