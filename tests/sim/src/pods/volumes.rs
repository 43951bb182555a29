//! Pods with volumes: the controller that attaches and detaches, and the storage driver that carries it out.
//!
//! A volume is attached to one Node at a time. It is attached to the Node of its pod, and detached when no pod there uses it any more:
//! at once where the kubelet says that it is unmounted, the Node is gone or is marked out of service; else only after a while, by force,
//! as the kubelet of a dead Node says nothing. Node.status.volumesAttached names a volume from when it is attached until it is about
//! to be detached.

use std::sync::Arc;

use millwright_sandbox::object;
use serde_json::{Value, json};

use super::Nodes;
use crate::event::{Actor, Truth};
use crate::kinds::{collection, path};
use crate::world::World;

/// What the storage driver holds a VolumeAttachment by until it has detached.
const FINALIZER: &str = "external-attacher/sim";
/// How long the kubelet of a Node is waited for that says nothing.
const UNMOUNTED_WITHIN: u64 = 360_000;
/// The taint of a Node that somebody knows to be shut down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What somebody has to do about a volume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Wants a volume attached to a Node.
    Attach { volume: String, node: String },
    /// Attaches it.
    Attached { attachment: String },
    /// Wants it detached.
    Detach { attachment: String, node: String },
    /// The same, where nobody says that it is unmounted.
    ForceDetach { attachment: String, node: String },
    /// Detaches it.
    Detached { attachment: String },
    /// Says on a Node what is attached to it.
    Report { node: String },
}

impl Task {
    /// The choice point, and after how many milliseconds it is done. A driver may detach later than anybody waits for.
    pub(super) fn delay(&self) -> (&'static str, &'static [u64]) {
        match self {
            Self::Attach { .. } => ("volume-wanted", &[100, 10, 2000]),
            Self::Attached { .. } => ("volume-attached", &[1500, 200, 9000]),
            Self::Detach { .. } => ("volume-unmounted", &[500, 50, 4000]),
            Self::ForceDetach { .. } => ("volume-forced", &[UNMOUNTED_WITHIN]),
            Self::Detached { .. } => ("volume-detached", &[3000, 300, 20_000, 90_000, 400_000]),
            Self::Report { .. } => ("volume-told", &[50, 10, 1000]),
        }
    }

    pub(super) fn carry_out(&self, world: &World) {
        let actor = Actor::VolumeController;
        match self {
            Self::Attach { volume, node } => {
                world.order(
                    actor,
                    "POST",
                    &collection("volumeattachments"),
                    &attachment(volume, node),
                );
            }
            Self::Attached { attachment } => {
                let path = format!("{}/status", path("volumeattachments", attachment));
                world.order(actor, "PATCH", &path, &json!({ "status": { "attached": true } }));
            }
            Self::Detach { attachment, node } | Self::ForceDetach { attachment, node } => {
                tell(world, node, Some(attachment));
                world.order(actor, "DELETE", &path("volumeattachments", attachment), &Value::Null);
            }
            Self::Detached { attachment } => {
                let body = json!({ "metadata": { "finalizers": null } });
                world.order(actor, "PATCH", &path("volumeattachments", attachment), &body);
            }
            Self::Report { node } => tell(world, node, None),
        }
    }
}

/// What is to be done about volumes now.
pub(super) fn tasks(truth: &Truth<'_>, nodes: &Nodes, pods: &[Arc<Value>]) -> Vec<Task> {
    let attachments: Vec<_> = truth.all("volumeattachments").collect();
    let mut tasks: Vec<Task> = attachments
        .iter()
        .filter_map(|attachment| of_attachment(attachment, nodes, pods))
        .collect();
    for pod in pods.iter().filter(|pod| !object::is_deleting(pod)) {
        let node = object::text(pod, "/spec/nodeName");
        let Some(volume) = volume_of(pod).filter(|_| nodes.0.contains_key(node)) else {
            continue;
        };
        if !attachments.iter().any(|attachment| volume_named(attachment) == volume) {
            let node = node.to_owned();
            tasks.push(Task::Attach { volume, node });
        }
    }
    let nodes = truth.all("nodes");
    let stale = nodes.filter(|node| told(node) != attached(&attachments, object::name(node), None));
    tasks.extend(stale.map(|node| Task::Report {
        node: object::name(&node).to_owned(),
    }));
    tasks
}

