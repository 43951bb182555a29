//! Whose a Machine is does not change with its labels, and whoever asks for its owner alone to be deleted keeps it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millwright_dev::apiserver::ControlPlane;
use millwright_tests::apiserver;
use millwright_tests::cloud::uids;
use millwright_tests::cluster::Cluster;
use millwright_tests::laws;
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
/// In which a set that loses each Machine to somebody's labels makes dozens of them.
const RUNAWAY: Duration = Duration::from_secs(15);

async fn made(scene: &Scene) -> usize {
    laws::vms_made(&scene.journal().await.unwrap())
}

/// The CRDs without their rules: what an earlier version's control plane admitted.
fn lenient_crds(plane: &ControlPlane) -> PathBuf {
    fn relax(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("x-kubernetes-validations");
                fields.values_mut().for_each(relax);
            }
            Value::Array(items) => items.iter_mut().for_each(relax),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let dir = plane.dir().join("lenient-crds");
    std::fs::create_dir(&dir).unwrap();
    for file in std::fs::read_dir(apiserver::crds()).unwrap() {
        let file = file.unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let mut crd: Value = serde_saphyr::from_str(&text).unwrap();
        relax(&mut crd);
        // JSON is YAML.
        std::fs::write(dir.join(file.file_name()), crd.to_string()).unwrap();
    }
    dir
}

/// A selector with a key that the manager writes on each Machine: refused, and harmless where it was stored before.
///
/// Rows: K1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selector_with_the_key_node_makes_no_machine_too_many_where_it_is_stored_and_is_refused_where_it_is_new() {
    let Some(plane) = apiserver::start("a selector with a key of ours").await else {
        return;
    };
    plane.install_crds(&lenient_crds(&plane)).await.unwrap();
    let plane = Arc::new(plane);
    let scene = Script::new("own-key").begin(&plane).await;
    let labels = json!({ "app": "p", "node": "pool-a" });
    let mut body = manifests::deployment(&scene.namespace, 2);
    body["spec"]["selector"]["matchLabels"] = labels.clone();
    body["spec"]["template"]["metadata"]["labels"] = labels;
    scene.create(Kind::Deployment, &body).await;
    tokio::time::sleep(RUNAWAY).await;
    let (made, told) = (made(&scene).await, scene.get(Kind::Deployment, &scene.namespace).await);
    assert!(made <= 2, "{made} VMs were made for 2");
    let told = told["status"]["conditions"].to_string();
    assert!(told.contains("InvalidConfiguration") && told.contains("node"), "{told}");

    plane.install_crds(&apiserver::crds()).await.unwrap();
    body["metadata"]["name"] = json!("new");
    let refused = scene
        .would_create(Kind::Deployment, &body)
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("node"), "{refused}");
}

/// A policy that gives each new Machine of a namespace another value of the label `name`.
async fn relabel(scene: &mut Scene) {
    let name = format!("relabel-{}", scene.namespace);
    let rewrite = "[JSONPatch{op: 'replace', path: '/metadata/labels/name', value: 'relabelled'}]";
    let rules = json!({ "apiGroups": ["machine.sapcloud.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"],
        "resources": ["machines"] });
    let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": scene.namespace } });
    let policy = json!({ "matchConstraints": { "namespaceSelector": here, "resourceRules": [rules] },
        "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": rewrite } }] });
    let group = "admissionregistration.k8s.io/v1";
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": group, "kind": "MutatingAdmissionPolicy", "metadata": { "name": name }, "spec": policy },
        { "apiVersion": group, "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": name },
            "spec": { "policyName": name } },
    ] });
    scene.kubectl(&["create", "-f", "-"], &list.to_string()).await;
    let mut probe = manifests::machine("probe");
    probe["metadata"]["labels"] = json!({ "name": "probe" });
    scene
        .until("the policy is in force", LIMIT, async |scene: &Scene| {
            let made = scene.would_create(Kind::Machine, &probe).await;
            let labels = made.map_err(|error| error.to_string())?["metadata"]["labels"].clone();
            match labels["name"] == "relabelled" {
                true => Ok(()),
                false => Err(labels.to_string()),
            }
        })
        .await;
}

/// As labelling operators do, and policies of a company.
///
/// Rows: K1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_rewrites_a_label_of_each_new_machine_makes_no_machines_without_end() {
    let Some(plane) = shared_plane("a policy that relabels machines").await else {
        return;
    };
    let mut scene = Script::new("relabel").begin(&plane).await;
    relabel(&mut scene).await;
    scene.deploy(2).await;
    tokio::time::sleep(RUNAWAY).await;
    let (made, sight) = (made(&scene).await, scene.look().await.unwrap());
    // As many as are wanted may be released once they serve; each of these is named, and no more follow.
    assert!((2..=4).contains(&made), "{made} VMs were made for 2");
    let told = sight.sets[0]["status"]["machineSetCondition"].to_string();
    let is_released = |machine: &&Value| machine["metadata"]["ownerReferences"].is_null();
    for released in sight.machines.iter().filter(is_released) {
        assert!(told.contains(laws::name(released)), "{told}");
    }
}

/// Deletes an owner and not what it owns, as `kubectl delete --cascade=orphan` does with the real garbage collector.
async fn orphan(scene: &mut Scene, kind: Kind, name: &str) {
    let plural = kind.resource().plural;
    scene
        .kubectl(&["delete", &plural, name, "--cascade=orphan", "--wait=false"], "")
        .await;
    scene
        .until("the owner is gone", LIMIT, async |scene: &Scene| {
            match scene.list(kind).await?.iter().any(|found| laws::name(found) == name) {
                true => Err(format!("{name} is there")),
                false => Ok(()),
            }
        })
        .await;
}

/// The way in which people make an owner anew without a loss.
///
/// Rows: R1, K7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_whose_owners_were_deleted_with_cascade_orphan_stay_and_are_adopted_by_the_same_manifest() {
    let Some(cluster) = Cluster::start("owners deleted with cascade=orphan").await else {
        return;
    };
    let mut scene = Script::new("orphan").begin(&cluster.plane).await;
    scene.deploy(3).await;
    let before = scene.settled_at(3, LIMIT).await;

    let deployment = scene.namespace.clone();
    orphan(&mut scene, Kind::Deployment, &deployment).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let left = scene.look().await.unwrap();
    assert_eq!((left.sets.len(), uids(&left.vms)), (1, uids(&before.vms)));
    orphan(&mut scene, Kind::Set, laws::name(&left.sets[0])).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(uids(&scene.vms().await.unwrap()), uids(&before.vms));

    scene.deploy(3).await;
    let after = scene.settled_at(3, LIMIT).await;
    assert_eq!(uids(&after.vms), uids(&before.vms));
    assert_eq!(made(&scene).await, 3);
}
