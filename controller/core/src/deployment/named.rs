//! Machines that the autoscaler wants deleted: who they are, how they are marked, and when the list forgets them.
//!
//! MD-9. The list is an annotation of the deployment, `name~time,…`. Whom it
//! names goes, and is never exchanged for another (S16): sets delete named Machines whatever their count is. A name stays on the
//! list until its Machine is on its way, and one that is not known yet stays for as long as a view may lag.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::observed::{Mark, Observed, Step};
use crate::api::{MachineDeployment, keys, meta};
use crate::ledger::LINGERS;
use crate::set::facts::is_leaving;
use crate::set::{self, MachineView};
use crate::sight::later;

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<'a> {
    name: &'a str,
    /// As it was written; the time of the scaler's last change where an entry of the old form has none.
    time: &'a str,
}

fn entries(deployment: &MachineDeployment) -> Vec<Entry<'_>> {
    let annotation = |key| meta::annotation(&deployment.metadata, key).unwrap_or_default();
    let scaler = annotation(keys::SCALER_CHANGE_TIME);
    let entries = annotation(keys::TRIGGER_DELETION).split(',').map(str::trim);
    let entries = entries.filter(|entry| !entry.is_empty()).map(|entry| {
        let (name, time) = entry
            .split_once(keys::TRIGGER_DELETION_SEPARATOR)
            .unwrap_or((entry, scaler));
        Entry { name, time }
    });
    entries.collect()
}

/// Says of the Machines of a set whether the deployment's list names them.
pub fn tell(deployment: &MachineDeployment, machines: &mut [MachineView<'_>]) {
    let names: BTreeSet<&str> = entries(deployment).into_iter().map(|entry| entry.name).collect();
    for view in machines {
        let is_listed = names.contains(meta::name(&view.metadata));
        view.is_named = is_listed && view.is_own;
    }
}

/// The steps that mark named Machines and that shorten the list.
pub fn tend(seen: &Observed<'_>, sets: &[&set::Observed<'_>], now: Timestamp) -> Vec<Step> {
    let entries = entries(seen.deployment);
    if entries.is_empty() && meta::annotation(&seen.deployment.metadata, keys::TRIGGER_DELETION).is_none() {
        return Vec::new();
    }
    let find = |entry: &Entry<'_>| {
        let mut machines = sets.iter().flat_map(|member| member.owned());
        machines.find(|machine| meta::name(&machine.metadata) == entry.name)
    };
    let stays = |entry: &&Entry<'_>| match find(entry) {
        Some(machine) => !is_leaving(machine),
        None => may_be_unseen(entry, now),
    };
    let marks: Vec<Mark> = entries
        .iter()
        .filter(stays)
        .filter_map(|entry| mark(entry, find(entry)?, now))
        .collect();
    let kept: Vec<&Entry<'_>> = entries.iter().filter(stays).collect();
    let mark = (!marks.is_empty()).then_some(Step::Mark(marks));
    let prune = (kept.len() < entries.len() || entries.is_empty()).then(|| Step::Prune(text(&kept)));
    mark.into_iter().chain(prune).collect()
}

/// A name that is not known, named so short a time ago that our view may lag behind the autoscaler's.
fn may_be_unseen(entry: &Entry<'_>, now: Timestamp) -> bool {
    let time = entry.time.parse::<Timestamp>();
    time.is_ok_and(|time| time <= now && now < later(time, LINGERS))
}

fn mark(entry: &Entry<'_>, view: &MachineView<'_>, now: Timestamp) -> Option<Mark> {
    let is_marked = view.is_triggered_for_deletion() && view.marked_for_deletion().is_some();
    if is_marked || view.refusal.is_some_and(|refusal| refusal.holds(now)) {
        return None;
    }
    let time = match entry.time.parse::<Timestamp>() {
        Ok(_) => entry.time.to_owned(),
        Err(_) => format!("{now:.0}"),
    };
    let machine = Arc::clone(view.machine);
    Some(Mark { machine, time })
}

fn text(entries: &[&Entry<'_>]) -> Option<String> {
    let separator = keys::TRIGGER_DELETION_SEPARATOR;
    let entries = entries.iter().map(|entry| match entry.time {
        "" => entry.name.to_owned(),
        time => format!("{}{separator}{time}", entry.name),
    });
    let entries: Vec<String> = entries.collect();
    (!entries.is_empty()).then(|| entries.join(","))
}
