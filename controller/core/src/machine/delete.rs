//! The order of leaving. The first row that holds says what is due; each is one write or call that follows from what is stored and from
//! what the driver says, so a crash after any of them goes on with the next.
//!
//! | what holds | stage | what is done |
//! |---|---|---|
//! | our finalizer is gone | Released | nothing |
//! | a call is under way | Calling | its answer is waited for |
//! | no driver was ever asked for a VM, by this manager or the original | Unmade | the finalizer goes |
//! | no driver was ever asked, and the one to ask is away | Unaskable | it is waited for |
//! | the provider accepted the credentials of no creation | LockedOut | the token, the finalizer |
//! | pods may be on the Node, and their cluster is out of sight | Await | it is waited for, with an end only where no Node was ever seen |
//! | the Node is not drained, and the driver was not asked to remove the VM | Drain | cordon, list, evict, detach (`machine::leave`) |
//! | the driver did not say that nothing is left | Vm | the Node's name is learned; then DeleteMachine, until it says so |
//! | it said so once, and a VM asked for may still appear | Proof | it is asked again after its propagation delay |
//! | the target cluster is out of sight | Away | it is waited for; what never joined, or is forced, is left behind |
//! | none of these | Rest | volumes, Nodes, the token, the finalizer |
//!
//! S2: our finalizer leaves only when nothing is left at the provider. Needs no good class, Secret or Node: each absence
//! is a case of its own (W4). MC-21, MC-26; the markers at the end of descriptions are the original's program counter.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::leave::{self, Due};
use super::node;
use super::observed::{DriverView, Observed};
use super::status::{StatusChange, crumb_due};
use super::step::{Plan, Step, Why};
use crate::api::lenient::GoDuration;
use crate::api::{Machine, OperationReason, OperationState, OperationType, Phase, keys, meta};
use crate::circuit_breaker::{Admission, Cause, Operation};
use crate::drain::Drain;
use crate::driver::{Call, Pace, Reaction, Reason};
use crate::ids::NodeName;
use crate::ledger::Trouble;
use crate::sight::later;

/// After how many failed look-ups of the node's name the VM is removed although that name is not known.
const LOOKUPS: u32 = 3;

/// How long the answer to a CreateMachine may take until a deletion that waits for the answer says so.
const LONG_CREATION: SignedDuration = SignedDuration::from_secs(10);
/// How long the removal of a VM may take until the status and an event say so.
const LONG_REMOVAL: SignedDuration = SignedDuration::from_mins(15);

/// How long the return of the target cluster is waited for before a Machine that never joined ends without it: longer than a watch
/// takes to list again, shorter than the minute within which such a Machine is to end.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// How long the Node of a VM that is gone waits until it is known which pods are there, and where volumes are attached.
const VOLUMES_WITHIN: SignedDuration = SignedDuration::from_secs(20);

/// What is due of a deletion: see the module's table.
enum Stage<'a> {
    Released,
    Calling(Call),
    Unmade,
    Unaskable(Why),
    LockedOut(Timestamp),
    Await(Timestamp),
    Drain(&'a Node),
    Vm,
    Proof(Plan),
    Away(Timestamp),
    Rest(Timestamp),
}

fn stage<'a>(seen: &Observed<'a>, now: Timestamp) -> Stage<'a> {
    if !meta::has_finalizer(&seen.machine.metadata, keys::FINALIZER) {
        return Stage::Released;
    }
    if let Some(call) = seen.calls.running {
        return Stage::Calling(call);
    }
    if never_had_vm(seen) {
        return Stage::Unmade;
    }
    if let Some(why) = unaskable(seen).filter(|_| is_untouched(seen)) {
        return Stage::Unaskable(why);
    }
    if let Some(since) = locked_out_since(seen) {
        return Stage::LockedOut(since);
    }
    match (leave::due(seen, now), seen.calls.gone_since) {
        (Some(Due::Await(until)), _) => Stage::Await(until),
        (Some(Due::Drain(found)), _) => Stage::Drain(found),
        (None, None) => Stage::Vm,
        (None, Some(gone_since)) => match unproven(seen, gone_since, now) {
            Some(plan) => Stage::Proof(plan),
            None if seen.is_blind() => Stage::Away(gone_since),
            None => Stage::Rest(gone_since),
        },
    }
}

