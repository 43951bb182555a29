//! The freeze of a set: a label by which no Machine is made.
//!
//! MS-11. The original's safety controller freezes a set that has too many Machines, by the label and a
//! condition. Here Machines that are too many are deleted by the plan that finds them, so that such a freeze is ended where it is found. A
//! label without the condition is a person's, and stays until the person takes it off or asks for the thaw by annotation.

use serde_json::{Value, json};

use super::observed::{Observed, Step};
use crate::api::machine_set::MachineSetCondition;
use crate::api::{MachineSet, keys, meta};
use crate::status::{LONGEST_TEXT, LONGEST_WORD, plain};

/// Takes off the label, if a controller put it there or somebody asks for it.
pub fn thaw(seen: &Observed<'_>) -> Option<Step> {
    let has_request = meta::annotation(&seen.set.metadata, keys::UNFREEZE).is_some();
    let is_due = has_request || (is_labelled(seen.set) && (seen.unfreeze || told(seen.set).is_some()));
    is_due.then_some(Step::Thaw)
}

/// The body of a JSON merge patch that takes label and annotation off, of a set as of a deployment.
pub fn thawed() -> Value {
    json!({ "metadata": { "labels": { keys::FREEZE: null }, "annotations": { keys::UNFREEZE: null } } })
}

/// The event of a thaw: reason and text.
pub fn turn_by_thaw(set: &MachineSet) -> Option<(&'static str, String)> {
    let text = || "The set is not frozen any more: machines are created again".to_owned();
    is_labelled(set).then(|| (keys::EVENT_UNFROZE, text()))
}

/// The condition `Frozen`, while the label is there that a controller put beside it: without it, the label would pass for a person's.
pub(super) fn condition(set: &MachineSet) -> Option<MachineSetCondition> {
    let told = told(set).filter(|_| is_labelled(set))?;
    Some(MachineSetCondition {
        reason: told.reason.as_deref().map(|word| plain(word, LONGEST_WORD)),
        message: told.message.as_deref().map(|text| plain(text, LONGEST_TEXT)),
        ..told.clone()
    })
}

/// The condition by which a controller says that it froze the set.
fn told(set: &MachineSet) -> Option<&MachineSetCondition> {
    let told = set.status.as_ref()?.condition(keys::CONDITION_FROZEN);
    told.filter(|told| told.status == keys::STATUS_TRUE)
}

/// Whether the set carries the label by which nothing is created.
pub fn is_labelled(set: &MachineSet) -> bool {
    meta::label(&set.metadata, keys::FREEZE) == Some(keys::TRUE)
}
