//! Schemas against what a real kube-apiserver answered. `schema/cases.yaml` says what was asked, `schema/answers.json` what came back.
//!
//! To capture again: start a kube-apiserver, `kubectl apply --server-side -f deploy/crds -f controller/sandbox/tests/schema/{things,rules,loose,probes}.yaml`,
//! then `controller/sandbox/tests/schema/capture.sh KUBECONFIG > answers.json` there.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may stop where its data are not as they should be"
)]

use std::collections::BTreeMap;

use millwright_sandbox::schema::{self, Scale, Schema};
use millwright_sandbox::strange;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    kind: String,
    new: Option<Value>,
    old: Option<Value>,
    raw: Option<String>,
    field_validation: Option<String>,
    subresource: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Answer {
    code: u16,
    warnings: Vec<String>,
    #[serde(default)]
    causes: Vec<Told>,
    message: Option<String>,
    stored: Option<Value>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Told {
    field: String,
    message: String,
    reason: String,
}

struct Known {
    schema: Schema,
    api_version: String,
    scale: Option<Scale>,
    has_status: bool,
}

fn known() -> BTreeMap<String, Known> {
    let mut crds: Vec<Value> = millwright_core::api::crds::all()
        .iter()
        .map(|crd| serde_json::to_value(crd).unwrap())
        .collect();
    for text in [
        include_str!("../schema/things.yaml"),
        include_str!("../schema/rules.yaml"),
        include_str!("../schema/loose.yaml"),
        include_str!("../schema/probes.yaml"),
    ] {
        crds.push(serde_saphyr::from_str(text).unwrap());
    }
    let mut known = BTreeMap::new();
    for crd in crds {
        let version = crd["spec"]["versions"].as_array().unwrap().last().unwrap();
        let scale = &version["subresources"]["scale"];
        let path = |name: &str| scale[name].as_str().unwrap_or_default().to_owned();
        known.insert(
            crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(),
            Known {
                schema: Schema::read(&version["schema"]["openAPIV3Schema"]).unwrap(),
                api_version: format!(
                    "{}/{}",
                    crd["spec"]["group"].as_str().unwrap(),
                    version["name"].as_str().unwrap()
                ),
                scale: (!scale.is_null()).then(|| Scale {
                    spec_replicas: path("specReplicasPath"),
                    status_replicas: path("statusReplicasPath"),
                }),
                has_status: !version["subresources"]["status"].is_null(),
            },
        );
    }
    known
}

/// The object that a case means, in full.
fn whole(case: &Case, known: &Known, part: &Value) -> Value {
    let mut object = json!({"apiVersion": known.api_version, "kind": case.kind, "metadata": {"name": "case"}});
    for (name, value) in part.as_object().unwrap() {
        match (object.get_mut(name).and_then(Value::as_object_mut), value) {
            (Some(there), Value::Object(more)) => there.extend(more.clone()),
            _ => object[name] = value.clone(),
        }
    }
    object
}

fn ask(case: &Case, known: &Known) -> Answer {
    let schema = &known.schema;
    let body = match &case.raw {
        Some(raw) => raw.clone(),
        None => whole(case, known, case.new.as_ref().unwrap()).to_string(),
    };
    let mut strange = strange::twice(body.as_bytes());
    let mut new: Value = serde_json::from_str(&body).unwrap();
    let mut old = case.old.as_ref().map(|old| whole(case, known, old));
    if let Some(old) = &mut old {
        schema::fill_defaults(schema, old);
        schema::prune(schema, old);
    }
    schema::fill_defaults(schema, &mut new);
    strange.extend(
        schema::prune(schema, &mut new)
            .iter()
            .map(|path| format!("unknown field \"{path}\"")),
    );
    match case.field_validation.as_deref() {
        Some("Strict") if !strange.is_empty() => {
            let (_, version) = known.api_version.split_once('/').unwrap();
            let message = format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
                strange.join(", "),
                kind = case.kind
            );
            return Answer {
                code: 400,
                warnings: vec![],
                causes: vec![],
                message: Some(message),
                stored: None,
            };
        }
        Some("Ignore") => strange.clear(),
        _ => {}
    }
    judge(case, known, new, old, strange)
}

/// What comes of an object that could be read.
fn judge(case: &Case, known: &Known, mut new: Value, old: Option<Value>, mut warnings: Vec<String>) -> Answer {
    let schema = &known.schema;
    let of_status = case.subresource.is_some();
    if of_status {
        let status = new["status"].take();
        new = old.clone().unwrap();
        new["status"] = status;
    } else if known.has_status {
        new.as_object_mut().unwrap().remove("status");
    }
    let mut verdict = match (&old, of_status) {
        (Some(old), true) => schema::validate_status(schema, &new, old),
        (old, _) => schema::validate(schema, &new, old.as_ref()),
    };
    let of_scale = known
        .scale
        .iter()
        .flat_map(|scale| schema::validate_scale(scale, &new, of_status));
    verdict.causes.extend(of_scale);
    warnings.extend(verdict.warnings);
    let tell = |cause: schema::Cause| Told {
        reason: cause.reason.name().to_owned(),
        field: cause.field,
        message: cause.message,
    };
    let mut causes: Vec<Told> = verdict.causes.into_iter().map(tell).collect();
    causes.sort();
    schema::settle_numbers(&mut new);
    let object = new.as_object_mut().unwrap();
    object.remove("apiVersion");
    object.remove("kind");
    Answer {
        code: match (causes.is_empty(), case.old.is_some()) {
            (false, _) => 422,
            (true, true) => 200,
            (true, false) => 201,
        },
        warnings,
        stored: causes.is_empty().then_some(new),
        causes,
        message: None,
    }
}

/// Rows: R4, K7.
#[test]
fn schemas_do_what_the_real_server_did() {
    let known = known();
    let cases: BTreeMap<String, Case> = serde_saphyr::from_str(include_str!("../schema/cases.yaml")).unwrap();
    let mut answers: BTreeMap<String, Answer> = include_str!("../schema/answers.json")
        .lines()
        .map(|line| {
            let named: Value = serde_json::from_str(line).unwrap();
            (
                named["name"].as_str().unwrap().to_owned(),
                serde_json::from_value(named).unwrap(),
            )
        })
        .collect();
    assert_eq!(
        cases.keys().collect::<Vec<_>>(),
        answers.keys().collect::<Vec<_>>(),
        "each case has its answer"
    );
    let mut wrong = Vec::new();
    for (name, case) in &cases {
        let mut expected = answers.remove(name).unwrap();
        expected.causes.sort();
        // The server walks its maps in no order, so the message of several causes has none either.
        if expected.code == 422 {
            expected.message = None;
        }
        let got = ask(case, &known[&case.kind]);
        if got != expected {
            wrong.push(format!("{name}\n  expected {expected:?}\n  got      {got:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
