//! Writing: what all writes have in common.
//!
//! Decides how a body becomes an object of its kind, what the options of a write mean, and what an object must satisfy before
//! it is stored. Each verb has its own room below.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

pub(crate) mod admit;
pub mod create;
pub mod delete;
pub mod evict;
pub(crate) mod owners;
pub mod part;
pub mod patch;
pub mod scale;
pub(crate) mod size;
pub(crate) mod strictness;
mod times;
pub(crate) mod typed;
pub mod update;
pub(crate) mod upkeep;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::failure::{Cause, Failure};
use crate::golang;
use crate::json;
use crate::kinds::{Kind, Kinds};
use crate::list::options_invalid;
use crate::moment::Moment;
use crate::object;
use crate::protobuf::{self, Envelope};
use crate::request::{Request, Verb};
use crate::state::Api;
use crate::store::Key;
use crate::write::strictness::{Strange, Twice};
use crate::yaml;

/// What becomes of fields that a body names twice, or that nobody knows (`fieldValidation`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Validation {
    #[default]
    Ignore,
    /// Which is what a caller wants who says nothing.
    Warn,
    Strict,
}

/// What a caller says about a write, beside the object.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Answer as if it were done, and store nothing.
    pub dry_run: bool,
    /// What becomes of fields that would be thrown away.
    pub(crate) validation: Validation,
    /// Whether they have been thrown away.
    pub(crate) is_pruned: bool,
    /// Who writes; empty for installers, who own nothing.
    pub manager: String,
    /// Whether the caller gave that name, and it was not taken from the user agent.
    pub is_manager_named: bool,
    pub now: Timestamp,
    /// Whether the object carries its owners already.
    pub recorded: bool,
}

