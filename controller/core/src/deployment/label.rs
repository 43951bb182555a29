//! The hash label of a set that the deployment adopted or that was made by hand: without it two sets of one deployment select each
//! other's Machines.
//!
//! MD-4. Nothing waits and nothing is remembered: what is written next follows from what is
//! stored. First the template gets the label, so that new Machines bear it; then the set's own plan brings it to the Machines that
//! exist (`set::bring`); only when all bear it the set selects by it, because a set gives up Machines that it does not select.

use jiff::Timestamp;

use super::change::HashLabel;
use super::names::template_hash;
use crate::api::{keys, meta};
use crate::set::growth::unanswered;
use crate::set::{self, bring};

/// What of the label a set gets now.
pub fn due(member: &set::Observed<'_>, now: Timestamp) -> Option<HashLabel> {
    let set = member.set;
    if meta::is_deleting(&set.metadata) || bring::selects_by_hash(set) {
        return None;
    }
    let template = &set.spec.template;
    let Some(hash) = template.labels().remove(keys::TEMPLATE_HASH) else {
        return Some(HashLabel::Template(template_hash(template, 0).to_string()));
    };
    let has =
        |machine: &crate::api::Machine| meta::label(&machine.metadata, keys::TEMPLATE_HASH) == Some(hash.as_str());
    // What was asked for before the template had the label may come without it.
    let is_brought = unanswered(member, now) == 0 && member.owned().all(|machine| has(machine));
    is_brought.then_some(HashLabel::Selector(hash))
}
