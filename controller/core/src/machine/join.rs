//! A VM exists and its node has not joined: initialise, wait, time out.
//!
//! May not: create a VM, or fail a Machine whose node is there (that is `health`'s). Source: `spec/machine.md` §1.2
//! T6a and T8, §3.4 step 7, §4.2; W19 (initialisation is never skipped), W42 (a Node counts by its providerID).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::observed::{Call, ClassView, DriverView, Observed};
use super::status::StatusChange;
use super::step::{Plan, Step, Why};
use super::{create, node};
use crate::api::lenient::GoDuration;
use crate::api::{OperationState, OperationType, Phase, meta};
use crate::class::Readiness;
use crate::driver::{Capability, Initialization, VmState};

/// Decides what a Machine in phase `Pending` with a recorded VM needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if let Some(plan) = uninitialized(seen, now) {
        return plan;
    }
    // A Node that is on its way out is none that has joined.
    let staying = seen.node.filter(|joined| joined.metadata.deletion_timestamp.is_none());
    if let Some(joined) = staying.filter(|joined| node::belongs(joined, seen.machine)) {
        return met(seen, joined, now);
    }
    let foreign = seen.node.is_some();
    let deadline = seen.machine.phase_since().unwrap_or(now) + super::creation_timeout(seen);
    if now >= deadline {
        return timed_out(seen, now);
    }
    if let Some(vm) = &seen.calls.vm {
        if vm.state == VmState::Failed {
            return create::plan(seen, now);
        }
        if let Some(identify) = create::identify(seen, vm) {
            return Plan::act(vec![identify], Why::VmMade);
        }
    }
    let why = if foreign { Why::NodeForeign } else { Why::Joining };
    match seen.calls.poll_at {
        Some(at) if now >= at && matches!(seen.driver, DriverView::Ready(_)) => {
            Plan::act(vec![Step::Call(Call::Status)], Why::VmBooting).or_at(Some(deadline))
        }
        poll_at => Plan::wait(deadline, why).or_at(poll_at.filter(|at| now < *at)),
    }
}

/// InitializeMachine has work to do, or nobody knows: the knowledge died with an earlier process.
fn uninitialized(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let DriverView::Ready(info) = seen.driver else {
        return None;
    };
    if !info.capabilities.contains(&Capability::InitializeMachine) {
        return None;
    }
    let call = match seen.calls.vm.as_ref().map(|vm| vm.initialization) {
        None => Call::Status,
        Some(Initialization::Pending) => Call::Initialize,
        Some(Initialization::NotNeeded | Initialization::Done) => return None,
    };
    let Some(trouble) = seen.calls.trouble.as_ref().filter(|trouble| trouble.call == call) else {
        return Some(Plan::act(vec![Step::Call(call)], Why::NotInitialized));
    };
    // The original's text (T4), so that its readers find it.
    let text = format!("Provider error: {}. Initialize VM Instance", trouble.failure.message);
    let change = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now)
        .with_code(trouble.failure.word())
        .with_crumb(trouble.failure.last_known_state.as_ref());
    let mut plan = Plan::wait(trouble.retry_at, Why::InitializationFailed);
    if !change.is_told(seen.machine) {
        plan.steps.push(Step::Record(Box::new(change)));
    } else if now >= trouble.retry_at {
        plan = Plan::act(vec![Step::Call(call)], Why::NotInitialized);
    }
    Some(plan)
}

/// The Machine's own Node is there.
fn met(seen: &Observed<'_>, joined: &Node, now: Timestamp) -> Plan {
    let deadline = seen.machine.phase_since().unwrap_or(now) + super::creation_timeout(seen);
    let healthy = node::is_healthy(joined, &super::node_conditions(seen));
    if !healthy || node::is_gated(joined) {
        if now >= deadline {
            return timed_out(seen, now);
        }
        return Plan::wait(deadline, if healthy { Why::NodeGated } else { Why::NodeNotReady });
    }
    let mut steps = Vec::new();
    if let Some(name) = node::unguarded(joined, seen.machine) {
        steps.push(Step::GuardNode(name));
    }
    // The token goes before the success is told: a Machine that says Running has none left.
    if needs_token(seen) {
        steps.push(Step::DropToken);
    }
    let took = now.duration_since(meta::created(&seen.machine.metadata).unwrap_or(now));
    let text = format!(
        "The machine joined the cluster in {}",
        GoDuration::from(node::whole_seconds(took))
    );
    let change = StatusChange::told(
        seen.machine,
        OperationType::Create,
        OperationState::Successful,
        text,
        now,
    )
    .entering(seen.machine, Phase::Running)
    .with_conditions(node::conditions(joined));
    steps.push(Step::Record(Box::new(change)));
    Plan::act(steps, Why::Joined)
}

/// Whether a bootstrap token may have been made for the Machine.
fn needs_token(seen: &Observed<'_>) -> bool {
    match seen.class {
        ClassView::Present {
            readiness: Readiness::Ready(recipe),
            ..
        } => recipe.needs_token,
        ClassView::Present { .. } | ClassView::Missing(_) | ClassView::Unnamed => true,
    }
}

fn timed_out(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let timeout = GoDuration::from(super::creation_timeout(seen));
    let text = format!("The machine failed to join the cluster in {timeout}");
    let change = StatusChange::told(seen.machine, OperationType::Create, OperationState::Failed, text, now)
        .entering(seen.machine, Phase::Failed);
    Plan::act(vec![Step::Record(Box::new(change))], Why::JoinTimedOut)
}
