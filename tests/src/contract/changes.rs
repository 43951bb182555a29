//! Requests that change an object: whole, in part, its status, its scale.

use serde_json::{Value, json};

use super::acts::{add_labels, decorated, is_real, labels, with_body, with_query, write_options};
use super::generate::{Guess, Maker, Subject};
use super::kinds::put;
use super::script::Step;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

fn patch(path: String, media: &str, body: &Value) -> Step {
    Step {
        method: "PATCH".to_owned(),
        path,
        media: media.to_owned(),
        body: Some(body.to_string()),
        ..Step::default()
    }
}

/// The version that a writer has read, or an old one, or none.
fn version(maker: &mut Maker, subject: Subject) -> Option<String> {
    let what = maker.dice.weighed(&[(5, "rv"), (2, "oldrv"), (4, "")]);
    (!what.is_empty()).then(|| subject.kind.said(what, subject.name))
}

/// A PUT of the whole object.
pub fn update(maker: &mut Maker, subject: Subject) -> Step {
    if !subject.kind.replaceable {
        return merge(maker, subject);
    }
    let content = if subject.kind.custom && maker.dice.percent(12) {
        subject.kind.wrong(maker.dice.below(super::kinds::Kind::WRONGS))
    } else {
        subject.kind.content(maker.dice.below(3))
    };
    let (mut body, held) = decorated(maker, subject, content);
    if let Some(version) = version(maker, subject) {
        body["metadata"]["resourceVersion"] = json!(version);
    }
    match maker.dice.below(12) {
        0 => body["metadata"]["uid"] = json!(subject.kind.said("uid", subject.name)),
        1 => body["metadata"]["uid"] = json!(subject.kind.said("olduid", subject.name)),
        _ => {}
    }
    let options = write_options(maker);
    if is_real(&options) && subject.guess == Guess::Present && held {
        maker.expect(subject, Guess::Held);
    }
    with_body("PUT", with_query(subject.kind.path(subject.name), &options), &body)
}

/// A JSON patch of the whole object.
pub fn json_patch(maker: &mut Maker, subject: Subject) -> Step {
    let kind = subject.kind;
    let mut operations = Vec::new();
    match maker.dice.below(6) {
        0..=2 => {
            operations.push(json!({ "op": "test", "path": "/metadata/uid", "value": kind.said("uid", subject.name) }))
        }
        3 => operations
            .push(json!({ "op": "test", "path": "/metadata/uid", "value": kind.said("olduid", subject.name) })),
        _ => {}
    }
    for _ in 0..=maker.dice.below(2) {
        operations.push(operation(maker, subject));
    }
    let options = write_options(maker);
    patch(
        with_query(kind.path(subject.name), &options),
        JSON_PATCH,
        &Value::Array(operations),
    )
}

