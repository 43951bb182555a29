//! Every refusal of the API, and how it is worded.
//!
//! Decides code, reason and body of an answer that is not a success; knows nothing of when one is due. The wording is the
//! server's, taken from its answers in `tests/value/*.cases`.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use serde_json::{Map, Value, json};

use crate::golang::{quoted, without_odd_bytes};
use crate::patch::PatchError;

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired` and so on.
    pub reason: String,
    /// What is wrong, without the field's path.
    pub message: String,
    /// Path of the field, as `spec.template.spec`.
    pub field: String,
}

impl Cause {
    /// A value that cannot be had there.
    pub fn invalid(field: &str, shown: impl std::fmt::Display, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {shown}: {why}"))
    }

    /// A value that is missing.
    pub fn required(field: &str, why: &str) -> Self {
        Self::new("FieldValueRequired", field, format!("Required value: {why}"))
    }

    /// A value that may not be given here.
    pub fn forbidden(field: &str, why: impl std::fmt::Display) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// A value outside of a known list.
    pub fn unsupported(field: &str, shown: &str, known: &str) -> Self {
        let message = format!("Unsupported value: {shown}: supported values: {known}");
        Self::new("FieldValueNotSupported", field, message)
    }

    /// A value of more bytes than fit.
    pub fn too_long(field: &str, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self::new("FieldValueTooLong", field, message)
    }

    fn new(reason: &str, field: &str, message: String) -> Self {
        Self {
            reason: reason.to_owned(),
            message,
            field: field.to_owned(),
        }
    }
}

/// A group with a plural (`machines`) or a kind (`Machine`), as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// API group, empty for the core group.
    pub group: String,
    /// Plural or kind.
    pub what: String,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.what)
        } else {
            write!(f, "{}.{}", self.what, self.group)
        }
    }
}

/// Why the API refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// No API lives at this path. The only answer that is not a Status.
    #[error("404 page not found\n")]
    NoPath,
    #[error("the server could not find the requested resource")]
    NoResource,
    #[error("{subject} {} not found", quoted(name))]
    NotFound { subject: Subject, name: String },
    #[error("{}{subject} \"{name}\" already exists", if *leaving { "object is being deleted: " } else { "" })]
    AlreadyExists {
        subject: Subject,
        name: String,
        /// Whether what is there is to go.
        leaving: bool,
    },
    #[error("Operation cannot be fulfilled on {subject} \"{name}\": {why}")]
    Conflict {
        subject: Subject,
        name: String,
        why: String,
    },
    /// An apply that would take fields from other managers; the causes name them.
    #[error("{why}")]
    ApplyConflict { why: String, causes: Vec<Cause> },
    #[error("{subject} \"{name}\" is invalid{}", told(causes))]
    Invalid {
        subject: Subject,
        name: String,
        causes: Vec<Cause>,
    },
    #[error("{subject} \"{name}\" is forbidden: {why}")]
    Forbidden {
        subject: Subject,
        name: String,
        why: String,
    },
    /// What no role lets the caller do.
    #[error("{} is forbidden: {why}", named(subject, name))]
    Denied {
        subject: Subject,
        /// Empty for collections.
        name: String,
        why: String,
    },
    /// The same where no resource lives.
    #[error("forbidden: {why}")]
    DeniedPath { why: String },
    /// A page of a list whose version is forgotten; by the token the rest can be had as it is now.
    #[error(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the \
         continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing \
         with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the \
         time the first chunk was returned and now may show up in the list."
    )]
    PageExpired { token: String },
    #[error("{0}")]
    BadRequest(String),
    #[error("the server does not allow this method on the requested resource")]
    NoMethod,
    #[error("{verb} is not supported on resources of kind \"{subject}\"")]
    NotSupported { verb: &'static str, subject: Subject },
    #[error("the body of the request was in an unknown format - accepted media types include: {0}")]
    MediaType(&'static str),
    /// A form of answer that is not served. The server's router refuses in other words than those behind it.
    #[error("{message}")]
    NotAcceptable { message: String, routed: bool },
    /// A patch of a kind that no built-in kind knows.
    #[error("415: Unsupported Media Type")]
    PatchType,
    #[error("{0}")]
    Expired(String),
    #[error("Timeout: Too large resource version: {asked}, current: {current}")]
    VersionTooLarge { asked: u64, current: u64 },
    /// An eviction that a disruption budget does not let through.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    Budget { why: String, retry_after: Option<u64> },
    /// The server answers some mistakes of its callers with 500 and no reason.
    #[error("{0}")]
    Internal(String),
    /// An object that the server cannot show as it is asked to.
    #[error("Internal error occurred: {0}")]
    Unshowable(String),
    /// No token that anybody has.
    #[error("Unauthorized")]
    Unauthorized,
    #[error("Request entity too large: limit is {limit}")]
    TooLarge { limit: usize },
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// A subject with the name of the one object that is meant, if one is.
fn named(subject: &Subject, name: &str) -> String {
    if name.is_empty() {
        subject.to_string()
    } else {
        format!("{subject} \"{name}\"")
    }
}

/// The list of causes as a message tells it: one plain, several in brackets, none twice.
fn told(causes: &[Cause]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for cause in causes {
        let line = format!("{}: {}", cause.field, cause.message);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match lines.len() {
        0 => String::new(),
        1 => format!(": {}", lines.concat()),
        _ => format!(": [{}]", lines.join(", ")),
    }
}

impl Failure {
    /// The HTTP status.
    pub fn code(&self) -> u16 {
        match self {
            Self::NoPath | Self::NoResource | Self::NotFound { .. } => 404,
            Self::AlreadyExists { .. } | Self::Conflict { .. } | Self::ApplyConflict { .. } => 409,
            Self::Invalid { .. } => 422,
            Self::Forbidden { .. } | Self::Denied { .. } | Self::DeniedPath { .. } => 403,
            Self::BadRequest(_) => 400,
            Self::NoMethod | Self::NotSupported { .. } => 405,
            Self::MediaType(_) | Self::PatchType => 415,
            Self::NotAcceptable { .. } => 406,
            Self::Expired(_) | Self::PageExpired { .. } => 410,
            Self::VersionTooLarge { .. } => 504,
            Self::Budget { .. } => 429,
            Self::Internal(_) | Self::Unshowable(_) => 500,
            Self::Unauthorized => 401,
            Self::TooLarge { .. } => 413,
            Self::Patch(error) => error.status().0,
        }
    }

    /// The word in `reason`; empty where the server gives none.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoPath | Self::NoResource | Self::NotFound { .. } => "NotFound",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Conflict { .. } | Self::ApplyConflict { .. } => "Conflict",
            Self::Invalid { .. } => "Invalid",
            Self::Forbidden { .. } | Self::Denied { .. } | Self::DeniedPath { .. } => "Forbidden",
            Self::BadRequest(_) => "BadRequest",
            Self::NoMethod | Self::NotSupported { .. } => "MethodNotAllowed",
            Self::MediaType(_) | Self::PatchType => "UnsupportedMediaType",
            Self::NotAcceptable { .. } => "NotAcceptable",
            Self::Expired(_) | Self::PageExpired { .. } => "Expired",
            Self::VersionTooLarge { .. } => "Timeout",
            Self::Budget { .. } => "TooManyRequests",
            Self::Internal(_) => "",
            Self::Unshowable(_) => "InternalError",
            Self::Unauthorized => "Unauthorized",
            Self::TooLarge { .. } => "RequestEntityTooLarge",
            Self::Patch(error) => error.status().1,
        }
    }

    /// The `metav1.Status` that tells it.
    pub fn status(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": without_odd_bytes(self.to_string()), "code": self.code(),
        });
        if let Self::PageExpired { token } = self {
            body["metadata"]["continue"] = json!(token);
        }
        if !self.reason().is_empty() {
            body["reason"] = json!(self.reason());
        }
        if let Some(details) = self.details() {
            body["details"] = details;
        }
        body
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::NoResource
            | Self::NoMethod
            | Self::PatchType
            | Self::DeniedPath { .. }
            | Self::NotAcceptable { routed: true, .. } => Some(json!({})),
            Self::NotFound { subject, name }
            | Self::AlreadyExists { subject, name, .. }
            | Self::Conflict { subject, name, .. }
            | Self::Forbidden { subject, name, .. }
            | Self::Denied { subject, name, .. } => Some(details(subject, name, &[])),
            Self::Invalid { subject, name, causes } => Some(details(subject, name, causes)),
            Self::NotSupported { subject, .. } => Some(details(subject, "", &[])),
            Self::Unshowable(why) => Some(json!({ "causes": [{ "message": why }] })),
            Self::ApplyConflict { causes, .. } => Some(json!({ "causes": listed(causes) })),
            Self::VersionTooLarge { .. } => Some(json!({
                "retryAfterSeconds": 1,
                "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            })),
            Self::Budget { why, retry_after } => {
                let mut out = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
                if let Some(seconds) = retry_after {
                    out["retryAfterSeconds"] = json!(seconds);
                }
                Some(out)
            }
            Self::Patch(PatchError::Inapplicable { .. }) => Some(json!({})),
            Self::NoPath
            | Self::BadRequest(_)
            | Self::MediaType(_)
            | Self::NotAcceptable { .. }
            | Self::Expired(_)
            | Self::PageExpired { .. }
            | Self::Internal(_)
            | Self::Unauthorized
            | Self::TooLarge { .. }
            | Self::Patch(_) => None,
        }
    }
}

fn details(subject: &Subject, name: &str, causes: &[Cause]) -> Value {
    let mut out = Map::new();
    for (key, text) in [("name", name), ("group", &subject.group), ("kind", &subject.what)] {
        if !text.is_empty() {
            out.insert(key.to_owned(), json!(without_odd_bytes(text.to_owned())));
        }
    }
    if !causes.is_empty() {
        out.insert("causes".to_owned(), listed(causes));
    }
    Value::Object(out)
}

fn listed(causes: &[Cause]) -> Value {
    causes
        .iter()
        .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
        .collect()
}
