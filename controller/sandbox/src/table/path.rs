//! The JSONPath of a column: keys, places in lists, all of a list, and those of a list with a field of a value.
//!
//! A column shows the first value that its path finds.

use serde_json::Value;

/// The first value at a path as `.spec.a['b'].c[0].d[?(@.type=="Ready")].status`; none if nothing is there or the path is
/// of a form not known here.
pub fn first<'a>(path: &str, value: &'a Value) -> Option<&'a Value> {
    walk(path.trim(), value)
}

fn walk<'a>(path: &str, value: &'a Value) -> Option<&'a Value> {
    if path.is_empty() || path == "." {
        return Some(value);
    }
    if let Some(rest) = path.strip_prefix('[') {
        let (inside, rest) = split_bracket(rest)?;
        return bracket(inside, value).find_map(|inner| walk(rest, inner));
    }
    let (key, rest) = split_key(path.strip_prefix('.').unwrap_or(path));
    walk(rest, value.get(key)?)
}

/// What stands before the closing bracket, and what comes after it; brackets within quotes do not close.
fn split_bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            None if letter == ']' => return Some((text.get(..at)?, text.get(at + 1..)?)),
            None => {}
        }
    }
    None
}

/// A key up to the next dot or bracket; a backslash takes either into the key.
fn split_key(text: &str) -> (String, &str) {
    let mut key = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => key.extend(letters.next().map(|(_, taken)| taken)),
            '.' | '[' => return (key, text.get(at..).unwrap_or_default()),
            other => key.push(other),
        }
    }
    (key, "")
}

/// The values that a bracket chooses.
fn bracket<'a>(inside: &str, value: &'a Value) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
    let inside = inside.trim();
    let items = value.as_array().into_iter().flatten();
    if inside == "*" {
        let fields = value.as_object().into_iter().flat_map(|fields| fields.values());
        return Box::new(items.chain(fields));
    }
    if let Some(key) = unquoted(inside) {
        return Box::new(value.get(key).into_iter());
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        let Some((field, wanted)) = condition.split_once("==") else {
            return Box::new(std::iter::empty());
        };
        let field = field.trim().strip_prefix('@').unwrap_or_default().to_owned();
        let wanted = wanted.trim();
        let wanted = unquoted(wanted).map_or_else(|| wanted.parse().unwrap_or_default(), Value::from);
        return Box::new(items.filter(move |item| walk(&field, item) == Some(&wanted)));
    }
    let count = value.as_array().map_or(0, Vec::len);
    let place = inside
        .parse::<i64>()
        .ok()
        .and_then(|place| match usize::try_from(place) {
            Ok(place) => Some(place),
            Err(_) => count.checked_sub(usize::try_from(place.unsigned_abs()).ok()?), // from the end
        });
    Box::new(place.and_then(|place| value.get(place)).into_iter())
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use super::first;
    use serde_json::json;

    #[test]
    fn a_path_finds_keys_places_and_conditions() {
        let object = json!({
            "metadata": { "labels": { "a.b/c": "dotted" } },
            "status": { "conditions": [{ "type": "Idle", "status": "False" }, { "type": "Ready", "status": "True" }], "list": [1, 2] },
        });
        for (path, expected) in [
            (".metadata.labels['a.b/c']", json!("dotted")),
            (".metadata.labels.a\\.b/c", json!("dotted")),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
            (".status.conditions[?(@.type=='Idle')].status", json!("False")),
            (".status.conditions[1].type", json!("Ready")),
            (".status.conditions[*].type", json!("Idle")),
            (".status.list[-1]", json!(2)),
        ] {
            assert_eq!(first(path, &object), Some(&expected), "{path}");
        }
        for path in [
            ".spec.a",
            ".status.list[7]",
            ".status.conditions[?(@.type==\"No\")].status",
            ".status[",
        ] {
            assert_eq!(first(path, &object), None, "{path}");
        }
    }
}
