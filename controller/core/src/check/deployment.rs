//! Laws of a deployment's plan: one set, found and guarded from its first moment, whose template only a rollout replaces.

use jiff::Timestamp;
use serde_json::Value;

use super::{Broken, is_child, text, wakes_later};
use crate::api::template::Scope;
use crate::api::{Template, meta};
use crate::ids::Uid;
use crate::{deployment, merge};

/// Laws of a deployment's plan.
pub fn deployment(seen: &deployment::Observed<'_>, plan: &deployment::Plan, now: Timestamp) -> Vec<Broken> {
    use deployment::Step;
    let mut broken: Vec<Broken> = wakes_later(plan.wake, now).into_iter().collect();
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
            Step::Create(_) | Step::Change(..) | Step::Adopt(..) | Step::Number(_) | Step::AddFinalizer if leaving => {
                broken.push(Broken::GrowthOfLeaving);
            }
            Step::Create(body) => {
                let count = owned().filter(|set| !meta::is_deleting(&set.metadata)).count() + 1;
                broken.extend((count > 1).then_some(Broken::OverBudget {
                    step: index,
                    count,
                    allowed: 1,
                }));
                let name = text(body, "/metadata/name");
                broken.extend((seen.exists)(name).then(|| Broken::NameTaken(name.to_owned())));
                let uid = own.clone().unwrap_or_else(|| Uid::new(""));
                let child = is_child(body, &uid, seen.deployment.spec.selector.as_ref());
                broken.extend((!child).then_some(Broken::ChildUnguarded));
            }
            Step::Change(name, body) => {
                let set = owned().find(|set| meta::name(&set.metadata) == name.as_str());
                let kept = set.is_some_and(|set| keeps_template(&set.spec.template, body));
                broken.extend((!kept).then_some(Broken::TemplateReplaced));
            }
            Step::Delete(victims) => {
                for (name, uid) in victims {
                    let right = leaving && owned().any(|set| meta::uid(&set.metadata).as_ref() == Some(uid));
                    broken.extend((!right).then(|| Broken::WrongVictim(name.to_string())));
                }
            }
            Step::Adopt(..) | Step::Release(..) | Step::Number(_) | Step::AddFinalizer | Step::Record(_) => {}
        }
    }
    broken
}

/// A change of a set leaves alone what its Machines were made from.
fn keeps_template(template: &Template, body: &Value) -> bool {
    let Some(change) = body.pointer("/spec/template") else {
        return true;
    };
    let before = Value::Object(template.as_json().clone());
    let mut after = before.clone();
    merge::apply(&mut after, change);
    match serde_json::from_value::<Template>(after) {
        Ok(after) => after.semantically_equal(template, Scope::Rollout),
        Err(_) => false,
    }
}
