//! What the human writes: the objects of the workloads. Decides nothing.

use millwright_core::merge;
use serde_json::{Value, json};

/// What stands in the user data and nowhere else.
pub const CANARY: &str = "c4n4ry-of-the-user-data";

/// Where every VM stands.
pub const ZONE: &str = "local-a";

/// A class whose driver never comes.
pub const FORSAKEN: &str = "forsaken";

/// A class whose Secret never comes.
pub const NEVER: &str = "never";

/// The finalizer of another tool.
pub const HOLD: &str = "example.org/hold";

/// A Secret whose user data bears the canary.
pub fn user_data(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": name, "namespace": "default" },
        "stringData": { "userData": format!("#cloud-config\n# {CANARY}\n# <<MACHINE_NAME>>\n# <<BOOTSTRAP_TOKEN>>\n") },
    })
}

/// A class whose driver never comes.
pub fn forsaken() -> Value {
    let mut class = class(FORSAKEN);
    if let Some(provider) = class.get_mut("provider") {
        *provider = json!("nowhere");
    }
    class
}

/// A class that names a Secret of its own.
pub fn of_secret(name: &str, secret: &str) -> Value {
    // There are no other sizes than these classes'.
    let mut class = class("small");
    if let Some(named) = class.pointer_mut("/metadata/name") {
        *named = json!(name);
    }
    if let Some(named) = class.pointer_mut("/secretRef/name") {
        *named = json!(secret);
    }
    class
}

/// A class of the virtual cloud, whose machines are of the size that is its name.
pub fn class(name: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": name, "namespace": "default" },
        "provider": "virtual",
        "providerSpec": { "instanceType": name, "region": "local", "zone": ZONE },
        "secretRef": { "name": "user-data", "namespace": "default" },
    })
}

/// The template of the workers.
pub fn template() -> Value {
    json!({
        "metadata": { "labels": { "name": "workers" } },
        "spec": { "class": { "kind": "MachineClass", "name": "small" }, "healthTimeout": "2m" },
    })
}

/// The deployment of all workloads.
pub fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "workers", "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "name": "workers" } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": template(),
        },
    })
}

/// The same, whose old machines go before new ones come.
pub fn recreated(replicas: u32) -> Value {
    let mut deployment = deployment(replicas);
    if let Some(strategy) = deployment.pointer_mut("/spec/strategy") {
        *strategy = json!({ "type": "Recreate" });
    }
    deployment
}

/// The same, whose machines are updated in place within these bounds.
pub fn updated_in_place(replicas: u32, surge: u32, unavailable: u32) -> Value {
    let mut deployment = deployment(replicas);
    if let Some(strategy) = deployment.pointer_mut("/spec/strategy") {
        let bounds = json!({ "maxSurge": surge, "maxUnavailable": unavailable, "orchestrationType": "Auto" });
        *strategy = json!({ "type": "InPlaceUpdate", "inPlaceUpdate": bounds });
    }
    deployment
}

/// A set of so many machines of a class, by a name that is its selector, too.
pub fn set_of(name: &str, replicas: u32, class: &str) -> Value {
    let (label, mut template) = (json!({ "name": "workers", "set": name }), template());
    if let Some(named) = template.pointer_mut("/spec/class/name") {
        *named = json!(class);
    }
    if let Some(labels) = template.pointer_mut("/metadata/labels") {
        labels.clone_from(&label);
    }
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": label }, "template": template },
    })
}

/// A Machine that belongs to nobody, has the labels of the workers, and is held by another tool.
pub fn held(name: &str) -> Value {
    let mut machine = machine(name);
    if let Some(metadata) = machine.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".to_owned(), json!({ "name": "workers", "set": "workers" }));
        metadata.insert("finalizers".to_owned(), json!([HOLD]));
    }
    machine
}

/// A Machine that belongs to nobody.
pub fn machine(name: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "class": { "kind": "MachineClass", "name": "small" }, "healthTimeout": "2m" },
    })
}

/// A set that a deployment may adopt: it has the workers' label, and not that by which a deployment tells its sets apart.
pub fn adoptable(name: &str, replicas: u32) -> Value {
    let mut set = set_of(name, replicas, "small");
    if let Some(metadata) = set.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".to_owned(), json!({ "name": "workers" }));
    }
    set
}

/// A budget that lets no more pods go than leave so many.
pub fn budget(least: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "minAvailable": least, "selector": { "matchLabels": { "app": "web" } } },
    })
}

/// A changed deployment as the autoscaler writes it back whole, by Go's types: a number that is zero is left out, and null and empty
/// members come that nobody asked for.
pub fn as_go_writes(mut deployment: Value, change: &Value) -> Value {
    merge::apply(&mut deployment, change);
    let of_go = json!({ "creationTimestamp": null });
    if let Some(metadata) = deployment
        .pointer_mut("/spec/template/metadata")
        .and_then(Value::as_object_mut)
    {
        metadata.insert("creationTimestamp".to_owned(), Value::Null);
    }
    if let Some(spec) = deployment
        .pointer_mut("/spec/template/spec")
        .and_then(Value::as_object_mut)
    {
        spec.entry("nodeTemplate")
            .or_insert(json!({ "metadata": of_go, "spec": {} }));
    }
    if let Some(spec) = deployment.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.retain(|field, value| field != "replicas" || *value != json!(0));
    }
    deployment
}
