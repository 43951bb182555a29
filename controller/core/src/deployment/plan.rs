//! What a deployment and its sets do now: one plan from one snapshot.
//!
//! Source: `design/rollout.md`, `spec/machinedeployment.md`. The order of precedence is [`course`]. A plan either changes numbers or
//! follows them: Machines are made and deleted by numbers that are stored. Which number changes is `budget`'s; what a set does about
//! its Machines is `set::plan`'s, which is told how many available ones it may lose.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::budget::{self, Bounds, Mode};
use super::change::{NewSet, SetChange};
use super::freeze;
use super::group::{Group, Members, Row};
use super::names::{names, set_name};
use super::observed::{Observed, Plan, Step, Why};
use super::progress::{TimedOut, timed_out};
use super::rollback::roll_back;
use super::{history, in_place, label, named, pass_on, status};
use crate::api::machine_deployment::{RollbackTo, StrategyType};
use crate::api::{MachineDeployment, MachineSet, keys, meta, validity};
use crate::ids::{Name, Uid};
use crate::ledger::{LINGERS, Refusal};
use crate::owner::Owner as _;
use crate::selector::Matcher;
use crate::set::growth::may_still_arrive;
use crate::set::repair::given_up_before;
use crate::set::{self, Allowance, keep};
use crate::sight::{Judging, later};
use crate::status::{STATUS_PACE, paced};
use crate::{owner, plan};

/// While Machines move, the numbers of the sets change in steps no closer than this: what becomes available meanwhile moves together.
const NUMBERS_PACE: SignedDuration = SignedDuration::from_millis(150);

/// What takes precedence over what.
enum Course<'a> {
    /// It is being deleted.
    Leave,
    /// It can never work as it is: its sets keep their numbers, and nothing else is touched.
    Stand(String),
    /// Sets are adopted before anything is counted. Those that cannot be written now hold up nothing.
    Claim(Vec<Arc<MachineSet>>),
    /// An earlier template is put back.
    RollBack(&'a RollbackTo),
    /// Numbers, Machines, history.
    Serve,
}

fn course<'a>(seen: &Observed<'a>, now: Timestamp) -> Course<'a> {
    let deployment = seen.deployment;
    match (validity::deployment_fault(deployment), &deployment.spec.rollback_to) {
        _ if meta::is_deleting(&deployment.metadata) => Course::Leave,
        (Some(fault), _) => Course::Stand(fault),
        (None, order) => match (adopts(seen, now), order) {
            (sets, _) if !sets.is_empty() => Course::Claim(sets),
            // While it is paused, an order to go back waits.
            (_, Some(order)) if !deployment.spec.paused => Course::RollBack(order),
            (_, Some(_) | None) => Course::Serve,
        },
    }
}

/// Decides what a deployment and its sets need.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let members = Members::of(seen);
    match course(seen, now) {
        Course::Leave => leave(seen, &members, now),
        Course::Stand(fault) => stand(seen, &members, fault, now),
        Course::Claim(sets) => guarded(seen, Plan::act(vec![Step::Adopt(sets)], Why::Claiming)),
        Course::RollBack(order) => {
            let step = Step::RollBack(Box::new(roll_back(seen.deployment, order, &members.sets)));
            Plan::act(vec![step], Why::RollingBack)
        }
        Course::Serve => guarded(seen, serve(seen, &members, now)),
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
    if !meta::has_finalizer(&seen.deployment.metadata, keys::FINALIZER) {
        return follow(
            seen,
            members,
            (Allowance::all(seen.replacements), None),
            Plan::rest(Why::Empty),
            now,
        );
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
    let plan = follow(seen, members, (Allowance::all(seen.replacements), None), plan, now);
    told(plan, seen, members, &status::Situation::Leaving, now)
}

/// An invalid deployment: sets keep their numbers and replace what failed; available Machines are left alone.
fn stand(seen: &Observed<'_>, members: &Members<'_>, fault: String, now: Timestamp) -> Plan {
    let situation = status::Situation::Invalid(fault.clone());
    let allowance = Allowance {
        lose: Some(0),
        resend: false,
        ..Allowance::all(seen.replacements)
    };
    let plan = follow(seen, members, (allowance, None), Plan::rest(Why::Invalid(fault)), now);
    told(plan, seen, members, &situation, now)
}

/// Sets that nobody controls and that the selector matches, by their own labels. A set that the deployment controls stays its own,
/// whatever the labels of the set become (`spec/machinedeployment.md` §4 releases it).
fn adoptable<'a>(seen: &Observed<'a>) -> Vec<&'a Arc<MachineSet>> {
    let Some(Ok(selector)) = seen.deployment.spec.selector.as_ref().map(Matcher::new) else {
        return Vec::new();
    };
    let is_free = |set: &MachineSet| meta::controller_of(&set.metadata).is_none() && !meta::is_deleting(&set.metadata);
    let sets = seen.sets.iter().map(|member| member.set);
    sets.filter(|set| is_free(set) && selector.selects(&set.metadata))
        .collect()
}

