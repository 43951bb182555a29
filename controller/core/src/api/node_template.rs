//! What a Machine's Node should carry: labels, annotations and taints. Decides nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::meta::string_map;

/// `nodeTemplate` of a Machine, kept as raw JSON so that a copy loses nothing, with readers for the three parts that have an effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeTemplateSpec(Map<String, Value>);

impl NodeTemplateSpec {
    /// Labels for the Node.
    pub fn labels(&self) -> BTreeMap<String, String> {
        string_map(self.metadata("labels"))
    }

    /// Annotations for the Node.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        string_map(self.metadata("annotations"))
    }

    /// Taints for the Node. One that cannot be read is left out: a taint without key or effect has no meaning.
    pub fn taints(&self) -> Vec<Taint> {
        let taints = self
            .0
            .get("spec")
            .and_then(|spec| spec.get("taints"))
            .and_then(Value::as_array);
        taints
            .into_iter()
            .flatten()
            .filter_map(|taint| Taint::deserialize(taint).ok())
            .collect()
    }

    /// The whole as it is stored.
    pub fn as_json(&self) -> &Map<String, Value> {
        &self.0
    }

    fn metadata(&self, part: &str) -> Option<&Value> {
        self.0.get("metadata")?.get(part)
    }
}

impl From<Map<String, Value>> for NodeTemplateSpec {
    fn from(raw: Map<String, Value>) -> Self {
        Self(raw)
    }
}

impl JsonSchema for NodeTemplateSpec {
    fn schema_name() -> Cow<'static, str> {
        "NodeTemplateSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let taint = generator.subschema_for::<Taint>();
        json_schema!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "metadata": {
                    "description": "Labels and annotations for the Node.",
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                },
                "spec": {
                    "description": "Taints for the Node; other fields of a NodeSpec are kept and have no effect.",
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "taints": {
                            "description": "Taints for the Node.",
                            "type": "array",
                            "items": taint,
                        },
                    },
                },
            },
        })
    }
}
