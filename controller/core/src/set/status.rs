//! What a set's status says (MS-12): `minReadySeconds` is enforced, lists are in the order of names, and terminal
//! faults are in `errorReason` and `errorMessage`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{available_at, is_available};
use super::names::Names;
use super::observed::{MachineView, Observed};
use super::{claim, freeze, growth, keep, repair};
use crate::api::lenient::{Lenient, Word};
use crate::api::machine_set::{MachineSetCondition, MachineSetStatus};
use crate::api::operation::{LastOperation, MachineSummary};
use crate::api::{Machine, MachineSet, OperationState, Phase, keys, meta};
use crate::selector;
use crate::status::{LONGEST_TEXT, LONGEST_WORD, plain, stored_time, text_is_same};

/// Something that keeps the set from what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason of the condition `ReplicaFailure`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Only a person can end it.
    pub terminal: bool,
}

/// A set's status as it is to be, named as in `MachineSetStatus`. The counter of names is not part of it: `Step::Reserve` writes it.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "MachineSetStatus says what each means")]
pub struct StatusChange {
    pub replicas: i32,
    pub fully_labeled_replicas: i32,
    pub ready_replicas: i32,
    pub available_replicas: i32,
    pub preserved_failed_replicas: i32,
    pub auto_preserve_failed_machine_count: i32,
    pub observed_generation: i64,
    pub conditions: Vec<MachineSetCondition>,
    pub failed_machines: Vec<MachineSummary>,
    pub label_selector: Option<String>,
    pub error_reason: Option<String>,
    pub error_message: Option<String>,
    pub settled_machine_number: i64,
    /// When this was decided.
    pub at: Timestamp,
}

