//! The freeze of a deployment: whether one of its sets is frozen, and when its own label goes.
//!
//! Source: `spec/machineset.md` §10.2, §10.3. Which set is frozen is decided in `set::freeze`. Writes nothing.

use super::budget::Bounds;
use super::group::Members;
use super::observed::{Observed, Step};
use super::status::Wanted;
use crate::api::{MachineDeployment, MachineSet, keys, meta};
use crate::set::freeze::{is_labelled, is_told};

/// How many Machines a deployment may have, the surge of a rollout among them.
pub fn most(deployment: &MachineDeployment) -> usize {
    let replicas = deployment.spec.replicas;
    let surge = Bounds::of(deployment.spec.strategy.as_ref(), replicas).surge;
    usize::try_from(replicas.max(0).saturating_add(surge)).unwrap_or(0)
}

/// Whether somebody asks for the end of a freeze.
pub fn is_asked(deployment: &MachineDeployment) -> bool {
    meta::annotation(&deployment.metadata, keys::UNFREEZE).is_some()
}

/// Takes off the deployment's label when no set is frozen any more, and the annotation when all sets have followed it.
pub fn thaw(seen: &Observed<'_>, members: &Members<'_>) -> Option<Step> {
    let deployment = seen.deployment;
    let is_frozen = members.sets.iter().any(|member| is_labelled(member.set));
    let is_over = has_label(deployment) && has_condition(deployment) && frozen(members).is_none();
    ((is_asked(deployment) && !is_frozen) || is_over).then_some(Step::Thaw)
}

/// The condition `Frozen`, while a set is frozen. While the label is there that a controller put beside it, it stays.
pub(super) fn condition(deployment: &MachineDeployment, members: &Members<'_>) -> Option<Wanted> {
    let is_kept = has_label(deployment) && has_condition(deployment);
    let text = match frozen(members) {
        Some(set) => format!(
            "MachineSet {} is frozen: no machine is created.",
            meta::name(&set.metadata)
        ),
        None if is_kept => "No set is frozen any more.".to_owned(),
        None => return None,
    };
    Some(Wanted {
        type_: keys::CONDITION_FROZEN,
        status: keys::STATUS_TRUE,
        reason: keys::REASON_STATE_SYNC.to_owned(),
        message: text,
        is_renewed: false,
    })
}

fn frozen<'a>(members: &Members<'a>) -> Option<&'a MachineSet> {
    let sets = members.sets.iter().map(|member| member.set.as_ref());
    sets.into_iter().find(|set| is_labelled(set) || is_told(set))
}

fn has_label(deployment: &MachineDeployment) -> bool {
    meta::label(&deployment.metadata, keys::FREEZE) == Some(keys::TRUE)
}

fn has_condition(deployment: &MachineDeployment) -> bool {
    let conditions = deployment.status.iter().flat_map(|status| &status.conditions);
    let mut frozen = conditions.filter(|condition| condition.type_ == keys::CONDITION_FROZEN);
    frozen.any(|condition| condition.status == keys::STATUS_TRUE)
}
