//! A small pool with something of everything: valid objects of all kinds that a manager reads.

use millwright_core::api::keys;
use serde_json::{Value, json};

/// The Machine that is deleted while pods run on its Node.
pub const LEAVING: &str = "leaving";

/// All objects, by kind and name.
pub fn all() -> Vec<(&'static str, &'static str, Value)> {
    let machines = [
        (
            "running",
            json!({"phase": "Running", "lastUpdateTime": "2026-01-01T11:00:00Z"}),
        ),
        (
            "pending",
            json!({"phase": "Pending", "lastUpdateTime": "2026-01-01T11:59:00Z", "timeoutActive": true}),
        ),
        (
            "unknown",
            json!({"phase": "Unknown", "lastUpdateTime": "2026-01-01T11:00:00Z"}),
        ),
        (
            "failed",
            json!({"phase": "Failed", "lastUpdateTime": "2026-01-01T11:00:00Z"}),
        ),
        (
            LEAVING,
            json!({"phase": "Terminating", "lastUpdateTime": "2026-01-01T11:59:00Z"}),
        ),
    ];
    let mut all = vec![
        ("MachineClass", "small", class()),
        ("Secret", "credentials", named("credentials", json!({}))),
        ("MachineDeployment", "workers", deployment()),
        ("MachineSet", "workers-new", set("workers-new", true)),
        ("MachineSet", "workers-old", set("workers-old", true)),
        ("MachineSet", "lonely", set("lonely", false)),
    ];
    for (name, current) in machines {
        all.push(("Machine", name, machine(name, &current)));
        all.push(("Node", name, node(name)));
    }
    all.push(("Pod", "web", pod("web")));
    all.push(("Pod", "db", pod("db")));
    all
}

fn named(name: &str, more: Value) -> Value {
    let mut metadata = json!({
        "name": name, "namespace": "test", "uid": format!("uid-{name}"), "resourceVersion": "7", "generation": 2,
        "creationTimestamp": "2026-01-01T10:00:00Z", "finalizers": [keys::FINALIZER],
        "labels": {"pool": "workers"}, "annotations": {"team": "a"},
    });
    millwright_core::merge::apply(&mut metadata, &more);
    json!({ "metadata": metadata })
}

fn owned(name: &str, kind: &str, owner: &str) -> Value {
    let owner = json!([{
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": owner, "uid": format!("uid-{owner}"), "controller": true,
    }]);
    named(name, json!({ "ownerReferences": owner }))
}

fn with(mut object: Value, more: Value) -> Value {
    millwright_core::merge::apply(&mut object, &more);
    object
}

fn class() -> Value {
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Valid", "message": "Machines can be made of the class.",
        "observedGeneration": 2, "lastTransitionTime": "2026-01-01T10:00:00Z",
    });
    with(
        named("small", json!({})),
        json!({
            "provider": "virtual",
            "providerSpec": {"region": "a", "disks": [{"size": 20}], "deep": {"er": {"still": [1, 2.5, null]}}},
            "secretRef": {"name": "credentials", "namespace": "test"},
            "credentialsSecretRef": {"name": "shared"},
            "nodeTemplate": {"capacity": {"cpu": "2", "gpu": "0", "memory": "4Gi"}, "virtualCapacity": {"example.com/slots": "3"},
                "instanceType": "m", "region": "a", "zone": "a1", "architecture": "amd64"},
            "status": {"conditions": [condition]},
        }),
    )
}

