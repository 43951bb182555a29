//! Laws of a deployment's plan: one set, found and guarded from its first moment, whose template only a rollout replaces.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Broken, is_child, reported_first, wakes_later};
use crate::api::template::Scope;
use crate::api::{Template, keys, meta};
use crate::deployment::change::SetChange;
use crate::ids::Uid;
use crate::set::StatusPatch;
use crate::{deployment, merge};

/// Laws of a deployment's plan.
pub fn deployment(seen: &deployment::Observed<'_>, plan: &deployment::Plan, now: Timestamp) -> Vec<Broken> {
    use deployment::Step;
    let mut broken: Vec<Broken> = wakes_later(plan.wake, now).into_iter().collect();
    broken.extend(deployment_report(seen, plan));
    let own = meta::uid(&seen.deployment.metadata);
    let owned = || {
        seen.sets
            .iter()
            .filter(|set| own.is_some() && meta::controller_uid(&set.metadata) == own)
    };
    let leaving = meta::is_deleting(&seen.deployment.metadata);
    for (index, step) in plan.steps.iter().enumerate() {
        let last = index + 1 == plan.steps.len();
        match step {
            Step::RemoveFinalizer => {
                broken.extend((!last).then_some(Broken::StepAfterTheEnd));
                broken.extend((!leaving || owned().next().is_some()).then_some(Broken::ReleaseUnproven));
            }
            Step::Create(_) | Step::Change(_) | Step::Adopt(_) | Step::Number(_) | Step::AddFinalizer if leaving => {
                broken.push(Broken::GrowthOfLeaving);
            }
            Step::Create(made) => {
                let count = owned().filter(|set| !meta::is_deleting(&set.metadata)).count() + 1;
                broken.extend((count > 1).then_some(Broken::OverBudget {
                    step: index,
                    count,
                    allowed: 1,
                }));
                let name = made.name.as_str();
                broken.extend((seen.exists)(name).then(|| Broken::NameTaken(name.to_owned())));
                let uid = own.clone().unwrap_or_else(|| Uid::new(""));
                let selector = seen.deployment.spec.selector.as_ref();
                let child = is_child(&made.owner, &made.template.labels(), &uid, selector);
                broken.extend((!child).then_some(Broken::ChildUnguarded));
            }
            Step::Change(change) => {
                let is_own = owned().any(|set| set.metadata.uid == change.set.metadata.uid);
                let kept = is_own && keeps_template(change);
                broken.extend((!kept).then_some(Broken::TemplateReplaced));
            }
            Step::Delete(victims) => {
                for (name, uid) in victims {
                    let right = leaving && owned().any(|set| meta::uid(&set.metadata).as_ref() == Some(uid));
                    broken.extend((!right).then(|| Broken::WrongVictim(name.to_string())));
                }
            }
            Step::Adopt(_) | Step::Release(_) | Step::Number(_) | Step::AddFinalizer | Step::Record(_) => {}
        }
    }
    broken
}

/// A failure that is known or told is told before what may fail again.
fn deployment_report(seen: &deployment::Observed<'_>, plan: &deployment::Plan) -> Option<Broken> {
    use deployment::Step;
    let is_told = |step: &Step| matches!(step, Step::Record(status) if tells_failure(status));
    let is_record = |step: &Step| matches!(step, Step::Record(_));
    let creates = |step: &Step| matches!(step, Step::Create(_));
    let acts = |step: &Step| creates(step) || matches!(step, Step::Change(_) | Step::Delete(_) | Step::Number(_));
    let refused = seen.notes.create_refused.as_ref();
    reported_first(&plan.steps, is_told, acts)
        .or_else(|| refused.and_then(|_| reported_first(&plan.steps, is_record, creates)))
}

/// The deployment's own failure. `ReplicaFailure` is its set's, which told it.
fn tells_failure(status: &StatusPatch) -> bool {
    let conditions = status.field("conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| {
        let says = |field: &str, text: &str| condition.get(field).and_then(Value::as_str) == Some(text);
        says("type", keys::CONDITION_PROGRESSING) && says("status", "False")
    })
}

/// A change of a set leaves alone what its Machines were made from.
fn keeps_template(change: &SetChange) -> bool {
    let template = &change.set.spec.template;
    let mut after = Value::Object(template.as_json().clone());
    merge::apply(&mut after, &json!({ "spec": change.template_spec }));
    match serde_json::from_value::<Template>(after) {
        Ok(after) => change.template_spec.is_empty() || after.semantically_equal(template, Scope::Rollout),
        Err(_) => false,
    }
}
