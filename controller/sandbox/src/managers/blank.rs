//! The object that a kind's type is before anybody sets a field.
//!
//! Decides what a new object of a built-in kind has from the start, so that nobody owns it for having created the object:
//! the parts that the server's types always write. Custom kinds start with nothing.

use serde_json::{Value, json};

/// The blank object, with `apiVersion`, `kind` and empty metadata.
pub fn blank(api_version: &str, kind: &str) -> Value {
    let mut blank = parts(api_version, kind);
    if let Value::Object(fields) = &mut blank {
        fields.insert("apiVersion".to_owned(), json!(api_version));
        fields.insert("kind".to_owned(), json!(kind));
        fields.insert("metadata".to_owned(), json!({}));
    }
    blank
}

fn parts(api_version: &str, kind: &str) -> Value {
    match (api_version, kind) {
        ("v1", "Pod") => json!({"spec": {"containers": null}, "status": {}}),
        ("v1", "Node") => json!({"spec": {}, "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
            },
        }}),
        ("v1", "PersistentVolumeClaim") => json!({"spec": {"resources": {}}, "status": {}}),
        ("v1", "PersistentVolume" | "Namespace") => json!({"spec": {}, "status": {}}),
        ("coordination.k8s.io/v1", "Lease") => json!({"spec": {}}),
        ("policy/v1", "PodDisruptionBudget") => json!({"spec": {}, "status": {
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }}),
        ("storage.k8s.io/v1", "VolumeAttachment") => {
            json!({"spec": {"attacher": "", "nodeName": "", "source": {}}, "status": {"attached": false}})
        }
        ("v1", "Event") => json!({
            "involvedObject": {}, "source": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        }),
        ("events.k8s.io/v1", "Event") => json!({
            "regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
            "eventTime": null,
        }),
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => json!({"rules": null}),
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => {
            json!({"roleRef": {"apiGroup": "", "kind": "", "name": ""}})
        }
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => json!({
            "spec": {"group": "", "names": {"kind": "", "plural": ""}, "scope": "", "versions": null},
            "status": {"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null},
        }),
        _ => json!({}),
    }
}
