//! Whether an object fits its schema. Decides what is wrong and in which words; changes nothing.
//!
//! In an update, what was wrong before and did not change is let be, so that a tightened schema does not lock objects out.

use serde_json::Value;

use super::{
    Schema,
    cause::{Cause, Verdict},
    place::Place,
    rules,
};

pub use self::scale::{Scale, validate_scale};

mod branches;
mod lists;
mod node;
mod scalar;
mod scale;

/// Said where an object is too wrong for its rules.
pub const RULES_UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Judges a whole object, in an update against what is stored.
pub fn validate(schema: &Schema, new: &Value, old: Option<&Value>) -> Verdict {
    let mut causes = Vec::new();
    node::check(schema, new, old, &Place::root(), &mut causes);
    conclude(schema, new, old, causes)
}

/// Judges a write to the status subresource: of the schema only `status` is looked at, of the rules all.
pub fn validate_status(schema: &Schema, new: &Value, old: &Value) -> Verdict {
    let mut causes = Vec::new();
    if let (Some(below), Some(status)) = (schema.child("status"), new.get("status")) {
        node::check(below, status, old.get("status"), &Place::under("status"), &mut causes);
    }
    conclude(schema, new, Some(old), causes)
}

fn conclude(schema: &Schema, new: &Value, old: Option<&Value>, mut causes: Vec<Cause>) -> Verdict {
    let duplicates = lists::duplicates(schema, new);
    // Duplicates from before the list's type was declared would make every update fail, so they excuse all later ones.
    if !duplicates.is_empty() && old.is_none_or(|old| lists::duplicates(schema, old).is_empty()) {
        causes.extend(duplicates);
    }
    let mut verdict = Verdict {
        causes,
        warnings: Vec::new(),
    };
    if !schema.has_rules {
        return verdict;
    }
    if verdict.causes.iter().any(|cause| cause.reason.blocks_rules()) {
        verdict.causes.push(Cause::with_value(
            super::Reason::Invalid,
            &Place::root(),
            &Value::Null,
            RULES_UNCHECKED,
        ));
        return verdict;
    }
    rules::apply(schema, new, old, &mut verdict);
    verdict
}
