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
