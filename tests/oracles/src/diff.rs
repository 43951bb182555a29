//! Which fields differ between two objects. Decides nothing.

use serde_json::{Map, Value};

/// The paths (`spec.replicas`, `metadata.labels.node`) of all that differs: of leaves, and of what came or went whole.
/// Lists are leaves.
pub fn paths(before: &Value, after: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    walk(&mut Vec::new(), before, after, &mut found);
    found
}

fn walk(at: &mut Vec<String>, before: &Value, after: &Value, found: &mut Vec<Vec<String>>) {
    if before == after {
        return;
    }
    let nothing = Map::new();
    let (Some(old), Some(new)) = (fields(before, &nothing), fields(after, &nothing)) else {
        found.push(at.clone());
        return;
    };
    if old.is_empty() && new.is_empty() {
        found.push(at.clone());
        return;
    }
    let absent = Value::Null;
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    for key in keys {
        at.push(key.clone());
        walk(
            at,
            old.get(key).unwrap_or(&absent),
            new.get(key).unwrap_or(&absent),
            found,
        );
        at.pop();
    }
}

/// The fields of an object; what is absent has none.
fn fields<'a>(value: &'a Value, nothing: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        Value::Null => Some(nothing),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(before: &Value, after: &Value) -> Vec<String> {
        paths(before, after).iter().map(|path| path.join(".")).collect()
    }

    #[test]
    fn leaves_that_came_went_or_changed_are_named_and_nothing_else() {
        let before = json!({"a": 1, "b": {"c": 1, "d": 2}, "same": [1], "list": [1]});
        let after = json!({"b": {"c": 1, "d": 3}, "same": [1], "list": [1, 2], "new": {"deep": true}});
        assert_eq!(told(&before, &after), ["a", "b.d", "list", "new.deep"]);
    }

    #[test]
    fn an_object_in_place_of_a_text_is_one_difference() {
        assert_eq!(told(&json!({"a": "x"}), &json!({"a": {"b": 1}})), ["a"]);
    }

    #[test]
    fn an_empty_object_that_came_is_a_difference() {
        assert_eq!(told(&json!({}), &json!({"a": {}})), ["a"]);
    }
}
