//! What the definition of a custom kind does to an object on its way in: fills in, throws away, refuses.
//!
//! Decides when the rooms of `schema` are asked; what they say is theirs.

use serde_json::Value;

use crate::failure::{Cause, Failure};
use crate::kinds::Kind;
use crate::schema;
use crate::write::Options;
use crate::write::update::Part;

/// Brings an object into the shape of its definition. A strict caller is refused what would be thrown away.
pub(crate) fn settle(kind: &Kind, object: &mut Value, options: &Options) -> Result<(), Failure> {
    let Some(known) = kind.schema.as_deref() else {
        return Ok(());
    };
    schema::fill_defaults(known, object);
    let unknown = schema::prune(known, object);
    schema::settle_numbers(object);
    if !options.strict || unknown.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    Err(Failure::BadRequest(format!(
        "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
        kind.kind,
        kind.version,
        kind.kind,
        told.join(", ")
    )))
}

/// What the definition of a kind has against an object.
pub(crate) fn complaints(kind: &Kind, old: Option<&Value>, new: &Value, part: Part) -> Vec<Cause> {
    let Some(known) = kind.schema.as_deref() else {
        return Vec::new();
    };
    let of_status = part == Part::Status;
    let verdict = match old {
        Some(old) if of_status => schema::validate_status(known, new, old),
        old => schema::validate(known, new, old),
    };
    let mut causes = verdict.causes;
    if let Some(scale) = &kind.scale {
        let dotted = |path: &[String]| format!(".{}", path.join("."));
        let paths = schema::Scale {
            spec_replicas: dotted(&scale.spec_replicas),
            status_replicas: dotted(&scale.status_replicas),
        };
        // The server counts replicas after it has looked at shapes and before it asks rules: where shapes are wrong, the last
        // cause says that rules were not asked.
        let unasked = causes.iter().position(|cause| cause.field == "<nil>").unwrap_or(0);
        causes.splice(unasked..unasked, schema::validate_scale(&paths, new, of_status));
    }
    let told = |cause: schema::Cause| Cause {
        reason: cause.reason.name().to_owned(),
        message: cause.message,
        field: cause.field,
    };
    causes.into_iter().map(told).collect()
}
