//! Strategic merge patch: a merge patch that knows which lists are merged, and obeys directives.
//!
//! Decides what a patch with its `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and `$setElementOrder` directives makes of
//! a built-in object. The server takes this type for its own kinds only, and so must the caller. May not judge the result.

mod lists;

use serde_json::{Map, Value};

use super::{PatchError, merge::without_nulls};
use crate::golang;
use crate::topology::{Place, Topology};

type Fields = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// The target with the patch merged into it.
pub fn strategic(target: &Value, patch: &Value, topology: &Topology) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::StrategicShape {
            found: golang::json_name(patch),
        });
    };
    let target = target.as_object().cloned().unwrap_or_default();
    merge_fields(topology.root(), target, patch.clone()).map(Value::Object)
}

fn merge_fields(place: Place<'_>, mut target: Fields, mut patch: Fields) -> Result<Fields, PatchError> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => return Ok(patch),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(other) => {
            patch.insert(DIRECTIVE.to_owned(), other.clone());
            return Err(unknown_directive(&other, &patch));
        }
    }
    retain_keys(&mut target, &mut patch)?;
    lists::set_orders(place, &mut target, &mut patch)?;
    for (key, wanted) in patch {
        let deletion = key.strip_prefix(DELETE_FROM).map(str::to_owned);
        let deletes = deletion.is_some();
        let name = deletion.unwrap_or(key);
        if wanted.is_null() {
            target.remove(&name);
            continue;
        }
        let merged = match (target.remove(&name), wanted) {
            (Some(Value::Object(held)), Value::Object(wanted)) => {
                Some(Value::Object(merge_fields(place.field(&name), held, wanted)?))
            }
            (Some(Value::Array(held)), Value::Array(wanted)) => {
                Some(Value::Array(lists::merge(place.field(&name), held, wanted, deletes)?))
            }
            // A list of deletions that does not fit its field does nothing.
            (held, _) if deletes => held,
            (_, wanted) => without_directives(&without_nulls(&wanted)),
        };
        if let Some(merged) = merged {
            target.insert(name, merged);
        }
    }
    Ok(target)
}

/// `$retainKeys` names all fields that are to be left; the patch itself may not set others.
fn retain_keys(target: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let Some(kept) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(kept) = kept else {
        return Err(PatchError::RetainKeys);
    };
    let is_kept = |name: &str| kept.iter().any(|kept| kept == name);
    let stray = patch.iter().any(|(name, value)| {
        let directive = name.starts_with(DELETE_FROM) || name.starts_with(ELEMENT_ORDER);
        !value.is_null() && !directive && !is_kept(name)
    });
    if stray {
        return Err(PatchError::RetainKeys);
    }
    target.retain(|name, _| is_kept(name));
    Ok(())
}

/// What is new is taken as it is, but for directives: there was nothing for them to work on. `None` if all of it was one.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields
                .iter()
                .filter_map(|(name, value)| without_directives(value).map(|value| (name.clone(), value)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(without_directives).collect())),
        scalar => Some(scalar.clone()),
    }
}

fn unknown_directive(directive: &Value, patch: &Fields) -> PatchError {
    PatchError::Directive(format!(
        "unknown patch type: {} in map: {}",
        golang::text(directive),
        golang::map_text(patch)
    ))
}
