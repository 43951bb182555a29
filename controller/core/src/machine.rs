//! One Machine: from intent through VM and node to its removal.
//!
//! `plan` is the map: guards first, then one line per phase. Pure; each phase's file says what it may not do.

pub mod create;
pub mod dead;
pub mod delete;
pub mod drain;
pub mod health;
pub mod in_place;
pub mod join;
pub mod judgement;
pub mod leave;
pub mod life;
pub mod node;
pub mod node_patch;
pub mod node_sync;
pub mod node_template;
pub mod observed;
pub mod outcome;
pub mod preserve;
pub mod status;
pub mod steer;
pub mod step;
pub mod view;
pub mod virtual_capacity;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{Machine, OperationState, OperationType, Phase, keys, meta};
use crate::sight::later;
pub use observed::{ClassView, DriverView, Observed};
pub use outcome::{Lost, Pacing};
pub use status::{Keeping, StatusChange};
pub use step::{Plan, Step, Why};
pub use view::look;

/// Decides what one Machine needs next. Same arguments, same plan.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let machine = seen.machine;
    if meta::is_deleting(&machine.metadata) {
        return delete::plan(seen, now);
    }
    // A VM made before the finalizer is stored would outlive a crash unseen.
    if !meta::has_finalizer(&machine.metadata, keys::FINALIZER) {
        return Plan::act(vec![Step::AddFinalizer], Why::Unguarded);
    }
    if let Some(call) = seen.calls.running {
        return Plan::rest(Why::CallRunning(call));
    }
    if let Some(plan) = from_the_future(seen, now) {
        return plan;
    }
    if let Some(plan) = request_due(seen, now) {
        return plan;
    }
    let plan = in_place::join(seen, by_phase(seen, now), now);
    preserve::join(seen, plan, now)
}

/// What the phase of a Machine that stays asks for.
fn by_phase(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let machine = seen.machine;
    match machine.phase() {
        // Whoever cannot see the Nodes judges none: an absent Node may be there.
        Phase::Running
        | Phase::Unknown
        | Phase::InPlaceUpdating
        | Phase::InPlaceUpdateSuccessful
        | Phase::InPlaceUpdateFailed
            if seen.is_blind() =>
        {
            Plan::rest(Why::TargetAway)
        }
        // It has none, whatever its phase says.
        Phase::Running | Phase::Unknown | Phase::Available if knows_no_vm(machine) => begun_anew(seen, now),
        // A Machine whose Node is awaited is in service only with a Node.
        Phase::Available if seen.awaits_node() => judged_anew(seen, now),
        Phase::Running if seen.is_yet_to_join() && seen.node.is_none() => begun_anew(seen, now),
        Phase::Failed if seen.is_blind() => Plan::rest(Why::Failed),
        Phase::Failed if machine.is_given_up() => health::given_up(seen, now),
        Phase::Failed if has_failed_to_join(machine) => join::late(seen, now),
        Phase::New | Phase::CrashLoopBackOff => create::plan(seen, now),
        // The original writes Pending only after the VM is recorded; ours is the intent that comes before.
        Phase::Pending if !seen.awaits_node() => create::plan(seen, now),
        Phase::Pending => join::plan(seen, now),
        Phase::Running | Phase::Unknown => health::plan(seen, now),
        Phase::Available => health::without_node(seen, now),
        Phase::Failed => Plan::rest(Why::Failed),
        Phase::InPlaceUpdating | Phase::InPlaceUpdateFailed => in_place::at_work(seen, now),
        Phase::InPlaceUpdateSuccessful => in_place::done(seen, now),
        Phase::Terminating | Phase::Other(_) => judged_anew(seen, now),
    }
}

/// A Machine that stays, in a phase of leaving or in one that is not ours: what it carries and its Node say how it is.
fn judged_anew(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if seen.is_blind() {
        return Plan::rest(Why::TargetAway);
    }
    match seen.awaits_node() && !seen.is_yet_to_join() {
        true => health::plan(seen, now),
        false => begun_anew(seen, now),
    }
}

/// Whether it is Failed for its VM or its node that did not come.
fn has_failed_to_join(machine: &Machine) -> bool {
    let (type_, state) = (machine.operation_type(), machine.operation_state());
    type_ == Some(OperationType::Create) && state == Some(OperationState::Failed)
}

/// Whether nothing of a VM is known.
pub fn knows_no_vm(machine: &Machine) -> bool {
    machine.provider_id().is_none() && machine.node_label().is_none() && !machine.has_joined()
}

/// The phase goes back to that of a Machine whose VM is asked for, or found: the request for a VM that is there finds it.
fn begun_anew(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let machine = seen.machine;
    let text = format!("The phase {} does not fit: the machine begins anew", machine.phase());
    let (operation, state) = (OperationType::Create, OperationState::Processing);
    StatusChange::told(machine, operation, state, text, now)
        .entering(Phase::Pending)
        .act(Why::PhaseWrong)
}

/// How far the clocks of two managers may differ before one takes the other's times for wrong.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// A phase that began in the future was written by a clock that was wrong. Every timeout of it would end too late by as much, so
/// it is counted from now. Phases of which nobody reads the time keep it.
fn from_the_future(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    match seen.machine.phase() {
        Phase::Pending
        | Phase::CrashLoopBackOff
        | Phase::Running
        | Phase::Unknown
        | Phase::Failed
        | Phase::InPlaceUpdating
        | Phase::InPlaceUpdateFailed => {}
        Phase::New | Phase::Available | Phase::Terminating | Phase::InPlaceUpdateSuccessful | Phase::Other(_) => {
            return None;
        }
    }
    seen.machine.phase_since().filter(|since| *since > later(now, SKEW))?;
    Some(StatusChange::again(seen.machine, now)?.act(Why::ClockWasWrong))
}

/// The merge patch that puts our finalizer on a Machine. No controller acts on one that has neither finalizer nor status, so all requests
/// for its VM will be recorded. Of one that was begun, whose finalizer somebody has taken, its annotation says whether they are.
pub fn guarded(machine: &Machine) -> Value {
    let mut held = machine.metadata.finalizers.clone().unwrap_or_default();
    held.push(keys::FINALIZER.to_owned());
    let is_begun = machine.last_operation().is_some() || !machine.phase().is_new();
    if is_begun {
        return json!({ "metadata": { "finalizers": held } });
    }
    json!({ "metadata": { "finalizers": held, "annotations": { keys::REQUESTS_RECORDED: keys::PRESENT } } })
}

/// Stores `status.creationRequest` of a Machine whose VM another controller made, or whose record names no inventory, once a listing or a
/// watch through its class has shown the VM ([`Calls::reached`]).
fn request_due(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let (has, reached) = (seen.machine.creation_request(), seen.calls.reached.as_deref()?);
    if !seen.machine.phase().is_there() || has.is_some_and(|has| has.inventory_key.is_some() || has == reached) {
        return None;
    }
    let change = StatusChange::same(seen.machine, now)?.with_request(reached);
    Some(change.act(Why::VmReached))
}
