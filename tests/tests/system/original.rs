//! In the place of machine-controller-manager: under the roles that it is deployed with, with its CRDs and its command line; and its CRDs
//! and ours, the ones put in the place of the others under a running manager.
//!
//! Each test has an API server of its own, which records what it is asked.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use millwright_tests::laws;
use millwright_tests::scene::{Kind, Scene};
use millwright_tests::script::Script;
use millwright_tests::{apiserver, manifests};
use serde_json::{Value, json};

use crate::class_status;
use crate::compatibility::{deploy, three};
use crate::drain::{Kubelet, allows, attached, detach, guards, runs, says};
use crate::lease::holders;

const LIMIT: Duration = Duration::from_secs(30);
/// Longer than the manager takes to look at something again after a change.
const REST: Duration = Duration::from_secs(4);
/// How often a request may be answered in the same way by an error. Whoever looks twice, and once more after a break, is in no loop.
const TRIES: usize = 3;

/// The fields of the original's objects, at any depth.
const FIELDS: &str = "address addresses apiGroup architecture autoPreserveFailedMachineCount autoPreserveFailedMachineMax \
    availableReplicas capacity class collisionCount conditions creationTimeout credentialsSecretRef currentStatus description \
    disableHealthTimeout drainTimeout effect errorCode failedMachines fullyLabeledReplicas healthTimeout inPlaceUpdate \
    inPlaceUpdateTimeout instanceType key kind lastHeartbeatTime lastKnownState lastOperation lastTransitionTime lastUpdateTime \
    machineClass machinePreserveTimeout machineSetCondition matchExpressions matchLabels maxEvictRetries maxSurge maxUnavailable \
    message metadata minReadySeconds name namespace nodeConditions nodeTemplate observedGeneration operator orchestrationType ownerRef \
    paused phase preserveExpiryTime preservedFailedReplicas progressDeadlineSeconds provider providerID providerSpec readyReplicas \
    reason region replicas revision revisionHistoryLimit rollbackTo rollingUpdate secretRef selector spec state status strategy taints \
    template timeAdded timeoutActive type unavailableReplicas updatedReplicas value values virtualCapacity zone";

/// Our definitions with what the original's have and no more. The API server drops all else that is written.
fn originals(dir: &Path) -> PathBuf {
    apiserver::changed_crds(dir, "originals", |crd| {
        let is_class = crd["spec"]["names"]["kind"] == "MachineClass";
        let version = crd["spec"]["versions"][0].as_object_mut().unwrap();
        if is_class {
            version.remove("subresources");
            remove(&mut version["schema"]["openAPIV3Schema"]["properties"], "status");
        } else if let Some(scale) = version["subresources"].get_mut("scale") {
            remove(scale, "labelSelectorPath");
        }
        narrow("", &mut version["schema"]["openAPIV3Schema"]);
    })
}

/// The schema of a field as the original's is: without rules, bounds and defaults.
fn narrow(field: &str, schema: &mut Value) {
    for ours in ["default", "maxLength", "maxProperties", "x-kubernetes-validations"] {
        remove(schema, ours);
    }
    if !["metadata", "providerSpec"].contains(&field) {
        remove(schema, "x-kubernetes-preserve-unknown-fields");
    }
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let is_theirs = |name: &str| FIELDS.split_whitespace().any(|known| known == name);
        fields.retain(|name, _| is_theirs(name) && (field, name.as_str()) != ("lastOperation", "reason"));
        fields.iter_mut().for_each(|(name, schema)| narrow(name, schema));
    }
    for inner in ["items", "additionalProperties"] {
        schema.get_mut(inner).into_iter().for_each(|inner| narrow(field, inner));
    }
}

fn remove(object: &mut Value, field: &str) {
    object
        .as_object_mut()
        .into_iter()
        .for_each(|fields| drop(fields.remove(field)));
}

/// A request of the manager's, and the code of its answer.
struct Asked {
    verb: String,
    path: String,
    code: u64,
}

impl Asked {
    fn writes(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb.as_str())
    }
}