fn of_attachment(found: &Value, nodes: &Nodes, pods: &[Arc<Value>]) -> Option<Task> {
    let (attachment, node) = (object::name(found).to_owned(), node_named(found).to_owned());
    if object::is_deleting(found) {
        return Some(Task::Detached { attachment });
    }
    let uses = |pod: &Arc<Value>| {
        object::text(pod, "/spec/nodeName") == node && volume_of(pod).as_deref() == Some(volume_named(found))
    };
    if pods.iter().any(uses) {
        return (!is_attached(found)).then_some(Task::Attached { attachment });
    }
    let is_unmounted = nodes
        .0
        .get(&node)
        .is_none_or(|node| node.has_kubelet || node.is_out_of_service);
    Some(match is_unmounted {
        true => Task::Detach { attachment, node },
        false => Task::ForceDetach { attachment, node },
    })
}

/// Whether all volumes of a pod are attached to its Node.
pub(super) fn are_attached(truth: &Truth<'_>, pod: &Value) -> bool {
    let Some(volume) = volume_of(pod) else { return true };
    let node = object::text(pod, "/spec/nodeName");
    truth.all("volumeattachments").any(|attachment| {
        volume_named(&attachment) == volume && node_named(&attachment) == node && is_attached(&attachment)
    })
}

/// Whether a Node is marked as shut down.
pub(super) fn is_out_of_service(node: &Value) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let mut taints = taints.into_iter().flatten();
    taints.any(|taint| object::text(taint, "/key") == OUT_OF_SERVICE)
}

/// Says on a Node what is attached to it, but for one that is about to be detached.
fn tell(world: &World, node: &str, without: Option<&str>) {
    let names = world.look(|truth| {
        let attachments: Vec<_> = truth.all("volumeattachments").collect();
        truth
            .named("nodes", node)
            .map(|_| attached(&attachments, node, without))
    });
    let Some(names) = names else { return };
    let volumes = names.iter().map(|name| json!({ "name": name, "devicePath": "" }));
    let status = json!({ "status": { "volumesAttached": volumes.collect::<Vec<_>>() } });
    let path = format!("{}/status", path("nodes", node));
    world.order(Actor::VolumeController, "PATCH", &path, &status);
}

/// What is attached to a Node and not about to be detached.
fn attached(attachments: &[Arc<Value>], node: &str, without: Option<&str>) -> Vec<String> {
    let here = attachments.iter().filter(|attachment| {
        let is_staying = !object::is_deleting(attachment) && Some(object::name(attachment)) != without;
        is_staying && is_attached(attachment) && node_named(attachment) == node
    });
    here.map(|attachment| format!("kubernetes.io/csi/sim^{}", volume_named(attachment)))
        .collect()
}

/// What a Node says is attached to it.
fn told(node: &Value) -> Vec<String> {
    let volumes = node.pointer("/status/volumesAttached").and_then(Value::as_array);
    let names = volumes.into_iter().flatten();
    names.map(|volume| object::text(volume, "/name").to_owned()).collect()
}

/// The PersistentVolume that a pod uses, if any.
fn volume_of(pod: &Value) -> Option<String> {
    let claim = object::text(pod, "/spec/volumes/0/persistentVolumeClaim/claimName");
    claim.strip_prefix("data-").map(|name| format!("pv-{name}"))
}

fn volume_named(attachment: &Value) -> &str {
    object::text(attachment, "/spec/source/persistentVolumeName")
}

fn node_named(attachment: &Value) -> &str {
    object::text(attachment, "/spec/nodeName")
}

fn is_attached(attachment: &Value) -> bool {
    attachment.pointer("/status/attached") == Some(&Value::Bool(true))
}

fn attachment(volume: &str, node: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": format!("csi-{volume}-{node}"), "finalizers": [FINALIZER] },
        "spec": { "attacher": "sim", "nodeName": node, "source": { "persistentVolumeName": volume } },
    })
}

/// The claims of so many pods of a StatefulSet, and the volumes that are bound to them.
pub fn claims(count: u32) -> Vec<(&'static str, Value)> {
    let both = |number: u32| {
        let (claim, volume) = (format!("data-db-{number}"), format!("pv-db-{number}"));
        let size = json!({ "storage": "1Gi" });
        let modes = json!(["ReadWriteOnce"]);
        let bound = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": claim, "namespace": "default" },
            "spec": { "accessModes": modes, "resources": { "requests": size }, "volumeName": volume, "storageClassName": "sim" },
        });
        let made = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
            "spec": {
                "accessModes": modes, "capacity": size, "storageClassName": "sim",
                "csi": { "driver": "sim", "volumeHandle": volume },
            },
        });
        [("persistentvolumes", made), ("persistentvolumeclaims", bound)]
    };
    (0..count).flat_map(both).collect()
}
