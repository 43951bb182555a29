use serde_json::{Value, from_value, json};

use super::*;

fn template(raw: Value) -> Template {
    from_value(raw).expect("any object is a template")
}

/// A template as the original stores it.
fn stored() -> Value {
    json!({
        "metadata": {"creationTimestamp": null, "labels": {"name": "workers"}},
        "spec": {
            "class": {"kind": "MachineClass", "name": "small"},
            "nodeTemplate": {"metadata": {"creationTimestamp": null, "labels": {"pool": "a"}}, "spec": {}},
            "healthTimeout": "10m",
        },
    })
}

fn changed(path: &str, value: Value) -> Template {
    let mut raw = stored();
    *raw.pointer_mut(path.rsplit_once('/').unwrap().0)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .entry(path.rsplit_once('/').unwrap().1)
        .or_insert(Value::Null) = value;
    template(raw)
}

/// Compares both ways round, so that no test passes by the order of its arguments.
#[track_caller]
fn equal(a: &Template, b: &Template, scope: Scope) -> bool {
    let equal = a.semantically_equal(b, scope);
    assert_eq!(
        equal,
        b.semantically_equal(a, scope),
        "the comparison depends on the order"
    );
    let alike = same_but_for(&a.0, &b.0, &HASH_LABEL);
    assert!(
        !alike || a.essence(scope) == b.essence(scope),
        "the short way says more"
    );
    equal
}

#[test]
fn a_change_that_only_a_new_machine_can_carry_starts_a_rollout() {
    let base = template(stored());
    for (path, value) in [
        ("/metadata/labels/extra", json!("x")),
        ("/metadata/labels/name", json!("other")),
        ("/metadata/annotations", json!({"a": "b"})),
        ("/metadata/finalizers", json!(["f"])),
        ("/metadata/namespace", json!("elsewhere")),
        ("/spec/class/name", json!("large")),
        ("/spec/class/apiGroup", json!("machine.sapcloud.io")),
        ("/spec/providerID", json!("p")),
    ] {
        assert!(!equal(&base, &changed(path, value), Scope::Rollout), "{path}");
    }
}

#[test]
fn a_change_that_machines_can_take_over_starts_no_rollout() {
    let base = template(stored());
    for (path, value) in [
        (
            "/spec/nodeTemplate",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        ),
        ("/spec/class/kind", json!("AWSMachineClass")),
        ("/spec/drainTimeout", json!("1h")),
        ("/spec/healthTimeout", json!("1h")),
        ("/spec/creationTimeout", json!("1h")),
        ("/spec/inPlaceUpdateTimeout", json!("1h")),
        ("/spec/machinePreserveTimeout", json!("1h")),
        ("/spec/disableHealthTimeout", json!(true)),
        ("/spec/maxEvictRetries", json!(3)),
        ("/spec/nodeConditions", json!("DiskPressure")),
    ] {
        let other = changed(path, value);
        assert!(equal(&base, &other, Scope::Rollout), "{path}");
        assert!(!equal(&base, &other, Scope::Whole), "{path} is still a difference");
    }
}

#[test]
fn all_spellings_of_nothing_are_the_same() {
    let base = template(stored());
    for (path, value) in [
        ("/metadata/annotations", json!({})),
        ("/metadata/annotations", Value::Null),
        ("/metadata/finalizers", json!([])),
        ("/metadata/generation", json!(0)),
        ("/metadata/namespace", json!("")),
        ("/metadata/creationTimestamp", Value::Null),
        ("/spec/providerID", json!("")),
        ("/spec/class/apiGroup", Value::Null),
        ("/spec/disableHealthTimeout", json!(false)),
        ("/spec/nodeTemplate/spec/taints", json!([])),
    ] {
        assert!(
            equal(&base, &changed(path, value.clone()), Scope::Rollout),
            "{path} {value}"
        );
        assert!(
            equal(&base, &changed(path, value.clone()), Scope::Whole),
            "{path} {value}"
        );
    }
    assert!(equal(
        &template(json!({})),
        &template(json!({"metadata": {"creationTimestamp": null}, "spec": {"class": {}}})),
        Scope::Whole
    ));
}

#[test]
fn the_hash_label_makes_no_difference() {
    let base = template(stored());
    let hashed = base.with_label(keys::TEMPLATE_HASH, "123");
    for scope in [Scope::Rollout, Scope::Whole] {
        assert!(equal(&base, &hashed, scope));
        assert!(equal(&hashed, &base.with_label(keys::TEMPLATE_HASH, "456"), scope));
    }
    assert_eq!(hashed.without_label(keys::TEMPLATE_HASH), base);
}

#[test]
fn a_new_label_is_seen_although_the_hash_label_balances_the_count() {
    let set = template(stored()).with_label(keys::TEMPLATE_HASH, "123");
    let deployment = changed("/metadata/labels/extra", json!("x"));
    assert_eq!(
        set.labels().len(),
        deployment.labels().len(),
        "or the test tests nothing"
    );
    assert!(!equal(&set, &deployment, Scope::Rollout));
}

#[test]
fn an_empty_label_is_not_a_missing_one() {
    assert!(!equal(
        &template(stored()),
        &changed("/metadata/labels/extra", json!("")),
        Scope::Rollout
    ));
}

#[test]
fn fields_that_typed_clients_drop_start_no_rollout() {
    let base = template(stored());
    assert!(equal(&base, &changed("/metadata/madeUp", json!("x")), Scope::Rollout));
    assert!(equal(&base, &changed("/spec/madeUp", json!({"a": 1})), Scope::Rollout));
}

#[test]
fn the_order_of_finalizers_and_the_place_of_an_empty_entry_count() {
    let ab = changed("/metadata/finalizers", json!(["a", "b"]));
    assert!(!equal(
        &ab,
        &changed("/metadata/finalizers", json!(["b", "a"])),
        Scope::Rollout
    ));
    assert!(!equal(
        &ab,
        &changed("/metadata/finalizers", json!(["a", "", "b"])),
        Scope::Rollout
    ));
}

#[test]
fn a_copy_loses_nothing() {
    let mut raw = stored();
    raw["metadata"]["madeUp"] = json!({"a": [1, null]});
    raw["spec"]["madeUp"] = json!({"b": {"c": false}});
    raw["alsoMadeUp"] = json!(1);
    let template = template(raw.clone());
    assert_eq!(serde_json::to_value(&template).unwrap(), raw);
    assert_eq!(Value::Object(template.spec_json()), raw["spec"]);
    assert_eq!(template.with_label("x", "y").without_label("x"), template);
}

#[test]
fn a_label_can_be_added_where_there_is_no_metadata() {
    for raw in [
        json!({}),
        json!({"metadata": null}),
        json!({"metadata": {"labels": null}}),
    ] {
        assert_eq!(
            template(raw).with_label("a", "b").labels(),
            BTreeMap::from([("a".to_owned(), "b".to_owned())])
        );
    }
}

#[test]
fn odd_content_has_a_reading() {
    let odd = template(
        json!({"metadata": {"labels": {"a": null, "b": 3, "c": "x"}, "annotations": 4, "finalizers": [1, "f"]}, "spec": "no"}),
    );
    assert_eq!(
        odd.labels(),
        BTreeMap::from([("a".to_owned(), String::new()), ("c".to_owned(), "x".to_owned())])
    );
    assert_eq!(odd.finalizers(), ["f"]);
    assert_eq!(
        (odd.annotations().len(), odd.spec(), odd.class()),
        (0, MachineSpec::default(), None)
    );
}
