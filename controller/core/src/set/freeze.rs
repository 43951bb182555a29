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

/// Whether the condition says that it is frozen.
pub fn is_told(set: &MachineSet) -> bool {
    let conditions = set.status.iter().flat_map(|status| &status.conditions);
    let mut frozen = conditions.filter(|condition| condition.type_ == keys::CONDITION_FROZEN);
    frozen.any(|condition| condition.status == keys::STATUS_TRUE)
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
