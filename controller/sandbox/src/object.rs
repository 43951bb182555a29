//! Metadata: what the server fills in, keeps, refuses and counts.
//!
//! Decides about `metadata` alone. Pure functions on one object, or on one object before and after a write.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::api::Moment;
use crate::kinds::{Counts, Kind};
use crate::openapi;

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

/// What the server knows of metadata. Once a field, a link to itself is known still, but no longer kept.
static KNOWN: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let fields = openapi::properties(openapi::OBJECT_META).into_iter().flatten();
    let names = fields.map(|(name, _)| name.as_str());
    names.filter(|name| *name != "selfLink").collect()
});

/// Drops from metadata what the server does not know there, and what is empty.
pub fn tidy(object: &mut Value) {
    let metadata = metadata(object);
    metadata.retain(|key, value| {
        if matches!(key.as_str(), "annotations" | "labels" | "finalizers") {
            nulls_to_texts(value);
        }
        let empty = match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        !empty && KNOWN.contains(&key.as_str())
    });
    if metadata.get("generation") == Some(&json!(0)) {
        metadata.remove("generation");
    }
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

/// Whether an apply took the last of a list or map of metadata that somebody else owns too: the server stores a null for it,
/// which nobody who reads ever sees.
pub(crate) fn leaves_null(applied: &Value) -> bool {
    ["annotations", "labels", "finalizers", "ownerReferences"]
        .iter()
        .any(|key| applied["metadata"].get(key).is_some_and(Value::is_null))
}

/// Gives a new object what only the server may give.
pub fn born(kind: &Kind, object: &mut Value, moment: &Moment) {
    let metadata = metadata(object);
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(key);
    }
    if kind.counts != Counts::Nothing {
        metadata.insert("generation".to_owned(), json!(1));
    }
    metadata.insert("uid".to_owned(), json!(moment.uid));
    metadata.insert("creationTimestamp".to_owned(), json!(moment.seconds()));
    let generated = metadata
        .get("generateName")
        .and_then(Value::as_str)
        .map(|stem| format!("{stem}{}", moment.suffix));
    if let (Some(name), false) = (generated, metadata.contains_key("name")) {
        metadata.insert("name".to_owned(), json!(name));
    }
}

/// Carries over what an update may leave out, and counts a generation where the kind counts one.
pub fn succeed(kind: &Kind, old: &Value, new: &mut Value) {
    let keep = |metadata: &mut Map<String, Value>, key: &str| match of_metadata(old, key) {
        Some(value) => metadata.insert(key.to_owned(), value.clone()),
        None => metadata.remove(key),
    };
    let metadata = metadata(new);
    for key in ["uid", "creationTimestamp", "namespace", "generateName"] {
        if !metadata.contains_key(key) {
            keep(metadata, key);
        }
    }
    keep(metadata, "generation");
    if is_deleting(old) {
        keep(metadata, "deletionTimestamp");
        if !metadata.contains_key("deletionGracePeriodSeconds") {
            keep(metadata, "deletionGracePeriodSeconds");
        }
    }
    let counted = match kind.counts {
        Counts::Nothing => false,
        Counts::Spec => old.get("spec") != new.get("spec"),
        Counts::AllButMetadata => essence(kind, old) != essence(kind, new),
    };
    if counted {
        count(new);
    }
}

/// The next generation.
pub fn count(object: &mut Value) {
    let metadata = metadata(object);
    let next = metadata.get("generation").and_then(Value::as_u64).unwrap_or(0) + 1;
    metadata.insert("generation".to_owned(), json!(next));
}

/// What a custom object's generation counts: all but metadata, and status where that is apart.
fn essence<'a>(kind: &Kind, object: &'a Value) -> BTreeMap<&'a str, &'a Value> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .map(|(name, value)| (name.as_str(), value))
        .filter(|(name, _)| *name != "metadata" && !(kind.status && *name == "status"))
        .collect()
}
