//! A built-in object as the server's own types would write it again.
//!
//! Decides what of a value no such type can hold (fields it does not know, nulls, empty lists and empty maps of the fields
//! that it does), and which scalars it writes though nobody set them. Times that were never set, which the server writes as
//! null, are left out.

use serde_json::{Map, Value};

use super::{Place, Shape, Topology};
use crate::managers::blank::blank;

impl Topology {
    /// The object after a round through the kind's type. Of a custom object only the metadata has one.
    pub fn settled(&self, object: Value) -> Value {
        if !self.custom {
            let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
            let blank = blank(text("apiVersion"), text("kind"));
            return filled(settle(self.root(), object), &blank);
        }
        let Value::Object(mut fields) = object else {
            return object;
        };
        if let Some(metadata) = fields.remove("metadata") {
            fields.insert("metadata".to_owned(), settle(self.root().field("metadata"), metadata));
        }
        Value::Object(fields)
    }
}

/// With the parts that every object of the kind has.
fn filled(value: Value, blank: &Value) -> Value {
    let Value::Object(blank) = blank else {
        return value;
    };
    let mut fields = match value {
        Value::Object(fields) => fields,
        other => return other,
    };
    for (name, part) in blank.iter().filter(|(_, part)| !part.is_null()) {
        let whole = fields
            .remove(name)
            .map_or_else(|| part.clone(), |held| filled(held, part));
        fields.insert(name.clone(), whole);
    }
    Value::Object(fields)
}

fn settle(place: Place<'_>, value: Value) -> Value {
    match (place.shape, value) {
        (Shape::Object(_), Value::Object(fields)) => Value::Object(settle_fields(place, fields)),
        (Shape::List(_), Value::Array(items)) => {
            Value::Array(items.into_iter().map(|item| settle(place.items(), item)).collect())
        }
        (Shape::Open | Shape::Scalar(_) | Shape::Object(_) | Shape::List(_) | Shape::Named(_), value) => value,
    }
}

fn settle_fields(place: Place<'_>, fields: Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    for (name, value) in fields.into_iter().filter(|(name, _)| place.admits(name)) {
        let field = place.field(&name);
        let value = match settle(field, value) {
            // In a map of texts a null is an empty text; anywhere else it is nothing.
            Value::Null if !place.names(&name) => Value::String(String::new()),
            value => value,
        };
        if !field.leaves_out(&value) {
            kept.insert(name, value);
        }
    }
    if let Shape::Object(object) = place.shape {
        let always = object
            .fields
            .iter()
            .filter_map(|(name, field)| Some((name, field.default.as_ref()?)));
        for (name, value) in always.filter(|(_, value)| !value.is_object() && !value.is_array()) {
            kept.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    kept
}

impl Place<'_> {
    /// Whether a type with this field leaves it out at this value. An empty object with fields of its own is written.
    fn leaves_out(self, value: &Value) -> bool {
        match (self.shape, value) {
            (_, Value::Null) => true,
            (Shape::List(_), Value::Array(items)) => items.is_empty(),
            (Shape::Object(object), Value::Object(fields)) => object.others.is_some() && fields.is_empty(),
            _ => false,
        }
    }
}
