//! Before the VM goes: the Node is cordoned, its pods are evicted as their budgets allow, and their volumes are detached.
//!
//! Nothing here waits for anything but facts, and all of it ends at a deadline that follows from when the Machine was deleted: by
//! then, on a node that is dead, or where a user forces it, the pods are deleted without grace, once, and the VM goes (S7, L2).
//! Never goes back: once the description says that the VM is removed, nothing is drained any more (`user-pains.md` 66). There is one
//! exception: a Node that was empty is not cordoned before that is said, so if it takes long until it is, its pods are listed again.
//! Source: `spec/machine.md` §5.2–5.4, `user-pains.md` C.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::delete::PATIENCE;
use super::node_patch::NodePatch;
use super::observed::Observed;
use super::outcome::Lost;
use super::status::StatusChange;
use super::step::{Plan, Step, Why};
use super::{dead, node};
use crate::api::{Machine, OperationReason, OperationState, OperationType, Phase, keys, meta};
use crate::circuit_breaker::is_suspended;
use crate::drain::{Blocker, Drain, Removal, reference};
use crate::sight::later;

/// The original's pause between two evictions: what its number of retries is worth in time.
const RETRY: SignedDuration = SignedDuration::from_secs(20);
/// How long the list of the pods may take where nothing else is waited for any more.
const LIST_WITHIN: SignedDuration = SignedDuration::from_secs(30);
/// How soon it is looked at what became of requests: as long as the shortest pause between two.
const LOOK: SignedDuration = SignedDuration::from_secs(1);
/// How long an empty list of a Node's pods is trusted while the Node is not cordoned, so that pods may still be scheduled to it.
const EMPTY_FOR: SignedDuration = SignedDuration::from_secs(5);
/// How often the status is written while pods go.
const PACE: SignedDuration = SignedDuration::from_secs(5);

/// Why pods are deleted without grace and without regard to budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// The label `force-deletion`.
    Asked,
    /// The deadline has passed.
    Late,
    /// The Node has not been ready for too long.
    Dead,
    /// The Node is not ready, and its VM does not run.
    Lost(Lost),
}

impl fmt::Display for Force {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "the label force-deletion asks for it",
            Self::Late => "the drain timeout is over",
            Self::Dead => "the node has not been ready for 5m0s",
            Self::Lost(lost) => return write!(f, "the node is not ready and {lost}"),
        })
    }
}

/// What comes before the first word on a deletion: a look at the Node's pods, because most often none is left and there is nothing to
/// be told of a drain. `None`: the word is due.
pub fn look(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let found = node_to_drain(seen).filter(|_| !super::is_blind(seen) && !is_over(seen, now))?;
    match seen.drain {
        None => Some(Plan::act(vec![Step::WatchPods(node::name(found))], Why::Draining)),
        Some(drain) if drain.is_listed() => None,
        Some(drain) => {
            let until = later(drain.began(), LOOK);
            (now < until).then(|| Plan::wait(until, Why::PodsUnknown))
        }
    }
}

/// The first status of a deletion: the stage that it begins with.
pub fn begin(seen: &Observed<'_>, now: Timestamp) -> StatusChange {
    if let Some(until) = awaited(seen, now) {
        return waiting(seen, until, now);
    }
    let Some(found) = node_to_drain(seen) else {
        let text = match super::delete::is_unlocated(seen) {
            true => format!("Looking for the VM and its node. {}", keys::MARK_VM_STATUS),
            false => removing("Removing the VM"),
        };
        return told(seen, text, now);
    };
    match seen.drain.filter(|drain| drain.is_listed()) {
        None => draining(seen, found, deadline(seen).max(now), "its pods are not known yet", now),
        Some(drain) if drain.left().next().is_none() && attached(seen, found).is_empty() => {
            told(seen, removing("Removing the VM"), now)
        }
        Some(drain) => draining(seen, found, deadline(seen), &left(drain, None), now),
    }
}