/// Decides what a Machine with a deletionTimestamp needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let is_told = *seen.machine.phase() == Phase::Terminating;
    match stage(seen, now) {
        Stage::Released => Plan::rest(Why::Released),
        Stage::Calling(Call::Create) => behind_creation(seen, now),
        Stage::Calling(call) => Plan::rest(Why::CallRunning(call)),
        Stage::Unmade => Plan::act(vec![Step::RemoveFinalizer], Why::NeverMade),
        Stage::Unaskable(why) => blocked(seen, why, now),
        Stage::LockedOut(since) if seen.is_blind() && may_have_token(seen) => blind(seen, since, now),
        Stage::LockedOut(_) => {
            let token = may_have_token(seen).then_some(Step::DropToken);
            Plan::act(
                token.into_iter().chain([Step::RemoveFinalizer]).collect(),
                Why::NeverMade,
            )
        }
        Stage::Await(until) => leave::wait(seen, until, now),
        Stage::Drain(found) => leave::drain(seen, found, now),
        Stage::Vm | Stage::Proof(_) | Stage::Away(_) | Stage::Rest(_) if !is_told => begin(seen, now),
        // The drain ended without a word: by force, while its cluster is out of sight.
        Stage::Vm if leave::tells_of_drain(seen.machine) && !leave::is_over(seen) => begin(seen, now),
        Stage::Vm => remove_vm(seen, now),
        Stage::Proof(plan) => plan,
        Stage::Away(gone_since) => blind(seen, gone_since, now),
        Stage::Rest(gone_since) => rest(seen, gone_since, now),
    }
}

/// A VM can be removed only after the answer to its CreateMachine. Most answers come soon: the status says nothing of those.
fn behind_creation(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let why = Why::CallRunning(Call::Create);
    let since = meta::deleting_since(&seen.machine.metadata).unwrap_or(now);
    let told_at = later(since, LONG_CREATION);
    if now < told_at {
        return Plan::wait(told_at, why);
    }
    let text = format!("Waiting to remove the VM: {why}. {}", mark(seen));
    told(seen, OperationState::Processing, text, now).plan(seen.machine, why)
}

/// The first status of a deletion without a drain.
fn begin(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let text = match is_unlocated(seen) {
        true => format!("Looking for the VM and its node. {}", keys::MARK_VM_STATUS),
        false => leave::removing("Removing the VM"),
    };
    leave::told(seen, text, now).act(Why::Deleting)
}

/// Nothing is left at the provider, so nothing runs on the Node and nothing uses its volumes. The order is: Node, pods, VolumeAttachments.
/// While the Node is there a DaemonSet would make its pod again, and while a pod is there its volume would be attached again.
fn rest(seen: &Observed<'_>, gone_since: Timestamp, now: Timestamp) -> Plan {
    let own = seen.node.filter(|found| node::belongs(found, seen.machine));
    let mut steps = Vec::new();
    if let Some(found) = own.filter(|found| !node::attached(found).is_empty()) {
        let until = later(gone_since, VOLUMES_WITHIN);
        let is_known = seen.volumes.is_known() && seen.drain.is_some_and(Drain::is_listed);
        if !is_known && now < until {
            let watch = seen.drain.is_none().then(|| Step::WatchPods(node::name(found)));
            let look = (!seen.volumes.is_watched()).then_some(Step::WatchVolumes);
            steps.extend(watch.into_iter().chain(look));
            return Plan::act(steps, Why::VolumesUnknown).or_at(Some(until), now);
        }
    }
    let known = node_name(seen);
    if let Some(name) = known.clone().or_else(|| lost_node(seen)) {
        steps.push(Step::RemoveNode(name));
    }
    // Another VM may have a Node of that name by now, with pods and volumes of its own.
    let is_own = seen.rival.is_none() && seen.node.is_none_or(|found| node::belongs(found, seen.machine));
    if let Some(name) = known.filter(|_| is_own) {
        let pods = seen.drain.map(Drain::left_behind).unwrap_or_default();
        let attached = seen.volumes.on(&name);
        let grace = SignedDuration::ZERO;
        steps.extend((!pods.is_empty()).then_some(Step::DeletePods { pods, grace }));
        steps.extend((!attached.is_empty()).then_some(Step::Detach(attached)));
    }
    if may_have_token(seen) {
        steps.push(Step::DropToken);
    }
    steps.push(Step::RemoveFinalizer);
    Plan::act(steps, Why::VmGone)
}

