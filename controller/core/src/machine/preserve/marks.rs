//! What a preserved Machine's Node bears: a taint while it is Failed, the autoscaler's annotations, and the condition `Preserved`.
//!
//! The taint keeps pods away as a cordon does, and leaves a user's own cordon alone (#1111 of the peer). The condition is written for people
//! and other tools, and never read to decide anything but whether it says so already (W24). Its words are the original's.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

use super::request::{Request, Value};
use crate::api::{keys, meta};
use crate::machine::node;
use crate::machine::node_patch::{NodePatch, Sketch};
use crate::machine::steer::Standing;

/// What the Node of a Machine that is kept bears. `is_failed`: no new pods are to come.
pub fn mark(node: &mut Sketch<'_>, is_failed: bool) {
    match is_failed {
        true => node.taint(keys::TAINT_PRESERVED, None, "NoSchedule"),
        false => node.taints.retain(|taint| !is_ours(taint)),
    }
    node.hold_from_autoscaler();
}

/// What the Node of a Machine that is not kept any more loses. What a rollout wants of the autoscaler stays. `forgets`: the user's
/// annotation goes, because its time is over.
pub fn unmark(node: &mut Sketch<'_>, standing: Standing, was_kept: bool, forgets: bool) {
    node.taints.retain(|taint| !is_ours(taint));
    let is_rollouts = matches!(standing, Standing::Old | Standing::InPlace);
    if was_kept && !is_rollouts {
        node.leave_to_autoscaler();
    }
    if forgets {
        node.annotations.remove(keys::PRESERVE);
    }
}

/// Whether it is the taint that keeps pods from the Node of a Machine that failed and is preserved.
pub fn is_ours(taint: &Taint) -> bool {
    taint.key == keys::TAINT_PRESERVED && taint.effect == "NoSchedule"
}

/// How it stands with the pods of the Node of a Machine that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// The Machine has not failed, so they stay.
    Stay,
    /// They are gone.
    Gone,
    /// One of them does not go.
    Stuck,
}

/// The condition of a Node whose Machine is kept, if it does not say so already.
pub fn told(seen: &Node, request: Request, until: Timestamp, pods: Pods, now: Timestamp) -> Option<NodePatch> {
    let reason = match request.value {
        Some(Value::Auto) => keys::REASON_PRESERVED_BY_US,
        Some(Value::Now | Value::WhenFailed | Value::Never) | None => keys::REASON_PRESERVED_BY_USER,
    };
    let until = format!("Machine preserved until {until:.0}.");
    let (is_kept, message) = match pods {
        Pods::Stay => (true, until),
        Pods::Gone => (true, format!("{} {until}", keys::PRESERVED_DRAINED)),
        Pods::Stuck => (false, format!("{} {until}", keys::PRESERVED_NOT_DRAINED)),
    };
    differs(seen, is_kept, reason, message, now)
}

/// The condition of a Node whose Machine is not kept any more, if it has one that says otherwise.
pub fn told_over(seen: &Node, now: Timestamp) -> Option<NodePatch> {
    condition(seen)?;
    differs(seen, false, keys::REASON_PRESERVATION_STOPPED, String::new(), now)
}

/// The Node's condition.
pub fn condition(seen: &Node) -> Option<&NodeCondition> {
    node::condition(seen, keys::NODE_PRESERVED)
}

/// Whether the Node bears anything of a preservation.
pub fn is_marked(seen: &Node) -> bool {
    let is_told = condition(seen).is_some_and(|told| told.reason.as_deref() != Some(keys::REASON_PRESERVATION_STOPPED));
    is_told || node::taints(seen).iter().any(is_ours) || meta::annotation(&seen.metadata, keys::PRESERVE).is_some()
}

fn differs(seen: &Node, is_kept: bool, reason: &str, message: String, now: Timestamp) -> Option<NodePatch> {
    let status = match is_kept {
        true => keys::STATUS_TRUE,
        false => keys::STATUS_FALSE,
    };
    NodePatch::telling(seen, keys::NODE_PRESERVED, status, reason, message, now)
}
