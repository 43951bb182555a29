//! What `provider-sdk/README.md` promises to the author of a provider: a driver written on the SDK, in a process of its own, makes
//! machines under the real manager, and no cluster is needed for it.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::path::Path;
use std::time::Duration;

use millwright_tests::programs::programs;
use millwright_tests::service::{Recipe, Service};

/// The steps take some ten seconds alone.
const PATIENCE: Duration = Duration::from_secs(120);

const MANIFESTS: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: user-data, namespace: default}
stringData: {userData: "nobody boots from this"}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {name: greeter, namespace: default}
provider: hello
providerSpec: {greeting: world}
secretRef: {name: user-data, namespace: default}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: greeters, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {name: greeters}}
  template:
    metadata: {labels: {name: greeters}}
    spec: {class: {kind: MachineClass, name: greeter}}
"#;

async fn hello(dir: &Path) -> (Service, String) {
    let endpoint = format!("unix://{}", dir.join("hello.sock").display());
    let provider = Service::start(Recipe {
        name: "hello".to_owned(),
        program: programs().await.hello_provider.clone(),
        args: vec!["--listen".to_owned(), endpoint.clone()],
        env: Vec::new(),
        log: dir.join("hello.log"),
    });
    provider.wait_for_log("hello.sock", PATIENCE).await;
    (provider, endpoint)
}

/// The quick start on this driver with these manifests.
async fn quick_start(dir: &Path, endpoint: &str) -> Service {
    let manifests = dir.join("manifests");
    std::fs::create_dir_all(&manifests).unwrap();
    std::fs::write(manifests.join("all.yaml"), MANIFESTS).unwrap();
    let args = ["--once", "--no-nodes", "--driver", endpoint, "--manifests"];
    Service::start(Recipe {
        name: "quick start".to_owned(),
        program: programs().await.quick_start.clone(),
        args: args
            .map(str::to_owned)
            .into_iter()
            .chain([manifests.display().to_string()])
            .collect(),
        // Where it keeps its logs.
        env: vec![("CARGO_TARGET_DIR".to_owned(), dir.display().to_string())],
        log: dir.join("quick-start.log"),
    })
}

#[tokio::test]
async fn a_driver_on_the_sdk_makes_grows_and_shrinks_a_deployment_under_the_real_manager() {
    let dir = tempfile::tempdir().unwrap();
    let (provider, endpoint) = hello(dir.path()).await;
    let mut run = quick_start(dir.path(), &endpoint).await;
    let status = run.wait_for_exit(PATIENCE).await;
    let told = run.log();
    assert!(
        status.success(),
        "{status}:\n{told}\nand the driver:\n{}",
        provider.log()
    );
    assert!(told.contains("calls itself hello"), "{told}");
    assert!(told.contains("5 machines are Available"), "{told}");
    assert!(told.contains("done: 3 machines Available"), "{told}");
}