/// The VM is gone and the target cluster is away. A Machine that never joined ends all the same, and so does one whose user forces it,
/// because that cluster may be gone for good: what may be left there, a token or a Node, is removed when the cluster returns. Any other
/// Machine that joined waits for the cluster, because its Node is certainly there.
fn blind(seen: &Observed<'_>, gone_since: Timestamp, now: Timestamp) -> Plan {
    // Where both clusters were away, their watches come back one after the other.
    let since = seen.sight.control_since.map(|since| since.max(gone_since));
    let patience = since.map(|since| later(since, PATIENCE)).filter(|until| now < *until);
    let may_end = !seen.machine.has_joined() || seen.machine.is_deletion_forced();
    if may_end && (since.is_none() || patience.is_some()) {
        return Plan::rest(Why::TargetAway).or_at(patience, now);
    }
    if may_end {
        return Plan::act(vec![Step::LeaveBehind, Step::RemoveFinalizer], Why::VmGone);
    }
    let why = Why::TargetAway;
    let text = format!(
        "The VM is gone; waiting to remove its Node: {why}. {}",
        keys::MARK_NODE_DELETION
    );
    told(seen, OperationState::Processing, text, now).plan(seen.machine, why)
}

/// A status of the deletion.
pub(super) fn told(seen: &Observed<'_>, state: OperationState, text: String, now: Timestamp) -> StatusChange {
    StatusChange::told(seen.machine, OperationType::Delete, state, text, now).entering(Phase::Terminating)
}

/// A request for a VM is recorded before a driver is asked, so a Machine without a record has no VM where [`keys::REQUESTS_RECORDED`] says
/// that no other controller acted on it before. One that an older controller left may have a VM, whatever has become of its class and its
/// driver since.
pub fn never_had_vm(seen: &Observed<'_>) -> bool {
    !was_requested(seen.machine) && seen.calls.vm.is_none()
}

/// Whether a driver may have been asked for the VM. See [`never_had_vm`].
pub(crate) fn was_requested(machine: &Machine) -> bool {
    let is_recorded = meta::annotation(&machine.metadata, keys::REQUESTS_RECORDED) == Some(keys::PRESENT);
    !is_recorded || !is_unrecorded(machine)
}

/// Nothing on the Machine says that a VM was asked for or seen.
fn is_unrecorded(machine: &Machine) -> bool {
    is_unnamed(machine) && machine.creation_request().is_none()
}

fn is_unnamed(machine: &Machine) -> bool {
    machine.provider_id().is_none() && machine.node_label().is_none()
}

/// Since when it is certain that no VM was ever made, although creations were sent: the provider accepted the credentials of none. It would
/// not accept those of a deletion either.
fn locked_out_since(seen: &Observed<'_>) -> Option<Timestamp> {
    let calls = seen.calls;
    let may_be = is_unnamed(seen.machine) && calls.vm.is_none() && calls.doubt.is_none();
    let unmade = calls.unmade.filter(|unmade| unmade.is_locked_out && may_be)?;
    Some(unmade.since)
}

/// Nothing was done for the Machine yet.
fn is_untouched(seen: &Observed<'_>) -> bool {
    let is_early = matches!(seen.machine.phase(), Phase::New | Phase::Pending);
    is_early && is_unrecorded(seen.machine) && seen.calls.vm.is_none()
}

/// Whether a VM may be there of which nobody knows what its node is called, because the answer to its creation was lost: its driver is
/// asked, and the node is drained then.
pub fn is_unlocated(seen: &Observed<'_>) -> bool {
    let is_known = node_name(seen).is_some() || seen.machine.provider_id().is_some();
    seen.settings.has_target && !is_known && seen.calls.not_found_at.is_none() && !is_untouched(seen)
}