/// The status as it is to be, or nothing if it is told already.
pub fn compute(
    seen: &Observed<'_>,
    machines: &[&MachineView<'_>],
    problem: Option<Problem>,
    now: Timestamp,
) -> Option<StatusChange> {
    let set = seen.set;
    let labels = set.spec.template.labels();
    let count = |test: &dyn Fn(&Machine) -> bool| length(machines.iter().filter(|machine| test(machine)).count());
    let labelled = |machine: &Machine| {
        labels
            .iter()
            .all(|(key, value)| meta::label(&machine.metadata, key) == Some(value.as_str()))
    };
    let problem = problem.map(|problem| Problem {
        message: plain(&problem.message, LONGEST_TEXT),
        ..problem
    });
    let conditions = conditions(seen, machines, problem.as_ref(), now);
    let (error_reason, error_message) = problem
        .filter(|problem| problem.terminal)
        .map(|problem| (problem.reason.to_owned(), problem.message))
        .unzip();
    let change = StatusChange {
        replicas: length(machines.len()),
        fully_labeled_replicas: count(&labelled),
        ready_replicas: count(&|machine| *machine.phase() == Phase::Running),
        available_replicas: count(&|machine| is_available(seen, machine, now)),
        preserved_failed_replicas: count(&is_preserved),
        auto_preserve_failed_machine_count: count(&keep::is_auto),
        observed_generation: meta::generation(&set.metadata),
        conditions,
        failed_machines: failed_machines(set, machines.iter().copied()),
        label_selector: set.spec.selector.as_ref().and_then(selector::text),
        error_reason,
        error_message,
        settled_machine_number: settled(seen, now),
        at: now,
    };
    (!change.is_told(set)).then_some(change)
}

impl StatusChange {
    /// Whether the set's status says all of this already.
    fn is_told(&self, set: &MachineSet) -> bool {
        let nothing = MachineSetStatus::default();
        let told = set.status.as_ref().unwrap_or(&nothing);
        self.replicas == told.replicas
            && self.fully_labeled_replicas == told.fully_labeled_replicas
            && self.ready_replicas == told.ready_replicas
            && self.available_replicas == told.available_replicas
            && self.preserved_failed_replicas == told.preserved_failed_replicas
            && self.auto_preserve_failed_machine_count == told.auto_preserve_failed_machine_count
            && self.observed_generation == told.observed_generation
            && self.conditions == told.conditions
            && self.failed_machines == told.failed_machines.as_deref().unwrap_or_default()
            && text_is_same(self.label_selector.as_ref(), told.label_selector.as_ref())
            && text_is_same(self.error_reason.as_ref(), told.error_reason.as_ref())
            && text_is_same(self.error_message.as_ref(), told.error_message.as_ref())
            && self.settled_machine_number == told.settled_machine_number
    }

    /// The body of a JSON merge patch of `/status`.
    pub fn patch(&self) -> Value {
        let failed = Some(&self.failed_machines).filter(|failed| !failed.is_empty());
        json!({ "status": {
            "replicas": self.replicas,
            "fullyLabeledReplicas": self.fully_labeled_replicas,
            "readyReplicas": self.ready_replicas,
            "availableReplicas": self.available_replicas,
            "preservedFailedReplicas": self.preserved_failed_replicas,
            "autoPreserveFailedMachineCount": self.auto_preserve_failed_machine_count,
            "observedGeneration": self.observed_generation,
            "machineSetCondition": self.conditions,
            "failedMachines": failed,
            "labelSelector": self.label_selector,
            "errorReason": self.error_reason,
            "errorMessage": self.error_message,
            "settledMachineNumber": self.settled_machine_number,
            "lastOperation": { "lastUpdateTime": stored_time(self.at) },
        } })
    }
}

/// A number of objects as statuses count them.
pub(crate) fn length(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Failed, and kept for inspection.
pub(crate) fn is_preserved(machine: &Machine) -> bool {
    *machine.phase() == Phase::Failed && machine.preserved_until().is_some()
}

/// When the next running Machine becomes available.
pub fn next_available(seen: &Observed<'_>, machines: &[&MachineView<'_>], now: Timestamp) -> Option<Timestamp> {
    machines
        .iter()
        .filter_map(|machine| available_at(seen, machine))
        .filter(|at| *at > now)
        .min()
}

/// Numbers below this one have all been seen as Machines; from it on, a creation may still be under way. Of one that was sent twice
/// the second may be, though the first was seen: once that Machine is gone, the second would make another one of its name.
fn settled(seen: &Observed<'_>, now: Timestamp) -> i64 {
    let names = Names::of(seen.set);
    let told = seen.set.status.as_ref();
    let (before, next) = told.map_or((0, 0), |told| (told.settled_machine_number, told.next_machine_number));
    let is_open = |number: &i64| {
        let name = names.name(*number);
        !(seen.exists)(&name) || growth::is_open(seen, &name, now)
    };
    (before..next).find(is_open).unwrap_or(next.max(before))
}

/// The Machines whose last operation failed, without those that are kept for inspection.
pub(crate) fn failed_machines<'a>(
    set: &MachineSet,
    machines: impl Iterator<Item = &'a MachineView<'a>>,
) -> Vec<MachineSummary> {
    let failed = machines.filter(|machine| !is_preserved(machine));
    let failed = failed.filter(|machine| machine.operation_state() == Some(OperationState::Failed));
    bounded(failed.map(|machine| MachineSummary {
        name: machine.metadata.name.clone(),
        provider_id: Some(plain(
            machine.spec.provider_id.as_deref().unwrap_or_default(),
            LONGEST_WORD,
        )),
        last_operation: machine.last_operation().map(told),
        owner_ref: set.metadata.name.clone(),
    }))
}

/// An operation as a summary tells it, whoever wrote the Machine's status.
fn told(operation: &LastOperation) -> LastOperation {
    fn word<T: Word>(word: &Lenient<T>) -> Lenient<T> {
        Lenient::from_text(&plain(word.as_str(), LONGEST_WORD))
    }
    LastOperation {
        description: operation.description.as_deref().map(|text| plain(text, LONGEST_TEXT)),
        error_code: operation.error_code.as_deref().map(|code| plain(code, LONGEST_WORD)),
        // Not the original's: where its CRD drops the field, a summary that has it would never be the stored one.
        reason: None,
        last_update_time: operation.last_update_time.clone(),
        state: operation.state.as_ref().map(word),
        type_: operation.type_.as_ref().map(word),
    }
}