/// What is to be done before the VM may go. `None`: nothing, or nothing more.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    if is_over(seen, now) {
        return None;
    }
    let deadline = deadline(seen);
    if super::is_blind(seen) {
        return blind(seen, now);
    }
    let found = node_to_drain(seen)?;
    let is_current = |drain: &&Drain| !is_outdated(found, drain, now);
    let Some(drain) = seen.drain.filter(is_current) else {
        // Where it takes so long until an empty list is looked at, because many Machines go at once, the next would be too old, too.
        let again = seen.drain.filter(|_| !node::is_cordoned(found));
        let closed = again.map(|_| Step::Cordon(node::reference(found)));
        let steps = closed.into_iter().chain([Step::WatchPods(node::name(found))]);
        return Some(Plan::act(steps.collect(), Why::Draining));
    };
    let force = force(seen, found, deadline, now);
    let ask_at = match force {
        None => match dead::ask(seen, found, now) {
            Ok(at) => at,
            Err(first) => return Some(first),
        },
        Some(Force::Asked | Force::Late | Force::Dead | Force::Lost(_)) => None,
    };
    let plan = match (force, drain.is_listed()) {
        (Some(force), true) => by_force(seen, found, drain, force, now),
        (None, true) => gently(seen, found, drain, now),
        (Some(Force::Asked | Force::Late), false) => unlisted(seen, drain, now),
        (None | Some(Force::Dead | Force::Lost(_)), false) => Plan::rest(Why::PodsUnknown),
    };
    let plan = plan.or_at(ask_at, now).or_at(dead::at(found), now);
    Some(plan.or_at(Some(deadline), now))
}

/// Whether the deletion is past its drain: the driver was asked to remove the VM, or the description says so and nothing speaks against it.
pub fn is_over(seen: &Observed<'_>, now: Timestamp) -> bool {
    let is_asked = seen.calls.gone_since.is_some() || seen.calls.delete_at.is_some();
    is_asked || (is_said_to_be_over(seen.machine) && !is_doubtful(seen, now))
}

/// Whether the VM may go although its call had to wait since it was planned: a Node that joined meanwhile has pods to drain. One that was
/// in sight before (`had_node`) was drained as far as it goes, or its Machine could wait in vain: for a Node that takes no cordon, and an
/// account that makes each call wait.
pub fn is_due_still(seen: &Observed<'_>, had_node: bool, now: Timestamp) -> bool {
    had_node || plan(seen, now).is_none()
}

/// Whether the description says that the VM is removed.
fn is_said_to_be_over(machine: &Machine) -> bool {
    let said = machine.last_words();
    let said = said.filter(|_| machine.operation_type() == Some(OperationType::Delete));
    let stages = keys::DELETION_MARKS.iter().enumerate();
    let stage = said.and_then(|said| stages.rev().find(|(_, mark)| said.ends_with(**mark)));
    stage.is_some_and(|(stage, _)| stage >= 2)
}

/// Whether pods may have come to the Node since it was seen without any: it is out of sight, or it was not cordoned then, and that was a
/// while ago, by this process or by another one. Where they would not be waited for anyway, it does not matter.
fn is_doubtful(seen: &Observed<'_>, now: Timestamp) -> bool {
    if awaited(seen, now).is_some() {
        return true;
    }
    let Some(found) = staying_node(seen).filter(|found| force(seen, found, deadline(seen), now).is_none()) else {
        return false;
    };
    match seen.drain {
        Some(drain) => drain.emptied().is_none() || is_outdated(found, drain, now),
        None => !node::is_cordoned(found) || was_closed_in_vain(seen.machine, found),
    }
}

/// Whether an earlier process cordoned the Node, because it had no pods, and asked no driver then, which was away or refused its account.
/// A pod that came between the list and the cordon is on the Node still.
fn was_closed_in_vain(machine: &Machine, found: &Node) -> bool {
    let is_closed = !meta::has_finalizer(&found.metadata, keys::NODE_FINALIZER);
    let code = machine.last_operation().and_then(|last| last.error_code.as_deref());
    let is_answer = code.is_some_and(|code| !code.is_empty()) && !is_suspended(machine);
    is_closed && machine.operation_state() == Some(OperationState::Failed) && !is_answer
}

