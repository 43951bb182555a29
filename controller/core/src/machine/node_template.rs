//! A Machine's `spec.nodeTemplate` comes to its Node: a three-way merge of labels, annotations and taints.
//!
//! MC-17. What the template says stands on the Node; what it said when it was last applied and says no more
//! goes; whatever else is there is somebody else's. The memory of what was applied is an annotation of the Node in the original's
//! format, so that either controller goes on where the other stopped. One that nobody can read counts as "nothing was applied" and
//! is replaced, where the original would fail for ever. Taints are told apart by key and effect and compared by their value, never by
//! the time at which they came (W43). What the API server would refuse is left out and told: it would refuse all the rest with it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Map, Value, json};

use super::node;
use super::node_patch::{Sketch, taint_text};
use super::steer;
use crate::api::qualified::{annotation_fault, key_fault, value_fault};
use crate::api::{NodeTemplateSpec, keys};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The parts of a template that have an effect, as far as they can be read.
#[derive(Clone, Debug, Default)]
struct Parts {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    /// The first of each key and effect.
    taints: Vec<Taint>,
}

/// The labels and annotations of a template that its Node can have.
pub fn metadata(template: &NodeTemplateSpec) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let parts = Parts::of(template).sound();
    (parts.labels, parts.annotations)
}

impl Parts {
    fn of(template: &NodeTemplateSpec) -> Self {
        let mut taints: Vec<Taint> = Vec::new();
        for taint in template.taints() {
            if !taints.iter().any(|earlier| is_same(earlier, &taint)) {
                taints.push(taint);
            }
        }
        Self {
            labels: template.labels(),
            annotations: template.annotations(),
            taints,
        }
    }

    /// What was applied last, by the Node's own annotation. The error says why nobody knows.
    fn last(annotations: &BTreeMap<String, String>) -> Result<Self, String> {
        let Some(text) = annotations.get(keys::LAST_APPLIED_NODE_TEMPLATE) else {
            return Ok(Self::default());
        };
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(fields) => Ok(Self::of(&NodeTemplateSpec::from(fields))),
            Err(fault) => Err(format!(
                "the Node's annotation {} cannot be read ({fault}), so nothing that was applied earlier is taken off; it is replaced",
                keys::LAST_APPLIED_NODE_TEMPLATE
            )),
        }
    }

    /// Without what the API server would refuse or what is not a template's to give: that is never applied.
    fn sound(&self) -> Self {
        let mut sound = self.clone();
        sound.labels.retain(|key, value| label_fault(key, value).is_none());
        sound.annotations.retain(|key, _| annotation_key_fault(key).is_none());
        sound.taints.retain(|taint| taint_fault(taint).is_none());
        sound
    }

    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty() && self.taints.is_empty()
    }

    fn says_the_same(&self, other: &Self) -> bool {
        let has = |parts: &Self, taint: &Taint| {
            let mut taints = parts.taints.iter();
            taints.any(|one| is_same(one, taint) && value(one) == value(taint))
        };
        self.labels == other.labels
            && self.annotations == other.annotations
            && self.taints.len() == other.taints.len()
            && self.taints.iter().all(|taint| has(other, taint))
    }

    /// As the original writes it.
    fn text(&self) -> String {
        let mut metadata = Map::new();
        metadata.insert("creationTimestamp".to_owned(), Value::Null);
        for (field, map) in [("annotations", &self.annotations), ("labels", &self.labels)] {
            if !map.is_empty() {
                metadata.insert(field.to_owned(), json!(map));
            }
        }
        let spec = match self.taints.is_empty() {
            true => json!({}),
            false => json!({ "taints": self.taints }),
        };
        json!({ "metadata": metadata, "spec": spec }).to_string()
    }
}

/// Whether two taints are one: a Node has at most one of each key and effect.
fn is_same(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

fn value(taint: &Taint) -> &str {
    taint.value.as_deref().unwrap_or_default()
}

/// Annotations that are not a template's to give.
fn is_own_annotation(key: &str) -> bool {
    matches!(
        key,
        keys::LAST_APPLIED_NODE_TEMPLATE
            | keys::LAST_APPLIED_VIRTUAL_CAPACITY
            | keys::SCALE_DOWN_DISABLED_BY_US
            | keys::NOT_MANAGED
    )
}

const NOT_YOURS: &str = "it is this manager's own";

fn label_fault(key: &str, value: &str) -> Option<&'static str> {
    let own = (key == keys::MACHINE_NAME).then_some(NOT_YOURS);
    own.or_else(|| key_fault(key)).or_else(|| value_fault(value))
}

fn annotation_key_fault(key: &str) -> Option<&'static str> {
    let own = is_own_annotation(key).then_some(NOT_YOURS);
    own.or_else(|| annotation_fault(key))
}