/// What comes next, at the end of what is told while the VM is not removed yet: a mark never claims that the drain is over before it is.
fn mark(seen: &Observed<'_>) -> &'static str {
    match is_unlocated(seen) && !leave::is_over(seen) {
        true => keys::MARK_VM_STATUS,
        false => keys::MARK_VM_DELETION,
    }
}

/// Why nobody can be asked now.
pub(super) fn unaskable(seen: &Observed<'_>) -> Option<Why> {
    match seen.driver {
        DriverView::Ready(_) => None,
        DriverView::Missing { name, .. } => Some(Why::DriverMissing(name.to_owned())),
        DriverView::Away { name, why } => Some(Why::DriverAway(format!("{name}: {why}"))),
        DriverView::Unnamed => Some(Why::DriverUnnamed),
    }
}

fn remove_vm(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if let Some(why) = unaskable(seen) {
        return blocked(seen, why, now);
    }
    if let Some(plan) = suspended(seen, now) {
        return plan;
    }
    if let Some(plan) = refused_by_id(seen, now) {
        return plan;
    }
    if let Some(plan) = troubled(seen, now) {
        return plan;
    }
    if let Some(plan) = find_node(seen, now) {
        return plan;
    }
    if let Some(plan) = crumb_due(seen, now) {
        return plan;
    }
    match seen.calls.delete_at {
        Some(at) if now < at => removal_takes_long(seen, now).unwrap_or_else(|| Plan::wait(at, Why::VmGoing)),
        Some(_) | None => ask(seen, Call::Delete, Why::VmGoing, now),
    }
}

/// The driver has said for long that the VM is being removed. The status says so once: only the provider shows what holds the VM.
fn removal_takes_long(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let said = seen.machine.last_operation()?.last_update_time.as_ref()?;
    let lasts = GoDuration::from(LONG_REMOVAL);
    let text = format!(
        "The driver has been removing the VM for more than {lasts}, and the VM is not gone: the provider may show what holds it. {}",
        mark(seen)
    );
    let change = told(seen, OperationState::Failed, text, now).with_crumb(seen.calls.crumb.as_ref());
    let is_due = later(said.0, LONG_REMOVAL) <= now && !change.is_told(seen.machine);
    is_due.then(|| change.act(Why::VmStays))
}

/// The driver refused a deletion, because the VM of the Machine's `providerID` has the uid of another Machine. GetMachineStatus tells whether
/// the VM is the Machine's from before a restore. Where there is no VM of the Machine, as of a copied manifest, DeleteMachine is repeated
/// without the id.
fn refused_by_id(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let trouble = seen.calls.failed(Call::Delete)?;
    if seen.calls.names_foreign_vm() {
        return (trouble.times == 1).then(|| ask(seen, Call::Delete, Why::VmGoing, now));
    }
    let is_foreign = trouble.failure.reason == Some(Reason::NotOwned) && seen.machine.provider_id().is_some();
    let is_unasked = seen.calls.vm.is_none() && seen.calls.not_found_at.is_none();
    (is_foreign && is_unasked).then(|| ask(seen, Call::Status, Why::FindingVm, now))
}

/// A call; where others wait for the same, as the probe for all.
fn ask(seen: &Observed<'_>, call: Call, why: Why, now: Timestamp) -> Plan {
    let is_probe = seen.admit(Operation::Delete, now) == Admission::Probe;
    let probe = is_probe.then_some(Step::Probe(Operation::Delete));
    Plan::act(probe.into_iter().chain([Step::Call(call)]).collect(), why)
}

/// The driver is asked for the VM, but not again at once where the last question did not reach it.
fn look_up(seen: &Observed<'_>, why: Why, now: Timestamp) -> Plan {
    match seen.calls.poll_at {
        Some(at) if now < at => Plan::wait(at, why),
        Some(_) | None => ask(seen, Call::Status, why, now),
    }
}

/// A circuit breaker is open: another Machine's call failed as this one's would, and that Machine tries again for both. A Machine whose own
/// call failed tells its own failure instead.
fn suspended(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let Admission::Deny(breaker, look) = seen.admit(Operation::Delete, now) else {
        return None;
    };
    let has_own = |trouble: &Trouble| {
        let is_own = Cause::of(&trouble.failure).is_some() || now < trouble.retry_at;
        is_own || (is_deposed(trouble) && !trouble.is_false_alarm)
    };
    if own_trouble(seen).is_some_and(has_own) {
        return None;
    }
    let why = Why::Parked(breaker.to_string());
    let text = format!("Waiting to remove the VM: {why}. {}", mark(seen));
    let change = told(seen, OperationState::Failed, text, now)
        .because(OperationReason::Suspended)
        .with_code(breaker.cause.code())
        .keeping_words(seen.machine, mark(seen));
    Some(change.plan(seen.machine, why).or_at(Some(look), now))
}

/// The last call, if it was one of the deletion's and failed.
fn own_trouble<'a>(seen: &Observed<'a>) -> Option<&'a Trouble> {
    let asked = || seen.calls.failed(Call::Status);
    seen.calls.failed(Call::Delete).or_else(asked)
}

fn is_deposed(trouble: &Trouble) -> bool {
    trouble.failure.reaction() == Reaction::StepDown
}

/// Without the node's name its Node would outlive the VM, so it is learned and stored while the VM can tell it.
fn find_node(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    if !seen.settings.has_target || node_name(seen).is_some() || seen.calls.not_found_at.is_some() {
        return None;
    }
    if !matches!(seen.driver, DriverView::Ready(_)) {
        return None;
    }
    // A lookup that fails again and again, or a deletion under way, is no reason to keep the VM (L2).
    let fruitless = seen
        .calls
        .trouble
        .as_ref()
        .is_some_and(|trouble| trouble.times >= LOOKUPS || trouble.call == Call::Delete);
    match &seen.calls.vm {
        None if fruitless || seen.calls.delete_at.is_some() => None,
        None => Some(look_up(seen, Why::FindingNode, now)),
        Some(vm) => super::create::identify(seen, vm).map(|identify| Plan::act(vec![identify], Why::FindingNode)),
    }
}

