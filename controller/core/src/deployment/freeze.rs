//! The freeze of a deployment: none of its sets makes a Machine while it carries the label, and it tells which set carries it.
//!
//! MD-14. A label beside the original's condition is the original's, and goes when no set is frozen any
//! more; one without it is a person's. Writes nothing.

use super::members::Members;
use super::observed::{Observed, Step};
use super::status::Wanted;
use crate::api::{MachineDeployment, keys, meta};
use crate::set::freeze::is_labelled;

/// Whether somebody asks for the end of a freeze.
pub fn is_asked(deployment: &MachineDeployment) -> bool {
    meta::annotation(&deployment.metadata, keys::UNFREEZE).is_some()
}

/// Whether a person froze the deployment.
pub fn is_frozen(deployment: &MachineDeployment) -> bool {
    has_label(deployment) && !is_the_originals(deployment)
}

/// Takes off the deployment's label that the original put there when no set is frozen any more, and the annotation when all sets have
/// followed it.
pub fn thaw(seen: &Observed<'_>, members: &Members<'_>) -> Option<Step> {
    let deployment = seen.deployment;
    let is_due = is_asked(deployment) || (has_label(deployment) && is_the_originals(deployment));
    let is_frozen = members.sets.iter().any(|member| is_labelled(member.set));
    (is_due && !is_frozen).then_some(Step::Thaw)
}

/// The condition `Frozen`, while the deployment or a set is frozen. While the label is there that the original put beside it, it stays.
pub(super) fn condition(deployment: &MachineDeployment, members: &Members<'_>) -> Option<Wanted> {
    let mut sets = members.sets.iter().map(|member| member.set);
    let message = match sets.find(|set| is_labelled(set)) {
        _ if is_frozen(deployment) => "The label freeze=True is on the deployment: no machine is created.".to_owned(),
        Some(set) => {
            let name = meta::name(&set.metadata);
            format!("The label freeze=True is on MachineSet {name}: it creates no machine.")
        }
        None if has_label(deployment) => "No set is frozen any more.".to_owned(),
        None => return None,
    };
    let reason = match has_label(deployment) && is_the_originals(deployment) {
        true => keys::REASON_STATE_SYNC,
        false => keys::REASON_LABELLED,
    };
    let (type_, status) = (keys::CONDITION_FROZEN, keys::STATUS_TRUE);
    Some(Wanted::new(type_, status, reason, message))
}

fn has_label(deployment: &MachineDeployment) -> bool {
    meta::label(&deployment.metadata, keys::FREEZE) == Some(keys::TRUE)
}

fn is_the_originals(deployment: &MachineDeployment) -> bool {
    let status = deployment.status.as_ref();
    let told = status.and_then(|status| status.condition(keys::CONDITION_FROZEN));
    told.is_some_and(|told| told.status == keys::STATUS_TRUE && told.reason.as_deref() == Some(keys::REASON_STATE_SYNC))
}
