//! How many Machines a set makes or removes now.
//!
//! Source: `spec/machineset.md` §2 and §7; the budget S4: after any prefix of the steps the set controls no more
//! Machines that are not leaving than it wants, or than it had. Deletions therefore come before creations, a deleting
//! Machine does not count (§12.11 there), and creations are named by the counter (`set::names`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::bring::bring;
use super::claim::{Claimed, claim};
use super::names::machine_name;
use super::observed::{Observed, Plan, Step, Why};
use super::{rank, status};
use crate::api::{API_VERSION, Machine, MachineSet, Phase, keys, meta};
use crate::ids::{Name, Uid};
use crate::selector::Matcher;

/// A Machine that failed is kept this long, so that a class whose every VM fails does not make and remove Machines in a
/// tight circle.
const REPLACE_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Changes of the counts within this time become one status write.
const STATUS_PACE: SignedDuration = SignedDuration::from_millis(250);

/// Decides what a set needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let set = seen.set;
    if !meta::is_deleting(&set.metadata) {
        return match fault(set) {
            Some(fault) => invalid(seen, fault, now),
            None => serve(seen, now),
        };
    }
    if !meta::has_finalizer(&set.metadata, keys::FINALIZER) {
        return Plan {
            steps: Vec::new(),
            wake: None,
            why: Why::Empty,
        };
    }
    // A set that goes takes along what it controls, whatever its selector says today.
    let owned = owned(seen);
    if owned.is_empty() {
        return Plan {
            steps: vec![Step::RemoveFinalizer],
            wake: None,
            why: Why::Empty,
        };
    }
    let staying = owned
        .iter()
        .filter(|machine| !meta::is_deleting(&machine.metadata))
        .map(Arc::as_ref);
    let mut steps: Vec<Step> = deletion(staying).into_iter().collect();
    let wake = record(seen, &owned, None, now, &mut steps);
    Plan {
        steps,
        wake,
        why: Why::Emptying,
    }
}

fn owned(seen: &Observed<'_>) -> Vec<Arc<Machine>> {
    let own = meta::uid(&seen.set.metadata);
    let is_own = |machine: &&Arc<Machine>| own.is_some() && meta::controller_uid(&machine.metadata) == own;
    seen.machines.iter().filter(is_own).cloned().collect()
}

/// What could never work (`spec/api.md` §8), in words.
fn fault(set: &MachineSet) -> Option<String> {
    let Some(selector) = &set.spec.selector else {
        return Some("spec.selector is missing: it must select the template's labels".to_owned());
    };
    if set.spec.replicas < 0 {
        return Some(format!(
            "spec.replicas is {}: it must not be negative",
            set.spec.replicas
        ));
    }
    let matcher = match Matcher::new(selector) {
        Ok(matcher) => matcher,
        Err(error) => return Some(format!("spec.selector {error}")),
    };
    if matcher.selects_all() {
        return Some("spec.selector is empty: it would select every machine".to_owned());
    }
    if !matcher.matches(&set.spec.template.labels()) {
        return Some("spec.selector does not match spec.template.metadata.labels".to_owned());
    }
    let class = set.spec.template.class();
    let named = class.as_ref().is_some_and(|class| class.is_named());
    (!named).then(|| "spec.template.spec.class must have a kind and a name".to_owned())
}

fn invalid(seen: &Observed<'_>, fault: String, now: Timestamp) -> Plan {
    let owned = owned(seen);
    let mut steps = Vec::new();
    let problem = status::Problem {
        reason: "InvalidConfiguration",
        message: fault.clone(),
        terminal: true,
    };
    let wake = record(seen, &owned, Some(problem), now, &mut steps);
    Plan {
        steps,
        wake,
        why: Why::Invalid(fault),
    }
}

