//! What a Node bears of an update in place: the labels that move it, and the condition that tells how far it is.
//!
//! The labels are inputs, whoever wrote them: `candidate` is this Machine's, `selected` the deployment's or a user's, the result the
//! agent's (MC-19). The condition is the only memory. Decides what a Node gains and loses for it, not when it is
//! drained.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

use crate::api::{Machine, NodeTemplateSpec, keys, meta};
use crate::ids::NodeRef;
use crate::machine::node;
use crate::machine::node_patch::{Changes, NodePatch, Sketch};
use crate::machine::steer::Standing;

/// How far the condition says that the update is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It awaits its turn.
    Candidate,
    /// Its pods go.
    Selected,
    /// They are gone. Not written any more: the next one says it, too.
    Drained,
    /// The agent may begin.
    Ready,
    /// The agent has done it.
    Successful,
    /// The agent could not do it.
    Failed,
}

impl Reason {
    const ALL: [Self; 6] = [
        Self::Candidate,
        Self::Selected,
        Self::Drained,
        Self::Ready,
        Self::Successful,
        Self::Failed,
    ];

    /// As the condition spells it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Candidate => keys::REASON_CANDIDATE,
            Self::Selected => keys::REASON_SELECTED,
            Self::Drained => keys::REASON_DRAINED,
            Self::Ready => keys::REASON_READY_FOR_UPDATE,
            Self::Successful => keys::REASON_UPDATE_SUCCESSFUL,
            Self::Failed => keys::REASON_UPDATE_FAILED,
        }
    }

    fn of(conditions: &[NodeCondition]) -> Option<Self> {
        let told = conditions
            .iter()
            .find(|condition| condition.type_ == keys::NODE_IN_PLACE_UPDATE)?;
        let word = told.reason.as_deref()?;
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }

    /// What the Machine's copy of the condition says.
    pub fn copied(machine: &Machine) -> Option<Self> {
        Self::of(machine.status.as_ref()?.conditions.as_slice())
    }
}

/// How the agent says that it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node has its new version.
    Successful,
    /// It has not.
    Failed,
}

/// What a Node bears of an update in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Its Machine is of an old set.
    pub is_candidate: bool,
    /// It is its turn.
    pub is_selected: bool,
    /// What the agent says.
    pub outcome: Option<Outcome>,
    /// What the condition says.
    pub reason: Option<Reason>,
    /// Since when it says so.
    pub since: Option<Timestamp>,
}

impl Marks {
    /// What a Node bears.
    pub fn of(seen: &Node) -> Self {
        let label = |key| meta::label(&seen.metadata, key);
        let told = node::condition(seen, keys::NODE_IN_PLACE_UPDATE);
        let since = told.and_then(|told| told.last_transition_time.as_ref());
        Self {
            is_candidate: label(keys::CANDIDATE_FOR_UPDATE).is_some(),
            is_selected: label(keys::SELECTED_FOR_UPDATE).is_some(),
            outcome: match label(keys::UPDATE_RESULT) {
                Some(keys::UPDATE_SUCCESSFUL) => Some(Outcome::Successful),
                Some(keys::UPDATE_FAILED) => Some(Outcome::Failed),
                Some(_) | None => None,
            },
            reason: Reason::of(node::conditions(seen)),
            since: since.map(|since| since.0),
        }
    }

    /// Whether its update has begun and is not over: it does not count as available. What an agent could not do before its turn is nothing.
    pub fn is_under_way(&self) -> bool {
        self.is_selected || self.outcome == Some(Outcome::Successful)
    }

    /// Whether a label is left.
    pub fn is_labelled(&self) -> bool {
        self.is_candidate || self.is_selected || self.outcome.is_some()
    }
}

/// The Node of a Machine, with what it bears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The Node.
    pub node: NodeRef,
    /// The version in which it was seen.
    pub version: String,
    /// What it bears.
    pub marks: Marks,
}

/// The condition with another reason; its time is that of the reason, because the drain's timeout counts from it.
pub fn tell(seen: &Node, reason: Reason, message: String, now: Timestamp) -> Option<NodePatch> {
    let told = NodePatch::telling(
        seen,
        keys::NODE_IN_PLACE_UPDATE,
        keys::STATUS_TRUE,
        reason.word(),
        message,
        now,
    )?;
    // One that arrives late would let an agent begin on a node that is in use again.
    Some(told.since(now).of_version(seen))
}

/// Why the agent could not do it, in its words.
pub fn fault(seen: &Node) -> Option<&str> {
    meta::annotation(&seen.metadata, keys::UPDATE_FAILED_REASON).filter(|said| !said.is_empty())
}

/// The patch that keeps new pods away.
pub fn cordon(seen: &Node) -> Option<NodePatch> {
    let mut node = Sketch::of(seen);
    node.is_cordoned = true;
    node.patch()
}

/// The patch that remembers that somebody had cordoned the Node before its turn came, so that it stays cordoned after it.
pub fn remember_cordon(seen: &Node) -> Option<NodePatch> {
    let mut node = Sketch::of(seen);
    let key = keys::CORDONED_BEFORE_UPDATE.to_owned();
    node.annotations.insert(key, keys::PRESENT.to_owned());
    node.patch()
}

/// The patch by which its turn comes. What the agent said before is not about this update.
pub fn select(update: &Update) -> NodePatch {
    let selected = (keys::SELECTED_FOR_UPDATE.to_owned(), Some(keys::PRESENT.to_owned()));
    let labels = Changes::from([selected, (keys::UPDATE_RESULT.to_owned(), None)]);
    NodePatch::labelling(&update.node, &update.version, labels)
}

/// Brings the labels in line: a Node of an old template is a candidate; one whose Machine has the template, or never gets it in place,
/// bears nothing of an update any more, and is in use again. While the agent may be at work nothing is taken from it.
pub fn sketch(node: &mut Sketch<'_>, machine: &Machine, standing: Standing, marks: Marks) {
    match standing {
        Standing::Aside => {}
        Standing::InPlace => {
            let label = (keys::CANDIDATE_FOR_UPDATE.to_owned(), keys::PRESENT.to_owned());
            node.labels.insert(label.0, label.1);
        }
        Standing::Current | Standing::Old | Standing::Free if machine.phase().is_agents() => {}
        Standing::Current | Standing::Old | Standing::Free => {
            let is_updated = standing == Standing::Current && marks.outcome == Some(Outcome::Successful);
            end(node, machine, marks, is_updated);
        }
    }
}

fn end(node: &mut Sketch<'_>, machine: &Machine, marks: Marks, is_updated: bool) {
    for label in [
        keys::CANDIDATE_FOR_UPDATE,
        keys::SELECTED_FOR_UPDATE,
        keys::UPDATE_RESULT,
    ] {
        node.labels.remove(label);
    }
    node.annotations.remove(keys::UPDATE_FAILED_REASON);
    let was_cordoned = node.annotations.remove(keys::CORDONED_BEFORE_UPDATE).is_some();
    if marks.is_under_way() && !was_cordoned {
        node.is_cordoned = false;
    }
    // As when the node was new: who takes the taint off then does it again.
    if is_updated && !node.taints.iter().any(node::gates) {
        node.taints.extend(gate(machine.spec.node_template.as_ref()));
    }
}

/// The taint of the template by which a node waits for its critical components.
fn gate(template: Option<&NodeTemplateSpec>) -> Option<Taint> {
    let taints = template?.taints();
    taints.into_iter().find(node::gates)
}
