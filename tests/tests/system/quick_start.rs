//! The quick start as it is built: flags in, lines and an exit code out, with nothing on PATH that could build an API server.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, as it should; what is run by hand here waits by the clock"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use millwright_core::api::Machine;
use millwright_dev::process::Process;
use millwright_tests::programs::programs;
use tempfile::TempDir;

/// A run takes some forty seconds alone; other tests and builds may run beside it.
const PATIENCE: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(20);

/// A run of the quick start. Dropping it kills it.
struct Run {
    process: Process,
    dir: TempDir,
}

impl Run {
    async fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(&programs().await.quick_start);
        // setpriv is there; Go and kubectl are not needed.
        command.args(args).env("PATH", "/usr/bin:/bin");
        // The logs go with the test.
        command.env("CARGO_TARGET_DIR", dir.path());
        let process = Process::start("quick start", command, &dir.path().join("output")).unwrap();
        Self { process, dir }
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("output")).unwrap_or_default()
    }

    /// Waits for a line with this text and gives what follows it.
    async fn says(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            // Asked before reading: what it said last is read then.
            let over = !self.process.is_running() || Instant::now() > until;
            let output = self.output();
            if let Some(rest) = output.lines().find_map(|line| line.split_once(text)) {
                return rest.1.trim().to_owned();
            }
            assert!(!over, "never said {text:?}:\n{output}");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn ends_with(&mut self, code: i32) -> String {
        let status = self.process.wait(PATIENCE).await;
        let output = self.output();
        let status = status.unwrap_or_else(|| panic!("still running:\n{output}"));
        assert_eq!(status.code(), Some(code), "{output}");
        output
    }

    /// Ends it as Ctrl-C does.
    async fn leave(mut self) -> String {
        self.process.terminate();
        self.ends_with(0).await
    }

    async fn kubeconfig(&mut self) -> PathBuf {
        PathBuf::from(self.says("kubeconfig ").await)
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// The counts of all lines "N machines are PHASE".
fn counts<'a>(output: &'a str, phase: &str) -> Vec<&'a str> {
    let told = output
        .lines()
        .filter_map(|line| line.strip_suffix(phase)?.strip_suffix(" machines are "));
    told.filter_map(|line| line.split_whitespace().last()).collect()
}

#[tokio::test]
async fn once_shows_growth_a_lost_vm_a_drain_a_rollout_its_undoing_and_a_scale_down_and_ends_well() {
    let mut run = Run::start(&["--once"]).await;
    let output = run.ends_with(0).await;
    // Three, five, with the lost one replaced, with the drained one replaced, all of the changed template, all of the one before, three.
    assert_eq!(
        counts(&output, "Running"),
        ["3", "5", "5", "5", "5", "5", "3"],
        "{output}"
    );
    let after = |text: &str| -> usize { output.find(text).unwrap_or_else(|| panic!("no {text:?}:\n{output}")) };
    let order = [
        "scaling machinedeployment workers up: 3 -> 5",
        "switched the VM of",
        "is not well: ",
        "was replaced by",
        "wants both to stay",
        "deleted machine",
        "may not be evicted now",
        "$ millwright why machine/",
        "one may go",
        "its node was drained as the budget allowed",
        "changed the class of machinedeployment workers to",
        "undoing that",
        "scaling down: 5 -> 3",
    ];
    assert!(order.map(after).is_sorted(), "{output}");
    assert!(
        output.contains("done: 3 machines Running, 3 VMs at the provider"),
        "{output}"
    );
    let ready = output.lines().find(|line| line.contains("are ready")).unwrap();
    let seconds: f64 = ready
        .split_whitespace()
        .next()
        .unwrap()
        .trim_end_matches('s')
        .parse()
        .unwrap();
    // The promise is 2 s for a release build on a machine that does nothing else.
    assert!(seconds < 20.0, "{ready}");
}

/// What never changes of an object: name, uid, time of creation.
fn births(machines: &[Machine]) -> BTreeMap<String, (String, String)> {
    let birth = |machine: &Machine| {
        let created = machine.creation_timestamp().unwrap().0.to_string();
        (machine.name_any(), (machine.uid().unwrap().to_string(), created))
    };
    machines.iter().map(birth).collect()
}

#[tokio::test]
async fn with_data_a_kill_loses_nothing_that_was_answered_and_the_next_start_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let flag = format!("--data={}", data.path().display());
    let mut first = Run::start(&[&flag]).await;
    first.says("done: 3 machines Running").await;
    let api = client(&data.path().join("kubeconfig")).await;
    let before: Api<Machine> = Api::namespaced(api.clone(), "default");
    let before = before.list(&ListParams::default()).await.unwrap().items;
    let map = serde_json::from_value(serde_json::json!({ "metadata": { "name": "last" } })).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(api, "default");
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    first.process.kill();

    let mut second = Run::start(&[&flag]).await;
    second.says("API server ready").await;
    second.kubeconfig().await;
    let api = client(&data.path().join("kubeconfig")).await;
    let maps: Api<ConfigMap> = Api::namespaced(api.clone(), "default");
    assert_eq!(maps.get("last").await.unwrap(), made);
    let after: Api<Machine> = Api::namespaced(api, "default");
    let after = after.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(births(&after), births(&before));
    assert_eq!(before.len(), 3);
    second.says("done: 3 machines Running, 3 VMs at the provider").await;
    second.leave().await;
}

