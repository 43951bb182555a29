//! Metadata: what the server fills in, keeps, refuses and counts.
//!
//! Decides about `metadata` alone. Pure functions on one object, or on one object before and after a write.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::api::Moment;
use crate::failure::Cause;
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
fn of_metadata<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
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

const LABEL_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
     with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

fn is_low(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    text.chars().all(|c| is_low(c) || c == '-') && text.starts_with(is_low) && text.ends_with(is_low)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.chars().all(|c| ends(c) || "-_.".contains(c)) && text.starts_with(ends) && text.ends_with(ends)
}

/// What is wrong with a key of labels or annotations, or with a finalizer.
pub fn key_complaint(key: &str) -> Option<String> {
    if key.matches('/').count() > 1 {
        return Some(
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                .to_owned(),
        );
    }
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix.filter(|prefix| !is_subdomain(prefix)) {
        let why = if prefix.is_empty() {
            "prefix part must be non-empty".to_owned()
        } else {
            format!("prefix part {SUBDOMAIN}")
        };
        return Some(why);
    }
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".to_owned());
    }
    (!is_qualified(name)).then(|| LABEL_NAME.to_owned())
}

/// What is wrong with the value of a label.
pub fn value_complaint(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!value.is_empty() && !is_qualified(value)).then_some(LABEL_VALUE)
}

/// Bytes of all names and texts of an object's annotations.
const MOST_NOTES: usize = 256 * 1024;

/// What is wrong with the metadata of any object.
pub fn complaints(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut out = name_complaints(kind, name(object));
    let entries = |path: &str| at(object, path).and_then(Value::as_object).into_iter().flatten();
    for (key, value) in entries("/metadata/labels") {
        if let Some(why) = key_complaint(key) {
            out.push(Cause::invalid("metadata.labels", format!("\"{key}\""), &why));
        }
        let value = value.as_str().unwrap_or_default();
        if let Some(why) = value_complaint(value) {
            out.push(Cause::invalid("metadata.labels", format!("\"{value}\""), why));
        }
    }
    for (key, _) in entries("/metadata/annotations") {
        if let Some(why) = key_complaint(&key.to_lowercase()) {
            out.push(Cause::invalid("metadata.annotations", format!("\"{key}\""), &why));
        }
    }
    let notes = entries("/metadata/annotations").map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if notes.sum::<usize>() > MOST_NOTES {
        out.push(Cause::too_long("metadata.annotations", MOST_NOTES));
    }
    let owners = of_metadata(object, "ownerReferences").and_then(Value::as_array);
    let owners: Vec<&Value> = owners.into_iter().flatten().collect();
    for owner in &owners {
        out.extend(owner_complaints(owner));
    }
    if owners.iter().filter(|owner| owner["controller"] == json!(true)).count() > 1 {
        let why = "Only one reference can have Controller set to true";
        let shown = Value::Array(owners.iter().map(|owner| (*owner).clone()).collect());
        out.push(Cause::invalid("metadata.ownerReferences", shown, why));
    }
    out.extend(finalizer_complaints(kind, &finalizers(object)));
    out
}

/// Finalizers without a domain that the server itself knows.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

fn finalizer_complaints(kind: &Kind, finalizers: &[&str]) -> Vec<Cause> {
    let field = "metadata.finalizers";
    let mut out = Vec::new();
    for finalizer in finalizers {
        if let Some(why) = key_complaint(finalizer) {
            out.push(Cause::invalid(field, format!("\"{finalizer}\""), &why));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        out.push(Cause::invalid(field, json!(finalizers), why));
    }
    // Older kinds look a second time, and want a domain.
    let is_strict = !kind.custom && !["Lease", "PodDisruptionBudget"].iter().any(|known| kind.is(known));
    for (number, finalizer) in finalizers.iter().enumerate().filter(|_| is_strict) {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            out.push(Cause::invalid(
                &format!("{field}[{number}]"),
                format!("\"{finalizer}\""),
                why,
            ));
        }
    }
    out
}

fn name_complaints(kind: &Kind, name: &str) -> Vec<Cause> {
    let field = "metadata.name";
    if name.is_empty() {
        return vec![Cause::required(field, "name or generateName is required")];
    }
    let why = if kind.group == "rbac.authorization.k8s.io" || kind.is("PodDisruptionBudget") {
        let bad = name == "." || name == ".." || name.contains(['/', '%']);
        bad.then(|| "may not contain '/' or '%', nor be '.' or '..'".to_owned())
    } else if kind.is("Namespace") {
        (!is_label(name)).then(|| LABEL.to_owned())
    } else if name.len() > 253 {
        Some("must be no more than 253 characters".to_owned())
    } else {
        (!is_subdomain(name)).then(|| SUBDOMAIN.to_owned())
    };
    why.map(|why| Cause::invalid(field, format!("\"{name}\""), &why))
        .into_iter()
        .collect()
}

fn owner_complaints(owner: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    if text(owner, "/apiVersion").is_empty() {
        out.push(Cause::invalid(
            "metadata.ownerReferences.apiVersion",
            "\"\"",
            "version must not be empty",
        ));
    }
    for key in ["kind", "name", "uid"] {
        if text(owner, &format!("/{key}")).is_empty() {
            out.push(Cause::invalid(
                &format!("metadata.ownerReferences.{key}"),
                "\"\"",
                "must not be empty",
            ));
        }
    }
    out
}

/// What an update may not do to metadata. The server looks twice, at the object and again at its kind, and says so twice.
pub fn update_complaints(old: &Value, new: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    // A set: sorted, and each once.
    let added: BTreeSet<&str> = finalizers(new)
        .into_iter()
        .filter(|one| !finalizers(old).contains(one))
        .collect();
    if is_deleting(old) && !added.is_empty() {
        let quoted: Vec<String> = added.iter().map(|one| format!("\"{one}\"")).collect();
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            quoted.join(", ")
        );
        out.push(Cause::forbidden("metadata.finalizers", why));
    }
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let after = of_metadata(new, key);
        if of_metadata(old, key) != after {
            let shown = after.map_or_else(|| "null".to_owned(), Value::to_string);
            out.push(Cause::invalid(&format!("metadata.{key}"), shown, "field is immutable"));
        }
    }
    let twice = out.clone();
    out.extend(twice);
    out
}
