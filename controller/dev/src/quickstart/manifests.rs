//! What is applied: YAML files, as `kubectl apply --server-side` would.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kube::api::{DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt as _};
use millwright_dev::apiserver::access::install_crds;
use millwright_dev::apiserver::binaries::workspace_root;
use serde_json::{Value, json};

/// Whose fields these are, for server-side apply.
const FIELD_MANAGER: &str = "millwright-dev";
/// The driver for which the examples are.
pub const EXAMPLE_DRIVER: &str = "virtual";
/// Where everything is: the manager looks at no other namespace.
pub const NAMESPACE: &str = "default";
const PROVIDER_RBAC: &str = include_str!("../../provider-rbac.yaml");
const GROUP: &str = "machine.sapcloud.io/";

/// Objects that are applied together, and the deployment among them that is shown.
pub struct Manifests {
    /// Where they are from, for people.
    pub from: String,
    pub deployment: String,
    objects: Vec<Value>,
}

/// Installs our kinds and the roles of those who work with them.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    install_crds(client, &deploy("crds"))
        .await
        .context("the CRDs were not installed")?;
    let rbac = deploy("rbac.yaml");
    let mut objects = read(&rbac)?;
    objects.extend(parse(PROVIDER_RBAC).context("the provider's roles are not YAML")?);
    for object in objects {
        apply(client, object).await.context("a role was not applied")?;
    }
    Ok(())
}

impl Manifests {
    /// The examples of this checkout.
    pub fn examples(replicas: u16) -> anyhow::Result<Self> {
        let from = deploy("examples");
        Self::read(&from, "deploy/examples", EXAMPLE_DRIVER, replicas)
    }

    /// Those of a directory, for a driver of that name.
    pub fn of(dir: &Path, driver: &str, replicas: u16) -> anyhow::Result<Self> {
        Self::read(dir, &dir.display().to_string(), driver, replicas)
    }

    fn read(dir: &Path, from: &str, driver: &str, replicas: u16) -> anyhow::Result<Self> {
        let mut objects = Vec::new();
        for file in files(dir)? {
            objects.extend(read(&file)?);
        }
        // What others name comes first, as people would write them.
        objects.sort_by_key(|object| match kind(object) {
            "Namespace" | "Secret" | "ConfigMap" => 0,
            "MachineClass" => 1,
            _ => 2,
        });
        for object in &objects {
            check(object, driver).with_context(|| format!("{from} cannot be used"))?;
        }
        let deployment = objects.iter_mut().find(|object| kind(object) == "MachineDeployment");
        let deployment = deployment.with_context(|| format!("{from} has no MachineDeployment, so nothing to show"))?;
        let name = text(deployment, "/metadata/name").to_owned();
        let spec = deployment.get_mut("spec").and_then(Value::as_object_mut);
        let spec = spec.with_context(|| format!("the MachineDeployment {name} in {from} has no spec"))?;
        spec.insert("replicas".to_owned(), json!(replicas));
        Ok(Self {
            from: from.to_owned(),
            deployment: name,
            objects,
        })
    }

    /// Applies them all and names what was applied.
    pub async fn apply(&self, client: &Client) -> anyhow::Result<Vec<String>> {
        let mut applied = Vec::new();
        for object in &self.objects {
            let name = format!("{} {}", kind(object), text(object, "/metadata/name"));
            apply(client, object.clone())
                .await
                .with_context(|| format!("{name} of {} was not applied", self.from))?;
            applied.push(name);
        }
        Ok(applied)
    }

