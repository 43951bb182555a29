//! Which Machines are updated in place now, and which of them move to the set of the present template.
//!
//! MD-8. A Machine whose update has begun does not count as available until it is
//! over, so slack and allowance decide how many may begin, as they decide in a rolling update how many may go; Machines that are not available
//! begin first. One that was updated moves in one write, from which the sets' numbers follow (`budget`), so nothing is left half-way.
//! Machines of another set with the same template move by the same step, whatever the strategy. Who is selected by hand
//! counts like those that are selected here. Decides nothing about Nodes but who is selected.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::budget::Mode;
use super::facts::refusal;
use super::members::{Members, Stand, length};
use super::observed::{Observed, Step};
use crate::api::template::Scope;
use crate::api::{Machine, MachineSet, keys, meta};
use crate::machine::in_place::marks::{self, Outcome, Reason, Update};
use crate::machine::node_patch::NodePatch;
use crate::owner;
use crate::set::facts::{counts_as_available, is_being_updated, is_leaving};
use crate::set::{self, MachineView};

/// A Machine that goes over to another set.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// The set that has it.
    from: Arc<MachineSet>,
    /// The set that gets it.
    pub to: Arc<MachineSet>,
}

impl Transfer {
    /// The body of a JSON merge patch of the Machine: who controls it, and the labels of the new set's template in place of the old one's.
    pub fn patch(&self) -> Value {
        let old = self.from.spec.template.labels().into_keys();
        let mut labels: Map<String, Value> = old.map(|key| (key, Value::Null)).collect();
        let selector = self.to.spec.selector.clone().unwrap_or_default();
        let wanted = self.to.spec.template.labels().into_iter();
        let wanted = wanted.chain(selector.match_labels.unwrap_or_default());
        labels.extend(wanted.map(|(key, value)| (key, json!(value))));
        // The original puts it on a Machine that is on its way, so that no set deletes it.
        if meta::label(&self.machine.metadata, keys::UPDATE_RESULT).is_some() {
            labels.insert(keys::UPDATE_RESULT.to_owned(), Value::Null);
        }
        json!({ "metadata": { "labels": labels, "ownerReferences": self.owners() } })
    }

    fn owners(&self) -> Vec<OwnerReference> {
        let others = owner::released(&self.machine.metadata, meta::uid(&self.from.metadata).as_ref());
        std::iter::once(owner::reference(&*self.to)).chain(others).collect()
    }
}

/// The step that moves the Machines that have the present template already, if there are any: they were updated, or another set has the same
/// template. Numbers follow the Machines, so both sets must be writable.
pub(super) fn transfer(seen: &Observed<'_>, members: &Members<'_>, mode: Mode, now: Timestamp) -> Option<Step> {
    let is_held = |set: &MachineSet| refusal(seen, set).is_some_and(|refusal| refusal.holds(now));
    let is_still = matches!(mode, Mode::Scaling | Mode::Holding | Mode::InPlace { is_paused: true });
    let to = members.new_set().filter(|to| !is_still && !is_held(to))?;
    let old = members.old().iter();
    let staying = old.filter(|member| !meta::is_deleting(&member.set.metadata) && !is_held(member.set));
    let moved = staying.flat_map(|member| {
        let is_twin = member
            .set
            .spec
            .template
            .semantically_equal(&seen.deployment.spec.template, Scope::Rollout);
        let is_refused = move |view: &MachineView<'_>| view.refusal.is_some_and(|refusal| refusal.holds(now));
        let free = member.owned().filter(move |view| stays(view) && !is_refused(view));
        let moved = free.filter(move |view| is_twin || is_updated(view));
        moved.map(|view| Transfer {
            machine: Arc::clone(view.machine),
            from: Arc::clone(member.set),
            to: Arc::clone(to),
        })
    });
    let moved: Vec<Transfer> = moved.collect();
    (!moved.is_empty()).then_some(Step::Transfer(moved))
}

/// Whether the agent has updated the Machine's node, as its Node says and the Machine has seen.
fn is_updated(machine: &MachineView<'_>) -> bool {
    let is_settled = machine.phase().has_node() && !machine.phase().is_agents();
    let is_told = Reason::copied(machine) == Some(Reason::Successful);
    let outcome = machine.update.as_ref().and_then(|update| update.marks.outcome);
    is_settled && is_told && outcome == Some(Outcome::Successful)
}

fn stays(machine: &MachineView<'_>) -> bool {
    !is_leaving(machine) && !machine.is_named
}

/// The step that selects the next Nodes, if any may be.
pub(super) fn select(seen: &Observed<'_>, members: &Members<'_>, stand: &Stand, now: Timestamp) -> Option<Step> {
    let by_itself = seen
        .deployment
        .spec
        .strategy
        .as_ref()
        .is_some_and(|strategy| strategy.updates_by_itself());
    let group = &stand.group;
    let new = group.current().filter(|_| members.has_new)?;
    if !by_itself || stand.mode != (Mode::InPlace { is_paused: false }) || !group.is_in_sight {
        return None;
    }
    let under_way = length(under_way(members).count());
    let left = group.wanted - new.claim() - under_way;
    let allowance = (group.may_fall() - under_way).min(left).max(0);
    let (idle, available): (Vec<Candidate<'_>>, Vec<Candidate<'_>>) = candidates(members, now)
        .into_iter()
        .partition(|candidate| !candidate.is_available);
    let idle = idle.into_iter().take(count(allowance));
    let mut chosen: Vec<Candidate<'_>> = idle.collect();
    let rest = (allowance - length(chosen.len())).min(group.slack());
    chosen.extend(available.into_iter().take(count(rest)));
    let patches: Vec<NodePatch> = chosen.iter().map(|candidate| marks::select(candidate.update)).collect();
    (!patches.is_empty()).then_some(Step::Select(patches))
}

/// Machines of old sets whose update has begun and is not over.
pub(super) fn under_way<'a>(members: &'a Members<'a>) -> impl Iterator<Item = &'a MachineView<'a>> {
    let own = members.old().iter().flat_map(|member| member.owned());
    own.filter(|machine| !is_leaving(machine) && is_being_updated(machine))
}

/// A Machine that may be selected.
struct Candidate<'a> {
    update: &'a Update,
    is_available: bool,
}

/// Those of the oldest set first, the oldest Machines first.
fn candidates<'a>(members: &Members<'a>, now: Timestamp) -> Vec<Candidate<'a>> {
    let of = |member: &'a set::Observed<'a>| {
        let mut own: Vec<&MachineView<'_>> = member.owned().collect();
        own.sort_by_cached_key(|machine| {
            let metadata = &machine.metadata;
            (meta::created(metadata), meta::name(metadata).to_owned())
        });
        own.into_iter().filter_map(move |machine| {
            let update = machine.update.as_ref()?;
            let may_be = machine.phase().may_be_updated() && stays(machine);
            let awaits = update.marks.is_candidate && !update.marks.is_under_way();
            let is_available = counts_as_available(member, machine, now);
            (may_be && awaits).then_some(Candidate { update, is_available })
        })
    };
    members.old().iter().copied().flat_map(of).collect()
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
