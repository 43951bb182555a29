//! What the server adds to objects of its own kinds: defaults, the marks of its admission plugins, the two faces of an Event.
//!
//! Decides about the built-in kinds that Millwright and kubectl meet, and only what they can see there.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::failure::Cause;
use crate::kinds::Kind;
use crate::moment::Moment;
use crate::object::{self, part};

/// Sets a field that is missing.
fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry(key.to_owned()).or_insert(value);
    }
}

/// The defaults of a built-in kind, which whoever writes comes to own. What else the server adds belongs to nobody: see [`fill`].
pub fn fill_defaults(kind: &Kind, object: &mut Value) {
    if kind.custom {
        return;
    }
    match kind.kind.as_str() {
        "Secret" => secret(object),
        "Namespace" => namespace_label(object),
        "Pod" => pod_defaults(object),
        "Node" => node_defaults(object),
        "PersistentVolume" => {
            let spec = part(object, "spec");
            set(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
            set(spec, "volumeMode", json!("Filesystem"));
            if let Some(path) = spec.get_mut("hostPath") {
                set(path, "type", json!(""));
            }
        }
        "PersistentVolumeClaim" => set(part(object, "spec"), "volumeMode", json!("Filesystem")),
        "Lease" | "PodDisruptionBudget" => _ = part(object, "spec"),
        _ => {}
    }
}

/// Fills in what a new object of a built-in kind leaves open beside its defaults.
pub fn fill(kind: &Kind, object: &mut Value, moment: &Moment) {
    if kind.custom {
        return;
    }
    match kind.kind.as_str() {
        "Namespace" => namespace(object),
        "Node" => {
            let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
            let spec = part(object, "spec");
            let mut taints = spec["taints"].as_array().cloned().unwrap_or_default();
            if taints.iter().all(|one| one["key"] != taint["key"]) {
                taints.push(taint);
            }
            spec["taints"] = Value::Array(taints);
            node(object);
        }
        "Pod" => pod(object),
        "PodDisruptionBudget" => {
            let status = part(object, "status");
            for key in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
                set(status, key, json!(0));
            }
        }
        "PersistentVolume" => {
            guard(object, "kubernetes.io/pv-protection");
            object["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": moment.seconds() });
        }
        "PersistentVolumeClaim" => {
            guard(object, "kubernetes.io/pvc-protection");
            object["status"] = json!({ "phase": "Pending" });
        }
        "VolumeAttachment" => set(part(object, "status"), "attached", json!(false)),
        "Role" | "ClusterRole" => set(object, "rules", Value::Null),
        "Event" => event(object),
        "CustomResourceDefinition" => definition(object, moment),
        _ => {}
    }
}

/// Fills in what an update of a built-in kind leaves open.
pub fn refill(kind: &Kind, old: &Value, new: &mut Value) {
    if kind.custom {
        return;
    }
    match kind.kind.as_str() {
        "Secret" => secret(new),
        "Node" => {
            node_defaults(new);
            node(new);
        }
        "Lease" | "PodDisruptionBudget" => _ = part(new, "spec"),
        "Pod" => {
            if let Some(quality) = old.pointer("/status/qosClass") {
                set(part(new, "status"), "qosClass", quality.clone());
            }
            pod_conditions(new);
        }
        "Role" | "ClusterRole" => set(new, "rules", Value::Null),
        "Event" => event(new),
        "PersistentVolume" => {
            if let Some(since) = old.pointer("/status/lastPhaseTransitionTime") {
                set(part(new, "status"), "lastPhaseTransitionTime", since.clone());
            }
        }
        "Namespace" => {
            // The content of a namespace is given up by `finalize` alone.
            if let Some(held) = old.pointer("/spec/finalizers") {
                part(new, "spec")["finalizers"] = held.clone();
            }
        }
        _ => {}
    }
}

