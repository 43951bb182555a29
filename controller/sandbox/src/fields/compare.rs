//! What became of an object's fields from one version to the next.
//!
//! Decides which paths are new, changed or gone. May not know who changed them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{FieldSet, Step};
use crate::topology::{Form, Place};

/// Three sets without common members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Comparison {
    pub fn of(place: Place<'_>, old: &Value, new: &Value) -> Self {
        let mut comparison = Self::default();
        comparison.walk(place, Some(old), Some(new), &mut Vec::new());
        comparison
    }

    /// Added or modified.
    pub fn touched(&self) -> FieldSet {
        self.added.union(&self.modified)
    }

    /// Without these paths and all below them.
    pub fn without(self, paths: &FieldSet) -> Self {
        Self {
            added: self.added.without(paths),
            modified: self.modified.without(paths),
            removed: self.removed.without(paths),
        }
    }

    fn walk(&mut self, place: Place<'_>, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<Step>) {
        let form = |value: &Value| (!value.is_null()).then(|| place.form(value));
        let null = place.form(&Value::Null);
        let forms = match (old.map(form), new.map(form)) {
            // A null takes the form of its counterpart.
            (Some(None), Some(Some(form))) | (Some(Some(form)), Some(None)) => (Some(form), Some(form)),
            (was, is) => (
                was.map(|form| form.unwrap_or(null)),
                is.map(|form| form.unwrap_or(null)),
            ),
        };
        let form = match forms {
            (Some(form), None) | (None, Some(form)) => form,
            (Some(was), Some(is)) if was == is => was,
            // Only open places change form: the place itself is modified, and what either form had inside comes or goes.
            (Some(was), Some(is)) => {
                self.leaf(old, new, path);
                if was == Form::ByField {
                    self.by_field(place, old, None, path);
                }
                if is == Form::ByField {
                    self.by_field(place, None, new, path);
                }
                return;
            }
            (None, None) => return,
        };
        let hollow = |value: Option<&Value>| value.is_none_or(is_hollow);
        match form {
            Form::ByField if !(hollow(old) && hollow(new)) => self.by_field(place, old, new, path),
            Form::ByItem if !(hollow(old) && hollow(new)) => self.by_item(place, old, new, path),
            // Empty beside null is a difference that only the place itself can carry.
            Form::ByField | Form::ByItem | Form::Whole => return self.leaf(old, new, path),
        }
        match (old, new) {
            (None, Some(_)) => self.added.insert(path),
            (Some(_), None) => self.removed.insert(path),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>, path: &[Step]) {
        match (old, new) {
            (None, Some(_)) => self.added.insert(path),
            (Some(_), None) => self.removed.insert(path),
            (Some(old), Some(new)) if !equal(old, new) => self.modified.insert(path),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn by_field(&mut self, place: Place<'_>, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<Step>) {
        let old = old.and_then(Value::as_object);
        let new = new.and_then(Value::as_object);
        let pairs = old
            .into_iter()
            .flatten()
            .map(|(name, old)| (name, Some(old), new.and_then(|fields| fields.get(name))));
        let came = new.into_iter().flatten().map(|(name, new)| (name, None, Some(new)));
        let came = came.filter(|(name, ..)| !old.is_some_and(|fields| fields.contains_key(*name)));
        for (name, old, new) in pairs.chain(came) {
            // What is the same has no difference inside, and most of an object is.
            if old == new {
                continue;
            }
            path.push(Step::Field(name.clone()));
            self.walk(place.field(name), old, new, path);
            path.pop();
        }
    }

    /// Items are matched by identity; their order is no difference. Items that share one are compared as one piece.
    fn by_item(&mut self, place: Place<'_>, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<Step>) {
        let (old, new) = (by_identity(place, old), by_identity(place, new));
        let steps: BTreeSet<&Step> = old.keys().chain(new.keys()).collect();
        for step in steps {
            let was = old.get(step).map(Vec::as_slice).unwrap_or_default();
            let is = new.get(step).map(Vec::as_slice).unwrap_or_default();
            path.push(step.clone());
            match (was, is) {
                ([] | [_], [] | [_]) => {
                    self.walk(place.items(), was.first().copied(), is.first().copied(), path);
                }
                ([_, _, ..], [_, _, ..]) => {
                    if was != is {
                        self.modified.insert(path);
                    }
                }
                ([_, _, ..], _) => {
                    self.walk(place.items(), None, is.first().copied(), path);
                    self.removed.insert(path);
                }
                (_, [_, _, ..]) => {
                    self.walk(place.items(), was.first().copied(), None, path);
                    self.added.insert(path);
                }
            }
            path.pop();
        }
    }
}

fn by_identity<'v>(place: Place<'_>, list: Option<&'v Value>) -> BTreeMap<Step, Vec<&'v Value>> {
    let mut found: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for item in list.and_then(Value::as_array).into_iter().flatten() {
        // An item without identity has no owner either; the server skips it too.
        if let Ok(step) = place.identity(item) {
            found.entry(step).or_default().push(item);
        }
    }
    found
}

fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Numbers are equal by size, however they are written.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, value)| other.get(name).is_some_and(|theirs| equal(value, theirs)))
        }
        (one, other) => one == other,
    }
}
