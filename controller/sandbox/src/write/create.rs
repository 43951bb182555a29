//! Creating an object.

use std::sync::Arc;

use serde_json::Value;

use crate::api::{Answer, Api, Moment};
use crate::builtin;
use crate::failure::Failure;
use crate::kinds::Kind;
use crate::list::Shape;
use crate::object;
use crate::request::Request;
use crate::store::Key;
use crate::write::update::Part;
use crate::write::{Options, admit, at_path, body, invalid, kind_complaints, owners};

/// Answers POST to a collection.
pub fn answer(api: &mut Api, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
    let options = Options::read(request, "CreateOptions", moment)?;
    let mut object = body(kind, request)?;
    at_path(kind, request, &mut object)?;
    let stored = insert(api, kind, object, &options, moment)?;
    Ok(Answer::with(201, Shape::of(&request.accept).of_object(kind, &stored)))
}

/// Admits and stores a new object.
pub(crate) fn insert(
    api: &mut Api,
    kind: &Kind,
    mut object: Value,
    options: &Options,
    moment: &Moment,
) -> Result<Arc<Value>, Failure> {
    object::tidy(&mut object);
    admit::settle(kind, &mut object, options)?;
    namespace_takes(api, kind, &object)?;
    if object.pointer("/metadata/resourceVersion").is_some() {
        return Err(Failure::Internal(
            "resourceVersion should not be set on objects to be created".to_owned(),
        ));
    }
    object::born(kind, &mut object, moment);
    if kind.custom && kind.status {
        object.as_object_mut().and_then(|fields| fields.remove("status"));
    }
    let mut object = builtin::stored_as(kind, &object);
    builtin::fill_defaults(kind, &mut object);
    object = owners::record(kind, None, object, Part::Whole, options);
    builtin::fill(kind, &mut object, moment);
    let mut causes = kind_complaints(kind, &object);
    if causes.is_empty() {
        causes = object::complaints(kind, &object);
        causes.extend(admit::complaints(kind, None, &object, Part::Whole));
    }
    if !causes.is_empty() {
        return Err(invalid(kind, &object, causes));
    }
    let key = Key::new(object::text(&object, "/metadata/namespace"), object::name(&object));
    if api.store.get(&kind.place(), &key).is_some() {
        return Err(Failure::AlreadyExists {
            subject: kind.resource(),
            name: key.name,
        });
    }
    if options.dry_run {
        return Ok(Arc::new(object));
    }
    Ok(api.put(kind, key, object))
}

/// A namespace must be there, and may not be on its way out.
fn namespace_takes(api: &Api, kind: &Kind, object: &Value) -> Result<(), Failure> {
    if !kind.namespaced {
        return Ok(());
    }
    let namespace = object::text(object, "/metadata/namespace");
    let namespaces = api
        .kinds
        .named("v1", "Namespace")
        .expect("the table of built-in kinds has it")
        .clone();
    let found = api.find(&namespaces, &Key::new("", namespace))?;
    if object::is_deleting(&found) {
        return Err(Failure::Forbidden {
            subject: kind.resource(),
            name: object::name(object).to_owned(),
            why: format!("unable to create new content in namespace {namespace} because it is being terminated"),
        });
    }
    Ok(())
}
