//! A Machine that gets its deployment's new template without a new VM: it is drained, an agent on the node updates it, and it goes on.
//!
//! | phase | condition `InPlaceUpdate` | labels of the Node | what is done |
//! |---|---|---|---|
//! | Running | none, or of an earlier update | candidate | the condition says CandidateForUpdate |
//! | the same | any of these | and selected | it says SelectedForUpdate |
//! | the same | SelectedForUpdate | the same | cordon, drain; then phase InPlaceUpdating |
//! | InPlaceUpdating | SelectedForUpdate | the same | it says ReadyForUpdate |
//! | InPlaceUpdating | ReadyForUpdate | the same | the agent works; after the timeout phase InPlaceUpdateFailed |
//! | any of these | ReadyForUpdate, or what the agent says no more | and the agent's result | it says UpdateSuccessful or UpdateFailed |
//! | InPlaceUpdating, InPlaceUpdateFailed | UpdateSuccessful | result successful | phase InPlaceUpdateSuccessful |
//! | InPlaceUpdating | UpdateFailed | result failed | phase InPlaceUpdateFailed |
//! | InPlaceUpdateFailed | UpdateFailed | result taken off | the update begins anew: SelectedForUpdate |
//! | InPlaceUpdateSuccessful | UpdateSuccessful | result successful | waits until its deployment has moved it to the new set |
//! | the same, in the new set | UpdateSuccessful | result successful | the labels and the cordon go; then Running |
//!
//! Every row is one write that follows from what is stored, so a crash after any of them goes on with the next. A Machine whose set has the
//! template again, because the rollout was taken back, loses its labels and its cordon wherever the agent has not begun. Who is selected,
//! and who moves to the new set, is `deployment::in_place`'s; who failed for too long is given up by `set::repair`.
//! MC-19; W9 and W10 cannot happen.

pub mod marks;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::drain::{self, Progress, Purpose};
use super::judgement::alone;
use super::node_sync::sync;
use super::observed::Observed;
use super::status::StatusChange;
use super::steer::Standing;
use super::step::{Plan, Step, Why};
use super::{health, judgement, leave, node};
use crate::api::lenient::GoDuration;
use crate::api::{Machine, OperationState, OperationType, Phase, keys, meta};
use crate::sight::Judging;
use marks::{Marks, Outcome, Reason};

/// What is due for a Machine's update.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing.
    Idle,
    /// The condition is to say so.
    Tell(Reason),
    /// The pods are evicted; the drain timeout counts from that time.
    Vacate(Option<Timestamp>),
    /// The condition says already that the pods are gone, and the phase does not: it is turned.
    Enter,
    /// The agent is at it.
    Wait,
    /// The agent has done it.
    Succeed,
    /// The agent could not do it.
    Fail,
}

fn stage(machine: &Machine, standing: Standing, marks: Marks) -> Stage {
    let phase = machine.phase();
    let is_updating = *phase == Phase::InPlaceUpdating;
    let is_agents = phase.is_agents();
    let is_due = matches!(standing, Standing::InPlace | Standing::Aside) && marks.is_candidate;
    match (marks.outcome, marks.reason) {
        (Some(_), _) if !is_agents && !is_due => Stage::Idle,
        (Some(Outcome::Successful), Some(Reason::Successful)) if is_agents => Stage::Succeed,
        (Some(Outcome::Successful), Some(Reason::Successful)) => Stage::Idle,
        (Some(Outcome::Successful), _) => Stage::Tell(Reason::Successful),
        (Some(Outcome::Failed), Some(Reason::Failed)) if is_updating => Stage::Fail,
        (Some(Outcome::Failed), Some(Reason::Failed)) => Stage::Idle,
        (Some(Outcome::Failed), _) => Stage::Tell(Reason::Failed),
        (None, Some(Reason::Ready)) if is_updating => Stage::Wait,
        (None, _) if is_updating => Stage::Tell(Reason::Ready),
        (None, _) if !is_due => Stage::Idle,
        // It recovers, or is replaced.
        (None, _) if *phase == Phase::Unknown && marks.is_selected => Stage::Idle,
        // It had its time, and the agent never heard of it; as with those below.
        (None, Some(Reason::Selected)) if is_agents && marks.is_selected && marks.since < machine.phase_since() => {
            Stage::Idle
        }
        (None, Some(Reason::Selected)) if marks.is_selected => Stage::Vacate(marks.since),
        // It had its time; who takes the label of its selection off lets it begin anew.
        (None, Some(Reason::Drained | Reason::Ready)) if marks.is_selected && is_agents => Stage::Idle,
        (None, Some(Reason::Drained | Reason::Ready)) if marks.is_selected => Stage::Enter,
        (None, _) if marks.is_selected => Stage::Tell(Reason::Selected),
        (None, Some(Reason::Candidate)) => Stage::Idle,
        (None, _) => Stage::Tell(Reason::Candidate),
    }
}

/// The Machine's Node, where it stays and may be written.
fn staying_node<'a>(seen: &Observed<'a>) -> Option<&'a Node> {
    seen.own_node().filter(|node| !meta::is_deleting(&node.metadata))
}

