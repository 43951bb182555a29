//! What of an object is thrown away because its schema does not know it. Decides which fields go and how they are named to the
//! author; whether that is a refusal, a warning or silence (`fieldValidation`) is the caller's.

use serde_json::{Map, Value};

use super::{Schema, place::Place};
use crate::builtin_schemas;

/// The fields that every object has.
const ENVELOPE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields and tells their paths in the server's order: those of metadata first, each part sorted.
pub fn prune(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut gone = Gone::default();
    gone.fields(schema, value, &Place::root(), true);
    gone.meta.sort();
    gone.body.sort();
    gone.meta.append(&mut gone.body);
    gone.meta
}

#[derive(Default)]
struct Gone {
    meta: Vec<String>,
    body: Vec<String>,
}

impl Gone {
    fn fields(&mut self, schema: &Schema, value: &mut Value, place: &Place<'_>, is_object: bool) {
        match value {
            Value::Object(fields) => self.map(schema, fields, place, is_object),
            Value::Array(items) => {
                let Some(below) = &schema.items else { return };
                for (index, item) in items.iter_mut().enumerate() {
                    self.fields(below, item, &place.index(index), below.is_embedded);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn map(&mut self, schema: &Schema, fields: &mut Map<String, Value>, place: &Place<'_>, is_object: bool) {
        fields.retain(|name, value| {
            let at = place.field(name);
            if is_object && ENVELOPE.contains(&name.as_str()) {
                if name == "metadata" {
                    self.metadata(value, &at);
                }
                return true;
            }
            if let Some(below) = schema.child(name) {
                self.fields(below, value, &at, below.is_embedded);
                return true;
            }
            let kept = schema.keeps_unknown;
            if !kept {
                self.body.push(at.path());
            }
            kept
        });
    }

    fn metadata(&mut self, value: &mut Value, place: &Place<'_>) {
        self.keep(value, place, builtin_schemas::OBJECT_META);
        for (list, schema) in [
            ("ownerReferences", builtin_schemas::OWNER_REFERENCE),
            ("managedFields", builtin_schemas::MANAGED_FIELDS),
        ] {
            let Some(Value::Array(items)) = value.get_mut(list) else {
                continue;
            };
            for (index, item) in items.iter_mut().enumerate() {
                self.keep(item, &place.field(list).index(index), schema);
            }
        }
    }

    /// Keeps what one of the server's own schemas has.
    fn keep(&mut self, value: &mut Value, place: &Place<'_>, schema: &str) {
        let Value::Object(fields) = value else { return };
        let known = builtin_schemas::properties(schema);
        fields.retain(|name, _| {
            let kept = known.is_some_and(|known| known.contains_key(name));
            if !kept {
                self.meta.push(place.field(name).path());
            }
            kept
        });
    }
}
