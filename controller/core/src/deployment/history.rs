//! Revisions of a deployment's templates, and which old sets are kept for a way back.
//!
//! Source: `spec/machinedeployment.md` §5.2, §14, without weakness 14: the history of a set is appended to only when its revision
//! changes, and is bounded. Decides nothing about Machines: only sets that have and want none are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::group::Members;
use crate::api::{MachineDeployment, MachineSet, keys, meta};
use crate::rollout::revisions::{Revisions, number};
use crate::set;
use crate::set::growth::unanswered;
use crate::set::plan::owned;

/// How many old sets are kept where the deployment does not say, as for Deployments. The original keeps all, for ever (weakness 16).
pub const KEPT: i32 = 10;
/// How many earlier revisions a set remembers.
const REMEMBERED: usize = 20;

/// The revision of the new set: one more than the highest of the others, unless its own is higher already.
pub fn revision(new: Option<&MachineSet>, others: &[&set::Observed<'_>]) -> i64 {
    let highest = others.iter().filter_map(|member| number(member.set)).max();
    let own = new.and_then(number).unwrap_or(0);
    own.max(highest.unwrap_or(0).saturating_add(1))
}

/// The revision that the deployment's own annotation is to have, if it has another one: that of another template.
pub fn numbered(deployment: &MachineDeployment, members: &Members<'_>) -> Option<i64> {
    let revision = revision(Some(members.new_set()?), members.old());
    let told = meta::annotation(&deployment.metadata, keys::REVISION);
    (told != Some(revision.to_string().as_str())).then_some(revision)
}

/// The annotations that say so on the set.
pub fn annotations(set: &MachineSet, revision: i64) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(keys::REVISION.to_owned(), revision.to_string())]);
    if let Some(before) = number(set).filter(|before| *before != revision) {
        let history = meta::annotation(&set.metadata, keys::REVISION_HISTORY).unwrap_or_default();
        let mut past: Vec<&str> = history.split(',').filter(|text| !text.is_empty()).collect();
        let before = before.to_string();
        past.push(&before);
        let past = past.split_off(past.len().saturating_sub(REMEMBERED));
        annotations.insert(keys::REVISION_HISTORY.to_owned(), past.join(","));
    }
    annotations
}

/// Old sets beyond the limit, the oldest first, that have and want nothing, and get nothing by a creation that was sent.
pub fn surplus(deployment: &MachineDeployment, old: &[&set::Observed<'_>], now: Timestamp) -> Vec<Arc<MachineSet>> {
    let limit = deployment.spec.revision_history_limit.unwrap_or(KEPT).max(0);
    let staying = |member: &&&set::Observed<'_>| !meta::is_deleting(&member.set.metadata);
    let staying: Vec<&&set::Observed<'_>> = old.iter().filter(staying).collect();
    let beyond = staying.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    let is_empty = |member: &&&&set::Observed<'_>| {
        member.set.spec.replicas == 0 && owned(member).is_empty() && unanswered(member, now) == 0
    };
    let surplus = staying.iter().take(beyond).filter(is_empty);
    surplus.map(|member| Arc::clone(member.set)).collect()
}

/// The set of a revision; of revision 0, the one before the present.
pub fn find<'a>(
    deployment: &MachineDeployment,
    sets: &[&'a set::Observed<'a>],
    revision: i64,
) -> Option<&'a Arc<MachineSet>> {
    let revisions = Revisions::of(deployment, sets.iter().map(|member| &**member.set));
    let found = match revision {
        0 => revisions.previous(),
        _ => revisions.find(revision),
    };
    let uid = found?.set.metadata.uid.as_deref();
    let mut sets = sets.iter().map(|member| member.set);
    sets.find(|set| set.metadata.uid.as_deref() == uid)
}
