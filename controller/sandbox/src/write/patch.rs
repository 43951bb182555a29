//! PATCH: which kind of patch it is, and storing what it makes of the object.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::sync::Arc;

use serde_json::Value;

use crate::answer::Answer;
use crate::builtin;
use crate::failure::{Cause, Failure, Subject};
use crate::golang;
use crate::json;
use crate::kinds::{Kind, Kinds};
use crate::moment::Moment;
use crate::object;
use crate::patch as patches;
use crate::request::Request;
use crate::shown::Shape;
use crate::state::Api;
use crate::strange;
use crate::write::part::Part;
use crate::write::strictness::{Strange, unmarshalled};
use crate::write::update;
use crate::write::{Options, Validation, at_path, create, key_of, kind_unreadable, no_kind, other_kind, owners, typed};
use crate::yaml;

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// Answers PATCH.
pub fn answer(
    api: &mut Api,
    kind: &Arc<Kind>,
    request: &Request,
    part: Part,
    moment: &Moment,
) -> Result<Answer, Failure> {
    let format = format_of(kind, request)?;
    let mut options = Options::read(request, "PatchOptions", moment)?;
    let key = key_of(request);
    if format == Format::Apply {
        return answer_apply(api, kind, request, part, options, moment);
    }
    let old = api.find(kind, &key)?;
    let (patch, is_twofold) = read(format, &request.body)?;
    let mut new = applied(kind, format, &builtin::seen_as(kind, &old), &patch)?;
    if !new.is_object() {
        return Err(Failure::BadRequest("the patch leaves no object".to_owned()));
    }
    if kind.custom && object::text(&new, "/apiVersion") != kind.api_version() {
        return Err(other_version(kind, &new));
    }
    if let Some(why) = unreadable(&api.kinds, kind, format, &new) {
        return Err(misfit(format, &patch, &new, &why));
    }
    if !kind.custom {
        // A typed object cannot say that it is something else.
        new["kind"] = Value::String(kind.kind.clone());
        new["apiVersion"] = Value::String(kind.api_version());
    }
    // The refusal shows what is thrown away.
    let shown = (options.validation == Validation::Strict).then(|| new.clone());
    let strange = Strange::of_patched(kind, strange_in(format, &patch, is_twofold, &request.body), &mut new);
    options.is_pruned = true;
    strange.judge(api, options.validation, |why| {
        misfit(format, &patch, shown.as_ref().unwrap_or(&Value::Null), &why)
    })?;
    at_path(kind, request, &mut new)?;
    let stored = update::store(api, kind, &key, &old, new, part, &options)?;
    Ok(Answer::ok(Shape::of(&request.accept).of_shared(kind, &stored)))
}

/// Why the server cannot read a patched object. What a strategic patch leaves is read in another way.
fn unreadable(kinds: &Kinds, kind: &Kind, format: Format, patched: &Value) -> Option<String> {
    if format == Format::Strategic {
        return typed::unrestorable(kind, patched);
    }
    if kind.custom {
        return typed::complaint(kind, patched);
    }
    if let Some(why) = kind_unreadable(patched) {
        return Some(no_kind(&why));
    }
    let (version, said) = (object::text(patched, "/apiVersion"), object::text(patched, "/kind"));
    if version.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {version}"));
    }
    // It is read as what it says it is before it is found to be something else.
    let read_as = kinds.named(version, said).map_or(kind, AsRef::as_ref);
    typed::complaint(read_as, patched).or_else(|| other_kind(kinds, kind, version, said))
}

/// What is strange in a patch itself.
fn strange_in(format: Format, patch: &Value, is_twofold: bool, text: &[u8]) -> Vec<String> {
    let twice = if is_twofold { strange::twice(text) } else { Vec::new() };
    if format != Format::Json {
        return twice;
    }
    let mut all = twice;
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        let fields = operation.as_object().into_iter().flat_map(|fields| fields.keys());
        let unknown = fields.filter(|name| !["op", "path", "from", "value"].contains(&name.as_str()));
        all.extend(unknown.map(|name| format!("unknown field \"[{index}].{name}\"")));
    }
    all.iter().map(|one| format!("json patch {one}")).collect()
}

/// The refusal of a patch that leaves an object which cannot be read. Of strategic patches the patch is shown, of others the object.
fn misfit(format: Format, patch: &Value, patched: &Value, why: &str) -> Failure {
    let shown = match format {
        Format::Strategic => golang::text(patch),
        Format::Json | Format::Merge | Format::Apply => patched.to_string(),
    };
    let nobody = Subject {
        group: String::new(),
        what: String::new(),
    };
    Failure::Invalid {
        subject: nobody,
        name: String::new(),
        causes: vec![Cause::invalid("patch", golang::quoted(&shown), why)],
    }
}

/// The refusal of a patch that makes an object one of another version.
fn other_version(kind: &Kind, patched: &Value) -> Failure {
    let wanted = kind.api_version();
    let said = golang::quoted(object::text(patched, "/apiVersion"));
    Failure::Invalid {
        subject: Subject {
            group: String::new(),
            what: kind.kind.clone(),
        },
        name: object::name(patched).to_owned(),
        causes: vec![Cause::invalid("apiVersion", said, &format!("must be {wanted}"))],
    }
}

