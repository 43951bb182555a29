//! A Machine as a set posts it: with its finalizer, owner and labels, so that no moment passes without them.
//!
//! MS-5. Decides nothing about how many.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use crate::api::{API_VERSION, MachineSet, keys, meta};
use crate::ids::Name;
use crate::owner;
use crate::set::bring;

/// A Machine that does not exist yet.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMachine {
    /// Its name, chosen before it is sent, so that a repeat meets AlreadyExists.
    pub name: Name,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its finalizers, ours among them.
    pub finalizers: Vec<String>,
    /// The set.
    pub owner: OwnerReference,
    /// Its spec, whole: fields that our types do not know travel too.
    pub spec: Map<String, Value>,
}

impl NewMachine {
    /// The Machine of that name, made of the set's template.
    pub fn of(set: &MachineSet, name: Name) -> Self {
        let template = &set.spec.template;
        let mut annotations = template.annotations();
        annotations
            .entry(keys::PRIORITY.to_owned())
            .or_insert_with(|| keys::PRIORITY_DEFAULT.to_owned());
        annotations.insert(keys::REQUESTS_RECORDED.to_owned(), keys::PRESENT.to_owned());
        let mut spec = template.spec_json();
        if let Some(timeout) = meta::annotation(&set.metadata, keys::EFFECTIVE_CREATION_TIMEOUT) {
            annotations.insert(keys::EFFECTIVE_CREATION_TIMEOUT.to_owned(), timeout.to_owned());
            let valid = crate::api::lenient::GoDuration::from_text(timeout).get().is_ok();
            if valid {
                spec.insert("creationTimeout".to_owned(), json!(timeout));
            }
        }
        // A value of it would pass for the name of a Node.
        let mut labels = template.labels();
        labels.remove(keys::NODE);
        let values = bring::values_of(&template.spec());
        if values != "{}" {
            annotations.insert(keys::TEMPLATE_VALUES.to_owned(), values);
        }
        let mut finalizers = template.finalizers();
        if !finalizers.iter().any(|finalizer| finalizer == keys::FINALIZER) {
            finalizers.push(keys::FINALIZER.to_owned());
        }
        Self {
            name,
            namespace: set.metadata.namespace.clone(),
            labels,
            annotations,
            finalizers,
            owner: owner::reference(set),
            spec,
        }
    }

    /// The body of the POST.
    pub fn body(&self) -> Value {
        json!({
            "apiVersion": API_VERSION,
            "kind": "Machine",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": self.labels,
                "annotations": self.annotations,
                "finalizers": self.finalizers,
                "ownerReferences": [self.owner],
            },
            "spec": self.spec,
        })
    }
}
