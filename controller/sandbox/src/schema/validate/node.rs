//! One value against one node of the schema, and what lies below it.

use serde_json::{Map, Value};

use super::{branches, scalar};
use crate::schema::{Schema, cause::Cause, place::Place};

/// Adds what is wrong with the value. Tells how much was right, by which the failed branches of a choice are ranked.
pub(super) fn check(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    place: &Place<'_>,
    causes: &mut Vec<Cause>,
) -> usize {
    if old == Some(new) {
        return 1;
    }
    let before = causes.len();
    causes.extend(scalar::wrong_type(schema, new, place));
    causes.extend(scalar::not_allowed(schema, new, place));
    let mut right = 0;
    if !new.is_null() {
        right += branches::check(schema, new, old, place, causes);
    }
    right += match new {
        Value::String(text) => {
            causes.extend(scalar::text(schema, text, place));
            0
        }
        Value::Number(number) => {
            causes.extend(scalar::number(schema, number, new, place));
            0
        }
        Value::Array(items) => list(schema, items, old, place, causes),
        Value::Object(fields) => object(schema, fields, old, place, causes),
        Value::Null | Value::Bool(_) => 0,
    };
    right + usize::from(causes.len() == before)
}

fn list(schema: &Schema, items: &[Value], old: Option<&Value>, place: &Place<'_>, causes: &mut Vec<Cause>) -> usize {
    let mut right = 0;
    if let Some(below) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            right += check(below, item, schema.same_item(old, item), &place.index(index), causes);
        }
    }
    let count = items.len();
    if let Some(least) = schema.bounds.min_items.filter(|least| (count as u64) < *least) {
        let detail = format!("should have at least {least} items");
        causes.push(Cause::out_of_bounds(place, &Value::from(count), &detail));
    }
    if let Some(most) = schema.bounds.max_items.filter(|most| count as u64 > *most) {
        causes.push(Cause::too_many(place, count, most));
    }
    right
}

fn object(
    schema: &Schema,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    place: &Place<'_>,
    causes: &mut Vec<Cause>,
) -> usize {
    let count = fields.len();
    if let Some(least) = schema.bounds.min_properties.filter(|least| (count as u64) < *least) {
        let detail = format!("should have at least {least} properties");
        causes.push(Cause::out_of_bounds(place, &Value::from(count), &detail));
    }
    if let Some(most) = schema.bounds.max_properties.filter(|most| count as u64 > *most) {
        causes.push(Cause::too_many(place, count, most));
    }
    let envelope: &[&str] = if schema.is_embedded {
        &["apiVersion", "kind"]
    } else {
        &[]
    };
    for name in schema
        .required
        .iter()
        .map(String::as_str)
        .chain(envelope.iter().copied())
    {
        if !fields.contains_key(name) {
            causes.push(Cause::required(&place.field(name)));
        }
    }
    let mut right = 0;
    for (name, value) in fields {
        let Some(below) = schema.child(name) else { continue };
        let old = old.and_then(|old| old.get(name));
        right += check(below, value, old, &place.field(name), causes);
    }
    right
}