/// The sets to adopt now.
fn adopts(seen: &Observed<'_>, now: Timestamp) -> Vec<Arc<MachineSet>> {
    let sets = adoptable(seen).into_iter();
    let free = sets.filter(|set| refusal(seen, set).is_none_or(|refusal| !refusal.holds(now)));
    free.cloned().collect()
}

/// Why the API server refused the last write to a set.
pub(super) fn refusal<'a>(seen: &Observed<'a>, set: &MachineSet) -> Option<&'a Refusal> {
    refusals(seen).get(&meta::uid(&set.metadata)?)
}

/// What the API server refused of the sets.
fn refusals<'a>(seen: &Observed<'a>) -> &'a BTreeMap<Uid, Refusal> {
    const NONE: &BTreeMap<Uid, Refusal> = &BTreeMap::new();
    seen.sets.first().map_or(NONE, |member| member.refusals)
}

/// The sets that may be written now.
fn writable<'a>(
    seen: &Observed<'_>,
    sets: impl IntoIterator<Item = &'a Arc<MachineSet>>,
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<&'a Arc<MachineSet>> {
    let refused = (refusals(seen), |message| Why::Set(set::Why::Refused(message)));
    plan.writable(sets, |set| &set.metadata, refused, now)
}

/// The first set of the deployment's that cannot be written, or not be adopted, with the API server's words.
pub(super) fn unwritable<'a>(seen: &Observed<'a>) -> Option<(&'a MachineSet, &'a str)> {
    let own = seen.owned().into_iter().map(|member| member.set);
    let mut sets = own.chain(adoptable(seen));
    sets.find_map(|set| Some((&**set, refusal(seen, set)?.message.as_str())))
}

/// What a valid deployment that stays is in the middle of.
pub struct Stand {
    /// Its sets in numbers, the new one among them even if it is still to be made.
    pub group: Group,
    /// What moves them.
    pub mode: Mode,
    /// The template is another one than that of the sets in use, and only an update in place may change that, which cannot be.
    pub lacks_target: bool,
}

impl Stand {
    /// Takes stock of the sets.
    pub(super) fn of(seen: &Observed<'_>, members: &Members<'_>, now: Timestamp) -> Self {
        let deployment = seen.deployment;
        let strategy = strategy(deployment);
        let bounds = Bounds::of(deployment.spec.strategy.as_ref(), deployment.spec.replicas);
        let mut group = Group {
            rows: members.rows(now),
            wanted: i64::from(deployment.spec.replicas),
            surge: i64::from(bounds.surge),
            unavailable: i64::from(bounds.unavailable),
            unseen: unseen(seen, now).map(|(number, _)| i64::from(number)).sum(),
            fallen: pass_on::fallen(deployment, &members.sets),
            has_timed_out: timed_out(seen, members) == TimedOut::This,
            is_in_sight: seen.sight.since(Judging::Rollout).is_some(),
        };
        let is_in_place = strategy == Some(StrategyType::InPlaceUpdate);
        let lacks_target = is_in_place && group.has_old() && !seen.has_target;
        let may_roll = !deployment.spec.paused && !lacks_target;
        let mode = budget::mode(&group, strategy, may_roll);
        if !members.has_new && may_roll {
            group.rows.push(Row {
                is_new: true,
                ..Row::default()
            });
        }
        Self {
            group,
            mode,
            lacks_target,
        }
    }
}

/// Sets of earlier templates that are not seen and may be there, each with its number and until when it may still arrive. The creation
/// of the present template's set is sent again, which finds it.
fn unseen<'a>(seen: &'a Observed<'_>, now: Timestamp) -> impl Iterator<Item = (i32, Timestamp)> + 'a {
    let is_present = |name: &str| names(seen.deployment).any(|(present, _)| present == name);
    let unseen = arriving(seen, now).filter(move |(name, _, _)| !is_present(name.as_str()));
    unseen.map(|(_, number, until)| (number, until))
}

/// Sets whose creation was not answered and that are not seen, each with its number and until when it may still arrive.
fn arriving<'a>(seen: &'a Observed<'_>, now: Timestamp) -> impl Iterator<Item = (&'a Name, i32, Timestamp)> + 'a {
    let sent = seen.notes.unanswered_sets.iter();
    let timed = sent.map(|(name, (number, sent))| (name, *number, later(*sent, LINGERS)));
    timed.filter(move |(name, _, until)| *until > now && !(seen.exists)(name.as_str()))
}

pub(super) fn strategy(deployment: &MachineDeployment) -> Option<StrategyType> {
    deployment.spec.strategy.as_ref()?.type_.as_ref()?.known()
}

