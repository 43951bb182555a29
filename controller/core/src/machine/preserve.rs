//! A Machine that is kept for somebody who wants to look at it: until when, what its Node bears meanwhile, and how that ends.
//!
//! MC-20. Everything follows from facts that are stored: what is requested ([`request`]), the phase, the time that is told in
//! `preserveExpiryTime`, when the pods were gone, and what the Node bears. So a begin or an end that was interrupted anywhere goes on; the
//! time is stored first and taken back last. The time counts from when the preservation began, whatever is changed later, and the Machine is
//! looked at again when it comes. Phases and their times are not touched (W23). A Failed Machine that has an owner keeps a time that is over
//! instead of none: it is not preserved anew, its set replaces it. The deletion of the Machine, or of its Node, overrides all of this. Decides
//! nothing about which Machines of a set are kept without being asked: `set::keep` does.

pub(crate) mod course;
pub mod marks;
pub mod request;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value as Json, json};

use super::drain::{self, Progress, Purpose};
use super::in_place;
use super::node_patch::Sketch;
use super::observed::Observed;
use super::status::Keeping;
use super::step::{Plan, Step, Why};
use crate::api::{Phase, meta};
use crate::sight::later;
use course::{Course, Scene};
use marks::Pods;
use request::{Asked, End};

/// Changes of annotations of the Machine, as the body of a JSON merge patch.
pub fn annotations(changes: &BTreeMap<&'static str, Option<String>>) -> Json {
    let changes: Map<String, Json> = changes
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    json!({ "metadata": { "annotations": changes } })
}

/// The plan of a Machine's phase with what its preservation needs. What turns the phase comes alone: the next plan sees it.
pub fn join(seen: &Observed<'_>, plan: Plan, now: Timestamp) -> Plan {
    let is_turning = |step: &Step| match step {
        Step::Record(change) => change.phase != *seen.machine.phase(),
        Step::DeleteMachine => true,
        _ => false,
    };
    let is_others = *seen.machine.phase() == Phase::Terminating || in_place::is_vacating(seen);
    if is_others || plan.steps.iter().any(is_turning) {
        return plan;
    }
    let Some(scene) = Scene::of(seen, now) else {
        return plan;
    };
    let mut own = match scene.course() {
        Course::Keep(asked) => keep(&scene, asked),
        Course::Stop { why, forgets } => stop(&scene, why, forgets),
    };
    own.steps.extend(complaint(&scene));
    if plan.steps.iter().any(|step| matches!(step, Step::WriteNode(_))) {
        // It brings the marks along.
        own.steps.retain(|step| !matches!(step, Step::WriteNode(_)));
    }
    joined(plan, own, now)
}

/// Both plans: a driver call stays the last step, and one status is written at a time. The reason is the phase's, but where that has none
/// to do anything, or where a preservation begins or ends.
fn joined(mut plan: Plan, mut own: Plan, now: Timestamp) -> Plan {
    if plan.steps.iter().any(|step| matches!(step, Step::Record(_))) {
        own.steps.retain(|step| !matches!(step, Step::Keep(_)));
    }
    let turns = own.steps.iter().any(|step| matches!(step, Step::Keep(_)));
    let is_idle = plan.steps.is_empty() && matches!(plan.why, Why::Running | Why::Failed | Why::NoNodeExpected);
    let is_told = matches!(own.why, Why::Preserved(..)) || !own.steps.is_empty();
    if turns || (is_idle && is_told) {
        plan.why = own.why;
    }
    let is_call = |step: &Step| matches!(step, Step::Call(_));
    let place = plan.steps.iter().position(is_call).unwrap_or(plan.steps.len());
    plan.steps.splice(place..place, own.steps);
    plan.or_at(own.wake, now)
}

