//! The scale subresource of custom kinds: a small object that stands for two numbers of a large one.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::sync::Arc;

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::json;
use crate::kinds::{Kind, Scale};
use crate::moment::Moment;
use crate::object;
use crate::request::{Request, Verb};
use crate::shown::Shape;
use crate::state::Api;
use crate::write::part::Part;
use crate::write::update;
use crate::write::{Options, at_path, key_of, patch};

/// Answers every verb of a scale.
pub fn answer(api: &mut Api, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
    let scale = kind.scale.as_ref().ok_or(Failure::NoResource)?;
    let key = key_of(request);
    let (mut said, options) = match request.verb {
        Verb::Get => {
            let object = api.find(kind, &key)?;
            readable(scale, &object)?;
            let scale = shown(scale, &object);
            return Ok(Answer::ok(match Shape::of(&request.accept) {
                Shape::Whole => scale,
                shape @ Shape::Metadata => shape.of_object(kind, &scale),
            }));
        }
        Verb::Update => {
            let options = Options::read(request, "UpdateOptions", moment)?;
            (read(request)?, options)
        }
        Verb::Patch => {
            let format = patch::format_of(kind, request)?;
            let options = Options::read(request, "PatchOptions", moment)?;
            let old = api.find(kind, &key)?;
            let (said, _) = patch::read(format, &request.body)?;
            (patch::applied(kind, format, &shown(scale, &old), &said)?, options)
        }
        Verb::Other => {
            return Err(Failure::NotSupported {
                verb: "",
                subject: kind.resource(),
            });
        }
        Verb::List | Verb::Watch | Verb::Create | Verb::Delete | Verb::DeleteCollection => {
            return Err(Failure::NoMethod);
        }
    };
    at_path(kind, request, &mut said)?;
    let old = api.find(kind, &key)?;
    let replicas = said.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    let version = object::text(&said, "/metadata/resourceVersion");
    if !version.is_empty() && version != object::version(&old).to_string() {
        return Err(update::stale(kind, &key.name));
    }
    let mut new = Value::clone(&old);
    write(&mut new, &scale.spec_replicas, replicas);
    if !version.is_empty() {
        object::metadata(&mut new).insert("resourceVersion".to_owned(), json!(version));
    }
    let stored = update::store(api, kind, &key, &old, new, Part::Scale, &options)?;
    Ok(Answer::ok(shown(scale, &stored)))
}

fn read(request: &Request) -> Result<Value, Failure> {
    json::read(&request.body).map_err(Failure::BadRequest)
}

/// An object without replicas has no scale to read; one to write it has.
fn readable(scale: &Scale, object: &Value) -> Result<(), Failure> {
    let has_replicas = object
        .pointer(&format!("/{}", scale.spec_replicas.join("/")))
        .is_some_and(Value::is_i64);
    if has_replicas {
        return Ok(());
    }
    let path = scale.spec_replicas.join(".");
    Err(Failure::Unshowable(format!(
        "the spec replicas field \".{path}\" does not exist"
    )))
}

/// The `Scale` that stands for an object.
fn shown(scale: &Scale, object: &Value) -> Value {
    let at = |path: &[String]| object.pointer(&format!("/{}", path.join("/")));
    let number = |path: &[String]| at(path).and_then(Value::as_i64);
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.pointer(&format!("/metadata/{key}")) {
            metadata[key] = value.clone();
        }
    }
    let mut status = json!({ "replicas": number(&scale.status_replicas).unwrap_or(0) });
    if let Some(selector) = scale.selector.as_deref().and_then(at) {
        status["selector"] = selector.clone();
    }
    // None and zero look alike.
    let replicas = number(&scale.spec_replicas).filter(|replicas| *replicas != 0);
    let spec = replicas.map_or_else(|| json!({}), |replicas| json!({ "replicas": replicas }));
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

fn write(object: &mut Value, path: &[String], replicas: i64) {
    let mut at = object;
    for key in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key.as_str()];
    }
    *at = json!(replicas);
}