/// The last call failed. `None`: go on.
fn troubled(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let trouble = own_trouble(seen)?;
    if is_deposed(trouble) && !trouble.is_false_alarm {
        return Some(Plan::act(vec![Step::StepDown], Why::StaleLeader));
    }
    let failure = &trouble.failure;
    // A pause that stays the same is told; of others the text would be another one each time.
    let pause = match failure.pace() {
        Pace::Medium | Pace::Long if failure.retry_after.is_none() && !failure.is_exhausted() => {
            let pause = GoDuration::from(failure.pause(1, SignedDuration::ZERO));
            format!(" The next try comes after {pause}.")
        }
        Pace::Short | Pace::Medium | Pace::Long | Pace::Growing => String::new(),
    };
    let text = format!("{} failed: {}.{pause} {}", trouble.call, failure.message, mark(seen));
    let change = told(seen, OperationState::Failed, text, now)
        .with_code(trouble.failure.word())
        .with_crumb(seen.calls.crumb.as_ref());
    let retry_at = seen.retry_at(trouble, Operation::Delete, now);
    super::create::told_until(seen, change, retry_at, Why::DeletionFailed, now)
}

fn blocked(seen: &Observed<'_>, why: Why, now: Timestamp) -> Plan {
    let text = format!("Waiting to remove the VM: {why}. {}", mark(seen));
    // The phase stays New or Pending: only in these does the Machine count as untouched (`is_untouched`) when it is looked at again.
    let change = match is_untouched(seen) {
        true => StatusChange::told(seen.machine, OperationType::Delete, OperationState::Failed, text, now),
        false => told(seen, OperationState::Failed, text, now),
    };
    change.plan(seen.machine, why)
}

/// A create whose answer nobody saw may still bring a VM into view: the end is believed only when the driver does not
/// know the VM after the provider's propagation delay either (MC-26). That is counted from the first
/// "nothing is left", because until then a create may have been running in the driver.
fn unproven(seen: &Observed<'_>, gone_since: Timestamp, now: Timestamp) -> Option<Plan> {
    // A look-up may not show yet what was made a moment ago, by this process or by the one before it.
    let made = seen.calls.made_at.unwrap_or(seen.sight.lead_since);
    let is_settled = match seen.driver {
        DriverView::Ready(info) => later(made, info.propagation_delay) <= gone_since,
        DriverView::Unnamed | DriverView::Missing { .. } | DriverView::Away { .. } => seen.calls.made_at.is_none(),
    };
    if seen.machine.provider_id().is_some() && is_settled {
        return None;
    }
    // "Nothing is left" counts only when it was said twice, the delay apart. A driver that went away after the first time has said
    // it once, so its return is waited for.
    if let Some(why) = unaskable(seen) {
        return Some(blocked(seen, why, now));
    }
    let DriverView::Ready(info) = seen.driver else {
        return None;
    };
    let certain = later(gone_since, info.propagation_delay);
    if seen.calls.not_found_at.is_some_and(|at| at >= certain) {
        return None;
    }
    if now < certain {
        return Some(Plan::wait(certain, Why::VmMayAppear));
    }
    let held = suspended(seen, now).or_else(|| troubled(seen, now));
    Some(held.unwrap_or_else(|| look_up(seen, Why::VmMayAppear, now)))
}

fn node_name(seen: &Observed<'_>) -> Option<NodeName> {
    if !seen.settings.has_target {
        return None;
    }
    seen.node
        .filter(|found| node::belongs(found, seen.machine))
        .map(node::name)
        .or_else(|| seen.machine.node_label())
}

/// Where every answer about the VM was lost, its Node may be there all the same, by the Machine's own name. Whoever carries
/// the step out looks whose it is.
fn lost_node(seen: &Observed<'_>) -> Option<NodeName> {
    let is_known = seen.machine.provider_id().is_some();
    let name = seen.machine.metadata.name.as_deref();
    (seen.settings.has_target && !is_known)
        .then(|| NodeName::non_empty(name))
        .flatten()
}

/// A Machine that has joined says so by its conditions, and its token went before they were written.
fn may_have_token(seen: &Observed<'_>) -> bool {
    seen.settings.has_target && !seen.machine.has_joined() && super::join::needs_token(seen)
}
