use k8s_openapi::api::core::v1::Node;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::machine::node_patch::NodePatch;

fn node(metadata: &Value, taints: &Value) -> Node {
    let mut body = json!({"metadata": metadata, "spec": {"taints": taints}});
    body["metadata"]["name"] = json!("n");
    body["metadata"]["resourceVersion"] = json!("7");
    serde_json::from_value(body).expect("it is a Node")
}

fn template(value: &Value) -> NodeTemplateSpec {
    serde_json::from_value(value.clone()).expect("it is an object")
}

fn patch_of(node: &Node, template: Option<&NodeTemplateSpec>, is_joining: bool) -> Option<NodePatch> {
    let mut sketch = Sketch::of(node);
    let faults = merge(&mut sketch, template, is_joining);
    sketch.patch().map(|patch| patch.leaving_out(faults))
}

fn brought(node: &Node, template: Option<&NodeTemplateSpec>) -> Node {
    patch_of(node, template, false).map_or_else(|| node.clone(), |patch| patch.applied(node))
}

fn pool() -> NodeTemplateSpec {
    template(&json!({
        "metadata": {"creationTimestamp": null, "labels": {"pool": "a"}, "annotations": {"note": "x y"}},
        "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    }))
}

fn users() -> Node {
    let metadata = json!({"labels": {"mine": "1", "pool": "b"}, "annotations": {"own": "1"}});
    node(&metadata, &json!([{"key": "gpu", "effect": "NoExecute"}]))
}

#[test]
fn a_template_stands_beside_what_is_a_users_and_leaves_nothing_behind() {
    let before = users();
    let after = brought(&before, Some(&pool()));
    let labels = after.metadata.labels.clone().unwrap();
    assert_eq!((labels["mine"].as_str(), labels["pool"].as_str()), ("1", "a"));
    assert_eq!(after.spec.as_ref().unwrap().taints.as_ref().unwrap().len(), 2);
    assert_eq!(patch_of(&after, Some(&pool()), false), None, "nothing is left to do");
    let emptied = brought(&after, None);
    assert_eq!(emptied.metadata.labels.unwrap().len(), 1);
    assert_eq!(emptied.metadata.annotations, before.metadata.annotations);
    assert_eq!(emptied.spec, before.spec);
}

/// Rows: W32.
#[test]
fn taints_are_written_only_on_the_version_that_was_seen() {
    let body = patch_of(&users(), Some(&pool()), false).unwrap().body();
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    let labels = template(&json!({"metadata": {"labels": {"pool": "c"}}}));
    let body = patch_of(&users(), Some(&labels), false).unwrap().body();
    assert_eq!(body["metadata"]["resourceVersion"], Value::Null);
    assert_eq!(body["spec"], Value::Null);
}

#[test]
fn what_the_original_remembers_is_gone_on_from() {
    let text = json!({
        "metadata": {"creationTimestamp": null, "labels": {"old": "1", "pool": "a"}, "annotations": {"note": "x y"}},
        "spec": {"taints": [
            {"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
        ]},
    });
    let metadata = json!({
        "labels": {"old": "1", "pool": "a"},
        "annotations": {"note": "x y", keys::LAST_APPLIED_NODE_TEMPLATE: text.to_string()},
    });
    let taints = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
    let patch = patch_of(&node(&metadata, &taints), Some(&pool()), false).expect("it changes");
    assert_eq!(patch.labels.into_iter().collect::<Vec<_>>(), [("old".to_owned(), None)]);
    assert_eq!(patch.taints, None);
    let written = patch.annotations[keys::LAST_APPLIED_NODE_TEMPLATE].clone().unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(&written, &json!(pool().as_json()));
}

/// Rows: W43.
#[test]
fn a_taints_time_is_no_difference() {
    let timed = template(&json!({"spec": {"taints": [
        {"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
    ]}}));
    let after = brought(&users(), Some(&timed));
    let mut later = after.clone();
    for taint in later.spec.as_mut().unwrap().taints.as_mut().unwrap() {
        taint.time_added = None;
    }
    assert_eq!(patch_of(&later, Some(&timed), false), None);
}

#[test]
fn a_memory_that_nobody_can_read_is_replaced_and_told_once() {
    for text in ["{", "[]", "null", ""] {
        let metadata = json!({"labels": {"old": "1"}, "annotations": {keys::LAST_APPLIED_NODE_TEMPLATE: text}});
        let odd = node(&metadata, &Value::Null);
        let patch = patch_of(&odd, Some(&pool()), false).expect("it changes");
        assert_eq!(patch.faults.len(), 1, "{text}");
        let after = patch.applied(&odd);
        assert!(
            after.metadata.labels.as_ref().unwrap().contains_key("old"),
            "it may be a user's"
        );
        assert_eq!(patch_of(&after, Some(&pool()), false), None);
        let patch = patch_of(&odd, None, false).expect("it changes");
        assert_eq!(patch_of(&patch.applied(&odd), None, false), None);
    }
}

#[test]
fn garbage_is_left_out_and_told_once() {
    let garbage = template(&json!({
        "metadata": {"labels": {"good": "1", "bad key": "1", "bad": "no way", "number": 1}, "annotations": "none"},
        "spec": {"taints": [
            {"key": "", "effect": "NoSchedule"}, {"key": "a", "effect": "Never"}, "b", {"key": "c", "effect": "NoSchedule"},
            {"key": "c", "effect": "NoSchedule", "value": "twice"},
            {"key": keys::TAINT_PREFER_NO_SCHEDULE, "effect": "PreferNoSchedule"},
        ]},
    }));
    let patch = patch_of(&users(), Some(&garbage), false).expect("it changes");
    assert_eq!(patch.labels.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(patch.taints.as_ref().map(Vec::len), Some(2));
    let told = patch.faults.join("\n");
    for word in [
        "bad key",
        "\"bad\"",
        "number",
        "annotations must",
        "\":NoSchedule\"",
        "a:Never",
        "2 of them",
        "own",
    ] {
        assert!(told.contains(word), "{word} in\n{told}");
    }
    let after = patch.applied(&users());
    assert_eq!(patch_of(&after, Some(&garbage), false), None);
}

#[test]
fn the_taint_of_joining_is_put_on_once_and_never_on_a_node_in_service() {
    let gate = json!([{"key": keys::TAINT_CRITICAL_COMPONENTS, "effect": "NoSchedule"}]);
    let gated = template(&json!({"spec": {"taints": gate}}));
    let bare = node(&json!({}), &Value::Null);
    let joining = patch_of(&bare, Some(&gated), true).expect("it changes").applied(&bare);
    assert!(crate::machine::node::is_gated(&joining));
    let mut fit = joining;
    fit.spec.as_mut().unwrap().taints = None;
    assert_eq!(patch_of(&fit, Some(&gated), true), None, "whoever took it off meant it");
    assert!(!crate::machine::node::is_gated(&brought(&bare, Some(&gated))));
}

/// Some keys of a map, so few that the three sides meet.
fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = prop::sample::select(vec!["a", "b", "example.com/c", "bad key", keys::MACHINE_NAME, "d"]);
    let value = prop::sample::select(vec!["", "1", "2", "no way"]);
    prop::collection::btree_map(key.prop_map(str::to_owned), value.prop_map(str::to_owned), 0..4)
}

fn some_taints() -> impl Strategy<Value = Vec<Value>> {
    let key = prop::sample::select(vec![
        "a",
        "b",
        "",
        keys::TAINT_PREFER_NO_SCHEDULE,
        keys::TAINT_CRITICAL_COMPONENTS,
    ]);
    let effect = prop::sample::select(vec!["NoSchedule", "PreferNoSchedule", "NoExecute", "Never"]);
    let taint = (key, effect, prop::sample::select(vec!["", "1", "2"]));
    let taint = taint.prop_map(|(key, effect, value)| json!({"key": key, "effect": effect, "value": value}));
    prop::collection::vec(taint, 0..4)
}

fn templates() -> impl Strategy<Value = NodeTemplateSpec> {
    (texts(), texts(), some_taints()).prop_map(|(labels, annotations, taints)| {
        template(&json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"taints": taints}}))
    })
}

/// A Node that users and the kubelet have written. It has one taint of each key and effect.
fn nodes() -> impl Strategy<Value = Node> {
    (texts(), texts(), some_taints()).prop_map(|(labels, annotations, taints)| {
        let mut node = node(&json!({"labels": labels, "annotations": annotations}), &json!(taints));
        let mut seen = std::collections::BTreeSet::new();
        let spec = node.spec.as_mut().expect("it has a spec");
        if let Some(taints) = spec.taints.as_mut() {
            taints.retain(|taint| seen.insert((taint.key.clone(), taint.effect.clone())));
        }
        node
    })
}

type Texts = BTreeMap<String, String>;

/// What of a Node is not these templates'.
fn foreign(node: &Node, templates: &[&NodeTemplateSpec]) -> (Texts, Texts, Vec<Taint>) {
    let given: Vec<Parts> = templates.iter().map(|template| Parts::of(template).sound()).collect();
    let mut labels = node.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| !given.iter().any(|parts| parts.labels.contains_key(key)));
    let mut annotations = node.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(keys::LAST_APPLIED_NODE_TEMPLATE);
    annotations.retain(|key, _| !given.iter().any(|parts| parts.annotations.contains_key(key)));
    let is_given = |taint: &Taint| {
        given
            .iter()
            .any(|parts| parts.taints.iter().any(|one| is_same(one, taint)))
    };
    let taints = crate::machine::node::taints(node)
        .iter()
        .filter(|taint| !is_given(taint));
    (labels, annotations, taints.cloned().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows: pains 95.
    #[test]
    fn what_is_not_the_templates_never_changes(node in nodes(), first in templates(), second in templates()) {
        let both = [&first, &second];
        let after = brought(&node, Some(&first));
        prop_assert_eq!(foreign(&node, &both), foreign(&after, &both));
        prop_assert_eq!(foreign(&node, &both), foreign(&brought(&after, Some(&second)), &both));
    }

    #[test]
    fn what_was_brought_is_not_brought_again(node in nodes(), first in templates(), second in templates(), joins: bool) {
        let after = brought(&brought(&node, Some(&first)), Some(&second));
        prop_assert_eq!(patch_of(&after, Some(&second), joins), None);
    }

    #[test]
    fn what_was_applied_goes_and_nothing_else(node in nodes(), first in templates()) {
        let after = brought(&brought(&node, Some(&first)), None);
        prop_assert_eq!(foreign(&node, &[&first]), foreign(&after, &[]));
    }
}
