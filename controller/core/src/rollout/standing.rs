//! How a rollout stands: done, under way, or failed, as kubectl's `rollout status` does (MD-13).

use std::fmt;

use crate::api::machine_deployment::MachineDeploymentCondition;
use crate::api::{MachineDeployment, MachineDeploymentStatus, keys, meta};
use crate::deployment::history;

/// How a rollout stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Every Machine is of the present template, as many as wanted, all available, and nothing else is left.
    Complete,
    /// Not there yet.
    Unsteady(Unsteady),
    /// It will not get there, or nobody can say so any more.
    Failed(Fault),
}

/// What is missing, the first thing of those that come one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsteady {
    /// The controller has not looked at the present spec yet.
    Unobserved,
    /// A rollback is asked for and not begun.
    RollingBack {
        /// To which revision; 0 for the previous.
        revision: i64,
    },
    /// Machines of the present template are still to be made.
    Updating {
        /// Of the present template.
        updated: i32,
        /// How many are wanted.
        wanted: i32,
    },
    /// Machines of earlier templates are still there.
    Leaving {
        /// How many.
        old: i32,
    },
    /// There are more Machines of the present template than wanted.
    Shrinking {
        /// How many more.
        surplus: i32,
    },
    /// Machines are not available yet.
    Joining {
        /// Available.
        available: i32,
        /// Of the present template.
        updated: i32,
    },
}

/// Why waiting has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The deployment goes away.
    Deleting,
    /// Another rollout than the one that was asked about.
    OtherRevision {
        /// The one that was asked about.
        wanted: i64,
        /// The one that runs; none before the controller has numbered it.
        running: Option<i64>,
    },
    /// The controller has given up: the message of its condition Progressing.
    NoProgress {
        /// In one word.
        reason: String,
        /// In words.
        message: String,
    },
}

/// Judges what a deployment tells; with a revision, only of that one.
pub fn standing(deployment: &MachineDeployment, revision: Option<i64>) -> Standing {
    if meta::is_deleting(&deployment.metadata) {
        return Standing::Failed(Fault::Deleting);
    }
    let status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < meta::generation(&deployment.metadata) || deployment.status.is_none() {
        return Standing::Unsteady(Unsteady::Unobserved);
    }
    // Of a spec that cannot work nothing is carried out, no rollback either, and the numbers are those of an earlier one.
    if let Some(condition) = told(&status, &[keys::REASON_INVALID]) {
        return Standing::Failed(no_progress(condition));
    }
    if let Some(order) = &deployment.spec.rollback_to {
        let revision = order.revision;
        return Standing::Unsteady(Unsteady::RollingBack { revision });
    }
    let running = history::number(&deployment.metadata);
    if let Some(wanted) = revision.filter(|wanted| Some(*wanted) != running) {
        return Standing::Failed(Fault::OtherRevision { wanted, running });
    }
    // A rollback, which would end this, was looked for above.
    if let Some(condition) = told(&status, &[keys::REASON_NO_IN_PLACE]) {
        return Standing::Failed(no_progress(condition));
    }
    match (missing(deployment.spec.replicas, &status), told(&status, &GIVEN_UP)) {
        (None, _) => Standing::Complete,
        (Some(_), Some(condition)) => Standing::Failed(no_progress(condition)),
        (Some(missing), None) => Standing::Unsteady(missing),
    }
}

/// Nothing is: `updatedReplicas` = `replicas` = `availableReplicas` = `spec.replicas`.
fn missing(wanted: i32, status: &MachineDeploymentStatus) -> Option<Unsteady> {
    let (updated, all, available) = (status.updated_replicas, status.replicas, status.available_replicas);
    if updated < wanted {
        return Some(Unsteady::Updating { updated, wanted });
    }
    if all > updated {
        let old = all.saturating_sub(updated);
        return Some(Unsteady::Leaving { old });
    }
    if updated > wanted {
        let surplus = updated.saturating_sub(wanted);
        return Some(Unsteady::Shrinking { surplus });
    }
    (available != updated || all != updated).then_some(Unsteady::Joining { available, updated })
}

/// Reasons of Progressing that say that the controller expects no progress by itself, though it may come: what is complete after all
/// has not failed.
const GIVEN_UP: [&str; 2] = [keys::REASON_DEADLINE_EXCEEDED, keys::REASON_SET_CREATE_FAILED];

