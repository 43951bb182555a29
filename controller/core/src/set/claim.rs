//! Which Machines a set adopts and which it releases. Labels decide only that: a Machine whose controller is the set counts for
//! the set, whatever its labels are (MS-1).
//!
//! A release is what a person gets who changes a label of a Machine in service, as for a Pod of a ReplicaSet: the Machine goes on
//! alone and another is made. Whoever else changes labels (an admission policy, a labelling operator) does so to each Machine that
//! is made, so releases have a bound: no Machine that was never in service, and together with the released ones that are still
//! there no more than the set wants.

use serde_json::{Value, json};

use super::observed::{MachineView, Observed};
use crate::api::{Machine, MachineSet, keys, meta};
use crate::owner;
use crate::selector::Matcher;

/// The outcome of claiming.
#[derive(Debug, Default)]
pub struct Claims<'a> {
    /// Machines to adopt.
    pub adopts: Vec<&'a MachineView<'a>>,
    /// Machines to release.
    pub releases: Vec<&'a MachineView<'a>>,
}

/// Which Machines to adopt and to release.
pub fn claims<'a>(seen: &Observed<'a>) -> Claims<'a> {
    let Some(selector) = selector(seen) else {
        return Claims::default();
    };
    let adopts = seen.machines.iter().filter(|machine| {
        let metadata = &machine.metadata;
        let is_free = meta::controller_of(metadata).is_none() && !meta::is_deleting(metadata);
        is_free && selector.selects(metadata)
    });
    Claims {
        adopts: adopts.collect(),
        releases: unselected(seen, &selector).take(may_release(seen)).collect(),
    }
}

fn selector(seen: &Observed<'_>) -> Option<Matcher> {
    Matcher::new(seen.set.spec.selector.as_ref()?).ok()
}

/// Machines of the set that were in service and that it does not select any more.
fn unselected<'a>(seen: &Observed<'a>, selector: &Matcher) -> impl Iterator<Item = &'a MachineView<'a>> {
    seen.owned().filter(|machine| {
        let metadata = &machine.metadata;
        !meta::is_deleting(metadata) && was_in_service(machine) && !selector.selects(metadata)
    })
}

/// Whether Machines count on although the set does not select them, because it released as many as it may.
pub fn holds_back(seen: &Observed<'_>) -> bool {
    may_release(seen) == 0 && selector(seen).is_some_and(|selector| unselected(seen, &selector).next().is_some())
}

fn was_in_service(machine: &Machine) -> bool {
    machine.has_joined() || machine.phase().is_there()
}

/// How many more Machines the set may release: a set of one or none may still release one.
fn may_release(seen: &Observed<'_>) -> usize {
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    wanted.max(1).saturating_sub(released(seen).count())
}

/// Machines that the set released and that are still there without a controller.
pub fn released<'a>(seen: &Observed<'a>) -> impl Iterator<Item = &'a MachineView<'a>> {
    let set = seen.set;
    seen.machines.iter().filter(move |machine| {
        let metadata = &machine.metadata;
        let is_free = meta::controller_of(metadata).is_none() && !meta::is_deleting(metadata);
        is_free && meta::annotation(metadata, keys::RELEASED_BY) == Some(meta::name(&set.metadata))
    })
}

/// The body of a JSON merge patch that releases a Machine. It keeps the name of the set, so that whoever deletes the set finds it.
pub fn release(set: &MachineSet, machine: &Machine) -> Value {
    let owners = owner::released(&machine.metadata, meta::uid(&set.metadata).as_ref());
    json!({ "metadata": {
        "ownerReferences": owners,
        "annotations": { keys::RELEASED_BY: meta::name(&set.metadata) },
    } })
}