fn stage_of<'a>(seen: &Observed<'a>) -> Option<(&'a Node, Marks, Stage)> {
    if !seen.machine.phase().has_node() {
        return None;
    }
    let found = staying_node(seen)?;
    let marks = Marks::of(found);
    let stage = stage(seen.machine, seen.standing, marks);
    Some((found, marks, stage))
}

/// Whether the pods of its Node go for it.
pub fn is_vacating(seen: &Observed<'_>) -> bool {
    stage_of(seen).is_some_and(|(_, _, stage)| matches!(stage, Stage::Vacate(_)))
}

/// What a Machine needs while the agent works, or has failed: the Node's health says nothing then, but it is brought in line, and its
/// deletion is the Machine's.
pub fn at_work(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let why = match *seen.machine.phase() == Phase::InPlaceUpdating {
        true => Why::UpdatingInPlace,
        false => Why::InPlaceUpdateFailed,
    };
    let Some(found) = seen.node.filter(|found| node::belongs(found, seen.machine)) else {
        return alone(seen, Plan::rest(why), now);
    };
    if meta::is_deleting(&found.metadata) && !node::is_unmanaged(found) {
        return health::node_deleted(seen, now);
    }
    alone(seen, in_line(seen, found, why, now), now)
}

/// The Node is copied, and brought in line.
fn in_line(seen: &Observed<'_>, found: &Node, why: Why, now: Timestamp) -> Plan {
    let mut plan = Plan::rest(why);
    plan.steps.extend(copy(seen, found, now));
    let sync = sync(seen, found, now);
    plan.steps.extend(sync.steps);
    plan.or_at(sync.wake, now)
}

/// What a Machine needs that the agent has updated. Its Node's health counts again, so that it has a way out (W10).
pub fn done(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let Some(found) = staying_node(seen) else {
        return health::plan(seen, now);
    };
    let is_healthy = node::is_healthy(found, &seen.node_conditions());
    let marks = Marks::of(found);
    let awaits_set = matches!(seen.standing, Standing::InPlace | Standing::Aside) && marks.outcome.is_some();
    let is_marked = marks.is_labelled() && !matches!(seen.standing, Standing::InPlace | Standing::Aside);
    if !is_healthy || !(awaits_set || is_marked) {
        return health::plan(seen, now);
    }
    in_line(seen, found, Why::UpdatedInPlace, now)
}

/// The Node's conditions, if they tell another story than the Machine does: the deployment reads the copy.
fn copy(seen: &Observed<'_>, found: &Node, now: Timestamp) -> Option<Step> {
    let status = seen.machine.status.as_ref();
    let copied = status.map_or(&[][..], |status| status.conditions.as_slice());
    if !node::conditions_differ(copied, node::conditions(found)) {
        return None;
    }
    let change = StatusChange::same(seen.machine, now)?;
    Some(Step::Record(Box::new(change.with_conditions(node::conditions(found)))))
}

/// The plan of a Machine's phase with what its update needs. What turns the phase comes alone: the next plan sees it.
pub fn join(seen: &Observed<'_>, mut plan: Plan, now: Timestamp) -> Plan {
    let is_turning = |step: &Step| match step {
        Step::Record(change) => change.phase != *seen.machine.phase(),
        Step::DeleteMachine | Step::Call(_) => true,
        _ => false,
    };
    if plan.steps.iter().any(is_turning) {
        return plan;
    }
    let Some((found, marks, stage)) = stage_of(seen) else {
        return expired(seen, plan, now);
    };
    let mut own = match stage {
        Stage::Idle => return plan,
        Stage::Wait => return expired(seen, plan, now),
        // The API server may refuse to let the agent be told: its time runs all the same.
        Stage::Tell(Reason::Ready) if is_expired(seen, now) => return expired(seen, plan, now),
        Stage::Tell(reason) => tell(found, marks, reason, now),
        Stage::Vacate(since) => emptied(seen, found, since.unwrap_or(now), now),
        Stage::Enter => enter(seen, found, Phase::InPlaceUpdating, now),
        Stage::Succeed => enter(seen, found, Phase::InPlaceUpdateSuccessful, now),
        Stage::Fail => enter(seen, found, Phase::InPlaceUpdateFailed, now),
    };
    let is_record = |step: &Step| matches!(step, Step::Record(_));
    let is_telling = own.steps.iter().any(is_record);
    if is_telling {
        // One status at a time; what is copied goes along with what turns the phase.
        plan.steps.retain(|step| !is_record(step));
    }
    // Each write of the Node holds for the version that is seen: the next one is planned on what the first has left.
    if plan.steps.iter().any(|step| matches!(step, Step::WriteNode(_))) {
        own.steps
            .retain(|step| !matches!(step, Step::WriteNode(_) | Step::WriteCondition(_)));
    }
    plan.why = own.why;
    // What is told stands before what the target cluster may refuse.
    let place = if is_telling { 0 } else { plan.steps.len() };
    plan.steps.splice(place..place, own.steps);
    plan.or_at(own.wake, now)
}

