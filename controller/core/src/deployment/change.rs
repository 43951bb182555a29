//! What a deployment writes into its sets, as values: a new set, and a change of one.
//!
//! Decides nothing about when; the bodies are rendered here and sent by the shell.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use serde_json::{Map, Value, json};

use super::names::set_name;
use super::pass_on;
use crate::api::lenient::Lenient;
use crate::api::machine_set::DeletePolicy;
use crate::api::{API_VERSION, MachineDeployment, MachineSet, Template, keys, meta};
use crate::ids::Name;
use crate::merge::{self, filled, given};
use crate::owner;

/// A set that does not exist yet.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSet {
    /// Its name, a function of the template, so that a repeat meets AlreadyExists.
    pub name: Name,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The deployment.
    pub owner: OwnerReference,
    /// How many Machines.
    pub replicas: i32,
    /// The deployment's selector with the template's hash.
    pub selector: LabelSelector,
    /// The deployment's template with its hash as a label.
    pub template: Template,
    /// As the deployment has it.
    pub min_ready_seconds: i32,
    /// As the deployment has it.
    pub auto_preserve_failed_machine_max: i32,
    /// As the deployment's annotation says.
    pub delete_policy: Option<Lenient<DeletePolicy>>,
}

impl NewSet {
    /// The set of a deployment's template with that hash.
    pub fn of(deployment: &MachineDeployment, hash: u32, replicas: i32, revision: i64) -> Self {
        let spec = &deployment.spec;
        let hash_text = hash.to_string();
        let mut selector = spec.selector.clone().unwrap_or_default();
        let labels = selector.match_labels.get_or_insert_default();
        labels.insert(keys::TEMPLATE_HASH.to_owned(), hash_text.clone());
        Self {
            name: Name::new(set_name(meta::name(&deployment.metadata), hash)),
            namespace: deployment.metadata.namespace.clone(),
            annotations: pass_on::of_new(deployment, revision),
            owner: owner::reference(deployment),
            replicas,
            selector,
            template: spec.template.with_label(keys::TEMPLATE_HASH, &hash_text),
            min_ready_seconds: spec.min_ready_seconds,
            auto_preserve_failed_machine_max: spec.auto_preserve_failed_machine_max,
            delete_policy: deployment.delete_policy(),
        }
    }

    /// The body of the POST.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "apiVersion": API_VERSION,
            "kind": "MachineSet",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": self.template.labels(),
                "annotations": self.annotations,
                "finalizers": [keys::FINALIZER],
                "ownerReferences": [self.owner],
            },
            "spec": {
                "replicas": self.replicas,
                "selector": self.selector,
                "template": self.template,
                "minReadySeconds": self.min_ready_seconds,
                "autoPreserveFailedMachineMax": self.auto_preserve_failed_machine_max,
            },
        });
        if let Some(policy) = &self.delete_policy {
            merge::apply(&mut body, &json!({ "spec": { "deletePolicy": policy } }));
        }
        body
    }
}

/// The part of the hash label that a set gets (`label`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashLabel {
    /// Its template.
    Template(String),
    /// Its selector and its own labels.
    Selector(String),
}

/// What changes about a set.
#[derive(Clone, Debug, PartialEq)]
pub struct SetChange {
    /// The set as the plan saw it.
    pub set: Arc<MachineSet>,
    /// Its new number of Machines.
    pub replicas: Option<i32>,
    /// Annotations to set, and those to take off.
    pub annotations: BTreeMap<String, Option<String>>,
    /// What changes below `spec.template.spec`, as a merge patch: nothing of it replaces a Machine.
    pub template_spec: Map<String, Value>,
    /// As the deployment has it.
    pub min_ready_seconds: Option<i32>,
    /// As the deployment has it.
    pub auto_preserve_failed_machine_max: Option<i32>,
    /// As the deployment's annotation says; null takes it off.
    pub delete_policy: Option<Value>,
    /// The part of the hash label that it gets.
    pub hash_label: Option<HashLabel>,
    /// It loses the label of the original's that lets it make no Machines.
    pub may_grow_again: bool,
}

impl SetChange {
    /// Nothing changes.
    pub fn none(set: &Arc<MachineSet>) -> Self {
        Self {
            set: Arc::clone(set),
            replicas: None,
            annotations: BTreeMap::new(),
            template_spec: Map::new(),
            min_ready_seconds: None,
            auto_preserve_failed_machine_max: None,
            delete_policy: None,
            hash_label: None,
            may_grow_again: false,
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let is_labelled = self.hash_label.is_some() || self.may_grow_again;
        self.annotations.is_empty() && !is_labelled && self.spec().is_empty()
    }

    fn spec(&self) -> Map<String, Value> {
        let number = |number: Option<i32>| number.map(|number| json!(number));
        let template = filled(self.template_spec.clone());
        given([
            ("replicas", number(self.replicas)),
            ("minReadySeconds", number(self.min_ready_seconds)),
            (
                "autoPreserveFailedMachineMax",
                number(self.auto_preserve_failed_machine_max),
            ),
            ("deletePolicy", self.delete_policy.clone()),
            ("template", template.map(|spec| json!({ "spec": spec }))),
        ])
    }

    /// The body of a JSON merge patch.
    pub fn patch(&self) -> Value {
        let annotations = (!self.annotations.is_empty()).then(|| json!(self.annotations));
        let labels = self.may_grow_again.then(|| json!({ keys::SCALE_UP_DISABLED: null }));
        let metadata = given([("annotations", annotations), ("labels", labels)]);
        let parts = [("metadata", filled(metadata)), ("spec", filled(self.spec()))];
        let mut body = Value::Object(given(parts));
        merge::apply(&mut body, &self.label());
        body
    }

    fn label(&self) -> Value {
        match &self.hash_label {
            None => json!({}),
            Some(HashLabel::Template(hash)) => {
                json!({ "spec": { "template": { "metadata": { "labels": { keys::TEMPLATE_HASH: hash } } } } })
            }
            Some(HashLabel::Selector(hash)) => json!({
                "metadata": { "labels": { keys::TEMPLATE_HASH: hash } },
                "spec": { "selector": { "matchLabels": { keys::TEMPLATE_HASH: hash } } },
            }),
        }
    }
}