/// Whether it was too long ago that no pod was seen on the Node.
fn is_outdated(found: &Node, drain: &Drain, now: Timestamp) -> bool {
    let may_come = !node::is_cordoned(found) || drain.may_have_missed_pods();
    may_come && drain.emptied().is_some_and(|at| now >= later(at, EMPTY_FOR))
}

/// The Machine's Node, if new pods may come to it.
fn open_node<'a>(seen: &Observed<'a>) -> Option<&'a Node> {
    staying_node(seen).filter(|found| !node::is_cordoned(found))
}

/// The Machine's Node, if it is in sight. Of one that is being deleted none but our finalizer may be left.
fn staying_node<'a>(seen: &Observed<'a>) -> Option<&'a Node> {
    let found = node_to_drain(seen).filter(|_| !super::is_blind(seen))?;
    (!meta::is_deleting(&found.metadata)).then_some(found)
}

/// The Node, if the Machine has one of its own. Without it nobody runs its pods, and the garbage collector of pods ends them.
fn node_to_drain<'a>(seen: &Observed<'a>) -> Option<&'a Node> {
    let found = seen.node.filter(|found| node::belongs(found, seen.machine));
    found.filter(|_| seen.settings.has_target)
}

/// Until when pods may take their time: an instant that follows from stored facts. As many retries as the Machine allows count as the
/// time that they take.
fn deadline(seen: &Observed<'_>) -> Timestamp {
    let since = meta::deleting_since(&seen.machine.metadata).unwrap_or(Timestamp::MIN);
    later(since, patience(seen))
}

/// For how long pods may take their time.
pub(super) fn patience(seen: &Observed<'_>) -> SignedDuration {
    let spec = &seen.machine.spec;
    let timeout = seen.machine.drain_timeout().unwrap_or(seen.settings.drain_timeout);
    let retries = spec.max_evict_retries.unwrap_or(seen.settings.max_evict_retries).max(0);
    timeout.min(RETRY.saturating_mul(retries))
}

fn force(seen: &Observed<'_>, found: &Node, deadline: Timestamp, now: Timestamp) -> Option<Force> {
    if seen.machine.is_deletion_forced() {
        return Some(Force::Asked);
    }
    if now >= deadline {
        return Some(Force::Late);
    }
    if let Some(lost) = dead::lost(seen, found) {
        return Some(Force::Lost(lost));
    }
    dead::at(found).filter(|at| *at <= now).map(|_| Force::Dead)
}

/// What has to be so before pods are evicted: no new ones come, who looks at the Node sees why, and it is known where volumes are. The
/// Node is told of no more often than the Machine, because the target cluster may refuse it.
fn prepared(seen: &Observed<'_>, found: &Node, drain: &Drain, is_telling: bool, now: Timestamp) -> Vec<Step> {
    let cordon = (!node::is_cordoned(found)).then(|| Step::Cordon(node::reference(found)));
    let is_due = is_telling || cordon.is_some();
    let told = is_due.then(|| leaving(seen, found, now)).flatten();
    let has_volumes = drain.has_volumes() || !node::attached(found).is_empty();
    let look = (has_volumes && !seen.volumes.is_watched()).then_some(Step::WatchVolumes);
    cordon.into_iter().chain(told).chain(look).collect()
}

/// Says on the Node why its Machine goes, unless it says so already: a reason that stands there stays (W26).
fn leaving(seen: &Observed<'_>, found: &Node, now: Timestamp) -> Option<Step> {
    let known = node::condition(found, keys::NODE_TERMINATING);
    if known.is_some_and(|told| told.status == keys::STATUS_TRUE) {
        return None;
    }
    let reason = match node::is_healthy(found, &super::node_conditions(seen)) {
        true => keys::REASON_SCALE_DOWN,
        false => keys::REASON_UNHEALTHY,
    };
    let message = "The machine of this node is being deleted".to_owned();
    let patch = NodePatch::telling(found, keys::NODE_TERMINATING, keys::STATUS_TRUE, reason, message, now)?;
    Some(Step::WriteCondition(Box::new(patch)))
}

