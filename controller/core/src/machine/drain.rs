//! The pods of a Node go: before its VM does, before it is updated in place, or because its Machine failed and is preserved.
//!
//! There is one drain for all three purposes. First the Node is cordoned, then its pods are listed, then they are evicted as their budgets
//! allow: until the deadline, until the node is dead or ill for too long, or until a user ends the wait by a label. Pods that are left then
//! are deleted without grace: at once, if the Node stays or its VM is known not to run; else only after the VM is gone. A pod that is
//! deleted without grace vanishes from the API server while its kubelet may still run it, and its StatefulSet would start a second one.
//! The timeout counts only while this manager could drain. Where the provider has announced when the VM ends, each pod that is left is
//! deleted so early that it has its whole grace. What becomes of the Machine is decided by `machine::leave`, `in_place` and `preserve`.
//! MC-22 to MC-25.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::observed::Observed;
use super::outcome::Lost;
use super::step::{Plan, Step, Why};
use super::{dead, node};
use crate::api::{keys, meta};
use crate::drain::{Blocker, Drain, reference};
use crate::sight::{Judging, later};
pub use words::{staying, without_mark};

pub(super) mod words;

/// The original's pause between two evictions: what its number of retries is worth in time.
const RETRY: SignedDuration = SignedDuration::from_secs(20);
/// How long before the deadline an eviction that was refused is tried once more, however long the pause between tries is by then.
const LAST_TRY: SignedDuration = SignedDuration::from_secs(2);
/// How soon it is looked at what became of requests: as long as the shortest pause between two.
const LOOK: SignedDuration = SignedDuration::from_secs(1);
/// How long after the first look at pods that could not be deleted these are looked at anew, on a node that stays.
const ANEW: SignedDuration = SignedDuration::from_secs(60);

/// What a Node is drained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Its Machine is deleted. The Node is cordoned first.
    Leave,
    /// It is updated in place, or its Machine failed and is preserved. The time is when its pods were told to go, and the drain timeout
    /// counts from it. The caller has cordoned or tainted the Node. Its VM may still write to volumes, so none is detached.
    Stay(Timestamp),
}

/// Why pods are not waited for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// A label of the Machine: `force-deletion` or `force-drain`.
    Asked,
    /// The deadline has passed.
    Late,
    /// The VM ends now, as its provider has announced.
    Ending,
    /// The Node has been not ready for too long.
    Dead,
    /// The Node is ready, and its filesystem is read-only for too long.
    ReadOnly,
    /// The Node is not ready, and its VM does not run.
    Lost(Lost),
}

impl Force {
    /// Whether this reason proves that no pod runs on the Node any more and that nothing uses its volumes. A silent kubelet proves neither.
    pub fn is_proven(self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Asked | Self::Late | Self::Ending | Self::Dead | Self::ReadOnly => false,
        }
    }
}

impl fmt::Display for Force {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "the label force-deletion asks for it",
            Self::Late => "the drain timeout is over",
            Self::Ending => "the provider has announced that the VM ends now",
            Self::Dead => "the node has not been ready for 5m0s",
            Self::ReadOnly => "the node's filesystem has been read-only for 5m0s",
            Self::Lost(lost) => return write!(f, "the node is not ready and {lost}"),
        })
    }
}

/// How far a drain is.
#[derive(Debug)]
pub enum Progress {
    /// No pod is left that has to go, since then.
    Empty(Timestamp),
    /// All that could be done by force is done.
    Forced(Force),
    /// This is to be done, or waited for.
    Going(Plan),
}

/// What is to be done about the pods of the Node.
pub fn drain(seen: &Observed<'_>, found: &Node, purpose: Purpose, now: Timestamp) -> Progress {
    let force = force(seen, found, purpose, now);
    let preparation = prepared(seen, found, purpose, force, now);
    let listed = seen.drain.filter(|drain| drain.is_listed());
    let plan = match (preparation, listed, force) {
        (Some(plan), _, _) if !plan.steps.is_empty() => return Progress::Going(plan),
        (Some(plan), _, _) => plan,
        (None, None, _) => Plan::rest(Why::PodsUnknown),
        (None, Some(drain), Some(force)) => match by_force(seen, found, drain, purpose, force, now) {
            Progress::Going(plan) => plan,
            ended => return ended,
        },
        (None, Some(drain), None) => match drain.emptied() {
            Some(since) => return Progress::Empty(since),
            None => gently(seen, found, drain, purpose, now),
        },
    };
    let plan = plan.or_at(deadline(seen, purpose), now);
    Progress::Going(plan.or_at(dead::at(seen, found), now))
}

