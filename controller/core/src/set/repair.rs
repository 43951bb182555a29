//! Which unhealthy Machines a set fails: by phase `Failed`, which is replaced.
//!
//! `machine::judgement` says how each is. One whose VM is proven gone, or is announced to go, fails at once. Of the others, which have been
//! unhealthy for longer than their health timeout, at most so many of a deployment fail at once, until their replacements run; and
//! none while a limit of unhealthy Machines is reached (`breaker`). Decides nothing about what is deleted: `set::plan` replaces.
//! MS-9; MC-14; S6.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::facts::{is_kept, is_leaving};
use super::observed::{MachineView, Observed, Plan, Step, Why};
use crate::api::{Machine, OperationReason, OperationType, Phase, meta};
use crate::driver::Code;
use crate::ids::Name;
use crate::kinds;
use crate::machine::judgement::{Failed, Fault, Judgement, LAST_LOOK, Witnesses, runs_after_all};
use crate::replacement_limit::{self, Tripped};
use crate::sight::later;

/// How often a set looks whether a zone is well again: nothing of its own changes when others recover.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

impl<'a> Observed<'a> {
    /// The limit that keeps an unhealthy Machine, whatever time it had.
    pub fn tripped(&self, machine: &MachineView<'_>) -> Option<Tripped> {
        let limit = &self.settings.unhealthy_threshold;
        if machine.group.reaches(limit) {
            return Some(Tripped::Group(machine.group, limit.clone()));
        }
        replacement_limit::tripped_zone(kinds::zone(machine.node?)?, machine.zone, self.settings)
    }

    fn witnesses(&self, view: &'a MachineView<'a>) -> Witnesses<'a> {
        Witnesses {
            machine: view.machine,
            node: view.node,
            calls: view.calls,
            sight: self.sight,
            settings: self.settings,
        }
    }
}

/// A Machine that has failed.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenUp {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// What is written of it.
    pub failed: Box<Failed>,
    /// What ails it.
    pub fault: Fault,
    /// Its VM is gone, or is announced to go: no limit keeps it.
    pub has_ended: bool,
}

/// The step that fails Machines, if any may be, and when to look again.
pub fn give_up<'a>(
    seen: &Observed<'a>,
    present: &[&'a MachineView<'a>],
    now: Timestamp,
    plan: &mut Plan,
) -> Option<Step> {
    let mut over: Vec<(&MachineView<'_>, Fault)> = Vec::new();
    let mut given: Vec<GivenUp> = Vec::new();
    for machine in present.iter().copied() {
        let refusal = machine.refusal.filter(|refusal| refusal.holds(now));
        let why = match (seen.witnesses(machine).judge(), refusal) {
            (Judgement::Healthy | Judgement::Unknown | Judgement::Ill { until: None, .. }, _) => continue,
            (_, Some(refusal)) => {
                plan.look_at(Some(refusal.retry_at), now);
                Why::Refused(refusal.message.clone())
            }
            (Judgement::Ended(lost), None) => {
                given.push(given_up(seen, machine, Fault::Vm(lost), true, now));
                continue;
            }
            (Judgement::Ill { fault, until: Some(at) }, None) if at > now => {
                plan.look_at(Some(at), now);
                Why::GivenUpAt(fault, at)
            }
            (Judgement::Ill { fault, .. }, None) => match seen.tripped(machine) {
                None => {
                    over.push((machine, fault));
                    continue;
                }
                Some(tripped) => {
                    plan.look_at(Some(later(now, LOOK_AGAIN)), now);
                    Why::TooManyIll(fault, tripped)
                }
            },
        };
        plan.withheld.push((Name::new(meta::name(&machine.metadata)), why));
    }
    over.sort_by_cached_key(|(machine, _)| (machine.phase_since(), meta::name(&machine.metadata).to_owned()));
    // Nearly always there are none, and who is under way is asked of every Machine.
    let free = match over.is_empty() {
        true => 0,
        false => seen.allowance.replace.saturating_sub(under_way(seen, present, now)),
    };
    let waiting = over.split_off(free.min(over.len()));
    plan.withheld.extend(waiting.iter().map(|(machine, fault)| {
        let name = Name::new(meta::name(&machine.metadata));
        (name, Why::OthersFirst(*fault, seen.allowance.replace))
    }));
    let chosen = over.into_iter();
    given.extend(chosen.map(|(machine, fault)| given_up(seen, machine, fault, false, now)));
    plan.why = Why::GivingUp(given.first()?.fault);
    Some(Step::GiveUp(given))
}

fn given_up<'a>(
    seen: &Observed<'a>,
    view: &'a MachineView<'a>,
    fault: Fault,
    has_ended: bool,
    now: Timestamp,
) -> GivenUp {
    GivenUp {
        machine: Arc::clone(view.machine),
        failed: Box::new(seen.witnesses(view).failed(fault, now)),
        fault,
        has_ended,
    }
}

