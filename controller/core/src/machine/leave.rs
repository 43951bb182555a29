//! Before the VM of a deleted Machine goes: its Node is drained, and the volumes of its pods follow them.
//!
//! The drain is not begun again (MC-22; pains 66) once the mark at the end of the status's description (`keys::DELETION_MARKS`) says
//! that the VM is being removed, unless the Node is not cordoned: then new pods may have come.
//! MC-22; S7, L2.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::delete::PATIENCE;
use super::drain::{Force, Progress, Purpose, attached, deadline, force, tell_node, words};
use super::observed::Observed;
use super::status::StatusChange;
use super::step::{Plan, Step, Why};
use super::{dead, delete, drain, node};
use crate::api::{Machine, OperationReason, OperationState, OperationType, Phase, keys, meta};
use crate::drain::Drain;
use crate::sight::later;

/// How long the list of the pods may take once the drain is over by force and only this list is missing.
const LIST_WITHIN: SignedDuration = SignedDuration::from_secs(30);
/// How long the first status of a drain is put off for the list of pods. Most often that list is empty, and one status is enough.
const LOOK: SignedDuration = SignedDuration::from_secs(1);
/// How often the status is written while pods go.
const PACE: SignedDuration = SignedDuration::from_secs(5);

/// What is due before the VM may go.
#[derive(Clone, Copy, Debug)]
pub enum Due<'a> {
    /// Pods may be on the Node, and the target cluster is out of sight: its return is waited for, until this time at the latest.
    Await(Timestamp),
    /// The Node is drained.
    Drain(&'a Node),
}

/// What is due before the VM may go. `None`: nothing, or nothing more.
pub fn due<'a>(seen: &Observed<'a>, now: Timestamp) -> Option<Due<'a>> {
    if is_asked(seen) {
        return None;
    }
    if seen.is_blind() {
        return awaited(seen).filter(|until| now < *until).map(Due::Await);
    }
    let found = node_to_drain(seen)?;
    let is_over = is_said_to_be_over(seen.machine) && !is_open(seen, found, now) && !has_late_volume(seen, found, now);
    (!is_over).then_some(Due::Drain(found))
}

/// Whether the deletion is past its drain, as far as anybody has said.
pub fn is_over(seen: &Observed<'_>) -> bool {
    is_asked(seen) || is_said_to_be_over(seen.machine)
}

/// Whether the driver was asked to remove the VM.
fn is_asked(seen: &Observed<'_>) -> bool {
    seen.calls.gone_since.is_some() || seen.calls.delete_at.is_some()
}

/// Whether the description says that the VM is removed.
fn is_said_to_be_over(machine: &Machine) -> bool {
    let said = machine.last_words();
    let said = said.filter(|_| machine.operation_type() == Some(OperationType::Delete));
    let stages = keys::DELETION_MARKS.iter().enumerate();
    let stage = said.and_then(|said| stages.rev().find(|(_, mark)| said.ends_with(**mark)));
    stage.is_some_and(|(stage, _)| stage >= 2)
}

/// Whether new pods may come to the Node, and would be waited for. A Node that is itself being deleted does not count: it may be there only
/// because of our finalizer.
fn is_open(seen: &Observed<'_>, found: &Node, now: Timestamp) -> bool {
    let stays = !meta::is_deleting(&found.metadata) && !node::is_cordoned(found);
    stays && force(seen, found, Purpose::Leave, now).is_none()
}

/// Whether a volume came to the Node after the status said that the drain is over, and would be waited for: while the driver is away or
/// the account is throttled, a pod that a scheduler bound before it saw the cordon may start.
fn has_late_volume(seen: &Observed<'_>, found: &Node, now: Timestamp) -> bool {
    let emptied = seen.drain.and_then(Drain::emptied);
    let is_waited_for = emptied.is_some_and(|since| now < detached_by(seen, since));
    is_waited_for && force(seen, found, Purpose::Leave, now).is_none() && !attached(seen, found).is_empty()
}

/// Until when volumes of a Node are waited for whose pods are gone since then.
fn detached_by(seen: &Observed<'_>, since: Timestamp) -> Timestamp {
    let limit = deadline(seen, Purpose::Leave).unwrap_or(Timestamp::MAX);
    later(since, seen.settings.detach_timeout).min(limit)
}

/// The Node, if the Machine has one of its own. Without it nobody runs its pods, and the garbage collector of pods ends them.
fn node_to_drain<'a>(seen: &Observed<'a>) -> Option<&'a Node> {
    let found = seen.node.filter(|found| node::belongs(found, seen.machine));
    found.filter(|_| seen.settings.has_target)
}

