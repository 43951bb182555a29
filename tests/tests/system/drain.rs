//! Nodes are drained before their VMs go: real evictions, budgets, claims and attachments of a real API server.
//!
//! No kubelet and no controllers run here: this file ends pods that were asked to end, and keeps the budgets' counts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use millwright_tests::laws;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::rollout_commands::millwright;

const LIMIT: Duration = Duration::from_secs(60);

/// Ends pods of a namespace that were asked to end, as the kubelet of each does, and notes who was evicted.
pub(crate) struct Kubelet {
    evicted: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
}

impl Kubelet {
    pub(crate) fn start(scene: &Scene) -> Self {
        let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let evicted = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&evicted);
        let task = tokio::spawn(async move {
            loop {
                let all = pods.list(&ListParams::default()).await.unwrap();
                for pod in all.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
                    let name = pod.metadata.name.clone().unwrap();
                    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                    let by_eviction = |reason: &str| reason == "EvictionByEvictionAPI";
                    let mut reasons = conditions
                        .into_iter()
                        .flatten()
                        .filter_map(|told| told.reason.as_deref());
                    if reasons.any(by_eviction) {
                        noted.lock().unwrap().push(name.clone());
                    }
                    let _gone = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self {
            evicted,
            task: task.abort_handle(),
        }
    }

    pub(crate) fn evicted(&self) -> Vec<String> {
        let mut evicted = self.evicted.lock().unwrap().clone();
        evicted.sort();
        evicted
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn put<K>(api: Api<K>, body: Value) -> K
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(body).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

fn of<K>(scene: &Scene) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(scene.client.clone(), &scene.namespace)
}

/// A pod that runs on a node.
pub(crate) async fn runs(scene: &Scene, name: &str, node: &str, more: Value) {
    let mut body = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "none"}], "tolerations": [{"operator": "Exists"}]},
    });
    millwright_core::merge::apply(&mut body, &more);
    let pods = of::<Pod>(scene);
    put(pods.clone(), body).await;
    // A budget has no say about pods that do not run.
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let params = PatchParams::default();
    pods.patch_status(name, &params, &Patch::Merge(status)).await.unwrap();
}

/// The budget of a pod, as its controller counts it.
pub(crate) async fn guards(scene: &Scene, name: &str) {
    let body =
        json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}});
    put(of::<PodDisruptionBudget>(scene), body).await;
    allows(scene, name, 0).await;
}

pub(crate) async fn allows(scene: &Scene, name: &str, disruptions: i32) {
    let status = json!({"status": {"observedGeneration": 1, "expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1,
        "disruptionsAllowed": disruptions}});
    let budgets = of::<PodDisruptionBudget>(scene);
    let params = PatchParams::default();
    budgets
        .patch_status(name, &params, &Patch::Merge(status))
        .await
        .unwrap();
}

/// A volume that is attached to a node, and what the spec of a pod says that uses it. A scene has one.
pub(crate) async fn attached(scene: &Scene, on: &str) -> (String, Value) {
    let (volume, client) = (format!("pv-{}", scene.namespace), scene.client.clone());
    let source = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "csi.example.org", "volumeHandle": "disk-1"}});
    let volumes = Api::<PersistentVolume>::all(client.clone());
    put(volumes, json!({"metadata": {"name": volume}, "spec": source})).await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "volumeName": volume, "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}}});
    put(
        of::<PersistentVolumeClaim>(scene),
        json!({"metadata": {"name": "data"}, "spec": claim}),
    )
    .await;
    let attachments = Api::<VolumeAttachment>::all(client);
    let attachment = json!({"metadata": {"name": format!("csi-{volume}")},
        "spec": {"attacher": "csi.example.org", "nodeName": on, "source": {"persistentVolumeName": volume}}});
    put(attachments, attachment).await;
    let uses = json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    (volume, uses)
}

pub(crate) async fn detach(scene: &Scene, volume: &str) {
    let attachments = Api::<VolumeAttachment>::all(scene.client.clone());
    let attachment = format!("csi-{volume}");
    attachments.delete(&attachment, &DeleteParams::default()).await.unwrap();
}

