//! `rollout undo`, `pause`, `resume` and `restart`.

use std::time::Duration;

use millwright_core::api::keys;
use serde_json::json;

use crate::history::with_two_revisions;

const NAME: &str = "machinedeployment.machine.sapcloud.io/workers";

#[tokio::test]
async fn an_undo_asks_for_the_previous_revision_and_for_no_other_until_that_is_done() {
    let cluster = with_two_revisions().await;
    let out = cluster.run("rollout undo machinedeployment/workers").await.well();
    assert_eq!(out, format!("{NAME} rolled back to revision 1\n"));
    assert_eq!(cluster.workers().await.spec.rollback_to.unwrap().revision, 1);
    let said = cluster.run("rollout undo workers -n default").await.badly(1);
    assert_eq!(
        said,
        "error: machinedeployment \"workers\": a rollback to revision 1 is requested already and not carried out yet \
         (millwright rollout status workers -n default follows it)\n"
    );
    let out = cluster.run("rollout status workers --watch=false").await.well();
    assert!(out.contains("has not been"), "{out}");
}

#[tokio::test]
async fn an_undo_that_cannot_be_says_why_and_writes_nothing() {
    let cluster = with_two_revisions().await;
    let before = cluster.workers().await;
    let said = cluster.run("rollout undo workers --to-revision=5").await.badly(1);
    assert!(said.contains("there is no revision 5; there are 1, 2"), "{said}");
    let out = cluster.run("rollout undo workers --to-revision 2").await.well();
    let skipped = format!("{NAME} skipped rollback (current template already matches revision 2)\n");
    assert_eq!(out, skipped);
    for (flag, how) in [
        ("--dry-run", "server"),
        ("--dry-run=server", "server"),
        ("--dry-run=client", "client"),
    ] {
        let out = cluster.run(&format!("rollout undo workers {flag}")).await.well();
        let told = format!("# {NAME} would be rolled back to revision 1 ({how} dry run)");
        assert!(out.starts_with(&told), "{out}");
        assert!(out.contains("name: small"), "{out}");
    }
    let said = cluster.run("rollout undo workers --dry-run=maybe").await.badly(2);
    assert!(said.contains("none, server, client"), "{said}");
    assert_eq!(cluster.workers().await, before);

    cluster.edit("workers", json!({ "spec": { "paused": true } })).await;
    let said = cluster.run("rollout undo workers").await.badly(1);
    assert_eq!(
        said,
        "error: machinedeployment \"workers\": it is paused: resume it first (millwright rollout resume workers)\n"
    );
    assert_eq!(cluster.workers().await.spec.rollback_to, None);
}

#[tokio::test]
async fn an_undo_with_dry_run_none_is_carried_out() {
    let cluster = with_two_revisions().await;
    let out = cluster.run("rollout undo workers --dry-run=none").await.well();
    assert_eq!(out, format!("{NAME} rolled back to revision 1\n"));
    assert_eq!(cluster.workers().await.spec.rollback_to.unwrap().revision, 1);
}

#[tokio::test]
async fn a_deployment_is_paused_once_and_resumed_once() {
    let cluster = with_two_revisions().await;
    assert_eq!(
        cluster.run("rollout pause workers").await.well(),
        format!("{NAME} paused\n")
    );
    assert!(cluster.workers().await.spec.paused);
    let said = cluster.run("rollout pause workers").await.badly(1);
    assert_eq!(said, "error: machinedeployment \"workers\": it is already paused\n");
    assert_eq!(
        cluster.run("rollout resume workers").await.well(),
        format!("{NAME} resumed\n")
    );
    assert!(!cluster.workers().await.spec.paused);
    let said = cluster.run("rollout resume mcd workers").await.badly(1);
    assert_eq!(said, "error: machinedeployment \"workers\": it is not paused\n");
}

#[tokio::test]
async fn a_restart_changes_nothing_of_the_template_but_an_annotation() {
    let cluster = with_two_revisions().await;
    let before = cluster.workers().await;
    assert_eq!(
        cluster.run("rollout restart workers").await.well(),
        format!("{NAME} restarted\n")
    );
    let after = cluster.workers().await;
    let annotations = after.spec.template.annotations();
    let time: jiff::Timestamp = annotations[keys::RESTARTED_AT].parse().unwrap();
    assert!(Some(time.as_second()) >= before.metadata.creation_timestamp.map(|time| time.0.as_second()));
    let mut template = serde_json::Value::Object(after.spec.template.as_json().clone());
    template["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(
        template,
        serde_json::Value::Object(before.spec.template.as_json().clone())
    );

    cluster.edit("workers", json!({ "spec": { "paused": true } })).await;
    let said = cluster.run("rollout restart workers").await.badly(1);
    assert!(said.contains("it is paused: resume it first"), "{said}");
}

#[tokio::test]
async fn an_order_is_given_also_while_the_status_is_written_all_the_time() {
    let cluster = with_two_revisions().await;
    let writes = async {
        for round in 0_i32.. {
            cluster.numbers([round % 3, 3, 3]).await;
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    };
    let orders = async {
        cluster.run("rollout pause workers").await.well();
        cluster.run("rollout resume workers").await.well();
        cluster.run("rollout undo workers").await.well();
    };
    tokio::select! {
        () = orders => {}
        () = writes => panic!("the status is written for ever"),
    }
    assert_eq!(cluster.workers().await.spec.rollback_to.unwrap().revision, 1);
}
