//! Which Failed Machines are kept without being asked: the newest, up to a maximum.
//!
//! MS-10: counted are Machines, not what a status says of them, and of all sets of
//! a deployment together. While machines of several templates are there nobody is added, and in the set of the present template nobody
//! stays: the rollout would wait for them (#1137 of the peer). One whose time is over is not taken again. Decides nothing about Machines
//! that users annotate.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::facts::{is_exempt, is_leaving};
use super::observed::{MachineView, Observed};
use crate::api::{Machine, Phase, keys, meta};
use crate::ids::Uid;

/// Who is kept from now on, and who is not any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// To be annotated.
    pub take: BTreeSet<Uid>,
    /// To lose the annotation.
    pub release: BTreeSet<Uid>,
}

/// The annotation of a Machine, in the version that the plan saw, put on or taken off.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// It is kept from now on.
    pub is_kept: bool,
}

impl Mark {
    /// The body of a JSON merge patch of the Machine.
    pub fn patch(&self) -> Json {
        let value = self.is_kept.then_some(keys::PRESERVE_AUTO);
        json!({ "metadata": { "annotations": { keys::PRESERVE: value } } })
    }
}

/// What holds for the sets that are chosen in together.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// How many may be kept.
    pub at_most: i32,
    /// Machines of several templates are there.
    pub is_rolling: bool,
    /// The set of the present template.
    pub current: Option<&'a Uid>,
}

/// Chooses among the Machines of sets, all of which a maximum is meant for.
pub fn choose<'a>(sets: impl Iterator<Item = &'a Observed<'a>>, terms: Terms<'_>) -> Choice {
    let (mut kept, mut free): (Vec<&MachineView<'_>>, Vec<&MachineView<'_>>) = (Vec::new(), Vec::new());
    let mut choice = Choice::default();
    for set in sets {
        let is_current = meta::uid(&set.set.metadata).as_ref() == terms.current;
        for machine in set.owned().filter(|machine| !is_leaving(machine)) {
            match is_auto(machine) {
                true if terms.is_rolling && is_current => choice.release.extend(machine.uid()),
                true => kept.push(machine),
                false if is_free(machine) => free.push(machine),
                false => {}
            }
        }
    }
    let newest_first = |machine: &&MachineView<'_>| {
        let created = meta::created(&machine.metadata);
        (std::cmp::Reverse(created), meta::name(&machine.metadata).to_owned())
    };
    let at_most = usize::try_from(terms.at_most).unwrap_or(0);
    kept.sort_by_cached_key(newest_first);
    choice
        .release
        .extend(kept.iter().skip(at_most).filter_map(|machine| machine.uid()));
    let capacity = match terms.is_rolling {
        true => 0,
        false => at_most.saturating_sub(kept.len()),
    };
    free.sort_by_cached_key(newest_first);
    choice
        .take
        .extend(free.iter().filter_map(|machine| machine.uid()).take(capacity));
    choice
}

/// The step that annotates a set's Machines as chosen.
pub(super) fn marks(machines: &[&MachineView<'_>], choice: &Choice) -> Option<super::Step> {
    let mark = |view: &&MachineView<'_>| {
        let uid = view.metadata.uid.as_deref()?;
        let is_kept = choice.take.contains(uid);
        let is_chosen = (is_kept || choice.release.contains(uid)) && view.refusal.is_none();
        is_chosen.then(|| Mark {
            machine: Arc::clone(view.machine),
            is_kept,
        })
    };
    let marks: Vec<Mark> = machines.iter().filter_map(mark).collect();
    (!marks.is_empty()).then_some(super::Step::Keep(marks))
}

/// Whether it is kept without being asked.
pub fn is_auto(machine: &Machine) -> bool {
    meta::annotation(&machine.metadata, keys::PRESERVE) == Some(keys::PRESERVE_AUTO)
}

/// Whether it failed and nobody has said anything about it.
fn is_free(machine: &MachineView<'_>) -> bool {
    if *machine.phase() != Phase::Failed {
        return false;
    }
    let is_told = machine.request.is_some() || machine.preserved_until().is_some();
    let goes = is_exempt(machine) || machine.is_named || machine.is_triggered_for_deletion();
    !is_told && machine.refusal.is_none() && !goes
}
