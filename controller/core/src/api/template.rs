//! The template of sets and deployments: what new Machines are made from. Decides when two templates mean the same.
//!
//! The whole is kept as raw JSON, because a template travels: from a deployment into a set, from a set into Machines, from an old set
//! back into its deployment. A field that we do not know must arrive.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::keys;
use super::machine::{ClassRef, MachineSpec};
use super::meta::string_map;

/// `spec.template` of a MachineSet or MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Template(Map<String, Value>);

/// What a comparison of templates looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What Machines can only get by being replaced: metadata of the template without the hash label, class name and group, provider id.
    Rollout,
    /// Everything but the hash label.
    Whole,
}

impl Template {
    /// Whether nothing is given at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Labels of new Machines.
    pub fn labels(&self) -> BTreeMap<String, String> {
        string_map(self.metadata("labels"))
    }

    /// Annotations of new Machines.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        string_map(self.metadata("annotations"))
    }

    /// Finalizers of new Machines.
    pub fn finalizers(&self) -> Vec<String> {
        let list = self.metadata("finalizers").and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    }

    /// The spec of new Machines, as far as we know its fields.
    pub fn spec(&self) -> MachineSpec {
        // Every field reads leniently, so the only other outcome is "no object", which is the empty spec.
        self.0
            .get("spec")
            .and_then(|spec| <MachineSpec as Deserialize>::deserialize(spec).ok())
            .unwrap_or_default()
    }

    /// The spec of new Machines with everything in it, for copying.
    pub fn spec_json(&self) -> Map<String, Value> {
        self.0
            .get("spec")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    }

    /// The class of new Machines.
    pub fn class(&self) -> Option<ClassRef> {
        let class = self.0.get("spec")?.get("class")?;
        ClassRef::deserialize(class).ok()
    }

    /// The same template with one label more.
    pub fn with_label(&self, key: &str, value: &str) -> Self {
        let mut copy = self.clone();
        object(object(&mut copy.0, "metadata"), "labels").insert(key.to_owned(), Value::from(value));
        copy
    }

    /// The same template without a label.
    pub fn without_label(&self, key: &str) -> Self {
        let mut copy = self.clone();
        if let Some(labels) = copy
            .0
            .get_mut("metadata")
            .and_then(|meta| meta.get_mut("labels"))
            .and_then(Value::as_object_mut)
        {
            labels.remove(key);
        }
        copy
    }

    /// The whole as it is stored.
    pub fn as_json(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Whether two templates mean the same within the scope. The same in both directions, which the original's comparison is not.
    pub fn semantically_equal(&self, other: &Self, scope: Scope) -> bool {
        // Nearly always they are the same but for the label, which is seen without putting both into one spelling.
        same_but_for(&self.0, &other.0, &HASH_LABEL) || self.essence(scope) == other.essence(scope)
    }

    fn metadata(&self, part: &str) -> Option<&Value> {
        self.0.get("metadata")?.get(part)
    }

    /// What is compared: one spelling for everything that Go reads as the same value.
    fn essence(&self, scope: Scope) -> Essence {
        let mut labels = self.labels();
        labels.remove(keys::TEMPLATE_HASH);
        let rest = match scope {
            Scope::Rollout => self.rollout_parts(),
            Scope::Whole => self.whole(),
        };
        Essence {
            labels,
            annotations: self.annotations(),
            rest: meaningful(&Value::Object(rest)),
        }
    }

    fn rollout_parts(&self) -> Map<String, Value> {
        let class = self.class().unwrap_or_default();
        let mut parts = Map::new();
        parts.insert("metadata".to_owned(), Value::Object(self.other_metadata()));
        parts.insert("class.name".to_owned(), Value::from(class.name));
        parts.insert("class.apiGroup".to_owned(), Value::from(class.api_group));
        parts.insert("providerID".to_owned(), Value::from(self.spec().provider_id));
        parts
    }

    fn whole(&self) -> Map<String, Value> {
        let mut parts = self.0.clone();
        parts.insert("metadata".to_owned(), Value::Object(self.other_metadata()));
        parts
    }

    /// Metadata besides labels and annotations, as far as Kubernetes defines it: anything else is invisible to the original, and
    /// typed clients drop it when they write a deployment, which must not start a rollout.
    fn other_metadata(&self) -> Map<String, Value> {
        let known = self.0.get("metadata").and_then(Value::as_object).into_iter().flatten();
        known
            .filter(|(key, _)| OTHER_METADATA.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// Where the hash label stands.
const HASH_LABEL: [&str; 3] = ["metadata", "labels", keys::TEMPLATE_HASH];

/// Fields of Kubernetes' ObjectMeta other than labels and annotations.
const OTHER_METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
];

/// A template in a form in which equal means the same.
#[derive(PartialEq)]
struct Essence {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    rest: Value,
}

/// Whether two objects are the same, whatever stands at the end of the path.
fn same_but_for(one: &Map<String, Value>, other: &Map<String, Value>, path: &[&str]) -> bool {
    let Some((field, below)) = path.split_first() else {
        return one == other;
    };
    let beside = |(key, _): &(&String, &Value)| key != field;
    if !one.iter().filter(beside).eq(other.iter().filter(beside)) {
        return false;
    }
    let (one, other) = (one.get(*field), other.get(*field));
    match (one.and_then(Value::as_object), other.and_then(Value::as_object)) {
        _ if below.is_empty() => true,
        (Some(one), Some(other)) => same_but_for(one, other, below),
        (Some(_) | None, _) => one == other,
    }
}

/// The value without what Go decodes to a zero value: absent, null, {}, [], "", 0 and false are one and the same.
pub(crate) fn meaningful(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().map(|(key, value)| (key.clone(), meaningful(value)));
            Value::Object(kept.filter(|(_, value)| !is_zero(value)).collect())
        }
        // Entries keep their place: an empty entry of a list is still an entry.
        Value::Array(entries) => Value::Array(entries.iter().map(meaningful).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// What Go's writers add and drop: it says nothing.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The object under a key, made if there is none.
fn object<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let entry = parent.entry(key).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut().expect("was made an object above")
}

impl From<Map<String, Value>> for Template {
    fn from(raw: Map<String, Value>) -> Self {
        Self(raw)
    }
}

impl JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut spec = generator.subschema_for::<MachineSpec>();
        spec.insert("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true));
        spec.insert("description".to_owned(), Value::from("Spec of new Machines."));
        json_schema!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "metadata": {
                    "description": "Labels, annotations and finalizers of new Machines.",
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "labels": {
                            "description": "Labels of new Machines; the selector must match them.",
                            "type": "object",
                            "additionalProperties": {"type": "string"},
                        },
                    },
                },
                "spec": spec,
            },
        })
    }
}

#[cfg(test)]
mod tests;
