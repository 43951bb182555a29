//! What kubectl asks for besides objects, answered as by a real kube-apiserver: discovery, tables, schemas.
//!
//! `tests/face/capture.py` wrote `answers.json`. Of the server's answers only the kinds and subresources that are served here
//! count; ids, versions and times are hidden on both sides, and so is what it says to describe its own fields.

use jiff::Timestamp;
use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::request::{Http, Request};
use serde_json::{Value, json};

struct Asker {
    api: Api,
    asked: u32,
}

impl Asker {
    fn new() -> Self {
        let now: Timestamp = "2026-11-21T16:37:26Z".parse().unwrap();
        let mut asker = Self {
            api: Api::new(now),
            asked: 0,
        };
        for definition in millwright_core::api::crds::all() {
            let mut definition = serde_json::to_value(definition).unwrap();
            definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
            definition["kind"] = json!("CustomResourceDefinition");
            asker.create(&definition);
        }
        let objects: Vec<Value> = serde_json::from_str(include_str!("face/objects.json")).unwrap();
        for mut object in objects {
            let kind = object["kind"].as_str().unwrap();
            let apart = [
                "Node",
                "PersistentVolume",
                "VolumeAttachment",
                "ClusterRole",
                "ClusterRoleBinding",
            ];
            if !apart.contains(&kind) {
                object["metadata"]["namespace"] = json!("default");
            }
            asker.create(&object);
        }
        asker
    }

    fn moment(&mut self) -> Moment {
        self.asked += 1;
        Moment {
            now: "2026-11-21T16:37:27Z".parse().unwrap(),
            uid: format!("00000000-0000-0000-0002-{:012}", self.asked),
            suffix: format!("{:05}", self.asked),
        }
    }

    fn create(&mut self, object: &Value) {
        let moment = self.moment();
        self.api.install(object, &moment).unwrap();
    }

    /// Code, media type and body.
    fn ask(&mut self, path: &str, accept: &str) -> (u64, &'static str, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let http = Http {
            method: "GET",
            path,
            query,
            accept,
            ..Http::default()
        };
        let moment = self.moment();
        let answer = match Request::parse(&http) {
            Ok(request) => self.api.handle(&request, &moment),
            Err(failure) => failure.into(),
        };
        let kind = answer.content_type();
        match answer {
            Answer::Object { code, body, .. } => (code.into(), kind, body),
            Answer::Text { code, body } => (code.into(), kind, json!(body)),
            Answer::Watch(started) => (200, kind, json!(started.first)),
        }
    }
}

/// Texts that no two servers share.
const HIDDEN: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "continue",
    "storageVersionHash",
    "serverAddressByClientCIDRs",
    "managedFields",
    "annotations",
];

/// What is compared of an answer.
fn compared(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !HIDDEN.contains(&key.as_str()))
            .filter(|(key, value)| *key != "description" || !value.is_string())
            .map(|(key, inner)| (key.clone(), compared(inner)))
            .collect(),
        Value::Array(items) => items.iter().map(compared).collect(),
        Value::String(text) => {
            let age = regex::Regex::new("^([0-9]+[smhdy])+$|^20[0-9-]+T[0-9:]+Z$").unwrap();
            json!(age.replace(text, "*age*"))
        }
        other => other.clone(),
    }
}

/// The answers of the server whose path and accepted types fit.
fn answers(wanted: impl Fn(&str, &str) -> bool) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(include_str!("face/answers.json")).unwrap();
    let text = |answer: &Value, key: &str| answer[key].as_str().unwrap().to_owned();
    all.into_iter()
        .filter(|answer| wanted(&text(answer, "path"), &text(answer, "accept")))
        .collect()
}