/// What is wrong with an object of a kind of the server's own, whatever it was before: data of more than a mebibyte.
pub(crate) fn complaints(kind: &Kind, object: &Value) -> Option<Cause> {
    const MOST: usize = 1024 * 1024;
    let texts = |field: &str| {
        let fields = object.get(field).and_then(Value::as_object);
        fields.into_iter().flat_map(Map::values).filter_map(Value::as_str)
    };
    let plain = |field: &str| texts(field).map(str::len).sum::<usize>();
    let bytes = |field: &str| {
        texts(field)
            .map(|text| text.trim_end_matches('=').len() * 3 / 4)
            .sum::<usize>()
    };
    let (size, field) = if kind.is("ConfigMap") {
        (plain("data") + bytes("binaryData"), "[]") // Go's text for no field
    } else if kind.is("Secret") {
        (bytes("data"), "data")
    } else {
        return None;
    };
    (size > MOST).then(|| Cause::too_long(field, MOST))
}

/// What an update of a built-in kind may not change.
pub fn update_complaints(kind: &Kind, old: &Value, new: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    let immutable = |field: &str, shown: &Value| Cause::invalid(field, shown, "field is immutable");
    if kind.is("Secret") && old.get("type") != new.get("type") {
        out.push(immutable("type", &new["type"]));
    }
    if kind.is("Node") {
        let id = |node: &Value| object::text(node, "/spec/providerID").to_owned();
        if !id(old).is_empty() && id(old) != id(new) {
            let why = "node updates may not change providerID except from \"\" to valid";
            out.push(Cause::forbidden("spec.providerID", why));
        }
    }
    if (kind.is("Secret") || kind.is("ConfigMap"))
        && old["immutable"] == json!(true)
        && (old["data"] != new["data"] || new["immutable"] != json!(true))
    {
        out.push(Cause::forbidden("data", "field is immutable when `immutable` is set"));
    }
    out
}

fn guard(object: &mut Value, finalizer: &str) {
    let metadata = object::metadata(object);
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(all) = finalizers.as_array_mut().filter(|all| !all.contains(&json!(finalizer))) {
        all.push(json!(finalizer));
    }
}

fn secret(object: &mut Value) {
    let plain = object.as_object_mut().and_then(|fields| fields.remove("stringData"));
    let plain: Map<String, Value> = plain.and_then(|value| value.as_object().cloned()).unwrap_or_default();
    for (key, value) in plain {
        let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
        part(object, "data")[&key] = json!(encoded);
    }
    set(object, "type", json!("Opaque"));
}

fn namespace_label(object: &mut Value) {
    let name = object::name(object).to_owned();
    let metadata = object::metadata(object);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    set(labels, "kubernetes.io/metadata.name", json!(name));
}

fn namespace(object: &mut Value) {
    set(part(object, "spec"), "finalizers", json!(["kubernetes"]));
    object["status"] = json!({ "phase": "Active" });
}

fn node_defaults(object: &mut Value) {
    if object.pointer("/spec/unschedulable") == Some(&json!(false)) {
        // What is left out means the same, and the server leaves it out.
        part(object, "spec")
            .as_object_mut()
            .and_then(|spec| spec.remove("unschedulable"));
    }
    if let Some(range) = object.pointer("/spec/podCIDR").cloned() {
        set(part(object, "spec"), "podCIDRs", json!([range]));
    }
    if let Some(capacity) = object.pointer("/status/capacity").cloned() {
        set(part(object, "status"), "allocatable", capacity);
    }
}

fn node(object: &mut Value) {
    part(object, "spec");
    let status = part(object, "status");
    set(status, "daemonEndpoints", json!({ "kubeletEndpoint": { "Port": 0 } }));
    if let Some(capacity) = status.get("capacity").cloned() {
        set(status, "allocatable", capacity);
    }
    let info = part(status, "nodeInfo");
    for key in [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ] {
        set(info, key, json!(""));
    }
    for condition in status
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        set(condition, "lastHeartbeatTime", Value::Null);
        set(condition, "lastTransitionTime", Value::Null);
    }
}

