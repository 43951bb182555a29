//! A provider that refuses the credentials, as a user meets it: one machine finds out for all, all say so, and the right password in
//! the Secret is enough.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(90);
const MACHINES: u32 = 30;

async fn write_password(scene: &Scene, password: &str) {
    let body = json!({ "stringData": { "password": password } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&body));
    let patched = scene.secrets().patch(manifests::SECRET, &params, &patch).await;
    patched.expect("the Secret can be written");
}

/// How many creations the manager has sent that were refused.
async fn refused(scene: &Scene) -> u32 {
    let (_, text) = scene.manager.get("/metrics").await.unwrap();
    let counts = text.lines().filter(|line| {
        line.starts_with("millwright_driver_call_seconds_count")
            && line.contains("CreateMachine")
            && line.contains("CREDENTIALS_REJECTED")
    });
    counts
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap())
        .sum()
}

fn says_what_it_waits_for(machine: &Value) -> bool {
    let last = &machine["status"]["lastOperation"];
    let text = last["description"].as_str().unwrap_or_default();
    last["errorCode"] == "Unauthenticated" && text.contains("the cloud does not accept the password")
}

/// Rows: pains 104.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_tried_by_a_few_and_the_right_one_lets_all_machines_go() {
    let Some(plane) = shared_plane("a wrong password is tried by a few").await else {
        return;
    };
    let mut scene = Script::new("refused").begin(&plane).await;
    write_password(&scene, "wrong").await;
    scene.deploy(MACHINES).await;
    scene
        .until("every machine says what it waits for", LIMIT, async |scene: &Scene| {
            let machines = scene.list(Kind::Machine).await?;
            let waiting = machines
                .iter()
                .filter(|machine| says_what_it_waits_for(machine))
                .count();
            let all = usize::try_from(MACHINES).unwrap();
            (machines.len() == all && waiting == all)
                .then_some(())
                .ok_or(format!("{waiting} of {}", machines.len()))
        })
        .await;
    let first = refused(&scene).await;
    println!("{first} of {MACHINES} machines were refused");
    assert!((1..=8).contains(&first), "{first} calls for {MACHINES} machines");

    write_password(&scene, "right").await;
    scene.settled_at(usize::try_from(MACHINES).unwrap(), LIMIT).await;
    let last = refused(&scene).await;
    assert_eq!(last, first, "calls in vain after the password was right");
}
