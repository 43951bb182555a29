//! Readers of object metadata that every kind needs. Decides nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::ids::{Name, ResourceVersion, Uid};

/// The uid the API server gave; none before the object is stored.
pub fn uid(meta: &ObjectMeta) -> Option<Uid> {
    Uid::non_empty(meta.uid.as_deref())
}

/// The name, empty before it is chosen.
pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Name and uid together: what a write or a deletion names.
pub fn identity(meta: &ObjectMeta) -> (Name, Uid) {
    (Name::new(name(meta)), Uid::new(meta.uid.clone().unwrap_or_default()))
}

/// The namespace, empty where there is none.
pub fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// The version, where it can be compared.
pub fn resource_version(meta: &ObjectMeta) -> Option<ResourceVersion> {
    meta.resource_version.as_deref().and_then(ResourceVersion::parse)
}

/// Counts changes outside of metadata and status.
pub fn generation(meta: &ObjectMeta) -> i64 {
    meta.generation.unwrap_or(0)
}

/// When the object was stored.
pub fn created(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.creation_timestamp.as_ref().map(|time| time.0)
}

/// Whether somebody asked for the object's deletion.
pub fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// When the deletion was asked for.
pub fn deleting_since(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.deletion_timestamp.as_ref().map(|time| time.0)
}

/// Whether the object waits for this finalizer's owner.
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers
        .as_deref()
        .unwrap_or_default()
        .iter()
        .any(|held| held == finalizer)
}

/// The value of a label.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// The value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The one owner that manages the object. Ownership without `controller: true` binds the life, not the management.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .as_deref()?
        .iter()
        .find(|owner| owner.controller == Some(true))
}

/// The uid of [`controller_of`].
pub fn controller_uid(meta: &ObjectMeta) -> Option<Uid> {
    controller_of(meta).map(|owner| Uid::new(owner.uid.as_str()))
}

/// A map of texts in raw JSON. `null` reads as the empty text, as Go reads it; any other type has no reading and is left out.
pub(crate) fn string_map(raw: Option<&Value>) -> BTreeMap<String, String> {
    let entries = raw.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(key, value)| match value {
            Value::String(text) => Some((key.clone(), text.clone())),
            Value::Null => Some((key.clone(), String::new())),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        })
        .collect()
}
