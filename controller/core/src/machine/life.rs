//! What is told of a Machine's life as Kubernetes events: few, so that `kubectl describe machine` reads as a story.
//!
//! An ordinary creation brings two (the VM is made; the node has joined), an ordinary deletion one, and each turn for the worse or
//! better one. Decides which step is worth an event and in which words; the shell sends it when the step took effect.

use jiff::Timestamp;

use super::node_patch::NodePatch;
use super::preserve::Keeping;
use super::status::StatusChange;
use super::step::{Step, Why};
use super::{drain, leave};
use crate::api::lenient::GoDuration;
use crate::api::{Machine, OperationState, Phase, keys, meta};
use crate::machine::node::whole_seconds;
use crate::plan::label;

/// What an event says of how it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Every ordinary Machine has one such; under load they are the first to be left out.
    Ordinary,
    /// A turn for the better after one for the worse.
    Better,
    /// Somebody may have to act.
    Worse,
}

/// An event about a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifeEvent {
    /// How it goes.
    pub kind: EventKind,
    /// One CamelCase word.
    pub reason: String,
    /// A sentence, without secrets.
    pub note: String,
}

/// What a step that took effect is worth telling of the Machine as it was before.
pub fn event(machine: &Machine, step: &Step, why: &Why, now: Timestamp) -> Option<LifeEvent> {
    match step {
        Step::Identify {
            provider_id: Some(id), ..
        } if !meta::is_deleting(&machine.metadata) => ordinary("VMCreated", format!("The provider made the VM {id}")),
        Step::Record(change) => recorded(machine, change, why, now),
        Step::RemoveFinalizer if meta::is_deleting(&machine.metadata) => {
            let id = machine.provider_id();
            let vm = id.map_or_else(|| "no VM is left".to_owned(), |id| format!("its VM {id} is gone"));
            let since = meta::deleting_since(&machine.metadata).unwrap_or(now);
            let took = GoDuration::from(whole_seconds(now.duration_since(since)));
            ordinary("MachineDeleted", format!("The machine is deleted after {took}: {vm}"))
        }
        Step::WriteNode(patch) => left_out("InvalidNodeTemplate", patch),
        Step::WriteCapacity(patch) => left_out("InvalidVirtualCapacity", patch),
        Step::WriteCondition(patch) => not_drained(patch),
        Step::Keep(keeping) => kept(machine, *keeping, why, now),
        Step::Complain(fault) => Some(LifeEvent {
            kind: EventKind::Worse,
            reason: "InvalidPreserveValue".to_owned(),
            note: fault.clone(),
        }),
        Step::DeleteMachine => Some(LifeEvent {
            kind: EventKind::Worse,
            reason: label(why),
            note: "The Node was deleted, so the machine is deleted too".to_owned(),
        }),
        _ => None,
    }
}

/// What could not be brought to the Node.
fn left_out(reason: &str, patch: &NodePatch) -> Option<LifeEvent> {
    (!patch.faults.is_empty()).then(|| LifeEvent {
        kind: EventKind::Worse,
        reason: reason.to_owned(),
        note: format!("Not brought to Node {}: {}", patch.node, patch.faults.join("; ")),
    })
}

/// A pod of the Node of a Machine that is preserved does not go.
fn not_drained(patch: &NodePatch) -> Option<LifeEvent> {
    let message = patch.condition.as_ref()?.message.as_deref()?;
    message.starts_with(keys::PRESERVED_NOT_DRAINED).then(|| LifeEvent {
        kind: EventKind::Worse,
        reason: "PreservedNodeNotDrained".to_owned(),
        note: format!("A pod does not go from Node {}, whose machine is preserved", patch.node),
    })
}

/// That a preservation begins or ends.
fn kept(machine: &Machine, keeping: Keeping, why: &Why, now: Timestamp) -> Option<LifeEvent> {
    let runs = |until: Option<Timestamp>| until.is_some_and(|until| until > now);
    let told = match (machine.preserved_until().is_some(), keeping.until, why) {
        (false, Some(until), Why::Preserved(_, asked)) => (
            "MachinePreserved",
            format!("The machine is preserved until {until:.0}, because {asked}"),
        ),
        (true, until, Why::PreservationOver(end)) if !runs(until) => (
            "PreservationEnded",
            format!("The machine is preserved no longer, because {end}"),
        ),
        (_, _, _) => return None,
    };
    Some(LifeEvent {
        kind: EventKind::Better,
        reason: told.0.to_owned(),
        note: told.1,
    })
}

fn ordinary(reason: &str, note: String) -> Option<LifeEvent> {
    Some(LifeEvent {
        kind: EventKind::Ordinary,
        reason: reason.to_owned(),
        note,
    })
}

fn recorded(machine: &Machine, change: &StatusChange, why: &Why, now: Timestamp) -> Option<LifeEvent> {
    let worse = |note: &str| {
        Some(LifeEvent {
            kind: EventKind::Worse,
            reason: label(why),
            note: note.to_owned(),
        })
    };
    let turned = *machine.phase() != change.phase;
    let is_said = machine.last_words() == Some(change.description.as_str());
    match &change.phase {
        Phase::Unknown | Phase::Failed if turned => worse(&change.description),
        Phase::Running if turned && matches!(machine.phase(), Phase::Unknown | Phase::Failed) => Some(LifeEvent {
            kind: EventKind::Better,
            reason: label(why),
            note: change.description.clone(),
        }),
        // Told when it was updated.
        Phase::Running if turned && *machine.phase() == Phase::InPlaceUpdateSuccessful => None,
        Phase::Running if turned => {
            let node = machine
                .node_label()
                .map_or_else(String::new, |node| format!(" as node {node}"));
            let took = now.duration_since(meta::created(&machine.metadata).unwrap_or(now));
            let took = GoDuration::from(whole_seconds(took));
            ordinary("NodeJoined", format!("The machine joined{node} after {took}"))
        }
        Phase::Terminating
            if *why == Why::DrainForced
                || (matches!(why, Why::DrainBlocked | Why::CordonRefused) && !leave::tells_blocker(machine)) =>
        {
            worse(drain::without_mark(&change.description))
        }
        Phase::InPlaceUpdating | Phase::InPlaceUpdateSuccessful if turned => Some(LifeEvent {
            kind: EventKind::Better,
            reason: label(why),
            note: change.description.clone(),
        }),
        Phase::Available if turned => ordinary("VMAvailable", change.description.clone()),
        _ => match change.state {
            // The same words again, with what the driver wants to see again.
            OperationState::Failed if *why == Why::CrumbChanged && is_said => None,
            OperationState::Failed => worse(&change.description),
            OperationState::Processing | OperationState::Successful => None,
        },
    }
}
