//! What a deployment and its sets do now: one plan from one snapshot.
//!
//! MD-1, MD-2. A plan either changes numbers or follows them: Machines are made and deleted by
//! numbers that are stored. Which number changes is `budget`'s; what a set does about its Machines is `set::plan`'s, which is told what
//! it may do.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::blocker::blocker;
use super::budget::{self, Mode};
use super::change::{NewSet, SetChange};
use super::facts::{adoptable, arriving, refusal, unseen};
use super::freeze;
use super::members::{Members, Stand};
use super::names::names;
use super::observed::{Observed, Plan, Step, Why};
use super::rollback::roll_back;
use super::{history, in_place, label, named, pass_on, status};
use crate::api::{MachineSet, keys, meta, validity};
use crate::owner;
use crate::set::growth::may_still_arrive;
use crate::set::repair::given_up_before;
use crate::set::{self, Allowance, keep};
use crate::sight::later;
use crate::status::{STATUS_PACE, paced};

/// While Machines move, the numbers of the sets change in steps no closer than this: what becomes available meanwhile moves together.
const NUMBERS_PACE: SignedDuration = SignedDuration::from_millis(150);

/// Decides what a deployment and its sets need: its deletion first; then a spec that can never work, which touches nothing; sets to adopt,
/// before anything is counted; an order to go back, which waits while the deployment is paused; numbers, Machines, history.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let (deployment, members) = (seen.deployment, Members::of(seen));
    if meta::is_deleting(&deployment.metadata) {
        return leave(seen, &members, now);
    }
    if let Some(fault) = validity::deployment_fault(deployment) {
        return invalid(seen, &members, fault, now);
    }
    // Those that cannot be written now hold up nothing.
    let adopts = writable(seen, adoptable(seen), now, &mut Plan::rest(Why::Settled));
    if !adopts.is_empty() {
        let adopts = adopts.into_iter().map(Arc::clone).collect();
        return guarded(seen, Plan::act(vec![Step::Adopt(adopts)], Why::Claiming));
    }
    match &deployment.spec.rollback_to {
        Some(order) if !deployment.spec.paused => {
            let step = Step::RollBack(Box::new(roll_back(deployment, order, &members.sets)));
            Plan::act(vec![step], Why::RollingBack)
        }
        Some(_) | None => guarded(seen, serve(seen, &members, now)),
    }
}

/// The same plan, before which the finalizer is stored.
fn guarded(seen: &Observed<'_>, mut plan: Plan) -> Plan {
    if !meta::has_finalizer(&seen.deployment.metadata, keys::FINALIZER) {
        plan.steps.insert(0, Step::AddFinalizer);
    }
    plan
}

/// Deletion: sets first, the finalizer last.
fn leave(seen: &Observed<'_>, members: &Members<'_>, now: Timestamp) -> Plan {
    let all = (Allowance::all(seen.replacements), None);
    if !meta::has_finalizer(&seen.deployment.metadata, keys::FINALIZER) {
        return follow(seen, members, all, Plan::rest(Why::Empty), now);
    }
    if owner::orphans_children(&seen.deployment.metadata) {
        return Plan::act(vec![Step::RemoveFinalizer], Why::Orphaning);
    }
    if members.sets.is_empty() {
        // A set that arrives after the end of its deployment would make machines for nobody.
        return match arriving(seen, now).map(|(_, _, until)| until).max() {
            Some(until) => Plan::wait(until, Why::Set(set::Why::MayStillArrive)),
            None => Plan::act(vec![Step::RemoveFinalizer], Why::Empty),
        };
    }
    let mut plan = Plan::rest(Why::Emptying);
    let staying = members.sets.iter().map(|member| member.set);
    let staying = staying.filter(|set| !meta::is_deleting(&set.metadata));
    let leaving = writable(seen, staying, now, &mut plan);
    if !leaving.is_empty() {
        plan.steps
            .push(Step::Delete(leaving.into_iter().map(Arc::clone).collect()));
    }
    let plan = follow(seen, members, all, plan, now);
    told(plan, seen, members, &status::Situation::Leaving, now)
}

/// An invalid deployment: sets keep their numbers and replace what failed; available Machines are left alone.
fn invalid(seen: &Observed<'_>, members: &Members<'_>, fault: String, now: Timestamp) -> Plan {
    let situation = status::Situation::Invalid(fault.clone());
    let allowance = Allowance {
        lose: Some(0),
        resend: false,
        ..Allowance::all(seen.replacements)
    };
    let plan = follow(seen, members, (allowance, None), Plan::rest(Why::Invalid(fault)), now);
    told(plan, seen, members, &situation, now)
}

