//! Questions about the sets of a deployment that several parts of the plan ask: which sets may be adopted, which cannot be written, and
//! which may exist although no watch has shown them.
//!
//! Decides nothing: `plan` and its parts decide what follows.

use std::sync::Arc;

use jiff::Timestamp;

use super::names::names;
use super::observed::Observed;
use crate::api::{MachineSet, meta};
use crate::ids::Name;
use crate::ledger::LINGERS;
use crate::refusal::Refusal;
use crate::selector::Matcher;
use crate::sight::later;

/// Sets that nobody controls and that the selector matches, by their own labels. A set that the deployment controls stays its own,
/// whatever the labels of the set become (MD-2).
pub(super) fn adoptable<'a>(seen: &Observed<'a>) -> Vec<&'a Arc<MachineSet>> {
    let Some(Ok(selector)) = seen.deployment.spec.selector.as_ref().map(Matcher::new) else {
        return Vec::new();
    };
    let is_free = |set: &MachineSet| meta::controller_of(&set.metadata).is_none() && !meta::is_deleting(&set.metadata);
    let sets = seen.sets.iter().map(|member| member.set);
    sets.filter(|set| is_free(set) && selector.selects(&set.metadata))
        .collect()
}

/// Why the API server refused the last write to a set.
pub(super) fn refusal<'a>(seen: &Observed<'a>, set: &MachineSet) -> Option<&'a Refusal> {
    seen.refusals.get(&meta::uid(&set.metadata)?)
}

/// The first set of the deployment's that cannot be written, or not be adopted, with the API server's words.
pub(super) fn unwritable<'a>(seen: &Observed<'a>) -> Option<(&'a MachineSet, &'a str)> {
    let own = seen.owned().into_iter().map(|member| member.set);
    let mut sets = own.chain(adoptable(seen));
    sets.find_map(|set| Some((&**set, refusal(seen, set)?.message.as_str())))
}

/// Sets of earlier templates that are not seen and may be there, each with its number and until when it may still arrive. The creation
/// of the present template's set is sent again, which finds it.
pub(super) fn unseen<'a>(seen: &'a Observed<'_>, now: Timestamp) -> impl Iterator<Item = (i32, Timestamp)> + 'a {
    let is_present = |name: &str| names(seen.deployment).any(|(present, _)| present == name);
    let unseen = arriving(seen, now).filter(move |(name, _, _)| !is_present(name.as_str()));
    unseen.map(|(_, number, until)| (number, until))
}

/// Sets whose creation was not answered and that are not seen, each with its number and until when it may still arrive.
pub(super) fn arriving<'a>(
    seen: &'a Observed<'_>,
    now: Timestamp,
) -> impl Iterator<Item = (&'a Name, i32, Timestamp)> + 'a {
    let sent = seen.notes.unanswered_sets.iter();
    let timed = sent.map(|(name, (number, sent))| (name, *number, later(*sent, LINGERS)));
    timed.filter(move |(name, _, until)| *until > now && !(seen.exists)(name.as_str()))
}
