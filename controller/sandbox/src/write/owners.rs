//! Who owns which fields after a write: what the room `managers` needs to know of it.

use serde_json::Value;

use crate::builtin;
use crate::failure::{Cause, Failure};
use crate::fields::FieldSet;
use crate::kinds::Kind;
use crate::list::options_invalid;
use crate::managers::{self, Write};
use crate::object;
use crate::patch::apply::{ApplyError, apply};
use crate::write::Options;
use crate::write::part::Part;

/// What a write through this part cannot change, and so cannot come to own.
fn reset(kind: &Kind, part: Part) -> FieldSet {
    match part {
        Part::Whole | Part::Scale if kind.status => FieldSet::of_names(&[&["status"]]),
        Part::Whole | Part::Scale => FieldSet::default(),
        Part::Status => FieldSet::of_names(&[&["spec"]]),
    }
}

fn subresource(part: Part) -> &'static str {
    match part {
        Part::Whole => "",
        Part::Status => "status",
        Part::Scale => "scale",
    }
}

/// The new object with its owners. Kinds of unknown shape, and writes by nobody, keep no owners.
pub(crate) fn record(kind: &Kind, live: Option<&Value>, new: Value, part: Part, options: &Options) -> Value {
    let Some(topology) = kind.topology.as_deref() else {
        return new;
    };
    if options.recorded || options.manager.is_empty() {
        return new;
    }
    let write = Write {
        topology,
        api_version: &kind.api_version(),
        kind: &kind.kind,
        subresource: subresource(part),
        manager: &options.manager,
        now: options.now,
        reset: &reset(kind, part),
    };
    if !builtin::is_new_event(kind) {
        return managers::updated(live, new, &write);
    }
    // Owners speak of the names of their own version.
    let live = live.map(|live| builtin::seen_as(kind, live));
    let owned = managers::updated(live.as_deref(), builtin::seen_as(kind, &new).into_owned(), &write);
    let mut new = new;
    let metadata = object::metadata(&mut new);
    match object::at(&owned, "/metadata/managedFields") {
        Some(owners) => metadata.insert("managedFields".to_owned(), owners.clone()),
        None => metadata.remove("managedFields"),
    };
    new
}

/// Whether an object has fields at its top that are neither every object's nor spec or status.
pub(crate) fn has_more_at_the_top(object: &Value) -> bool {
    let usual = |key: &String| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status");
    object.as_object().is_some_and(|fields| !fields.keys().all(usual))
}

/// [`record`] for the status of a custom kind: owners are counted by what the request states at the top beside metadata and spec,
/// although only the status of it is stored.
pub(crate) fn record_as_stated(
    kind: &Kind,
    live: &Value,
    mut new: Value,
    mut stated: Value,
    part: Part,
    options: &Options,
) -> Value {
    if options.recorded {
        return new;
    }
    if let (Some(fields), Some(kept)) = (stated.as_object_mut(), new.as_object()) {
        for key in ["metadata", "spec"] {
            match kept.get(key) {
                Some(value) => fields.insert(key.to_owned(), value.clone()),
                None => fields.remove(key),
            };
        }
    }
    let owned = record(kind, Some(live), stated, part, options);
    let metadata = object::metadata(&mut new);
    match object::at(&owned, "/metadata/managedFields") {
        Some(owners) => metadata.insert("managedFields".to_owned(), owners.clone()),
        None => metadata.remove("managedFields"),
    };
    new
}

/// What an apply makes of an object, with its owners.
pub(crate) fn applied(
    kind: &Kind,
    live: Option<&Value>,
    stated: &Value,
    force: bool,
    part: Part,
    options: &Options,
) -> Result<Value, Failure> {
    if !options.is_manager_named {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(options_invalid("PatchOptions", vec![cause]));
    }
    let Some(topology) = kind.topology.as_deref() else {
        return Err(Failure::PatchType);
    };
    let write = Write {
        topology,
        api_version: &kind.api_version(),
        kind: &kind.kind,
        subresource: subresource(part),
        manager: &options.manager,
        now: options.now,
        reset: &reset(kind, part),
    };
    apply(live, stated, force, &write).map_err(refusal)
}

fn refusal(error: ApplyError) -> Failure {
    let why = error.to_string();
    match error {
        ApplyError::OtherKind(_) | ApplyError::OwnersStated => Failure::BadRequest(why),
        ApplyError::Untyped { .. } => Failure::Internal(why),
        ApplyError::Conflict(conflicts) => {
            let cause = |conflict: crate::patch::apply::Conflict| Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: conflict.message(),
                field: conflict.field(),
            };
            Failure::ApplyConflict {
                why,
                causes: conflicts.into_iter().map(cause).collect(),
            }
        }
    }
}
