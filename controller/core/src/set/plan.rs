//! How many Machines a set makes or removes now.
//!
//! MS-2, MS-8; the budget S4: after any prefix of the steps the set controls no more
//! Machines that are not leaving than it wants, or than it had. Deletions therefore come before creations, a deleting
//! Machine does not count, and creations are named by the counter (`set::names`). A plan creates one batch; the
//! next one is planned from what is so then, so that a scale-up can be taken back (`growth`). A Machine that cannot be written
//! costs only itself: it is left alone until its pause is over, and counts as it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::bring::{bring, hash_to_bring};
use super::claim::{Claims, claims};
use super::facts::{counts_as_available, is_exempt, is_kept, is_leaving, is_needed_still, replacements};
use super::freeze;
use super::growth::{grow, may_still_arrive, settles_at};
use super::observed::{MachineView, Observed, Plan, Step, Victim, Why};
use super::{keep, rank, repair, status};
use crate::api::{Phase, keys, meta, validity};
use crate::ids::Name;
use crate::owner;
use crate::refusal::Refusal;
use crate::sight::later;
use crate::status::{STATUS_PACE, paced};

/// A Machine that failed is kept this long, so that a class whose every VM fails does not make and remove Machines in a
/// tight circle; twice as long after each replacement that brought no Machine that became ready.
const REPLACE_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// The longest that a failed Machine is kept before its replacement.
const REPLACE_AT_MOST: SignedDuration = SignedDuration::from_mins(10);
/// While a set makes or removes Machines, its counts change all the time: they are told once in this time.
const STATUS_PACE_MOVING: SignedDuration = SignedDuration::from_secs(1);
/// How many Machines one plan brings parts of the template to.
const BRING_TOGETHER: usize = 64;

/// Decides what a set needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let set = seen.set;
    if meta::is_deleting(&set.metadata) {
        return leave(seen, now);
    }
    match validity::set_fault(set) {
        Some(fault) => invalid(seen, fault, now),
        None => serve(seen, now),
    }
}

/// Deletion: Machines first, whatever the selector says today; the finalizer last. Machines that are to stay are left to the garbage
/// collector. It may have taken the set's reference from a Machine that is seen with it still, so a deletion is bound to the version that
/// was seen.
fn leave(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if !meta::has_finalizer(&seen.set.metadata, keys::FINALIZER) {
        return Plan::rest(Why::Empty);
    }
    if owner::orphans_children(&seen.set.metadata) {
        return Plan::act(vec![Step::RemoveFinalizer], Why::Orphaning);
    }
    let owned: Vec<&MachineView<'_>> = seen.owned().collect();
    if owned.is_empty() {
        // A creation that arrives after the end of its set would bring a Machine that nobody counts.
        return match may_still_arrive(seen, now) {
            Some(until) => Plan::wait(until, Why::MayStillArrive),
            None => Plan::act(vec![Step::RemoveFinalizer], Why::Empty),
        };
    }
    let mut plan = Plan::rest(Why::Emptying);
    let staying = seen.owned().filter(|machine| !is_leaving(machine));
    let victims = writable(staying, now, &mut plan);
    let problem = delete_problem(seen);
    let is_told_first = problem.is_some();
    let bound = |machine: &MachineView<'_>| Victim {
        version: machine.metadata.resource_version.clone(),
        ..victim(seen, machine, false, now)
    };
    let deletion = deletion(victims.into_iter().map(bound));
    let report = record(seen, &owned, problem, deletion.is_some(), &mut plan, now);
    place(&mut plan.steps, report, deletion.into_iter(), is_told_first);
    plan
}

/// The Machines that may be written now.
fn writable<'a>(
    machines: impl IntoIterator<Item = &'a MachineView<'a>>,
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<&'a MachineView<'a>> {
    plan.writable(machines, |view| (&view.metadata, view.refusal), Why::Refused, now)
}

