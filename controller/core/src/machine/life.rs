//! What is told of a Machine's life as Kubernetes events: few, so that `kubectl describe machine` reads as a story.
//!
//! An ordinary creation brings two (the VM is made; the node has joined), an ordinary deletion one, and each turn for the worse or
//! better one. Decides which step is worth an event and in which words; the shell sends it when the step took effect.

use jiff::Timestamp;

use super::node_patch::NodePatch;
use super::status::{Keeping, StatusChange};
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
        } if !meta::is_deleting(&machine.metadata) => told(
            EventKind::Ordinary,
            "VMCreated",
            format!("The provider made the VM {id}"),
        ),
        Step::Record(change) => recorded(machine, change, why, now),
        Step::RemoveFinalizer if meta::is_deleting(&machine.metadata) => {
            let id = machine.provider_id();
            let vm = id.map_or_else(|| "no VM is left".to_owned(), |id| format!("its VM {id} is gone"));
            let since = meta::deleting_since(&machine.metadata).unwrap_or(now);
            let took = GoDuration::from(whole_seconds(now.duration_since(since)));
            told(
                EventKind::Ordinary,
                "MachineDeleted",
                format!("The machine is deleted after {took}: {vm}"),
            )
        }
        Step::WriteNode(patch) => left_out("InvalidNodeTemplate", patch),
        Step::WriteCapacity(patch) => left_out("InvalidVirtualCapacity", patch),
        Step::WriteCondition(patch) => not_drained(patch),
        Step::Keep(keeping) => kept(machine, *keeping, why, now),
        Step::Complain(fault) => told(EventKind::Worse, "InvalidPreserveValue", fault),
        Step::DeleteMachine => {
            let note = "The Node was deleted, so the machine is deleted too";
            told(EventKind::Worse, label(why), note)
        }
        _ => None,
    }
}

/// What could not be brought to the Node.
fn left_out(reason: &str, patch: &NodePatch) -> Option<LifeEvent> {
    let faults = Some(&patch.faults).filter(|faults| !faults.is_empty())?;
    let note = format!("Not brought to Node {}: {}", patch.node, faults.join("; "));
    told(EventKind::Worse, reason, note)
}

/// A pod of the Node of a Machine that is preserved does not go.
fn not_drained(patch: &NodePatch) -> Option<LifeEvent> {
    let message = patch.condition.as_ref()?.message.as_deref()?;
    message.strip_prefix(keys::PRESERVED_NOT_DRAINED)?;
    let note = format!("A pod does not go from Node {}, whose machine is preserved", patch.node);
    told(EventKind::Worse, "PreservedNodeNotDrained", note)
}

/// That a preservation begins or ends.
fn kept(machine: &Machine, keeping: Keeping, why: &Why, now: Timestamp) -> Option<LifeEvent> {
    let runs = |until: Option<Timestamp>| until.is_some_and(|until| until > now);
    match (machine.preserved_until().is_some(), keeping.until, why) {
        (false, Some(until), Why::Preserved(_, asked)) => {
            let note = format!("The machine is preserved until {until:.0}, because {asked}");
            told(EventKind::Better, "MachinePreserved", note)
        }
        (true, until, Why::PreservationOver(end)) if !runs(until) => {
            let note = format!("The machine is preserved no longer, because {end}");
            told(EventKind::Better, "PreservationEnded", note)
        }
        (_, _, _) => None,
    }
}

fn told(kind: EventKind, reason: impl Into<String>, note: impl Into<String>) -> Option<LifeEvent> {
    let (reason, note) = (reason.into(), note.into());
    Some(LifeEvent { kind, reason, note })
}

fn recorded(machine: &Machine, change: &StatusChange, why: &Why, now: Timestamp) -> Option<LifeEvent> {
    let said = &change.description;
    let turned = *machine.phase() != change.phase;
    let is_said = machine.last_words() == Some(said.as_str());
    match &change.phase {
        Phase::Unknown | Phase::Failed if turned => told(EventKind::Worse, label(why), said),
        Phase::Running if turned && matches!(machine.phase(), Phase::Unknown | Phase::Failed) => {
            told(EventKind::Better, label(why), said)
        }
        // Told when it was updated.
        Phase::Running if turned && *machine.phase() == Phase::InPlaceUpdateSuccessful => None,
        Phase::Running if turned => {
            let node = machine
                .node_label()
                .map_or_else(String::new, |node| format!(" as node {node}"));
            let took = now.duration_since(meta::created(&machine.metadata).unwrap_or(now));
            let took = GoDuration::from(whole_seconds(took));
            told(
                EventKind::Ordinary,
                "NodeJoined",
                format!("The machine joined{node} after {took}"),
            )
        }
        Phase::Terminating
            if *why == Why::DrainForced
                || (matches!(why, Why::DrainBlocked | Why::CordonRefused) && !leave::tells_blocker(machine)) =>
        {
            told(EventKind::Worse, label(why), drain::without_mark(said))
        }
        Phase::InPlaceUpdating | Phase::InPlaceUpdateSuccessful if turned => told(EventKind::Better, label(why), said),
        Phase::Available if turned => told(EventKind::Ordinary, "VMAvailable", said),
        _ => match change.state {
            // The same words again, with what the driver wants to see again.
            OperationState::Failed if *why == Why::CrumbChanged && is_said => None,
            OperationState::Failed => told(EventKind::Worse, label(why), said),
            OperationState::Processing | OperationState::Successful => None,
        },
    }
}
