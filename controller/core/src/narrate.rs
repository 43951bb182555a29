//! A plan as text: the reason, each step in a line, and when it is looked at again.
//!
//! Golden files and logs show the same words. Decides nothing; shows names, phases and counts, never an object's whole
//! content, and of a breadcrumb only that there is one.

use std::fmt::Display;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use crate::api::lenient::GoDuration;
use crate::ids::{Name, Uid};
use crate::machine::StatusChange;
use crate::{deployment, machine, set};

/// The plan of a Machine.
pub fn machine(plan: &machine::Plan, now: Timestamp) -> String {
    told(&plan.why, plan.steps.iter().map(machine_step), plan.wake, now)
}

/// The plan of a set.
pub fn set(plan: &set::Plan, now: Timestamp) -> String {
    told(&plan.why, plan.steps.iter().map(set_step), plan.wake, now)
}

/// The plan of a deployment.
pub fn deployment(plan: &deployment::Plan, now: Timestamp) -> String {
    told(&plan.why, plan.steps.iter().map(deployment_step), plan.wake, now)
}

fn told(why: &impl Display, steps: impl Iterator<Item = String>, wake: Option<Timestamp>, now: Timestamp) -> String {
    let mut lines = vec![why.to_string()];
    lines.extend(steps.map(|step| format!("- {step}")));
    lines.extend(wake.map(|at| format!("looks again {}", relative(at, now))));
    lines.join("\n")
}

/// A time as people say it: "in 5s", "at once".
fn relative(at: Timestamp, now: Timestamp) -> String {
    let wait = at.duration_since(now);
    if wait <= SignedDuration::ZERO {
        "at once".to_owned()
    } else {
        format!("in {}", GoDuration::from(wait))
    }
}

/// One step of a Machine's plan.
pub fn machine_step(step: &machine::Step) -> String {
    use machine::Step;
    match step {
        Step::AddFinalizer => "store the finalizer".to_owned(),
        Step::Confirm => "read the Machine live".to_owned(),
        Step::Record(change) => format!("record {}", status(change)),
        Step::EnsureToken => "make sure of the bootstrap token".to_owned(),
        Step::Call(call) => format!("call {call}"),
        Step::Identify { provider_id, node } => {
            let id = provider_id.as_ref().map(|id| format!("providerID {id}"));
            let node = node.as_ref().map(|node| format!("node {node}"));
            let parts: Vec<String> = id.into_iter().chain(node).collect();
            format!("identify the VM: {}", parts.join(", "))
        }
        Step::GuardNode(node) => format!("guard Node {node}"),
        Step::DropToken => "drop the bootstrap token".to_owned(),
        Step::DeleteMachine => "delete the Machine".to_owned(),
        Step::RemoveNode(node) => format!("remove Node {node}"),
        Step::RemoveFinalizer => "remove the finalizer".to_owned(),
        Step::StepDown => "give the lease up".to_owned(),
    }
}

fn status(change: &StatusChange) -> String {
    let phase = if change.phase.is_new() {
        "no phase"
    } else {
        change.phase.as_str()
    };
    let mut text = format!("{phase}, {} {}", change.operation, change.state);
    if let Some(code) = &change.error_code {
        text.push_str(&format!(" [{code}]"));
    }
    text.push_str(&format!(": {}", change.description));
    let extras = [
        change.conditions.as_ref().map(|_| "conditions"),
        change.addresses.as_ref().map(|_| "addresses"),
        change.last_known_state.as_ref().map(|_| "breadcrumb"),
    ];
    let extras: Vec<&str> = extras.into_iter().flatten().collect();
    if extras.is_empty() {
        text
    } else {
        format!("{text} (with {})", extras.join(", "))
    }
}

/// One step of a set's plan.
pub fn set_step(step: &set::Step) -> String {
    use set::Step;
    match step {
        Step::AddFinalizer => "store the finalizer".to_owned(),
        Step::RemoveFinalizer => "remove the finalizer".to_owned(),
        Step::Adopt(name, _) => format!("adopt {name}"),
        Step::Release(name, _) => format!("release {name}"),
        Step::Reserve { next } => format!("reserve the names below number {next}"),
        Step::Create(bodies) => format!("create {}", bodies.iter().map(name_in).collect::<Vec<_>>().join(", ")),
        Step::Delete(victims) => format!("delete {}", names(victims)),
        Step::Bring(name, body) => format!("bring to {name}: {}", fields(body, "")),
        Step::Record(body) => format!("record {}", recorded(body)),
    }
}

/// One step of a deployment's plan.
pub fn deployment_step(step: &deployment::Step) -> String {
    use deployment::Step;
    match step {
        Step::AddFinalizer => "store the finalizer".to_owned(),
        Step::RemoveFinalizer => "remove the finalizer".to_owned(),
        Step::Adopt(name, _) => format!("adopt {name}"),
        Step::Release(name, _) => format!("release {name}"),
        Step::Create(body) => {
            let replicas = body
                .pointer("/spec/replicas")
                .map_or_else(String::new, Value::to_string);
            format!("create {} of {replicas}", name_in(body))
        }
        Step::Change(name, body) => format!("change {name}: {}", fields(body, "")),
        Step::Delete(victims) => format!("delete {}", names(victims)),
        Step::Number(revision) => format!("number it revision {revision}"),
        Step::Record(body) => format!("record {}", recorded(body)),
    }
}

fn names(victims: &[(Name, Uid)]) -> String {
    victims
        .iter()
        .map(|(name, _)| name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

fn name_in(body: &Value) -> String {
    body.pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or("?")
        .to_owned()
}

/// A merge patch, one `path=value` for each leaf.
fn fields(body: &Value, path: &str) -> String {
    let Some(object) = body.as_object().filter(|object| !object.is_empty()) else {
        return format!("{path}={body}");
    };
    let inner = object.iter().map(|(key, value)| {
        let place = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        fields(value, &place)
    });
    inner.collect::<Vec<_>>().join(" ")
}

/// A status: what is neither zero nor empty; conditions and lists in short.
fn recorded(body: &Value) -> String {
    let empty = Map::new();
    let status = body.get("status").and_then(Value::as_object).unwrap_or(&empty);
    let parts: Vec<String> = status.iter().filter_map(|(field, value)| part(field, value)).collect();
    if parts.is_empty() {
        "nothing but zeros".to_owned()
    } else {
        parts.join(" ")
    }
}

fn part(field: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
        Value::Number(number) => (number.as_f64() != Some(0.0)).then(|| format!("{field}={number}")),
        Value::String(text) => Some(format!("{field}={text:?}")),
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(format!(
            "{field}=[{}]",
            items.iter().map(entry).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// A condition as `Type=Status Reason`, anything else by its name.
fn entry(item: &Value) -> String {
    let text = |field: &str| item.get(field).and_then(Value::as_str);
    match (text("type"), text("status"), text("reason")) {
        (Some(type_), Some(status), Some(reason)) => format!("{type_}={status} {reason}"),
        (Some(type_), Some(status), None) => format!("{type_}={status}"),
        _ => text("name").unwrap_or("?").to_owned(),
    }
}
