//! Whether a Machine is kept now, and what its Node bears then: what follows from a request (the table of MC-20).
//!
//! Plans nothing: `preserve` makes the steps, and `node_sync` brings the marks along with whatever else it writes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::marks;
use super::request::{self, Asked, End, Request, Value};
use crate::api::{Phase, meta};
use crate::machine::node_patch::Sketch;
use crate::machine::observed::Observed;

/// What follows from a request (the table of MC-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    Keep(Asked),
    /// `forgets`: the annotations go, too.
    Stop {
        why: End,
        forgets: bool,
    },
}

fn course(request: Request, is_expired: bool, has_failed: bool) -> Course {
    let stop = |why, forgets| Course::Stop { why, forgets };
    match request.value {
        None | Some(Value::Never) => stop(End::TakenBack, false),
        Some(_) if is_expired => stop(End::Expired, true),
        Some(value @ Value::Now) => Course::Keep(Asked(value, request.source)),
        Some(value @ (Value::WhenFailed | Value::Auto)) if has_failed => Course::Keep(Asked(value, request.source)),
        Some(Value::WhenFailed) => stop(End::Recovered, false),
        // The mark is the set's, and its cause is gone (W25).
        Some(Value::Auto) => stop(End::Recovered, true),
    }
}

/// A Machine with what its preservation reads.
pub(super) struct Scene<'a> {
    pub(super) seen: &'a Observed<'a>,
    pub(super) request: Request,
    pub(super) now: Timestamp,
    pub(super) has_failed: bool,
    /// Until when it is kept, or was.
    pub(super) until: Option<Timestamp>,
    /// Its Node, where that may be written.
    pub(super) node: Option<&'a Node>,
}

impl<'a> Scene<'a> {
    /// `None`: nobody requests anything, and nothing is left of a preservation.
    pub(super) fn of(seen: &'a Observed<'a>, now: Timestamp) -> Option<Self> {
        let machine = seen.machine;
        let own = seen.own_node();
        let is_bound = machine.preserved_until().is_some()
            || !request::forgotten(machine).is_empty()
            || own.is_some_and(marks::is_marked)
            || seen.drain.is_some();
        let stays = own.filter(|node| !meta::is_deleting(&node.metadata));
        is_bound.then(|| Self {
            seen,
            request: request::request(machine, own),
            now,
            has_failed: *machine.phase() == Phase::Failed,
            until: machine.preserved_until(),
            node: stays,
        })
    }

    pub(super) fn course(&self) -> Course {
        let is_expired = self.until.is_some_and(|until| until <= self.now);
        course(self.request, is_expired, self.has_failed)
    }

    /// Whether the pods of its Node have yet to go.
    pub(super) fn needs_drain(&self) -> bool {
        let since = self.seen.machine.phase_since();
        self.has_failed && self.seen.machine.preserve_drained().is_none_or(|at| Some(at) < since)
    }
}

/// Whether the Machine is preserved now: its time is stored and runs, and somebody requests it.
pub(crate) fn is_kept(seen: &Observed<'_>, now: Timestamp) -> bool {
    Scene::of(seen, now).is_some_and(|scene| scene.until.is_some() && matches!(scene.course(), Course::Keep(_)))
}

/// What the Node is to bear of it, for whoever writes the Node anyway.
pub(crate) fn sketch(node: &mut Sketch<'_>, seen: &Observed<'_>, now: Timestamp) {
    let Some(scene) = Scene::of(seen, now) else { return };
    match scene.course() {
        Course::Keep(_) if scene.until.is_some() => marks::mark(node, scene.has_failed),
        Course::Keep(_) => {}
        Course::Stop { forgets, .. } => marks::unmark(node, seen.standing, scene.until.is_some(), forgets),
    }
}