/// A valid set that stays.
fn serve(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let set = seen.set;
    let mut steps = Vec::new();
    let guarded = meta::has_finalizer(&set.metadata, keys::FINALIZER);
    if !guarded {
        steps.push(Step::AddFinalizer);
    }
    let selector = set
        .spec
        .selector
        .as_ref()
        .and_then(|selector| Matcher::new(selector).ok());
    let Claimed {
        machines,
        steps: claims,
    } = match &selector {
        Some(selector) => claim(set, selector, seen.machines),
        None => Claimed::default(),
    };
    let claiming = !claims.is_empty();
    steps.extend(claims);
    let template = set.spec.template.spec();
    let brought = machines.iter().filter_map(|machine| bring(set, &template, machine));
    steps.extend(brought.map(|(machine, body)| Step::Bring(machine, body)));
    let present: Vec<&Machine> = machines
        .iter()
        .map(Arc::as_ref)
        .filter(|machine| !is_leaving(machine))
        .collect();
    let (victims, retry) = victims(set, &present, now);
    let failed = victims.len();
    let kept: Vec<&Machine> = present
        .iter()
        .filter(|machine| !is_among(machine, &victims))
        .copied()
        .collect();
    let wanted = usize::try_from(set.spec.replicas).unwrap_or(0);

    let mut why = Why::Settled;
    if kept.len() > wanted {
        let by = kept.len() - wanted;
        let movable = kept.iter().copied().filter(|machine| !is_exempt(machine));
        let mut leaving = rank::rank(
            movable,
            seen.condemned,
            set.spec.delete_policy.as_ref().and_then(|policy| policy.known()),
            now,
        );
        leaving.truncate(by);
        steps.extend(deletion(victims.into_iter().chain(leaving)));
        why = Why::TooMany { by };
    } else {
        if failed > 0 {
            why = Why::Replacing { failed };
        }
        steps.extend(deletion(victims.into_iter()));
    }
    let mut problem = None;
    if kept.len() < wanted {
        // Adoptions change the count; what they bring is known in the next pass.
        why = if claiming {
            Why::Claiming
        } else {
            grow(seen, wanted - kept.len(), &mut steps)
        };
        problem = problem_of(seen, &why);
    }
    let written = record(seen, &machines, problem, now, &mut steps);
    let wake = [retry, written, status::next_available(set, &machines, now)]
        .into_iter()
        .flatten()
        .min();
    Plan { steps, wake, why }
}

fn is_leaving(machine: &Machine) -> bool {
    meta::is_deleting(&machine.metadata) || *machine.phase() == Phase::Terminating
}

fn is_among(machine: &Machine, others: &[&Machine]) -> bool {
    others.iter().any(|other| other.metadata.uid == machine.metadata.uid)
}

/// In the hands of the deployment's in-place transfer: never deleted (`spec/machineset.md` §7).
fn is_exempt(machine: &Machine) -> bool {
    meta::label(&machine.metadata, keys::UPDATE_RESULT) == Some(keys::UPDATE_SUCCESSFUL)
}

/// Machines to replace whatever the count is: failed ones, and those that the autoscaler marked (§7.4, §7.5 there).
/// The second value is when a Machine that failed just now may go.
fn victims<'a>(set: &MachineSet, present: &[&'a Machine], now: Timestamp) -> (Vec<&'a Machine>, Option<Timestamp>) {
    let change =
        meta::annotation(&set.metadata, keys::SCALER_CHANGE_TIME).and_then(|text| text.parse::<Timestamp>().ok());
    let mut retry: Option<Timestamp> = None;
    let mut victims = Vec::new();
    for machine in present.iter().copied().filter(|machine| !is_exempt(machine)) {
        let triggered = machine.is_triggered_for_deletion();
        let marked = machine
            .marked_for_deletion()
            .zip(change)
            .is_some_and(|(marked, change)| marked <= change);
        if triggered && marked {
            victims.push(machine);
        } else if *machine.phase() == Phase::Failed && !is_preserved(machine, now) {
            let due = machine
                .phase_since()
                .map(|since| since + REPLACE_AFTER)
                .filter(|due| *due > now);
            match due {
                Some(due) => retry = Some(retry.map_or(due, |sooner| sooner.min(due))),
                None => victims.push(machine),
            }
        }
    }
    (victims, retry)
}

/// Kept for inspection: its time runs, or it is about to be set (§7.5 there).
fn is_preserved(machine: &Machine, now: Timestamp) -> bool {
    if let Some(until) = machine.preserved_until() {
        return until > now;
    }
    let asked = meta::annotation(&machine.metadata, keys::PRESERVE).unwrap_or_default();
    [keys::PRESERVE_NOW, keys::PRESERVE_WHEN_FAILED, keys::PRESERVE_AUTO].contains(&asked)
}

fn deletion<'a>(machines: impl Iterator<Item = &'a Machine>) -> Option<Step> {
    let leaving: Vec<(Name, Uid)> = machines.map(|machine| meta::identity(&machine.metadata)).collect();
    (!leaving.is_empty()).then_some(Step::Delete(leaving))
}