/// The defaults of a pod's spec.
fn pod_defaults(object: &mut Value) {
    let spec = part(object, "spec");
    for (key, value) in [
        ("dnsPolicy", json!("ClusterFirst")),
        ("enableServiceLinks", json!(true)),
        ("restartPolicy", json!("Always")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        set(spec, key, value);
    }
    for container in containers(spec) {
        let image = object::text(container, "/image").to_owned();
        let pinned = image.rsplit('/').next().is_some_and(|last| last.contains(':')) && !image.ends_with(":latest");
        set(
            container,
            "imagePullPolicy",
            json!(if pinned { "IfNotPresent" } else { "Always" }),
        );
        set(container, "resources", json!({}));
        set(container, "terminationMessagePath", json!("/dev/termination-log"));
        set(container, "terminationMessagePolicy", json!("File"));
    }
}

fn containers(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    spec.get_mut("containers")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// What admission adds to a pod, and its first status.
fn pod(object: &mut Value) {
    let spec = part(object, "spec");
    set(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    set(spec, "priority", json!(0));
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if tolerations.iter().all(|one| one["key"] != json!(key)) {
            tolerations
                .push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
    let asks = |container: &mut Value| {
        container["resources"]
            .as_object()
            .is_some_and(|asked| !asked.is_empty())
    };
    let quality = if containers(spec).any(asks) {
        "Burstable"
    } else {
        "BestEffort"
    };
    object["status"] = json!({ "phase": "Pending", "qosClass": quality });
}

fn pod_conditions(object: &mut Value) {
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        set(condition, "lastProbeTime", Value::Null);
        set(condition, "lastTransitionTime", Value::Null);
    }
}

fn event(object: &mut Value) {
    for key in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        set(object, key, Value::Null);
    }
    set(object, "reportingComponent", json!(""));
    set(object, "reportingInstance", json!(""));
    set(object, "source", json!({}));
}

/// A definition is served as soon as it is stored; the server takes a moment for the same.
fn definition(object: &mut Value, moment: &Moment) {
    let spec = part(object, "spec");
    set(spec, "conversion", json!({ "strategy": "None" }));
    let kind = object::text(spec, "/names/kind").to_owned();
    let names = part(spec, "names");
    set(names, "singular", json!(kind.to_lowercase()));
    set(names, "listKind", json!(format!("{kind}List")));
    let names = names.clone();
    let stored: Vec<Value> = object
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == json!(true))
        .map(|version| version["name"].clone())
        .collect();
    let condition = |what: &str, reason: &str, message: &str| json!({ "type": what, "status": "True", "reason": reason, "message": message, "lastTransitionTime": moment.seconds() });
    object["status"] = json!({
        "acceptedNames": names, "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    });
}

/// How the fields of an Event are called in the core group and in `events.k8s.io`.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
];

pub(crate) fn is_new_event(kind: &Kind) -> bool {
    kind.is("Event") && kind.group == "events.k8s.io"
}

/// A stored object as its kind shows it: an Event is stored under its core names.
pub fn seen_as<'a>(kind: &Kind, object: &'a Value) -> Cow<'a, Value> {
    if !is_new_event(kind) {
        return Cow::Borrowed(object);
    }
    let mut out = object.clone();
    if let Some(fields) = out.as_object_mut() {
        for (core, new) in EVENT_NAMES {
            if let Some(value) = fields.remove(core) {
                fields.insert(new.to_owned(), value);
            }
        }
        fields.retain(|key, value| *value != json!("") || !key.starts_with("reporting"));
        fields.insert("apiVersion".to_owned(), json!(kind.api_version()));
    }
    Cow::Owned(out)
}

/// The inverse of [`seen_as`], without the nulls that Go does not read.
pub fn stored_as(kind: &Kind, mut object: Value) -> Value {
    if !kind.custom {
        drop_nulls(kind, &mut object);
    }
    if !is_new_event(kind) {
        return object;
    }
    if let Some(fields) = object.as_object_mut() {
        for (core, new) in EVENT_NAMES {
            if let Some(value) = fields.remove(new) {
                fields.insert(core.to_owned(), value);
            }
        }
        fields.insert("apiVersion".to_owned(), json!("v1"));
    }
    object
}

/// Go reads null as nothing, and in a map as the zero of what the map holds.
fn drop_nulls(kind: &Kind, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.retain(|_, value| !value.is_null());
    if kind.is("ConfigMap") || kind.is("Secret") {
        for key in ["data", "binaryData", "stringData"] {
            fields.get_mut(key).into_iter().for_each(object::nulls_to_texts);
        }
    }
}
