//! `rollout status`.

use kube::api::DeleteParams;
use millwright_core::api::MachineDeployment;
use serde_json::json;

use crate::cluster::{Cluster, begin, command};
use crate::relay::Relay;

const DONE: &str = "machinedeployment \"workers\" successfully rolled out";

fn waiting(what: &str) -> String {
    format!("Waiting for machinedeployment \"workers\" rollout to finish: {what}...")
}

/// The error behind the note that nobody works on the rollout.
#[track_caller]
fn behind_note(said: &str) -> &str {
    let note = "note: no manager leads in namespace \"default\", so nothing changes until one does: \
        no Lease there tells the settings of a manager\n";
    said.strip_prefix(note).unwrap_or_else(|| panic!("no note: {said}"))
}

#[tokio::test]
async fn a_complete_rollout_is_told_and_ends_well() {
    let cluster = Cluster::start().await;
    cluster.deployment().await;
    cluster.numbers([3, 3, 3]).await;
    for target in [
        "workers",
        "machinedeployment/workers",
        "mcd workers",
        "workers --revision 2",
    ] {
        let ended = cluster.run(&format!("rollout status {target}")).await;
        assert_eq!(ended.well(), format!("{DONE}\n"), "{target}");
    }
}

#[tokio::test]
async fn each_change_is_a_line_until_the_rollout_is_complete() {
    let cluster = Cluster::start().await;
    cluster.deployment().await;
    let mut follows = cluster.begin("rollout status machinedeployment/workers");
    let unobserved = waiting("the changed spec has not been observed");
    assert_eq!(follows.line().await, Some(unobserved));
    for (numbers, told) in [
        ([1, 3, 3], "1 out of 3 new machines have been made"),
        ([3, 5, 4], "2 old machines are pending termination"),
        ([3, 3, 2], "2 of 3 updated machines are available"),
    ] {
        cluster.numbers(numbers).await;
        assert_eq!(follows.line().await, Some(waiting(told)));
        // The same once more is no change.
        cluster
            .edit(
                "workers",
                json!({ "metadata": { "labels": { "seen": told.replace(' ', "-") } } }),
            )
            .await;
    }
    cluster.numbers([3, 3, 3]).await;
    assert_eq!(follows.ended().await.well(), format!("{DONE}\n"));
}

#[tokio::test]
async fn what_was_missed_while_a_watch_was_broken_is_told_when_it_is_not() {
    let cluster = Cluster::start().await;
    cluster.deployment().await;
    cluster.numbers([1, 3, 3]).await;
    let relay = Relay::to(cluster.server.addr()).await;
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let text = text.replace(&cluster.server.url(), &format!("http://{}", relay.addr));
    let mut follows = begin(command("rollout status workers --kubeconfig").arg(cluster.file("relayed", &text)));
    let made = waiting("1 out of 3 new machines have been made");
    assert_eq!(follows.line().await, Some(made));
    cluster.numbers([2, 3, 3]).await;
    let made = waiting("2 out of 3 new machines have been made");
    assert_eq!(follows.line().await, Some(made), "the watch is there");
    relay.cut();
    cluster.numbers([3, 3, 3]).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    relay.mend();
    assert_eq!(follows.ended().await.well(), format!("{DONE}\n"));
}

#[tokio::test]
async fn a_rollout_that_has_failed_ends_with_the_controllers_words() {
    let cluster = Cluster::start().await;
    cluster.deployment().await;
    cluster.numbers([1, 3, 3]).await;
    let mut follows = cluster.begin("rollout status workers");
    assert!(follows.line().await.is_some());
    let condition = json!({ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "message": "MachineSet \"workers-2\" has timed out progressing: no quota." });
    let told: MachineDeployment = cluster
        .tell("workers", json!({ "status": { "conditions": [condition] } }))
        .await;
    assert_eq!(told.status.unwrap().conditions.len(), 1);
    assert_eq!(
        behind_note(&follows.ended().await.badly(1)),
        "error: machinedeployment \"workers\": the rollout has failed: MachineSet \"workers-2\" has timed out progressing: \
         no quota. (ProgressDeadlineExceeded)\n"
    );
}