/// Until when the return of the target cluster is waited for, because pods may be on the Machine's Node. Without end
/// ([`Timestamp::MAX`]), if the Machine has joined or its Node was seen: the drain timeout does not run while the cluster is out of sight.
/// If only the Node's name is known, for [`PATIENCE`], which is enough for the views of a new process to become complete. `None`: not at
/// all.
fn awaited(seen: &Observed<'_>) -> Option<Timestamp> {
    if seen.machine.is_deletion_forced() {
        return None;
    }
    let known = node_to_drain(seen);
    let has_pods = seen.machine.has_joined() || known.is_some() || was_draining(seen.machine);
    let is_drained = is_said_to_be_over(seen.machine) && known.is_none_or(node::is_cordoned);
    if has_pods {
        return (!is_drained).then_some(Timestamp::MAX);
    }
    seen.machine.node_label()?;
    let since = seen.sight.control_since;
    Some(since.map_or(Timestamp::MAX, |since| later(since, PATIENCE)))
}

/// Whether the status says that the Node is being drained, or that a drain is waited for. So it does also of a Node that joined only after
/// the Machine was deleted, whose conditions were never copied.
fn was_draining(machine: &Machine) -> bool {
    let reason = machine.operation_reason();
    matches!(reason, Some(OperationReason::Draining | OperationReason::DrainBlocked))
}

/// The target cluster is out of sight, and the drain waits for it. Nothing is written while the control cluster is out of sight too.
pub fn wait(seen: &Observed<'_>, until: Timestamp, now: Timestamp) -> Plan {
    let (why, mark) = (Why::TargetAway, keys::MARK_DRAIN);
    if seen.sight.control_since.is_none() {
        return Plan::rest(why);
    }
    let change = match until == Timestamp::MAX {
        true => told(seen, format!("Waiting to drain the node: {why}. {mark}"), now).because(OperationReason::Draining),
        false => told(
            seen,
            format!("Waiting until {until:.0} to drain the node: {why}. {mark}"),
            now,
        ),
    };
    let until = Some(until).filter(|until| *until < Timestamp::MAX);
    change.plan(seen.machine, why).or_at(until, now)
}

/// The Node is drained.
pub fn drain(seen: &Observed<'_>, found: &Node, now: Timestamp) -> Plan {
    // The Node joined after the status said that the VM is being removed. The status is taken back before the Node is cordoned: of a
    // cordoned Node, the status alone says whether it is drained (see `due`).
    if is_said_to_be_over(seen.machine) {
        let said = draining(
            seen,
            found,
            deadline(seen, Purpose::Leave),
            "its pods are not known yet",
            now,
        );
        return said.act(Why::Draining);
    }
    let force = force(seen, found, Purpose::Leave, now);
    let ask_at = match is_first(seen) || force.is_some() {
        true => None,
        false => match dead::ask(seen, found, now) {
            Ok(at) => at,
            Err(first) => return first,
        },
    };
    match drain::drain(seen, found, Purpose::Leave, now) {
        Progress::Empty(since) => detached(seen, found, since, now),
        Progress::Forced(force) => forced(seen, found, force, now),
        Progress::Going(plan) => going(seen, found, force, plan, now).or_at(ask_at, now),
    }
}

/// Nothing is told of the deletion yet.
fn is_first(seen: &Observed<'_>) -> bool {
    *seen.machine.phase() != Phase::Terminating
}

/// The drain goes on, and is told of.
fn going(seen: &Observed<'_>, found: &Node, force: Option<Force>, plan: Plan, now: Timestamp) -> Plan {
    let listed = seen.drain.filter(|drain| drain.is_listed());
    let is_prepared = listed.is_some() || plan.steps.is_empty();
    if !is_prepared {
        return plan;
    }
    let what = match (&plan.why, listed, force) {
        (Why::CordonRefused, _, _) => {
            let refusal = seen.calls.cordon_refused.as_ref();
            format!(
                "it cannot be cordoned: {}",
                refusal.map_or("", |refusal| &refusal.message)
            )
        }
        (Why::DrainForced, Some(drain), Some(force)) => words::forced(drain.left().count(), &force),
        (_, Some(drain), _) => words::left(drain, now),
        (_, None, Some(Force::Asked | Force::Late | Force::Ending | Force::ReadOnly)) => return unlisted(seen, now),
        (_, None, None | Some(Force::Dead | Force::Lost(_))) => {
            let look = seen.drain.map(|drain| later(drain.began, LOOK));
            if let Some(look) = look.filter(|look| is_first(seen) && now < *look) {
                return plan.or_at(Some(look), now);
            }
            "its pods are not known yet".to_owned()
        }
    };
    let said = draining(seen, found, deadline(seen, Purpose::Leave), &what, now);
    let said = match plan.why {
        Why::DrainBlocked | Why::CordonRefused => said.because(OperationReason::DrainBlocked),
        _ => said,
    };
    with_words(seen, found, said, plan, now)
}

