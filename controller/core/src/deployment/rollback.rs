//! `spec.rollbackTo`: the template of an earlier revision becomes the deployment's again (MD-11).
//!
//! Decides what the deployment becomes; the rollout that follows is an ordinary one, because the earlier set is found by its
//! template. One write changes template, annotations and order, so that no crash leaves a half of it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::history::Revisions;
use super::pass_on::is_passed;
use crate::api::machine_deployment::RollbackTo;
use crate::api::{MachineDeployment, MachineSet, Template, keys, meta};
use crate::merge::{replacing, replacing_fields};
use crate::set;

/// How an order to go back ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The template is another one now.
    Done(i64),
    /// The template is that one already.
    Unchanged(i64),
    /// There is no such revision; zero: none before the newest.
    NotFound(i64),
}

impl Outcome {
    /// The event that tells it: whether it is a warning, its reason and its text.
    pub fn event(&self, deployment: &str) -> (bool, &'static str, String) {
        const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
        match self {
            Self::Done(revision) => {
                let text = format!("Rolled back deployment \"{deployment}\" to revision {revision}");
                (false, "DeploymentRollback", text)
            }
            Self::Unchanged(revision) => {
                let text = format!(
                    "The rollback revision {revision} contains the same template as current deployment \"{deployment}\""
                );
                (true, "DeploymentRollbackTemplateUnchanged", text)
            }
            Self::NotFound(0) => (true, NOT_FOUND, "Unable to find last revision.".to_owned()),
            Self::NotFound(_) => (
                true,
                NOT_FOUND,
                "Unable to find the revision to rollback to.".to_owned(),
            ),
        }
    }
}

/// What the order does to the deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct RollBack {
    /// How it ends.
    pub outcome: Outcome,
    /// The body of a JSON merge patch of the deployment.
    pub patch: Value,
}

/// Carries out an order.
pub fn roll_back(deployment: &MachineDeployment, order: &RollbackTo, sets: &[&set::Observed<'_>]) -> RollBack {
    let revisions = Revisions::of(deployment, sets.iter().map(|member| &**member.set));
    let found = match order.revision {
        0 => revisions.previous(),
        number => revisions.find(number),
    };
    let ended = |outcome| RollBack {
        outcome,
        patch: json!({ "spec": { "rollbackTo": null } }),
    };
    let Some(found) = found else {
        return ended(Outcome::NotFound(order.revision));
    };
    let revision = found.number.unwrap_or(order.revision);
    if found.is_current {
        return ended(Outcome::Unchanged(revision));
    }
    let object = |template: &Template| Value::Object(template.as_json().clone());
    let new = found.template();
    let template = replacing(Some(&object(&deployment.spec.template)), &object(&new));
    RollBack {
        outcome: Outcome::Done(revision),
        patch: json!({
            "metadata": { "annotations": annotations(deployment, found.set) },
            "spec": { "rollbackTo": null, "template": template },
        }),
    }
}

/// The annotations that the set got from the deployment when its template was the deployment's; those since are removed.
fn annotations(deployment: &MachineDeployment, set: &MachineSet) -> Map<String, Value> {
    let nothing = BTreeMap::new();
    let of = |annotations: &Option<BTreeMap<String, String>>| {
        let passed = annotations.as_ref().unwrap_or(&nothing).iter();
        let passed = passed.filter(|(key, _)| is_passed(key));
        passed
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect::<Map<String, Value>>()
    };
    let (has, mut wanted) = (of(&deployment.metadata.annotations), of(&set.metadata.annotations));
    // What others put on the set is not the deployment's. A set that another version made does not tell.
    if let Some(passed) = meta::annotation(&set.metadata, keys::PASSED_ANNOTATIONS) {
        wanted.retain(|key, _| passed.split(',').any(|other| other == key));
    }
    replacing_fields(&has, &wanted)
}