#[tokio::test]
async fn a_directory_that_another_run_uses_is_refused_and_so_is_one_that_cannot_be() {
    let data = tempfile::tempdir().unwrap();
    let flag = format!("--data={}", data.path().display());
    let mut first = Run::start(&[&flag]).await;
    first.says("API server ready").await;
    let refused = Run::start(&[&flag]).await.ends_with(1).await;
    assert!(
        refused.contains("is in use by another process: end the other quick start"),
        "{refused}"
    );
    let impossible = Run::start(&["--data=/dev/null/here"]).await.ends_with(1).await;
    assert!(
        impossible.contains("the directory /dev/null/here cannot be made"),
        "{impossible}"
    );
}

/// The simulated cloud as a user's own provider, started by hand.
async fn provider(dir: &Path) -> (Process, String) {
    let program = dir.join("millwright-provider-virtual");
    std::os::unix::fs::symlink(&programs().await.quick_start, &program).unwrap();
    let endpoint = format!("unix://{}", dir.join("own.sock").display());
    let mut command = Command::new(program);
    command.arg(format!("--listen={endpoint}"));
    let process = Process::start("provider", command, &dir.join("provider.log")).unwrap();
    (process, endpoint)
}

#[tokio::test]
async fn with_a_driver_of_ones_own_the_steps_that_need_the_simulated_cloud_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, endpoint) = provider(dir.path()).await;
    let mut run = Run::start(&["--once", "--no-nodes", "--driver", &endpoint]).await;
    let output = run.ends_with(0).await;
    assert!(output.contains("calls itself virtual"), "{output}");
    assert_eq!(counts(&output, "Available"), ["3", "5", "5", "5", "3"], "{output}");
    assert!(output.contains("3/3 available"), "{output}");
    assert!(output.contains("left out: switching a VM off"), "{output}");
    assert!(!output.contains("switched the VM"), "{output}");
}

#[tokio::test]
async fn manifests_for_another_driver_than_the_one_that_is_there_are_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, endpoint) = provider(dir.path()).await;
    let manifests = tempfile::tempdir().unwrap();
    let class = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {name: c}\nprovider: hello\n";
    std::fs::write(manifests.path().join("class.yaml"), class).unwrap();
    let flag = format!("--manifests={}", manifests.path().display());
    let output = Run::start(&["--once", "--driver", &endpoint, &flag])
        .await
        .ends_with(1)
        .await;
    assert!(
        output.contains("`provider: hello`, but the driver calls itself virtual"),
        "{output}"
    );
    assert!(!output.contains("API server"), "{output}");
}

#[tokio::test]
async fn a_socket_that_nobody_serves_is_named() {
    let output = Run::start(&["--once", "--driver=unix:///nowhere/own.sock"])
        .await
        .ends_with(1)
        .await;
    assert!(
        output.contains("no driver answers at unix:///nowhere/own.sock"),
        "{output}"
    );
    assert!(output.contains("start your provider first"), "{output}");
}

/// The code of a refusal; 0 for none.
fn code<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 0,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("not an answer of the API: {other}"),
    }
}

async fn lists<K>(api: Api<K>) -> u16
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    code(api.list(&ListParams::default()).await)
}

#[tokio::test]
async fn the_manager_and_the_cloud_may_do_what_they_need_and_nothing_else() {
    let mut run = Run::start(&[]).await;
    run.says("are ready").await;
    let dir = run.kubeconfig().await.parent().unwrap().to_owned();
    let manager = client(&dir.join("manager.kubeconfig")).await;
    let cloud = client(&dir.join("cloud.kubeconfig")).await;
    let secrets = |client: &Client, namespace: &str| lists(Api::<Secret>::namespaced(client.clone(), namespace));
    assert_eq!(secrets(&manager, "default").await, 0);
    // Bootstrap tokens tell what Machines that are gone have left.
    assert_eq!(secrets(&manager, "kube-system").await, 0);
    assert_eq!(secrets(&manager, "kube-public").await, 403);
    assert_eq!(lists(Api::<Secret>::all(manager.clone())).await, 403);
    assert_eq!(
        lists(Api::<ConfigMap>::namespaced(manager.clone(), "default")).await,
        403
    );
    assert_eq!(lists(Api::<Machine>::all(manager.clone())).await, 403);
    let node: Node = serde_json::from_value(serde_json::json!({ "metadata": { "name": "mine" } })).unwrap();
    let nodes = |client: &Client| Api::<Node>::all(client.clone());
    assert_eq!(lists(nodes(&manager)).await, 0);
    assert_eq!(code(nodes(&manager).create(&PostParams::default(), &node).await), 403);
    assert_eq!(code(nodes(&cloud).create(&PostParams::default(), &node).await), 0);
    assert_eq!(
        code(nodes(&cloud).delete("mine", &kube::api::DeleteParams::default()).await),
        403
    );
    assert_eq!(lists(nodes(&cloud)).await, 403);
    assert_eq!(secrets(&cloud, "default").await, 403);
    assert_eq!(lists(Api::<Machine>::namespaced(cloud, "default")).await, 403);
}