    /// Changes the class of the deployment's template to a copy of it, so that every machine is replaced. Gives the new class's name.
    pub async fn roll(&self, client: &Client) -> anyhow::Result<String> {
        let class = self.next_class()?;
        let name = text(&class, "/metadata/name").to_owned();
        apply(client, class)
            .await
            .with_context(|| format!("MachineClass {name} was not applied"))?;
        let deployments: Api<millwright_core::api::MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({"spec": {"template": {"spec": {"class": {"name": name}}}}}));
        deployments
            .patch(&self.deployment, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("the class of {} was not changed", self.deployment))?;
        Ok(name)
    }

    /// The class that the deployment names, under another name.
    fn next_class(&self) -> anyhow::Result<Value> {
        let is_it =
            |object: &&Value| kind(object) == "MachineDeployment" && text(object, "/metadata/name") == self.deployment;
        let deployment = self.objects.iter().find(is_it);
        let named = deployment.map_or("", |found| text(found, "/spec/template/spec/class/name"));
        let is_its = |object: &&Value| kind(object) == "MachineClass" && text(object, "/metadata/name") == named;
        let class = self.objects.iter().find(is_its);
        let mut class = class
            .with_context(|| {
                format!(
                    "{} has no MachineClass {named:?}, which its deployment names",
                    self.from
                )
            })?
            .clone();
        if let Some(name) = class.pointer_mut("/metadata/name") {
            *name = json!(format!("{named}-next"));
        }
        Ok(class)
    }

    /// Asks for the template before the present one, as `millwright rollout undo` does.
    pub async fn undo(&self, client: &Client) -> anyhow::Result<()> {
        let deployments: Api<millwright_core::api::MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({"spec": {"rollbackTo": {"revision": 0}}}));
        deployments
            .patch(&self.deployment, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("the rollout of {} was not undone", self.deployment))?;
        Ok(())
    }

    /// Sets the deployment's number of machines, as `kubectl scale` does.
    pub async fn scale(&self, client: &Client, replicas: u16) -> anyhow::Result<()> {
        let deployments: Api<millwright_core::api::MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        deployments
            .patch_scale(&self.deployment, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("{} was not scaled to {replicas}", self.deployment))?;
        Ok(())
    }
}

/// What cannot come true is said before anything is applied.
fn check(object: &Value, driver: &str) -> anyhow::Result<()> {
    let (kind, name) = (kind(object), text(object, "/metadata/name"));
    if name.is_empty() || kind.is_empty() || text(object, "/apiVersion").is_empty() {
        bail!("an object without apiVersion, kind or metadata.name: {object}");
    }
    let namespace = text(object, "/metadata/namespace");
    let is_ours = text(object, "/apiVersion").starts_with(GROUP);
    if is_ours && !matches!(namespace, "" | NAMESPACE) {
        bail!(
            "{kind} {name} is in the namespace {namespace}; the manager of the quick start looks at {NAMESPACE} only"
        );
    }
    let provider = text(object, "/provider");
    if kind == "MachineClass" && provider != driver {
        bail!("MachineClass {name} says `provider: {provider}`, but the driver calls itself {driver}");
    }
    Ok(())
}

fn deploy(what: &str) -> PathBuf {
    workspace_root().join("deploy").join(what)
}

/// The YAML files of a directory, by name.
fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("the directory {} cannot be read", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path
            .extension()
            .is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("the directory {} has no YAML files", dir.display());
    }
    Ok(files)
}

fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| format!("{} is not YAML", file.display()))
}

/// The documents of a text, empty ones left out.
fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

fn kind(object: &Value) -> &str {
    text(object, "/kind")
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

async fn apply(client: &Client, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("apiVersion and kind are missing")?;
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::try_from(&types)?).await?;
    let name = object.name_any();
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace();
            let namespace = namespace.as_deref().unwrap_or(NAMESPACE);
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&object)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(yaml: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.yaml"), yaml).unwrap();
        format!("{:#}", Manifests::of(dir.path(), "hello", 1).err().unwrap())
    }

    #[test]
    fn what_could_not_come_true_is_told_before_it_is_applied() {
        let class =
            "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {name: c}\nprovider: other\n";
        assert!(refused(class).contains("`provider: other`, but the driver calls itself hello"));
        let elsewhere = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: Machine\nmetadata: {name: m, namespace: x}\n";
        assert!(refused(elsewhere).contains("looks at default only"));
        assert!(refused("kind: Secret\n").contains("without apiVersion"));
        assert!(refused("{").contains("is not YAML"));
        let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
        assert!(refused(secret).contains("no MachineDeployment"));
        let empty = tempfile::tempdir().unwrap();
        let told = format!("{:#}", Manifests::of(empty.path(), "hello", 1).err().unwrap());
        assert!(told.contains("has no YAML files"), "{told}");
    }

    #[test]
    fn the_examples_are_for_the_simulated_cloud() {
        let examples = Manifests::examples(7).unwrap();
        let kinds: Vec<&str> = examples.objects.iter().map(kind).collect();
        assert_eq!(kinds, ["Secret", "MachineClass", "MachineDeployment"]);
        assert_eq!(examples.objects[2]["spec"]["replicas"], json!(7));
    }
}
