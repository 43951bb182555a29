//! The PATCH rooms against what a real kube-apiserver answered: every `tests/patch/*.answers.json`, step by step.
//!
//! Each step starts from the object that the server had then, so one mistake does not hide the next. To capture again (a
//! server of `/tmp/kb` or any other with the CRDs of deploy/crds): `tests/patch/capture.py https://127.0.0.1:PORT TOKEN`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets a malformed answer is to fail there"
)]

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use millwright_sandbox::fields::FieldSet;
use millwright_sandbox::managers::{self, Write};
use millwright_sandbox::patch::{self, PatchError};
use millwright_sandbox::topology::Topology;
use serde_json::Value;

struct Step {
    name: String,
    live: Option<Value>,
    step: Value,
}

impl Step {
    fn text(&self, field: &str) -> &str {
        self.step[field].as_str().unwrap_or_default()
    }

    fn refused(&self) -> bool {
        self.step["code"].as_u64().unwrap() >= 300
    }
}

/// All steps of one file, each with the object that the server held before it.
fn steps(file: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/patch").join(file);
    let scenarios: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut all = Vec::new();
    for scenario in scenarios {
        let mut live = None;
        for (place, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let name = format!(
                "{file}: {} [{place}] {}",
                scenario["name"].as_str().unwrap(),
                step["body"]
            );
            all.push(Step {
                name,
                live: live.clone(),
                step: step.clone(),
            });
            if step["code"].as_u64().unwrap() < 300 {
                live = Some(step["answer"].clone());
            }
        }
    }
    all
}

/// The shape of an object's kind; custom kinds by the CRDs that we ship.
fn topology_of(object: &Value) -> Topology {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    Topology::of_builtin(version, kind).unwrap_or_else(|| {
        let schemas: Value = serde_json::from_str(include_str!("../patch/schemas.json")).unwrap();
        Topology::of_custom(&schemas[kind])
    })
}

/// Without what the store, not the patch, decides.
fn without_bookkeeping(object: &Value) -> Value {
    let mut object = topology_of(object).settled(object.clone());
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["resourceVersion", "managedFields", "generation"] {
            metadata.remove(field);
        }
    }
    object
}

/// Runs the steps of one patch type through `apply`; says how many were compared.
fn compare(file: &str, kind: &str, apply: impl Fn(&Value, &Value, &Step) -> Result<Value, PatchError>) -> usize {
    let mut compared = 0;
    for step in steps(file).iter().filter(|step| step.text("type") == kind) {
        let live = step.live.as_ref().expect("a patch follows a create");
        let answer = &step.step["answer"];
        match apply(live, &step.step["body"], step) {
            Ok(patched) => {
                assert!(
                    !step.refused(),
                    "{}: the server refused: {}",
                    step.name,
                    answer["message"]
                );
                assert_eq!(
                    without_bookkeeping(&patched),
                    without_bookkeeping(answer),
                    "{}",
                    step.name
                );
            }
            Err(refusal) => {
                let (code, reason) = refusal.status();
                assert_eq!(step.step["code"], code, "{}: {refusal}", step.name);
                assert_eq!(answer["reason"].as_str().unwrap_or_default(), reason, "{}", step.name);
                assert_eq!(answer["message"], refusal.to_string(), "{}", step.name);
            }
        }
        compared += 1;
    }
    compared
}

#[test]
fn json_patches_come_to_what_the_server_made_of_them() {
    let compared = compare("json.answers.json", "json", |live, body, _| {
        patch::json::json(live, body)
    });
    assert!(compared >= 40, "only {compared} steps");
}

#[test]
fn merge_patches_come_to_what_the_server_made_of_them() {
    let compared = compare("merge.answers.json", "merge", |live, body, _| {
        patch::merge::merge(live, body)
    });
    assert!(compared >= 9, "only {compared} steps");
    let compared = compare("random.answers.json", "merge", |live, body, _| {
        patch::merge::merge(live, body)
    });
    assert!(compared >= 30, "only {compared} steps");
}

