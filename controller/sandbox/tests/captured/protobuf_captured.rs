//! Bodies in protobuf mean what a real kube-apiserver says that they mean, and are refused in its words.
//!
//! `tests/protobuf/capture.py` wrote `captured.json`: objects of every kind, each in protobuf and in JSON.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::protobuf;
use millwright_sandbox::rbac::User;
use millwright_sandbox::request::Http;
use serde_json::{Value, json};

fn captured() -> Value {
    serde_json::from_str(include_str!("../protobuf/captured.json")).unwrap()
}

fn bytes(encoded: &Value) -> Vec<u8> {
    STANDARD.decode(encoded.as_str().unwrap()).unwrap()
}

/// What a value says, one leaf a line. Null says nothing: JSON has some of what is not there, protobuf has none.
fn leaves(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) if !fields.is_empty() => {
            fields
                .iter()
                .for_each(|(key, inner)| leaves(inner, &format!("{path}/{key}"), out));
        }
        Value::Array(items) if !items.is_empty() => {
            for (place, inner) in items.iter().enumerate() {
                leaves(inner, &format!("{path}/{place}"), out);
            }
        }
        _ => _ = out.insert(format!("{path}: {value}")),
    }
}

#[test]
fn an_object_in_protobuf_is_what_it_is_in_json() {
    for pair in captured()["objects"].as_array().unwrap() {
        let (mut read, mut told) = (BTreeSet::new(), BTreeSet::new());
        leaves(&protobuf::object(&bytes(&pair["protobuf"])).unwrap(), "", &mut read);
        leaves(&pair["json"], "", &mut told);
        let differing: Vec<_> = read.symmetric_difference(&told).collect();
        assert!(differing.is_empty(), "{}: {differing:#?}", pair["json"]["kind"]);
    }
}

/// An API with a map that a refused request may mean.
fn api(captured: &Value) -> (Api, Moment) {
    let now: Timestamp = "2026-11-21T16:37:26Z".parse().unwrap();
    let map = &captured["objects"][1]["json"];
    let moment = Moment {
        now,
        uid: map["metadata"]["uid"].as_str().unwrap().to_owned(),
        suffix: "00000".to_owned(),
    };
    let mut api = Api::new(now);
    for (version, kind, namespace, name) in [
        ("v1", "Namespace", "", "protobuf"),
        ("v1", "ConfigMap", "protobuf", "a"),
    ] {
        let object =
            json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": namespace } });
        api.install(&object, &moment).unwrap();
    }
    (api, moment)
}

fn ask(api: &mut Api, moment: &Moment, method: &str, path: &str, body: &[u8]) -> (u64, Value) {
    let http = Http {
        method,
        path,
        content_type: protobuf::MEDIA,
        body,
        ..Http::default()
    };
    match api.handle_as(&User::administrator("admin"), &http, moment) {
        Answer::Object { code, body, .. } => (u64::from(code), Value::clone(&body)),
        other => panic!("{method} {path}: {other:?}"),
    }
}

#[test]
fn a_body_that_makes_no_sense_is_refused_in_the_words_of_the_server() {
    let captured = captured();
    let (mut api, moment) = api(&captured);
    for case in captured["refused"].as_array().unwrap() {
        let (method, path) = (case["method"].as_str().unwrap(), case["path"].as_str().unwrap());
        let (code, said) = ask(&mut api, &moment, method, path, &bytes(&case["body"]));
        let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        let seen = json!([code, text("reason"), text("message")]);
        assert_eq!(seen, json!([case["code"], case["reason"], case["message"]]), "{case}");
    }
}

#[test]
fn a_review_in_protobuf_is_answered() {
    let captured = captured();
    let (mut api, moment) = api(&captured);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let all = captured["objects"].as_array().unwrap().iter();
    let reviews: Vec<_> = all
        .filter(|pair| pair["json"]["kind"] == "SelfSubjectAccessReview")
        .collect();
    assert!(!reviews.is_empty());
    for pair in reviews {
        let (code, said) = ask(&mut api, &moment, "POST", path, &bytes(&pair["protobuf"]));
        let told = (&said["kind"], &said["spec"], &said["status"]["allowed"]);
        let expected = &pair["json"];
        let expected = (&expected["kind"], &expected["spec"], &expected["status"]["allowed"]);
        assert_eq!((code, told), (201, expected));
    }
}

/// The server panics over such a body and cuts the connection.
#[test]
fn a_custom_kind_is_not_read_from_protobuf() {
    let captured = captured();
    let (mut api, moment) = api(&captured);
    for definition in millwright_core::api::crds::all() {
        api.install(&serde_json::to_value(definition).unwrap(), &moment)
            .unwrap();
    }
    let path = "/apis/machine.sapcloud.io/v1alpha1/namespaces/protobuf/machines";
    let (code, said) = ask(&mut api, &moment, "POST", path, b"k8s\0\x12\x00");
    assert_eq!((code, said["reason"].as_str()), (415, Some("UnsupportedMediaType")));
    // Options are of no kind.
    let (code, _) = ask(&mut api, &moment, "DELETE", &format!("{path}/a"), b"k8s\0\x12\x00");
    assert_eq!(code, 404);
}

#[test]
fn no_body_makes_the_reader_panic() {
    for pair in captured()["objects"].as_array().unwrap() {
        let whole = bytes(&pair["protobuf"]);
        for place in (0..whole.len()).step_by(5) {
            // Whether it still makes sense or not is all the same here.
            protobuf::object(&whole[..place]).ok();
            let mut wrong = whole.clone();
            wrong[place] ^= 0xff;
            protobuf::object(&wrong).ok();
        }
    }
}
