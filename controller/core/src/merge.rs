//! JSON merge patches (RFC 7396): making one that replaces, and what the API server makes of one. Decides nothing.

use serde_json::{Map, Value};

/// A patch that turns `old` into `new`, wholly. A merge keeps what a patch does not name, so what is gone is named.
pub fn replacing(old: Option<&Value>, new: &Value) -> Value {
    let (Some(Value::Object(old)), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    Value::Object(replacing_fields(old, new))
}

/// The same of two objects.
pub fn replacing_fields(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let kept = new.iter();
    let kept = kept.map(|(key, value)| (key.clone(), replacing(old.get(key), value)));
    gone.chain(kept).collect()
}

/// An object of those fields that have a value.
pub fn given<'k>(fields: impl IntoIterator<Item = (&'k str, Option<Value>)>) -> Map<String, Value> {
    let given = fields.into_iter().filter_map(|(field, value)| Some((field, value?)));
    given.map(|(field, value)| (field.to_owned(), value)).collect()
}

/// The object, if it has any field.
pub fn filled(fields: Map<String, Value>) -> Option<Value> {
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Carries a patch out.
pub fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else {
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            object.remove(key);
        } else {
            apply(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replacing_patch_leaves_nothing_of_the_old_value() {
        let old = json!({"a": {"b": 1, "c": [1]}, "d": "x", "e": {}});
        let new = json!({"a": {"c": [2]}, "e": 3, "f": {"g": true}});
        let mut target = old.clone();
        apply(&mut target, &replacing(Some(&old), &new));
        assert_eq!(target, new);
    }
}