/// A valid deployment that stays.
fn serve(seen: &Observed<'_>, members: &Members<'_>, now: Timestamp) -> Plan {
    let stand = Stand::of(seen, members, now);
    let numbers = budget::numbers(stand.mode, &stand.group);
    let mut plan = Plan::rest(Why::Settled);
    plan.steps.extend(named::tend(seen, &members.sets, now));
    let may_create = stand.group.current().is_some() && !members.has_new;
    let mut problem = None;
    // Whoever could be adopted was: these are refused. So may own ones be, which are tried again then.
    let own = members.sets.iter().map(|member| member.set);
    writable(seen, adoptable(seen).into_iter().chain(own), now, &mut plan);
    let moves = match may_create && (stand.mode != Mode::Recreating || !stand.group.has_old()) {
        true => {
            problem = create_problem(seen);
            create(seen, members, numbers.last().copied().unwrap_or(0), now, &mut plan)
        }
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
    let situation = match (problem, &created) {
        (Some(problem), _) => status::Situation::Refused(problem),
        (None, Some(name)) => status::Situation::Creating(&stand, name),
        (None, None) => status::Situation::Serving(&stand),
    };
    let arrives = unseen(seen, now).map(|(_, until)| until);
    let may_go = members.sets.iter().flat_map(|member| {
        let machines = member.machines.iter();
        machines.filter_map(|machine| set::plan::may_go_until(member, machine))
    });
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
        change.annotations = annotations(seen, members, member.set, row, change.replicas);
        change.hash_label = label::due(member, now);
        // The original kept the set from making Machines while they were updated in place; now it has the template again (§16.4).
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

/// The annotations that a set lacks or has too many: of the new one all that is passed on; of others in use the sizes, when their number changes.
fn annotations(
    seen: &Observed<'_>,
    members: &Members<'_>,
    set: &MachineSet,
    row: &Row,
    replicas: Option<i32>,
) -> BTreeMap<String, Option<String>> {
    let deployment = seen.deployment;
    let bounds = Bounds::of(deployment.spec.strategy.as_ref(), deployment.spec.replicas);
    let mut wanted = BTreeMap::new();
    if row.is_new {
        wanted.extend(pass_on::annotations(deployment));
        let revision = history::revision(Some(set), members.old());
        wanted.extend(history::annotations(set, revision));
    }
    if row.is_new || replicas.is_some() || row.number > 0 {
        wanted.extend(pass_on::sizes(deployment, bounds));
    }
    let mut changes = pass_on::missing(set, wanted);
    if row.is_new {
        changes.extend(pass_on::lost(deployment, set));
    }
    changes
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
    if sets.any(|set| owner::orphans_children(set) && is_namesake(set)) {
        plan.why = Why::NameTaken;
        return Vec::new();
    }
    let free = names(seen.deployment).filter(|(name, _)| !(seen.exists)(name));
    // A set that is going bears its name until its end. A name under which a set may still arrive is taken before another.
    let may_arrive = |name: &str| {
        let sent = seen.notes.unanswered_sets.get(&Name::new(name));
        sent.is_some_and(|(_, sent)| later(*sent, LINGERS) > now)
    };
    let Some((_, hash)) = free.min_by_key(|(name, _)| !may_arrive(name)) else {
        plan.why = Why::NameTaken;
        return Vec::new();
    };
    plan.why = Why::NoSet;
    vec![Step::Create(Box::new(new_set(seen, members, hash, number)))]
}

/// The last creation of the set was refused.
fn create_problem(seen: &Observed<'_>) -> Option<status::Problem> {
    seen.notes.create_refused.as_ref().map(|refusal| status::Problem {
        reason: keys::REASON_SET_CREATE_FAILED,
        message: refusal.message.clone(),
    })
}

fn new_set(seen: &Observed<'_>, members: &Members<'_>, hash: u32, number: i64) -> NewSet {
    let deployment = seen.deployment;
    let hash_text = hash.to_string();
    let mut selector = deployment.spec.selector.clone().unwrap_or_default();
    let labels = selector.match_labels.get_or_insert_default();
    labels.insert(keys::TEMPLATE_HASH.to_owned(), hash_text.clone());
    let bounds = Bounds::of(deployment.spec.strategy.as_ref(), deployment.spec.replicas);
    let mut annotations = pass_on::annotations(deployment);
    annotations.extend(pass_on::sizes(deployment, bounds));
    let revision = history::revision(None, &members.sets);
    annotations.insert(keys::REVISION.to_owned(), revision.to_string());
    NewSet {
        name: Name::new(set_name(meta::name(&deployment.metadata), hash)),
        namespace: deployment.metadata.namespace.clone(),
        annotations,
        owner: deployment.reference(),
        replicas: i32::try_from(number).unwrap_or(deployment.spec.replicas),
        selector,
        template: deployment.spec.template.with_label(keys::TEMPLATE_HASH, &hash_text),
        min_ready_seconds: deployment.spec.min_ready_seconds,
        auto_preserve_failed_machine_max: deployment.spec.auto_preserve_failed_machine_max,
        delete_policy: deployment.delete_policy(),
    }
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
    let plan::Plan {
        steps,
        wake,
        why,
        withheld,
    } = decided;
    if why != set::Why::Settled && plan.why == Why::Settled {
        plan.why = Why::Set(why);
    }
    plan.steps
        .extend(steps.into_iter().map(|step| Step::Of(Arc::clone(set), step)));
    plan.withheld
        .extend(withheld.into_iter().map(|(name, why)| (name, Why::Set(why))));
    plan.or_at(wake, now)
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