/// Before the VM is asked to go. A Node that was empty was not cordoned, and a driver that is away, or fails, leaves it standing: pods that
/// came to it meanwhile would go with the VM, without an eviction (S7). Our finalizer goes with the same write, so it costs no request:
/// the Node ends with its deletion alone.
pub fn close(seen: &Observed<'_>) -> Option<Step> {
    open_node(seen).map(|found| Step::CloseNode(node::reference(found)))
}

/// Volumes that are attached to the Node: the attachments, as far as they are known, else what the Node says, which knows of volumes
/// without attachments, too.
fn attached(seen: &Observed<'_>, found: &Node) -> Vec<String> {
    let objects = seen.volumes.attached_to(&node::name(found));
    match objects.is_empty() {
        true => node::attached(found).into_iter().map(str::to_owned).collect(),
        false => objects,
    }
}

/// Nobody may wait any longer, but for the list of the pods that are to be deleted, from when its turn has come.
fn unlisted(seen: &Observed<'_>, drain: &Drain, now: Timestamp) -> Plan {
    let Some(turn) = drain.turn() else {
        return Plan::rest(Why::PodsUnknown);
    };
    let until = later(turn, LIST_WITHIN);
    match now < until {
        true => Plan::wait(until, Why::PodsUnknown),
        false => over(
            seen,
            "The node could not be drained, its pods are not known; removing the VM",
            now,
        ),
    }
}

fn gently(seen: &Observed<'_>, found: &Node, drain: &Drain, now: Timestamp) -> Plan {
    if let Some(since) = drain.emptied() {
        return detached(seen, found, drain, since, now);
    }
    let blocker = drain.blocker();
    let why = match blocker {
        Some(_) => Why::DrainBlocked,
        None => Why::Draining,
    };
    let mut said = draining(seen, found, deadline(seen), &left(drain, blocker.as_ref()), now);
    if blocker.is_some() {
        said = said.because(OperationReason::EvictionRefused);
    }
    let mut plan = paced(seen, said, why, now);
    let is_telling = !plan.steps.is_empty();
    plan.steps.extend(prepared(seen, found, drain, is_telling, now));
    let due = drain.due(seen.volumes, seen.settings, now);
    if !due.is_empty() {
        plan.steps.push(Step::Evict(due));
        plan = plan.or_at(Some(later(now, LOOK)), now);
    }
    plan.or_at(drain.again_at(seen.volumes, seen.settings, now), now)
}

/// Whether an earlier process drained the Node: it alone knew which volumes were on their way. The Node names a volume no longer from when
/// it is to be detached, so where they are is found out before the VM goes.
fn was_begun_before(seen: &Observed<'_>, drain: &Drain) -> bool {
    let said = seen.machine.last_operation();
    let is_drain = seen.machine.last_words().is_some_and(|words| {
        let mut marks = [keys::MARK_DRAIN, keys::MARK_DETACH].into_iter();
        marks.any(|mark| words.ends_with(mark))
    });
    let at = said.and_then(|said| said.last_update_time.as_ref()).map(|time| time.0);
    // Times of objects are whole seconds.
    is_drain && at.is_some_and(|at| later(at, SignedDuration::from_secs(1)) <= drain.began())
}