/// Answers a server-side apply, which creates what is not there.
fn answer_apply(
    api: &mut Api,
    kind: &Arc<Kind>,
    request: &Request,
    part: Part,
    mut options: Options,
    moment: &Moment,
) -> Result<Answer, Failure> {
    let bad = |why: &str| Failure::BadRequest(format!("error decoding YAML: {why}"));
    let (mut stated, twice) =
        read_applied(&request.body).map_err(|why| bad(&format!("error converting YAML to JSON: {why}")))?;
    if options.validation == Validation::Strict && !twice.is_empty() {
        let why = unmarshalled(&twice);
        return Err(Failure::BadRequest(format!(
            "error strict decoding YAML: error converting YAML to JSON: {why}"
        )));
    }
    if !stated.is_object() && !stated.is_null() {
        let found = golang::json_name(&stated);
        return Err(bad(&format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface \
             {{}}"
        )));
    }
    if kind.custom {
        typed::drop_no_times(&mut stated);
    } else if let Some(why) = typed::unconvertible(&stated) {
        return Err(unconvertible(kind, &stated, &why));
    }
    let key = key_of(request);
    let shape = Shape::of(&request.accept);
    let live = api.store.tree(&kind.place(), &key);
    let force = request.query.is_set("force");
    let mut new = owners::applied(kind, live.as_deref(), &stated, force, part, &options)?;
    if options.validation == Validation::Warn {
        api.warn(twice);
    }
    at_path(kind, request, &mut new)?;
    options.recorded = true;
    if let Some(live) = live {
        let stored = update::store(api, kind, &key, &live, new, part, &options)?;
        return Ok(Answer::ok(shape.of_shared(kind, &stored)));
    }
    if part == Part::Status {
        return Err(Failure::NotFound {
            subject: kind.resource(),
            name: key.name,
        });
    }
    let uid = object::uid(&new).to_owned();
    if !uid.is_empty() {
        return Err(Failure::Conflict {
            subject: kind.resource(),
            name: key.name,
            why: format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found"),
        });
    }
    let stored = create::insert_anew(api, kind, new, &options, moment)?;
    Ok(Answer::with(201, shape.of_shared(kind, &stored)))
}

/// The refusal of an apply that leaves what cannot be one of the server's own structures.
fn unconvertible(kind: &Kind, stated: &Value, why: &str) -> Failure {
    let (namespace, name) = (object::text(stated, "/metadata/namespace"), object::name(stated));
    let version = if kind.group.is_empty() {
        "/v1".to_owned()
    } else {
        kind.api_version()
    };
    let whole = format!("{version}, Kind={}", kind.kind);
    Failure::Internal(format!(
        "failed to convert new object ({namespace}/{name}; {whole}) to proper version: unable to convert unstructured object to \
         {whole}: {why}"
    ))
}

/// Which format a request is in, among those that its kind takes.
pub(crate) fn format_of(kind: &Kind, request: &Request) -> Result<Format, Failure> {
    match request.content_type.as_str() {
        "application/json-patch+json" => Ok(Format::Json),
        "application/merge-patch+json" => Ok(Format::Merge),
        "application/apply-patch+yaml" => Ok(Format::Apply),
        "application/strategic-merge-patch+json" if kind.topology.is_some() && !kind.custom => Ok(Format::Strategic),
        _ if kind.custom => Err(Failure::MediaType(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
        _ => Err(Failure::PatchType),
    }
}

/// What an apply states, and which of it is there twice. Programs write JSON, which is YAML too and read faster.
fn read_applied(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    match strange::read(body) {
        Ok((stated, false)) => Ok((stated, Vec::new())),
        Ok((_, true)) | Err(_) => yaml::read(body).map(|said| (said.value, said.twice)),
    }
}

/// Reads a patch, and whether it names a field twice.
pub(crate) fn read(format: Format, body: &[u8]) -> Result<(Value, bool), Failure> {
    let (patch, is_twofold) = json::read_noting(body).map_err(|why| match format {
        Format::Strategic => Failure::BadRequest(why),
        Format::Json | Format::Merge | Format::Apply => Failure::BadRequest(format!("error decoding patch: {why}")),
    })?;
    if format == Format::Merge && patch.is_null() {
        return Err(Failure::BadRequest("Invalid JSON Patch".to_owned()));
    }
    Ok((patch, is_twofold))
}

/// What a patch makes of an object.
pub(crate) fn applied(kind: &Kind, format: Format, object: &Value, patch: &Value) -> Result<Value, Failure> {
    let new = match format {
        Format::Json => patches::json::json(object, patch)?,
        Format::Merge => patches::merge::merge(object, patch)?,
        Format::Strategic => {
            let topology = kind.topology.as_deref().ok_or(Failure::PatchType)?;
            patches::strategic::strategic(object, patch, topology)?
        }
        Format::Apply => return Err(Failure::PatchType), // a Scale is not applied
    };
    Ok(new)
}