/// How many Machines of the set have failed and are not replaced yet, or are on their way: as long as a Machine that was asked for does
/// not run, another one does not fail for it. One that waits for capacity, or for whatever else must be there before a VM is asked for, is
/// not on its way: nobody knows when it will be, and what has failed may hold the capacity.
fn under_way(seen: &Observed<'_>, present: &[&MachineView<'_>], now: Timestamp) -> usize {
    let settled = present
        .iter()
        .filter(|machine| machine.phase().is_there() || waits(machine) || is_kept(machine, now));
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    wanted.saturating_sub(settled.count()).max(given_up_before(seen, now))
}

/// Whether the Machine waits before it gets a VM.
fn waits(machine: &Machine) -> bool {
    let last = machine.last_operation().and_then(|last| last.error_code.as_deref());
    let reason = machine.operation_reason();
    matches!(machine.phase(), Phase::Pending | Phase::CrashLoopBackOff)
        && (matches!(reason, Some(OperationReason::Waiting | OperationReason::Suspended))
            || last == Some(Code::ResourceExhausted.word()))
}

/// When a Failed Machine may be deleted: after the pause; at once where its VM is announced to go; and where it failed because its VM was
/// said not to run, not before its driver has said so again: the VM may be on again, with its disk. A driver that says nothing more for as
/// long as a health timeout holds nobody up. An answer wakes the Machine alone, so the set looks again by itself.
pub fn replaced_at(
    seen: &Observed<'_>,
    machine: &MachineView<'_>,
    pause: SignedDuration,
    now: Timestamp,
) -> Option<Timestamp> {
    let since = machine.phase_since()?;
    if machine.operation_reason() == Some(OperationReason::VmEnding) {
        return None;
    }
    let due = later(since, pause);
    let at_most = later(since, seen.settings.health_timeout);
    match awaits_driver(machine) {
        true => Some(due.max(later(now, LAST_LOOK).min(at_most))),
        false => Some(due),
    }
}

/// Whether a Machine failed because its VM was said not to run, and its driver has not said so since.
pub fn awaits_driver(machine: &MachineView<'_>) -> bool {
    let is_said = machine.is_given_up() && machine.operation_reason() == Some(OperationReason::VmReported);
    is_said && machine.calls.and_then(|calls| runs_after_all(machine, calls)) != Some(false)
}

/// How many Machines of a set failed and are still there. Those that are preserved are not being replaced.
pub fn given_up_before(seen: &Observed<'_>, now: Timestamp) -> usize {
    seen.owned()
        .filter(|machine| is_failed(machine) && !is_leaving(machine) && !is_kept(machine, now))
        .count()
}

/// Whether a Machine that had joined failed.
fn is_failed(machine: &Machine) -> bool {
    machine.is_given_up()
        || (*machine.phase() == Phase::Failed && machine.operation_type() == Some(OperationType::InPlaceUpdate))
}

/// Who is kept although its time is over: the first, how many, and by which limit.
pub fn held_back<'a>(
    seen: &Observed<'a>,
    machines: impl Iterator<Item = &'a MachineView<'a>>,
    now: Timestamp,
) -> Option<String> {
    let is_over = |machine: &'a MachineView<'a>| match seen.witnesses(machine).judge() {
        Judgement::Ill { until: Some(at), .. } => at <= now,
        Judgement::Ill { until: None, .. } | Judgement::Ended(_) | Judgement::Unknown => false,
        Judgement::Healthy => machine.node.is_some_and(|node| meta::is_deleting(&node.metadata)),
    };
    let mut held = machines
        .filter(|machine| !is_leaving(machine) && is_over(machine))
        .filter_map(|machine| Some((machine, seen.tripped(machine)?)));
    let (first, tripped) = held.next()?;
    let name = meta::name(&first.metadata);
    Some(match held.count() {
        0 => format!("{name} is kept while {tripped}"),
        more => format!("{name} and {more} more are kept while {tripped}"),
    })
}