fn invalid(seen: &Observed<'_>, fault: String, now: Timestamp) -> Plan {
    let problem = status::Problem {
        reason: "InvalidConfiguration",
        message: fault.clone(),
        terminal: true,
    };
    let mut plan = Plan::rest(Why::Invalid(fault));
    let machines: Vec<&MachineView<'_>> = seen.owned().collect();
    let report = record(seen, &machines, Some(problem), false, &mut plan, now);
    plan.steps.extend(report);
    plan
}

/// A valid set that stays.
fn serve(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let set = seen.set;
    let mut plan = Plan::rest(Why::Settled);
    let claims = claims(seen);
    let adopts = writable(claims.adopts, now, &mut plan);
    let releases = writable(claims.releases, now, &mut plan);
    let machines = without(seen.owned(), &releases);
    let claims = Claims { adopts, releases };
    let staying = machines.iter().copied().filter(|machine| !is_leaving(machine));
    let present: Vec<&MachineView<'_>> = staying.collect();
    let given_up = repair::give_up(seen, &present, now, &mut plan);
    let choice = chosen(seen);
    let failed = replaceable(seen, &present, &choice, now, &mut plan);
    let is_replacing = !failed.is_empty();
    let failed = writable(failed, now, &mut plan);
    let kept = without(present.iter().copied(), &failed);
    let wanted = usize::try_from(set.spec.replicas).unwrap_or(0);
    let excess = excess(seen, &kept, wanted, now, &mut plan);
    plan.why = match (kept.len().saturating_sub(wanted), failed.len()) {
        (0, 0) => plan.why,
        (0, failed) => Why::Replacing { failed },
        (by, _) => Why::TooMany { by },
    };
    let replaced = failed.into_iter().map(|machine| {
        let has_failed = *machine.phase() == Phase::Failed && !machine.is_named;
        victim(seen, machine, has_failed, now)
    });
    let excess = excess.into_iter().map(|machine| victim(seen, machine, false, now));
    let mut moves: Vec<Step> = deletion(replaced.chain(excess)).into_iter().collect();
    let wants_less = is_replacing || kept.len() > wanted;
    let mut problem = wants_less.then(|| delete_problem(seen)).flatten();
    if kept.len() < wanted {
        let missing = wanted - kept.len();
        // Adoptions and releases change the count; what they bring is known in the next pass.
        let growth = match claims.adopts.is_empty() && claims.releases.is_empty() {
            true => grow(seen, missing, &kept, now),
            false => Plan::rest(Why::Claiming),
        };
        problem = create_problem(seen, &growth.why).or(problem);
        plan.look_at(growth.wake, now);
        moves.extend(growth.steps);
        plan.why = growth.why;
    }
    let is_told_first = problem.is_some();
    let report = record(seen, &machines, problem, !moves.is_empty(), &mut plan, now);
    if !meta::has_finalizer(&set.metadata, keys::FINALIZER) {
        plan.steps.push(Step::AddFinalizer);
    }
    let thaw = freeze::thaw(seen).into_iter();
    let tended = thaw
        .chain(tend(seen, &machines, claims, now, &mut plan))
        .chain(keep::marks(&machines, &choice))
        .chain(given_up);
    place(&mut plan.steps, report, moves.into_iter().chain(tended), is_told_first);
    plan.or_at(status::next_available(seen, &machines, now), now)
        .or_at(settles_at(seen), now)
}

/// Puts the report first where it tells a failure, because the moves may fail again, and else last, because they change what it
/// tells.
fn place(steps: &mut Vec<Step>, report: Option<Step>, moves: impl Iterator<Item = Step>, is_told_first: bool) {
    let (first, last) = if is_told_first { (report, None) } else { (None, report) };
    steps.extend(first);
    steps.extend(moves);
    steps.extend(last);
}

/// Which Failed Machines are kept without being asked: as the deployment says, else as the set's own spec does.
fn chosen(seen: &Observed<'_>) -> keep::Choice {
    let alone = || {
        let terms = keep::Terms {
            at_most: seen.set.spec.auto_preserve_failed_machine_max,
            is_rolling: false,
            current: None,
        };
        keep::choose(std::iter::once(seen), terms)
    };
    seen.allowance.keep.cloned().unwrap_or_else(alone)
}