/// Adds the steps that create `by` Machines, or says why not.
fn grow(seen: &Observed<'_>, by: usize, steps: &mut Vec<Step>) -> Why {
    let label = |key| meta::label(&seen.set.metadata, key);
    if label(keys::FREEZE) == Some(keys::TRUE) || label(keys::SCALE_UP_DISABLED).is_some() {
        return Why::Frozen;
    }
    if let Some(refusal) = seen.refusal {
        return Why::ClassRefused(refusal.to_owned());
    }
    if seen.class_unchecked {
        return Why::ClassUnchecked;
    }
    let counted = seen.set.status.as_ref().map_or(0, |status| status.next_machine_number);
    let (names, next) = choose(seen, by, counted);
    if next > counted {
        steps.push(Step::Reserve { next });
    }
    steps.push(Step::Create(names.iter().map(|name| body(seen.set, name)).collect()));
    Why::TooFew { by }
}

/// Names for `by` Machines and the counter after them. Numbers that were reserved and whose Machine was never seen come
/// first: a request of an earlier process may still be under way, and must meet ours.
fn choose(seen: &Observed<'_>, by: usize, counted: i64) -> (Vec<String>, i64) {
    let set = seen.set;
    let (title, own) = meta::identity(&set.metadata);
    let settled = set
        .status
        .as_ref()
        .map_or(0, |status| status.settled_machine_number)
        .min(counted);
    let mut names = Vec::new();
    let mut number = settled;
    while names.len() < by {
        let name = machine_name(title.as_str(), &own, number);
        if !(seen.exists)(&name) {
            names.push(name);
        }
        number += 1;
    }
    (names, number.max(counted))
}

/// The Machine as it is posted: with its finalizer, owner and labels, so that no moment passes without them
/// (`spec/machineset.md` §7.2; §12.17 there).
fn body(set: &MachineSet, name: &str) -> Value {
    let template = &set.spec.template;
    let mut annotations = template.annotations();
    annotations
        .entry(keys::PRIORITY.to_owned())
        .or_insert_with(|| keys::PRIORITY_DEFAULT.to_owned());
    let mut spec = template.spec_json();
    if let Some(timeout) = meta::annotation(&set.metadata, keys::EFFECTIVE_CREATION_TIMEOUT) {
        annotations.insert(keys::EFFECTIVE_CREATION_TIMEOUT.to_owned(), timeout.to_owned());
        let valid = crate::api::lenient::GoDuration::from_text(timeout).get().is_ok();
        if valid {
            spec.insert("creationTimeout".to_owned(), json!(timeout));
        }
    }
    let mut finalizers = template.finalizers();
    if !finalizers.iter().any(|finalizer| finalizer == keys::FINALIZER) {
        finalizers.push(keys::FINALIZER.to_owned());
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": set.metadata.namespace,
            "labels": template.labels(),
            "annotations": annotations,
            "finalizers": finalizers,
            "ownerReferences": [owner_reference(set)],
        },
        "spec": spec,
    })
}

/// The set as the controller of a Machine. It must stand first in the list: the autoscaler reads index 0.
pub fn owner_reference(set: &MachineSet) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "MachineSet",
        "name": set.metadata.name,
        "uid": set.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn problem_of(seen: &Observed<'_>, why: &Why) -> Option<status::Problem> {
    match why {
        Why::ClassRefused(fault) => {
            let message = format!("No machine can be made of the class: {fault}");
            Some(status::Problem {
                reason: "MachineClassRefused",
                message,
                terminal: false,
            })
        }
        _ => seen.refused.map(|(message, _)| status::Problem {
            reason: "FailedCreate",
            message: message.clone(),
            terminal: false,
        }),
    }
}

/// Adds the status write, if one is due. Returns when it will be, if it has to wait.
fn record(
    seen: &Observed<'_>,
    machines: &[Arc<Machine>],
    problem: Option<status::Problem>,
    now: Timestamp,
    steps: &mut Vec<Step>,
) -> Option<Timestamp> {
    let patch = status::compute(seen, machines, problem, now)?;
    // A plan that changes what is counted is followed by another, which counts again.
    let acts = steps.iter().any(|step| {
        matches!(
            step,
            Step::Create(_) | Step::Delete(_) | Step::Adopt(..) | Step::Reserve { .. }
        )
    });
    let due = seen.status_written.map(|at| at + STATUS_PACE).filter(|due| *due > now);
    match due {
        Some(due) => Some(due),
        None if acts => Some(now + STATUS_PACE),
        None => {
            steps.push(Step::Record(patch));
            None
        }
    }
}
