//! Whether a set is frozen: it has more Machines than can be explained, and grows no further until that is over.
//!
//! Source: `spec/machineset.md` §10. The original's safety controller freezes and thaws once a minute, by a label and a condition.
//! Here Machines that are too many are deleted by the plan that finds them, so that they stay only where their deletion is refused:
//! then the condition says so. What the original froze is thawed by the same rule. A label without the condition is a person's,
//! and stays until the person takes it off or asks for the thaw by annotation. Writes nothing.

use std::sync::Arc;

use serde_json::{Value, json};

use super::observed::{Observed, Step};
use super::plan::is_leaving;
use super::status::StatusChange;
use crate::api::machine_set::MachineSetCondition;
use crate::api::{Machine, MachineSet, keys, meta};

/// As many Machines above those that can be explained are too many: the original's default of `--safety-up`.
const SAFETY_UP: usize = 2;

/// More Machines than can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overshoot {
    /// Machines that are not leaving.
    pub count: usize,
    /// From how many on they are too many.
    pub limit: usize,
}

/// Whether the set has too many Machines and cannot be rid of them, or was frozen for having too many and still has.
pub fn overshoot(seen: &Observed<'_>, machines: &[Arc<Machine>], is_refused: bool) -> Option<Overshoot> {
    let replicas = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    let limit = seen
        .most
        .unwrap_or(replicas.saturating_mul(2))
        .saturating_add(SAFETY_UP);
    let count = machines.iter().filter(|machine| !is_leaving(machine)).count();
    let is_kept = is_refused || is_told(seen.set);
    (count >= limit && is_kept && !is_asked(seen)).then_some(Overshoot { count, limit })
}

/// Takes off the label by which nothing is created, if a controller put it there and its reason is gone, or if somebody asks for it.
pub fn thaw(seen: &Observed<'_>, machines: &[Arc<Machine>]) -> Option<Step> {
    let is_over = || is_labelled(seen.set) && is_told(seen.set) && overshoot(seen, machines, false).is_none();
    let is_due = has_request(seen.set) || (seen.unfreeze && is_labelled(seen.set)) || is_over();
    is_due.then_some(Step::Thaw)
}

/// The body of a JSON merge patch that takes label and annotation off, of a set as of a deployment.
pub fn thawed() -> Value {
    json!({ "metadata": { "labels": { keys::FREEZE: null }, "annotations": { keys::UNFREEZE: null } } })
}

/// The event of a status that is to be written newly, where it freezes the set or ends that: reason and text.
pub fn turn(set: &MachineSet, status: &StatusChange) -> Option<(&'static str, String)> {
    told_by(set, &status.conditions)
}

fn told_by(set: &MachineSet, written: &[MachineSetCondition]) -> Option<(&'static str, String)> {
    match (is_told(set), frozen(written)) {
        (false, Some(condition)) => {
            let text = condition.message.clone().unwrap_or_default();
            Some((keys::EVENT_FROZE, text))
        }
        (true, None) => Some(thawing()),
        (true, Some(_)) | (false, None) => None,
    }
}

/// The event of a thaw that no status will tell: of the label of a person, which no condition stands beside.
pub fn turn_by_thaw(set: &MachineSet) -> Option<(&'static str, String)> {
    (is_labelled(set) && !is_told(set)).then(thawing)
}

fn thawing() -> (&'static str, String) {
    let text = "The set is not frozen any more: machines are created again".to_owned();
    (keys::EVENT_UNFROZE, text)
}

/// Whether the condition says that it is frozen.
pub fn is_told(set: &MachineSet) -> bool {
    let status = set.status.as_ref();
    status.is_some_and(|status| frozen(&status.conditions).is_some())
}

fn frozen(conditions: &[MachineSetCondition]) -> Option<&MachineSetCondition> {
    let mut frozen = conditions
        .iter()
        .filter(|condition| condition.type_ == keys::CONDITION_FROZEN);
    frozen.find(|condition| condition.status == keys::STATUS_TRUE)
}

/// Whether the set carries the label by which nothing is created.
pub fn is_labelled(set: &MachineSet) -> bool {
    meta::label(&set.metadata, keys::FREEZE) == Some(keys::TRUE)
}

fn has_request(set: &MachineSet) -> bool {
    meta::annotation(&set.metadata, keys::UNFREEZE).is_some()
}

fn is_asked(seen: &Observed<'_>) -> bool {
    seen.unfreeze || has_request(seen.set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(conditions: Value) -> MachineSet {
        serde_json::from_value(json!({"metadata": {"name": "s"}, "status": {"machineSetCondition": conditions}}))
            .expect("a set")
    }

    fn written(conditions: Value) -> Vec<MachineSetCondition> {
        serde_json::from_value(conditions).expect("these are conditions")
    }

    #[test]
    fn a_freeze_and_its_end_are_events_once_each() {
        let held = || json!({"type": "ReplicaFailure", "status": "True"});
        let frozen = || json!([held(), {"type": "Frozen", "status": "True", "message": "too many"}]);
        let reason = |before: Value, after: Value| told_by(&set(before), &written(after)).map(|(reason, _)| reason);
        let froze = told_by(&set(json!([])), &written(frozen()));
        assert_eq!(froze, Some(("FrozeMachineSet", "too many".to_owned())));
        assert_eq!(reason(frozen(), frozen()), None);
        assert_eq!(reason(frozen(), json!([held()])), Some("UnfrozeMachineSet"));
        assert_eq!(reason(json!([held()]), json!([])), None);
    }

    #[test]
    fn the_end_of_a_freeze_is_told_by_the_status_or_where_there_is_no_condition_by_the_thaw() {
        let mut by_hand = set(json!([]));
        assert_eq!(turn_by_thaw(&by_hand), None, "nothing is frozen");
        by_hand.metadata.labels = Some([(keys::FREEZE.to_owned(), keys::TRUE.to_owned())].into());
        assert_eq!(
            turn_by_thaw(&by_hand).map(|(reason, _)| reason),
            Some("UnfrozeMachineSet")
        );
        let mut by_us = set(json!([{"type": "Frozen", "status": "True"}]));
        by_us.metadata.labels = by_hand.metadata.labels;
        assert_eq!(turn_by_thaw(&by_us), None);
    }
}
