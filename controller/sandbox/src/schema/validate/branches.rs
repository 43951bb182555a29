//! `allOf`, `anyOf`, `oneOf` and `not`: schemas that a value has to fit besides its own.

use serde_json::Value;

use super::node;
use crate::schema::{Schema, cause::Cause, place::Place};

/// What one branch said.
struct Said {
    right: usize,
    causes: Vec<Cause>,
}

pub(super) fn check(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    place: &Place<'_>,
    causes: &mut Vec<Cause>,
) -> usize {
    let ask = |branches: &[Schema]| -> Vec<Said> {
        branches
            .iter()
            .map(|branch| {
                let mut causes = Vec::new();
                let right = node::check(branch, new, old, place, &mut causes);
                Said { right, causes }
            })
            .collect()
    };
    any_of(ask(&schema.any_of), place, causes);
    one_of(ask(&schema.one_of), place, causes);
    let right = all_of(ask(&schema.all_of), place, causes);
    let not = schema
        .not
        .as_deref()
        .map(std::slice::from_ref)
        .map(ask)
        .unwrap_or_default();
    if not.iter().any(|said| said.causes.is_empty()) {
        causes.push(unmet(place, "must not validate the schema (not)"));
    }
    right
}

fn any_of(said: Vec<Said>, place: &Place<'_>, causes: &mut Vec<Cause>) {
    if said.is_empty() || said.iter().any(|said| said.causes.is_empty()) {
        return;
    }
    causes.push(unmet(place, "must validate at least one schema (anyOf)"));
    causes.extend(nearest(said));
}

fn one_of(said: Vec<Said>, place: &Place<'_>, causes: &mut Vec<Cause>) {
    let fitting = said.iter().filter(|said| said.causes.is_empty()).count();
    if said.is_empty() || fitting == 1 {
        return;
    }
    if fitting > 1 {
        let detail = format!("must validate one and only one schema (oneOf). Found {fitting} valid alternatives");
        causes.push(unmet(place, &detail));
        return;
    }
    causes.push(unmet(
        place,
        "must validate one and only one schema (oneOf). Found none valid",
    ));
    causes.extend(nearest(said));
}

fn all_of(said: Vec<Said>, place: &Place<'_>, causes: &mut Vec<Cause>) -> usize {
    let fitting = said.iter().filter(|said| said.causes.is_empty()).count();
    if fitting < said.len() {
        let more = if fitting == 0 { ". None validated" } else { "" };
        causes.push(unmet(place, &format!("must validate all the schemas (allOf){more}")));
    }
    let right = said.iter().map(|said| said.right).sum();
    causes.extend(said.into_iter().flat_map(|said| said.causes));
    right
}

/// Of branches that all failed, the errors of the one that came nearest, the first of several.
fn nearest(said: Vec<Said>) -> Vec<Cause> {
    said.into_iter()
        .reduce(|best, other| if other.right > best.right { other } else { best })
        .map(|best| best.causes)
        .unwrap_or_default()
}

fn unmet(place: &Place<'_>, detail: &str) -> Cause {
    Cause::unplaced(place, &format!("\"{}\" {detail}", place.in_body()))
}
