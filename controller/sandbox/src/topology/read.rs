//! OpenAPI read into shapes.
//!
//! Decides nothing: it translates what a schema says. May not judge whether the schema is a good one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Field, Identity, ListShape, ObjectShape, Scalars, Shape};
use crate::builtin_schemas;

/// The shapes of the server's own kinds and of all that they mention, by the names of their schemas.
pub(super) fn built_in() -> Arc<BTreeMap<String, Shape>> {
    let shape = |schema: &Value| match schema.get("oneOf") {
        // Quantities, and what is a number or a text: one scalar, whatever the choice.
        Some(_) => Shape::Scalar(Scalars::Any),
        None => shape(schema),
    };
    let shapes = builtin_schemas::schemas().map(|(name, schema)| (name.to_owned(), shape(schema)));
    Arc::new(shapes.collect())
}

/// The root of a custom kind: its metadata is everybody's, whatever its schema says of it.
pub(super) fn custom(schema: &Value) -> Shape {
    let mut root = match shape(schema) {
        Shape::Object(object) => object,
        Shape::Open | Shape::Scalar(_) | Shape::List(_) | Shape::Named(_) => ObjectShape::default(),
    };
    add_head(&mut root);
    Shape::Object(root)
}

const TEXT: Shape = Shape::Scalar(Scalars::Texts);

fn add_head(object: &mut ObjectShape) {
    let named = |shape| Field { shape, default: None };
    object.fields.insert("apiVersion".to_owned(), named(TEXT));
    object.fields.insert("kind".to_owned(), named(TEXT));
    object.fields.insert(
        "metadata".to_owned(),
        named(Shape::Named(builtin_schemas::OBJECT_META.to_owned())),
    );
}

fn is_set(schema: &Value, flag: &str) -> bool {
    schema.get(flag).and_then(Value::as_bool).unwrap_or_default()
}

fn text<'v>(schema: &'v Value, name: &str) -> &'v str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn shape(schema: &Value) -> Shape {
    if let Some(name) = builtin_schemas::referred(schema) {
        return Shape::Named(name.to_owned());
    }
    if is_set(schema, "x-kubernetes-int-or-string") {
        return Shape::Scalar(Scalars::Any);
    }
    match text(schema, "type") {
        "object" => object(schema),
        "array" => Shape::List(list(schema)),
        "" => Shape::Open,
        "boolean" => Shape::Scalar(Scalars::Switches),
        "integer" | "number" => Shape::Scalar(Scalars::Numbers),
        // Times too are left to those who read them.
        _ if matches!(text(schema, "format"), "date-time" | "int-or-string") => Shape::Scalar(Scalars::Any),
        "string" => TEXT,
        _ => Shape::Scalar(Scalars::Any),
    }
}

fn object(schema: &Value) -> Shape {
    let mut found = ObjectShape {
        whole: text(schema, "x-kubernetes-map-type") == "atomic",
        ..Default::default()
    };
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (name, property) in properties {
            let field = Field {
                shape: shape(property),
                default: property.get("default").cloned(),
            };
            found.fields.insert(name.clone(), field);
        }
    }
    found.others = match schema.get("additionalProperties") {
        Some(others @ Value::Object(_)) => Some(Box::new(shape(others))),
        _ if is_set(schema, "x-kubernetes-preserve-unknown-fields") => Some(Box::new(Shape::Open)),
        _ => None,
    };
    if is_set(schema, "x-kubernetes-embedded-resource") {
        add_head(&mut found);
    }
    // An object of which nothing is said holds anything.
    if found.fields.is_empty() && found.others.is_none() && !found.whole {
        Shape::Open
    } else {
        Shape::Object(found)
    }
}

fn list(schema: &Value) -> ListShape {
    let strategy = text(schema, "x-kubernetes-patch-strategy");
    let merged = strategy.split(',').any(|word| word == "merge");
    let merge_key = schema
        .get("x-kubernetes-patch-merge-key")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let keys = || {
        let names = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        names
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let identity = match text(schema, "x-kubernetes-list-type") {
        "map" => Identity::Keys(keys()),
        "set" => Identity::Value,
        // Older types say only how to patch them.
        "" if merged => merge_key
            .clone()
            .map_or(Identity::Value, |key| Identity::Keys(vec![key])),
        _ => Identity::None,
    };
    let items = schema.get("items").map_or(Shape::Open, shape);
    ListShape {
        items: Box::new(items),
        identity,
        merged,
        merge_key,
    }
}