/// What is done before the pods are known: the Node is cordoned (to leave only), then its pods are watched. A Node that cannot be cordoned
/// is not drained gently: the force that ends the drain is waited for.
fn prepared(seen: &Observed<'_>, found: &Node, purpose: Purpose, force: Option<Force>, now: Timestamp) -> Option<Plan> {
    let refusal = seen.calls.cordon_refused.as_ref();
    let is_given_up = force.is_some() && refusal.is_some();
    if purpose == Purpose::Leave && !node::is_cordoned(found) && !is_given_up {
        return Some(match refusal.filter(|refusal| refusal.holds(now)) {
            Some(refusal) => Plan::wait(refusal.retry_at, Why::CordonRefused),
            None => Plan::act(vec![Step::Cordon(node::reference(found))], Why::Draining),
        });
    }
    let watch = || Plan::act(vec![Step::WatchPods(node::name(found))], Why::Draining);
    seen.drain.is_none().then(watch)
}

fn since(seen: &Observed<'_>, purpose: Purpose) -> Timestamp {
    match purpose {
        Purpose::Leave => meta::deleting_since(&seen.machine.metadata).unwrap_or(Timestamp::MIN),
        Purpose::Stay(since) => since,
    }
}

/// Until when pods may take their time: their timeout, or the announced end of their VM if that is sooner. `None`: the timeout does not run
/// while their cluster is out of sight.
pub(super) fn deadline(seen: &Observed<'_>, purpose: Purpose) -> Option<Timestamp> {
    let until = seen
        .sight
        .deadline(since(seen, purpose), patience(seen), Judging::Drain)?;
    Some(announced(seen).map_or(until, |end| end.min(until)))
}

/// When the VM ends, as its provider has announced.
fn announced(seen: &Observed<'_>) -> Option<Timestamp> {
    seen.calls.vm.as_ref()?.ends_at
}

/// For how long pods may take their time: the drain timeout, or `maxEvictRetries` pauses of [`RETRY`] if that is shorter. The operator's
/// number of retries does not count where the Machine gives a timeout of its own.
fn patience(seen: &Observed<'_>) -> SignedDuration {
    let own = seen.machine.drain_timeout();
    let timeout = own.unwrap_or(seen.settings.drain_timeout);
    let retries = seen.machine.spec.max_evict_retries;
    let retries = retries.or(own.is_none().then_some(seen.settings.max_evict_retries));
    retries.map_or(timeout, |retries| timeout.min(RETRY.saturating_mul(retries.max(0))))
}

/// Why the pods are not waited for.
pub(super) fn force(seen: &Observed<'_>, found: &Node, purpose: Purpose, now: Timestamp) -> Option<Force> {
    let is_asked = match purpose {
        Purpose::Leave => seen.machine.is_deletion_forced(),
        Purpose::Stay(_) => seen.machine.is_drain_forced(),
    };
    let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
    if is_asked {
        return Some(Force::Asked);
    }
    if is_due(announced(seen)) {
        return Some(Force::Ending);
    }
    if is_due(deadline(seen, purpose)) {
        return Some(Force::Late);
    }
    if let Some(lost) = dead::lost(seen, found) {
        return Some(Force::Lost(lost));
    }
    if is_due(dead::silent_at(found)) {
        return Some(Force::Dead);
    }
    is_due(dead::at(seen, found)).then_some(Force::ReadOnly)
}

/// Pods that may go are evicted; those that would not end before their VM does are deleted, with their grace.
fn gently(seen: &Observed<'_>, found: &Node, drain: &Drain, purpose: Purpose, now: Timestamp) -> Plan {
    let why = match drain.blocker(now) {
        Some(Blocker::Refused(..) | Blocker::Overdue(_)) => Why::DrainBlocked,
        None => Why::Draining,
    };
    let mut plan = Plan::rest(why);
    plan.steps.extend(watch_volumes(seen, found, drain));
    let last_chance = deadline(seen, purpose).map(|deadline| deadline.saturating_sub(LAST_TRY).unwrap_or(deadline));
    let mut due = drain.due(seen.volumes, seen.settings, last_chance, now);
    if let Some(end) = announced(seen) {
        let (pods, next) = drain.due_before(end, now);
        plan = plan.or_at(next, now);
        due.retain(|pod| !pods.contains(pod));
        if !pods.is_empty() {
            let grace = end.duration_since(now);
            plan.steps.push(Step::DeletePods { pods, grace });
        }
    }
    if !due.is_empty() {
        plan.steps.push(Step::Evict(due));
        plan = plan.or_at(Some(later(now, LOOK)), now);
    }
    plan.or_at(drain.again_at(seen.volumes, seen.settings, last_chance, now), now)
}

