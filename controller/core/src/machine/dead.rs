//! A Node that its kubelet does not speak for any more, or that is unhealthy otherwise, while its pods are to go: how long these are
//! waited for.
//!
//! A kubelet that is silent says nothing of the VM: it may be cut off, and its pods may run. So it takes two witnesses before its pods
//! are taken for ended: the Node is not ready, and the driver says that the VM does not run; or nobody heard of the kubelet for as long
//! as pods tolerate it. Decides no deletion: `drain` does.
//! MC-24; pains 57, 64, 65, 68.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

use super::node;
use super::node_patch::Sketch;
use super::observed::{DriverView, Observed};
use super::outcome::Lost;
use super::step::{Plan, Step, Why};
use crate::api::keys;
use crate::driver::Call;
use crate::sight::later;

/// How long a Node is unhealthy before its pods are waited for no longer: as long as pods tolerate one that is not ready by default.
const DEAD_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// How often the driver is asked for the VM meanwhile.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// When a Node that is not ready counts as dead, if it stays as it is.
pub fn silent_at(found: &Node) -> Option<Timestamp> {
    silent_since(found).map(|since| later(since, DEAD_AFTER))
}

/// The same, of a Node that is ready and whose filesystem is read-only for too long, where that is watched: its kubelet ends no pod. With other
/// conditions, as DiskPressure, it does.
pub fn at(seen: &Observed<'_>, found: &Node) -> Option<Timestamp> {
    let watched = seen.node_conditions();
    let is_read_only = |told: &&NodeCondition| {
        told.type_ == keys::NODE_READONLY_FILESYSTEM
            && told.status != keys::STATUS_FALSE
            && watched.contains(&told.type_)
    };
    let told = node::conditions(found).iter().find(is_read_only);
    let since = told.and_then(|told| told.last_transition_time.as_ref());
    let read_only = since.map(|since| later(since.0, DEAD_AFTER));
    read_only.into_iter().chain(silent_at(found)).min()
}

/// Why the VM does not run any more, as its driver said since the Node was not ready.
pub fn lost(seen: &Observed<'_>, found: &Node) -> Option<Lost> {
    // One that is about to be taken away runs.
    seen.calls
        .lost(silent_since(found)?, Some(found))
        .filter(|lost| *lost != Lost::Ending)
}

/// Asks the driver for the VM of a silent Node, so that pods are not waited for which run no more.
pub fn ask(seen: &Observed<'_>, found: &Node, now: Timestamp) -> Result<Option<Timestamp>, Plan> {
    let is_askable = matches!(seen.driver, DriverView::Ready(_)) && seen.machine.provider_id().is_some();
    let Some(since) = silent_since(found).filter(|_| is_askable && lost(seen, found).is_none()) else {
        return Ok(None);
    };
    let due = seen.calls.doubt_again(since, Some(found), ASK_AGAIN, now);
    match due <= now {
        true => Err(Plan::act(vec![Step::Call(Call::Status)], Why::VmDoubted)),
        false => Ok(Some(due)),
    }
}

/// Marks a Node whose VM does not run, so that its pods end and its volumes are detached at once, by whoever else waits for them.
pub fn out_of_service(seen: &Observed<'_>, found: &Node) -> Option<Step> {
    lost(seen, found)?;
    let mut sketch = Sketch::of(found);
    let is_marked = |taint: &Taint| taint.key == keys::TAINT_OUT_OF_SERVICE;
    if sketch.taints.iter().any(is_marked) {
        return None;
    }
    sketch.taint(keys::TAINT_OUT_OF_SERVICE, Some("nodeshutdown"), "NoExecute");
    sketch.patch().map(|patch| Step::WriteNode(Box::new(patch)))
}

fn silent_since(found: &Node) -> Option<Timestamp> {
    let ready = node::ready(found).filter(|ready| ready.status != keys::STATUS_TRUE)?;
    Some(ready.last_transition_time.as_ref()?.0)
}
