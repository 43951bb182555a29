//! What templates give to Nodes: labels, annotations, taints and capacity. The manager puts on nothing else, and takes off only what it
//! remembers having put on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::is_under;
use crate::event::Write;
use crate::object::text;

/// Where gifts are on a Node.
pub(super) const PLACES: [&str; 4] = [
    "metadata/labels",
    "metadata/annotations",
    "spec/taints",
    "status/capacity",
];

/// The taint of Nodes whose machines a rollout replaces.
const OLD_NODE: &str = "spec/taints/deployment.machine.sapcloud.io/prefer-no-schedule:PreferNoSchedule";
/// The taint of Nodes whose VM does not run.
const OUT_OF_SERVICE: &str = "spec/taints/node.kubernetes.io/out-of-service:NoExecute";
/// The taint of Nodes whose machines failed and are preserved.
const PRESERVED: &str = "spec/taints/node.machine.sapcloud.io/preserved:NoSchedule";
const APPLIED: &str = "/metadata/annotations/node.machine.sapcloud.io~1last-applied-anno-labels-taints";
const APPLIED_CAPACITY: &str = "/metadata/annotations/node.machine.sapcloud.io~1last-applied-virtual-capacity";

/// Everything that any template ever gave: what, and as what. A manager may act on an older template than the newest.
#[derive(Default)]
pub(super) struct Gifts(BTreeSet<(String, String)>);

impl Gifts {
    /// Takes note of the templates in what was written.
    pub(super) fn learn(&mut self, write: &Write) {
        let Some(after) = &write.after else { return };
        match write.resource.as_str() {
            "machines" => self
                .0
                .extend(after.pointer("/spec/nodeTemplate").into_iter().flat_map(given)),
            "machineclasses" => {
                let resources = after
                    .pointer("/nodeTemplate/virtualCapacity")
                    .and_then(Value::as_object);
                self.0.extend(resources.into_iter().flat_map(capacity));
            }
            _ => {}
        }
    }

    /// Of a capacity the name counts: the API server spells amounts anew.
    fn gives(&self, place: &str, value: &str) -> bool {
        let value = match place.starts_with("status/capacity/") {
            true => "",
            false => value,
        };
        self.0.contains(&(place.to_owned(), value.to_owned()))
    }

    /// What a write changes about a Node that no template gave.
    pub(super) fn foreign(&self, before: &Value, after: &Value, own: &[&str]) -> Vec<String> {
        let (had, has) = (worn(before), worn(after));
        let remembered = remembered(before);
        let all: BTreeSet<&String> = had.keys().chain(has.keys()).collect();
        let changed = all.into_iter().filter(|place| had.get(*place) != has.get(*place));
        let foreign = changed.filter(|place| {
            let is_own = [OLD_NODE, OUT_OF_SERVICE, PRESERVED].contains(&place.as_str())
                || own.iter().any(|own| is_under(&steps(place), own));
            let is_theirs = match has.get(*place) {
                Some(value) => self.gives(place, value),
                None => remembered.contains(*place),
            };
            !is_own && !is_theirs
        });
        foreign.cloned().collect()
    }
}

/// The steps of a place: what stands below the place's list is one.
fn steps(place: &str) -> Vec<&str> {
    place.splitn(3, '/').collect()
}

/// What stands on a Node: place and value.
fn worn(node: &Value) -> BTreeMap<String, String> {
    let resources = node.pointer("/status/capacity").and_then(Value::as_object);
    let amounts = resources.into_iter().flatten();
    let amounts = amounts.map(|(key, amount)| (format!("status/capacity/{key}"), amount.to_string()));
    given(node).into_iter().chain(amounts).collect()
}

/// What a Node, or a template of Nodes, says: both have the same form.
fn given(template: &Value) -> Vec<(String, String)> {
    let map = |field: &str| {
        let map = template
            .pointer(&format!("/metadata/{field}"))
            .and_then(Value::as_object);
        let place = format!("metadata/{field}");
        let entries = map.into_iter().flatten();
        entries
            .map(|(key, value)| (format!("{place}/{key}"), value.as_str().unwrap_or_default().to_owned()))
            .collect::<Vec<_>>()
    };
    let taints = template.pointer("/spec/taints").and_then(Value::as_array);
    let taints = taints.into_iter().flatten().map(|taint| {
        let place = format!("spec/taints/{}:{}", text(taint, "/key"), text(taint, "/effect"));
        (place, text(taint, "/value").to_owned())
    });
    map("labels")
        .into_iter()
        .chain(map("annotations"))
        .chain(taints)
        .collect()
}

/// The places of resources.
fn capacity(resources: &Map<String, Value>) -> impl Iterator<Item = (String, String)> {
    resources
        .keys()
        .map(|key| (format!("status/capacity/{key}"), String::new()))
}

/// Places of what was applied to a Node, by its own annotations.
fn remembered(node: &Value) -> BTreeSet<String> {
    let read = |place: &str| serde_json::from_str::<Value>(text(node, place)).unwrap_or_default();
    let resources = read(APPLIED_CAPACITY);
    let resources = resources.as_object().into_iter().flat_map(capacity);
    given(&read(APPLIED))
        .into_iter()
        .chain(resources)
        .map(|(place, _)| place)
        .collect()
}
