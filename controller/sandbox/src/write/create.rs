//! Creating an object.

use std::sync::Arc;

use serde_json::Value;

use crate::answer::Answer;
use crate::builtin;
use crate::failure::{Cause, Failure};
use crate::kinds::Kind;
use crate::metadata;
use crate::moment::Moment;
use crate::object;
use crate::request::Request;
use crate::schema::RULES_UNCHECKED;
use crate::shown::Shape;
use crate::state::Api;
use crate::store::{Key, Tree};
use crate::write::part::Part;
use crate::write::{Options, admit, at_path, body, invalid, kind_complaints, owners, upkeep};

/// Answers POST to a collection.
pub fn answer(api: &mut Api, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
    let mut options = Options::read(request, "CreateOptions", moment)?;
    let mut object = body(api, kind, request, &mut options)?;
    at_path(kind, request, &mut object)?;
    let stored = insert(api, kind, object, &options, moment)?;
    Ok(Answer::with(201, Shape::of(&request.accept).of_shared(kind, &stored)))
}

/// Admits and stores a new object.
pub(crate) fn insert(
    api: &mut Api,
    kind: &Kind,
    mut object: Value,
    options: &Options,
    moment: &Moment,
) -> Result<Tree, Failure> {
    upkeep::tidy(&mut object);
    admit::settle(kind, &mut object, options);
    namespace_takes(api, kind, &object)?;
    if object::at(&object, "/metadata/resourceVersion").is_some() {
        return Err(Failure::Internal(
            "resourceVersion should not be set on objects to be created".to_owned(),
        ));
    }
    upkeep::born(kind, &mut object, moment);
    if kind.custom && kind.status {
        object.as_object_mut().and_then(|fields| fields.remove("status"));
    }
    let mut object = builtin::stored_as(kind, object);
    builtin::fill_defaults(kind, &mut object);
    object = owners::record(kind, None, object, Part::Whole, options);
    builtin::fill(kind, &mut object, moment);
    let mut causes = kind_complaints(kind, &object);
    if causes.is_empty() {
        causes = metadata::complaints(kind, &object);
        causes.extend(builtin::complaints(kind, &object));
        causes.extend(admit::complaints(kind, None, &object, Part::Whole));
    }
    if causes.iter().any(blocks_rules)
        && has_rules(kind)
        && !causes.iter().any(|cause| cause.message.contains(RULES_UNCHECKED))
    {
        causes.push(Cause::invalid("<nil>", "null", RULES_UNCHECKED));
    }
    if !causes.is_empty() {
        return Err(invalid(kind, &object, causes));
    }
    let key = Key::new(object::text(&object, "/metadata/namespace"), object::name(&object));
    if let Some(there) = api.store.get(&kind.place(), &key) {
        return Err(Failure::AlreadyExists {
            subject: kind.resource(),
            name: key.name,
            leaving: object::is_deleting(&there),
        });
    }
    if options.dry_run {
        return Ok(object.into());
    }
    api.put(kind, key, object)
}

/// Whether an object with this fault is too wrong for the rules of its kind.
fn blocks_rules(cause: &Cause) -> bool {
    [
        "FieldValueRequired",
        "FieldValueNotSupported",
        "FieldValueTooLong",
        "FieldValueTypeInvalid",
    ]
    .contains(&cause.reason.as_str())
}

fn has_rules(kind: &Kind) -> bool {
    kind.schema.as_deref().is_some_and(|schema| schema.has_rules)
}

/// [`insert`] where the caller named something that may have been there: a version says nothing of what is not.
pub(crate) fn insert_anew(
    api: &mut Api,
    kind: &Kind,
    mut object: Value,
    options: &Options,
    moment: &Moment,
) -> Result<Tree, Failure> {
    let version = object::metadata(&mut object).remove("resourceVersion");
    let stored = insert(api, kind, object, options, moment)?;
    let Some(version) = version.filter(|_| options.dry_run) else {
        return Ok(stored);
    };
    let mut shown = Value::clone(&stored);
    object::metadata(&mut shown).insert("resourceVersion".to_owned(), version);
    Ok(shown.into())
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
