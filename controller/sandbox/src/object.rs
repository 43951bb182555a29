//! One object as JSON: its name, its metadata, and any other part of it.
//!
//! Decides nothing: what the server makes of metadata is `write::upkeep`'s, what is wrong with it `metadata`'s.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use serde_json::{Map, Value, json};

/// What stands at a path as `/metadata/uid`. Names have no escapes here, which spares what `Value::pointer` pays for them: a copy of
/// each name, on very many calls.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut steps = path.split('/').skip(1);
    steps.try_fold(object, |inner, step| match inner {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// A text of an object, empty if there is none.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// A field of the metadata.
pub(crate) fn of_metadata<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// A text of the metadata, empty if there is none.
fn said<'a>(object: &'a Value, field: &str) -> &'a str {
    of_metadata(object, field).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    said(object, "name")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    said(object, "uid")
}

/// `metadata.resourceVersion` as a number; 0 if there is none.
pub fn version(object: &Value) -> u64 {
    said(object, "resourceVersion").parse().unwrap_or(0)
}

/// Whether the object is to go.
pub fn is_deleting(object: &Value) -> bool {
    of_metadata(object, "deletionTimestamp").is_some()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let all = of_metadata(object, "finalizers").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `metadata.ownerReferences`.
pub fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    let all = of_metadata(object, "ownerReferences").and_then(Value::as_array);
    all.into_iter().flatten()
}

/// The finalizer of an object whose dependents go first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
pub(crate) const ORPHAN: &str = "orphan";

/// `metadata` for writing; made if it is missing or no object.
pub fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let root = object
        .as_object_mut()
        .expect("it has just been made an object if it was none");
    let metadata = root.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata
        .as_object_mut()
        .expect("it has just been made an object if it was none")
}

/// A part of an object for writing; made if it is missing or no object, so that indexing it cannot fail.
pub fn part<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = json!({});
    }
    let inner = &mut object[key];
    if !inner.is_object() {
        *inner = json!({});
    }
    inner
}

/// Go reads null for a text as one that is empty.
pub(crate) fn nulls_to_texts(texts: &mut Value) {
    let nulls = |value: &mut Value| {
        if value.is_null() {
            *value = json!("");
        }
    };
    match texts {
        Value::Object(fields) => fields.values_mut().for_each(nulls),
        Value::Array(items) => items.iter_mut().for_each(nulls),
        _ => {}
    }
}