/// What is done to single Machines and holds up nothing else.
fn tend(
    seen: &Observed<'_>,
    machines: &[&MachineView<'_>],
    Claims { adopts, releases }: Claims<'_>,
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<Step> {
    let template = seen.set.spec.template.spec();
    let hash = hash_to_bring(seen.set);
    let free = machines
        .iter()
        .filter(|view| view.refusal.is_none_or(|refusal| !refusal.holds(now)));
    let brought = free.filter_map(|view| bring(seen.set, &template, hash.as_deref(), view.machine));
    let mut brought: Vec<_> = brought.collect();
    if brought.len() > BRING_TOGETHER {
        brought.truncate(BRING_TOGETHER);
        plan.look_at(Some(later(now, STATUS_PACE)), now);
    }
    let objects = |views: Vec<&MachineView<'_>>| views.iter().map(|view| Arc::clone(view.machine)).collect();
    let release = (!releases.is_empty()).then(|| Step::Release(objects(releases)));
    let adopt = (!adopts.is_empty()).then(|| Step::Adopt(objects(adopts)));
    let bring = (!brought.is_empty()).then_some(Step::Bring(brought));
    adopt.into_iter().chain(release).chain(bring).collect()
}

/// All but those that go.
fn without<'a>(
    machines: impl Iterator<Item = &'a MachineView<'a>>,
    going: &[&MachineView<'_>],
) -> Vec<&'a MachineView<'a>> {
    let going: BTreeSet<&str> = going
        .iter()
        .filter_map(|machine| machine.metadata.uid.as_deref())
        .collect();
    let goes = |machine: &MachineView<'_>| machine.metadata.uid.as_deref().is_some_and(|uid| going.contains(uid));
    machines.filter(|machine| !goes(machine)).collect()
}

/// Machines above the number, in the order of leaving. Where the deployment cannot spare an available one, the next that is not available
/// goes in its place, preserved or not: the number may have fallen for that one.
fn excess<'a>(
    seen: &Observed<'_>,
    kept: &[&'a MachineView<'a>],
    wanted: usize,
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<&'a MachineView<'a>> {
    let mut by = kept.len().saturating_sub(wanted);
    if by == 0 {
        return Vec::new();
    }
    let policy = seen.set.spec.delete_policy.as_ref().and_then(|policy| policy.known());
    let movable = kept.iter().copied().filter(|machine| !is_exempt(machine));
    let mut may_lose = seen.allowance.lose.unwrap_or(usize::MAX);
    let (mut leaving, mut held) = (Vec::new(), Vec::new());
    for machine in rank::rank(movable, policy, now) {
        let is_counted = counts_as_available(seen, machine, now);
        let may_be_going = seen.allowance.lose.is_some() && is_needed_still(seen, machine, now);
        if leaving.len() >= by {
            break;
        } else if may_be_going || (is_counted && may_lose == 0) {
            // One whose deletion may still arrive is one of those that go: nobody goes in its place.
            by -= usize::from(may_be_going);
            held.push(Name::new(meta::name(&machine.metadata)));
        } else {
            may_lose -= usize::from(is_counted);
            leaving.push(machine);
        }
    }
    held.truncate(kept.len().saturating_sub(wanted + leaving.len()));
    plan.withheld.extend(held.into_iter().map(|name| (name, Why::Held)));
    // Who cannot be deleted stays chosen: another one would go in its place for good.
    writable(leaving, now, plan)
}

/// Machines to replace whatever the count is: failed ones, and those that the autoscaler marked (MS-8).
fn replaceable<'a>(
    seen: &Observed<'_>,
    present: &[&'a MachineView<'a>],
    choice: &keep::Choice,
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<&'a MachineView<'a>> {
    let change =
        meta::annotation(&seen.set.metadata, keys::SCALER_CHANGE_TIME).and_then(|text| text.parse::<Timestamp>().ok());
    let pause = replacement_pause(seen, present);
    let mut victims: Vec<&MachineView<'_>> = Vec::new();
    for machine in present.iter().copied() {
        let is_marked = machine.is_named
            || change.is_some_and(|change| {
                let is_before = |marked: Timestamp| marked <= change;
                machine.is_triggered_for_deletion() && machine.marked_for_deletion().is_some_and(is_before)
            });
        let has_failed = *machine.phase() == Phase::Failed;
        if !is_marked && !has_failed {
            continue;
        }
        let due = repair::replaced_at(seen, machine, pause, now).filter(|due| *due > now);
        let is_chosen = machine.uid().is_some_and(|uid| choice.take.contains(&uid));
        let why = match due {
            _ if is_exempt(machine) => Why::Spared,
            _ if has_failed && !is_marked && (is_chosen || is_kept(machine, now)) => {
                let until = machine.preserved_until();
                // One whose time is not stored yet may be taken back unseen.
                plan.look_at(until.or(Some(later(now, REPLACE_AFTER))), now);
                Why::Preserved(until)
            }
            Some(due) if !is_marked => {
                plan.look_at(Some(due), now);
                match repair::awaits_driver(machine) {
                    true => Why::LastLook,
                    false => Why::ReplacedAt(due),
                }
            }
            Some(_) | None => {
                victims.push(machine);
                continue;
            }
        };
        plan.withheld.push((Name::new(meta::name(&machine.metadata)), why));
    }
    victims
}

/// How long a failed Machine is kept: longer with every replacement since which no Machine of the set became ready, so that a
/// class whose VMs all fail costs fewer and fewer of them.
fn replacement_pause(seen: &Observed<'_>, present: &[&MachineView<'_>]) -> SignedDuration {
    let doublings = replacements(seen.notes, present.iter().map(|view| &**view.machine)).min(6);
    SignedDuration::from_secs(REPLACE_AFTER.as_secs() << doublings).min(REPLACE_AT_MOST)
}

fn victim(seen: &Observed<'_>, machine: &MachineView<'_>, is_replaced: bool, now: Timestamp) -> Victim {
    let (name, uid) = meta::identity(&machine.metadata);
    Victim {
        name,
        uid,
        version: None,
        is_replaced,
        is_lost: !machine.is_named && counts_as_available(seen, machine, now),
    }
}

fn deletion(victims: impl Iterator<Item = Victim>) -> Option<Step> {
    let victims: Vec<Victim> = victims.collect();
    (!victims.is_empty()).then_some(Step::Delete(victims))
}

/// Why Machines that are wanted are not made.
fn create_problem(seen: &Observed<'_>, why: &Why) -> Option<status::Problem> {
    if let Why::ClassRefused(fault) = why {
        return Some(status::Problem {
            reason: "MachineClassRefused",
            message: format!("No machine can be made of the class: {fault}"),
            terminal: false,
        });
    }
    refused(seen.notes.create_refused.as_ref(), keys::REASON_FAILED_CREATE)
}

/// Why Machines that are to go do not.
fn delete_problem(seen: &Observed<'_>) -> Option<status::Problem> {
    refused(seen.notes.delete_refused.as_ref(), keys::REASON_FAILED_DELETE)
}

fn refused(refusal: Option<&Refusal>, reason: &'static str) -> Option<status::Problem> {
    let message = refusal?.message.clone();
    Some(status::Problem {
        reason,
        message,
        terminal: false,
    })
}

/// The status write, if one is due now; else the plan looks again when it will be.
fn record(
    seen: &Observed<'_>,
    machines: &[&MachineView<'_>],
    problem: Option<status::Problem>,
    acts: bool,
    plan: &mut Plan,
    now: Timestamp,
) -> Option<Step> {
    let is_moving = acts && problem.is_none();
    let change = status::compute(seen, machines, problem, now);
    // A plan that changes what is counted is followed by another, which counts again.
    let (before, pace) = match is_moving {
        true => (
            seen.notes.status_written.or(meta::created(&seen.set.metadata)),
            STATUS_PACE_MOVING,
        ),
        false => (seen.notes.status_written, STATUS_PACE),
    };
    let (change, due) = paced(change, before, pace, now);
    plan.look_at(due, now);
    change.map(|change| Step::Record(Box::new(change)))
}
