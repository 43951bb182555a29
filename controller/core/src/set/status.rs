//! What a set's status says. Source: `spec/machineset.md` §9, with `minReadySeconds` enforced (seed 002), lists in the
//! order of names (§12.5 there) and terminal faults in `errorReason` and `errorMessage`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::names::machine_name;
use super::observed::Observed;
use super::{freeze, repair};
use crate::api::machine_set::MachineSetCondition;
use crate::api::{Machine, MachineSet, OperationState, Phase, keys, meta};
use crate::ids::Name;
use crate::ledger::LINGERS;
use crate::selector;
use crate::sight::later;

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

/// The status as a merge patch of `/status`, or nothing if it is told already.
pub fn compute(
    seen: &Observed<'_>,
    machines: &[Arc<Machine>],
    problem: Option<Problem>,
    now: Timestamp,
) -> Option<StatusPatch> {
    let set = seen.set;
    let labels = set.spec.template.labels();
    let count = |test: &dyn Fn(&Machine) -> bool| machines.iter().filter(|machine| test(machine)).count();
    let labelled = |machine: &Machine| {
        labels
            .iter()
            .all(|(key, value)| meta::label(&machine.metadata, key) == Some(value.as_str()))
    };
    let preserved = |machine: &Machine| *machine.phase() == Phase::Failed && machine.preserved_until().is_some();
    let auto = |machine: &Machine| meta::annotation(&machine.metadata, keys::PRESERVE) == Some(keys::PRESERVE_AUTO);
    let stored = set.status.as_ref();

    let mut status = Map::new();
    status.insert("replicas".into(), json!(machines.len()));
    status.insert("fullyLabeledReplicas".into(), json!(count(&labelled)));
    status.insert(
        "readyReplicas".into(),
        json!(count(&|machine| *machine.phase() == Phase::Running)),
    );
    status.insert(
        "availableReplicas".into(),
        json!(count(&|machine| is_available(set, machine, now))),
    );
    status.insert("preservedFailedReplicas".into(), json!(count(&preserved)));
    status.insert("autoPreserveFailedMachineCount".into(), json!(count(&auto)));
    status.insert("observedGeneration".into(), json!(meta::generation(&set.metadata)));
    status.insert("failedMachines".into(), failed_machines(set, machines, &preserved));
    status.insert(
        "machineSetCondition".into(),
        conditions(seen, machines, problem.as_ref(), now),
    );
    status.insert(
        "labelSelector".into(),
        json!(set.spec.selector.as_ref().and_then(selector::text)),
    );
    status.insert(
        "settledMachineNumber".into(),
        json!(settled(
            seen,
            stored.map_or(0, |status| status.settled_machine_number),
            now
        )),
    );
    let terminal = problem.filter(|problem| problem.terminal);
    status.insert(
        "errorReason".into(),
        json!(terminal.as_ref().map(|problem| problem.reason)),
    );
    status.insert(
        "errorMessage".into(),
        json!(terminal.as_ref().map(|problem| problem.message.as_str())),
    );

    let before = serde_json::to_value(stored).unwrap_or_default();
    if status.iter().all(|(field, value)| is_same(before.get(field), value)) {
        return None;
    }
    status.insert("lastOperation".into(), json!({ "lastUpdateTime": format!("{now:.0}") }));
    Some(StatusPatch(status))
}

/// A status as it is to be: the fields that one write sets, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPatch(pub(crate) Map<String, Value>);

impl StatusPatch {
    /// One field of the status.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The body of a JSON merge patch of `/status`. `json!` would copy it, field by field.
    pub fn into_patch(self) -> Value {
        Value::Object(Map::from_iter([("status".to_owned(), Value::Object(self.0))]))
    }
}

/// Absent, null, zero and empty say the same, as Go's writers leave them out.
pub(crate) fn is_same(before: Option<&Value>, now: &Value) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Object(_) => false,
    };
    match before {
        None => empty(now),
        Some(before) => before == now || (empty(before) && empty(now)),
    }
}

/// Running for `minReadySeconds`, or made where no node is expected.
pub fn is_available(set: &MachineSet, machine: &Machine, now: Timestamp) -> bool {
    available_at(set, machine).is_some_and(|at| at <= now)
}

fn available_at(set: &MachineSet, machine: &Machine) -> Option<Timestamp> {
    let wait = SignedDuration::from_secs(i64::from(set.spec.min_ready_seconds.max(0)));
    match machine.phase() {
        Phase::Available => Some(Timestamp::MIN),
        Phase::Running if wait.is_zero() => Some(Timestamp::MIN),
        Phase::Running => machine.phase_since().map(|since| later(since, wait)),
        Phase::New
        | Phase::Pending
        | Phase::Unknown
        | Phase::Failed
        | Phase::CrashLoopBackOff
        | Phase::Terminating
        | Phase::InPlaceUpdating
        | Phase::InPlaceUpdateSuccessful
        | Phase::InPlaceUpdateFailed
        | Phase::Other(_) => None,
    }
}