fn watch_volumes(seen: &Observed<'_>, found: &Node, drain: &Drain) -> Option<Step> {
    let has_volumes = drain.has_volumes() || !node::attached(found).is_empty();
    (has_volumes && !seen.volumes.is_watched()).then_some(Step::WatchVolumes)
}

/// Deletes all pods without grace, once. On a node that stays, pods that are still there are looked at anew after [`ANEW`]. On a node that
/// leaves and may still run, no pod is deleted here: they are deleted after the VM is gone (`delete`).
fn by_force(
    seen: &Observed<'_>,
    found: &Node,
    drain: &Drain,
    purpose: Purpose,
    force: Force,
    now: Timestamp,
) -> Progress {
    let pods: Vec<_> = drain.left().map(|pod| reference(pod)).collect();
    let anew = later(drain.began, ANEW);
    match (purpose, drain.emptied()) {
        (Purpose::Stay(_), Some(since)) => return Progress::Empty(since),
        (Purpose::Stay(_), None) if drain.is_forced && now >= anew => {
            return Progress::Going(Plan::act(vec![Step::LeavePods], Why::DrainBlocked));
        }
        (Purpose::Stay(_), None) if drain.is_forced => {
            let look = later(drain.began, LOOK);
            let why = if now < look {
                Why::DrainForced
            } else {
                Why::DrainBlocked
            };
            return Progress::Going(Plan::wait(anew, why).or_at(Some(look), now));
        }
        (Purpose::Leave, Some(_)) => return Progress::Forced(force),
        (Purpose::Leave, None) if drain.is_forced || !force.is_proven() => return Progress::Forced(force),
        (Purpose::Stay(_) | Purpose::Leave, None) => {}
    }
    let mut plan = Plan::rest(Why::DrainForced).or_at(Some(later(now, LOOK)), now);
    if purpose == Purpose::Leave {
        // First, because the patch that sets the taint is valid only for the version of the Node that the plan has seen.
        plan.steps.extend(dead::out_of_service(seen, found));
        plan.steps.extend(watch_volumes(seen, found, drain));
    }
    let grace = SignedDuration::ZERO;
    plan.steps.push(Step::DeletePods { pods, grace });
    Progress::Going(plan)
}

/// Volumes that are attached to the Node and will be detached once its pods are gone. Where VolumeAttachments of the Node are known these
/// are what counts; else the Node's own list, which also names volumes that have no VolumeAttachment. Volumes of pods that stay are left
/// out: they are detached when the VM is gone.
pub(super) fn attached(seen: &Observed<'_>, found: &Node) -> Vec<String> {
    let objects = seen.volumes.attached_to(&node::name(found));
    let stays = |volume: &str| seen.drain.is_some_and(|drain| drain.stays(volume));
    match objects.is_empty() {
        true => node::attached(found).into_iter().map(str::to_owned).collect(),
        false => objects.into_iter().filter(|volume| !stays(volume)).collect(),
    }
}

/// Says on the Node why its Machine goes, unless it says so already: a reason that stands there stays (W26).
pub(super) fn tell_node(seen: &Observed<'_>, found: &Node, now: Timestamp) -> Option<Step> {
    let known = node::condition(found, keys::NODE_TERMINATING);
    if known.is_some_and(|told| told.status == keys::STATUS_TRUE) {
        return None;
    }
    let reason = match node::is_healthy(found, &seen.node_conditions()) {
        true => keys::REASON_SCALE_DOWN,
        false => keys::REASON_UNHEALTHY,
    };
    let message = "The machine of this node is being deleted".to_owned();
    let told =
        super::node_patch::NodePatch::telling(found, keys::NODE_TERMINATING, keys::STATUS_TRUE, reason, message, now);
    told.map(|patch| Step::WriteCondition(Box::new(patch)))
}
