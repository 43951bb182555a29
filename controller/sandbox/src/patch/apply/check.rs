//! Whether a stated object fits the shape of its kind.
//!
//! Decides only what merging needs to hold: known fields, objects where objects belong, items that can be told apart, texts
//! and numbers where those belong. Which ones is left to the schema.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ApplyError;
use crate::fields::{Step, path_text};
use crate::managers::Write;
use crate::topology::Place;

type Complaint = (Vec<Step>, String);

/// All that can be wrong with an applied object on its own.
pub(super) fn whole(stated: &Value, write: &Write<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| stated.get(name).and_then(Value::as_str).unwrap_or_default();
    if (text("apiVersion"), text("kind")) != (write.api_version, write.kind) {
        return Err(ApplyError::OtherKind(kind_text(text("apiVersion"), text("kind"))));
    }
    if stated
        .pointer("/metadata/managedFields")
        .is_some_and(|owners| !owners.is_null())
    {
        return Err(ApplyError::OwnersStated);
    }
    let mut complaints = Vec::new();
    walk(write.topology.root(), stated, &mut Vec::new(), &mut complaints);
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(refusal(stated, write, &complaints))
    }
}

/// Group and version as the server prints them: the core group has no name, and a slash all the same.
fn kind_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

pub(super) fn refusal(stated: &Value, write: &Write<'_>, complaints: &[Complaint]) -> ApplyError {
    let text = |field: &str| stated.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let object = format!("{namespace}/{name}; {}", kind_text(write.api_version, write.kind));
    let lines: Vec<String> = complaints
        .iter()
        .map(|(path, why)| format!("{}: {why}", path_text(path)))
        .collect();
    let complaint = match lines.as_slice() {
        [only] => only.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    };
    ApplyError::Untyped { object, complaint }
}

fn walk(place: Place<'_>, value: &Value, path: &mut Vec<Step>, complaints: &mut Vec<Complaint>) {
    if let Some(why) = place.misfit(value) {
        complaints.push((path.clone(), why));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, below) in fields {
                path.push(Step::Field(name.clone()));
                if place.admits(name) {
                    walk(place.field(name), below, path, complaints);
                } else {
                    complaints.push((path.clone(), "field not declared in schema".to_owned()));
                }
                path.pop();
            }
        }
        Value::Array(items) if place.tells_items_apart() => items_of(place, items, path, complaints),
        _ => {}
    }
}

fn items_of(place: Place<'_>, items: &[Value], path: &mut Vec<Step>, complaints: &mut Vec<Complaint>) {
    let mut seen = BTreeSet::new();
    for (number, item) in items.iter().enumerate() {
        match place.identity(item) {
            Err(why) => complaints.push((path.clone(), format!("element {number}: {why}"))),
            Ok(step) if seen.contains(&step) => {
                complaints.push((path.clone(), format!("duplicate entries for key {step}")));
            }
            Ok(step) => {
                path.push(step.clone());
                walk(place.items(), item, path, complaints);
                path.pop();
                seen.insert(step);
            }
        }
    }
}