impl Options {
    /// Reads the query; `called` is the name under which the server checks it.
    pub fn read(request: &Request, called: &str, moment: &Moment) -> Result<Self, Failure> {
        let said: Vec<&str> = request.query.all("dryRun").collect();
        let validation = request.query.first("fieldValidation");
        let named = request.query.first("fieldManager");
        let mut causes = Vec::new();
        let is_apply = request.content_type == "application/apply-patch+yaml";
        if is_apply && named.is_empty() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
        if called == "PatchOptions" && !is_apply && request.query.is_set("force") {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        causes.extend(manager_complaint(named));
        causes.extend(dry_run_complaint(&said));
        if !["", "Ignore", "Strict", "Warn"].contains(&validation) {
            let known = "\"\", \"Ignore\", \"Strict\", \"Warn\"";
            causes.push(Cause::unsupported(
                "fieldValidation",
                &format!("\"{validation}\""),
                known,
            ));
        }
        if !causes.is_empty() {
            return Err(options_invalid(called, causes));
        }
        let agent = request.agent.split('/').next().unwrap_or_default();
        Ok(Self {
            validation: match validation {
                "Strict" => Validation::Strict,
                "Ignore" => Validation::Ignore,
                _ => Validation::Warn,
            },
            dry_run: !said.is_empty(),
            manager: if named.is_empty() { agent } else { named }.to_owned(),
            is_manager_named: !named.is_empty(),
            now: moment.now,
            ..Self::default()
        })
    }
}

/// What is wrong with the name of a writer.
fn manager_complaint(name: &str) -> Option<Cause> {
    const LONGEST: usize = 128;
    if name.len() > LONGEST {
        return Some(Cause::too_long("fieldManager", LONGEST));
    }
    let (at, letter) = name.char_indices().find(|(_, letter)| letter.is_control())?;
    let why = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
    Some(Cause::invalid("fieldManager", golang::quoted(name), &why))
}

/// What is wrong with a wish for a dry run.
fn dry_run_complaint(said: &[&str]) -> Option<Cause> {
    let shown = json!(said).to_string();
    let is_known = said.iter().all(|word| *word == "All");
    (!is_known).then(|| Cause::unsupported("dryRun", &shown, "\"All\""))
}

/// The key that a request's path names.
pub(crate) fn key_of(request: &Request) -> Key {
    Key::new(&request.target.namespace, &request.target.name)
}

/// Reads the body as an object of its kind, without what nobody knows.
pub(crate) fn body(api: &mut Api, kind: &Kind, request: &Request, options: &mut Options) -> Result<Value, Failure> {
    let (mut object, twice) = stated(&api.kinds, kind, request)?;
    let strange = Strange::of_body(kind, &request.body, &mut object, twice);
    options.is_pruned = true;
    strange.judge(api, options.validation, |why| {
        unhandled(&kind.kind, &kind.version, kind, &why)
    })?;
    Ok(object)
}

/// The body as an object of its kind, and what it names twice.
pub(crate) fn stated(kinds: &Kinds, kind: &Kind, request: &Request) -> Result<(Value, Twice), Failure> {
    if request.content_type == protobuf::MEDIA && protobuf::speaks_of(kind) {
        return Ok((body_in_protobuf(kinds, kind, request)?, Twice::No));
    }
    let unrecognized = |why: String| unrecognized(&kind.kind, request, &why);
    let no_parse = |why: &str| unrecognized(no_kind(why));
    let (mut object, twice) = text(request).map_err(|unread| unread.refusal(unrecognized))?;
    if object.is_null() && !kind.custom {
        object = json!({}); // which is what Go reads
    }
    if let Some(why) = kind_unreadable(&object) {
        return Err(no_parse(&why));
    }
    if kind.custom && object::text(&object, "/kind").is_empty() {
        let shown = String::from_utf8_lossy(&request.body).into_owned();
        return Err(unrecognized(format!("Object 'Kind' is missing in '{shown}'")));
    }
    let version = object::text(&object, "/apiVersion");
    if version.matches('/').count() > 1 {
        return Err(unrecognized(format!("unexpected GroupVersion string: {version}")));
    }
    of_kind(kinds, kind, &mut object)?;
    match typed::complaint(kind, &object) {
        None => Ok((object, twice)),
        Some(why) => Err(unhandled(&kind.kind, &kind.version, kind, &why)),
    }
}

/// Why a body cannot be read.
pub(crate) enum Unread {
    /// It is in a language that nobody speaks here.
    Language,
    Json(String),
    Yaml(String),
}

impl Unread {
    /// The refusal where the server wanted to know the kind first; how it begins is the caller's.
    pub(crate) fn refusal(self, begin: impl FnOnce(String) -> Failure) -> Failure {
        match self {
            Self::Language => {
                Failure::MediaType("application/json, application/yaml, application/vnd.kubernetes.protobuf")
            }
            Self::Json(why) => begin(no_kind(&why)),
            Self::Yaml(why) => begin(why),
        }
    }
}

/// The words for JSON that does not say its kind.
pub(crate) fn no_kind(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// Reads a body in JSON or YAML.
pub(crate) fn text(request: &Request) -> Result<(Value, Twice), Unread> {
    match request.content_type.as_str() {
        "" | "application/json" | "*/*" => {
            let (value, is_twofold) = json::read_noting(&request.body).map_err(Unread::Json)?;
            Ok((value, if is_twofold { Twice::InJson } else { Twice::No }))
        }
        "application/yaml" => {
            let said = yaml::read(&request.body).map_err(Unread::Yaml)?;
            Ok((said.value, Twice::InYaml(said.twice)))
        }
        _ => Err(Unread::Language),
    }
}

/// Reads the body as an object of its kind, where it is in protobuf.
fn body_in_protobuf(kinds: &Kinds, kind: &Kind, request: &Request) -> Result<Value, Failure> {
    let envelope = Envelope::open(&request.body, &kind.api_version(), &kind.kind)
        .map_err(|why| unrecognized(&kind.kind, request, &why))?;
    let (said_kind, said_version) = (&envelope.kind, last(&envelope.api_version));
    let mut object = envelope
        .object()
        .map_err(|why| unhandled(said_kind, said_version, kind, &why))?;
    of_kind(kinds, kind, &mut object)?;
    Ok(object)
}

/// The refusal of a body that says not even its kind.
pub(crate) fn unrecognized(wanted: &str, request: &Request, why: &str) -> Failure {
    let summary = summary(&request.body);
    Failure::BadRequest(format!(
        "the object provided is unrecognized (must be of type {wanted}): {why} ({summary})"
    ))
}

/// The refusal of a body that says to be of some kind.
fn unhandled(said_kind: &str, said_version: &str, kind: &Kind, why: &str) -> Failure {
    Failure::BadRequest(format!(
        "{said_kind} in version \"{said_version}\" cannot be handled as a {}: {why}",
        kind.kind
    ))
}

/// The version alone, of what may name a group before it.
fn last(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

/// Why Go cannot read from a value what it is; nothing at all can be read.
pub(crate) fn kind_unreadable(said: &Value) -> Option<String> {
    let found = golang::json_name(said);
    match said {
        Value::Object(fields) => ["apiVersion", "kind"].iter().find_map(|name| {
            let value = fields
                .get(*name)
                .filter(|value| !value.is_string() && !value.is_null())?;
            let found = golang::json_name(value);
            Some(format!(
                "json: cannot unmarshal {found} into Go struct field .{name} of type string"
            ))
        }),
        Value::Null => None,
        _ => Some(format!(
            "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )),
    }
}

/// The beginning of a body, as the server quotes it: text if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let head = body.get(..SHOWN).unwrap_or(body);
    let more = if body.len() > SHOWN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => format!(
            "{}{more}",
            head.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        ),
    }
}

/// Why what says to be of some kind cannot become one of the server's own kinds; what says nothing can.
pub(crate) fn other_kind(kinds: &Kinds, kind: &Kind, said_version: &str, said_kind: &str) -> Option<String> {
    let wanted = kind.api_version();
    let said_version = if said_version.is_empty() { &wanted } else { said_version };
    let said_kind = if said_kind.is_empty() { &kind.kind } else { said_kind };
    // Of the kinds of a version only those that are served here are known.
    let is_known = said_kind == kind.kind || kinds.named(said_version, said_kind).is_some();
    if *said_version != wanted || !is_known {
        return Some(format!(
            "no kind \"{said_kind}\" is registered for version \"{said_version}\" in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    let package = kind
        .group
        .split('.')
        .next()
        .filter(|group| !group.is_empty())
        .unwrap_or("core");
    (said_kind != kind.kind).then(|| {
        format!(
            "converting (v1.{said_kind}) to ({package}.{}): unknown conversion",
            kind.kind
        )
    })
}

/// Checks that an object is of the kind that the path names; a built-in one may leave that out.
fn of_kind(kinds: &Kinds, kind: &Kind, object: &mut Value) -> Result<(), Failure> {
    let (said_version, said_kind) = (object::text(object, "/apiVersion"), object::text(object, "/kind"));
    let wanted = kind.api_version();
    if kind.custom {
        if said_version != wanted {
            return Err(Failure::BadRequest(format!(
                "the API version in the data ({said_version}) does not match the expected API version ({wanted})"
            )));
        }
        return Ok(());
    }
    if let Some(why) = other_kind(kinds, kind, said_version, said_kind) {
        let said_kind = if said_kind.is_empty() { &kind.kind } else { said_kind };
        let said_version = if said_version.is_empty() { &wanted } else { said_version };
        return Err(unhandled(said_kind, last(said_version), kind, &why));
    }
    object["apiVersion"] = json!(wanted);
    object["kind"] = json!(kind.kind);
    Ok(())
}

/// Checks that an object is the one that the path names, and puts it into the path's namespace.
pub(crate) fn at_path(kind: &Kind, request: &Request, object: &mut Value) -> Result<(), Failure> {
    let (name, target) = (object::name(object), &request.target);
    if request.verb != Verb::Create && name.is_empty() {
        return Err(Failure::BadRequest(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    if request.verb != Verb::Create && name != target.name {
        return Err(Failure::BadRequest(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let namespace = object::text(object, "/metadata/namespace");
    if !namespace.is_empty() && !kind.namespaced {
        object::metadata(object).remove("namespace");
        return Ok(());
    }
    if !namespace.is_empty() && namespace != target.namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::BadRequest(why.to_owned()));
    }
    if kind.namespaced {
        object::metadata(object).insert("namespace".to_owned(), json!(target.namespace));
    }
    Ok(())
}

/// The refusal of an object for what it says.
pub(crate) fn invalid(kind: &Kind, object: &Value, causes: Vec<Cause>) -> Failure {
    let mut subject = kind.subject();
    if kind.custom {
        // The server names a custom object by what it says it is.
        subject.what = object::text(object, "/kind").to_owned();
    }
    Failure::Invalid {
        subject,
        name: object::name(object).to_owned(),
        causes,
    }
}

/// What is wrong with an object's own statement of its kind.
pub(crate) fn kind_complaints(kind: &Kind, object: &Value) -> Vec<Cause> {
    let said = object::text(object, "/kind");
    if said == kind.kind {
        return Vec::new();
    }
    vec![Cause::invalid(
        "kind",
        format!("\"{said}\""),
        &format!("must be {}", kind.kind),
    )]
}
