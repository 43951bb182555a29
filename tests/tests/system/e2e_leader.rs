//! Two managers and one Lease on a real API server: one works, the other takes over.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use millwright_tests::fleet::Manager;
use millwright_tests::laws;
use millwright_tests::scene::{Scene, shared_plane};
use millwright_tests::script::Script;
use millwright_tests::service::eventually;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);
/// The Lease's 15 s, a look each 2 s, and a slow machine.
const TAKE_OVER: Duration = Duration::from_secs(20);
const LEADS: &str = "this process leads";
const STANDS_AGAIN: &str = "this process stands for the lead again";

async fn holder(scene: &Scene) -> String {
    let leases: Api<Lease> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let lease = leases.get_opt("millwright").await.expect("leases can be read");
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

async fn with_a_standby(name: &str) -> Option<(Scene, Manager)> {
    let plane = shared_plane(name).await?;
    let script = Script::new(name).env("MILLWRIGHT_LEADER_ELECT", "true");
    let scene = script.begin(&plane).await;
    scene.manager.service.wait_for_log(LEADS, LIMIT).await;
    let standby = scene.another_manager().await;
    standby
        .service
        .wait_for_log("every watch has its first list", LIMIT)
        .await;
    Some((scene, standby))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_takes_over_from_a_killed_leader_and_makes_no_vm_twice() {
    let Some((mut scene, standby)) = with_a_standby("lead-kill").await else {
        return;
    };
    assert!(!standby.service.log().contains(LEADS), "two lead");
    let first = holder(&scene).await;
    scene.deploy(0).await;
    scene.scale(10).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let killed = Instant::now();
    scene.manager.service.kill();
    standby.service.wait_for_log(LEADS, LIMIT).await;
    let took = killed.elapsed();
    println!(
        "the standby led {:.1} s after the leader was killed",
        took.as_secs_f64()
    );
    assert!(took <= TAKE_OVER, "{took:?}");
    assert_ne!(holder(&scene).await, first);
    scene.settled_at(10, LIMIT).await;
    let journal = scene.journal().await.unwrap();
    laws::one_vm_a_machine(&journal).unwrap();
    assert_eq!(laws::vms_made(&journal), 10);
}

/// Rows: W48.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_in_order_hands_over_at_once() {
    let Some((mut scene, standby)) = with_a_standby("lead-stop").await else {
        return;
    };
    scene.deploy(2).await;
    scene.settled_at(2, LIMIT).await;
    let asked = Instant::now();
    let status = scene.manager.service.stop(Duration::from_secs(15)).await;
    assert!(status.success(), "{}", scene.manager.service.log_tail());
    standby.service.wait_for_log(LEADS, LIMIT).await;
    let took = asked.elapsed();
    println!(
        "the standby led {:.1} s after the leader was asked to stop",
        took.as_secs_f64()
    );
    assert!(took <= Duration::from_secs(8), "{took:?}: the lease was not given up");
    scene.scale(3).await;
    scene.settled_at(3, LIMIT).await;
}

/// Rows: pains 34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_frozen_past_its_lease_writes_nothing_more_and_stands_by() {
    let Some((mut scene, standby)) = with_a_standby("lead-freeze").await else {
        return;
    };
    scene.deploy(2).await;
    scene.settled_at(2, LIMIT).await;
    signal(scene.manager.service.pid(), rustix::process::Signal::STOP);
    standby.service.wait_for_log(LEADS, LIMIT).await;
    scene.scale(6).await;
    signal(scene.manager.service.pid(), rustix::process::Signal::CONT);
    scene.settled_at(6, LIMIT).await;
    let both = [&scene.manager.service, &standby.service];
    let stands = || match scene.manager.service.log().contains(STANDS_AGAIN) {
        true => Ok(()),
        false => Err("not there"),
    };
    eventually("the thawed leader stands by", LIMIT, &both, async || stands()).await;
    let journal = scene.journal().await.unwrap();
    laws::one_vm_a_machine(&journal).unwrap();
    assert_eq!(laws::vms_made(&journal), 6);
}

/// To the process alone: its own group has nobody else.
fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the process is ours");
}