fn operation(maker: &mut Maker, subject: Subject) -> Value {
    let (field, value) = spec_field(maker, subject);
    match maker.dice.below(17) {
        0 => json!({ "op": "add", "path": "/metadata/labels/app", "value": "x" }),
        1 => json!({ "op": "add", "path": "/metadata/labels", "value": { "app": "y", "room": "{{ns}}" } }),
        2 => json!({ "op": "remove", "path": "/metadata/labels/app" }),
        3 => json!({ "op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"] }),
        4 => json!({ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/more" }),
        5 => json!({ "op": "remove", "path": "/metadata/finalizers/0" }),
        6 => {
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": subject.kind.said("rv", subject.name) })
        }
        7 => json!({ "op": "replace", "path": "/metadata/annotations/example.com~1note", "value": "again" }),
        8 => json!({ "op": "add", "path": "/metadata/annotations", "value": { "example.com/note": "first" } }),
        9 => {
            json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": subject.kind.said("oldrv", subject.name) })
        }
        10 => json!({ "op": "copy", "from": "/metadata/name", "path": "/metadata/annotations/copy" }),
        11 => json!({ "op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/tier" }),
        12 => json!({ "op": "bogus", "path": "/metadata" }),
        13 => json!({ "op": "test", "path": "/metadata/name", "value": "other" }),
        14 => json!({ "op": "remove", "path": "/no/such/path" }),
        _ => json!({ "op": "add", "path": field, "value": value }),
    }
}

/// A field of the kind's own that a patch may set, as a JSON pointer.
fn spec_field(maker: &mut Maker, subject: Subject) -> (&'static str, Value) {
    let wrong = maker.dice.percent(15);
    typed_field(maker, subject, wrong)
}

/// The same, of the right type unless `wrong`.
fn typed_field(maker: &mut Maker, subject: Subject, wrong: bool) -> (&'static str, Value) {
    let number = maker.dice.below(4);
    match subject.kind.kind {
        "Machine" if wrong => ("/spec/class", json!(7)),
        "Machine" => ("/spec/providerID", json!(format!("virtual:///{number}"))),
        "MachineSet" | "MachineDeployment" if wrong => {
            let wrongs = [json!("2"), json!(-1), json!(1.5), json!(-2), json!({})];
            ("/spec/replicas", maker.dice.of(&wrongs).clone())
        }
        "MachineSet" | "MachineDeployment" => ("/spec/replicas", json!(number)),
        "MachineClass" if wrong => ("/providerSpec", json!("x")),
        "MachineClass" => ("/providerSpec", json!({ "size": number })),
        "Secret" => ("/data", json!({ "a": "Mg==" })),
        "ConfigMap" => ("/data", json!({ "a": number.to_string() })),
        "Lease" => ("/spec/leaseTransitions", json!(number)),
        "Node" => ("/spec/unschedulable", json!(number.is_multiple_of(2))),
        "PodDisruptionBudget" => ("/spec/maxUnavailable", json!(number)),
        _ => ("/metadata/annotations", json!({ "number": number.to_string() })),
    }
}

/// Metadata and fields as a merge patch has them.
fn merge_body(maker: &mut Maker, subject: Subject) -> Value {
    let mut body = json!({});
    for _ in 0..=maker.dice.below(2) {
        match maker.dice.below(12) {
            0 => body["metadata"]["labels"] = labels(maker),
            1 => body["metadata"]["labels"] = json!({ "app": null }),
            2 => body["metadata"]["annotations"] = json!({ "example.com/note": "merged" }),
            3 => body["metadata"]["annotations"] = Value::Null,
            4 => body["metadata"]["finalizers"] = json!(["example.com/hold", "example.com/more"]),
            5 => body["metadata"]["finalizers"] = json!([]),
            6 => body["metadata"]["finalizers"] = json!(["example.com/hold"]),
            7 => {
                body["status"] = if subject.kind.status {
                    subject.kind.state(maker.dice.below(3))
                } else {
                    json!({})
                }
            }
            _ => {
                let (field, value) = spec_field(maker, subject);
                put(&mut body, field, value);
            }
        }
    }
    // What else a built-in kind makes of a status that it does not have is not held.
    if !subject.kind.custom && !subject.kind.status {
        body.as_object_mut().map(|fields| fields.remove("status"));
    }
    body
}

fn guard(maker: &mut Maker, subject: Subject, body: &mut Value) {
    if let Some(version) = version(maker, subject) {
        body["metadata"]["resourceVersion"] = json!(version);
    }
    match maker.dice.below(16) {
        0 => body["metadata"]["uid"] = json!(subject.kind.said("uid", subject.name)),
        1 => body["metadata"]["uid"] = json!(subject.kind.said("olduid", subject.name)),
        2 => body["metadata"]["name"] = json!("other"),
        3 => body["metadata"]["generation"] = json!(77),
        _ => {}
    }
}

/// Options of a patch that says what its kind does not know: a strict one is refused by quoting the whole object.
fn lenient(options: [&'static str; 3], body: &Value) -> [&'static str; 3] {
    let [manager, dry, validation] = options;
    let is_odd = body["bogus"].is_object() || body["spec"]["replicas"] == 9;
    let validation = if is_odd && validation == "fieldValidation=Strict" {
        ""
    } else {
        validation
    };
    [manager, dry, validation]
}

/// A merge patch of the whole object.
pub fn merge(maker: &mut Maker, subject: Subject) -> Step {
    let mut body = merge_body(maker, subject);
    if subject.kind.custom && maker.dice.percent(5) {
        body["bogus"] = json!({ "unknown": true });
    }
    guard(maker, subject, &mut body);
    if body["metadata"]["finalizers"] == json!(["example.com/hold"]) && subject.guess == Guess::Present {
        maker.expect(subject, Guess::Held);
    }
    let options = lenient(write_options(maker), &body);
    let mut step = patch(
        with_query(subject.kind.path(subject.name), &options),
        MERGE_PATCH,
        &body,
    );
    step.metadata = maker.dice.percent(10);
    step
}

/// A strategic patch. Our kinds refuse it.
pub fn strategic(maker: &mut Maker, subject: Subject) -> Step {
    let kind = subject.kind;
    let body = match maker.dice.below(9) {
        0 => json!({ "metadata": { "finalizers": ["example.com/node"], "labels": { "app": "x" } } }),
        1 => json!({ "metadata": { "uid": kind.said("uid", subject.name), "finalizers": ["example.com/node"] } }),
        2 => json!({ "metadata": { "uid": kind.said("olduid", subject.name), "finalizers": ["example.com/node"] } }),
        3 => json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/node", "example.com/hold"] } }),
        4 => json!({ "metadata": { "annotations": { "$patch": "replace", "only": "this" } } }),
        5 if kind.kind == "Node" => json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }] } }),
        6 if kind.kind == "Node" => json!({ "spec": { "taints": null, "unschedulable": true } }),
        7 if kind.kind == "ConfigMap" => json!({ "data": { "a": "4" } }),
        _ => merge_body(maker, subject),
    };
    let options = write_options(maker);
    patch(with_query(kind.path(subject.name), &options), STRATEGIC_PATCH, &body)
}

