//! Replacing an object, whole or its status: the common end of PUT and PATCH.

use std::sync::Arc;

use serde_json::Value;

use crate::answer::Answer;
use crate::builtin;
use crate::failure::{Cause, Failure};
use crate::kinds::Kind;
use crate::managers::same_but_for_times;
use crate::metadata;
use crate::moment::Moment;
use crate::object;
use crate::request::Request;
use crate::shown::Shape;
use crate::state::Api;
use crate::store::{Key, Tree};
use crate::write::part::Part;
use crate::write::{Options, admit, at_path, body, create, invalid, key_of, kind_complaints, owners, upkeep};

/// Answers PUT.
pub fn answer(
    api: &mut Api,
    kind: &Arc<Kind>,
    request: &Request,
    part: Part,
    moment: &Moment,
) -> Result<Answer, Failure> {
    let mut options = Options::read(request, "UpdateOptions", moment)?;
    let mut object = body(api, kind, request, &mut options)?;
    at_path(kind, request, &mut object)?;
    upkeep::tidy(&mut object);
    let key = key_of(request);
    let shape = Shape::of(&request.accept);
    let Some(old) = api.store.tree(&kind.place(), &key) else {
        if !kind.put_creates || part == Part::Status {
            return Err(Failure::NotFound {
                subject: kind.resource(),
                name: key.name,
            });
        }
        if !object::uid(&object).is_empty() {
            return Err(other_uid(kind, &key, object::uid(&object), "", &options));
        }
        let stored = create::insert_anew(api, kind, object, &options, moment)?;
        return Ok(Answer::with(201, shape.of_shared(kind, &stored)));
    };
    same_uid(kind, &key, &old, &object, &options)?;
    let stored = store(api, kind, &key, &old, object, part, &options)?;
    Ok(Answer::ok(shape.of_shared(kind, &stored)))
}

/// A PUT that names a uid means that object and no other.
fn same_uid(kind: &Kind, key: &Key, old: &Value, new: &Value, options: &Options) -> Result<(), Failure> {
    let (said, there) = (object::uid(new), object::uid(old));
    if said.is_empty() || said == there {
        return Ok(());
    }
    Err(other_uid(kind, key, said, there, options))
}

fn other_uid(kind: &Kind, key: &Key, said: &str, there: &str, options: &Options) -> Failure {
    let path = path_in_storage(kind, key);
    // A dry run ends before the path is complete.
    let path = if options.dry_run {
        path.trim_start_matches("/registry")
    } else {
        &path
    };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
         precondition: {said}, UID in object meta: {there}"
    );
    Failure::Conflict {
        subject: kind.resource(),
        name: key.name.clone(),
        why,
    }
}

/// Where the server keeps an object, as its errors tell it.
pub(crate) fn path_in_storage(kind: &Kind, key: &Key) -> String {
    let group = if kind.custom {
        format!("{}/", kind.group)
    } else {
        String::new()
    };
    let namespace = if kind.namespaced {
        format!("{}/", key.namespace)
    } else {
        String::new()
    };
    // Nodes are still kept under the name that they had at first.
    let plural = if kind.is("Node") { "minions" } else { &kind.plural };
    format!("/registry/{group}{plural}/{namespace}{}", key.name)
}

/// The refusal of a write that was thought out on an older version.
pub(crate) fn stale(kind: &Kind, name: &str) -> Failure {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    Failure::Conflict {
        subject: kind.resource(),
        name: name.to_owned(),
        why: why.to_owned(),
    }
}