/// All that the account asked for so far, in order.
fn asked(scene: &Scene, account: &str) -> Vec<Asked> {
    let record = std::fs::read_to_string(scene.plane.dir().join(apiserver::AUDIT_LOG)).unwrap();
    let user = format!("system:serviceaccount:{}:{account}", scene.namespace);
    // The last line may be half written.
    let entries = record
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let its = entries.filter(|entry| entry["user"]["username"] == user.as_str());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    its.map(|entry| Asked {
        verb: text(&entry["verb"]),
        path: text(&entry["requestURI"]).split('?').next().unwrap().to_owned(),
        code: entry["responseStatus"]["code"].as_u64().unwrap_or(0),
    })
    .collect()
}

/// The manager is refused nothing but the status of a class, which the original's role does not know, and asks for nothing again and again
/// that is not there.
fn is_refused_nothing(scene: &Scene, account: &str) {
    let mut failed = BTreeMap::new();
    for Asked { verb, path, code } in asked(scene, account) {
        if [403, 404].contains(&code) {
            *failed.entry((code, verb, path)).or_insert(0) += 1;
        }
    }
    let is_known = |path: &str| path.contains("/machineclasses/") && path.ends_with("/status");
    failed.retain(|(code, _, path), times| (*code == 403 && !is_known(path)) || *times > TRIES);
    assert!(failed.is_empty(), "{failed:#?}");
}

/// While nothing happens, the manager comes to rest: it writes nothing but its Leases.
async fn is_at_rest(scene: &mut Scene, account: &str) {
    scene
        .until("the manager is at rest", LIMIT, async |scene: &Scene| {
            let before = asked(scene, account).len();
            tokio::time::sleep(REST).await;
            let mut since = asked(scene, account).split_off(before);
            since.retain(|asked| asked.writes() && !asked.path.contains("/leases/"));
            let written: Vec<String> = since
                .iter()
                .map(|asked| format!("{} {}", asked.verb, asked.path))
                .collect();
            match written.is_empty() {
                true => Ok(()),
                false => Err(format!("{written:#?}")),
            }
        })
        .await;
}

/// The manager leads by the original's Leases, and has none of its own.
async fn leads_in_its_place(scene: &mut Scene) {
    scene
        .until("both Leases are held", LIMIT, async |scene: &Scene| {
            let holders = holders(scene).await?;
            match holders.iter().all(|holder| !holder.is_empty()) {
                true => Ok(()),
                false => Err(format!("{holders:?}")),
            }
        })
        .await;
    let leases = Api::<Lease>::namespaced(scene.client.clone(), &scene.namespace);
    assert_eq!(leases.get_opt("millwright").await.unwrap(), None);
}

