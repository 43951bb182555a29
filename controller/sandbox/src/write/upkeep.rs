//! Metadata: what the server fills in, keeps and counts.
//!
//! Decides about `metadata` alone. Pure functions on one object, or on one object before and after a write.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::builtin_schemas;
use crate::kinds::{Counts, Kind};
use crate::moment::Moment;
use crate::object::{is_deleting, metadata, nulls_to_texts, of_metadata};

/// What the server knows of metadata. Once a field, a link to itself is known still, but no longer kept.
static KNOWN: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let fields = builtin_schemas::properties(builtin_schemas::OBJECT_META)
        .into_iter()
        .flatten();
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