/// Checks and stores a new state of an object. What did not change is not written; what was only waiting for its last
/// finalizer goes.
pub(crate) fn store(
    api: &mut Api,
    kind: &Kind,
    key: &Key,
    old: &Tree,
    mut new: Value,
    part: Part,
    options: &Options,
) -> Result<Tree, Failure> {
    // Only an apply takes out what is then null, and only custom objects are stored in the form in which it is seen.
    let leaves_null = options.recorded && kind.custom && upkeep::leaves_null(&new);
    upkeep::tidy(&mut new);
    admit::settle(kind, &mut new, options);
    same_version(kind, key, old, &new)?;
    let owners = object::at(&new, "/metadata/managedFields")
        .filter(|_| options.recorded)
        .cloned();
    let is_stated = kind.custom && part == Part::Status && [&new, &**old].into_iter().any(owners::has_more_at_the_top);
    let stated = is_stated.then(|| new.clone());
    let mut new = confined(kind, old, builtin::stored_as(kind, new), part);
    if let Some(owners) = owners {
        object::metadata(&mut new).insert("managedFields".to_owned(), owners);
    }
    upkeep::succeed(kind, old, &mut new);
    builtin::refill(kind, old, &mut new);
    let mut new = match stated {
        Some(stated) => owners::record_as_stated(kind, old, new, stated, part, options),
        None => owners::record(kind, Some(old), new, part, options),
    };
    let mut causes = kind_complaints(kind, &new);
    if causes.is_empty() {
        causes = metadata::update_complaints(kind, old, &new, part);
        causes.extend(builtin::complaints(kind, &new));
        causes.extend(admit::complaints(kind, Some(old), &new, part));
        causes.extend(builtin::update_complaints(kind, old, &new));
    }
    if !causes.is_empty() {
        return Err(invalid(kind, &new, causes));
    }
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(
            "resourceVersion".to_owned(),
            Value::String(object::version(old).to_string()),
        );
    }
    let is_same = same_but_for_times(old, &new);
    if is_same && !api.nulls.contains(&object::version(old)) {
        return Ok(old.clone());
    }
    if is_same {
        new = Value::clone(old); // stored anew without its nulls
    }
    if options.dry_run {
        return Ok(new.into());
    }
    let waits = object::is_deleting(&new) && kind_holds(kind, &new);
    if object::is_deleting(&new) && !waits {
        // The write itself is never seen: watches get the state before it, as gone.
        api.remove(kind, key);
        return Ok(new.into());
    }
    let stored = api.put(kind, key.clone(), new)?;
    api.nulls.remove(&object::version(old));
    if leaves_null {
        api.nulls.insert(object::version(&stored));
    }
    Ok(stored)
}

/// Whether something still keeps an object that is to go: finalizers, time to end in, or a namespace's content.
fn kind_holds(kind: &Kind, object: &Value) -> bool {
    let grace = object::at(object, "/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let content = kind.is("Namespace") && object::at(object, "/spec/finalizers/0").is_some();
    grace > 0 || content || !object::finalizers(object).is_empty()
}

fn same_version(kind: &Kind, key: &Key, old: &Value, new: &Value) -> Result<(), Failure> {
    let said = object::text(new, "/metadata/resourceVersion");
    if said.is_empty() || said == "0" {
        if !kind.put_needs_version {
            return Ok(());
        }
        let cause = Cause::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(Failure::Invalid {
            subject: kind.resource(),
            name: key.name.clone(),
            causes: vec![cause],
        });
    }
    let said: u64 = said
        .parse()
        .map_err(|_| Failure::Internal(format!("strconv.ParseUint: parsing \"{said}\": invalid syntax")))?;
    if said == object::version(old) {
        Ok(())
    } else {
        Err(stale(kind, &key.name))
    }
}

/// Takes back what this kind of write may not change.
fn confined(kind: &Kind, old: &Value, mut new: Value, part: Part) -> Value {
    let before = |key| old.get(key).cloned();
    match part {
        Part::Whole | Part::Scale if kind.status => with(new, "status", before("status")),
        Part::Whole | Part::Scale => new,
        Part::Status if kind.custom || kind.is("VolumeAttachment") => {
            let uid = object::at(&new, "/metadata/uid").cloned();
            let mut stated = |key| new.as_object_mut().and_then(|fields| fields.remove(key));
            let (status, said) = (stated("status"), stated("kind"));
            let mut out = with(again(old, new), "status", status);
            if kind.custom {
                return with(out, "kind", said);
            }
            // Another uid is not taken back, and refused later.
            if let Some(uid) = uid {
                object::metadata(&mut out).insert("uid".to_owned(), uid);
            }
            out
        }
        Part::Status => with(new, "spec", before("spec")),
    }
}

/// The old object, made of what the new one has like it: most of it, and comparing is cheaper than copying.
fn again(old: &Value, new: Value) -> Value {
    let (Value::Object(held), Value::Object(mut stated)) = (old, new) else {
        return old.clone();
    };
    let each = held.iter().map(|(key, was)| {
        let same = stated.remove(key).filter(|is| is == was);
        (key.clone(), same.unwrap_or_else(|| was.clone()))
    });
    Value::Object(each.collect())
}

fn with(mut object: Value, key: &str, value: Option<Value>) -> Value {
    if let Some(fields) = object.as_object_mut() {
        match value {
            Some(value) => fields.insert(key.to_owned(), value),
            None => fields.remove(key),
        };
    }
    object
}
