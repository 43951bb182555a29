//! The kinds that sequences are about, with bodies that a server takes and, for our own, bodies that it refuses.
//!
//! Built-in kinds get no wrong bodies: the sandbox does not judge those (its documentation says so).

use serde_json::{Value, json};

use super::script::Step;

/// A kind.
#[derive(Debug)]
pub struct Kind {
    pub kind: &'static str,
    pub plural: &'static str,
    /// As `/api/v1`.
    pub root: &'static str,
    pub api_version: &'static str,
    pub namespaced: bool,
    /// Defined by us.
    pub custom: bool,
    pub status: bool,
    pub scale: bool,
    /// Whether a PUT of what [`Kind::whole`] gives is one that the server takes: it guards fields of some built-in kinds.
    pub replaceable: bool,
    /// How often, relative to others.
    pub weight: usize,
    /// Selectors of fields, and one that is unknown.
    pub fields: &'static [&'static str],
}

const fn ours(kind: &'static str, plural: &'static str, status: bool, scale: bool) -> Kind {
    Kind {
        kind,
        plural,
        root: "/apis/machine.sapcloud.io/v1alpha1",
        api_version: "machine.sapcloud.io/v1alpha1",
        namespaced: true,
        custom: true,
        status,
        scale,
        replaceable: true,
        weight: 10,
        fields: &["metadata.name=a", "metadata.name!=a", "spec.providerID=x"],
    }
}

const fn core(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        kind,
        plural,
        root: "/api/v1",
        api_version: "v1",
        namespaced: true,
        custom: false,
        status: false,
        scale: false,
        replaceable: true,
        weight: 3,
        fields: &["metadata.name=a", "metadata.name!=a", "spec.nothing=x"],
    }
}

/// All of them.
pub static KINDS: [Kind; 13] = [
    ours("Machine", "machines", true, false),
    ours("MachineSet", "machinesets", true, true),
    ours("MachineDeployment", "machinedeployments", true, true),
    ours("MachineClass", "machineclasses", true, false),
    Kind {
        weight: 8,
        fields: &["type=Opaque", "metadata.name=a,type!=Opaque", "data.a=x"],
        ..core("Secret", "secrets")
    },
    core("ConfigMap", "configmaps"),
    Kind {
        root: "/apis/coordination.k8s.io/v1",
        api_version: "coordination.k8s.io/v1",
        weight: 6,
        ..core("Lease", "leases")
    },
    Kind {
        namespaced: false,
        status: true,
        weight: 8,
        fields: &["spec.unschedulable=true", "metadata.name={{ns}}-a", "spec.taints=x"],
        ..core("Node", "nodes")
    },
    Kind {
        status: true,
        replaceable: false,
        weight: 6,
        fields: &[
            "spec.nodeName=n1",
            "status.phase=Pending",
            "spec.nodeName!=n1,status.phase!=Running",
            "spec.nothing=x",
        ],
        ..core("Pod", "pods")
    },
    Kind {
        root: "/apis/policy/v1",
        api_version: "policy/v1",
        status: true,
        ..core("PodDisruptionBudget", "poddisruptionbudgets")
    },
    Kind {
        root: "/apis/events.k8s.io/v1",
        api_version: "events.k8s.io/v1",
        replaceable: false,
        fields: &["reason=Created", "regarding.kind=Machine", "type=Normal", "note=x"],
        ..core("Event", "events")
    },
    Kind {
        namespaced: false,
        status: true,
        replaceable: false,
        weight: 1,
        fields: &["metadata.name={{ns}}-a", "spec.nothing=x"],
        ..core("PersistentVolume", "persistentvolumes")
    },
    Kind {
        root: "/apis/storage.k8s.io/v1",
        api_version: "storage.k8s.io/v1",
        namespaced: false,
        status: true,
        replaceable: false,
        weight: 1,
        fields: &["metadata.name={{ns}}-a", "spec.nothing=x"],
        ..core("VolumeAttachment", "volumeattachments")
    },
];

/// The kind of that name.
#[must_use]
pub fn named(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|one| one.kind == kind)
}