/// The pods are gone; their volumes have to follow before the VM does, or their data is at risk. A driver that never detaches holds it up
/// for so long and no longer.
fn detached(seen: &Observed<'_>, found: &Node, drain: &Drain, since: Timestamp, now: Timestamp) -> Plan {
    let attached = attached(seen, found);
    let until = later(since, seen.settings.detach_timeout);
    if attached.is_empty() && now < until && was_begun_before(seen, drain) && !seen.volumes.is_known() {
        let look = (!seen.volumes.is_watched()).then_some(Step::WatchVolumes);
        return Plan::act(look.into_iter().collect(), Why::VolumesUnknown).or_at(Some(until), now);
    }
    let Some(first) = attached.first() else {
        return over(seen, "The node is drained; removing the VM", now);
    };
    if now >= until {
        return over(
            seen,
            "The node is drained, volumes are still attached; removing the VM",
            now,
        );
    }
    let what = match attached.len() {
        1 => format!("no pod is left; volume {first} is attached"),
        many => format!("no pod is left; {many} volumes are attached, {first} first"),
    };
    let said = draining(seen, found, until, &what, now);
    let mut plan = paced(seen, said, Why::Detaching, now).or_at(Some(until), now);
    let is_telling = !plan.steps.is_empty();
    plan.steps.extend(prepared(seen, found, drain, is_telling, now));
    plan
}

fn by_force(seen: &Observed<'_>, found: &Node, drain: &Drain, force: Force, now: Timestamp) -> Plan {
    let left: Vec<_> = drain.left().map(|pod| reference(pod)).collect();
    let mark = dead::out_of_service(seen, found);
    if left.is_empty() || drain.is_forced() {
        let text = format!("The node is drained by force, because {force}; removing the VM");
        let mut plan = over(seen, &text, now);
        let attached = seen.volumes.on(&node::name(found));
        if !attached.is_empty() {
            plan.steps.insert(0, Step::Detach(attached));
        }
        plan.steps.splice(0..0, mark);
        return plan;
    }
    let what = match left.len() {
        1 => format!("1 pod is deleted without grace, because {force}"),
        many => format!("{many} pods are deleted without grace, because {force}"),
    };
    let said = draining(seen, found, now, &what, now);
    let mut steps = vec![Step::Record(Box::new(said))];
    // The mark holds for the version of the Node that is seen; what follows would make it another one.
    steps.extend(mark);
    steps.extend(prepared(seen, found, drain, true, now));
    steps.push(Step::DeletePods(left));
    Plan::act(steps, Why::DrainForced).or_at(Some(later(now, LOOK)), now)
}

/// Whether a process has seen the pods of a Node that joined too late for the Machine to say so, or waits for them already.
fn was_draining(machine: &Machine) -> bool {
    let reason = machine.operation_reason();
    matches!(
        reason,
        Some(OperationReason::Draining | OperationReason::EvictionRefused)
    )
}

/// Until when the pods are waited for that are in a cluster out of sight: until the deadline, if the Machine has joined or its Node was
/// seen; for as long as views may take to be complete at a process's beginning, if nothing but its Node's name is known.
fn awaited(seen: &Observed<'_>, now: Timestamp) -> Option<Timestamp> {
    if !super::is_blind(seen) || seen.machine.is_deletion_forced() {
        return None;
    }
    let deadline = deadline(seen);
    let is_known = seen.machine.has_joined() || node_to_drain(seen).is_some();
    let has_pods = is_known || was_draining(seen.machine);
    let until = match (has_pods, seen.sight.control_since) {
        (true, _) => deadline,
        (false, Some(since)) if seen.machine.node_label().is_some() => later(since, PATIENCE).min(deadline),
        (false, _) => return None,
    };
    (now < until).then_some(until)
}

/// The Node is out of sight.
fn blind(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let until = awaited(seen, now)?;
    let change = waiting(seen, until, now);
    let plan = match change.is_told(seen.machine) {
        true => Plan::rest(Why::TargetAway),
        false => Plan::act(vec![Step::Record(Box::new(change))], Why::TargetAway),
    };
    Some(plan.or_at(Some(until), now))
}

fn waiting(seen: &Observed<'_>, until: Timestamp, now: Timestamp) -> StatusChange {
    let (why, mark) = (Why::TargetAway, keys::MARK_DRAIN);
    let text = format!("Waiting until {until:.0} to drain the node: {why}. {mark}");
    let change = told(seen, text, now);
    match until < deadline(seen) {
        true => change,
        false => change.because(OperationReason::Draining),
    }
}