/// A server-side apply.
pub fn apply(maker: &mut Maker, subject: Subject) -> Step {
    let kind = subject.kind;
    let guarded = ["Pod", "PersistentVolume", "VolumeAttachment", "Event"];
    if guarded.contains(&kind.kind) {
        return merge(maker, subject);
    }
    let mut body =
        json!({ "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "name": kind.full(subject.name) } });
    if !kind.namespaced {
        body["metadata"]["labels"] = json!({ "room": "{{ns}}" });
    }
    if maker.dice.percent(50) {
        let labels = labels(maker);
        add_labels(&mut body, &labels);
    }
    if maker.dice.percent(15) {
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    }
    let is_there = subject.guess != Guess::Absent;
    if kind.custom || !is_there || maker.dice.percent(60) {
        let flavour = if kind.custom { 0 } else { maker.dice.below(3) };
        for (key, value) in kind.content(flavour).as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
    }
    if maker.dice.percent(30) {
        let (field, value) = spec_field(maker, subject);
        put(&mut body, field, value);
    }
    if maker.dice.percent(6) {
        body["metadata"]["resourceVersion"] = json!(kind.said("oldrv", subject.name));
    }
    if maker.dice.percent(6) {
        body["metadata"]["uid"] = json!(kind.said("olduid", subject.name));
    }
    let manager = maker.dice.weighed(&[
        (6, "fieldManager=one"),
        (6, "fieldManager=two"),
        (3, "fieldManager=three"),
        (1, ""),
    ]);
    let force = maker.dice.weighed(&[(3, ""), (2, "force=true"), (1, "force=false")]);
    let [_, dry, strict] = write_options(maker);
    if !is_there && is_real(&[dry, strict]) && !manager.is_empty() {
        let held = body["metadata"]["finalizers"].is_array();
        maker.expect(subject, if held { Guess::Held } else { Guess::Present });
    }
    patch(
        with_query(kind.path(subject.name), &[manager, force, dry, strict]),
        APPLY_PATCH,
        &body,
    )
}

/// A write of the status.
pub fn status(maker: &mut Maker, subject: Subject) -> Step {
    let kind = subject.kind;
    if !kind.status {
        return merge(maker, subject);
    }
    let path = format!("{}/status", kind.path(subject.name));
    let mut body = json!({ "status": kind.state(maker.dice.below(3)) });
    if kind.custom && maker.dice.percent(10) {
        body["status"] = json!({ "conditions": [{ "type": 7 }], "replicas": "x" });
    }
    match maker.dice.below(6) {
        0 => {
            let test = json!({ "op": "test", "path": "/metadata/uid", "value": kind.said("uid", subject.name) });
            let set = json!({ "op": "add", "path": "/status", "value": body["status"] });
            return patch(path, JSON_PATCH, &json!([test, set]));
        }
        1 => {
            let test = json!({ "op": "test", "path": "/metadata/uid", "value": kind.said("olduid", subject.name) });
            let set = json!({ "op": "add", "path": "/status", "value": body["status"] });
            return patch(path, JSON_PATCH, &json!([test, set]));
        }
        2 => {
            body["status"] = kind.state(maker.dice.below(3));
            body["apiVersion"] = json!(kind.api_version);
            body["kind"] = json!(kind.kind);
            body["metadata"] = json!({ "name": kind.full(subject.name) });
            let manager = maker.dice.weighed(&[(2, "fieldManager=one"), (2, "fieldManager=two")]);
            let force = maker.dice.weighed(&[(2, ""), (1, "force=true")]);
            return patch(with_query(path, &[manager, force]), APPLY_PATCH, &body);
        }
        3 if kind.replaceable => {
            let mut whole = kind.whole(subject.name, maker.dice.below(3));
            whole["status"] = body["status"].clone();
            if let Some(version) = version(maker, subject) {
                whole["metadata"]["resourceVersion"] = json!(version);
            }
            return with_body("PUT", path, &whole);
        }
        _ => {}
    }
    if maker.dice.percent(20) {
        body["metadata"]["labels"] = json!({ "app": "from-status" });
    }
    if maker.dice.percent(10) {
        body["spec"] = json!({ "replicas": 9 });
    }
    guard(maker, subject, &mut body);
    let media = if !kind.custom && maker.dice.percent(50) {
        STRATEGIC_PATCH
    } else {
        MERGE_PATCH
    };
    let options = lenient(write_options(maker), &body);
    patch(with_query(path, &options), media, &body)
}

/// A write of the scale.
pub fn scale(maker: &mut Maker, subject: Subject) -> Step {
    let kind = subject.kind;
    if !kind.scale {
        return json_patch(maker, subject);
    }
    let path = format!("{}/scale", kind.path(subject.name));
    let replicas = maker.fresh();
    match maker.dice.below(5) {
        0 => {
            let mut body = json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": subject.name, "namespace": "{{ns}}" },
                "spec": { "replicas": replicas },
            });
            if let Some(version) = version(maker, subject) {
                body["metadata"]["resourceVersion"] = json!(version);
            }
            with_body("PUT", path, &body)
        }
        1 => {
            let test = json!({ "op": "test", "path": "/metadata/uid", "value": kind.said("uid", subject.name) });
            patch(
                path,
                JSON_PATCH,
                &json!([test, { "op": "replace", "path": "/spec/replicas", "value": replicas }]),
            )
        }
        2 => Step {
            method: "GET".to_owned(),
            path,
            ..Step::default()
        },
        _ => {
            let mut body = json!({ "spec": { "replicas": replicas } });
            if let Some(version) = version(maker, subject) {
                body["metadata"]["resourceVersion"] = json!(version);
            }
            patch(path, MERGE_PATCH, &body)
        }
    }
}

/// Takes all finalizers off.
pub fn release(maker: &mut Maker, subject: Subject) -> Step {
    let next = if subject.guess == Guess::Leaving {
        Guess::Absent
    } else {
        Guess::Present
    };
    maker.expect(subject, next);
    let mut body = json!({ "metadata": { "finalizers": null } });
    if maker.dice.percent(40) {
        body["metadata"]["resourceVersion"] = json!(subject.kind.said("rv", subject.name));
    }
    patch(subject.kind.path(subject.name), MERGE_PATCH, &body)
}
