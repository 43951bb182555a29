//! What people order of a rollout: back to an earlier template, halt, on, all Machines anew.
//!
//! Decides whether the order makes sense for the deployment as it was read, and which fields say it. Written is nothing here.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{MachineDeployment, keys, meta};
use crate::deployment::history::{Revision, Revisions};

/// An order that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Merge this into the deployment.
    Write(Value),
    /// The template is the one of this revision already: there is nothing to do.
    AlreadyThere(i64),
}

/// Why an order is not given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing is rolled out while the deployment is paused.
    #[error("it is paused: resume it first")]
    IsPaused,
    /// It was paused before.
    #[error("it is already paused")]
    AlreadyPaused,
    /// There is nothing to resume.
    #[error("it is not paused")]
    NotPaused,
    /// It goes away.
    #[error("it is being deleted")]
    IsDeleting,
    /// Somebody has asked for a rollback before, and it is not carried out yet.
    #[error("a rollback to {} is requested already and not carried out yet", meant(*.0))]
    AlreadyRequested(i64),
    /// No set has the number.
    #[error("there is no revision {wanted}; there {}", listed(.there))]
    NoSuchRevision {
        /// What was asked for.
        wanted: i64,
        /// What there is.
        there: Vec<i64>,
    },
    /// No other template is known.
    #[error("there is no revision before the present one to go back to")]
    NoPrevious,
    /// Two restarts within a second would be one.
    #[error("a restart was asked for within this second: wait a second to ask for another one")]
    TooSoon,
}

fn meant(revision: i64) -> String {
    match revision {
        0 => "the revision before the present one".to_owned(),
        number => format!("revision {number}"),
    }
}

fn listed(numbers: &[i64]) -> String {
    let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
    match texts.as_slice() {
        [] => "is none yet".to_owned(),
        [one] => format!("is only revision {one}"),
        more => format!("are {}", more.join(", ")),
    }
}

/// Back to the template of a revision; of 0, to the one before the present.
///
/// The order names the revision that was found, so that what is carried out is what was told, also if another one is made meanwhile.
pub fn undo(deployment: &MachineDeployment, revisions: &Revisions<'_>, to: i64) -> Result<Order, Refusal> {
    stays(deployment)?;
    if deployment.spec.paused {
        return Err(Refusal::IsPaused);
    }
    if let Some(order) = &deployment.spec.rollback_to {
        return Err(Refusal::AlreadyRequested(order.revision));
    }
    let target = target(revisions, to)?;
    let number = target.number.unwrap_or(to);
    if target.is_current {
        return Ok(Order::AlreadyThere(number));
    }
    Ok(Order::Write(
        json!({ "spec": { "rollbackTo": { "revision": number } } }),
    ))
}

/// The revision that is meant by a number.
pub fn target<'r, 'a>(revisions: &'r Revisions<'a>, to: i64) -> Result<&'r Revision<'a>, Refusal> {
    match to {
        0 => revisions.previous().ok_or(Refusal::NoPrevious),
        wanted => revisions.find(wanted).ok_or_else(|| Refusal::NoSuchRevision {
            wanted,
            there: revisions.numbers(),
        }),
    }
}

/// No rollout moves from now on.
pub fn pause(deployment: &MachineDeployment) -> Result<Order, Refusal> {
    stays(deployment)?;
    match deployment.spec.paused {
        true => Err(Refusal::AlreadyPaused),
        false => Ok(Order::Write(json!({ "spec": { "paused": true } }))),
    }
}

/// Rollouts move again.
pub fn resume(deployment: &MachineDeployment) -> Result<Order, Refusal> {
    stays(deployment)?;
    match deployment.spec.paused {
        true => Ok(Order::Write(json!({ "spec": { "paused": null } }))),
        false => Err(Refusal::NotPaused),
    }
}

/// Every Machine is replaced: the template says when that was asked for, and is another one by that.
pub fn restart(deployment: &MachineDeployment, now: Timestamp) -> Result<Order, Refusal> {
    stays(deployment)?;
    if deployment.spec.paused {
        return Err(Refusal::IsPaused);
    }
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    if deployment.spec.template.annotations().get(keys::RESTARTED_AT) == Some(&now) {
        return Err(Refusal::TooSoon);
    }
    let annotations = json!({ keys::RESTARTED_AT: now });
    Ok(Order::Write(
        json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }),
    ))
}

