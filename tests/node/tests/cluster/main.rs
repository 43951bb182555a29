//! Clusters with real nodes: what is promised of a node's life, and that nothing of a cluster is left behind. Needs root; see
//! `millwright_node::requirement` for what happens without.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod traces;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use millwright_node::{Cluster, Kit, requirement};

use crate::traces::Traces;

/// A node is NotReady after 20 s of silence (`NODE_GRACE`), a pod runs within seconds; the rest is for a machine that is busy.
const LONG: Duration = Duration::from_secs(150);

/// Asks until kubectl's answer is `wanted`.
fn await_answer(cluster: &Cluster, wanted: &str, args: &[&str]) {
    let began = Instant::now();
    loop {
        let answer = cluster.kubectl(args);
        if answer.as_ref().is_ok_and(|answer| answer.trim() == wanted) {
            return;
        }
        assert!(
            began.elapsed() < LONG,
            "kubectl {args:?} should say {wanted:?}: {answer:?}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn run_pod(cluster: &Cluster, name: &str, script: &str) {
    let image = "--image=mw.local/box:1";
    let args = ["run", name, image, "--command", "--", "sh", "-c", script];
    cluster.kubectl(&args).unwrap();
}

fn await_ready(cluster: &Cluster, node: &str, wanted: &str) {
    let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    await_answer(cluster, wanted, &["get", "node", node, "-o", path]);
}

fn boot_id(cluster: &Cluster, node: &str) -> String {
    let path = "jsonpath={.status.nodeInfo.bootID}";
    cluster.kubectl(&["get", "node", node, "-o", path]).unwrap()
}

fn await_pod(cluster: &Cluster, pod: &str, wanted: &str, path: &str) {
    let path = format!("jsonpath={{{path}}}");
    await_answer(cluster, wanted, &["get", "pod", pod, "-o", &path]);
}

#[test]
fn a_node_joins_by_its_token_runs_pods_and_comes_back_after_a_power_cut() {
    let what = "a node joins by its token, runs pods and comes back after a power cut";
    let Some(cluster) = requirement::start(what) else {
        return;
    };
    let machine = traces::network_of_the_machine();

    // The token asks for a certificate, the controller manager grants it, and the node is Ready.
    cluster.boot("n1").unwrap();
    let token = std::fs::read_to_string(cluster.dir().join("token")).unwrap();
    let (id, _) = token.split_once('.').unwrap();
    let requests = cluster
        .kubectl(&[
            "get",
            "csr",
            "-o",
            "jsonpath={range .items[*]}{.spec.username} {.status.conditions[*].type}\n{end}",
        ])
        .unwrap();
    assert_eq!(requests.trim(), format!("system:bootstrap:{id} Approved"));

    // The scheduler, kubelet and containerd make a pod of what the API server is told.
    await_answer(
        &cluster,
        "default",
        &["get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}"],
    );
    run_pod(&cluster, "lives", "echo it runs; sleep infinity");
    await_answer(&cluster, "it runs", &["logs", "lives"]);

    // A power cut takes all processes at once, and Kubernetes notices by the silence.
    let first_boot = boot_id(&cluster, "n1");
    assert_eq!(cluster.powered_on().unwrap(), ["n1"]);
    cluster.cut_power("n1").unwrap();
    assert!(cluster.powered_on().unwrap().is_empty());
    await_ready(&cluster, "n1", "Unknown");

    // The second boot has the first one's disk: its certificate, so that it asks for none, and its pods, which start again.
    cluster.boot("n1").unwrap();
    assert_ne!(boot_id(&cluster, "n1"), first_boot);
    await_pod(&cluster, "lives", "1", ".status.containerStatuses[0].restartCount");
    await_answer(&cluster, "it runs", &["logs", "lives"]);
    let requests = cluster.kubectl(&["get", "csr", "-o", "name"]).unwrap();
    assert_eq!(requests.lines().count(), 1, "{requests}");

    // A cordoned node gets no new pod; another one does.
    cluster.cordon("n1").unwrap();
    cluster.boot("n2").unwrap();
    run_pod(&cluster, "elsewhere", "sleep infinity");
    await_pod(&cluster, "elsewhere", "n2 Running", ".spec.nodeName} {.status.phase");
    cluster.uncordon("n1").unwrap();

    // The machine had nothing of it but files and cgroups, and has nothing of it now.
    assert_eq!(traces::network_of_the_machine(), machine);
    let traces = Traces::of(cluster.dir());
    assert!(
        traces.processes() > 10,
        "a cluster with two nodes is more than {traces:?}"
    );
    cluster.down().unwrap();
    traces.assert_gone();
}

#[test]
fn a_cluster_ends_with_the_process_that_started_it_though_that_is_killed() {
    let what = "a cluster ends with the process that started it though that is killed";
    if requirement::kit(what).is_none() {
        return;
    }
    // This very program in another process, as a test that gets killed.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "holds_a_cluster_until_it_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let dir = lines
        .map(Result::unwrap)
        .find_map(|line| line.split_once("cluster: ").map(|(_, dir)| dir.to_owned()))
        .unwrap();
    let traces = Traces::of(Path::new(&dir));
    assert!(traces.processes() > 5, "a cluster with a node is more than {traces:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    traces.assert_gone();
    // The folder around the cluster's files is what the killed process would have removed.
    std::fs::remove_dir(Path::new(&dir).parent().unwrap()).unwrap();
}

/// The victim of the test above.
#[test]
#[ignore = "it waits to be killed"]
fn holds_a_cluster_until_it_is_killed() {
    let cluster = Cluster::start(&Kit::find().unwrap()).unwrap();
    cluster.boot_with("n1", &[("NODE_WAIT", "0")]).unwrap();
    println!("cluster: {}", cluster.dir().display());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn nothing_of_a_cluster_runs_on_when_its_holder_is_killed_and_down_removes_the_rest() {
    let what = "nothing of a cluster runs on when its holder is killed";
    let Some(cluster) = requirement::start(what) else {
        return;
    };
    cluster.boot_with("n1", &[("NODE_WAIT", "0")]).unwrap();
    let traces = Traces::of(cluster.dir());
    let holder = std::fs::read_to_string(cluster.dir().join("holder.pid")).unwrap();
    let kill = Command::new("kill").args(["-9", holder.trim()]).status().unwrap();
    assert!(kill.success());
    traces.assert_ended();
    cluster.down().unwrap();
    traces.assert_gone();
}

#[test]
fn what_cannot_be_done_is_named() {
    let what = "what cannot be done is named";
    let Some(cluster) = requirement::start(what) else {
        return;
    };
    let fault = |result: Result<(), millwright_node::Error>| result.unwrap_err().to_string();
    assert!(fault(cluster.boot("Not_A_Name")).contains("bad name of a node: Not_A_Name"));
    assert!(fault(cluster.cut_power("nobody")).contains("no node nobody"));
    assert!(fault(cluster.load(Path::new("/does/not/exist.tar"))).contains("/does/not/exist.tar"));

    // A folder that was made for a node's first boot, which never came, is no obstacle.
    std::fs::create_dir(cluster.dir().join("nodes/never")).unwrap();
    cluster.remove("never").unwrap();
    assert!(!cluster.dir().join("nodes/never").exists());

    let kit = Kit::find().unwrap();
    let fault = |dir: &Path, args: &[&str]| {
        let output = kit.node_sh(dir).args(args).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let nowhere = kit.clusters().join("no-cluster-is-here");
    assert!(fault(&nowhere, &["add", "n1"]).contains("there is no cluster in"));
    assert!(fault(cluster.dir(), &["hold"]).contains("there is a cluster in"));
    // A folder with other things in it would be removed in the end, and is refused.
    let full = kit.clusters();
    assert!(fault(full, &["hold"]).contains("is not empty"));
    assert!(full.is_dir());
}

#[test]
fn a_program_sees_the_network_of_the_cluster_or_starts_nodes_from_beside_it() {
    let what = "a program sees the network of the cluster or starts nodes from beside it";
    let Some(cluster) = requirement::start(what) else {
        return;
    };
    let output = |mut command: Command, script: &str| {
        let output = command.args(["-c", script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let inside = output(cluster.command(Path::new("sh")), "kubectl get --raw /readyz");
    assert_eq!(inside, "ok");
    output(cluster.beside(Path::new("sh")), r#"NODE_WAIT=0 bash "$NODE_SH" add n1"#);
    assert_eq!(cluster.powered_on().unwrap(), ["n1"]);
}