fn taint_fault(taint: &Taint) -> Option<&'static str> {
    let own = steer::is_ours(taint).then_some(NOT_YOURS);
    let effect = !EFFECTS.contains(&taint.effect.as_str());
    own.or_else(|| key_fault(&taint.key))
        .or_else(|| value_fault(value(taint)))
        .or_else(|| effect.then_some("its effect must be NoSchedule, PreferNoSchedule or NoExecute"))
}

/// What the Node remembers of what was applied.
pub fn memory<'a>(node: &'a Sketch<'_>) -> Option<&'a String> {
    node.annotations.get(keys::LAST_APPLIED_NODE_TEMPLATE)
}

/// Merges the template into the Node. `is_joining`: its Machine is not in service yet. Gives what is left out, in words, if that was not
/// told before.
pub fn merge(node: &mut Sketch<'_>, template: Option<&NodeTemplateSpec>, is_joining: bool) -> Vec<String> {
    let wanted = template.map(Parts::of).unwrap_or_default();
    let (last, unreadable) = match Parts::last(&node.annotations) {
        Ok(last) => (last, None),
        Err(fault) => (Parts::default(), Some(fault)),
    };
    let (had, has) = (last.sound(), wanted.sound());
    merge_map(&mut node.labels, &had.labels, &has.labels);
    merge_map(&mut node.annotations, &had.annotations, &has.annotations);
    merge_taints(&mut node.taints, &had.taints, &has.taints, is_joining);
    if unreadable.is_none() && wanted.says_the_same(&last) {
        return Vec::new();
    }
    let place = keys::LAST_APPLIED_NODE_TEMPLATE.to_owned();
    match wanted.is_empty() {
        true => drop(node.annotations.remove(&place)),
        false => drop(node.annotations.insert(place, wanted.text())),
    }
    unreadable
        .into_iter()
        .chain(template.into_iter().flat_map(|template| faults(template, &wanted)))
        .collect()
}

/// Keys that were applied and are wanted no more go; wanted ones stand.
fn merge_map(map: &mut BTreeMap<String, String>, last: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) {
    map.retain(|key, _| !last.contains_key(key) || wanted.contains_key(key));
    map.extend(wanted.iter().map(|(key, value)| (key.clone(), value.clone())));
}

fn merge_taints(taints: &mut Vec<Taint>, last: &[Taint], wanted: &[Taint], is_joining: bool) {
    let among = |list: &[Taint], taint: &Taint| list.iter().any(|one| is_same(one, taint));
    taints.retain(|taint| !among(last, taint) || among(wanted, taint));
    for taint in wanted {
        let there = taints.iter_mut().find(|there| is_same(there, taint));
        match there {
            Some(there) if value(there) == value(taint) => {}
            Some(there) => there.value.clone_from(&taint.value),
            // It is for the time of joining, and whoever takes it off then says that the node is fit.
            None if node::gates(taint) && (!is_joining || among(last, taint)) => {}
            None => taints.push(taint.clone()),
        }
    }
}

/// What of a template has no effect, and why.
fn faults(template: &NodeTemplateSpec, parts: &Parts) -> Vec<String> {
    let raw = template.as_json();
    let mut faults = Vec::new();
    for (field, read) in [("labels", &parts.labels), ("annotations", &parts.annotations)] {
        let place = format!("spec.nodeTemplate.metadata.{field}");
        let given = raw.get("metadata").and_then(|metadata| metadata.get(field));
        match given {
            None | Some(Value::Null) => {}
            Some(Value::Object(given)) => {
                let odd = given.keys().filter(|key| !read.contains_key(*key));
                faults.extend(odd.map(|key| format!("{place}: {key} must be a text")));
            }
            Some(_) => faults.push(format!("{place} must be a map of texts")),
        }
    }
    let label = |(key, value): (&String, &String)| Some(format!("label {key:?}: {}", label_fault(key, value)?));
    faults.extend(parts.labels.iter().filter_map(label));
    let annotation = |key: &String| Some(format!("annotation {key:?}: {}", annotation_key_fault(key)?));
    faults.extend(parts.annotations.keys().filter_map(annotation));
    let taint = |taint: &Taint| Some(format!("taint {:?}: {}", taint_text(taint), taint_fault(taint)?));
    faults.extend(parts.taints.iter().filter_map(taint));
    faults.extend(unread_taints(raw, parts.taints.len()));
    faults
}

fn unread_taints(raw: &Map<String, Value>, read: usize) -> Option<String> {
    let place = "spec.nodeTemplate.spec.taints";
    match raw.get("spec")?.get("taints")? {
        Value::Array(given) if given.len() > read => {
            let odd = given.len() - read;
            Some(format!(
                "{place}: {odd} of them cannot be read, or repeat key and effect of another"
            ))
        }
        Value::Array(_) | Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Some(format!("{place} must be a list of taints"))
        }
    }
}

#[cfg(test)]
mod tests;
