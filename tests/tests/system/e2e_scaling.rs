//! A deployment's life on a real API server, as a user with kubectl sees it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, WatchEvent, WatchParams};
use millwright_tests::laws::{self, condition};
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, left_over, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
const FINALIZER: &str = "machine.sapcloud.io/machine-controller-manager";

/// Objects of the original's shape, with fields that this version does not know.
fn peer_objects(name: &str) -> String {
    format!(
        r##"
apiVersion: v1
kind: Secret
metadata: {{name: peer-secret}}
stringData: {{userData: "#cloud-config"}}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata:
  name: peer-class
  labels: {{unknown.example/label: kept}}
provider: virtual
providerSpec: {{instanceType: small, region: local, zone: local-a}}
secretRef: {{name: peer-secret}}
unknownOfClass: {{nested: [1, 2]}}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata:
  name: {name}
spec:
  replicas: 0
  minReadySeconds: 0
  selector: {{matchLabels: {{name: {name}}}}}
  strategy: {{type: RollingUpdate, rollingUpdate: {{maxSurge: 20%, maxUnavailable: 1}}}}
  unknownOfSpec: {{deep: {{a: true}}}}
  template:
    metadata: {{labels: {{name: {name}}}}}
    spec:
      class: {{kind: MachineClass, name: peer-class, apiGroup: machine.sapcloud.io}}
      nodeTemplate:
        metadata: {{labels: {{pool: a}}, annotations: {{note: b}}}}
        spec: {{taints: [{{key: k, value: v, effect: NoSchedule}}], unknownOfNode: 1}}
      drainTimeout: 2h10m
      maxEvictRetries: 10
      unknownOfTemplate: kept
"##
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_of_the_original_are_carried_out_and_keep_fields_nobody_here_knows() {
    let Some(plane) = shared_plane("manifests of the original").await else {
        return;
    };
    let mut scene = Script::new("peer").begin(&plane).await;
    let name = scene.namespace.clone();
    scene
        .kubectl(&["apply", "--validate=false", "-f", "-"], &peer_objects(&name))
        .await;
    scene.patch_status_of_unknown_fields(&name).await;

    scene
        .kubectl(&["scale", "machinedeployment", &name, "--replicas=2"], "")
        .await;
    let sight = scene.settled_at(2, LIMIT).await;
    let deployment = scene.get(Kind::Deployment, &name).await;
    assert_eq!(deployment["spec"]["unknownOfSpec"], json!({ "deep": { "a": true } }));
    assert_eq!(deployment["spec"]["template"]["spec"]["unknownOfTemplate"], "kept");
    assert_eq!(
        deployment["status"]["unknownOfStatus"],
        json!({ "kept": 1 }),
        "{deployment:#}"
    );
    let class = scene.get(Kind::Class, "peer-class").await;
    assert_eq!(class["unknownOfClass"], json!({ "nested": [1, 2] }));
    let machine = &sight.machines[0];
    assert_eq!(
        machine["spec"]["unknownOfTemplate"], "kept",
        "a template's unknown fields reach its machines"
    );
    assert_eq!(machine["spec"]["nodeTemplate"]["spec"]["unknownOfNode"], 1);

    laws::only_own_fields(
        &deployment,
        &[".status", ".metadata.finalizers", ".metadata.annotations"],
    )
    .unwrap();
    laws::only_own_fields(&class, &[".metadata.finalizers", ".status"]).unwrap();
    let secret = scene.secrets().get("peer-secret").await.unwrap();
    laws::only_own_fields(&json!(secret), &[".metadata.finalizers"]).unwrap();
    for node in &sight.nodes {
        laws::only_own_fields(
            node,
            &[
                ".metadata.finalizers",
                ".metadata.labels.node.gardener.cloud/machine-name",
                // What the template says of nodes, and the memory of that.
                ".metadata.labels.pool",
                ".metadata.annotations.note",
                ".metadata.annotations.node.machine.sapcloud.io/last-applied-anno-labels-taints",
                ".metadata.annotations.node.machine.sapcloud.io/machine-join-duration",
                ".spec.taints",
            ],
        )
        .unwrap();
    }
}

/// What a controller that is newer than this one might have written.
trait UnknownFields {
    async fn patch_status_of_unknown_fields(&self, name: &str);
}

impl UnknownFields for Scene {
    async fn patch_status_of_unknown_fields(&self, name: &str) {
        let patch = r#"{"status":{"unknownOfStatus":{"kept":1}}}"#;
        let args = [
            "patch",
            "machinedeployment",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
        ];
        self.kubectl(&args, "").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_scales_a_deployment_up_and_down_and_shows_its_machines_in_columns() {
    let Some(plane) = shared_plane("kubectl scales").await else {
        return;
    };
    let mut scene = Script::new("scale").begin(&plane).await;
    let name = scene.namespace.clone();
    scene.deploy(0).await;
    scene.kubectl(&["scale", "mcd", &name, "--replicas=5"], "").await;
    let five = scene.settled_at(5, LIMIT).await;

    let table = scene.kubectl(&["get", "machines"], "").await;
    let head = table.lines().next().unwrap_or_default();
    let columns: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(columns, ["NAME", "STATUS", "AGE", "NODE"], "{table}");
    assert_eq!(table.matches("Running").count(), 5, "{table}");
    let wide = scene.kubectl(&["get", "machines", "-o", "wide"], "").await;
    assert!(wide.contains("PROVIDERID"), "{wide}");
    let deployments = scene.kubectl(&["get", "machinedeployments"], "").await;
    assert!(
        deployments.contains("READY") && deployments.contains("DESIRED"),
        "{deployments}"
    );

    scene.kubectl(&["scale", "mcd", &name, "--replicas=2"], "").await;
    let two = scene.settled_at(2, LIMIT).await;
    let names = |machines: &[Value]| {
        machines
            .iter()
            .map(|machine| laws::name(machine).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert!(
        names(&two.machines).is_subset(&names(&five.machines)),
        "the two that stay are of the five"
    );
    scene.kubectl(&["scale", "mcd", &name, "--replicas=0"], "").await;
    scene.settled_at(0, LIMIT).await;
    laws::one_vm_a_machine(&scene.journal().await.unwrap()).unwrap();
}

/// Rows: pains 61.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_deployment_leaves_no_vm_node_token_machine_set_or_finalizer() {
    let Some(plane) = shared_plane("deleting a deployment").await else {
        return;
    };
    let mut scene = Script::new("leave").begin(&plane).await;
    let name = scene.namespace.clone();
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;
    assert!(
        finalizers(&scene.get(Kind::Class, manifests::CLASS).await).contains(FINALIZER),
        "a class in use is guarded"
    );

    scene.delete(Kind::Deployment, &name).await;
    scene
        .until("nothing is left", LIMIT, async |scene: &Scene| {
            laws::nothing_left(&scene.look().await?)
        })
        .await;
    scene
        .until("the class is free", LIMIT, async |scene: &Scene| {
            let found = finalizers(&scene.get(Kind::Class, manifests::CLASS).await);
            if found.is_empty() {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    scene.delete(Kind::Class, manifests::CLASS).await;
    scene
        .until("the Secret is free", LIMIT, async |scene: &Scene| {
            let secret = scene
                .secrets()
                .get(manifests::SECRET)
                .await
                .map_err(|error| error.to_string())?;
            let found = finalizers(&json!(secret));
            if found.is_empty() {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    assert_eq!(left_over(&scene).await.unwrap(), Vec::<String>::new());
}

fn finalizers(object: &Value) -> BTreeSet<String> {
    let all = object["metadata"]["finalizers"].as_array();
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_that_its_driver_refuses_makes_no_machine_and_says_why() {
    let Some(plane) = shared_plane("a refused class").await else {
        return;
    };
    let mut scene = Script::new("refused").begin(&plane).await;
    let name = scene.namespace.clone();
    let spec = json!({ "providerSpec": { "instanceType": "enormous", "region": "local", "zone": "local-a" } });
    scene.class_from_the_start(spec).await;
    scene.deploy(2).await;
    scene
        .until("the set and the deployment say why", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            assert!(
                sight.machines.is_empty(),
                "a machine was made of a refused class: {:?}",
                sight.machines
            );
            let set = sight.sets.first().ok_or("no set")?;
            let of_set = &set["status"]["machineSetCondition"];
            let of_set = condition(of_set, "ReplicaFailure").ok_or_else(|| format!("set: {}", set["status"]))?;
            let deployment = sight.deployments.first().ok_or("no deployment")?;
            let of_deployment = condition(&deployment["status"]["conditions"], "ReplicaFailure");
            let of_deployment = of_deployment.ok_or_else(|| format!("deployment: {}", deployment["status"]))?;
            for said in [of_set, of_deployment] {
                let message = said["message"].as_str().unwrap_or_default();
                assert!(
                    message.contains("enormous") && message.contains("/instanceType"),
                    "{said}"
                );
            }
            Ok(())
        })
        .await;
    told_by_an_event(&mut scene, manifests::CLASS, "enormous").await;

    // Repaired, it heals without another touch (L7).
    scene
        .patch(
            Kind::Class,
            manifests::CLASS,
            json!({ "providerSpec": { "instanceType": "small" } }),
        )
        .await;
    scene.settled_at(2, LIMIT).await;
    let healed = scene.get(Kind::Deployment, &name).await;
    assert!(
        condition(&healed["status"]["conditions"], "ReplicaFailure").is_none(),
        "{healed:#}"
    );
}

async fn told_by_an_event(scene: &mut Scene, about: &str, text: &str) {
    let about = about.to_owned();
    let what = format!("an event about {about} with {text:?}");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let events = scene.events_about(&about).await?;
            match events.iter().any(|(_, message)| message.contains(text)) {
                true => Ok(()),
                false => Err(format!("{events:?}")),
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_deleted_by_a_user_is_replaced() {
    let Some(plane) = shared_plane("a machine deleted by a user").await else {
        return;
    };
    let mut scene = Script::new("replace").begin(&plane).await;
    scene.deploy(2).await;
    let before = scene.settled_at(2, LIMIT).await;
    let victim = laws::name(&before.machines[0]).to_owned();
    scene.kubectl(&["delete", "machine", &victim, "--wait=false"], "").await;
    replaced(&mut scene, &victim).await;
    assert_eq!(laws::vms_made(&scene.journal().await.unwrap()), 3);
}

/// Two machines again, and `victim` is none of them.
async fn replaced(scene: &mut Scene, victim: &str) {
    scene
        .until("another machine in its place", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            let still = sight.machines.iter().any(|machine| laws::name(machine) == victim);
            if still {
                return Err(format!("{victim} is still there"));
            }
            laws::settled(&sight, 2)
        })
        .await;
}

/// Rows: pains 70.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_node_a_user_deletes_is_replaced() {
    let Some(plane) = shared_plane("a node deleted by a user").await else {
        return;
    };
    let mut scene = Script::new("node").begin(&plane).await;
    scene.deploy(2).await;
    let before = scene.settled_at(2, LIMIT).await;
    let victim = laws::name(&before.machines[0]).to_owned();
    let node = before.machines[0]["metadata"]["labels"]["node"]
        .as_str()
        .unwrap()
        .to_owned();
    let nodes: Api<Node> = Api::all(scene.client.clone());
    nodes.delete(&node, &DeleteParams::default()).await.unwrap();
    replaced(&mut scene, &victim).await;
}

/// Rows: pains 12, 13, 26.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_carry_finalizer_owner_and_labels_from_their_first_moment() {
    let Some(plane) = shared_plane("machines from their first moment").await else {
        return;
    };
    let mut scene = Script::new("first").begin(&plane).await;
    let name = scene.namespace.clone();
    scene.deploy(0).await;
    let watched = scene.api(Kind::Machine);
    let mut events = watched.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    scene.scale(4).await;
    let mut added = 0;
    while added < 4 {
        let event = tokio::time::timeout(LIMIT, events.next())
            .await
            .expect("machines come")
            .expect("the watch stays");
        let WatchEvent::Added(machine) = event.unwrap() else {
            continue;
        };
        let machine = json!(machine);
        added += 1;
        assert!(finalizers(&machine).contains(FINALIZER), "{machine:#}");
        let owner = &machine["metadata"]["ownerReferences"][0];
        assert_eq!(
            (owner["kind"].as_str(), owner["controller"].as_bool()),
            (Some("MachineSet"), Some(true)),
            "{machine:#}"
        );
        let labels = &machine["metadata"]["labels"];
        assert_eq!(labels["name"], json!(name));
        assert!(labels["machine-template-hash"].is_string(), "{machine:#}");
    }
    scene.settled_at(4, LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_a_user_made_gets_its_vm_and_keeps_its_fields() {
    let Some(plane) = shared_plane("a machine that a user made").await else {
        return;
    };
    let mut scene = Script::new("alone").begin(&plane).await;
    let mut machine = manifests::machine(&format!("{}-m", scene.namespace));
    machine["spec"]["unknownOfSpec"] = json!({ "kept": [1] });
    machine["spec"]["drainTimeout"] = json!("1m");
    scene.create(Kind::Machine, &machine).await;
    let sight = scene.settled_at(1, LIMIT).await;
    let grown = &sight.machines[0];
    assert_eq!(grown["spec"]["unknownOfSpec"], json!({ "kept": [1] }));
    let own = [
        ".status",
        ".spec.providerID",
        ".metadata.finalizers",
        ".metadata.labels",
        ".metadata.annotations.machinepriority.machine.sapcloud.io",
        ".metadata.annotations.machine.sapcloud.io/requests-recorded",
    ];
    laws::only_own_fields(grown, &own).unwrap();
    scene.delete(Kind::Machine, laws::name(grown)).await;
    scene
        .until("nothing is left", LIMIT, async |scene: &Scene| {
            laws::nothing_left(&scene.look().await?)
        })
        .await;
}