/// One machine, and the name of its node.
async fn one_machine(scene: &mut Scene) -> (String, String) {
    scene.deploy(1).await;
    scene.settled_at(1, LIMIT).await;
    let machines = scene.list(Kind::Machine).await.unwrap();
    let node = machines[0]["metadata"]["labels"]["node"].as_str().unwrap().to_owned();
    (laws::name(&machines[0]).to_owned(), node)
}

/// What the machine says of itself, once it says this.
pub(crate) async fn says(scene: &mut Scene, machine: &str, words: &str) -> String {
    let what = format!("machine {machine} says {words:?}");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let machines = scene.list(Kind::Machine).await?;
            let found = machines.iter().find(|found| laws::name(found) == machine);
            let said = found.and_then(|found| found["status"]["lastOperation"]["description"].as_str());
            match said {
                Some(said) if said.contains(words) => Ok(said.to_owned()),
                other => Err(format!("it says {other:?}")),
            }
        })
        .await
}

async fn node(client: &Client, name: &str) -> Node {
    Api::<Node>::all(client.clone()).get(name).await.unwrap()
}

/// Rows: W27, W49, pains 63.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_its_budget_holds_keeps_the_vm_and_is_named_until_it_may_go_also_across_a_kill_of_the_manager() {
    let Some(plane) = shared_plane("a drain with a budget").await else {
        return;
    };
    let mut scene = Script::new("drain").begin(&plane).await;
    let (machine, on) = one_machine(&mut scene).await;
    let kubelet = Kubelet::start(&scene);
    let daemon = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]}});
    runs(&scene, "free", &on, json!({})).await;
    runs(&scene, "agent", &on, daemon).await;
    runs(&scene, "web", &on, json!({})).await;
    guards(&scene, "web").await;

    scene.scale(0).await;
    let said = says(&mut scene, &machine, "may never be evicted").await;
    assert!(
        said.contains("/web") && said.contains("PodDisruptionBudget web"),
        "{said}"
    );
    assert_eq!(kubelet.evicted(), ["free"]);
    assert_eq!(node(&scene.client, &on).await.spec.unwrap().unschedulable, Some(true));
    let why = millwright(&scene, &["why", &format!("machine/{machine}")]).await;
    assert_eq!(why.code, 0, "{}", why.err);
    assert!(why.out.contains("PodDisruptionBudget web"), "{}", why.out);

    scene.manager.service.kill();
    scene.manager.service.restart();
    scene.manager.wait_until_ready().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.vms().await.unwrap().len(), 1, "the pod is there still");
    allows(&scene, "web", 1).await;
    scene.settled_at(0, LIMIT).await;
    assert_eq!(kubelet.evicted(), ["free", "web"]);
    // Nothing ends the pod of a DaemonSet but the end of its node.
    let agent = of::<Pod>(&scene).get("agent").await.unwrap();
    assert_eq!(agent.metadata.deletion_timestamp, None);
    of::<Pod>(&scene)
        .delete("agent", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
}

/// Rows: pains 53, 54, 71.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_at_the_drain_timeout_is_deleted_and_the_vm_goes() {
    let Some(plane) = shared_plane("a drain timeout").await else {
        return;
    };
    let script = Script::new("drain-late").manager("--machine-drain-timeout", "25s");
    let mut scene = script.begin(&plane).await;
    let (machine, on) = one_machine(&mut scene).await;
    let kubelet = Kubelet::start(&scene);
    runs(&scene, "web", &on, json!({})).await;
    guards(&scene, "web").await;
    scene.scale(0).await;
    says(&mut scene, &machine, "may never be evicted").await;
    assert_eq!(scene.vms().await.unwrap().len(), 1);
    scene.settled_at(0, LIMIT).await;
    assert!(kubelet.evicted().is_empty());
    let left = of::<Pod>(&scene).list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty(), "{left:?}");
}