/// Writes the status of the Machine and the condition of its Node, then goes on. The Node is written only together with the Machine: the
/// target cluster may refuse that write each time.
fn with_words(seen: &Observed<'_>, found: &Node, said: StatusChange, mut plan: Plan, now: Timestamp) -> Plan {
    let said = match plan.why {
        Why::DrainForced if !said.is_told(seen.machine) => said.act(plan.why.clone()),
        _ => paced(seen, said, plan.why.clone(), now),
    };
    let mut steps = said.steps;
    if !steps.is_empty() {
        steps.extend(tell_node(seen, found, now));
    }
    steps.append(&mut plan.steps);
    plan.steps = steps;
    plan.or_at(said.wake, now)
}

/// The drain is over by force, and the pods are not listed yet. Their list is waited for, for [`LIST_WITHIN`] from when its turn came: the
/// pods that are left are deleted after the VM.
fn unlisted(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let Some(turn) = seen.drain.and_then(|drain| drain.turn) else {
        return Plan::rest(Why::PodsUnknown);
    };
    let until = later(turn, LIST_WITHIN);
    match now < until {
        true => Plan::wait(until, Why::PodsUnknown),
        false => {
            let text = "The node could not be drained, its pods are not known; removing the VM";
            over(seen, text, now)
        }
    }
}

/// Whether an earlier process began this drain. That process alone knew which volumes were being detached, and the Node's own list lacks a
/// volume as soon as its detaching begins. So the VolumeAttachments are read before the VM goes.
fn was_begun_before(seen: &Observed<'_>) -> bool {
    let said = seen.machine.last_operation();
    let at = said.and_then(|said| said.last_update_time.as_ref()).map(|time| time.0);
    // Times of objects are whole seconds.
    let is_older = |drain: &Drain| at.is_some_and(|at| later(at, SignedDuration::from_secs(1)) <= drain.began);
    tells_of_drain(seen.machine) && seen.drain.is_some_and(is_older)
}

/// Whether the status says that the drain goes on.
pub fn tells_of_drain(machine: &Machine) -> bool {
    let words = machine.last_words().unwrap_or_default();
    [keys::MARK_DRAIN, keys::MARK_DETACH]
        .iter()
        .any(|mark| words.ends_with(mark))
}

/// The pods are gone. Their volumes are to be detached before the VM goes, or their data is at risk; this is waited for until the detach
/// timeout or the deadline of the drain.
fn detached(seen: &Observed<'_>, found: &Node, since: Timestamp, now: Timestamp) -> Plan {
    let attached = attached(seen, found);
    let until = detached_by(seen, since);
    // The pod of a volume that came later was not seen.
    if !attached.is_empty() && now < until && seen.drain.is_some_and(|drain| !drain.is_watched) {
        return Plan::act(vec![Step::WatchPods(node::name(found))], Why::Draining);
    }
    if attached.is_empty() && (seen.volumes.is_known() || !was_begun_before(seen)) {
        let text = if is_first(seen) {
            "Removing the VM"
        } else {
            "The node is drained; removing the VM"
        };
        return over(seen, text, now);
    }
    if now >= until {
        let text = match attached.is_empty() {
            true => "The node is drained; removing the VM",
            false => "The node is drained, volumes are still attached; removing the VM",
        };
        return over(seen, text, now);
    }
    if let Some(step) = unknown_volumes(seen, found) {
        return Plan::act(vec![step], Why::VolumesUnknown).or_at(Some(until), now);
    }
    let look = later(since, LOOK);
    if !seen.volumes.is_known() && (attached.is_empty() || now < look) {
        let look = Some(look).filter(|_| !attached.is_empty());
        return Plan::rest(Why::VolumesUnknown).or_at(Some(until), now).or_at(look, now);
    }
    let said = draining(seen, found, Some(until), &words::attached(&attached), now);
    with_words(seen, found, said, Plan::rest(Why::Detaching), now).or_at(Some(until), now)
}

/// The step that finds out which of the attached volumes are to be waited for: those of pods that stay are not.
fn unknown_volumes(seen: &Observed<'_>, found: &Node) -> Option<Step> {
    if !seen.volumes.is_watched() {
        return Some(Step::WatchVolumes);
    }
    let is_attached = !seen.volumes.on(&node::name(found)).is_empty();
    let staying = seen.drain.filter(|_| is_attached).map(Drain::unknown_staying);
    staying.filter(|pods| !pods.is_empty()).map(Step::LearnVolumes)
}

