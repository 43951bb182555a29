//! Laws of a deployment's plan: both bounds of a rollout after every step, one set for a template, old sets that only shrink.
//!
//! S3–S5, S15 and S16 (tests/README.md), MD-6, MD-7. The terms are the group's (`deployment::group`); how a plan
//! came to its numbers is not looked at.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use millwright_core::api::machine_deployment::StrategyType;
use millwright_core::api::template::Scope;
use millwright_core::api::{MachineSet, Template, meta};
use millwright_core::deployment::budget::Bounds;
use millwright_core::deployment::change::SetChange;
use millwright_core::deployment::group::Row;
use millwright_core::deployment::in_place::Transfer;
use millwright_core::deployment::members::Members;
use millwright_core::deployment::observed::{Observed, Plan, Step};
use millwright_core::deployment::progress::{TimedOut, timed_out};
use millwright_core::ids::Uid;
use millwright_core::ledger::LINGERS;
use millwright_core::machine::in_place::marks::Outcome;
use millwright_core::machine::node_patch::NodePatch;
use millwright_core::merge;
use millwright_core::owner::{controls, orphans_children};
use millwright_core::set::keep::is_auto;
use millwright_core::set::repair::given_up_before;
use millwright_core::set::{self, MachineView};
use millwright_core::sight::later;
use serde_json::{Value, json};

use crate::report::{Report as _, reported_first};
use crate::{Broken, is_child, wakes_later};

/// Laws of a deployment's plan.
pub fn deployment(seen: &Observed<'_>, plan: &Plan, now: Timestamp) -> Vec<Broken> {
    let mut broken: Vec<Broken> = wakes_later(plan.wake, now).into_iter().collect();
    broken.extend(deployment_report(seen, plan));
    let members = Members::of(seen);
    broken.extend(kept_unasked(seen, &members, plan));
    let is_leaving = meta::is_deleting(&seen.deployment.metadata);
    for (index, step) in plan.steps.iter().enumerate() {
        let is_last = index + 1 == plan.steps.len();
        match step {
            Step::RemoveFinalizer => {
                broken.extend((!is_last).then_some(Broken::StepAfterTheEnd));
                let mut sent = seen.notes.unanswered_sets.iter();
                let arrives =
                    sent.any(|(name, (_, sent))| now < later(*sent, LINGERS) && !(seen.exists)(name.as_str()));
                let is_proven = is_leaving && members.sets.is_empty() && !arrives;
                let stay = orphans_children(&seen.deployment.metadata);
                broken.extend((!is_proven && !stay).then_some(Broken::ReleaseUnproven));
            }
            Step::Create(_)
            | Step::Change(_)
            | Step::Adopt(_)
            | Step::Number(_)
            | Step::RollBack(_)
            | Step::AddFinalizer
                if is_leaving =>
            {
                broken.push(Broken::GrowthOfLeaving);
            }
            Step::Create(made) => broken.extend(creation(seen, &members, made)),
            Step::Change(change) => broken.extend(changed(seen, &members, change, now)),
            Step::Delete(victims) => {
                let goes = is_leaving && !orphans_children(&seen.deployment.metadata);
                let right = |set: &MachineSet| match member(&members, set.metadata.uid.as_deref().unwrap_or_default()) {
                    Some(found) => goes || (is_spent(found, now) && !is_new(&members, found.set)),
                    None => false,
                };
                let wrong = victims.iter().filter(|set| !right(set));
                broken.extend(wrong.map(|set| Broken::WrongVictim(meta::name(&set.metadata).to_owned())));
            }
            Step::Transfer(moved) => broken.extend(moved.iter().filter_map(|moved| transferred(seen, &members, moved))),
            Step::Select(patches) => broken.extend(selected(seen, &members, patches, now)),
            _ => {}
        }
    }
    if !is_leaving {
        broken.extend(bounds(seen, &members, plan, now));
    }
    broken.extend(parts(seen, &members, plan, now));
    broken.extend(given_up(seen, &members, plan, now));
    broken
}

fn member<'a>(members: &Members<'a>, uid: &str) -> Option<&'a set::Observed<'a>> {
    let mut sets = members.sets.iter().copied();
    sets.find(|member| member.set.metadata.uid.as_deref() == Some(uid))
}

fn is_new(members: &Members<'_>, set: &MachineSet) -> bool {
    members
        .new_set()
        .is_some_and(|new| new.metadata.uid == set.metadata.uid)
}

