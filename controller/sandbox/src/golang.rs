//! How Go writes values and names their types: the server's refusals quote in its words what they refuse.
//!
//! Decides nothing about what is right, and knows no kind. Numbers are floats unless they are written as whole ones, as they are to
//! Go's reader of JSON; where the server reads otherwise, as an apply does, the caller settles them before they are told.

mod letters;

use serde_json::{Map, Number, Value};

pub(crate) use letters::{escaped, quoted, with_odd_bytes, without_odd_bytes};

/// What Go's JSON decoder calls a value of this kind.
pub(crate) fn json_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What Go's reflection calls the kind of a value that lies in memory.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

/// The type of a value that may be any, as Go's `%T` prints it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Bool(_) | Value::Number(_) | Value::String(_) => kind(value),
    }
}

/// A value as Go's `%v` prints it.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) => value.to_string(),
        Value::Number(said) => number(said),
        Value::String(text) => text.clone(),
        Value::Array(items) => list_text(items),
        Value::Object(fields) => map_text(fields),
    }
}

/// A list as Go's `%v` prints it.
pub(crate) fn list_text(items: &[Value]) -> String {
    let items: Vec<String> = items.iter().map(text).collect();
    format!("[{}]", items.join(" "))
}

/// A map as Go's `%v` prints it, in the order of its names.
pub(crate) fn map_text(fields: &Map<String, Value>) -> String {
    let fields: Vec<String> = in_order(fields)
        .map(|(name, value)| format!("{name}:{}", text(value)))
        .collect();
    format!("map[{}]", fields.join(" "))
}

/// A value as Go's `%#v` prints it, which is how it looks in Go's own text.
pub(crate) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) => value.to_string(),
        Value::Number(said) => number(said),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = in_order(fields)
                .map(|(name, value)| format!("{}:{}", quoted(name), syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
    }
}

fn in_order(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    fields.into_iter()
}

/// A number as Go prints it: floats of some length have an exponent.
fn number(number: &Number) -> String {
    if number.is_i64() {
        return number.to_string();
    }
    let float = number.as_f64().unwrap_or_default();
    let shortest = format!("{float:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse::<i32>() {
        Ok(-4..6) => float.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        Err(_) => shortest,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_floats_unless_they_are_written_as_whole_ones() {
        for (said, shown, name) in [
            ("3", "3", "int64"),
            ("3.0", "3", "float64"),
            ("1000000", "1000000", "int64"),
            ("1e6", "1e+06", "float64"),
            ("123456.0", "123456", "float64"),
            ("12345678.5", "1.23456785e+07", "float64"),
            ("0.0001", "0.0001", "float64"),
            ("0.00001", "1e-05", "float64"),
            ("15000000000000000000", "1.5e+19", "float64"),
            ("-1e100", "-1e+100", "float64"),
        ] {
            let value: Value = serde_json::from_str(said).unwrap();
            let told = (text(&value), syntax(&value), kind(&value), type_name(&value));
            assert_eq!(told, (shown.to_owned(), shown.to_owned(), name, name), "{said}");
        }
    }

    #[test]
    fn maps_are_in_the_order_of_their_names_not_of_their_texts() {
        let map = json!({ "a1": "x", "a": 7, "a-b": [null, true] });
        assert_eq!(text(&map), "map[a:7 a-b:[<nil> true] a1:x]");
        assert_eq!(
            syntax(&map),
            r#"map[string]interface {}{"a":7, "a-b":[]interface {}{interface {}(nil), true}, "a1":"x"}"#
        );
    }
}