/// The sets that may be written now.
fn writable<'a>(
    seen: &Observed<'_>,
    sets: impl IntoIterator<Item = &'a Arc<MachineSet>>,
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<&'a Arc<MachineSet>> {
    let why = |message| Why::Set(set::Why::Refused(message));
    plan.writable(sets, |set| (&set.metadata, refusal(seen, set)), why, now)
}

/// A valid deployment that stays.
fn serve(seen: &Observed<'_>, members: &Members<'_>, now: Timestamp) -> Plan {
    let stand = Stand::of(seen, members, now);
    let numbers = budget::numbers(stand.mode, &stand.group);
    let mut plan = Plan::rest(Why::Settled);
    plan.steps.extend(named::tend(seen, &members.sets, now));
    let may_create = stand.group.current().is_some() && !members.has_new;
    // Whoever could be adopted was: these are refused. So may own ones be, which are tried again then.
    let own = members.sets.iter().map(|member| member.set);
    writable(seen, adoptable(seen).into_iter().chain(own), now, &mut plan);
    let creates = may_create && (stand.mode != Mode::Recreating || !stand.group.has_old());
    let moves = match creates {
        true => create(seen, members, numbers.last().copied().unwrap_or(0), now, &mut plan),
        false => change(seen, members, &stand, &numbers, now, &mut plan),
    };
    let moves = match moves.is_empty() {
        true => in_place::transfer(seen, members, stand.mode, now).into_iter().collect(),
        false => moves,
    };
    let is_moving = !moves.is_empty();
    plan.steps.extend(moves);
    if !is_moving {
        plan.steps.extend(in_place::select(seen, members, &stand, now));
        let allowance = budget::allowance(stand.mode, &stand.group);
        let grows = budget::grows_alone(stand.mode, &stand.group);
        plan = follow(seen, members, (allowance, grows), plan, now);
    }
    plan.why = why(plan.why, seen, &stand);
    if stand.mode == Mode::Scaling {
        clean(seen, members, &stand, now, &mut plan);
    }
    plan.steps.extend(freeze::thaw(seen, members));
    if let Some(number) = history::numbered(seen.deployment, members) {
        plan.steps.push(Step::Number(number));
    }
    let created = plan.steps.iter().find_map(|step| match step {
        Step::Create(made) => Some(made.name.clone()),
        _ => None,
    });
    let situation = match seen.notes.create_refused.as_ref().filter(|_| creates) {
        Some(refusal) => status::Situation::Refused(&refusal.message),
        None => status::Situation::Serving(&stand, created.as_ref()),
    };
    let arrives = unseen(seen, now).map(|(_, until)| until);
    let machines = members.sets.iter().flat_map(|member| member.machines);
    let may_go = machines.filter_map(set::facts::may_go_until);
    let known = arrives.chain(may_go).filter(|until| *until > now).min();
    told(plan, seen, members, &situation, now).or_at(known, now)
}

/// What the whole is about, where nothing in particular is done now.
fn why(why: Why, seen: &Observed<'_>, stand: &Stand) -> Why {
    let left = || stand.group.old().iter().map(|row| row.present + row.leaving).sum();
    match (why, stand.mode) {
        (Why::Settled, _) if stand.lacks_target => Why::NoTarget,
        (Why::Settled, _) if seen.deployment.spec.paused => Why::Paused,
        (Why::Settled, Mode::Rolling) => Why::Rolling { left: left() },
        (Why::Settled, Mode::Recreating) => Why::Recreating { left: left() },
        (Why::Settled, Mode::InPlace { .. }) => Why::InPlace { left: left() },
        (why, _) => why,
    }
}

/// What a rollout that can do nothing itself waits for: the same words that its condition says once it has timed out.
pub fn waits_for(seen: &Observed<'_>, now: Timestamp) -> Option<String> {
    let members = Members::of(seen);
    let stand = Stand::of(seen, &members, now);
    match stand.mode {
        Mode::Rolling | Mode::Recreating | Mode::InPlace { .. } => Some(blocker(&members, &stand, now)),
        Mode::Scaling | Mode::Holding => None,
    }
}