/// The status says that the drain is over; from then on it is.
fn over(seen: &Observed<'_>, text: &str, now: Timestamp) -> Plan {
    let change = told(seen, removing(text), now);
    Plan::act(vec![Step::Record(Box::new(change))], Why::Drained)
}

fn removing(text: &str) -> String {
    format!("{text}. {}", keys::MARK_VM_DELETION)
}

/// The status, if it is another one than is told already and the last was not told just now. That the VM is removed is taken back at once:
/// once the Node is cordoned it would be believed.
pub(super) fn paced(seen: &Observed<'_>, change: StatusChange, why: Why, now: Timestamp) -> Plan {
    if change.is_told(seen.machine) {
        return Plan::rest(why);
    }
    let last = seen
        .machine
        .last_operation()
        .and_then(|last| last.last_update_time.as_ref());
    let due = last.map(|at| later(at.0, PACE)).filter(|due| *due > now);
    let due = due.filter(|_| !is_said_to_be_over(seen.machine));
    match due {
        Some(_) => Plan::rest(why).or_at(due, now),
        None => Plan::act(vec![Step::Record(Box::new(change))], why),
    }
}

fn told(seen: &Observed<'_>, text: String, now: Timestamp) -> StatusChange {
    let (operation, state) = (OperationType::Delete, OperationState::Processing);
    StatusChange::told(seen.machine, operation, state, text, now).entering(seen.machine, Phase::Terminating)
}

/// How far the pods of a Node are that stays.
pub(super) fn staying(seen: &Observed<'_>, found: &Node) -> String {
    let name = node::name(found);
    match seen.drain.filter(|drain| drain.is_listed()) {
        None => format!("Draining node {name} for its update in place"),
        Some(drain) => {
            let left = left(drain, drain.blocker().as_ref());
            format!("Draining node {name} for its update in place: {left}")
        }
    }
}

/// How many pods are left, and what holds the first of them.
fn left(drain: &Drain, blocker: Option<&Blocker>) -> String {
    let left = match drain.left().count() {
        1 => "1 pod is left".to_owned(),
        many => format!("{many} pods are left"),
    };
    match blocker {
        None => left,
        Some(Blocker { pod, removal }) => match removal {
            Removal::OverBudget(words) => format!("{left}; {pod} may not be evicted now: {words}"),
            Removal::Misconfigured { fault, .. } => format!("{left}; {pod} may never be evicted: {fault}"),
            Removal::Accepted => left,
            Removal::Failed(words) => format!("{left}; the API server did not evict {pod}: {words}"),
        },
    }
}

/// A description without the original's marker at its end, for people.
pub fn without_mark(said: &str) -> &str {
    let marks = keys::DELETION_MARKS.iter();
    let cut = marks.filter_map(|mark| said.strip_suffix(*mark)).next();
    cut.unwrap_or(said).trim_end()
}

/// Whether the Machine's status tells already that a pod does not go.
pub fn tells_blocker(machine: &Machine) -> bool {
    machine.operation_reason() == Some(OperationReason::EvictionRefused)
}

