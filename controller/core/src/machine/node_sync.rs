//! All that a Machine's pass brings to its Node: label and finalizer, the template, what steers pods away, the virtual capacity.
//!
//! Everything but the capacity is one patch, so that a node that joins costs one request; the capacity is a second one, because only
//! the status has it. Both are decided on the Node that the plan saw and carry its uid. A Node that somebody wants left alone gets
//! nothing, and loses our finalizer: that is the way out where `kubectl delete node` would wait for us (W39).
//! Who changes what the template gives is corrected at once; who keeps doing so, every half minute, lest two controllers that want a
//! Node to be different write it without end.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::in_place::marks;
use super::node;
use super::node_patch::Sketch;
use super::observed::Observed;
use super::preserve::course;
use super::step::Step;
use super::{node_template, steer, virtual_capacity};
use crate::api::lenient::GoDuration;
use crate::api::{Phase, keys, meta};
use crate::sight::later;

/// Pause between a write of a Node and the next correction of what others made of the template.
const PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// What the Node needs, and how it is then.
#[derive(Debug, Default)]
pub struct Sync {
    /// Steps that bring the Node in line, if any.
    pub steps: Vec<Step>,
    /// Whether the Node waits for its critical components, now or once the steps are taken.
    pub is_gated: bool,
    /// When to look again.
    pub wake: Option<Timestamp>,
}

/// What a Machine's Node needs.
pub fn sync(seen: &Observed<'_>, joined: &Node, now: Timestamp) -> Sync {
    let mut sync = Sync {
        is_gated: node::is_gated(joined),
        ..Sync::default()
    };
    if node::is_unmanaged(joined) {
        sync.steps.extend(released(joined));
        return sync;
    }
    if meta::is_deleting(&joined.metadata) {
        return sync;
    }
    let mut sketch = Sketch::of(joined);
    let is_new = !sketch.is_guarded && *seen.machine.phase() == Phase::Pending;
    sketch.guard(&meta::identity(&seen.machine.metadata).0);
    // With the first write, so that it costs no request, and not anew at every look (W20).
    if is_new && let Some(created) = meta::created(&seen.machine.metadata) {
        let took = GoDuration::from(node::whole_seconds(now.duration_since(created)));
        let annotation = (keys::MACHINE_JOIN_DURATION.to_owned(), took.to_string());
        sketch.annotations.insert(annotation.0, annotation.1);
    }
    let annotates = seen.settings.annotates_old_nodes;
    steer::steer(&mut sketch, seen.standing, annotates, course::is_kept(seen, now));
    marks::sketch(&mut sketch, seen.machine, seen.standing, marks::Marks::of(joined));
    course::sketch(&mut sketch, seen, now);
    let (sketch, faults) = merged(seen, sketch, now, &mut sync);
    sync.is_gated |= sketch.taints.iter().any(node::gates);
    let whole = sketch.patch().map(|patch| patch.leaving_out(faults));
    sync.steps.extend(whole.map(|patch| Step::WriteNode(Box::new(patch))));
    let capacity = seen
        .virtual_capacity
        .and_then(|wanted| virtual_capacity::change(joined, wanted));
    sync.steps
        .extend(capacity.map(|patch| Step::WriteCapacity(Box::new(patch))));
    sync
}

/// The Node with its template, and what of that is left out. A mere correction may have to wait.
fn merged<'a>(seen: &Observed<'_>, bare: Sketch<'a>, now: Timestamp, sync: &mut Sync) -> (Sketch<'a>, Vec<String>) {
    let template = seen.machine.spec.node_template.as_ref();
    let is_joining = *seen.machine.phase() == Phase::Pending;
    let mut node = bare.clone();
    let faults = node_template::merge(&mut node, template, is_joining);
    let is_correction = node_template::memory(&node) == node_template::memory(&bare);
    // A time in the future was told by a clock that was wrong.
    let written = seen.calls.node_written.filter(|at| *at <= now);
    let again = written.map(|at| later(at, PAUSE)).filter(|again| *again > now);
    if is_correction && again.is_some() && node != bare {
        sync.wake = again;
        return (bare, Vec::new());
    }
    (node, faults)
}

/// The step that takes our finalizer from a Node that is left alone.
pub fn released(joined: &Node) -> Option<Step> {
    let mut sketch = Sketch::of(joined);
    sketch.is_guarded = false;
    sketch.patch().map(|patch| Step::WriteNode(Box::new(patch)))
}
