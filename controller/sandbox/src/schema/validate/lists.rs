//! Items that occur twice in a set or under the same keys. Decides that only: items themselves are judged elsewhere.

use serde_json::{Map, Value};

use crate::schema::{ListKind, Reason, Schema, cause::Cause, place::Place};

/// Every item that repeats an earlier one; of several that repeat the same one only the first is told.
pub(super) fn duplicates(schema: &Schema, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    look(schema, value, &Place::root(), &mut causes);
    causes
}

fn look(schema: &Schema, value: &Value, place: &Place<'_>, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(below) = schema.child(name) {
                    look(below, value, &place.field(name), causes);
                }
            }
        }
        Value::Array(items) => {
            let identities: Option<Vec<Value>> = match &schema.list {
                ListKind::Atomic => None,
                ListKind::Set => Some(items.clone()),
                ListKind::Map(keys) => Some(items.iter().map(|item| identity(keys, item)).collect()),
            };
            causes.extend(repeated(&identities.unwrap_or_default(), place));
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                look(below, item, &place.index(index), causes);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn identity(keys: &[String], item: &Value) -> Value {
    let of_key = |key: &String| item.get(key).map(|value| (key.clone(), value.clone()));
    Value::Object(keys.iter().filter_map(of_key).collect::<Map<_, _>>())
}

fn repeated(identities: &[Value], place: &Place<'_>) -> Vec<Cause> {
    let is_second = |(index, identity): &(usize, &Value)| {
        identities
            .iter()
            .take(*index)
            .filter(|earlier| earlier == identity)
            .count()
            == 1
    };
    identities
        .iter()
        .enumerate()
        .filter(is_second)
        .map(|(index, identity)| Cause::with_value(Reason::Duplicate, &place.index(index), identity, ""))
        .collect()
}
