//! Which fields differ between two objects. Decides nothing.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// The paths (`spec.replicas`, `metadata.labels.node`) of all that differs: of leaves, and of what came or went whole.
/// Lists are leaves.
pub fn paths(before: &Value, after: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    each(before, after, &mut |path| {
        found.push(path.iter().map(|step| (*step).to_owned()).collect())
    });
    found
}

/// Shows the same paths, of which very few are ever kept.
pub fn each(before: &Value, after: &Value, show: &mut dyn FnMut(&[&str])) {
    walk(&mut Vec::new(), before, after, show);
}

/// Each leaf is compared once, and no whole: what differs would be compared again on every level.
fn walk<'a>(at: &mut Vec<&'a str>, before: &'a Value, after: &'a Value, show: &mut dyn FnMut(&[&str])) {
    let (old, new) = match (fields(before), fields(after)) {
        (Some(old), Some(new)) if !old.is_empty() || !new.is_empty() => (old, new),
        (_, _) => {
            if before != after {
                show(at);
            }
            return;
        }
    };
    let stayed = old
        .iter()
        .map(|(key, was)| (key, was, new.get(key).unwrap_or(&Value::Null)));
    let came = new.iter().filter(|(key, _)| !old.contains_key(*key));
    for (key, was, is) in stayed.chain(came.map(|(key, is)| (key, &Value::Null, is))) {
        at.push(key);
        walk(at, was, is, show);
        at.pop();
    }
}

static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// The fields of an object; what is absent has none.
fn fields(value: &Value) -> Option<&Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        Value::Null => Some(&NOTHING),
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
