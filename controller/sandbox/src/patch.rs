//! What a PATCH makes of an object: the four content types that a kube-apiserver accepts.
//!
//! Decides how a patch combines with an object, and nothing about whether the caller may do so. Pure functions over
//! `serde_json::Value`; no store, no clock, no schema validation. Nulls that a patch leaves behind are left to the reader of
//! the object's kind, as on the server. The `json-patch` crate was tried and not taken: a kube-apiserver lets `replace` add a
//! missing key, counts negative indices from the end, lets `test` for null pass on a missing key, and drops nulls nested in
//! the new parts of a merge patch; the crate keeps to the RFCs in all four.
//!
//! # Not yet
//! - Apply does not carry owners over from other versions of a kind or through a list that became atomic in a later schema, nor does
//!   it read what it makes as the server's own type: bytes that are no base64 and times that are none are not refused in its words.
//! - Times that a built-in type writes as null, such as a condition's `lastHeartbeatTime`, are left out by `Topology::settled`,
//!   so that nobody owns them either.
//! - A `$patch` directive that is no text is refused in slightly other words.

use serde_json::Value;

pub mod apply;
pub mod json;
pub mod merge;
pub mod strategic;

pub use apply::apply;
pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

/// Why a patch could not be applied. The text is the server's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The body is JSON, but not of the shape that its content type asks for.
    #[error("error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}")]
    Shape { found: &'static str, wanted: &'static str },
    /// A JSON patch that fails on this object. The server keeps its reason to itself; `why` is for tests and logs only.
    #[error("the server rejected our request due to an error in our request")]
    Inapplicable { why: String },
    #[error("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    #[error("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")]
    StrategicShape { found: &'static str },
    /// A strategic merge patch sets a field that it says is not to be retained.
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    /// A strategic merge patch with a directive that it cannot have there; the server takes this for its own failure.
    #[error("{0}")]
    Directive(String),
}

/// As many operations as the server reads from one JSON patch.
pub const MOST_OPERATIONS: usize = 10_000;

impl PatchError {
    /// The HTTP status and `reason` with which the server refuses.
    pub fn status(&self) -> (u16, &'static str) {
        match self {
            Self::Shape { .. } | Self::StrategicShape { .. } | Self::RetainKeys => (400, "BadRequest"),
            Self::Inapplicable { .. } => (422, "Invalid"),
            Self::TooManyOperations(_) => (413, "RequestEntityTooLarge"),
            Self::Directive(_) => (500, ""),
        }
    }
}

/// What Go's JSON decoder calls a value of this kind.
pub(crate) fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as Go's `%v` prints it, which is how the server's refusals quote it.
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => go_map(fields),
        Value::Bool(_) => value.to_string(),
        Value::Number(number) => go_number(number),
    }
}

/// A number as Go prints it. Whole ones are read as such, however they are written; floats of some length have an exponent.
fn go_number(number: &serde_json::Number) -> String {
    const LARGEST: f64 = 9.2e18;
    if number.is_i64() {
        return number.to_string();
    }
    let float = number.as_f64().unwrap_or_default();
    if float.fract() == 0.0 && float.abs() < LARGEST {
        return format!("{float:.0}");
    }
    let shortest = format!("{float:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse::<i32>() {
        Ok(-4..6) => float.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        Err(_) => shortest,
    }
}

/// What Go calls the type of a value that may be any.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go's `%#v` prints it, which is how it looks in Go's own text.
pub(crate) fn go_syntax(value: &Value) -> String {
    let all = |texts: Vec<String>| texts.join(", ");
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::json::go_quoted(text),
        Value::Array(items) => format!("[]interface {{}}{{{}}}", all(items.iter().map(go_syntax).collect())),
        Value::Object(fields) => {
            let fields = fields.iter();
            let mut texts: Vec<String> = fields
                .map(|(name, value)| format!("{}:{}", crate::json::go_quoted(name), go_syntax(value)))
                .collect();
            texts.sort();
            format!("map[string]interface {{}}{{{}}}", all(texts))
        }
        Value::Bool(_) => value.to_string(),
        Value::Number(number) => go_number(number),
    }
}

pub(crate) fn go_map(fields: &serde_json::Map<String, Value>) -> String {
    let mut texts: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}:{}", go_text(value)))
        .collect();
    texts.sort();
    format!("map[{}]", texts.join(" "))
}
