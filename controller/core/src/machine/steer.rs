//! Pods and the autoscaler are steered away from a Node whose Machine has an old template, while a rollout replaces it.
//!
//! MC-18: the taint `PreferNoSchedule`, and the annotation that keeps the autoscaler from taking
//! the Node, with a second one that says that it is ours. It is the Machine's own pass, so
//! Nodes that join late get both, what a user has put on a Node is never taken, and what is ours goes when no rollout moves any more.
//! Nodes of new Machines need nothing: the autoscaler leaves a deployment alone while it rolls (MD-12).

use k8s_openapi::api::core::v1::Taint;

use super::node_patch::Sketch;
use crate::api::keys;

/// How a Machine stands in its deployment's rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// A rollout that is paused concerns it, or nobody can tell: its Node is left as it is.
    #[default]
    Aside,
    /// It has its deployment's template.
    Current,
    /// A rolling update is to replace it.
    Old,
    /// It is to be updated in place.
    InPlace,
    /// No rolling update will ever replace it: no deployment has it, or one that does not roll step by step.
    Free,
}

/// Brings the marks of an old Node in line. `annotates`: the autoscaler is told. `is_kept`: its Machine is preserved, so that the
/// autoscaler's annotations stay.
pub fn steer(node: &mut Sketch<'_>, standing: Standing, annotates: bool, is_kept: bool) {
    match standing {
        Standing::Aside => {}
        Standing::Old | Standing::InPlace => mark(node, annotates),
        Standing::Current | Standing::Free => unmark(node, is_kept),
    }
}

/// Whether it is the taint that steers pods away from an old Node.
pub fn is_ours(taint: &Taint) -> bool {
    taint.key == keys::TAINT_PREFER_NO_SCHEDULE && taint.effect == "PreferNoSchedule"
}

/// The taint, and what tells the autoscaler.
fn mark(node: &mut Sketch<'_>, annotates: bool) {
    node.taint(keys::TAINT_PREFER_NO_SCHEDULE, Some(keys::TRUE), "PreferNoSchedule");
    if annotates {
        node.hold_from_autoscaler();
    }
}

/// The taint goes, and what tells the autoscaler.
fn unmark(node: &mut Sketch<'_>, is_kept: bool) {
    node.taints.retain(|taint| !is_ours(taint));
    if !is_kept {
        node.leave_to_autoscaler();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Map, Value, json};

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

    fn patch(node: &Node, standing: Standing, annotates: bool) -> Option<Value> {
        let mut sketch = Sketch::of(node);
        steer(&mut sketch, standing, annotates, false);
        sketch.patch().map(|patch| patch.body())
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

    #[test]
    fn a_node_that_nothing_will_roll_any_more_loses_the_marks() {
        let ours = json!([{"key": keys::TAINT_PREFER_NO_SCHEDULE, "value": "True", "effect": "PreferNoSchedule"}]);
        let both = json!({keys::SCALE_DOWN_DISABLED: "true", keys::SCALE_DOWN_DISABLED_BY_US: "true"});
        let body = patch(&node(&both, &ours), Standing::Free, true).expect("it changes");
        assert_eq!(body["spec"]["taints"], json!([]));
        assert_eq!(
            body["metadata"]["annotations"],
            json!({keys::SCALE_DOWN_DISABLED: null, keys::SCALE_DOWN_DISABLED_BY_US: null})
        );
    }
}