/// Progressing as the controller tells it when no machine will move before somebody changes the spec.
async fn stuck(cluster: &Cluster, reason: &str, message: &str) {
    let condition = json!({ "type": "Progressing", "status": "False", "reason": reason, "message": message });
    let told: MachineDeployment = cluster
        .tell("workers", json!({ "status": { "conditions": [condition] } }))
        .await;
    assert_eq!(told.status.unwrap().conditions.len(), 1);
}

#[tokio::test]
async fn what_waiting_cannot_heal_ends_the_wait_also_where_the_numbers_match() {
    let faults = [
        (
            "InvalidConfiguration",
            "spec.minReadySeconds is -1: it must not be negative",
        ),
        ("InPlaceUpdateNotSupported", "machines keep the old template."),
    ];
    for (reason, message) in faults {
        let cluster = Cluster::start().await;
        cluster.deployment().await;
        cluster.numbers([1, 3, 3]).await;
        let mut follows = cluster.begin("rollout status workers");
        assert!(follows.line().await.is_some());
        stuck(&cluster, reason, message).await;
        let said = format!("error: machinedeployment \"workers\": the rollout has failed: {message} ({reason})\n");
        assert_eq!(behind_note(&follows.ended().await.badly(1)), said);

        cluster.numbers([3, 3, 3]).await;
        stuck(&cluster, reason, message).await;
        for words in ["rollout status workers", "rollout status workers --watch=false"] {
            assert_eq!(cluster.run(words).await.badly(1), said, "{words}");
        }
    }
}

#[tokio::test]
async fn an_order_to_roll_back_of_a_deployment_that_cannot_work_is_not_waited_for() {
    let cluster = Cluster::start().await;
    cluster.deployment().await;
    cluster
        .edit("workers", json!({ "spec": { "rollbackTo": { "revision": 1 } } }))
        .await;
    cluster.numbers([3, 3, 3]).await;
    stuck(&cluster, "InvalidConfiguration", "spec.selector is missing").await;
    let said = cluster.run("rollout status workers").await.badly(1);
    assert!(said.contains("spec.selector is missing"), "{said}");
}

#[tokio::test]
async fn after_the_timeout_what_progressing_says_is_told() {
    let cluster = Cluster::start().await;
    cluster.deployment().await;
    cluster.numbers([1, 3, 3]).await;
    let said = cluster.run("rollout status workers --timeout 500ms").await.badly(1);
    assert_eq!(
        behind_note(&said),
        "error: machinedeployment \"workers\": not complete after 500ms: MachineSet \"workers-2\" is progressing.\n"
    );
}

#[tokio::test]
async fn without_a_watch_the_present_is_told_and_is_no_failure() {
    let cluster = Cluster::start().await;
    cluster.deployment().await;
    cluster.numbers([1, 3, 3]).await;
    let out = cluster.run("rollout status workers --watch=false").await.well();
    assert_eq!(out, waiting("1 out of 3 new machines have been made") + "\n");
    cluster.edit("workers", json!({ "spec": { "paused": true } })).await;
    cluster.numbers([1, 3, 3]).await;
    let out = cluster.run("rollout status workers -w=false").await.well();
    assert!(out.ends_with("... (the deployment is paused)\n"), "{out}");
}

#[tokio::test]
async fn another_revision_and_a_deployment_that_goes_are_failures() {
    let cluster = Cluster::start().await;
    cluster.deployment().await;
    cluster.numbers([1, 3, 3]).await;
    let said = cluster.run("rollout status workers --revision 1").await.badly(1);
    assert!(
        said.contains("revision 1 is wanted, and revision 2 is running"),
        "{said}"
    );

    let mut follows = cluster.begin("rollout status workers");
    assert!(follows.line().await.is_some());
    let api = cluster.api::<MachineDeployment>();
    api.delete("workers", &DeleteParams::default()).await.unwrap();
    let said = follows.ended().await.badly(1);
    assert!(
        said.contains("it was deleted") || said.contains("it is being deleted"),
        "{said}"
    );
}