#[test]
fn strategic_patches_come_to_what_the_server_made_of_them() {
    let apply = |live: &Value, body: &Value, _: &Step| patch::strategic::strategic(live, body, &topology_of(live));
    let compared = compare("strategic.answers.json", "strategic", apply);
    assert!(compared >= 18, "only {compared} steps");
    let compared = compare("managers.answers.json", "strategic", apply);
    assert!(compared >= 20, "only {compared} steps");
    let compared = compare("random.answers.json", "strategic", apply);
    assert!(compared >= 50, "only {compared} steps");
}

/// What a write through this path cannot change.
fn reset(object: &Value, subresource: &str) -> FieldSet {
    let has_status = object["kind"] != "ConfigMap" && object["kind"] != "Event" && object["kind"] != "Lease";
    match (subresource, object["apiVersion"].as_str().unwrap()) {
        ("", _) if has_status => FieldSet::of_names(&[&["status"]]),
        ("status", _) => FieldSet::of_names(&[&["spec"]]),
        _ => FieldSet::default(),
    }
}

fn latest(answer: &Value) -> Timestamp {
    let entries = answer["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry["time"].as_str()?.parse().unwrap()))
        .max()
        .unwrap_or_default()
}

/// Owners without times: the server's clock moves between steps, and a step that changes nothing keeps the old time.
fn owners(object: &Value) -> Value {
    let mut entries = object["metadata"]["managedFields"].clone();
    for entry in entries.as_array_mut().into_iter().flatten() {
        entry.as_object_mut().unwrap().remove("time");
    }
    entries
}

/// A created object without what the server's admission plugins added: that comes after owners are recorded.
fn before_admission(answer: &Value) -> Value {
    let mut object = answer.clone();
    if matches!(
        answer["kind"].as_str(),
        Some("PersistentVolume" | "PersistentVolumeClaim")
    ) {
        object["metadata"].as_object_mut().unwrap().remove("finalizers");
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return object;
    };
    if answer["kind"] == "Pod" {
        spec.remove("priority");
        spec.remove("preemptionPolicy");
    }
    for list in ["taints", "tolerations"] {
        let Some(items) = spec.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        items.retain(|item| !item["key"].as_str().unwrap().starts_with("node.kubernetes.io/"));
        if items.is_empty() {
            spec.remove(list);
        }
    }
    object
}

#[test]
fn fields_have_the_owners_that_the_server_gives_them() {
    let mut compared = 0;
    for file in ["json", "merge", "strategic", "managers", "apply", "random"] {
        for step in steps(&format!("{file}.answers.json")) {
            if step.refused() || step.text("type") == "apply" {
                continue;
            }
            let answer = &step.step["answer"];
            let subresource = if step.text("path").ends_with("/status") {
                "status"
            } else {
                ""
            };
            let mut new = if step.live.is_none() {
                before_admission(answer)
            } else {
                answer.clone()
            };
            // What the request asks of the owners counts; what the server made of it is what is tested.
            match step.step["body"].pointer("/metadata/managedFields") {
                Some(asked) => new["metadata"]["managedFields"] = asked.clone(),
                None => {
                    new["metadata"].as_object_mut().unwrap().remove("managedFields");
                }
            }
            let write = Write {
                topology: &topology_of(answer),
                api_version: answer["apiVersion"].as_str().unwrap(),
                kind: answer["kind"].as_str().unwrap(),
                subresource,
                manager: step.text("manager"),
                now: latest(answer),
                reset: &reset(answer, subresource),
            };
            let recorded = managers::updated(step.live.as_ref(), new, &write);
            assert_eq!(owners(&recorded), owners(answer), "{}", step.name);
            compared += 1;
        }
    }
    assert!(compared >= 80, "only {compared} steps");
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

#[test]
fn what_the_server_wrote_is_settled_already() {
    for file in ["json", "merge", "strategic", "managers", "apply", "random"] {
        for step in steps(&format!("{file}.answers.json"))
            .iter()
            .filter(|step| !step.refused())
        {
            let answer = &step.step["answer"];
            let custom = answer["apiVersion"].as_str().unwrap().starts_with("machine.");
            if !custom {
                assert_eq!(
                    topology_of(answer).settled(answer.clone()),
                    without_nulls(answer),
                    "{}",
                    step.name
                );
            }
        }
    }
}

/// Refusals that come before or after the apply itself.
fn is_ours(message: &str) -> bool {
    let openings = [
        "Apply failed",
        "failed to create typed",
        "metadata.managedFields must",
        "invalid object type",
    ];
    // Types of scalars are the schema's.
    openings.iter().any(|opening| message.starts_with(opening)) && !message.contains("valueUnstructured")
}

#[test]
fn applies_come_to_what_the_server_made_of_them() {
    let mut compared = 0;
    let files = ["apply.answers.json", "managers.answers.json", "random.answers.json"];
    for step in files.iter().flat_map(|file| steps(file)) {
        let answer = &step.step["answer"];
        let message = answer["message"].as_str().unwrap_or_default();
        if step.text("type") != "apply" || (step.refused() && !is_ours(message)) {
            continue;
        }
        let body = &step.step["body"];
        let kind = step.live.as_ref().unwrap_or(if step.refused() { body } else { answer });
        let subresource = if step.text("path").ends_with("/status") {
            "status"
        } else {
            ""
        };
        let write = Write {
            topology: &topology_of(kind),
            api_version: kind["apiVersion"].as_str().unwrap(),
            kind: kind["kind"].as_str().unwrap(),
            subresource,
            manager: step.text("manager"),
            now: latest(answer),
            reset: &reset(kind, subresource),
        };
        let force = step.step.pointer("/query/force").is_some();
        match patch::apply(step.live.as_ref(), body, force, &write) {
            Ok(applied) => {
                assert!(!step.refused(), "{}: the server refused: {message}", step.name);
                assert_eq!(owners(&applied), owners(answer), "{}", step.name);
                // A new object has uid and defaults, which are not ours; what a path cannot change is put back after us.
                if let Some(live) = &step.live {
                    let mut applied = applied.clone();
                    for field in write.reset.paths().iter().map(|path| path[0].to_string()) {
                        let name = field.trim_start_matches('.');
                        applied.as_object_mut().unwrap().remove(name);
                        if let Some(kept) = live.get(name) {
                            applied[name] = kept.clone();
                        }
                    }
                    assert_eq!(
                        without_bookkeeping(&applied),
                        without_bookkeeping(answer),
                        "{}",
                        step.name
                    );
                }
            }
            Err(refusal) => {
                let (code, reason) = refusal.status();
                assert_eq!(message, refusal.to_string(), "{}", step.name);
                assert_eq!(step.step["code"], code, "{}", step.name);
                assert_eq!(answer["reason"].as_str().unwrap_or_default(), reason, "{}", step.name);
                if let patch::apply::ApplyError::Conflict(conflicts) = refusal {
                    // The server lists the owners of several conflicts in no order.
                    let sorted = |causes: &[Value]| causes.iter().map(Value::to_string).collect::<BTreeSet<_>>();
                    let causes: Vec<Value> = conflicts.iter().map(cause).collect();
                    let theirs = answer["details"]["causes"].as_array().unwrap();
                    assert_eq!(sorted(theirs), sorted(&causes), "{}", step.name);
                }
            }
        }
        compared += 1;
    }
    assert!(compared >= 180, "only {compared} steps");
}

fn cause(conflict: &patch::apply::Conflict) -> Value {
    let reason = "FieldManagerConflict";
    serde_json::json!({"field": conflict.field(), "message": conflict.message(), "reason": reason})
}