/// Progressing, if it tells one of these reasons.
fn told<'a>(status: &'a MachineDeploymentStatus, reasons: &[&str]) -> Option<&'a MachineDeploymentCondition> {
    let progressing = status.condition(keys::CONDITION_PROGRESSING)?;
    let reason = progressing.reason.as_deref().unwrap_or_default();
    reasons.contains(&reason).then_some(progressing)
}

fn no_progress(condition: &MachineDeploymentCondition) -> Fault {
    Fault::NoProgress {
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    }
}

/// What stands in the way, as far as the deployment tells: pause, failed creations, unhealthy machines that are kept, freeze.
pub fn obstacles(deployment: &MachineDeployment) -> Vec<String> {
    const TOLD: [&str; 3] = [
        keys::CONDITION_REPLICA_FAILURE,
        keys::CONDITION_REPLACEMENTS_HELD,
        keys::CONDITION_FROZEN,
    ];
    let paused = deployment.spec.paused.then(|| "the deployment is paused".to_owned());
    let status = deployment.status.as_ref();
    let told = TOLD
        .into_iter()
        .filter_map(|type_| status.and_then(|status| status.condition(type_)))
        .filter(|condition| condition.status == keys::STATUS_TRUE)
        .map(|condition| {
            let message = condition.message.as_deref().filter(|text| !text.is_empty());
            let words = message.or(condition.reason.as_deref()).unwrap_or(&condition.type_);
            words.split_whitespace().collect::<Vec<_>>().join(" ")
        });
    paused.into_iter().chain(told).collect()
}

