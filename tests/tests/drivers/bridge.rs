//! Drivers that exist, in Go: the kit for authors and the bridge for drivers of Gardener's machine-controller-manager, by their own tests and
//! under the real manager.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use millwright_dev::apiserver::binaries::{target_dir, workspace_root};
use millwright_dev::process;
use millwright_tests::fleet::Manager;
use millwright_tests::requirement;
use millwright_tests::scene::{Kind, shared_plane};
use millwright_tests::service::{Recipe, Service, eventually, log_in};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);
const MACHINES: usize = 20;

/// `go` in the module, if there is Go.
fn go(what: &str) -> Option<Command> {
    let Some(go) = process::on_path("go") else {
        requirement::skip(what, "there is no Go (https://go.dev/dl) on PATH");
        return None;
    };
    let mut command = Command::new(go);
    command
        .current_dir(workspace_root().join("provider-sdk/go"))
        .env("GOFLAGS", "-mod=readonly -buildvcs=false")
        .stdin(Stdio::null());
    Some(command)
}

/// Runs it in a thread of its own: building takes a minute when nothing is cached.
async fn passes(mut command: Command) {
    let told = format!("{command:?}");
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{told}: {}\n{out}{err}", output.status);
}

#[tokio::test]
async fn the_kit_and_the_bridge_in_go_pass_their_own_tests() {
    for words in [&["vet", "./..."][..], &["test", "./..."]] {
        let Some(mut command) = go("the Go kit's own tests") else {
            return;
        };
        command.args(words);
        passes(command).await;
    }
}

/// The look-alike of a driver of the original, its VMs as files.
struct LookAlike {
    service: Service,
    endpoint: String,
    cloud: PathBuf,
}

impl LookAlike {
    async fn start(dir: &Path) -> Option<Self> {
        let program = target_dir().join("harness").join("lookalike");
        let mut build = go("the bridge under the real manager")?;
        build.arg("build").arg("-o").arg(&program).arg("./bridge/cmd/lookalike");
        passes(build).await;
        let (socket, cloud) = (dir.join("lookalike.sock"), dir.join("lookalike-cloud"));
        let endpoint = format!("unix://{}", socket.display());
        let args = ["--listen", &endpoint, "--driver-name", "lookalike", "--cloud"];
        let service = Service::start(Recipe {
            name: "lookalike".to_owned(),
            program,
            args: args
                .map(str::to_owned)
                .into_iter()
                .chain([cloud.display().to_string()])
                .collect(),
            env: Vec::new(),
            log: log_in(dir, "lookalike"),
        });
        Some(Self {
            service,
            endpoint,
            cloud,
        })
    }

    /// The uids of the Machines whose VMs there are, one for each VM.
    fn vms(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.cloud)
            .into_iter()
            .flatten()
            .map(|file| file.unwrap().path());
        let is_vm = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
        let texts = files.filter(is_vm).filter_map(|path| std::fs::read(path).ok());
        texts
            .map(|text| {
                serde_json::from_slice::<Value>(&text).unwrap()["uid"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }
}

const MANIFESTS: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: user-data}
stringData: {userData: "nobody boots from this", token: secret-token}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {name: small}
provider: lookalike
providerSpec:
  size: 3
  tags: {kubernetes.io/cluster/demo: "1", kubernetes.io/role/node: "1"}
secretRef: {name: user-data}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: pool}
spec:
  replicas: 20
  selector: {matchLabels: {name: pool}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 4, maxUnavailable: 0}}
  template:
    metadata: {labels: {name: pool}}
    spec: {class: {kind: MachineClass, name: small}}
"#;

/// Waits until exactly the wanted Machines are Available, each with one VM, none of them among `old`. Gives their uids.
async fn settled(
    machines: &Api<DynamicObject>,
    driver: &LookAlike,
    manager: &Manager,
    wanted: usize,
    old: &BTreeSet<String>,
) -> BTreeSet<String> {
    let what = format!("{wanted} machines are Available, each with one VM");
    eventually(&what, LIMIT, &[&driver.service, &manager.service], async || {
        let found = machines
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let uids: BTreeSet<String> = found
            .items
            .iter()
            .filter_map(|machine| machine.metadata.uid.clone())
            .collect();
        let is_available = |machine: &&DynamicObject| machine.data["status"]["currentStatus"]["phase"] == "Available";
        let available = found.items.iter().filter(is_available).count();
        let vms = driver.vms();
        let is_right = available == wanted && found.items.len() == wanted && vms.len() == wanted;
        let are_theirs = vms.iter().cloned().collect::<BTreeSet<_>>() == uids && uids.is_disjoint(old);
        match is_right && are_theirs {
            true => Ok(uids),
            false => Err(format!(
                "{} machines, {available} of them Available, {} VMs",
                uids.len(),
                vms.len()
            )),
        }
    })
    .await
}

/// Kills the driver and the manager, one after the other, three times in the middle of what is under way.
async fn crash(driver: &mut LookAlike, manager: &mut Manager) {
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(700 + 300 * round)).await;
        driver.service.kill();
        driver.service.restart();
        tokio::time::sleep(Duration::from_millis(500)).await;
        manager.service.kill();
        manager.service.restart();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_of_the_original_behind_the_bridge_leaks_and_doubles_no_vm_under_kill_9() {
    let Some(plane) = shared_plane("the bridge under the real manager").await else {
        return;
    };
    let namespace = plane.create_namespace("bridge").await.unwrap();
    let Some(mut driver) = LookAlike::start(plane.dir()).await else {
        return;
    };
    let manager = Manager::on(&plane, &namespace).await.driver(&driver.endpoint);
    let mut manager = manager
        .flag("--target-kubeconfig", "none")
        .flag("--leader-elect-lease-duration", "3s")
        .flag("--leader-elect-renew-deadline", "2s")
        .flag("--leader-elect-retry-period", "500ms")
        .start();
    let applied = plane
        .kubectl_with_input(&["apply", "-n", &namespace, "-f", "-"], MANIFESTS)
        .await
        .unwrap();
    assert!(applied.success, "{}", applied.stderr);
    let client = plane.client().await.unwrap();
    let api = |kind: Kind| Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &kind.resource());
    let (machines, deployments) = (api(Kind::Machine), api(Kind::Deployment));
    let change = async |change: Value| {
        let patched = deployments
            .patch("pool", &PatchParams::default(), &Patch::Merge(&change))
            .await;
        patched.expect("the deployment can be changed");
    };

    crash(&mut driver, &mut manager).await;
    let first = settled(&machines, &driver, &manager, MACHINES, &BTreeSet::new()).await;
    change(json!({"spec": {"template": {"metadata": {"annotations": {"note": "two"}}}}})).await;
    crash(&mut driver, &mut manager).await;
    settled(&machines, &driver, &manager, MACHINES, &first).await;
    change(json!({"spec": {"replicas": 0}})).await;
    crash(&mut driver, &mut manager).await;
    settled(&machines, &driver, &manager, 0, &first).await;
}
