//! `millwright rollout` and `tree` on the real API server, beside the real manager: what a user types in the course of a rollout.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use millwright_tests::programs::programs;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::json;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(60);

/// What a command printed, and its exit code.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// `millwright ARGS` in the scene's namespace.
pub(crate) async fn millwright(scene: &Scene, args: &[&str]) -> Said {
    let output = Command::new(&programs().await.manager)
        .args(args)
        .args(["--namespace", &scene.namespace, "--kubeconfig"])
        .arg(scene.plane.kubeconfig())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    println!("$ millwright {}\n{out}{err}", args.join(" "));
    Said {
        code: output.status.code().unwrap(),
        out,
        err,
    }
}

async fn note(scene: &Scene, note: &str) {
    let change = json!({ "spec": { "template": { "metadata": { "annotations": { "note": note } } } } });
    scene.patch(Kind::Deployment, &scene.namespace, change).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_is_followed_paused_resumed_and_undone_by_command() {
    let Some(plane) = shared_plane("rollout commands").await else {
        return;
    };
    let mut scene = Script::new("command").begin(&plane).await;
    let target = format!("mcd/{}", scene.namespace);
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;

    note(&scene, "two").await;
    let followed = millwright(&scene, &["rollout", "status", &target, "--timeout", "60s"]).await;
    assert_eq!(followed.code, 0, "{}", followed.err);
    assert!(followed.out.contains("successfully rolled out"), "{}", followed.out);
    scene.settled_at(3, LIMIT).await;

    let paused = millwright(&scene, &["rollout", "pause", &target]).await;
    assert_eq!(paused.code, 0, "{}", paused.err);
    note(&scene, "three").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sight = scene.look().await.unwrap();
    let is_third = |machine: &&serde_json::Value| machine["metadata"]["annotations"]["note"] == "three";
    assert_eq!(
        sight.machines.iter().filter(is_third).count(),
        0,
        "nothing moves while it is paused"
    );

    assert_eq!(millwright(&scene, &["rollout", "resume", &target]).await.code, 0);
    let followed = millwright(&scene, &["rollout", "status", &target, "--timeout", "60s"]).await;
    assert_eq!(followed.code, 0, "{}", followed.err);
    let history = millwright(&scene, &["rollout", "history", &target]).await;
    let revisions: Vec<&str> = history
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(
        ["1", "2", "3"].iter().all(|revision| revisions.contains(revision)),
        "{}",
        history.out
    );

    assert_eq!(
        millwright(&scene, &["rollout", "undo", &target, "--to-revision", "2"])
            .await
            .code,
        0
    );
    let followed = millwright(&scene, &["rollout", "status", &target, "--timeout", "60s"]).await;
    assert_eq!(followed.code, 0, "{}", followed.err);
    let sight = scene.settled_at(3, LIMIT).await;
    for machine in &sight.machines {
        assert_eq!(machine["metadata"]["annotations"]["note"], "two", "{machine:#}");
    }
    let tree = millwright(&scene, &["tree", &target]).await;
    assert_eq!(tree.code, 0, "{}", tree.err);
    for machine in &sight.machines {
        let name = machine["metadata"]["name"].as_str().unwrap();
        assert!(tree.out.contains(name), "{name} is not in\n{}", tree.out);
    }
}
