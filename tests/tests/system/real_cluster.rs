//! A whole cluster (`millwright_tests::cluster`): workloads that real controllers keep, budgets that a real controller counts,
//! pods that a real scheduler places, volumes that follow them. What the manager does to them is seen by a watch of its own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, ListParams};
use millwright_tests::budgets::BudgetWatch;
use millwright_tests::cluster::{Cluster, ENDING};
use millwright_tests::scene::{Kind, Scene};
use millwright_tests::script::Script;
use millwright_tests::{laws, manifests, sampling};
use serde_json::{Value, json};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(120);
/// Of drains that take turns at a budget.
const LONG: Duration = Duration::from_secs(600);

/// How much longer machines may take to be made while others are drained.
const DEARER: f64 = 1.5;

const MACHINES: u32 = 6;
const WEB: u32 = 6;
const DB: u32 = 3;
/// What each class of machines is called after the rollout.
const LARGE: &str = "large";

/// The scene's deployment; its Nodes say that volumes are attached to them by the cluster, as a kubelet says of its Node.
fn machines(scene: &Scene, replicas: u32) -> Value {
    let mut body = manifests::deployment(&scene.namespace, replicas);
    body["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": 2, "maxUnavailable": 0 });
    let annotations = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
    body["spec"]["template"]["spec"]["nodeTemplate"] = json!({ "metadata": { "annotations": annotations } });
    body
}

/// A workload of pods labelled `app: <name>`.
fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let mut body = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "none" }] },
            },
        },
    });
    millwright_core::merge::apply(&mut body["spec"], &spec);
    body
}

fn budget(name: &str, min_available: Value) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": name } } },
    })
}

/// A volume of a CSI driver that kwok plays, for the claims of class `disks`.
fn volume(number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("disk-{number}") },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
            "csi": { "driver": "csi.example.org", "volumeHandle": format!("disk-{number}") },
        },
    })
}

/// What runs in the cluster: a Deployment and a StatefulSet, each with a budget that spares one pod, and a DaemonSet.
fn workloads() -> Vec<Value> {
    let spread = json!([{ "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": { "matchLabels": { "app": "web" } } }]);
    let web = json!({ "replicas": WEB, "template": { "spec": { "topologySpreadConstraints": spread } } });
    let mounts = json!([{ "name": "data", "mountPath": "/data" }]);
    let containers = json!([{ "name": "c", "image": "none", "volumeMounts": mounts }]);
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "storageClassName": "disks", "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } });
    let db = json!({ "replicas": DB, "serviceName": "db", "podManagementPolicy": "Parallel", "volumeClaimTemplates": [claim],
        "template": { "spec": { "containers": containers } } });
    let driver = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "csi.example.org" },
        "spec": { "attachRequired": true } });
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "disks" },
        "provisioner": "kubernetes.io/no-provisioner" });
    let mut all = vec![driver, class];
    all.extend((0..DB).map(volume));
    all.extend([
        budget("web", json!(WEB - 1)),
        budget("db", json!(DB - 1)),
        workload("Deployment", "web", web),
        workload("StatefulSet", "db", db),
        workload("DaemonSet", "agent", json!({})),
    ]);
    all
}

async fn apply(scene: &Scene, objects: &[Value]) {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    scene.kubectl(&["create", "-f", "-"], &list.to_string()).await;
}

/// Waits until as many pods of an app are ready, and no others of it are there.
async fn ready(cluster: &Cluster, scene: &Scene, app: &str, wanted: usize) {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let params = ListParams::default().labels(&format!("app={app}"));
    let what = format!("{wanted} ready pods of {app}");
    cluster
        .eventually(&what, LIMIT, async || {
            let all = pods.list(&params).await.map_err(|error| error.to_string())?.items;
            let is_ready = |pod: &&Pod| {
                let pod = json!(pod);
                let ready = laws::condition(&pod["status"]["conditions"], "Ready");
                ready.is_some_and(|ready| ready["status"] == "True")
            };
            match (all.len(), all.iter().filter(is_ready).count()) {
                (there, ready) if (there, ready) == (wanted, wanted) => Ok(()),
                counts => Err(format!("{counts:?} are there and ready")),
            }
        })
        .await;
}

/// Waits until as many volumes are attached.
async fn attached(cluster: &Cluster, scene: &Scene, wanted: usize) {
    let attachments: Api<VolumeAttachment> = Api::all(scene.client.clone());
    cluster
        .eventually("attached volumes", LIMIT, async || {
            let all = attachments.list(&ListParams::default()).await;
            let all = all.map_err(|error| error.to_string())?.items;
            let attached = all
                .iter()
                .filter(|one| one.status.as_ref().is_some_and(|status| status.attached));
            match attached.count() {
                count if count == wanted => Ok(()),
                count => Err(format!("{count} of {}", all.len())),
            }
        })
        .await;
}

