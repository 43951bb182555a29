//! What the definition of a custom kind does to an object on its way in: fills in, throws away, refuses.
//!
//! Decides when the rooms of `schema` are asked; what they say is theirs.

use serde_json::Value;

use crate::failure::Cause;
use crate::kinds::Kind;
use crate::schema;
use crate::write::Options;
use crate::write::part::Part;

/// Brings an object into the shape of its definition.
pub(crate) fn settle(kind: &Kind, object: &mut Value, options: &Options) {
    let Some(known) = kind.schema.as_deref() else {
        return;
    };
    schema::fill_defaults(known, object);
    if !options.is_pruned {
        schema::prune(known, object);
    }
    schema::settle_numbers(object);
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
        // After what the schema says and before what its rules say.
        let is_cut = causes
            .last()
            .is_some_and(|last| last.message.contains(schema::RULES_UNCHECKED));
        let of_schema = if is_cut {
            causes.len() - 1
        } else {
            causes.iter().take_while(|cause| cause.field == "<nil>").count()
        };
        let rest = causes.split_off(of_schema);
        causes.extend(schema::validate_scale(&paths, new, of_status));
        causes.extend(rest);
    }
    let told = |cause: schema::Cause| Cause {
        reason: cause.reason.name().to_owned(),
        message: cause.message,
        field: cause.field,
    };
    causes.into_iter().map(told).collect()
}