/// When the next running Machine becomes available.
pub fn next_available(set: &MachineSet, machines: &[Arc<Machine>], now: Timestamp) -> Option<Timestamp> {
    machines
        .iter()
        .filter_map(|machine| available_at(set, machine))
        .filter(|at| *at > now)
        .min()
}

/// Numbers below this one have all been seen as Machines; from it on, a creation may still be under way. Of one that was sent twice
/// the second may be, though the first was seen: once that Machine is gone, the second would make another one of its name.
fn settled(seen: &Observed<'_>, before: i64, now: Timestamp) -> i64 {
    let (title, own) = meta::identity(&seen.set.metadata);
    let next = seen.set.status.as_ref().map_or(0, |status| status.next_machine_number);
    let is_open = |number: &i64| {
        let name = machine_name(title.as_str(), &own, *number);
        let sent = seen.unanswered.get(&Name::new(&*name));
        !(seen.exists)(&name) || sent.is_some_and(|sent| now < later(*sent, LINGERS))
    };
    (before..next).find(is_open).unwrap_or(next.max(before))
}

pub(crate) fn failed_machines(
    set: &MachineSet,
    machines: &[Arc<Machine>],
    preserved: &dyn Fn(&Machine) -> bool,
) -> Value {
    let failed = machines
        .iter()
        .filter(|machine| !preserved(machine))
        .filter_map(|machine| {
            let operation = machine.status.as_ref()?.last_operation.as_ref()?;
            (machine.operation_state() == Some(OperationState::Failed)).then(|| {
                json!({
                    "name": machine.metadata.name,
                    "providerID": machine.spec.provider_id.clone().unwrap_or_default(),
                    "lastOperation": operation,
                    "ownerRef": set.metadata.name,
                })
            })
        });
    let failed: Vec<Value> = failed.collect();
    if failed.is_empty() {
        Value::Null
    } else {
        Value::Array(failed)
    }
}

/// The conditions with `ReplicaFailure` and `Frozen` set or removed; all others stay as they are.
fn conditions(seen: &Observed<'_>, machines: &[Arc<Machine>], problem: Option<&Problem>, now: Timestamp) -> Value {
    const OURS: [&str; 3] = [
        keys::CONDITION_REPLICA_FAILURE,
        keys::CONDITION_FROZEN,
        keys::CONDITION_REPLACEMENTS_HELD,
    ];
    let stored = seen.set.status.as_ref();
    let stored = stored.map_or(&[][..], |status| status.conditions.as_slice());
    let is_ours = |condition: &&MachineSetCondition| OURS.contains(&condition.type_.as_str());
    let foreign = stored.iter().filter(|condition| !is_ours(condition));
    let mut all: Vec<Value> = foreign.map(|condition| json!(condition)).collect();
    let known = |type_: &str| stored.iter().find(|condition| condition.type_ == type_);
    all.extend(problem.map(|problem| {
        let known = known(keys::CONDITION_REPLICA_FAILURE);
        condition(
            keys::CONDITION_REPLICA_FAILURE,
            problem.reason,
            &problem.message,
            known,
            now,
        )
    }));
    all.extend(frozen(seen, machines, problem, known(keys::CONDITION_FROZEN), now));
    all.extend(repair::held_back(seen, machines, now).map(|tripped| {
        let text = format!("Unhealthy machines are kept while {tripped}");
        let known = known(keys::CONDITION_REPLACEMENTS_HELD);
        let (type_, reason) = (keys::CONDITION_REPLACEMENTS_HELD, keys::REASON_TOO_MANY_UNHEALTHY);
        condition(type_, reason, &text, known, now)
    }));
    Value::Array(all)
}

/// The condition `Frozen`, while it holds. While the label is there that a controller put beside it, it stays as it is: without
/// it, the label would pass for a person's.
fn frozen(
    seen: &Observed<'_>,
    machines: &[Arc<Machine>],
    problem: Option<&Problem>,
    known: Option<&MachineSetCondition>,
    now: Timestamp,
) -> Option<Value> {
    if freeze::is_labelled(seen.set) && freeze::is_told(seen.set) {
        return known.map(|known| json!(known));
    }
    let is_refused = problem.is_some_and(|problem| problem.reason == keys::REASON_FAILED_DELETE);
    let overshoot = freeze::overshoot(seen, machines, is_refused)?;
    let text = format!(
        "The number of machines backing MachineSet: {} is {} >= {} which is the Max-ScaleUp-Limit",
        meta::name(&seen.set.metadata),
        overshoot.count,
        overshoot.limit
    );
    Some(condition(
        keys::CONDITION_FROZEN,
        keys::REASON_OVERSHOOTING,
        &text,
        known,
        now,
    ))
}

/// A condition that holds, since when it has for this reason.
fn condition(type_: &str, reason: &str, message: &str, known: Option<&MachineSetCondition>, now: Timestamp) -> Value {
    let same = known.filter(|known| known.reason.as_deref() == Some(reason));
    let since = same
        .and_then(|known| known.last_transition_time.as_ref())
        .map(|time| json!(time));
    json!({
        "type": type_,
        "status": keys::STATUS_TRUE,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| json!(format!("{now:.0}"))),
    })
}