/// It has and wants nothing.
fn is_spent(member: &set::Observed<'_>, now: Timestamp) -> bool {
    let may_arrive = set::growth::unanswered(member, now) > 0;
    member.set.spec.replicas == 0 && member.owned().next().is_none() && !may_arrive
}

fn creation(
    seen: &Observed<'_>,
    members: &Members<'_>,
    made: &millwright_core::deployment::change::NewSet,
) -> Vec<Broken> {
    let mut broken = Vec::new();
    let template = &seen.deployment.spec.template;
    let has_it = |member: &set::Observed<'_>| {
        let set = member.set;
        !meta::is_deleting(&set.metadata) && set.spec.template.semantically_equal(template, Scope::Rollout)
    };
    let is_second = members.sets.iter().any(|member| has_it(member));
    broken.extend(is_second.then_some(Broken::SecondSet));
    let name = made.name.as_str();
    broken.extend((seen.exists)(name).then(|| Broken::NameTaken(name.to_owned())));
    let uid = meta::uid(&seen.deployment.metadata).unwrap_or_else(|| Uid::new(""));
    let selector = seen.deployment.spec.selector.as_ref();
    let is_child = is_child(&made.owner, &made.template.labels(), &uid, selector);
    broken.extend((!is_child).then_some(Broken::ChildUnguarded));
    broken.extend(seen.deployment.spec.paused.then_some(Broken::PausedRolls));
    broken
}

fn changed(seen: &Observed<'_>, members: &Members<'_>, change: &SetChange, now: Timestamp) -> Vec<Broken> {
    let uid = change.set.metadata.uid.as_deref().unwrap_or_default();
    let Some(found) = member(members, uid) else {
        return vec![Broken::TemplateReplaced];
    };
    let mut broken: Vec<Broken> = (!keeps_template(change))
        .then_some(Broken::TemplateReplaced)
        .into_iter()
        .collect();
    // What a set has already it may be given back.
    let present = found.owned().count() + set::growth::unanswered(found, now);
    let has = found.set.spec.replicas.max(i32::try_from(present).unwrap_or(i32::MAX));
    let rises = change.replicas.is_some_and(|to| to > has);
    // While nothing rolls, the set that is in use follows D, whatever its template is, and the one that works once the rollout has timed out.
    let may_roll = !seen.deployment.spec.paused && seen.deployment.strategy() != Some(StrategyType::InPlaceUpdate);
    let may_roll = may_roll && timed_out(seen, members) != TimedOut::This;
    let is_old = may_roll && !is_new(members, found.set);
    let name = || meta::name(&found.set.metadata).to_owned();
    broken.extend((rises && is_old).then(|| Broken::OldSetRises(name())));
    broken
}

/// Only what its agent has updated, or has the template already, moves from an old set to that of the template, and not while it is paused.
fn transferred(seen: &Observed<'_>, members: &Members<'_>, moved: &Transfer) -> Option<Broken> {
    let machine = &moved.machine;
    let from = members
        .old()
        .iter()
        .find(|member| controls(&member.set.metadata, &machine.metadata));
    let view = from.and_then(|from| from.owned().find(|own| own.metadata.uid == machine.metadata.uid));
    let update = view.and_then(|view| view.update.as_ref());
    let is_updated = update.is_some_and(|update| update.marks.outcome == Some(Outcome::Successful));
    let template = &seen.deployment.spec.template;
    let is_twin = from.is_some_and(|from| from.set.spec.template.semantically_equal(template, Scope::Rollout));
    let stays = !set::facts::is_leaving(machine);
    let is_right = (is_updated || is_twin) && stays && is_new(members, &moved.to) && !seen.deployment.spec.paused;
    (!is_right).then(|| Broken::WrongVictim(meta::name(&machine.metadata).to_owned()))
}