fn keep(scene: &Scene<'_>, asked: Asked) -> Plan {
    let (seen, now) = (scene.seen, scene.now);
    let Some(until) = scene.until else {
        let timeout = seen
            .machine
            .preserve_timeout()
            .unwrap_or(seen.settings.preserve_timeout);
        let until = later(now, timeout);
        let keeping = Keeping {
            until: Some(until),
            ..Keeping::of(seen.machine)
        };
        return Plan::act(vec![Step::Keep(keeping)], Why::Preserved(until, asked));
    };
    let own = seen.own_node().filter(|_| scene.has_failed);
    if own.is_some_and(|node| meta::is_deleting(&node.metadata)) {
        return Plan::act(vec![Step::DeleteMachine], Why::NodeDeleted);
    }
    let mut plan = Plan::rest(Why::Preserved(until, asked)).or_at(Some(until), now);
    let Some(found) = scene.node else {
        plan.steps.extend(end_of_drain(scene));
        return plan;
    };
    let remembered = request::remembered(seen.machine, found);
    plan.steps
        .extend((!remembered.is_empty()).then_some(Step::Annotate(remembered)));
    let mut node = Sketch::of(found);
    marks::mark(&mut node, scene.has_failed);
    if let Some(patch) = node.patch() {
        // Pods that are evicted before the taint is there would come back.
        plan.steps.push(Step::WriteNode(Box::new(patch)));
        return plan;
    }
    match scene.needs_drain() {
        true => emptied(scene, found, until, plan),
        false => {
            let pods = if scene.has_failed { Pods::Gone } else { Pods::Stay };
            let told = marks::told(found, scene.request, until, pods, now);
            plan.steps
                .extend(told.map(|patch| Step::WriteCondition(Box::new(patch))));
            plan.steps.extend(end_of_drain(scene));
            plan
        }
    }
}

/// The same, with what the pods of the Node of a Failed Machine need.
fn emptied(scene: &Scene<'_>, found: &Node, until: Timestamp, mut plan: Plan) -> Plan {
    let (seen, now) = (scene.seen, scene.now);
    let failed = seen.machine.phase_since().unwrap_or(now);
    match drain::drain(seen, found, Purpose::Stay(failed), now) {
        Progress::Empty(_) | Progress::Forced(_) => {
            let keeping = Keeping {
                // Where another clock told when it failed, that may be still to come.
                drained: Some(now.max(failed)),
                ..Keeping::of(seen.machine)
            };
            plan.steps.push(Step::Keep(keeping));
            plan
        }
        Progress::Going(own) => {
            let is_stuck = own.why == Why::DrainBlocked;
            let told = is_stuck.then(|| marks::told(found, scene.request, until, Pods::Stuck, now));
            let told = told.flatten();
            plan.steps
                .extend(told.map(|patch| Step::WriteCondition(Box::new(patch))));
            plan.steps.extend(own.steps);
            plan.or_at(own.wake, now)
        }
    }
}

/// Nobody wants to know the Node's pods any more.
fn end_of_drain(scene: &Scene<'_>) -> Option<Step> {
    scene.seen.drain.map(|_| Step::LeavePods)
}

/// One thing after the other, each once the one before is seen: the Node, the annotations, the time.
fn stop(scene: &Scene<'_>, why: End, forgets: bool) -> Plan {
    let (seen, now) = (scene.seen, scene.now);
    let machine = seen.machine;
    // Its annotations go before its time does.
    let why = match scene.until {
        Some(until) if until <= now => End::Expired,
        Some(_) | None => why,
    };
    let why = match scene.until {
        Some(_) => Why::PreservationOver(why),
        None => Why::RequestNoted,
    };
    let mut plan = Plan::rest(why);
    plan.steps.extend(end_of_drain(scene));
    if seen.is_blind() {
        // What its Node says, and bears, is not known.
        return plan;
    }
    if let Some(found) = scene.node {
        let mut node = Sketch::of(found);
        marks::unmark(&mut node, seen.standing, scene.until.is_some(), forgets);
        if let Some(patch) = node.patch() {
            plan.steps.push(Step::WriteNode(Box::new(patch)));
            return plan;
        }
        let told = marks::told_over(found, now);
        plan.steps
            .extend(told.map(|patch| Step::WriteCondition(Box::new(patch))));
    }
    let changes = match (forgets, scene.node) {
        (true, _) => request::forgotten(machine),
        (false, Some(found)) => request::remembered(machine, found),
        (false, None) => BTreeMap::new(),
    };
    if !changes.is_empty() {
        plan.steps.push(Step::Annotate(changes));
        return plan;
    }
    let is_owned = meta::controller_of(&machine.metadata).is_some();
    let until = scene
        .until
        .filter(|_| scene.has_failed && is_owned)
        .map(|at| at.min(now));
    let keeping = Keeping {
        until,
        drained: machine.preserve_drained().filter(|_| until.is_some()),
    };
    plan.steps
        .extend((keeping != Keeping::of(machine)).then_some(Step::Keep(keeping)));
    plan
}

/// What cannot be read, unless that was told already.
fn complaint(scene: &Scene<'_>) -> Option<Step> {
    let fault = request::fault(scene.seen.machine, scene.seen.own_node())?;
    (scene.seen.calls.complaint.as_ref() != Some(&fault)).then_some(Step::Complain(fault))
}
