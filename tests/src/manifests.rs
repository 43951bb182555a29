//! The objects that scenes use, as JSON. Shapes only; every field may be changed by the test that takes one.

use serde_json::{Value, json};

/// Name of the class of a scene.
pub const CLASS: &str = "small";
/// Name of its Secret.
pub const SECRET: &str = "user-data";

/// A class of the virtual provider.
#[must_use]
pub fn class() -> Value {
    json!({
        "metadata": { "name": CLASS },
        "provider": "virtual",
        "providerSpec": { "instanceType": "small", "region": "local", "zone": "local-a" },
        "secretRef": { "name": SECRET },
    })
}

/// User data with both placeholders, so that machines need bootstrap tokens.
#[must_use]
pub fn secret() -> Value {
    json!({
        "metadata": { "name": SECRET },
        "stringData": { "userData": "#cloud-config\n# <<MACHINE_NAME>>\n# <<BOOTSTRAP_TOKEN>>\n" },
    })
}

/// User data that needs nothing made for it.
#[must_use]
pub fn plain_secret(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "stringData": { "userData": "#cloud-config\n" } })
}

/// A deployment of the class; its machines' names begin with `name`.
#[must_use]
pub fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "name": name } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": {
                "metadata": { "labels": { "name": name } },
                "spec": { "class": { "kind": "MachineClass", "name": CLASS } },
            },
        },
    })
}

/// A Machine without an owner.
#[must_use]
pub fn machine(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "class": { "kind": "MachineClass", "name": CLASS } } })
}