/// S5 for updates in place: what is selected does not serve, and where it served, as many must be left as the bounds say.
fn selected(seen: &Observed<'_>, members: &Members<'_>, patches: &[NodePatch], now: Timestamp) -> Vec<Broken> {
    let spec = &seen.deployment.spec;
    let bounds = Bounds::of(spec.strategy.as_ref(), spec.replicas);
    let rows = members.rows(now);
    let available: i64 = rows.iter().map(|row| row.available).sum();
    let (mut broken, mut taken) = (Vec::new(), 0);
    for patch in patches {
        let found = members.old().iter().find_map(|member| {
            let is_it = |machine: &&MachineView<'_>| {
                let update = machine.update.as_ref();
                update.is_some_and(|update| update.node.name == patch.node && !update.marks.is_under_way())
            };
            let machine = member.owned().find(is_it)?;
            Some(set::facts::counts_as_available(member, machine, now))
        });
        match found {
            Some(is_available) => taken += i64::from(is_available),
            None => broken.push(Broken::WrongVictim(patch.node.to_string())),
        }
    }
    let floor = (i64::from(spec.replicas) - i64::from(bounds.unavailable)).max(0);
    broken.extend((taken > 0 && available - taken < floor).then_some(Broken::TooFewAvailable));
    broken.extend(spec.paused.then_some(Broken::PausedRolls));
    broken
}

/// S5 after every step: no more Machines, present or wanted, than D and surge allow, or than there were; no fewer available than D and
/// unavailable allow, where this plan takes them.
fn bounds(seen: &Observed<'_>, members: &Members<'_>, plan: &Plan, now: Timestamp) -> Vec<Broken> {
    let spec = &seen.deployment.spec;
    let bounds = Bounds::of(spec.strategy.as_ref(), spec.replicas);
    let wanted = i64::from(spec.replicas);
    let mut rows = members.rows(now);
    let claimed = |rows: &[Row]| -> i64 { rows.iter().map(|row| row.number.max(row.present)).sum() };
    let leaving: i64 = rows.iter().map(|row| row.leaving).sum();
    let used = rows.iter().filter(|row| row.is_in_use()).count();
    let has_old = rows.iter().any(|row| !row.is_new && row.is_in_use());
    let is_recreated = seen.deployment.strategy() == Some(StrategyType::Recreate);
    let allowed = (wanted + i64::from(bounds.surge)).max(claimed(&rows));
    let mut broken = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let rises = match step {
            Step::Change(change) => {
                let place = members.sets.iter().position(|member| {
                    member.set.metadata.uid == change.set.metadata.uid && !meta::is_deleting(&member.set.metadata)
                });
                let row = place.and_then(|place| rows.get_mut(place));
                let before = row.as_ref().map_or(0, |row| row.number);
                let after = change.replicas.map_or(before, i64::from);
                let has = row.as_ref().map_or(0, |row| row.present);
                if let Some(row) = row {
                    row.number = after;
                }
                after > before.max(has)
            }
            Step::Create(made) => {
                rows.push(Row {
                    is_new: true,
                    number: i64::from(made.replicas),
                    ..Row::default()
                });
                made.replicas > 0
            }
            _ => false,
        };
        let count = claimed(&rows);
        let over = |count: i64, allowed: i64| Broken::OverBudget {
            step: index,
            count: usize::try_from(count).unwrap_or(0),
            allowed: usize::try_from(allowed).unwrap_or(0),
        };
        broken.extend((count > allowed).then(|| over(count, allowed)));
        let held = count + leaving;
        let is_gated = rises && has_old && used > 1;
        broken.extend((is_gated && held > allowed).then(|| over(held, allowed)));
        broken.extend((rises && has_old && is_recreated && !spec.paused).then_some(Broken::RecreateOverlaps));
        broken.extend(
            (rises && spec.paused && claimed(&rows) > wanted.max(claimed(&members.rows(now))))
                .then_some(Broken::PausedRolls),
        );
    }
    let is_gated = used > 1 && !is_recreated;
    if is_gated {
        let available: i64 = rows.iter().map(|row| row.available).sum();
        let taken = i64::try_from(taken(members, plan, now)).unwrap_or(i64::MAX);
        let floor = (wanted - i64::from(bounds.unavailable)).max(0);
        broken.extend((taken > 0 && available - taken < floor).then_some(Broken::TooFewAvailable));
    }
    broken
}

/// How many available Machines the plan deletes for being too many, whatever it says of them.
fn taken(members: &Members<'_>, plan: &Plan, now: Timestamp) -> usize {
    let taken = members.sets.iter().map(|member| {
        let part = part(member.set, plan);
        let victims: BTreeSet<&Uid> = part
            .steps
            .iter()
            .flat_map(set::Step::victims)
            .map(|victim| &victim.uid)
            .collect();
        let is_counted = |machine: &&MachineView<'_>| {
            machine.uid().is_some_and(|uid| victims.contains(&uid))
                && !machine.is_named
                && set::facts::counts_as_available(member, machine, now)
        };
        match meta::is_deleting(&member.set.metadata) {
            true => 0,
            false => member.machines.iter().filter(is_counted).count(),
        }
    });
    taken.sum()
}