/// The pods are not waited for any more. VolumeAttachments are deleted before the VM goes only if it is proven that nothing uses them.
fn forced(seen: &Observed<'_>, found: &Node, force: Force, now: Timestamp) -> Plan {
    let left = seen.drain.map_or(0, |drain| drain.left().count());
    if !force.is_proven() && left > 0 {
        let text = format!("{}; removing the VM", words::cut_off(left, &force));
        let plan = over(seen, &text, now);
        return Plan::act(plan.steps, Why::DrainForced);
    }
    let text = format!("The node is drained by force, because {force}; removing the VM");
    let mut plan = over(seen, &text, now);
    if force.is_proven() {
        let attached = seen.volumes.on(&node::name(found));
        let detach = (!attached.is_empty()).then_some(Step::Detach(attached));
        plan.steps
            .splice(0..0, dead::out_of_service(seen, found).into_iter().chain(detach));
    }
    plan
}

/// The status says that the drain is over; from then on it is.
fn over(seen: &Observed<'_>, text: &str, now: Timestamp) -> Plan {
    told(seen, removing(text), now).act(Why::Drained)
}

/// With what comes next.
pub fn removing(text: &str) -> String {
    format!("{text}. {}", keys::MARK_VM_DELETION)
}

/// Writes the status if it differs from the stored one, and no sooner than `PACE` after the last write. Two writes do not wait: one that
/// changes the phase, and one after a status that said that the VM is being removed.
pub(super) fn paced(seen: &Observed<'_>, change: StatusChange, why: Why, now: Timestamp) -> Plan {
    let is_due = change.phase != *seen.machine.phase() || is_said_to_be_over(seen.machine);
    let last = seen.machine.last_operation();
    let last = last.and_then(|last| last.last_update_time.as_ref());
    let due = last.map(|at| later(at.0, PACE)).filter(|due| *due > now && !is_due);
    match due {
        Some(_) if !change.is_told(seen.machine) => Plan::rest(why).or_at(due, now),
        Some(_) | None => change.plan(seen.machine, why),
    }
}

/// A status of the deletion.
pub fn told(seen: &Observed<'_>, text: String, now: Timestamp) -> StatusChange {
    delete::told(seen, OperationState::Processing, text, now)
}

/// Whether the Machine's status tells already that a pod does not go.
pub fn tells_blocker(machine: &Machine) -> bool {
    machine.operation_reason() == Some(OperationReason::DrainBlocked)
}

fn draining(seen: &Observed<'_>, found: &Node, until: Option<Timestamp>, what: &str, now: Timestamp) -> StatusChange {
    let (name, mark) = (node::name(found), keys::MARK_DRAIN);
    let until = until.map_or_else(String::new, |until| format!(" until {until:.0} at the latest"));
    let text = format!("Draining node {name}{until}: {what}. {mark}");
    told(seen, text, now).because(OperationReason::Draining)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::circuit_breaker::Circuits;
    use crate::drain::Volumes;
    use crate::driver::{Call, Deletion};
    use crate::ledger::{Answer, Calls};
    use crate::machine::observed::{ClassView, DriverView};
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
            driver: DriverView::Unnamed,
            node: None,
            rival: None,
            losers: crate::replacement_limit::Tally::default(),
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

    /// A question for the VM's state that could not be asked is to be repeated. That is no sign that the driver was asked to remove the VM.
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
            look(&words, now, &calls, |seen| due(seen, now).is_none())
        };
        let going = Deletion {
            gone: false,
            poll_after: None,
            last_known_state: None,
        };
        assert!(!over(Answer::NotAsked(Call::Status)), "the Node is not in view yet");
        assert!(over(Answer::Deletion(Ok(going))));
    }

    /// The Node joined after its Machine was deleted, so that the Machine's conditions do not tell of it.
    #[test]
    fn a_drain_that_was_told_is_waited_for_by_a_manager_that_never_saw_the_node() {
        let at = |text: &str| text.parse::<Timestamp>().expect("it is a time");
        let since = at("2026-01-01T00:10:00Z");
        let draining =
            "Draining node node-of-m1 until 2026-01-01T02:00:00Z at the latest: 1 pod is left. Initiate node drain";
        let until = |words: &str| look(words, since, &Calls::default(), awaited);
        assert_eq!(until(draining), Some(Timestamp::MAX));
        assert_eq!(
            until(&format!("{WAITING} {}", keys::MARK_DRAIN)),
            Some(Timestamp::MAX),
            "said by the version before"
        );
        let patience = since + PATIENCE;
        assert_eq!(
            until("Looking for the VM and its node"),
            Some(patience),
            "its name alone is known"
        );
        assert_eq!(until(&removing("The node is drained; removing the VM")), Some(patience));
    }
}
