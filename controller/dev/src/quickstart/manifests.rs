//! What is applied: the files of `deploy/` in this checkout, as `kubectl apply --server-side` would.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use millwright_dev::apiserver::ControlPlane;
use millwright_dev::apiserver::binaries::workspace_root;
use serde_json::{Value, json};

/// Whose fields these are, for server-side apply.
const FIELD_MANAGER: &str = "millwright-dev";
/// In the order in which people would write them.
const EXAMPLES: [&str; 3] = ["secret.yaml", "class.yaml", "deployment.yaml"];
/// The deployment that the demo is about.
pub const DEPLOYMENT: &str = "workers";
/// Where everything is.
pub const NAMESPACE: &str = "default";

/// Installs the CRDs and waits until they are served.
pub async fn install_crds(plane: &ControlPlane) -> anyhow::Result<()> {
    plane
        .install_crds(&deploy("crds"))
        .await
        .context("the CRDs were not installed")
}

/// Applies the examples, the deployment with `replicas` machines, and names what was applied.
pub async fn apply_examples(client: &Client, replicas: u16) -> anyhow::Result<Vec<String>> {
    let mut applied = Vec::new();
    for file in EXAMPLES {
        let path = deploy("examples").join(file);
        let mut object = read(&path)?;
        if kind(&object) == "MachineDeployment" {
            let wanted = object.pointer_mut("/spec/replicas");
            *wanted.with_context(|| format!("{} has no spec.replicas", path.display()))? = json!(replicas);
        }
        let name = apply(client, object)
            .await
            .with_context(|| format!("{} was not applied", path.display()))?;
        applied.push(name);
    }
    Ok(applied)
}

/// Sets the deployment's number of machines, as `kubectl scale` does.
pub async fn scale(client: &Client, replicas: u16) -> anyhow::Result<()> {
    let deployments: Api<millwright_core::api::MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments
        .patch_scale(DEPLOYMENT, &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("{DEPLOYMENT} was not scaled to {replicas}"))?;
    Ok(())
}

fn deploy(what: &str) -> PathBuf {
    workspace_root().join("deploy").join(what)
}

fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} is not YAML", path.display()))
}

async fn apply(client: &Client, object: Value) -> anyhow::Result<String> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("apiVersion and kind are missing")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let name = object.name_any();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    api.patch(
        &name,
        &PatchParams::apply(FIELD_MANAGER).force(),
        &Patch::Apply(&object),
    )
    .await?;
    Ok(format!("{} {name}", types.kind))
}
