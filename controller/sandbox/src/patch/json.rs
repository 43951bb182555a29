//! JSON patch (RFC 6902) as a kube-apiserver carries it out, with its liberties (see `patch`).
//!
//! Decides what a list of operations makes of a value. May not know of kinds.

use serde_json::Value;

use super::{MOST_OPERATIONS, PatchError};
use crate::golang;

/// The target after all operations; the first that fails refuses the whole patch.
pub fn json(target: &Value, operations: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = operations else {
        return Err(PatchError::Shape {
            found: golang::json_name(operations),
            wanted: "[]handlers.jsonPatchOp",
        });
    };
    if operations.len() > MOST_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    if let Some(stray) = operations
        .iter()
        .find(|operation| !operation.is_object() && !operation.is_null())
    {
        return Err(PatchError::Shape {
            found: golang::json_name(stray),
            wanted: "handlers.jsonPatchOp",
        });
    }
    let mut patched = target.clone();
    for operation in operations {
        carry_out(&mut patched, operation).map_err(|why| PatchError::Inapplicable { why })?;
    }
    Ok(patched)
}

/// One operation. The error is for people who read logs; no client sees it.
fn carry_out(document: &mut Value, operation: &Value) -> Result<(), String> {
    let text = |name: &str| {
        operation
            .get(name)
            .and_then(Value::as_str)
            .ok_or_else(|| format!("the operation has no {name}"))
    };
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => add(document, text("path")?, value()),
        "remove" => remove(document, text("path")?).map(|_| ()),
        "replace" => replace(document, text("path")?, value()),
        "test" => test(document, text("path")?, operation.get("value").unwrap_or(&Value::Null)),
        "copy" => {
            let copied = read(document, text("from")?)?.cloned().unwrap_or(Value::Null);
            add(document, text("path")?, copied)
        }
        "move" => {
            let moved = remove(document, text("from")?)?;
            add(document, text("path")?, moved)
        }
        other => Err(format!("there is no operation {other}")),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
            Ok(())
        }
        Value::Array(items) if key == "-" => {
            items.push(value);
            Ok(())
        }
        Value::Array(items) => {
            // One past the end is a place to add at, also when counted from the end.
            let at = index(&key, items.len() + 1)?;
            items.insert(at, value);
            Ok(())
        }
        _ => Err(format!("{path} lies inside a scalar")),
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(fields) => fields.remove(&key).ok_or_else(|| format!("{path} is not there")),
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            Ok(items.remove(at))
        }
        _ => Err(format!("{path} lies inside a scalar")),
    }
}

/// A missing key of an object is added, unlike in the RFC; a missing place in a list is refused.
fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("only an object or a list can take the place of the whole".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
            Ok(())
        }
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            match items.get_mut(at) {
                Some(item) => *item = value,
                None => return Err(format!("{path} is not there")),
            }
            Ok(())
        }
        _ => Err(format!("{path} lies inside a scalar")),
    }
}

/// What is not there equals null.
fn test(document: &Value, path: &str, expected: &Value) -> Result<(), String> {
    let found = if path.is_empty() {
        Some(document)
    } else {
        read(document, path)?
    };
    if found.unwrap_or(&Value::Null) == expected {
        Ok(())
    } else {
        Err(format!("the test of {path} failed"))
    }
}

/// The value at a path: `None` for a missing key of an object, an error for a missing parent or place in a list.
fn read<'v>(document: &'v Value, path: &str) -> Result<Option<&'v Value>, String> {
    let (parents, key) = split(path)?;
    let parent = parents
        .iter()
        .try_fold(document, |at, step| child(at, step))
        .ok_or_else(|| format!("{path} has no parent"))?;
    match parent {
        Value::Object(fields) => Ok(fields.get(&key)),
        Value::Array(items) => Ok(items.get(index(&key, items.len())?)),
        _ => Err(format!("{path} lies inside a scalar")),
    }
}

fn child<'v>(parent: &'v Value, step: &str) -> Option<&'v Value> {
    match parent {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(index(step, items.len()).ok()?),
        _ => None,
    }
}

fn parent_mut<'v>(document: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), String> {
    let (parents, key) = split(path)?;
    let mut at = document;
    for step in &parents {
        let next = match at {
            Value::Object(fields) => fields.get_mut(step),
            Value::Array(items) => match index(step, items.len()) {
                Ok(place) => items.get_mut(place),
                Err(_) => None,
            },
            _ => None,
        };
        at = next.ok_or_else(|| format!("{path} has no parent"))?;
    }
    Ok((at, key))
}

/// The steps of a pointer: parents and last key. What stands before the first slash is ignored, as the server does.
fn split(path: &str) -> Result<(Vec<String>, String), String> {
    let mut steps: Vec<String> = path
        .split('/')
        .skip(1)
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect();
    let key = steps.pop().ok_or_else(|| format!("{path:?} is not a pointer"))?;
    Ok((steps, key))
}

/// A place among `count`; a negative one counts from the end.
fn index(step: &str, count: usize) -> Result<usize, String> {
    let asked: i64 = step.parse().map_err(|_| format!("{step} is not an index"))?;
    let count = i64::try_from(count).map_err(|_| "the list is too long".to_owned())?;
    let place = if asked < 0 { asked + count } else { asked };
    if (0..count).contains(&place) {
        usize::try_from(place).map_err(|_| format!("{step} is not an index"))
    } else {
        Err(format!("{step} is outside of the list"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_of_what_is_not_there_is_null() {
        let patched = json(
            &json!({"a": {}}),
            &json!([{"op": "copy", "from": "/a/b", "path": "/c"}]),
        );
        assert_eq!(patched, Ok(json!({"a": {}, "c": null})));
    }

    #[test]
    fn a_failing_operation_undoes_those_before_it() {
        let patch = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "test", "path": "/a", "value": 2}]);
        assert!(matches!(json(&json!({}), &patch), Err(PatchError::Inapplicable { .. })));
    }

    #[test]
    fn too_many_operations_are_refused() {
        let patch = Value::Array(vec![
            json!({"op": "test", "path": "/a", "value": null});
            MOST_OPERATIONS + 1
        ]);
        assert_eq!(
            json(&json!({}), &patch),
            Err(PatchError::TooManyOperations(MOST_OPERATIONS + 1))
        );
    }
}