/// The first summaries that have room in a status: what an API server stores of one object has an end, and a status beyond that would
/// never be written again.
pub(crate) fn bounded(summaries: impl Iterator<Item = MachineSummary>) -> Vec<MachineSummary> {
    const MOST_BYTES: usize = 192 * 1024;
    let mut left = MOST_BYTES;
    let fits = |summary: &MachineSummary| {
        let bytes = json!(summary).to_string().len();
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    summaries.take_while(fits).collect()
}

/// The conditions with `ReplicaFailure` and `Frozen` set or removed; all others stay as they are.
fn conditions(
    seen: &Observed<'_>,
    machines: &[&MachineView<'_>],
    problem: Option<&Problem>,
    now: Timestamp,
) -> Vec<MachineSetCondition> {
    const OURS: [&str; 4] = [
        keys::CONDITION_REPLICA_FAILURE,
        keys::CONDITION_FROZEN,
        keys::CONDITION_REPLACEMENTS_HELD,
        keys::CONDITION_RELEASED,
    ];
    let stored = seen.set.status.as_ref();
    let foreign = stored.into_iter().flat_map(|status| &status.conditions);
    let foreign = foreign.filter(|condition| !OURS.contains(&condition.type_.as_str()));
    let mut all: Vec<MachineSetCondition> = foreign.cloned().collect();
    let told = |type_: &str, (reason, message): (&str, String)| {
        let known = stored.and_then(|status| status.condition(type_));
        condition(type_, reason, message, known, now)
    };
    let failure = problem.map(|problem| (problem.reason, problem.message.clone()));
    all.extend(failure.map(|said| told(keys::CONDITION_REPLICA_FAILURE, said)));
    all.extend(freeze::condition(seen.set));
    let held = repair::held_back(seen, machines.iter().copied(), now);
    let held = held.map(|text| (keys::REASON_TOO_MANY_UNHEALTHY, text));
    all.extend(held.map(|said| told(keys::CONDITION_REPLACEMENTS_HELD, said)));
    all.extend(released(seen).map(|said| told(keys::CONDITION_RELEASED, said)));
    all
}

/// Which Machines the set released that are still there, and that it releases no more of them.
fn released(seen: &Observed<'_>) -> Option<(&'static str, String)> {
    const NAMED: usize = 5;
    let names: Vec<&str> = claim::released(seen)
        .map(|machine| meta::name(&machine.metadata))
        .collect();
    let named = names.get(..NAMED.min(names.len())).filter(|named| !named.is_empty())?;
    let others = match names.len() - named.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let named = named.join(", ");
    let text = format!(
        "Released because the selector does not match their labels, and left behind when this set is deleted: {named}{others}"
    );
    Some(match claim::holds_back(seen) {
        true => {
            let text =
                format!("{text}. No more are released while these are there: others count whatever their labels are");
            (keys::REASON_TOO_MANY_RELEASED, text)
        }
        false => (keys::REASON_LABELS_CHANGED, text),
    })
}

/// A condition that holds, since when it has for this reason.
fn condition(
    type_: &str,
    reason: &str,
    message: String,
    known: Option<&MachineSetCondition>,
    now: Timestamp,
) -> MachineSetCondition {
    let same = known.filter(|known| known.reason.as_deref() == Some(reason));
    let since = same.and_then(|known| known.last_transition_time.clone());
    MachineSetCondition {
        type_: type_.to_owned(),
        status: keys::STATUS_TRUE.to_owned(),
        last_transition_time: Some(since.unwrap_or_else(|| stored_time(now))),
        reason: Some(reason.to_owned()),
        message: Some(plain(&message, LONGEST_TEXT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: R16.
    #[test]
    fn a_status_has_room_for_some_of_a_thousand_long_failures_and_for_all_of_a_few() {
        let failed = |number: usize| MachineSummary {
            name: Some(format!("m-{number}")),
            owner_ref: Some("x".repeat(1000)),
            ..MachineSummary::default()
        };
        assert_eq!(bounded((0..3).map(failed)).len(), 3);
        let many = bounded((0..1000).map(failed));
        assert!(json!(many).to_string().len() <= 256 * 1024 && many.len() > 100);
    }
}