/// Rows: W27, pains 54.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_label_force_deletion_ends_a_drain_that_waits() {
    let Some(plane) = shared_plane("a forced deletion").await else {
        return;
    };
    let mut scene = Script::new("drain-force").begin(&plane).await;
    let (machine, on) = one_machine(&mut scene).await;
    let _kubelet = Kubelet::start(&scene);
    runs(&scene, "web", &on, json!({})).await;
    guards(&scene, "web").await;
    scene.scale(0).await;
    says(&mut scene, &machine, "may never be evicted").await;
    let label = json!({"metadata": {"labels": {"force-deletion": "True"}}});
    scene.patch(Kind::Machine, &machine, label).await;
    scene.settled_at(0, LIMIT).await;
}

/// Each drain watches the pods of its Node.
/// Rows: O10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_drains_at_once_go_through_where_the_manager_may_open_256_files() {
    const DRAINS: u32 = 300;
    let Some(plane) = shared_plane("drains with few files").await else {
        return;
    };
    let mut scene = Script::new("files").manager_opens_at_most(256).begin(&plane).await;
    scene.deploy(DRAINS).await;
    let nodes = scene.settled_at(DRAINS as usize, 2 * LIMIT).await.nodes;
    let nodes: Vec<&str> = nodes.iter().map(laws::name).collect();
    let started = nodes.iter().map(|node| runs(&scene, node, node, json!({})));
    futures::stream::iter(started).buffer_unordered(8).collect::<()>().await;

    scene.scale(0).await;
    scene
        .until("all pods are evicted", 2 * LIMIT, async |scene: &Scene| {
            let pods = of::<Pod>(scene).list(&ListParams::default()).await;
            let pods = pods.map_err(|error| error.to_string())?.items;
            match pods
                .iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                .count()
            {
                0 => Ok(()),
                left => Err(format!("{left} are not")),
            }
        })
        .await;
    let _kubelet = Kubelet::start(&scene);
    scene.settled_at(0, 2 * LIMIT).await;
    assert!(scene.manager.service.is_running());
    let log = scene.manager.service.log();
    assert!(!log.contains("open files"), "{}", scene.manager.service.log_tail());
}

/// Rows: pains 55, 65.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vm_stays_until_the_volumes_of_its_pods_are_detached() {
    let Some(plane) = shared_plane("a drain with a volume").await else {
        return;
    };
    let mut scene = Script::new("drain-volume").begin(&plane).await;
    let (machine, on) = one_machine(&mut scene).await;
    let kubelet = Kubelet::start(&scene);
    let (volume, uses) = attached(&scene, &on).await;
    runs(&scene, "db", &on, uses).await;

    scene.scale(0).await;
    let said = says(&mut scene, &machine, "is attached").await;
    assert!(said.contains(&volume), "{said}");
    assert_eq!(kubelet.evicted(), ["db"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.vms().await.unwrap().len(), 1, "the volume is attached still");
    detach(&scene, &volume).await;
    scene.settled_at(0, LIMIT).await;
    let volumes = Api::<PersistentVolume>::all(scene.client.clone());
    volumes.delete(&volume, &DeleteParams::default()).await.unwrap();
}

/// A night without a manager, and a scale-down in it.
///
/// Rows: L4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_holds_when_the_manager_comes_back_after_more_than_the_drain_timeout() {
    let Some(plane) = shared_plane("a manager that is away").await else {
        return;
    };
    let script = Script::new("drain-away").manager("--machine-drain-timeout", "20s");
    let mut scene = script.begin(&plane).await;
    let (machine, on) = one_machine(&mut scene).await;
    let kubelet = Kubelet::start(&scene);
    runs(&scene, "web", &on, json!({})).await;
    guards(&scene, "web").await;

    scene.manager.service.kill();
    scene.scale(0).await;
    scene.delete(Kind::Machine, &machine).await;
    tokio::time::sleep(Duration::from_secs(23)).await;
    scene.manager.service.restart();
    // Long enough for a drain to begin, and shorter than its timeout.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(scene.vms().await.unwrap().len(), 1, "the VM went before its pod");
    let pod = of::<Pod>(&scene).get("web").await.unwrap();
    assert_eq!(pod.metadata.deletion_timestamp, None);
    allows(&scene, "web", 1).await;
    scene.settled_at(0, LIMIT).await;
    assert_eq!(kubelet.evicted(), ["web"]);
}