/// Whether the agent had its time. It counts only while the Node could be seen.
fn is_expired(seen: &Observed<'_>, now: Timestamp) -> bool {
    work_deadline(seen, now).is_some_and(|deadline| deadline <= now)
}

/// Until when the agent may be at work.
fn work_deadline(seen: &Observed<'_>, now: Timestamp) -> Option<Timestamp> {
    let since = seen.machine.phase_since().unwrap_or(now);
    seen.sight.deadline(since, work_timeout(seen), Judging::Rollout)
}

fn work_timeout(seen: &Observed<'_>) -> SignedDuration {
    let own = seen.machine.in_place_update_timeout();
    own.unwrap_or(seen.settings.in_place_update_timeout)
}

/// The agent had its time.
fn expired(seen: &Observed<'_>, plan: Plan, now: Timestamp) -> Plan {
    if *seen.machine.phase() != Phase::InPlaceUpdating {
        return plan;
    }
    match work_deadline(seen, now) {
        Some(deadline) if deadline <= now => {
            let text = format!(
                "The node was not updated within {}; {}",
                GoDuration::from(work_timeout(seen)),
                outlook(seen)
            );
            told(seen, OperationState::Failed, text, now)
                .entering(Phase::InPlaceUpdateFailed)
                .act(Why::InPlaceUpdateFailed)
        }
        deadline => plan.or_at(deadline, now),
    }
}

fn tell(found: &Node, marks: Marks, reason: Reason, now: Timestamp) -> Plan {
    let message = match reason {
        Reason::Candidate => "The node is of an earlier template and awaits its turn".to_owned(),
        Reason::Selected => "The pods of the node are evicted".to_owned(),
        Reason::Drained | Reason::Ready => "The node is drained, and may be updated".to_owned(),
        Reason::Successful => "The node is updated".to_owned(),
        Reason::Failed => match marks::fault(found) {
            Some(fault) => format!("The node could not be updated: {fault}"),
            None => "The node could not be updated".to_owned(),
        },
    };
    let mut plan = Plan::rest(Why::InPlace(reason));
    let begins =
        reason == Reason::Selected && !matches!(marks.reason, Some(Reason::Failed | Reason::Ready | Reason::Drained));
    let kept = marks::remember_cordon(found).filter(|_| begins && node::is_cordoned(found));
    if let Some(kept) = kept {
        plan.steps.push(Step::WriteNode(Box::new(kept)));
        return plan;
    }
    let told = marks::tell(found, reason, message, now);
    plan.steps
        .extend(told.map(|patch| Step::WriteCondition(Box::new(patch))));
    plan
}

/// Cordon, then drain; each once the one before is seen.
fn emptied(seen: &Observed<'_>, found: &Node, since: Timestamp, now: Timestamp) -> Plan {
    let why = Why::InPlace(Reason::Selected);
    if let Some(patch) = marks::cordon(found) {
        return Plan::act(vec![Step::WriteNode(Box::new(patch))], why);
    }
    match drain::drain(seen, found, Purpose::Stay(since), now) {
        Progress::Empty(_) | Progress::Forced(_) => enter(seen, found, Phase::InPlaceUpdating, now),
        Progress::Going(mut own) => {
            let (operation, state) = (OperationType::DrainNode, OperationState::Processing);
            let text = drain::staying(seen, found, now);
            let change = StatusChange::told(seen.machine, operation, state, text, now);
            let said = leave::paced(seen, change, why.clone(), now);
            own.steps.splice(0..0, said.steps);
            own.why = match own.why {
                Why::DrainBlocked => Why::DrainBlocked,
                _ => why,
            };
            own.or_at(said.wake, now)
        }
    }
}

fn enter(seen: &Observed<'_>, found: &Node, phase: Phase, now: Timestamp) -> Plan {
    let (state, text, why) = match phase {
        Phase::InPlaceUpdateSuccessful => (
            OperationState::Successful,
            "The node is updated".to_owned(),
            Why::UpdatedInPlace,
        ),
        Phase::InPlaceUpdateFailed => {
            let fault = marks::fault(found).map_or_else(String::new, |fault| format!(": {fault}"));
            let text = format!("The node could not be updated{fault}; {}", outlook(seen));
            (OperationState::Failed, text, Why::InPlaceUpdateFailed)
        }
        _ => (
            OperationState::Processing,
            keys::MARK_DRAINED_FOR_UPDATE.to_owned(),
            Why::UpdatingInPlace,
        ),
    };
    told(seen, state, text, now)
        .entering(phase)
        .with_conditions(node::conditions(found))
        .act(why)
}

fn told(seen: &Observed<'_>, state: OperationState, text: String, now: Timestamp) -> StatusChange {
    StatusChange::told(seen.machine, OperationType::InPlaceUpdate, state, text, now)
}

/// What becomes of a Machine that was not updated.
fn outlook(seen: &Observed<'_>) -> String {
    let machine = seen.machine;
    if machine.spec.disable_health_timeout == Some(true) {
        return "it is kept as it is".to_owned();
    }
    let timeout = GoDuration::from(seen.witnesses().timeout());
    format!("{} if this lasts for {timeout}", judgement::end(machine))
}
