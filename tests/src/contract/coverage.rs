//! What was reached: verbs, kinds and outcomes, counted.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::kinds::{self, Kind};
use super::memory::{Reply, Said};
use super::script::Step;

/// How often each `VERB KIND OUTCOME` was reached.
#[derive(Debug, Clone, Default)]
pub struct Coverage(BTreeMap<String, usize>);

impl Coverage {
    /// Counts an answer. `is_known`: it showed no version of an object that had not been seen before.
    pub fn count(&mut self, step: &Step, reply: &Reply, is_known: bool) {
        let kind = kinds::of_path(&step.path).map_or("-", |kind| kind.kind);
        let name = format!("{} {kind} {}", verb(step), outcome(step, reply, is_known));
        *self.0.entry(name).or_default() += 1;
    }

    /// Counts the events of a stream.
    pub fn count_stream(&mut self, kind: &Kind, events: &[Value]) {
        for event in events {
            let name = format!("event {} {}", kind.kind, event["type"].as_str().unwrap_or_default());
            *self.0.entry(name).or_default() += 1;
        }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }

    /// How often.
    #[must_use]
    pub fn of(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or(0)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, count)| writeln!(f, "{count:7} {name}"))
    }
}

/// What a request does: `patch.merge/status`.
fn verb(step: &Step) -> String {
    let path = step.path.split('?').next().unwrap_or_default();
    let part = ["/status", "/scale", "/eviction"]
        .into_iter()
        .find(|part| path.ends_with(part))
        .unwrap_or_default();
    let kind = kinds::of_path(path);
    let is_collection = kind.is_some_and(|kind| path.ends_with(kind.plural));
    let word = match (step.method.as_str(), is_collection) {
        ("GET", true) if step.is_watch() => "watch",
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        ("PATCH", _) => match step.media.as_str() {
            "application/json-patch+json" => "patch.json",
            "application/merge-patch+json" => "patch.merge",
            "application/strategic-merge-patch+json" => "patch.strategic",
            "application/apply-patch+yaml" => "patch.apply",
            _ => "patch.other",
        },
        (other, _) => other,
    };
    let shape = if step.metadata { " (metadata)" } else { "" };
    format!("{word}{part}{shape}")
}

/// What an answer means for who asked.
fn outcome(step: &Step, reply: &Reply, is_known: bool) -> String {
    let object = match &reply.said {
        Said::Object(object) => object,
        Said::Events(events) => {
            let is_lost = events.iter().any(|event| event["type"] == "ERROR");
            return if is_lost { "error event" } else { "events" }.to_owned();
        }
        Said::Text(_) => return format!("{} text", reply.code),
    };
    if reply.code >= 400 {
        return format!("{} {}", reply.code, object["reason"].as_str().unwrap_or("-"));
    }
    let says = match step.method.as_str() {
        "DELETE" if object["kind"] == "Status" => " gone",
        "DELETE" if object["items"].is_array() => " list",
        "DELETE" => " stays",
        "PATCH" | "PUT" if is_known => " unchanged",
        "GET" if !object["metadata"]["continue"].as_str().unwrap_or_default().is_empty() => " more",
        _ => "",
    };
    format!("{}{says}", reply.code)
}