impl fmt::Display for Unsteady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unobserved => f.write_str("the changed spec has not been observed"),
            Self::RollingBack { revision: 0 } => {
                f.write_str("the rollback to the previous revision has not been carried out")
            }
            Self::RollingBack { revision } => write!(f, "the rollback to revision {revision} has not been carried out"),
            Self::Updating { updated, wanted } => {
                write!(f, "{updated} out of {wanted} new machines have been made")
            }
            Self::Leaving { old: 1 } => f.write_str("1 old machine is pending termination"),
            Self::Leaving { old } => write!(f, "{old} old machines are pending termination"),
            Self::Shrinking { surplus: 1 } => f.write_str("1 surplus machine is pending termination"),
            Self::Shrinking { surplus } => write!(f, "{surplus} surplus machines are pending termination"),
            Self::Joining { available, updated } => {
                write!(f, "{available} of {updated} updated machines are available")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleting => f.write_str("it is being deleted"),
            Self::OtherRevision { wanted, running: None } => {
                write!(f, "revision {wanted} is wanted, and no revision is running yet")
            }
            Self::OtherRevision {
                wanted,
                running: Some(running),
            } => write!(f, "revision {wanted} is wanted, and revision {running} is running"),
            Self::NoProgress { reason, message } if message.is_empty() => f.write_str(reason),
            Self::NoProgress { reason, message } => write!(f, "{message} ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A deployment of three whose status has the numbers updated, all and available.
    fn deployment(numbers: [i32; 3], progressing: Value) -> MachineDeployment {
        let [updated, all, available] = numbers;
        serde_json::from_value(json!({
            "metadata": {"name": "workers", "generation": 4, "annotations": {keys::REVISION: "2"}},
            "spec": {"replicas": 3, "template": {}},
            "status": {
                "observedGeneration": 4, "updatedReplicas": updated, "replicas": all, "availableReplicas": available,
                "conditions": [progressing],
            },
        }))
        .unwrap()
    }

    fn stands(numbers: [i32; 3]) -> Standing {
        standing(&deployment(numbers, json!({})), None)
    }

    fn told(numbers: [i32; 3]) -> String {
        match stands(numbers) {
            Standing::Unsteady(missing) => missing.to_string(),
            Standing::Complete => "complete".to_owned(),
            Standing::Failed(fault) => fault.to_string(),
        }
    }

    #[test]
    fn a_rollout_is_complete_when_all_four_numbers_are_one() {
        assert_eq!(stands([3, 3, 3]), Standing::Complete);
        for numbers in [[2, 3, 3], [3, 4, 3], [3, 3, 2], [4, 4, 4], [3, 2, 3], [3, 3, 4]] {
            assert_ne!(stands(numbers), Standing::Complete, "{numbers:?}");
        }
    }

    #[test]
    fn what_is_missing_is_told_in_the_order_in_which_it_comes() {
        assert_eq!(told([0, 3, 3]), "0 out of 3 new machines have been made");
        assert_eq!(told([3, 5, 3]), "2 old machines are pending termination");
        assert_eq!(told([4, 4, 4]), "1 surplus machine is pending termination");
        assert_eq!(told([3, 3, 1]), "1 of 3 updated machines are available");
    }

    #[test]
    fn numbers_of_an_earlier_spec_say_nothing() {
        let mut earlier = deployment([3, 3, 3], json!({}));
        earlier.metadata.generation = Some(5);
        assert_eq!(standing(&earlier, None), Standing::Unsteady(Unsteady::Unobserved));
        earlier.status = None;
        earlier.metadata.generation = Some(0);
        assert_eq!(standing(&earlier, None), Standing::Unsteady(Unsteady::Unobserved));
    }

    #[test]
    fn a_rollback_that_is_asked_for_is_not_complete() {
        let mut asked = deployment([3, 3, 3], json!({}));
        asked.spec.rollback_to = Some(crate::api::machine_deployment::RollbackTo { revision: 1 });
        let wanted = Unsteady::RollingBack { revision: 1 };
        assert_eq!(standing(&asked, None), Standing::Unsteady(wanted));
    }

    #[test]
    fn a_passed_deadline_and_a_set_that_cannot_be_made_are_failures_until_the_rollout_is_complete() {
        for reason in GIVEN_UP {
            let condition = json!({"type": "Progressing", "status": "False", "reason": reason, "message": "no quota"});
            let fault = Fault::NoProgress {
                reason: reason.to_owned(),
                message: "no quota".to_owned(),
            };
            assert_eq!(fault.to_string(), format!("no quota ({reason})"));
            assert_eq!(
                standing(&deployment([1, 3, 3], condition.clone()), None),
                Standing::Failed(fault)
            );
            assert_eq!(standing(&deployment([3, 3, 3], condition), None), Standing::Complete);
        }
    }

    #[test]
    fn a_spec_that_cannot_work_and_a_template_that_nobody_rolls_out_are_failures_whatever_the_numbers() {
        let about = |reason: &str| json!({"type": "Progressing", "status": "False", "reason": reason, "message": "no"});
        let failed = |reason: &str| {
            Standing::Failed(Fault::NoProgress {
                reason: reason.to_owned(),
                message: "no".to_owned(),
            })
        };
        for reason in [keys::REASON_INVALID, keys::REASON_NO_IN_PLACE] {
            for numbers in [[3, 3, 3], [0, 3, 3]] {
                assert_eq!(standing(&deployment(numbers, about(reason)), None), failed(reason));
            }
        }
        // An order to roll back is carried out, and ends the one; of an invalid spec nothing is.
        let back = crate::api::machine_deployment::RollbackTo { revision: 1 };
        let mut order = deployment([0, 3, 3], about(keys::REASON_NO_IN_PLACE));
        order.spec.rollback_to = Some(back.clone());
        let waits = Standing::Unsteady(Unsteady::RollingBack { revision: 1 });
        assert_eq!(standing(&order, None), waits);
        let mut order = deployment([0, 3, 3], about(keys::REASON_INVALID));
        order.spec.rollback_to = Some(back);
        assert_eq!(standing(&order, None), failed(keys::REASON_INVALID));
    }

    #[test]
    fn another_revision_than_the_one_that_runs_is_a_failure() {
        let running = deployment([3, 3, 3], json!({}));
        assert_eq!(standing(&running, Some(2)), Standing::Complete);
        let fault = Fault::OtherRevision {
            wanted: 1,
            running: Some(2),
        };
        assert_eq!(standing(&running, Some(1)), Standing::Failed(fault));
    }

    #[test]
    fn obstacles_are_told_in_one_line_each() {
        let condition =
            json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no\n quota"});
        let mut blocked = deployment([1, 1, 1], condition);
        blocked.spec.paused = true;
        assert_eq!(obstacles(&blocked), ["the deployment is paused", "no quota"]);
        let held = json!({"type": "ReplacementsHeld", "status": "True", "message": "Unhealthy machines are kept"});
        assert_eq!(obstacles(&deployment([1, 1, 1], held)), ["Unhealthy machines are kept"]);
        let fine = json!({"type": "Frozen", "status": "False", "message": "was frozen"});
        assert!(obstacles(&deployment([1, 1, 1], fine)).is_empty());
    }
}
