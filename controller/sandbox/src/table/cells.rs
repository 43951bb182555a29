//! What stands in the cells of built-in kinds, in the order of their columns in `heads`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use crate::kinds::Kind;
use crate::object::text;

/// The text at a pointer, or what is shown where there is none.
fn or<'a>(object: &'a Value, pointer: &str, none: &'a str) -> &'a str {
    Some(text(object, pointer))
        .filter(|text| !text.is_empty())
        .unwrap_or(none)
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + Clone {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn count(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn is_deleting(object: &Value) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

/// The row of an object of a built-in kind, an Event under its core names.
pub fn of(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = json!(text(object, "/metadata/name"));
    let age = json!(age::of(object.pointer("/metadata/creationTimestamp"), now));
    match kind.kind.as_str() {
        "Secret" => vec![name, json!(text(object, "/type")), json!(count(object, "/data")), age],
        "ConfigMap" => vec![name, json!(count(object, "/data") + count(object, "/binaryData")), age],
        "Namespace" => vec![name, json!(text(object, "/status/phase")), age],
        "ServiceAccount" => vec![name, age],
        "Lease" => vec![name, json!(text(object, "/spec/holderIdentity")), age],
        "ControllerRevision" => vec![name, json!(controller(object)), json!(number(object, "/revision")), age],
        "PodDisruptionBudget" => {
            let bound = |pointer| object.pointer(pointer).map_or_else(|| "N/A".to_owned(), shown);
            let (least, most) = (bound("/spec/minAvailable"), bound("/spec/maxUnavailable"));
            vec![
                name,
                json!(least),
                json!(most),
                json!(number(object, "/status/disruptionsAllowed")),
                age,
            ]
        }
        "VolumeAttachment" => {
            let attached = object.pointer("/status/attached").cloned().unwrap_or(json!(false));
            let volume = text(object, "/spec/source/persistentVolumeName");
            vec![
                name,
                json!(text(object, "/spec/attacher")),
                json!(volume),
                json!(text(object, "/spec/nodeName")),
                attached,
                age,
            ]
        }
        "RoleBinding" | "ClusterRoleBinding" => binding(object, name, age),
        "Node" => node(object, name, age),
        "Pod" => pod(object, name, age),
        "Event" => event(object, now),
        "PersistentVolume" => volume(object, name, age),
        "PersistentVolumeClaim" => claim(object, name, age),
        _ => vec![name, json!(text(object, "/metadata/creationTimestamp"))],
    }
}

/// The row of a scale.
pub fn of_scale(scale: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        json!(text(scale, "/metadata/name")),
        json!(number(scale, "/spec/replicas")),
        json!(number(scale, "/status/replicas")),
        json!(age::of(scale.pointer("/metadata/creationTimestamp"), now)),
    ]
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn controller(object: &Value) -> String {
    let owner = items(object, "/metadata/ownerReferences").find(|owner| owner.get("controller") == Some(&json!(true)));
    owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let kind = text(owner, "/kind").to_lowercase();
            let group = text(owner, "/apiVersion")
                .split_once('/')
                .map_or("", |(group, _)| group);
            let dot = if group.is_empty() { "" } else { "." };
            format!("{kind}{dot}{group}/{}", text(owner, "/name"))
        },
    )
}

fn binding(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| {
        let names = items(object, "/subjects").filter(|subject| text(subject, "/kind") == kind);
        let names = names.map(|subject| match text(subject, "/namespace") {
            "" => text(subject, "/name").to_owned(),
            namespace => format!("{namespace}/{}", text(subject, "/name")),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        name,
        json!(role),
        age,
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn node(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let ready = items(object, "/status/conditions").find(|one| text(one, "/type") == "Ready");
    let mut status = match ready.map(|one| text(one, "/status")) {
        None => "Unknown".to_owned(),
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if object.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status += ",SchedulingDisabled";
    }
    let address = |kind: &str| {
        let found = items(object, "/status/addresses").find(|one| text(one, "/type") == kind);
        json!(found.map_or("<none>", |one| text(one, "/address")))
    };
    let info = |key: &str| or(object, &format!("/status/nodeInfo/{key}"), "<unknown>").to_owned();
    let mut kernel = info("kernelVersion");
    let processor = text(object, "/status/nodeInfo/architecture");
    if kernel != "<unknown>" && !processor.is_empty() {
        kernel = format!("{kernel} ({processor})");
    }
    vec![
        name,
        json!(status),
        json!(roles(object)),
        age,
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

fn roles(object: &Value) -> String {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let mut roles: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(role)
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    }
}

fn pod(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let states = items(object, "/status/containerStatuses");
    let ready = states
        .clone()
        .filter(|state| state.get("ready") == Some(&json!(true)))
        .count();
    let all = items(object, "/spec/containers").count();
    let restarts: i64 = states.clone().map(|state| number(state, "/restartCount")).sum();
    let waiting = states.filter_map(|state| {
        let reason = |pointer| Some(text(state, pointer)).filter(|reason| !reason.is_empty());
        reason("/state/waiting/reason").or_else(|| reason("/state/terminated/reason"))
    });
    let mut status = or(object, "/status/reason", text(object, "/status/phase"));
    status = waiting.last().unwrap_or(status);
    if is_deleting(object) {
        status = "Terminating";
    }
    vec![
        name,
        json!(format!("{ready}/{all}")),
        json!(status),
        json!(restarts.to_string()),
        age,
        json!(or(object, "/status/podIP", "<none>")),
        json!(or(object, "/spec/nodeName", "<none>")),
        json!(or(object, "/status/nominatedNodeName", "<none>")),
        json!("<none>"),
    ]
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let at = |pointer: &str| object.pointer(pointer).filter(|time| !time.is_null());
    let first = at("/firstTimestamp").or_else(|| at("/eventTime"));
    let last = at("/series/lastObservedTime")
        .or_else(|| at("/lastTimestamp"))
        .or(first);
    let times = match object.get("series") {
        Some(series) => number(series, "/count"),
        None => number(object, "/count").max(1),
    };
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let about = match text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let reporter = match text(object, "/source/component") {
        "" => (text(object, "/reportingComponent"), text(object, "/reportingInstance")),
        component => (component, text(object, "/source/host")),
    };
    let source = match reporter {
        (component, "") => component.to_owned(),
        (component, place) => format!("{component}, {place}"),
    };
    vec![
        json!(age::of(last, now)),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(about),
        json!(text(object, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(object, "/message").trim()),
        json!(age::of(first, now)),
        json!(times),
        json!(text(object, "/metadata/name")),
    ]
}

/// Access modes by their short names.
fn modes(object: &Value, pointer: &str) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => Some("RWO"),
        Some("ReadOnlyMany") => Some("ROX"),
        Some("ReadWriteMany") => Some("RWX"),
        Some("ReadWriteOncePod") => Some("RWOP"),
        _ => None,
    };
    items(object, pointer).filter_map(short).collect::<Vec<_>>().join(",")
}

fn phase(object: &Value) -> &str {
    if is_deleting(object) {
        "Terminating"
    } else {
        text(object, "/status/phase")
    }
}

fn volume(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let claim = match text(object, "/spec/claimRef/name") {
        "" => String::new(),
        claim => format!("{}/{claim}", text(object, "/spec/claimRef/namespace")),
    };
    vec![
        name,
        json!(object.pointer("/spec/capacity/storage").map(shown).unwrap_or_default()),
        json!(modes(object, "/spec/accessModes")),
        json!(text(object, "/spec/persistentVolumeReclaimPolicy")),
        json!(phase(object)),
        json!(claim),
        json!(text(object, "/spec/storageClassName")),
        json!(or(object, "/spec/volumeAttributesClassName", "<unset>")),
        json!(text(object, "/status/reason")),
        age,
        json!(or(object, "/spec/volumeMode", "<unset>")),
    ]
}

fn claim(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let volume = text(object, "/spec/volumeName");
    // Before it has a volume, a claim has neither size nor modes.
    let bound = |shown: String| if volume.is_empty() { String::new() } else { shown };
    vec![
        name,
        json!(phase(object)),
        json!(volume),
        json!(bound(
            object
                .pointer("/status/capacity/storage")
                .map(shown)
                .unwrap_or_default()
        )),
        json!(bound(modes(object, "/status/accessModes"))),
        json!(text(object, "/spec/storageClassName")),
        json!(or(object, "/spec/volumeAttributesClassName", "<unset>")),
        age,
        json!(or(object, "/spec/volumeMode", "<unset>")),
    ]
}
