//! Machines that the autoscaler wants deleted: who they are, how they are marked, and when the list forgets them.
//!
//! Source: `spec/machinedeployment.md` §3, `spec/api.md` §10.5. The list is an annotation of the deployment, `name~time,…`. Whom it
//! names goes, and is never exchanged for another (S16): sets delete named Machines whatever their count is. A name stays on the
//! list until its Machine is on its way, and one that is not known yet stays for as long as a view may lag.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::observed::{Mark, Observed, Step};
use crate::api::{Machine, MachineDeployment, keys, meta};
use crate::ids::Uid;
use crate::ledger::LINGERS;
use crate::set;
use crate::set::plan::{is_leaving, owned};
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

/// Machines of a set that the deployment's list names and that are not on their way.
pub fn named(deployment: &MachineDeployment, machines: &[Arc<Machine>]) -> BTreeSet<Uid> {
    let names: BTreeSet<&str> = entries(deployment).into_iter().map(|entry| entry.name).collect();
    if names.is_empty() {
        return BTreeSet::new();
    }
    let listed = machines
        .iter()
        .filter(|machine| names.contains(meta::name(&machine.metadata)));
    listed.filter_map(|machine| machine.uid()).collect()
}

/// The steps that mark named Machines and that shorten the list.
pub fn tend(seen: &Observed<'_>, sets: &[&set::Observed<'_>], now: Timestamp) -> Vec<Step> {
    let entries = entries(seen.deployment);
    if entries.is_empty() && meta::annotation(&seen.deployment.metadata, keys::TRIGGER_DELETION).is_none() {
        return Vec::new();
    }
    let machines: Vec<Arc<Machine>> = sets.iter().flat_map(|member| owned(member)).collect();
    let find = |entry: &Entry<'_>| {
        let mut machines = machines.iter();
        machines.find(|machine| meta::name(&machine.metadata) == entry.name)
    };
    let stays = |entry: &&Entry<'_>| match find(entry) {
        Some(machine) => !is_leaving(machine),
        None => may_be_unseen(entry, now),
    };
    let marks: Vec<Mark> = entries
        .iter()
        .filter(stays)
        .filter_map(|entry| mark(entry, find(entry)?, sets, now))
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

fn mark(entry: &Entry<'_>, machine: &Arc<Machine>, sets: &[&set::Observed<'_>], now: Timestamp) -> Option<Mark> {
    let is_marked = machine.is_triggered_for_deletion() && machine.marked_for_deletion().is_some();
    let refusal = machine
        .uid()
        .and_then(|uid| sets.first()?.refusals.get(&uid).filter(|refusal| refusal.holds(now)));
    if is_marked || refusal.is_some() {
        return None;
    }
    let time = match entry.time.parse::<Timestamp>() {
        Ok(_) => entry.time.to_owned(),
        Err(_) => format!("{now:.0}"),
    };
    let machine = Arc::clone(machine);
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
