//! The pods of a node that stays, because it is preserved or updated in place: they go elsewhere.
//!
//! Source: `spec/machine.md` §5.4, its second and third caller. The rules are those of a deletion, with three differences: who calls keeps
//! new pods away, by a taint or a cordon; the timeout counts from when the caller says; and no volume is detached by us, because the VM may
//! still write to it. Decides nothing about the node or its Machine.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use crate::drain::{Drain, reference};
use crate::machine::dead;
use crate::machine::drain::patience;
use crate::machine::node;
use crate::machine::observed::Observed;
use crate::machine::step::{Plan, Step, Why};
use crate::sight::later;

/// How soon it is looked at what became of requests.
const LOOK: SignedDuration = SignedDuration::from_secs(1);
/// How long after the first look at pods that could not be deleted these are looked at anew.
const ANEW: SignedDuration = SignedDuration::from_secs(60);

/// How far it is.
#[derive(Debug)]
pub enum Progress {
    /// No pod is left that has to go.
    Empty,
    /// This is to be done; some pod does not go, or is only not gone yet.
    Going(Plan, IsStuck),
}

/// Whether a pod refuses to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsStuck {
    /// One does.
    Yes,
    /// None does, as far as is known.
    No,
}

/// What is to be done about the pods of the Node, which were asked to go at `since`.
pub fn vacate(seen: &Observed<'_>, found: &Node, since: Timestamp, now: Timestamp) -> Progress {
    let Some(drain) = seen.drain else {
        let watch = Step::WatchPods(node::name(found));
        return Progress::Going(Plan::act(vec![watch], Why::Draining), IsStuck::No);
    };
    if !drain.is_listed() {
        return Progress::Going(Plan::rest(Why::PodsUnknown), IsStuck::No);
    }
    if drain.emptied().is_some() {
        return Progress::Empty;
    }
    let (deadline, dead) = (later(since, patience(seen)), dead::at(found));
    let is_forced = seen.machine.is_drain_forced() || deadline <= now || dead.is_some_and(|at| at <= now);
    let (plan, stuck) = match is_forced {
        true => by_force(drain, now),
        false => gently(seen, found, drain, now),
    };
    Progress::Going(plan.or_at(Some(deadline), now).or_at(dead, now), stuck)
}

fn gently(seen: &Observed<'_>, found: &Node, drain: &Drain, now: Timestamp) -> (Plan, IsStuck) {
    let (stuck, why) = match drain.blocker() {
        Some(_) => (IsStuck::Yes, Why::DrainBlocked),
        None => (IsStuck::No, Why::Draining),
    };
    let mut plan = Plan::rest(why);
    let has_volumes = drain.has_volumes() || !node::attached(found).is_empty();
    if has_volumes && !seen.volumes.is_watched() {
        plan.steps.push(Step::WatchVolumes);
    }
    let due = drain.due(seen.volumes, seen.settings, now);
    if !due.is_empty() {
        plan.steps.push(Step::Evict(due));
        plan = plan.or_at(Some(later(now, LOOK)), now);
    }
    let again = drain.again_at(seen.volumes, seen.settings, now);
    (plan.or_at(again, now), stuck)
}

/// All pods are deleted without grace, once; those that could not be, after a while again.
fn by_force(drain: &Drain, now: Timestamp) -> (Plan, IsStuck) {
    let anew = later(drain.began(), ANEW);
    if drain.is_forced() && now >= anew {
        return (Plan::act(vec![Step::LeavePods], Why::DrainBlocked), IsStuck::Yes);
    }
    if drain.is_forced() {
        let is_new = now < later(drain.began(), LOOK);
        let stuck = if is_new { IsStuck::No } else { IsStuck::Yes };
        let look = is_new.then(|| later(drain.began(), LOOK));
        return (Plan::wait(anew, Why::DrainForced).or_at(look, now), stuck);
    }
    let left = drain.left().map(|pod| reference(pod)).collect();
    let plan = Plan::act(vec![Step::DeletePods(left)], Why::DrainForced);
    (plan.or_at(Some(later(now, LOOK)), now), IsStuck::No)
}
