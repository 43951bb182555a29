//! JSON merge patch (RFC 7396) as a kube-apiserver carries it out.
//!
//! Decides what a patch object makes of a value. May not know of kinds.

use serde_json::{Map, Value};

use super::PatchError;
use crate::golang;

/// The target with the patch's fields set and its nulls taken away.
pub fn merge(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Shape {
            found: golang::json_name(patch),
            wanted: "map[string]interface {}",
        });
    };
    let mut merged = target.as_object().cloned().unwrap_or_default();
    merge_fields(&mut merged, patch);
    Ok(Value::Object(merged))
}

fn merge_fields(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, wanted) in patch {
        if wanted.is_null() {
            target.remove(name);
            continue;
        }
        match (target.get_mut(name), wanted) {
            (Some(Value::Object(fields)), Value::Object(wanted)) => merge_fields(fields, wanted),
            // A list in an object's place is the one thing that keeps the nulls of the objects in it.
            (Some(Value::Object(_)), _) => {
                target.insert(name.clone(), wanted.clone());
            }
            _ => {
                target.insert(name.clone(), without_nulls(wanted));
            }
        }
    }
}

/// Nulls go from objects at any depth, also from objects in lists; a null item of a list stays.
pub(super) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}