fn node_template() -> Value {
    json!({
        "metadata": {"labels": {"role": "worker"}, "annotations": {"owner": "a"}},
        "spec": {"taints": [{"key": "dedicated", "value": "a", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
    })
}

fn machine_spec() -> Value {
    json!({
        "class": {"apiGroup": "machine.sapcloud.io", "kind": "MachineClass", "name": "small"},
        "nodeTemplate": node_template(),
        "drainTimeout": "2h0m0s", "healthTimeout": "10m", "creationTimeout": "20m", "inPlaceUpdateTimeout": "20m",
        "machinePreserveTimeout": "96h", "disableHealthTimeout": false, "maxEvictRetries": 9,
        "nodeConditions": "KernelDeadlock,DiskPressure",
    })
}

fn deployment() -> Value {
    let metadata =
        json!({"annotations": {keys::REVISION: "2", keys::TRIGGER_DELETION: "running~2026-01-01T11:59:30Z"}});
    let conditions = json!([
        {"type": "Available", "status": "True", "reason": "MinimumMachinesAvailable", "message": "m",
            "lastUpdateTime": "2026-01-01T11:00:00Z", "lastTransitionTime": "2026-01-01T11:00:00Z"},
        {"type": "Progressing", "status": "True", "reason": "MachineSetUpdated", "message": "m",
            "lastUpdateTime": "2026-01-01T11:00:00Z", "lastTransitionTime": "2026-01-01T11:00:00Z"},
        {"type": "OfSomebodyElse", "status": "True", "reason": "r"},
    ]);
    with(
        named("workers", metadata),
        json!({
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"pool": "workers"}, "matchExpressions": [{"key": "pool", "operator": "Exists"}]},
                "template": {"metadata": {"labels": {"pool": "workers"}, "annotations": {"a": "b"}, "finalizers": ["x/y"]},
                    "spec": machine_spec()},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 1},
                    "inPlaceUpdate": {"maxUnavailable": 1, "orchestrationType": "Auto"}},
                "minReadySeconds": 10, "revisionHistoryLimit": 2, "progressDeadlineSeconds": 600, "paused": false,
                "autoPreserveFailedMachineMax": 1,
            },
            "status": {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 1, "collisionCount": 0,
                "conditions": conditions, "failedMachines": [{"name": "failed", "ownerRef": "workers-old", "providerID": "id-failed"}],
                "labelSelector": "pool=workers"},
        }),
    )
}

fn set(name: &str, is_owned: bool) -> Value {
    let object = match is_owned {
        true => owned(name, "MachineDeployment", "workers"),
        false => named(name, json!({})),
    };
    let labels = json!({"pool": "workers", keys::TEMPLATE_HASH: name});
    let condition = json!({"type": "OfSomebodyElse", "status": "True", "reason": "r", "message": "m",
        "lastTransitionTime": "2026-01-01T11:00:00Z"});
    with(
        object,
        json!({
            "metadata": {"labels": labels, "annotations": {keys::REVISION: "1"}},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": labels}, "deletePolicy": "Oldest", "minReadySeconds": 10,
                "template": {"metadata": {"labels": labels}, "spec": machine_spec()},
            },
            "status": {"replicas": 1, "readyReplicas": 1, "nextMachineNumber": 4, "settledMachineNumber": 2,
                "machineSetCondition": [condition], "lastOperation": {"lastUpdateTime": "2026-01-01T11:00:00Z"}},
        }),
    )
}

fn machine(name: &str, current: &Value) -> Value {
    let owner = if name == "running" { "lonely" } else { "workers-old" };
    let deleted = (name == LEAVING).then_some("2026-01-01T11:59:00Z");
    with(
        owned(name, "MachineSet", owner),
        json!({
            "metadata": {"labels": {keys::NODE: name, keys::TEMPLATE_HASH: owner}, "deletionTimestamp": deleted,
                "annotations": {keys::PRIORITY: "3", keys::PRESERVE: "when-failed"}},
            "spec": with(machine_spec(), json!({"providerID": format!("id-{name}")})),
            "status": {
                "currentStatus": current,
                "lastOperation": {"description": "words", "errorCode": "Internal", "state": "Failed", "type": "Create",
                    "lastUpdateTime": "2026-01-01T11:00:00Z"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "lastKnownState": "crumb",
                "creationRequest": {"provider": "virtual", "providerSpec": {"region": "a"}, "inventoryKey": "a",
                    "secretRefs": [{"name": "credentials", "namespace": "test"}]},
            },
        }),
    )
}

fn node(name: &str) -> Value {
    let is_ready = if name == "unknown" { "False" } else { "True" };
    with(
        named(
            name,
            json!({"namespace": null, "labels": {keys::MACHINE_NAME: name, keys::ZONE: "a1"}}),
        ),
        json!({
            "spec": {"providerID": format!("id-{name}"), "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": is_ready, "reason": "KubeletReady", "message": "kubelet is posting ready status",
                        "lastHeartbeatTime": "2026-01-01T11:59:00Z", "lastTransitionTime": "2026-01-01T11:00:00Z"},
                    {"type": "DiskPressure", "status": "False"},
                ],
                "capacity": {"cpu": "2", "example.com/slots": "3"},
                "volumesAttached": [{"name": "v", "devicePath": "d"}],
            },
        }),
    )
}

fn pod(name: &str) -> Value {
    with(
        named(
            name,
            json!({"deletionTimestamp": "2026-01-01T11:59:30Z", "deletionGracePeriodSeconds": 30}),
        ),
        json!({
            "spec": {"nodeName": LEAVING, "priority": 0, "terminationGracePeriodSeconds": 30,
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
            "status": {"phase": "Running"},
        }),
    )
}
