//! The fields of a value.
//!
//! Decides which paths a value has, and takes paths out of a value. May not know who asks.

use serde_json::{Map, Value};

use super::{FieldSet, Step};
use crate::topology::{Form, NoIdentity, Place};

/// Every path of the value. A list whose items cannot be told apart is an error, with the path of the list.
pub fn fields_of(place: Place<'_>, value: &Value) -> Result<FieldSet, (Vec<Step>, NoIdentity)> {
    let mut set = FieldSet::default();
    walk(place, value, &mut Vec::new(), &mut set)?;
    Ok(set)
}

fn walk(
    place: Place<'_>,
    value: &Value,
    path: &mut Vec<Step>,
    set: &mut FieldSet,
) -> Result<(), (Vec<Step>, NoIdentity)> {
    match (place.form(value), value) {
        (Form::ByField, Value::Object(fields)) => {
            for (name, below) in fields {
                path.push(Step::Field(name.clone()));
                walk(place.field(name), below, path, set)?;
                // A named field is there because its parent's type is; others, and empty ones, are there on their own.
                if is_hollow(below) || !place.names(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Form::ByItem, Value::Array(items)) => {
            for item in items {
                path.push(place.identity(item).map_err(|why| (path.clone(), why))?);
                walk(place.items(), item, path, set)?;
                set.insert(path);
                path.pop();
            }
        }
        // A null here is inserted by its parent.
        (Form::ByField | Form::ByItem, _) => {}
        (Form::Whole, _) => set.insert(path),
    }
    Ok(())
}

fn is_hollow(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

impl FieldSet {
    /// Adds the named fields on the way to each member: who owns `.a.b` then owns `.a` too, if `a` is a field of a type.
    pub fn with_named_parents(&self, place: Place<'_>) -> Self {
        let mut members = self.members.clone();
        let mut children = self.children.clone();
        for (step, below) in &mut children {
            *below = match step {
                Step::Field(name) => {
                    if place.names(name) {
                        members.insert(step.clone());
                    }
                    below.with_named_parents(place.field(name))
                }
                Step::Key(_) | Step::Value(_) | Step::Index(_) => below.with_named_parents(place.items()),
            };
        }
        Self { members, children }
    }
}

/// The value without the members of the set. What loses its last field or item becomes null, as on the server.
pub fn remove(place: Place<'_>, value: &Value, set: &FieldSet) -> Value {
    match (place.form(value), value) {
        (Form::ByField, Value::Object(fields)) => {
            let left: Map<String, Value> = fields
                .iter()
                .filter_map(|(name, below)| {
                    let step = Step::Field(name.clone());
                    let kept = remove_step(place.field(name), below, set, &step)?;
                    Some((name.clone(), kept))
                })
                .collect();
            if left.is_empty() {
                Value::Null
            } else {
                Value::Object(left)
            }
        }
        (Form::ByItem, Value::Array(items)) => {
            let left: Vec<Value> = items
                .iter()
                .filter_map(|item| match place.identity(item) {
                    Ok(step) => remove_step(place.items(), item, set, &step),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            if left.is_empty() {
                Value::Null
            } else {
                Value::Array(left)
            }
        }
        (Form::ByField | Form::ByItem | Form::Whole, Value::Object(_) | Value::Array(_)) => Value::Null,
        (Form::ByField | Form::ByItem | Form::Whole, scalar) => scalar.clone(),
    }
}

fn remove_step(place: Place<'_>, value: &Value, set: &FieldSet, step: &Step) -> Option<Value> {
    if set.has_member(step) {
        return None;
    }
    Some(
        set.below(step)
            .map_or_else(|| value.clone(), |below| remove(place, value, below)),
    )
}