fn check(answers: Vec<Value>, served: impl Fn(Value, &Value) -> Value) {
    assert!(!answers.is_empty(), "nothing was captured");
    let mut asker = Asker::new();
    let mut wrong = Vec::new();
    for answer in answers {
        let (path, accept) = (answer["path"].as_str().unwrap(), answer["accept"].as_str().unwrap());
        let (code, kind, body) = asker.ask(path, accept);
        let got = json!({ "code": code, "type": kind, "body": compared(&body) });
        let expected = json!({
            "code": answer["code"], "type": answer["type"], "body": compared(&served(answer["body"].clone(), &body)),
        });
        if got != expected {
            wrong.push(format!("{path} {accept}\n  server {expected}\n  value  {got}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} answers differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Takes out of a list what the value does not serve, named by a key.
fn keep(list: &mut Value, known: &Value, name: &str, inner: impl Fn(&mut Value, &Value)) {
    let Some(items) = list.as_array_mut() else { return };
    let none = Vec::new();
    let known = known.as_array().unwrap_or(&none);
    items.retain_mut(|item| {
        let twin = known.iter().find(|other| other.pointer(name) == item.pointer(name));
        if let Some(twin) = twin {
            inner(item, twin);
        }
        twin.is_some()
    });
}

/// What the server would say if it served no more than the value.
fn served(mut server: Value, value: &Value) -> Value {
    keep(&mut server["groups"], &value["groups"], "/name", |_, _| {});
    keep(&mut server["resources"], &value["resources"], "/name", |_, _| {});
    keep(
        &mut server["items"],
        &value["items"],
        "/metadata/name",
        |group, twin| {
            let resources = &twin["versions"][0]["resources"];
            keep(
                &mut group["versions"][0]["resources"],
                resources,
                "/resource",
                |resource, twin| {
                    keep(
                        &mut resource["subresources"],
                        &twin["subresources"],
                        "/subresource",
                        |_, _| {},
                    );
                    if resource["subresources"] == json!([]) || resource["subresources"].is_null() {
                        resource.as_object_mut().unwrap().remove("subresources");
                    }
                },
            );
        },
    );
    for key in ["groups", "resources", "items"] {
        if server[key].is_null() && server.is_object() {
            server.as_object_mut().unwrap().remove(key);
        }
    }
    server
}

#[test]
fn discovery_is_answered_as_by_the_server() {
    check(
        answers(|path, accept| !accept.contains("as=Table") && !path.starts_with("/openapi")),
        served,
    );
}

#[test]
fn tables_are_answered_as_by_the_server() {
    check(answers(|_, accept| accept.contains("as=Table")), |server, _| server);
}

#[test]
fn the_columns_of_a_definition_keep_their_descriptions() {
    let mut asker = Asker::new();
    let path = "/apis/machine.sapcloud.io/v1alpha1/machines";
    let (_, _, table) = asker.ask(path, "application/json;as=Table;v=v1;g=meta.k8s.io");
    let of = |name: &str| {
        let heads = table["columnDefinitions"].as_array().unwrap();
        heads.iter().find(|head| head["name"] == name).unwrap()["description"].clone()
    };
    assert_eq!(of("ProviderID"), "The VM's id at its provider.");
}

#[test]
fn a_watching_reader_of_tables_gets_rows_for_later_changes() {
    let mut asker = Asker::new();
    let http = Http {
        method: "GET",
        path: "/api/v1/configmaps",
        query: "watch=1",
        accept: "application/json;as=Table;v=v1;g=meta.k8s.io",
        ..Http::default()
    };
    let moment = asker.moment();
    let Answer::Watch(started) = asker.api.handle(&Request::parse(&http).unwrap(), &moment) else {
        panic!("a watch begins");
    };
    asker.create(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "late", "namespace": "default" }, "data": { "a": "b" },
    }));
    let later = asker.api.events(&started.watch, started.at).events;
    assert_eq!(later.len(), 1);
    assert_eq!(later[0]["type"], "ADDED");
    assert_eq!(later[0]["object"]["rows"][0]["cells"], json!(["late", 1, "0s"]));
    assert_eq!(
        later[0]["object"]["columnDefinitions"],
        Value::Null,
        "they were told with the first event"
    );
}