fn draining(seen: &Observed<'_>, found: &Node, until: Timestamp, what: &str, now: Timestamp) -> StatusChange {
    let (name, mark) = (node::name(found), keys::MARK_DRAIN);
    let text = format!("Draining node {name} until {until:.0} at the latest: {what}. {mark}");
    told(seen, text, now).because(OperationReason::Draining)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::circuit_breaker::Circuits;
    use crate::drain::Volumes;
    use crate::driver::Deletion;
    use crate::machine::observed::{Answer, Call, Calls, ClassView, DriverView};
    use crate::machine::outcome::Pacing;
    use crate::machine::steer::Standing;
    use crate::settings::Settings;
    use crate::sight::Sight;

    const WAITING: &str =
        "Waiting until 2026-01-01T02:00:00Z to drain the node: the target cluster cannot be seen now.";

    fn leaving(words: &str) -> Machine {
        let machine = json!({
            "metadata": {"name": "m1", "uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [keys::FINALIZER],
                "labels": {keys::NODE: "node-of-m1"}},
            "status": {"currentStatus": {"phase": "Terminating"},
                "lastOperation": {"type": "Delete", "state": "Processing", "description": words}},
        });
        serde_json::from_value(machine).expect("it is a Machine")
    }

    /// Shows the Machine as a manager sees it that has seen the control cluster since that time, and never a Node.
    fn look<T>(words: &str, since: Timestamp, calls: &Calls, ask: impl FnOnce(&Observed<'_>) -> T) -> T {
        let settings = Settings {
            has_target: true,
            ..Settings::new("c")
        };
        let sight = Sight {
            lead_since: since,
            control_since: Some(since),
            target_since: None,
            driver_since: Some(since),
        };
        let seen = Observed {
            machine: &leaving(words),
            class: ClassView::Unnamed,
            driver: DriverView::Unnamed { all_ready: true },
            node: None,
            rival: None,
            losers: crate::breaker::Tally::default(),
            virtual_capacity: None,
            standing: Standing::default(),
            sight,
            calls,
            circuits: Circuits::default(),
            drain: None,
            volumes: &Volumes::default(),
            settings: &settings,
        };
        ask(&seen)
    }

    /// A driver that was away while a VM booted is to be asked again: that is no word that the VM is removed.
    #[test]
    fn a_question_that_a_creation_left_over_ends_no_drain() {
        let now = "2026-01-01T00:20:00Z".parse::<Timestamp>().expect("it is a time");
        let pacing = Pacing {
            resource_exhausted: SignedDuration::from_mins(1),
            jitter: 1.0,
        };
        let over = |answer: Answer| {
            let mut calls = Calls::default();
            calls.absorb(answer, None, pacing, now);
            let words = removing("Removing the VM");
            look(&words, now, &calls, |seen| is_over(seen, now))
        };
        let going = Deletion {
            gone: false,
            poll_after: None,
            last_known_state: None,
        };
        assert!(!over(Answer::NotAsked(Call::Status)), "the Node is not in view yet");
        assert!(over(Answer::Deletion(Ok(going))));
    }

    /// While a call waits for its account: the pods of a cluster out of sight are waited for, unless the Node was in sight before.
    #[test]
    fn a_deletion_that_waited_is_due_still_if_nothing_is_to_be_drained_or_the_node_was_there_before() {
        let at = |text: &str| text.parse::<Timestamp>().expect("it is a time");
        let (since, now) = (at("2026-01-01T00:10:00Z"), at("2026-01-01T00:20:00Z"));
        let due = |words: &str, had_node| {
            let calls = Calls::default();
            look(words, since, &calls, |seen| is_due_still(seen, had_node, now))
        };
        let draining = format!("{WAITING} {}", keys::MARK_DRAIN);
        assert!(!due(&draining, false));
        assert!(due(&draining, true));
        assert!(due(&removing("Removing the VM"), false));
    }

    /// The Node joined after its Machine was deleted, so that the Machine's conditions do not tell of it.
    #[test]
    fn a_drain_that_was_told_is_waited_for_by_a_manager_that_never_saw_the_node() {
        let at = |text: &str| text.parse::<Timestamp>().expect("it is a time");
        let (since, now) = (at("2026-01-01T00:10:00Z"), at("2026-01-01T00:20:00Z"));
        let deadline = at("2026-01-01T02:00:00Z");
        let draining =
            "Draining node node-of-m1 until 2026-01-01T02:00:00Z at the latest: 1 pod is left. Initiate node drain";
        let until = |words: &str| look(words, since, &Calls::default(), |seen| awaited(seen, now));
        assert_eq!(until(draining), Some(deadline));
        assert_eq!(
            until(&format!("{WAITING} {}", keys::MARK_DRAIN)),
            Some(deadline),
            "said by the manager before"
        );
        assert_eq!(until("Looking for the VM and its node"), None);
    }
}