/// Another class for the scene's deployment, which makes every machine an old one.
async fn change_class(scene: &Scene) {
    let mut class = manifests::class();
    class["metadata"]["name"] = json!(LARGE);
    class["providerSpec"]["instanceType"] = json!("large");
    scene.create(Kind::Class, &class).await;
    let change = json!({ "spec": { "template": { "spec": { "class": { "name": LARGE } } } } });
    scene.patch(Kind::Deployment, &scene.namespace, change).await;
}

/// Waits until all machines are of the new class and nothing else is left.
async fn rolled(scene: &mut Scene) {
    scene
        .until(
            "machines of the new class and nothing else",
            LONG,
            async |scene: &Scene| {
                let sight = scene.look().await?;
                laws::settled(&sight, MACHINES as usize)?;
                let is_new = |machine: &&Value| machine["spec"]["class"]["name"] == LARGE;
                match sight.machines.iter().filter(is_new).count() {
                    new if new == MACHINES as usize => Ok(()),
                    new => Err(format!("{new} are of the new class")),
                }
            },
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_drains_every_node_and_no_budget_is_ever_broken() {
    let Some(cluster) = Cluster::start("a rollout below workloads").await else {
        return;
    };
    let mut scene = Script::new("roll").begin(&cluster.plane).await;
    let body = machines(&scene, MACHINES);
    scene.create(Kind::Deployment, &body).await;
    let old = scene.settled_at(MACHINES as usize, LIMIT).await;
    apply(&scene, &workloads()).await;
    ready(&cluster, &scene, "web", WEB as usize).await;
    ready(&cluster, &scene, "db", DB as usize).await;
    ready(&cluster, &scene, "agent", MACHINES as usize).await;
    attached(&cluster, &scene, DB as usize).await;

    let (watch, began) = (BudgetWatch::begin(&scene), Instant::now());
    change_class(&scene).await;
    rolled(&mut scene).await;
    let took = began.elapsed().as_secs_f64();
    ready(&cluster, &scene, "web", WEB as usize).await;
    ready(&cluster, &scene, "db", DB as usize).await;
    let seen = watch.end().await;

    let (pods, volumes) = (seen.pods().count(), seen.attachments().count());
    println!(
        "{MACHINES} machines rolled in {took:.1} s; {} changes, {pods} pods and {volumes} volumes moved, fewest {:?}",
        seen.events, seen.fewest
    );
    assert!(
        seen.breaches.is_empty(),
        "budgets that did not hold: {:#?}",
        seen.breaches
    );
    assert_eq!(seen.fewest["web"].0, u64::from(WEB - 1), "budgets were made use of");
    // Each of them lived on an old machine.
    assert!(pods >= (WEB + DB) as usize && volumes >= DB as usize);
    seen.nobody_was_forced(ENDING).unwrap();
    let journal = scene.journal().await.unwrap();
    seen.vms_went_last(&journal, ENDING).unwrap();
    let vms = scene.vms().await.unwrap();
    let kept: BTreeSet<&str> = vms.iter().map(|vm| vm.uid.as_str()).collect();
    assert!(
        old.vms.iter().all(|vm| !kept.contains(vm.uid.as_str())),
        "old VMs are left"
    );
    laws::one_vm_a_machine(&journal).unwrap();
}

/// A Deployment with one pod on each node, as each wants the same port of its host, and a budget that spares none.
fn immovable(pods: u32) -> Vec<Value> {
    let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
    let containers = json!([{ "name": "c", "image": "none", "ports": ports }]);
    let spec = json!({ "replicas": pods, "template": { "spec": { "containers": containers } } });
    vec![budget("rock", json!("100%")), workload("Deployment", "rock", spec)]
}

async fn resize(scene: &Scene, deployment: &str, replicas: u32) {
    let wish = json!({ "spec": { "replicas": replicas } });
    scene.patch(Kind::Deployment, deployment, wish).await;
}

/// Waits until a deployment has as many machines, and each is what it should be.
async fn all_are(scene: &mut Scene, deployment: &str, wanted: u32, what: &str, is_done: impl Fn(&Value) -> bool) {
    let machines = scene.api(Kind::Machine);
    let params = ListParams::default().labels(&format!("name={deployment}"));
    scene
        .until(&format!("{wanted} machines that {what}"), LIMIT, async |_: &Scene| {
            let all = machines.list(&params).await.map_err(|error| error.to_string())?.items;
            let done = all.iter().filter(|machine| is_done(&json!(machine))).count();
            match (all.len(), done) == (wanted as usize, wanted as usize) {
                true => Ok(()),
                false => Err(format!("{done} of {} do", all.len())),
            }
        })
        .await;
}

/// How long a deployment's machines take from the wish until all run. They are taken away again.
async fn creation(scene: &mut Scene, deployment: &str, machines: u32) -> f64 {
    let began = Instant::now();
    resize(scene, deployment, machines).await;
    let runs = |machine: &Value| laws::phase(machine) == "Running";
    all_are(scene, deployment, machines, "run", runs).await;
    let took = began.elapsed().as_secs_f64();
    resize(scene, deployment, 0).await;
    all_are(scene, deployment, 0, "are left", |_| true).await;
    took
}

/// The median of five: what else this computer does makes one or two slower, or lucky.
async fn typical(scene: &mut Scene, deployment: &str, machines: u32) -> f64 {
    let mut all = Vec::new();
    for _ in 0..5 {
        let took = creation(scene, deployment, machines).await;
        println!("  {machines} machines made in {took:.2} s");
        all.push(took);
    }
    all.sort_by(f64::total_cmp);
    all[2]
}

/// 300 drains beside 200 creations in the long suite, a tenth of both in the ordinary one. Judged while the drains go on; what
/// their beginning costs, when each Node is cordoned and its pods are listed and tried, is printed only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drains_that_never_end_make_no_creation_slower() {
    let Some(cluster) = Cluster::start("drains that never end").await else {
        return;
    };
    let (drained, made) = if sampling::is_long() { (300, 200) } else { (30, 20) };
    let mut scene = Script::new("stuck").begin(&cluster.plane).await;
    let (old, new) = (scene.namespace.clone(), format!("{}-new", scene.namespace));
    scene.deploy(drained).await;
    scene.create(Kind::Deployment, &manifests::deployment(&new, 0)).await;
    let runs = |machine: &Value| laws::phase(machine) == "Running";
    all_are(&mut scene, &old, drained, "run", runs).await;
    apply(&scene, &immovable(drained)).await;
    ready(&cluster, &scene, "rock", drained as usize).await;
    let without = typical(&mut scene, &new, made).await;

    resize(&scene, &old, 0).await;
    let onset = creation(&mut scene, &new, made).await;
    let is_stuck = |machine: &Value| {
        let said = machine["status"]["lastOperation"]["description"].as_str();
        said.is_some_and(|said| said.contains("may never be evicted"))
    };
    all_are(&mut scene, &old, drained, "are drained", is_stuck).await;
    let during = typical(&mut scene, &new, made).await;
    println!(
        "{made} machines made in {without:.2} s; {onset:.2} s while {drained} drains begin, {during:.2} s while they go on"
    );

    all_are(&mut scene, &old, drained, "are drained still", is_stuck).await;
    ready(&cluster, &scene, "rock", drained as usize).await;
    assert!(during <= DEARER * without, "{during:.2} s instead of {without:.2} s");
}

/// A scheduler goes on placing pods while forty machines go: each pod is evicted, and its node's VM waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_that_is_placed_while_its_machine_goes_dies_without_an_eviction() {
    let Some(cluster) = Cluster::start("pods placed on machines that go").await else {
        return;
    };
    let mut scene = Script::new("late").begin(&cluster.plane).await;
    scene.deploy(40).await;
    scene.settled_at(40, LIMIT).await;

    apply(&scene, &[workload("Deployment", "late", json!({ "replicas": 0 }))]).await;
    let watch = BudgetWatch::begin(&scene);
    // Fewer pods than nodes: most nodes are empty when their machines begin to go.
    let late = ["scale", "deployment", "late", "--replicas=30"];
    scene.kubectl(&late, "").await;
    // The others are placed while the machines go.
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    cluster
        .eventually("a placed pod", LIMIT, async || {
            let all = pods
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let is_placed = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            match all.iter().any(is_placed) {
                true => Ok(()),
                false => Err(format!("none of {}", all.items.len())),
            }
        })
        .await;
    scene.scale(0).await;
    scene
        .until("no machine is left", LONG, async |scene: &Scene| {
            match scene.list(Kind::Machine).await?.len() {
                0 => Ok(()),
                left => Err(format!("{left} are left")),
            }
        })
        .await;
    let seen = watch.end().await;
    let placed = seen.pods().count();
    println!("{placed} pods were placed and went");
    assert!(placed > 0, "none was placed");
    seen.nobody_was_forced(ENDING).unwrap();
    seen.vms_went_last(&scene.journal().await.unwrap(), ENDING).unwrap();
}
