//! The annotation in which `kubectl apply` keeps what it applied, as long as it merges on its own side.
//!
//! Decides which conflicts kubectl may ignore when it goes over to server-side apply, and keeps the annotation true for those
//! who go back. Concerns the manager `kubectl` alone.

use serde_json::Value;

use super::Conflict;
use crate::fields::{FieldSet, compare::Comparison, extract};
use crate::managers::Write;

pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The conflicts that are none with kubectl's own former self.
pub(super) fn disputed(conflicts: Vec<Conflict>, live: &Value, write: &Write<'_>) -> Vec<Conflict> {
    let own = own_fields(live, write).unwrap_or_default();
    conflicts
        .into_iter()
        .filter(|conflict| !own.has(&conflict.path))
        .collect()
}

/// What the annotation states and nobody changed since.
fn own_fields(live: &Value, write: &Write<'_>) -> Option<FieldSet> {
    let root = write.topology.root();
    let stated: Value = serde_json::from_str(annotation(live)?).ok()?;
    if stated.get("apiVersion").and_then(Value::as_str) != Some(write.api_version) {
        return None;
    }
    let fields = extract::fields_of(root, &stated).ok()?;
    let since = Comparison::of(root, &stated, live);
    Some(fields.difference(&since.touched()).difference(&since.removed))
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The object with the annotation brought up to date, if it has one.
pub(super) fn kept(mut object: Value, stated: &Value, write: &Write<'_>) -> Value {
    if write.manager != KUBECTL || annotation(&object).is_none() {
        return object;
    }
    let mut stated = stated.clone();
    if let Some(Value::Object(annotations)) = stated.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.insert(ANNOTATION.to_owned(), Value::String(format!("{stated}\n")));
    }
    object
}