/// The steps of one set, as a plan of its own.
fn part(set: &Arc<MachineSet>, plan: &Plan) -> set::Plan {
    let steps = plan.steps.iter().filter_map(|step| match step {
        Step::Of(of, step) if of.metadata.uid == set.metadata.uid => Some(step.clone()),
        _ => None,
    });
    set::Plan::act(steps.collect(), set::Why::Settled)
}

/// S6: what all its sets give up for being unhealthy, and have given up before, is no more than may be on the way.
fn given_up(seen: &Observed<'_>, members: &Members<'_>, plan: &Plan, now: Timestamp) -> Option<Broken> {
    let given = plan.steps.iter().filter_map(|step| match step {
        Step::Of(_, step) => Some(step.given_up()),
        _ => None,
    });
    let given: usize = given.sum();
    let before: usize = members.sets.iter().map(|member| given_up_before(member, now)).sum();
    let is_over = before + given > seen.replacements || meta::is_deleting(&seen.deployment.metadata);
    (given > 0 && is_over).then_some(Broken::TooManyGivenUp)
}

/// No more Failed Machines of all sets are kept without being asked than may be, whatever the sets' statuses say.
fn kept_unasked(seen: &Observed<'_>, members: &Members<'_>, plan: &Plan) -> Option<Broken> {
    let most = usize::try_from(seen.deployment.spec.auto_preserve_failed_machine_max).unwrap_or(0);
    let machines = members.sets.iter().flat_map(|member| member.owned());
    let before = machines
        .filter(|machine| !set::facts::is_leaving(machine) && is_auto(machine))
        .count();
    let marks = plan.steps.iter().filter_map(|step| match step {
        Step::Of(_, set::Step::Keep(marks)) => Some(marks.iter()),
        _ => None,
    });
    let taken = marks.flatten().filter(|mark| mark.is_kept).count();
    (taken > 0 && before + taken > most).then_some(Broken::TooManyPreserved)
}

/// What a set's part of the plan does keeps the laws of sets. How many available Machines all of them take, and how many they give up,
/// is judged together.
fn parts(all: &Observed<'_>, members: &Members<'_>, plan: &Plan, now: Timestamp) -> Vec<Broken> {
    let mut broken = Vec::new();
    for member in &members.sets {
        let part = part(member.set, plan);
        let seen = set::Observed {
            allowance: set::Allowance {
                lose: Some(usize::MAX),
                resend: false,
                ..set::Allowance::all(all.replacements)
            },
            ..**member
        };
        broken.extend(super::set(&seen, &part, now));
        let is_changed = plan.steps.iter().any(|step| {
            matches!(step, Step::Change(change) if change.replicas.is_some() && change.set.metadata.uid == member.set.metadata.uid)
        });
        let moves = part
            .steps
            .iter()
            .any(|step| matches!(step, set::Step::Create(_) | set::Step::Delete(_)));
        broken.extend((is_changed && moves).then_some(Broken::NumberNotStored));
    }
    broken
}

/// A failure that is known or told is told before what may fail again.
fn deployment_report(seen: &Observed<'_>, plan: &Plan) -> Option<Broken> {
    let is_told = |step: &Step| matches!(step, Step::Record(change) if change.tells_failure());
    let is_record = |step: &Step| matches!(step, Step::Record(_));
    let creates = |step: &Step| matches!(step, Step::Create(_));
    let acts = |step: &Step| creates(step) || matches!(step, Step::Change(_) | Step::Delete(_) | Step::Number(_));
    let refused = seen.notes.create_refused.as_ref();
    reported_first(&plan.steps, is_told, acts)
        .or_else(|| refused.and_then(|_| reported_first(&plan.steps, is_record, creates)))
}

/// A change of a set leaves alone what its Machines were made from.
fn keeps_template(change: &SetChange) -> bool {
    let template = &change.set.spec.template;
    let mut after = Value::Object(template.as_json().clone());
    merge::apply(&mut after, &json!({ "spec": change.template_spec }));
    match serde_json::from_value::<Template>(after) {
        Ok(after) => change.template_spec.is_empty() || after.semantically_equal(template, Scope::Rollout),
        Err(_) => false,
    }
}
