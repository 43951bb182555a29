//! Pods and the autoscaler are steered away from a Node whose Machine has an old template, while a rollout replaces it.
//!
//! Source: `spec/machinedeployment.md` §7.2, §7.3: the taint `PreferNoSchedule`, and the annotation that keeps the autoscaler from taking
//! the Node, with a second one that says that it is ours. Weaknesses 8 and 9 there cannot happen: it is the Machine's own pass, so
//! Nodes that join late get both, and what a user has put on a Node is never taken. Nodes of new Machines need nothing: the
//! autoscaler leaves a deployment alone while it rolls (`spec/api.md` §10.6).

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Map, Value, json};

use super::node;
use super::observed::Observed;
use super::step::Step;
use crate::api::{keys, meta};

/// How a Machine stands in its deployment's rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// No rollout concerns it, or none that moves: its Node is left as it is.
    #[default]
    Aside,
    /// It has its deployment's template.
    Current,
    /// A rolling update is to replace it.
    Old,
}

/// The step that brings the Node in line, if it is not.
pub fn steer(seen: &Observed<'_>, joined: &Node) -> Option<Step> {
    if joined.metadata.deletion_timestamp.is_some() {
        return None;
    }
    patch(joined, seen.standing, seen.settings.annotates_old_nodes)?;
    Some(Step::SteerNode(node::name(joined)))
}

/// What changes about a Node, as a strategic merge patch; taints are one value there. `annotates`: the autoscaler is told.
pub fn patch(joined: &Node, standing: Standing, annotates: bool) -> Option<Value> {
    let (annotations, taints) = match standing {
        Standing::Aside => return None,
        Standing::Old => (put(joined, annotates), tainted(joined)),
        Standing::Current => (taken(joined), untainted(joined)),
    };
    if annotations.is_empty() && taints.is_none() {
        return None;
    }
    let mut metadata = Map::new();
    metadata.insert("uid".to_owned(), json!(joined.metadata.uid));
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    let Some(taints) = taints else {
        return Some(json!({ "metadata": metadata }));
    };
    // The list is written whole, so nobody else's taint may have come meanwhile.
    metadata.insert("resourceVersion".to_owned(), json!(joined.metadata.resource_version));
    Some(json!({ "metadata": metadata, "spec": { "taints": taints } }))
}

fn taints(joined: &Node) -> &[Taint] {
    let spec = joined.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_ours(taint: &Taint) -> bool {
    taint.key == keys::TAINT_PREFER_NO_SCHEDULE && taint.effect == "PreferNoSchedule"
}

fn tainted(joined: &Node) -> Option<Vec<Taint>> {
    if taints(joined).iter().any(is_ours) {
        return None;
    }
    let ours = Taint {
        key: keys::TAINT_PREFER_NO_SCHEDULE.to_owned(),
        value: Some(keys::TRUE.to_owned()),
        effect: "PreferNoSchedule".to_owned(),
        time_added: None,
    };
    Some(taints(joined).iter().cloned().chain([ours]).collect())
}

fn untainted(joined: &Node) -> Option<Vec<Taint>> {
    let kept: Vec<Taint> = taints(joined).iter().filter(|taint| !is_ours(taint)).cloned().collect();
    (kept.len() < taints(joined).len()).then_some(kept)
}

/// The autoscaler's annotation and ours; not where a user has put the first already.
fn put(joined: &Node, annotates: bool) -> Map<String, Value> {
    let is_there = meta::annotation(&joined.metadata, keys::SCALE_DOWN_DISABLED).is_some();
    let mut annotations = Map::new();
    if annotates && !is_there {
        annotations.insert(keys::SCALE_DOWN_DISABLED.to_owned(), json!(keys::PRESENT));
        annotations.insert(keys::SCALE_DOWN_DISABLED_BY_US.to_owned(), json!(keys::PRESENT));
    }
    annotations
}

/// Both, where ours says that the first is ours too.
fn taken(joined: &Node) -> Map<String, Value> {
    let mut annotations = Map::new();
    if meta::annotation(&joined.metadata, keys::SCALE_DOWN_DISABLED_BY_US).is_some() {
        annotations.insert(keys::SCALE_DOWN_DISABLED.to_owned(), Value::Null);
        annotations.insert(keys::SCALE_DOWN_DISABLED_BY_US.to_owned(), Value::Null);
    }
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotations: &Value, taints: &Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "1", "resourceVersion": "7", "annotations": annotations},
            "spec": {"taints": taints},
        }))
        .expect("it is a Node")
    }

    fn users() -> Value {
        json!([{"key": "mine", "effect": "NoSchedule"}])
    }

    #[test]
    fn an_old_node_is_tainted_beside_a_users_taints_and_annotated() {
        let body = patch(&node(&json!({}), &users()), Standing::Old, true).expect("it changes");
        assert_eq!(body["spec"]["taints"].as_array().map(Vec::len), Some(2));
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(body["metadata"]["annotations"][keys::SCALE_DOWN_DISABLED], "true");
        let told = patch(&node(&json!({}), &users()), Standing::Old, false).expect("it changes");
        assert_eq!(told["metadata"]["annotations"], Value::Null);
    }

    #[test]
    fn a_node_of_the_current_template_loses_what_is_ours_and_keeps_what_is_a_users() {
        let ours = json!([{"key": "mine", "effect": "NoSchedule"},
            {"key": keys::TAINT_PREFER_NO_SCHEDULE, "value": "True", "effect": "PreferNoSchedule"}]);
        let both = json!({keys::SCALE_DOWN_DISABLED: "true", keys::SCALE_DOWN_DISABLED_BY_US: "true"});
        let body = patch(&node(&both, &ours), Standing::Current, true).expect("it changes");
        assert_eq!(body["spec"]["taints"], users());
        assert_eq!(body["metadata"]["annotations"].as_object().map(Map::len), Some(2));
        let own = json!({keys::SCALE_DOWN_DISABLED: "true"});
        assert_eq!(patch(&node(&own, &users()), Standing::Current, true), None);
        assert_eq!(
            patch(&node(&own, &ours), Standing::Old, true),
            None,
            "nothing is missing"
        );
        assert_eq!(patch(&node(&both, &ours), Standing::Aside, true), None);
    }
}