/// Changes of sets: their numbers, and what the new one is to have of the deployment.
fn change(
    seen: &Observed<'_>,
    members: &Members<'_>,
    stand: &Stand,
    numbers: &[i64],
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<Step> {
    let due = seen.notes.numbers_written.map(|at| later(at, NUMBERS_PACE));
    let is_paced = matches!(stand.mode, Mode::Rolling | Mode::Recreating);
    // How much D fell is told to the sets in the write that changes their numbers, and no set makes anew what has moved to another.
    let is_urgent = stand.group.fallen > 0 || stand.group.current().is_some_and(|new| new.present > new.number);
    let waits = due.filter(|due| is_paced && !is_urgent && *due > now);
    let (mut steps, mut from, mut to) = (Vec::new(), 0, 0);
    let mut held = 0;
    for (member, (row, number)) in members.sets.iter().zip(stand.group.rows.iter().zip(numbers)) {
        if meta::is_deleting(&member.set.metadata) {
            continue;
        }
        if refusal(seen, member.set).is_some_and(|refusal| refusal.holds(now)) {
            held += (row.number - number).max(0);
            continue;
        }
        // Room that a set was to make that cannot be written is not there.
        let number = &(number - held.min((number - row.number).max(0)));
        let mut change = match row.is_new {
            true => pass_on::passed(seen.deployment, member.set),
            false if row.is_in_use() => pass_on::passed_to_old(seen.deployment, member.set),
            false => SetChange::none(member.set),
        };
        if row.number != *number && waits.is_some() {
            plan.look_at(waits, now);
        } else if row.number != *number {
            change.replicas = i32::try_from(*number).ok();
            (from, to) = (from + row.number, to + number);
        }
        let revision = row.is_new.then(|| history::revision(Some(member.set), members.old()));
        let is_sized = row.is_new || change.replicas.is_some() || row.number > 0;
        change.annotations = pass_on::changes(seen.deployment, member.set, revision, is_sized);
        change.hash_label = label::due(member, now);
        // The original kept the set from making Machines while they were updated in place; now it has the template again (MD-8).
        change.may_grow_again = row.is_new && meta::label(&member.set.metadata, keys::SCALE_UP_DISABLED).is_some();
        if !change.is_empty() {
            steps.push((row.number < *number, Step::Change(Box::new(change))));
        }
    }
    plan.why = match (steps.is_empty(), stand.mode) {
        (true, _) => Why::Settled,
        (false, Mode::Scaling | Mode::Holding) if from != to => Why::Scaling { from, to },
        (false, Mode::Scaling | Mode::Holding) => Why::Passing,
        (false, Mode::Rolling | Mode::Recreating | Mode::InPlace { .. }) => Why::Settled,
    };
    // What falls falls first: room that a fall makes is used in the next plan anyway, and a crash in between leaves less.
    steps.sort_by_key(|(rises, _)| *rises);
    steps.into_iter().map(|(_, step)| step).collect()
}

/// A set for the template.
fn create(seen: &Observed<'_>, members: &Members<'_>, number: i64, now: Timestamp, plan: &mut Plan) -> Vec<Step> {
    if let Some(refusal) = seen.notes.create_refused.as_ref().filter(|refusal| refusal.holds(now)) {
        plan.look_at(Some(refusal.retry_at), now);
        plan.why = Why::CoolingOff;
        return Vec::new();
    }
    // A set that leaves its machines behind leaves them to the next set of its name.
    let mut sets = members.sets.iter().map(|member| &member.set.metadata);
    let is_namesake = |set: &ObjectMeta| names(seen.deployment).any(|(name, _)| name == meta::name(set));
    let is_left = sets.any(|set| owner::orphans_children(set) && is_namesake(set));
    let free = names(seen.deployment).filter(|(name, _)| !(seen.exists)(name));
    // A set that is going bears its name until its end. A name under which a set may still arrive is taken before another.
    let may_arrive = |name: &str| arriving(seen, now).any(|(sent, _, _)| sent.as_str() == name);
    let Some((_, hash)) = free.min_by_key(|(name, _)| !may_arrive(name)).filter(|_| !is_left) else {
        plan.why = Why::NameTaken;
        return Vec::new();
    };
    plan.why = Why::NoSet;
    let number = i32::try_from(number).unwrap_or(seen.deployment.spec.replicas);
    let revision = history::revision(None, &members.sets);
    let made = NewSet::of(seen.deployment, hash, number, revision);
    vec![Step::Create(Box::new(made))]
}

/// Sets beyond the history limit go, once the template is out.
fn clean(seen: &Observed<'_>, members: &Members<'_>, stand: &Stand, now: Timestamp, plan: &mut Plan) {
    let is_out = members.has_new && !stand.group.has_old();
    if !is_out && !seen.deployment.spec.paused {
        return;
    }
    let arrives = members.old().iter().filter_map(|old| may_still_arrive(old, now)).min();
    plan.look_at(arrives, now);
    let surplus = history::surplus(seen.deployment, members.old(), now);
    if surplus.is_empty() {
        return;
    }
    if plan.why == Why::Settled {
        plan.why = Why::Cleaning;
    }
    plan.steps.push(Step::Delete(surplus));
}

/// What each set does about its Machines, by the numbers that are stored: what all may do together, and the only one that may make Machines
/// if not all may. The old sets come first; what one of them takes of what may go or be replaced, the others do not have.
fn follow(
    seen: &Observed<'_>,
    members: &Members<'_>,
    (all, grows): (Allowance<'_>, Option<usize>),
    mut plan: Plan,
    now: Timestamp,
) -> Plan {
    let mut lose = all.lose;
    let mut given_up = given_up(seen, members, now);
    let keep = kept(seen, members, now);
    for (place, member) in members.sets.iter().enumerate() {
        let others = given_up.saturating_sub(given_up_before(member, now));
        let allowance = Allowance {
            grow: grows.is_none_or(|grows| grows == place),
            lose,
            replace: seen.replacements.saturating_sub(others),
            keep: Some(&keep),
            ..all
        };
        let decided = (seen.plan_set)(&set::Observed { allowance, ..**member }, now);
        let victims = decided.steps.iter().flat_map(set::Step::victims);
        let lost = victims.filter(|victim| victim.is_lost).count();
        lose = lose.map(|lose| lose.saturating_sub(lost));
        given_up += decided.steps.iter().map(set::Step::given_up).sum::<usize>();
        plan = joined(plan, member.set, decided, now);
    }
    plan
}

/// How many Machines of all sets are given up and not replaced yet. Those of a deployment that goes are not given up at all.
fn given_up(seen: &Observed<'_>, members: &Members<'_>, now: Timestamp) -> usize {
    match meta::is_deleting(&seen.deployment.metadata) {
        true => usize::MAX,
        false => members.sets.iter().map(|member| given_up_before(member, now)).sum(),
    }
}

/// Which Failed Machines of all sets are kept without being asked. Those of a deployment that goes, or cannot work, are left as they are.
fn kept(seen: &Observed<'_>, members: &Members<'_>, now: Timestamp) -> keep::Choice {
    let deployment = seen.deployment;
    if meta::is_deleting(&deployment.metadata) || validity::deployment_fault(deployment).is_some() {
        return keep::Choice::default();
    }
    let rows = members.rows(now);
    let current = members.new_set().and_then(|set| meta::uid(&set.metadata));
    let terms = keep::Terms {
        at_most: deployment.spec.auto_preserve_failed_machine_max,
        is_rolling: rows.iter().any(|row| !row.is_new && row.is_in_use()),
        current: current.as_ref(),
    };
    keep::choose(members.sets.iter().copied(), terms)
}

/// The plan with a set's steps after its own.
fn joined(mut plan: Plan, set: &Arc<MachineSet>, decided: set::Plan, now: Timestamp) -> Plan {
    if decided.why != set::Why::Settled && plan.why == Why::Settled {
        plan.why = Why::Set(decided.why);
    }
    let steps = decided.steps.into_iter().map(|step| Step::Of(Arc::clone(set), step));
    plan.steps.extend(steps);
    let withheld = decided.withheld.into_iter();
    plan.withheld.extend(withheld.map(|(name, why)| (name, Why::Set(why))));
    plan.or_at(decided.wake, now)
}

/// Adds the status write, if one is due, or the time when it will be. It comes first where it tells a failure, because the step
/// that failed may fail again, and where it tells the end of an earlier one, before the deployment has the revision of its new template.
fn told(
    mut plan: Plan,
    seen: &Observed<'_>,
    members: &Members<'_>,
    situation: &status::Situation<'_>,
    now: Timestamp,
) -> Plan {
    let report = status::report(seen, members, situation, now);
    let pace = if report.begins {
        SignedDuration::ZERO
    } else {
        STATUS_PACE
    };
    let (change, due) = paced(report.change, seen.notes.status_written, pace, now);
    if let Some(change) = change {
        let is_first = report.is_failure || report.begins;
        let place = if is_first { 0 } else { plan.steps.len() };
        plan.steps.insert(place, Step::Record(Box::new(change)));
    }
    plan.or_at(report.wake, now).or_at(due, now)
}