/// The kind that a path is about.
#[must_use]
pub fn of_path(path: &str) -> Option<&'static Kind> {
    let path = path.split('?').next().unwrap_or_default();
    KINDS.iter().find(|kind| {
        let inner = path.strip_prefix(kind.root).unwrap_or_default();
        inner.split('/').any(|part| part == kind.plural)
    })
}

impl Kind {
    /// Path of the collection over all namespaces.
    #[must_use]
    pub fn everywhere(&self) -> String {
        format!("{}/{}", self.root, self.plural)
    }

    /// Path of the sequence's collection.
    #[must_use]
    pub fn here(&self) -> String {
        if self.namespaced {
            format!("{}/namespaces/{{{{ns}}}}/{}", self.root, self.plural)
        } else {
            self.everywhere()
        }
    }

    /// A name as the server knows it: those without namespaces bear the sequence's.
    #[must_use]
    pub fn full(&self, name: &str) -> String {
        if self.namespaced {
            name.to_owned()
        } else {
            format!("{{{{ns}}}}-{name}")
        }
    }

    /// Path of an object.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        format!("{}/{}", self.here(), self.full(name))
    }

    /// A placeholder.
    #[must_use]
    pub fn said(&self, what: &str, name: &str) -> String {
        format!("{{{{{what}:{}/{name}}}}}", self.kind)
    }

    /// The request that makes an object that ends a stream.
    #[must_use]
    pub fn mark(&self) -> Step {
        Step {
            method: "POST".to_owned(),
            path: self.here(),
            media: "application/json".to_owned(),
            body: Some(self.whole("z", 0).to_string()),
            ..Step::default()
        }
    }

    /// An object with a name and nothing in its metadata beside it, but for what tells whose it is.
    #[must_use]
    pub fn whole(&self, name: &str, flavour: usize) -> Value {
        let mut out = self.content(flavour);
        out["apiVersion"] = json!(self.api_version);
        out["kind"] = json!(self.kind);
        out["metadata"] = json!({ "name": self.full(name) });
        if !self.namespaced {
            out["metadata"]["labels"] = json!({ "room": "{{ns}}" });
        }
        out
    }

    /// Everything but metadata, in one of three flavours.
    #[must_use]
    pub fn content(&self, flavour: usize) -> Value {
        let flavours = match self.kind {
            "Machine" => machine(),
            "MachineSet" => set(),
            "MachineDeployment" => deployment(),
            "MachineClass" => class(),
            "Secret" => secret(),
            "ConfigMap" => [
                json!({ "data": { "a": "1" } }),
                json!({}),
                json!({ "data": { "a": "2", "b": "3" }, "binaryData": { "c": "Yg==" } }),
            ],
            "Lease" => lease(),
            "Node" => node(),
            "Pod" => pod(),
            "PodDisruptionBudget" => [
                json!({ "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "x" } } } }),
                json!({ "spec": { "maxUnavailable": "50%", "selector": { "matchLabels": { "app": "x" } } } }),
                json!({ "spec": { "maxUnavailable": 0, "selector": {} } }),
            ],
            "Event" => [event("Created"), event("Failed"), event("Created")],
            "PersistentVolume" => [volume(), volume(), volume()],
            _ => [attachment(), attachment(), attachment()],
        };
        flavours[flavour % 3].clone()
    }

    /// A status, in one of three flavours.
    #[must_use]
    pub fn state(&self, flavour: usize) -> Value {
        let flavours = match self.kind {
            "Machine" => [
                json!({ "currentStatus": { "phase": "Running", "lastUpdateTime": "2020-01-01T00:00:00Z" } }),
                json!({ "conditions": [{ "type": "Ready", "status": "True" }], "lastKnownState": "x" }),
                json!({ "currentStatus": { "phase": "Failed", "timeoutActive": false }, "extra": { "kept": [1, 2] } }),
            ],
            "MachineSet" => [
                json!({ "replicas": 2, "labelSelector": "app=x" }),
                json!({ "replicas": 0, "readyReplicas": 0, "observedGeneration": 1 }),
                json!({ "nextMachineNumber": 7, "machineSetCondition": [{ "type": "Frozen", "status": "True" }] }),
            ],
            "MachineDeployment" => [
                json!({ "replicas": 3, "labelSelector": "app=x" }),
                json!({ "replicas": 1, "conditions": [{ "type": "Available", "status": "True" }] }),
                json!({ "observedGeneration": 2, "collisionCount": 1 }),
            ],
            "MachineClass" => [
                json!({ "conditions": [ready("True", "Valid")] }),
                json!({ "conditions": [ready("False", "SecretMissing"), { "type": "Other" }] }),
                json!({ "conditions": [ready("Unknown", "DriverNotConnected")], "extra": { "kept": [1, 2] } }),
            ],
            "Node" => [
                json!({ "conditions": [{ "type": "Ready", "status": "True" }] }),
                json!({ "conditions": [{ "type": "Ready", "status": "False" }, { "type": "DiskPressure", "status": "False" }] }),
                json!({ "capacity": { "cpu": "2" } }),
            ],
            "Pod" => [
                json!({ "phase": "Running" }),
                json!({ "conditions": [{ "type": "Ready", "status": "True" }] }),
                json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" }] }),
            ],
            "PodDisruptionBudget" => [
                json!({ "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 1 }),
                json!({ "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1 }),
                json!({ "disruptionsAllowed": 2, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3, "observedGeneration": 2 }),
            ],
            "PersistentVolume" => [
                json!({ "phase": "Bound" }),
                json!({ "phase": "Pending" }),
                json!({ "phase": "Bound" }),
            ],
            _ => [
                json!({ "attached": true }),
                json!({ "attached": false }),
                json!({ "attached": true }),
            ],
        };
        flavours[flavour % 3].clone()
    }

    /// Content of ours that the server refuses, or from which it drops what it does not know.
    #[must_use]
    pub fn wrong(&self, flavour: usize) -> Value {
        let mut out = self.content(flavour);
        let wrongs = match self.kind {
            "Machine" => vec![
                ("/spec", json!("text")),
                ("/spec/class", json!({ "name": 7 })),
                ("/spec/maxEvictRetries", json!(1.5)),
                ("/spec/nodeTemplate", json!({ "spec": { "taints": [{ "key": "a" }] } })),
                ("/bogus", json!({ "a": 1 })),
                ("/spec/disableHealthTimeout", json!("yes")),
                ("/status", json!({ "conditions": [{ "type": "Ready" }] })),
                ("/spec/class/bogus", json!(1)),
            ],
            "MachineSet" => vec![
                ("/spec", json!({ "replicas": 1 })),
                ("/spec/replicas", json!("three")),
                ("/spec/replicas", json!(-1)),
                ("/spec/replicas", json!(3_000_000_000_i64)),
                ("/spec/replicas", json!([])),
                ("/spec/selector", json!({ "matchExpressions": [{ "key": "a" }] })),
                ("/spec", json!([])),
                ("/bogus", json!([])),
            ],
            "MachineDeployment" => vec![
                ("/spec", json!({ "selector": {} })),
                ("/spec/template", Value::Null),
                ("/spec/strategy", json!({ "rollingUpdate": { "maxSurge": true } })),
                (
                    "/spec/strategy",
                    json!({ "type": "Worst", "rollingUpdate": { "maxSurge": "5" }, "inPlaceUpdate": { "maxSurge": "5%" } }),
                ),
                ("/spec/replicas", json!(2_147_483_648_i64)),
                ("/spec/paused", json!(0)),
                ("/spec", Value::Null),
                ("/spec/rollbackTo", json!({ "revision": "1" })),
                ("/bogus", json!("x")),
            ],
            _ => vec![
                ("/providerSpec", json!("text")),
                ("/providerSpec", Value::Null),
                ("/nodeTemplate", json!({ "zone": "a" })),
                ("/secretRef", json!([])),
                ("/secretRef", json!({ "name": true, "namespace": 1 })),
                ("/provider", json!({})),
            ],
        };
        let (pointer, value) = &wrongs[flavour % wrongs.len()];
        put(&mut out, pointer, value.clone());
        out
    }

    /// What [`Kind::wrong`] chooses from.
    pub const WRONGS: usize = 72;
}

/// Sets what a pointer names, making objects on the way.
pub fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for key in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    *at = value;
}

/// A condition of a class.
fn ready(status: &str, reason: &str) -> Value {
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": "x", "observedGeneration": 1,
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    })
}

fn machine() -> [Value; 3] {
    [
        json!({ "spec": { "class": { "kind": "MachineClass", "name": "small" } } }),
        json!({ "spec": {
            "class": { "kind": "MachineClass", "name": "small" }, "providerID": "virtual:///1", "creationTimeout": "10m",
            "nodeTemplate": { "metadata": { "labels": { "pool": "a" } }, "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } },
        } }),
        json!({ "spec": { "class": { "name": "large" }, "unknown": { "kept": true } }, "status": { "lastKnownState": "dropped" } }),
    ]
}

fn template(label: &str) -> Value {
    json!({ "metadata": { "labels": { "app": label } }, "spec": { "class": { "kind": "MachineClass", "name": "small" } } })
}

fn set() -> [Value; 3] {
    [
        json!({ "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "x" } }, "template": template("x") } }),
        json!({ "spec": { "selector": { "matchLabels": { "app": "y" } }, "template": template("y"), "deletePolicy": "Oldest" } }),
        json!({ "spec": {
            "replicas": 0, "minReadySeconds": 5,
            "selector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["x", "y"] }] },
        } }),
    ]
}

fn deployment() -> [Value; 3] {
    [
        json!({ "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "x" } }, "template": template("x") } }),
        json!({ "spec": {
            "selector": { "matchLabels": { "app": "y" } }, "template": template("y"),
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "20%", "maxUnavailable": 0 } },
        } }),
        json!({ "spec": {
            "replicas": 1, "paused": true, "progressDeadlineSeconds": 60, "selector": { "matchLabels": { "app": "x" } },
            "template": template("x"), "strategy": { "type": "Recreate" },
        }, "status": { "replicas": 9 } }),
    ]
}

fn class() -> [Value; 3] {
    [
        json!({ "provider": "virtual", "providerSpec": { "size": "small" } }),
        json!({ "provider": "virtual", "providerSpec": {}, "secretRef": { "name": "s", "namespace": "{{ns}}" } }),
        json!({
            "providerSpec": { "deep": { "list": [1, { "a": null }] } },
            "nodeTemplate": { "capacity": { "cpu": "2" }, "instanceType": "i", "region": "r", "zone": "z" },
        }),
    ]
}

fn secret() -> [Value; 3] {
    [
        json!({ "data": { "a": "MQ==" } }),
        json!({ "stringData": { "userData": "#cloud-config" } }),
        json!({ "type": "bootstrap.kubernetes.io/token", "data": { "token-id": "YWJjZGVm" } }),
    ]
}

fn lease() -> [Value; 3] {
    [
        json!({ "spec": { "holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0 } }),
        json!({ "spec": { "holderIdentity": "two", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.123456Z" } }),
        json!({ "spec": {} }),
    ]
}

fn node() -> [Value; 3] {
    [
        json!({ "spec": { "providerID": "virtual:///1" } }),
        json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }], "unschedulable": true } }),
        json!({}),
    ]
}

fn pod() -> [Value; 3] {
    let containers = json!([{ "name": "c", "image": "registry.example/x:1" }]);
    [
        json!({ "spec": { "containers": containers } }),
        json!({ "spec": { "containers": containers, "nodeName": "n1" } }),
        json!({ "spec": { "containers": containers, "terminationGracePeriodSeconds": 0, "nodeName": "n1" } }),
    ]
}

fn event(reason: &str) -> Value {
    json!({
        "eventTime": "2020-01-01T00:00:00.000000Z", "action": "Reconcile", "reason": reason, "note": "said once", "type": "Normal",
        "reportingController": "machine.sapcloud.io/millwright", "reportingInstance": "one",
        "regarding": { "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "name": "a", "namespace": "{{ns}}" },
    })
}

fn volume() -> Value {
    json!({ "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "csi": { "driver": "d", "volumeHandle": "h" } } })
}

fn attachment() -> Value {
    json!({ "spec": { "attacher": "d", "nodeName": "n1", "source": { "persistentVolumeName": "v" } } })
}
