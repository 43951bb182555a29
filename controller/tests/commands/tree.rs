//! `tree`, and the binary as a plugin of kubectl.

use futures::StreamExt as _;
use millwright_core::api::{Machine, MachineSet};
use serde_json::{Value, json};

use crate::cluster::{Cluster, called, run, template};
use crate::history::with_two_revisions;

fn machine(name: &str, set: Option<&MachineSet>, phase: &str) -> Value {
    let owners: Vec<Value> = set
        .iter()
        .map(|set| {
            json!({ "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": set.metadata.name,
                "uid": set.metadata.uid, "controller": true })
        })
        .collect();
    json!({
        "metadata": { "name": name, "ownerReferences": owners },
        "spec": template("small")["spec"],
        "status": {
            "currentStatus": { "phase": phase },
            "lastOperation": { "description": "Cloud provider message: no quota", "state": "Failed", "type": "Create" },
        },
    })
}

/// The lines of a table as words, without its head.
fn words(out: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    out.lines().skip(1).map(words).collect()
}

#[tokio::test]
async fn the_tree_shows_whose_is_what_and_what_nobody_controls() {
    let cluster = with_two_revisions().await;
    let set: MachineSet = cluster.api().get("workers-2").await.unwrap();
    let _: Machine = cluster
        .store(machine("workers-2-a", Some(&set), "CrashLoopBackOff"))
        .await;
    let _: Machine = cluster.store(machine("own", None, "Pending")).await;
    let out = cluster.run("tree").await.well();
    let lines = words(&out);
    let starts = [
        "machinedeployment/workers 0/3 available 2 large",
        "├─ machineset/workers-2 1/1 available 2 large",
        "│ └─ machine/workers-2-a CrashLoopBackOff small",
        "└─ machineset/workers-1 1/1 available 1 small",
        "(controlled by nobody)",
        "└─ machine/own Pending small",
    ];
    assert_eq!(lines.len(), starts.len(), "{out}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line:?} is not {start:?} in\n{out}");
    }
    assert!(lines[2].ends_with("Cloud provider message: no quota"), "{out}");

    let one = cluster.run("tree machinedeployment/workers").await.well();
    assert_eq!(words(&one).len(), 4, "{one}");
    let all = cluster.run("tree -A").await.well();
    assert!(words(&all)[0].starts_with("default machinedeployment/workers"), "{all}");
    assert_eq!(all.lines().count(), out.lines().count());
}

#[tokio::test]
async fn lists_of_several_pages_are_read_to_their_end() {
    let cluster = Cluster::start().await;
    let stored = futures::stream::iter(0..1203).map(|number| {
        let body = json!({ "metadata": { "name": format!("m-{number}") }, "spec": template("small")["spec"] });
        cluster.store::<Machine>(body)
    });
    stored.buffer_unordered(16).for_each(|_| std::future::ready(())).await;
    let out = cluster.run("tree").await.well();
    assert_eq!(out.lines().filter(|line| line.contains("machine/m-")).count(), 1203);
}

#[tokio::test]
async fn where_there_is_nothing_that_is_said_and_is_no_failure() {
    let cluster = Cluster::start().await;
    let ended = cluster.run("tree -n elsewhere").await;
    assert!(
        ended
            .err
            .contains("there are no machinedeployments, machinesets or machines in namespace \"elsewhere\""),
        "{ended:?}"
    );
    assert_eq!(ended.well(), "");
}

#[tokio::test]
async fn as_a_plugin_of_kubectl_it_calls_itself_so() {
    let cluster = with_two_revisions().await;
    let plugin = cluster.dir.path().join("kubectl-machine");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_millwright"), &plugin).unwrap();
    let help = run(&mut called(&plugin, "rollout undo --help")).await.well();
    assert!(
        help.contains("Usage: kubectl machine rollout undo [OPTIONS] <MACHINEDEPLOYMENT>"),
        "{help}"
    );
    let with = |words: &str| {
        let mut command = called(&plugin, words);
        command.env("KUBECONFIG", cluster.kubeconfig());
        command
    };
    run(&mut with("rollout pause workers")).await.well();
    let said = run(&mut with("rollout restart workers")).await.badly(1);
    assert!(said.contains("(kubectl machine rollout resume workers)"), "{said}");
}
