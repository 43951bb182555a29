//! The objects that kubelets write, as JSON. Shapes only; no request is made here.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    cloud::Vm,
    labels,
    size::{Resources, Size},
};

const VERSION: &str = "v1.36.0";
/// A kubelet's own ratio of a Lease's duration to its renewal.
const LEASE_BEATS: u32 = 4;

/// The node of a VM that has just powered on, with its status: the API server keeps it on creation.
pub(super) fn node(vm: &Vm, now: Timestamp) -> Value {
    let mut labels = labels::of_place(&vm.region, &vm.zone, &vm.instance_type);
    labels.insert(labels::HOSTNAME.to_owned(), vm.node_name());
    let (capacity, allocatable) = Size::named(&vm.instance_type).map_or_else(Default::default, |size| {
        (resources(size.capacity()), resources(size.allocatable()))
    });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": vm.node_name(), "labels": labels },
        "spec": { "providerID": vm.provider_id() },
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "addresses": [
                { "type": "InternalIP", "address": vm.address.to_string() },
                { "type": "Hostname", "address": vm.node_name() },
            ],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "enough memory is free", now),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "enough disk is free", now),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "enough process ids are free", now),
                is_ready(now),
            ],
            "nodeInfo": node_info(vm),
        },
    })
}

fn node_info(vm: &Vm) -> Value {
    json!({
        "machineID": vm.id,
        "systemUUID": vm.id,
        "bootID": vm.running_at.to_string(),
        "kernelVersion": "6.12.0-virtual",
        "osImage": "Millwright virtual machine",
        "containerRuntimeVersion": "virtual://1.0.0",
        "kubeletVersion": VERSION,
        "kubeProxyVersion": VERSION,
        "operatingSystem": labels::OPERATING_SYSTEM,
        "architecture": labels::ARCHITECTURE,
    })
}

fn resources(resources: Resources) -> Value {
    resources
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), Value::from(amount)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let now = seconds(now);
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    })
}

fn is_ready(now: Timestamp) -> Value {
    condition("Ready", "True", "KubeletReady", "the simulated kubelet is up", now)
}

/// Patch of the status of a node whose VM was powered on again.
pub(super) fn ready(now: Timestamp) -> Value {
    json!({ "status": { "conditions": [is_ready(now)] } })
}

/// Patch of the status of a node that nobody hears of any more.
pub(super) fn unknown(now: Timestamp) -> Value {
    let now = seconds(now);
    json!({ "status": { "conditions": [{
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": now,
    }] } })
}

/// A node's first Lease. It belongs to the node, so a cluster with a garbage collector removes it with the node.
pub(super) fn lease(vm: &Vm, node_uid: &str, now: Timestamp, heartbeat: Duration) -> Value {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "name": vm.node_name(), "uid": node_uid });
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": vm.node_name(), "ownerReferences": [node] },
        "spec": lease_spec(vm, now, heartbeat),
    })
}

/// Patch that renews a Lease.
pub(super) fn renewal(vm: &Vm, now: Timestamp, heartbeat: Duration) -> Value {
    json!({ "spec": lease_spec(vm, now, heartbeat) })
}

fn lease_spec(vm: &Vm, now: Timestamp, heartbeat: Duration) -> Value {
    json!({
        "holderIdentity": vm.node_name(),
        "leaseDurationSeconds": heartbeat.saturating_mul(LEASE_BEATS).as_secs().max(1),
        "renewTime": format!("{now:.6}"),
    })
}

pub(super) fn lease_namespace() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-node-lease" } })
}

/// The precision of metav1.Time.
fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}
