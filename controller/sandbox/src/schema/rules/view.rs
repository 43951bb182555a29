//! An object as rules see it: only declared fields, under names that the language can spell, nulls left out, texts of some formats
//! as what they mean.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use cel::{
    Value as Cel,
    objects::{Key, Map},
};
use serde_json::Value;

use crate::schema::{Additional, Kind, ListKind, Schema, formats, numbers::Num};

/// Names that the language keeps for itself.
#[rustfmt::skip]
const RESERVED: [&str; 21] = [
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "package", "namespace", "return", "var", "void", "while",
];

/// What is asked about, with the fields that somebody looks at, which are told as rules spell them.
pub(super) fn of_subject(schema: &Schema, value: &Value, is_root: bool, sees: &dyn Fn(&str) -> bool) -> Cel {
    match value {
        Value::Object(fields) => {
            let has_envelope = is_root || schema.is_embedded;
            let is_open = schema.properties.is_empty() && !has_envelope;
            let mut seen = HashMap::new();
            let is_seen = |name: &str, value: &Value| !value.is_null() && is_spelled(name, sees);
            for (name, value) in fields.iter().filter(|(name, value)| is_seen(name, value)) {
                if let Some(property) = schema.properties.get(name) {
                    seen.insert(key(&escaped(name)), of(property, value));
                } else if let Additional::Of(shared) = &schema.additional {
                    seen.insert(key(name), of(shared, value));
                } else if is_open {
                    seen.insert(key(name), raw(value));
                } else if has_envelope {
                    seen.extend(envelope(name, value));
                }
            }
            Cel::Map(Map { map: Arc::new(seen) })
        }
        Value::Array(items) => {
            let each = |item| schema.items.as_ref().map_or_else(|| raw(item), |below| of(below, item));
            Cel::List(Arc::new(items.iter().map(each).collect()))
        }
        Value::String(text) if schema.kind == Some(Kind::Text) => formatted(schema, text),
        Value::Number(number) if schema.kind == Some(Kind::Number) => Cel::Float(Num::of(number).as_float()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(_) => raw(value),
    }
}

fn of(schema: &Schema, value: &Value) -> Cel {
    of_subject(schema, value, false, &|_| true)
}

/// What every object shows, declared or not: its kind and its name.
fn envelope(name: &str, value: &Value) -> Option<(Key, Cel)> {
    match name {
        "apiVersion" | "kind" => Some((key(name), raw(value))),
        "metadata" => {
            let shown = ["name", "generateName"]
                .into_iter()
                .filter_map(|name| Some((key(name), raw(value.get(name)?))));
            Some((
                key(name),
                Cel::Map(Map {
                    map: Arc::new(shown.collect()),
                }),
            ))
        }
        _ => None,
    }
}

fn raw(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(bool) => Cel::Bool(*bool),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Number(number) => match Num::of(number) {
            Num::Int(int) => Cel::Int(int),
            Num::Float(float) => Cel::Float(float),
        },
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(raw).collect())),
        Value::Object(fields) => {
            let seen = fields.iter().map(|(name, value)| (key(name), raw(value)));
            Cel::Map(Map {
                map: Arc::new(seen.collect()),
            })
        }
    }
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

/// A text as what its format says it is. One that is spelled badly stays a text: the schema has refused it already.
fn formatted(schema: &Schema, text: &str) -> Cel {
    let meant = match schema.format.as_deref().unwrap_or_default() {
        "date-time" => chrono::DateTime::parse_from_rfc3339(text).ok().map(Cel::Timestamp),
        "date" => chrono::DateTime::parse_from_rfc3339(&format!("{text}T00:00:00Z"))
            .ok()
            .map(Cel::Timestamp),
        "duration" => formats::duration_nanos(text).map(|nanos| Cel::Duration(chrono::Duration::nanoseconds(nanos))),
        "byte" => formats::decoded(text).map(|bytes| Cel::Bytes(Arc::new(bytes))),
        _ => None,
    };
    meant.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// A field's name as rules write it.
fn escaped(name: &str) -> Cow<'_, str> {
    if RESERVED.contains(&name) {
        return Cow::Owned(format!("__{name}__"));
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return Cow::Borrowed(name);
    }
    let escaped = name
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    Cow::Owned(escaped)
}

/// Whether somebody looks at a field. Those of maps are spelled as they stand, declared ones with escapes.
fn is_spelled(name: &str, sees: &dyn Fn(&str) -> bool) -> bool {
    sees(name) || sees(&escaped(name))
}

/// The old value, as far as it is looked at, with its sets and keyed lists in the order of the new one: for rules, order is no
/// difference between those.
pub(super) fn aligned<'v>(schema: &Schema, old: &'v Value, new: &Value, sees: &dyn Fn(&str) -> bool) -> Cow<'v, Value> {
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let one = |(name, value): (&String, &Value)| {
                let aligned = match (schema.child(name), after.get(name)) {
                    (Some(below), Some(new)) => aligned(below, value, new, &|_| true).into_owned(),
                    _ => value.clone(),
                };
                (name.clone(), aligned)
            };
            let seen = before.iter().filter(|(name, _)| is_spelled(name, sees));
            Cow::Owned(Value::Object(seen.map(one).collect()))
        }
        (Value::Array(before), Value::Array(after)) => match &schema.list {
            ListKind::Atomic => Cow::Borrowed(old),
            ListKind::Set => Cow::Owned(in_order(before, after, |one, other| one == other)),
            ListKind::Map(keys) => Cow::Owned(in_order(before, after, |one, other| {
                keys.iter().all(|key| one.get(key) == other.get(key))
            })),
        },
        _ => Cow::Borrowed(old),
    }
}

fn in_order(before: &[Value], after: &[Value], is_same: impl Fn(&Value, &Value) -> bool) -> Value {
    let mut ordered: Vec<Value> = before.to_vec();
    ordered.sort_by_key(|item| after.iter().position(|new| is_same(item, new)).unwrap_or(after.len()));
    Value::Array(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_seen_under_its_own_name_and_under_that_which_rules_need() {
        let seen = |name: &str, looked_at: &str| is_spelled(name, &|field| field == looked_at);
        assert!(seen("a__b", "a__b") && seen("a-b", "a__dash__b"));
        assert!(!seen("a", "b") && !seen("a-b", "a__dot__b"));
    }
}