fn stays(deployment: &MachineDeployment) -> Result<(), Refusal> {
    match meta::is_deleting(&deployment.metadata) {
        true => Err(Refusal::IsDeleting),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MachineSet;
    use crate::api::machine_deployment::RollbackTo;
    use crate::deployment::history::tests::{deployment, set};

    fn three() -> [MachineSet; 3] {
        [set("one", "1", "a"), set("two", "2", "b"), set("three", "3", "c")]
    }

    fn undone(deployment: &MachineDeployment, to: i64) -> Result<Order, Refusal> {
        let sets = three();
        undo(deployment, &Revisions::of(deployment, &sets), to)
    }

    fn back_to(number: i64) -> Result<Order, Refusal> {
        Ok(Order::Write(
            json!({ "spec": { "rollbackTo": { "revision": number } } }),
        ))
    }

    #[test]
    fn an_undo_names_the_revision_that_it_found() {
        assert_eq!(undone(&deployment("c"), 0), back_to(2));
        assert_eq!(undone(&deployment("c"), 1), back_to(1));
    }

    #[test]
    fn an_undo_to_the_present_template_is_nothing_to_do() {
        assert_eq!(undone(&deployment("b"), 2), Ok(Order::AlreadyThere(2)));
    }

    #[test]
    fn an_undo_that_cannot_be_says_why() {
        let refusal = |result: Result<Order, Refusal>| result.unwrap_err().to_string();
        assert_eq!(
            refusal(undone(&deployment("c"), 9)),
            "there is no revision 9; there are 1, 2, 3"
        );
        let mut paused = deployment("c");
        paused.spec.paused = true;
        assert_eq!(refusal(undone(&paused, 1)), "it is paused: resume it first");
        let mut requested = deployment("c");
        requested.spec.rollback_to = Some(RollbackTo { revision: 0 });
        assert_eq!(
            refusal(undone(&requested, 1)),
            "a rollback to the revision before the present one is requested already and not carried out yet"
        );
        let only = [set("one", "1", "a")];
        let first = deployment("a");
        let revisions = Revisions::of(&first, &only);
        assert_eq!(undo(&first, &revisions, 0), Err(Refusal::NoPrevious));
        assert_eq!(
            refusal(undo(&first, &revisions, 2)),
            "there is no revision 2; there is only revision 1"
        );
        let none = Revisions::of(&first, &[]);
        assert_eq!(
            refusal(undo(&first, &none, 2)),
            "there is no revision 2; there is none yet"
        );
    }

    #[test]
    fn what_is_paused_is_not_paused_again_and_what_is_not_is_not_resumed() {
        let mut deployment = deployment("a");
        assert_eq!(resume(&deployment), Err(Refusal::NotPaused));
        assert_eq!(
            pause(&deployment),
            Ok(Order::Write(json!({ "spec": { "paused": true } })))
        );
        deployment.spec.paused = true;
        assert_eq!(pause(&deployment), Err(Refusal::AlreadyPaused));
        assert_eq!(
            resume(&deployment),
            Ok(Order::Write(json!({ "spec": { "paused": null } })))
        );
    }

    #[test]
    fn a_restart_changes_the_template_and_a_second_one_in_the_same_second_is_refused() {
        let (mut deployment, now) = (deployment("a"), Timestamp::constant(1_893_456_000, 999_999_999));
        let annotations = json!({ keys::RESTARTED_AT: "2030-01-01T00:00:00Z" });
        let wanted = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
        assert_eq!(restart(&deployment, now), Ok(Order::Write(wanted.clone())));

        let mut raw = serde_json::to_value(&deployment).unwrap();
        crate::merge::apply(&mut raw, &wanted);
        let restarted: MachineDeployment = serde_json::from_value(raw).unwrap();
        assert_eq!(restart(&restarted, now), Err(Refusal::TooSoon));

        deployment.spec.paused = true;
        assert_eq!(restart(&deployment, now), Err(Refusal::IsPaused));
    }

    #[test]
    fn nothing_is_ordered_of_what_is_being_deleted() {
        let mut deployment = deployment("c");
        deployment.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(undone(&deployment, 1), Err(Refusal::IsDeleting));
        assert_eq!(pause(&deployment), Err(Refusal::IsDeleting));
        assert_eq!(restart(&deployment, Timestamp::UNIX_EPOCH), Err(Refusal::IsDeleting));
    }
}