/// One of three machines goes, and waits for a pod with a volume until the pod's budget lets it be evicted.
async fn one_is_drained(scene: &mut Scene) {
    let machine = scene.list(Kind::Machine).await.unwrap().remove(0);
    let on = machine["metadata"]["labels"]["node"].as_str().unwrap();
    let machine = laws::name(&machine);
    let first = json!({ "metadata": { "annotations": { "machinepriority.machine.sapcloud.io": "1" } } });
    scene.patch(Kind::Machine, machine, first).await;
    let kubelet = Kubelet::start(scene);
    let (volume, uses) = attached(scene, on).await;
    runs(scene, "web", on, uses).await;
    guards(scene, "web").await;

    scene.scale(2).await;
    says(scene, machine, "may never be evicted").await;
    assert!(kubelet.evicted().is_empty());
    assert_eq!(scene.vms().await.unwrap().len(), 3);
    allows(scene, "web", 1).await;
    says(scene, machine, "is attached").await;
    detach(scene, &volume).await;
    scene.settled_at(2, LIMIT).await;
    assert_eq!(kubelet.evicted(), ["web"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_originals_roles_crds_and_command_line_machines_come_are_rolled_drained_and_go() {
    const ACCOUNT: &str = "machine-controller-manager";
    let Some(plane) = apiserver::start_recorded("in the original's place").await else {
        return;
    };
    plane.install_crds(&originals(plane.dir())).await.unwrap();
    let script = Script::new("place").in_the_originals_place();
    let mut scene = script.begin(&Arc::new(plane)).await;
    deploy(&scene).await;
    three(&mut scene, "availableReplicas").await;
    leads_in_its_place(&mut scene).await;
    is_at_rest(&mut scene, ACCOUNT).await;

    let name = scene.namespace.clone();
    let template = json!({ "spec": { "template": { "metadata": { "annotations": { "version": "2" } } } } });
    scene.patch(Kind::Deployment, &name, template).await;
    three(&mut scene, "availableReplicas").await;
    one_is_drained(&mut scene).await;
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;

    scene.remove_all(LIMIT).await;
    scene.manager.service.stop(LIMIT).await;
    assert_eq!(holders(&scene).await.unwrap(), ["", ""], "both are given back");
    is_refused_nothing(&scene, ACCOUNT);
    let is_event = |asked: &Asked| asked.path.ends_with("/events") && asked.writes() && asked.code == 201;
    assert!(asked(&scene, ACCOUNT).iter().any(is_event), "no event was written");
    let log = scene.manager.service.log();
    assert!(
        log.contains("the CRD lacks the "),
        "it is not told what the CRDs lack: {log}"
    );
}

/// Our fields, as far as they are stored: of the class, of each set and of each machine.
async fn own_fields(scene: &Scene) -> Result<Vec<bool>, String> {
    let class = scene.get(Kind::Class, manifests::CLASS).await;
    let mut stored = vec![class["status"]["conditions"].is_array()];
    for set in scene.list(Kind::Set).await? {
        stored.push(set["status"]["nextMachineNumber"].is_number());
    }
    for machine in scene.list(Kind::Machine).await? {
        stored.push(machine["status"]["creationRequest"].is_object());
    }
    Ok(stored)
}

async fn own_fields_are(scene: &mut Scene, stored: bool) {
    let what = format!("our fields are stored: {stored}");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let found = own_fields(scene).await?;
            match found.iter().all(|found| *found == stored) {
                true => Ok(()),
                false => Err(format!("class, set, machines: {found:?}")),
            }
        })
        .await;
}

/// Each machine's uid and VM, and how many VMs were ever made.
async fn fleet(scene: &Scene) -> (Vec<(String, String)>, usize) {
    let machines = scene.list(Kind::Machine).await.unwrap();
    let id = |machine: &Value| machine["spec"]["providerID"].as_str().unwrap().to_owned();
    let all = machines
        .iter()
        .map(|machine| (laws::uid(machine).to_owned(), id(machine)));
    (all.collect(), laws::vms_made(&scene.journal().await.unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crds_that_are_replaced_by_the_originals_and_by_ours_again_cost_no_machine_and_its_class_is_ready_again() {
    const ACCOUNT: &str = "millwright";
    let Some(plane) = apiserver::start_recorded("CRDs are replaced").await else {
        return;
    };
    plane.install_crds(&apiserver::crds()).await.unwrap();
    let mut scene = Script::new("crds").begin(&Arc::new(plane)).await;
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;
    own_fields_are(&mut scene, true).await;
    let (manager, before) = (scene.manager.service.pid(), fleet(&scene).await);

    let theirs = originals(scene.plane.dir());
    scene.plane.install_crds(&theirs).await.unwrap();
    own_fields_are(&mut scene, false).await;
    // What is written now is stored without our fields.
    let all = "machines,machinesets,machinedeployments,machineclasses";
    scene.kubectl(&["annotate", all, "--all", "note=mine"], "").await;
    is_at_rest(&mut scene, ACCOUNT).await;
    assert_eq!(fleet(&scene).await, before);

    scene.plane.install_crds(&apiserver::crds()).await.unwrap();
    class_status::says(&mut scene, "True", "Valid", "Machines can be made").await;
    own_fields_are(&mut scene, true).await;
    is_at_rest(&mut scene, ACCOUNT).await;
    assert_eq!(fleet(&scene).await, before);

    for machines in [5, 1, 0] {
        scene.scale(machines).await;
        scene.settled_at(machines as usize, LIMIT).await;
    }
    laws::one_vm_a_machine(&scene.journal().await.unwrap()).unwrap();
    assert!(scene.manager.service.is_running());
    assert_eq!(
        scene.manager.service.pid(),
        manager,
        "the manager is the one that began"
    );
    is_refused_nothing(&scene, ACCOUNT);
}
