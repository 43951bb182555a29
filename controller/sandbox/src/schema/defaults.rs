//! What an object gets that its author left out. Decides by the schema alone; never touches what is there, nulls excepted.

use serde_json::{Map, Value};

use super::Schema;

/// Fills in the schema's defaults, then drops nulls from where null is no value.
pub fn fill_defaults(schema: &Schema, value: &mut Value) {
    fill(schema, value);
    drop_nulls(schema, value);
}

fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => fill_fields(schema, fields),
        Value::Array(items) => {
            let Some(item_schema) = &schema.items else { return };
            for item in items {
                fill_one(item_schema, item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill_fields(schema: &Schema, fields: &mut Map<String, Value>) {
    for (name, property) in &schema.properties {
        if let (Some(default), false) = (&property.default, fields.contains_key(name)) {
            fields.insert(name.clone(), default.clone());
        }
    }
    for (name, value) in fields.iter_mut() {
        if let Some(below) = schema.child(name) {
            fill_one(below, value);
        }
    }
}

fn fill_one(schema: &Schema, value: &mut Value) {
    if let (Some(default), true) = (&schema.default, value.is_null() && !schema.nullable) {
        *value = default.clone();
    }
    fill(schema, value);
}

/// An explicit null where null is not allowed means the same as leaving the field out.
fn drop_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !value.is_null() || schema.child(name).is_none_or(|below| below.nullable));
            for (name, value) in fields.iter_mut() {
                if let Some(below) = schema.child(name) {
                    drop_nulls(below, value);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            items.iter_mut().for_each(|item| drop_nulls(below, item));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
