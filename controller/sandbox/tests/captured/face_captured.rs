//! What kubectl asks for besides objects, answered as by a real kube-apiserver: discovery, tables, schemas.
//!
//! `tests/face/capture.py` wrote `answers.json`. Of the server's answers only the kinds and subresources that are served here
//! count; ids, versions and times are hidden on both sides, and so is what it says to describe its own fields.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::sync::LazyLock;

use jiff::Timestamp;
use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::request::{Http, Request};
use millwright_sandbox::watch::Event;
use regex::Regex;
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
            let definition = serde_json::to_value(definition).unwrap();
            asker.create(&definition);
        }
        let objects: Vec<Value> = serde_json::from_str(include_str!("../face/objects.json")).unwrap();
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
            Answer::Object { code, body, .. } => (code.into(), kind, Value::clone(&body)),
            Answer::List(listing) => (200, kind, listing.to_value()),
            Answer::Text { code, body } => (code.into(), kind, json!(body)),
            Answer::Watch(started) => (200, kind, started.first.iter().map(Event::to_value).collect()),
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

/// An age in a table, or the time that it is counted from.
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new("^([0-9]+[smhdy])+$|^20[0-9-]+T[0-9:]+Z$").unwrap());

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
        Value::String(text) => json!(AGE.replace(text, "*age*")),
        other => other.clone(),
    }
}

/// The answers of the server whose path and accepted types fit.
fn answers(wanted: impl Fn(&str, &str) -> bool) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../face/answers.json")).unwrap();
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
    if !server.is_object() {
        return server;
    }
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
        if server[key].is_null() {
            server.as_object_mut().unwrap().remove(key);
        }
    }
    server
}

fn is_table(accept: &str) -> bool {
    accept.contains("as=Table")
}

#[test]
fn discovery_and_forms_that_are_not_served_are_answered_as_by_the_server() {
    check(
        answers(|path, accept| !is_table(accept) && !path.starts_with("/openapi")),
        served,
    );
}

#[test]
fn tables_are_answered_as_by_the_server() {
    check(answers(|_, accept| is_table(accept)), |server, _| server);
}

/// What every group has is told of no group here.
fn without_shared(mut document: Value) -> Value {
    for name in ["DeleteOptions", "Status"] {
        let path = format!("/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.{name}");
        let schema = document.pointer_mut(&path).and_then(Value::as_object_mut).unwrap();
        schema.remove("x-kubernetes-group-version-kind");
    }
    document
}

#[test]
fn the_schemas_of_custom_kinds_are_told_as_by_the_server() {
    let path = "/openapi/v3/apis/machine.sapcloud.io/v1alpha1";
    let answers = answers(|asked, _| asked == path);
    let expected = without_shared(compared(&answers[0]["body"]));
    let (code, kind, body) = Asker::new().ask(path, "application/json");
    assert_eq!((code, kind), (200, "application/json"));
    let got = without_shared(compared(&body));
    let mut wrong = Vec::new();
    differences("", &expected, &got, &mut wrong);
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every place where two values differ.
fn differences(at: &str, expected: &Value, got: &Value, out: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let of = |fields: &serde_json::Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
                differences(&format!("{at}/{key}"), &of(one), &of(other), out);
            }
        }
        _ if expected == got => {}
        _ => out.push(format!("{at}\n  server {expected}\n  value  {got}")),
    }
}

/// A content as `tests/face/openapi.py` writes it.
fn named(content: &Value) -> String {
    let none = serde_json::Map::new();
    let content = content.as_object().unwrap_or(&none);
    let types: Vec<String> = content
        .keys()
        .map(|name| name.replace("application/", "").replace("vnd.kubernetes.", ""))
        .collect();
    let schemas: std::collections::BTreeSet<&str> = content
        .values()
        .map(|body| body["schema"]["$ref"].as_str().unwrap().rsplit('.').next().unwrap())
        .collect();
    let schemas: Vec<&str> = schemas.into_iter().collect();
    format!("{} {}", types.join(","), schemas.join(" ")).trim().to_owned()
}

/// An operation as `tests/face/openapi.py` writes it.
fn line(method: &str, path: &str, item: &Value) -> String {
    let said = &item[method];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names = |list: &Value| {
        let all = list.as_array().into_iter().flatten();
        all.map(|one| text(&one["name"])).collect::<Vec<_>>().join(",")
    };
    let kind = &said["x-kubernetes-group-version-kind"];
    let gives: Vec<String> = said["responses"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(code, answer)| format!("{code} {}", named(&answer["content"])).trim().to_owned())
        .collect();
    [
        format!("{method} {path}"),
        text(&said["operationId"]),
        text(&said["x-kubernetes-action"]),
        ["group", "version", "kind"].map(|part| text(&kind[part])).join("/"),
        text(&said["description"]),
        text(&said["tags"][0]),
        format!("path: {}", names(&item["parameters"])),
        format!("query: {}", names(&said["parameters"])),
        format!("takes {}", named(&said["requestBody"]["content"])),
        format!("gives {}", gives.join("; ")),
    ]
    .join(" | ")
}

#[test]
fn the_operations_of_built_in_kinds_are_told_as_by_the_server() {
    let mut asker = Asker::new();
    let (_, kind, index) = asker.ask("/openapi/v3", "application/json");
    assert_eq!(kind, "text/plain; charset=utf-8", "as the server calls it");
    let index: Value = serde_json::from_str(index.as_str().unwrap()).unwrap();
    let mut told = Vec::new();
    for url in index["paths"].as_object().unwrap().values() {
        let url = url["serverRelativeURL"].as_str().unwrap();
        if url.contains("sapcloud") {
            continue;
        }
        let (code, _, document) = asker.ask(url, "application/json");
        assert_eq!(code, 200, "{url}");
        for (path, item) in document["paths"].as_object().unwrap() {
            let methods = item
                .as_object()
                .unwrap()
                .keys()
                .filter(|method| *method != "parameters");
            told.extend(methods.map(|method| line(method, path, item)));
        }
    }
    told.sort();
    let expected: Vec<&str> = include_str!("../face/operations.txt").lines().collect();
    for line in &expected {
        assert!(
            told.iter().any(|other| other == line),
            "the server tells also:\n{line}\nof {told:#?}"
        );
    }
    assert_eq!(told, expected);
}

#[test]
fn a_document_that_is_not_there_is_an_empty_answer() {
    let mut asker = Asker::new();
    for path in ["/openapi/v3/apis/nothing/v1", "/openapi/v3/api/v9", "/openapi/v3/x"] {
        assert_eq!(asker.ask(path, "").0, 404, "{path}");
        assert_eq!(asker.ask(path, "").2, "", "{path}");
    }
    assert_eq!(asker.ask("/openapi/v9", "").2, "404 page not found\n");
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
    let later: Value = later.iter().map(Event::to_value).collect();
    assert_eq!(later.as_array().map(Vec::len), Some(1));
    assert_eq!(later[0]["type"], "ADDED");
    assert_eq!(later[0]["object"]["rows"][0]["cells"], json!(["late", 1, "0s"]));
    assert_eq!(
        later[0]["object"]["columnDefinitions"],
        Value::Null,
        "they were told with the first event"
    );
}
