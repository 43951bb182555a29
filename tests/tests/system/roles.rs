//! Manager and provider under the shipped roles: what they need is in them, and not much more.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use millwright_tests::accounts::may;
use millwright_tests::scene::shared_plane;
use millwright_tests::script::Script;

const LIMIT: Duration = Duration::from_secs(60);

/// Rows: R3, O3, O20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployments_life_needs_nothing_that_the_shipped_roles_do_not_give() {
    let Some(plane) = shared_plane("the shipped roles").await else {
        return;
    };
    let script = Script::new("roles").env("MILLWRIGHT_LEADER_ELECT", "true");
    let mut scene = script.begin(&plane).await;
    let manager = scene.accounts.manager.clone();
    for (group, resource, verb) in [
        ("", "pods", "create"),
        ("", "configmaps", "get"),
        ("", "secrets", "delete"),
        ("machine.sapcloud.io", "machinedeployments", "create"),
        ("machine.sapcloud.io", "machineclasses", "delete"),
    ] {
        let granted = may(&manager, Some(&scene.namespace), group, resource, verb)
            .await
            .unwrap();
        assert!(!granted, "the manager may {verb} {resource}: it is not under its role");
    }
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;
    scene.scale(1).await;
    scene.settled_at(1, LIMIT).await;
    scene.remove_all(LIMIT).await;
    for log in [scene.manager.service.log(), scene.provider.service.log()] {
        let refused: Vec<&str> = log.lines().filter(|line| is_refusal(line)).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}

/// "403" counts as a word only: times and ids contain it by chance.
fn is_refusal(line: &str) -> bool {
    let line = line.to_lowercase();
    let mut words = line.split(|char: char| !char.is_alphanumeric());
    line.contains("forbidden") || words.any(|word| word == "403")
}

#[test]
fn a_time_that_contains_403_is_no_refusal() {
    assert!(!is_refusal(
        "2026-11-23T19:27:31.640337Z  INFO delete roles-dg4g2 addr=127.0.0.1:40311"
    ));
    assert!(is_refusal("WARN ApiError: no (ErrorResponse { code: 403 })"));
    assert!(is_refusal("WARN secrets is forbidden: User cannot get it"));
}
