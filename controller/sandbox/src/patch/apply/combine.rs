//! Two versions of an object laid over each other.
//!
//! Decides which side a value is taken from, and in which order the items of merged lists stand. May not know of owners.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::fields::Step;
use crate::topology::{Form, Place};

/// `under` with everything that `over` states laid over it.
pub(super) fn combine(place: Place<'_>, under: &Value, over: &Value) -> Value {
    match (form(place, under, over), under, over) {
        (Form::ByField, under, over) if !(is_hollow(under) && is_hollow(over)) => by_field(place, under, over),
        (Form::ByItem, under, over) if !(is_hollow(under) && is_hollow(over)) => by_item(place, under, over),
        (Form::ByField | Form::ByItem | Form::Whole, _, over) => over.clone(),
    }
}

/// The form is that of the upper side, unless that is null and leaves it to the lower one.
fn form(place: Place<'_>, under: &Value, over: &Value) -> Form {
    place.form(if over.is_null() { under } else { over })
}

fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

fn by_field(place: Place<'_>, under: &Value, over: &Value) -> Value {
    let mut fields: Map<String, Value> = under.as_object().cloned().unwrap_or_default();
    for (name, stated) in over.as_object().into_iter().flatten() {
        let laid = match fields.get(name) {
            Some(held) => combine(place.field(name), held, stated),
            None => stated.clone(),
        };
        fields.insert(name.clone(), laid);
    }
    Value::Object(fields)
}

/// Stated items stand in the order in which they are stated; the others stay where they were between them.
fn by_item(place: Place<'_>, under: &Value, over: &Value) -> Value {
    let (under, over) = (identified(place, under), identified(place, over));
    let position = |side: &[(Step, &Value)], step: &Step| side.iter().position(|(held, _)| held == step);
    let mut laid = Vec::new();
    let mut done = BTreeSet::new();
    let mut lower = under.iter().peekable();
    for (place_in_over, (step, stated)) in over.iter().enumerate() {
        // The next stated item that the lower side has too: what stands before it there is taken first.
        let shared = over
            .iter()
            .skip(place_in_over)
            .find(|(step, _)| position(&under, step).is_some());
        while let Some((held_step, held)) = lower.peek() {
            let is_stated = position(&over, held_step).is_some();
            if is_stated && !done.contains(held_step) && shared.is_some_and(|(next, _)| next == held_step) {
                break;
            }
            lower.next();
            if !is_stated {
                laid.push((*held).clone());
            }
        }
        if lower.peek().is_some_and(|(held, _)| held == step) {
            lower.next();
        }
        let held = position(&under, step).and_then(|at| under.get(at));
        laid.push(held.map_or_else(|| (*stated).clone(), |(_, held)| combine(place.items(), held, stated)));
        done.insert(step.clone());
    }
    laid.extend(
        lower
            .filter(|(step, _)| position(&over, step).is_none())
            .map(|(_, held)| (*held).clone()),
    );
    Value::Array(laid)
}

fn identified<'v>(place: Place<'_>, list: &'v Value) -> Vec<(Step, &'v Value)> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| place.identity(item).ok().map(|step| (step, item)))
        .collect()
}
