//! Laws of a set's plan: the budget after every step, names that were reserved, victims in their order.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use millwright_core::api::{Machine, MachineSet, Phase, keys, meta};
use millwright_core::ids::Uid;
use millwright_core::machine::Lost;
use millwright_core::machine::judgement::Fault;
use millwright_core::owner;
use millwright_core::selector::Matcher;
use millwright_core::set::facts::is_leaving;
use millwright_core::set::names::Names;
use millwright_core::set::{self, MachineView, rank};

use crate::report::{Report as _, reported_first};
use crate::{Broken, is_child, is_guarded, wakes_later};

/// Laws of a set's plan.
pub fn set(seen: &set::Observed<'_>, plan: &set::Plan, now: Timestamp) -> Vec<Broken> {
    let mut broken: Vec<Broken> = wakes_later(plan.wake, now).into_iter().collect();
    let records = plan
        .steps
        .iter()
        .filter(|step| matches!(step, set::Step::Record(_)))
        .count();
    broken.extend((records > 1).then_some(Broken::RecordedTwice));
    broken.extend(set_report(seen, plan));
    broken.extend(set_budget(seen, plan));
    broken.extend(set_victims(seen, plan, now));
    broken.extend(kept_victims(seen, plan, now));
    let leaving = meta::is_deleting(&seen.set.metadata);
    let mut next = seen.set.status.as_ref().map_or(0, |status| status.next_machine_number);
    for (index, step) in plan.steps.iter().enumerate() {
        let last = index + 1 == plan.steps.len();
        match step {
            set::Step::Reserve { next: new } => {
                broken.extend((*new < next).then_some(Broken::CounterBackwards));
                next = *new;
            }
            set::Step::Create(_) if leaving => broken.push(Broken::GrowthOfLeaving),
            set::Step::Create(batch) => broken.extend(set_creation(seen, batch, next)),
            set::Step::RemoveFinalizer => {
                broken.extend((!last).then_some(Broken::StepAfterTheEnd));
                let is_proven = leaving && seen.owned().next().is_none();
                let stay = owner::orphans_children(&seen.set.metadata);
                broken.extend((!is_proven && !stay).then_some(Broken::ReleaseUnproven));
            }
            set::Step::Adopt(machines) => {
                let fits = |machine: &Machine| {
                    let free = meta::controller_uid(&machine.metadata).is_none();
                    !leaving && free && !meta::is_deleting(&machine.metadata) && selects(seen.set, machine)
                };
                broken.extend(wrong_claims(machines, fits));
            }
            set::Step::Release(machines) => {
                let fits = |machine: &Machine| {
                    let is_own = seen.owned().any(|own| own.metadata.uid == machine.metadata.uid);
                    let was_in_service = machine.has_joined() || machine.phase().is_there();
                    is_own && was_in_service && !selects(seen.set, machine)
                };
                broken.extend(wrong_claims(machines, fits));
                let released = set::claim::released(seen).count() + machines.len();
                let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0).max(1);
                broken.extend((released > wanted).then_some(Broken::ReleasedTooMany));
            }
            set::Step::AddFinalizer => broken.extend(leaving.then_some(Broken::GrowthOfLeaving)),
            set::Step::GiveUp(all) => broken.extend(given_up(seen, all, now)),
            set::Step::Keep(marks) => broken.extend(kept(seen, marks)),
            set::Step::Delete(_) | set::Step::Bring(_) | set::Step::Thaw | set::Step::Record(_) => {}
        }
    }
    broken
}

/// A failure that is known or told is told before what may fail again. The finalizer is the set's own and holds up no report.
fn set_report(seen: &set::Observed<'_>, plan: &set::Plan) -> Option<Broken> {
    use set::Step;
    let is_told = |step: &Step| matches!(step, Step::Record(change) if change.tells_failure());
    let is_record = |step: &Step| matches!(step, Step::Record(_));
    let grows = |step: &Step| matches!(step, Step::Reserve { .. } | Step::Create(_));
    let shrinks = |step: &Step| matches!(step, Step::Delete(_));
    let create = seen.notes.create_refused.as_ref();
    let delete = seen.notes.delete_refused.as_ref();
    let told = reported_first(&plan.steps, is_told, |step| grows(step) || shrinks(step));
    told.or_else(|| create.and_then(|_| reported_first(&plan.steps, is_record, grows)))
        .or_else(|| delete.and_then(|_| reported_first(&plan.steps, is_record, shrinks)))
}

fn wrong_claims<'a>(
    machines: &'a [Arc<Machine>],
    fits: impl Fn(&Machine) -> bool + 'a,
) -> impl Iterator<Item = Broken> + 'a {
    let wrong = machines.iter().filter(move |machine| !fits(machine));
    wrong.map(|machine| Broken::WrongClaim(meta::name(&machine.metadata).to_owned()))
}

fn selects(set: &MachineSet, machine: &Machine) -> bool {
    let matcher = set
        .spec
        .selector
        .as_ref()
        .and_then(|selector| Matcher::new(selector).ok());
    matcher.is_some_and(|matcher| matcher.selects(&machine.metadata))
}

/// The API server refused the last write to the Machine, and it is not tried again yet.
fn waits(machine: &MachineView<'_>, now: Timestamp) -> bool {
    machine.refusal.is_some_and(|refusal| refusal.holds(now))
}

/// What the plan saw of a Machine that it writes.
fn view<'a>(seen: &set::Observed<'a>, machine: &Machine) -> Option<&'a MachineView<'a>> {
    let mut machines = seen.machines.iter();
    machines.find(|view| view.metadata.uid == machine.metadata.uid)
}

/// S4: after any prefix no more Machines that stay than are wanted, or than there were.
fn set_budget(seen: &set::Observed<'_>, plan: &set::Plan) -> Vec<Broken> {
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    let staying = seen.owned().filter(|own| !is_leaving(own));
    let staying: BTreeSet<Uid> = staying.filter_map(|own| own.uid()).collect();
    let mut count = staying.len();
    let mut allowed = wanted.max(count);
    let mut broken = Vec::new();
    for (step, done) in plan.steps.iter().enumerate() {
        match done {
            set::Step::Create(batch) => count += batch.len(),
            set::Step::Delete(victims) => {
                count = count.saturating_sub(victims.iter().filter(|victim| staying.contains(&victim.uid)).count());
            }
            // What is adopted was there before.
            set::Step::Adopt(machines) => {
                count += machines.len();
                allowed = allowed.max(count);
            }
            _ => {}
        }
        if count > allowed {
            broken.push(Broken::OverBudget { step, count, allowed });
        }
    }
    broken
}

/// S6: only unhealthy ones that stay fail; and of those that could recover none that a limit keeps, and no more than may be on the way.
fn given_up(seen: &set::Observed<'_>, all: &[set::repair::GivenUp], now: Timestamp) -> Vec<Broken> {
    let wrong = all.iter().filter(|given| {
        let machine = &given.machine;
        let is_tripped = || view(seen, machine).is_some_and(|view| seen.tripped(view).is_some());
        let is_kept = !given.has_ended && is_tripped();
        let is_ill = matches!(machine.phase(), Phase::Unknown | Phase::InPlaceUpdateFailed);
        let may_end = !given.has_ended || matches!(given.fault, Fault::Vm(Lost::Gone | Lost::Ending));
        !is_ill || is_leaving(machine) || is_kept || !may_end
    });
    let wrong = wrong.map(|given| Broken::WrongVictim(meta::name(&given.machine.metadata).to_owned()));
    let before = set::repair::given_up_before(seen, now);
    let limited = all.iter().filter(|given| !given.has_ended).count();
    let is_over = limited > 0 && before + limited > seen.allowance.replace;
    wrong.chain(is_over.then_some(Broken::TooManyGivenUp)).collect()
}

/// Nobody is kept without being asked who did not fail, or of whom somebody has said something.
fn kept(seen: &set::Observed<'_>, marks: &[set::keep::Mark]) -> Vec<Broken> {
    let wrong = marks.iter().filter(|mark| {
        let machine = &mark.machine;
        let is_requested = view(seen, machine).is_some_and(|view| view.request.is_some());
        let is_fresh = *machine.phase() == Phase::Failed && !is_requested && machine.preserved_until().is_none();
        (mark.is_kept && !is_fresh) || set::keep::is_auto(machine) == mark.is_kept || is_leaving(machine)
    });
    let wrong = wrong.map(|mark| Broken::WrongVictim(meta::name(&mark.machine.metadata).to_owned()));
    wrong.collect()
}

/// A Failed Machine that is preserved goes only where there are too many, or the autoscaler named it, or the set goes.
fn kept_victims(seen: &set::Observed<'_>, plan: &set::Plan, now: Timestamp) -> Vec<Broken> {
    let goes = |machine: &&MachineView<'_>| {
        let mut victims = plan.steps.iter().flat_map(set::Step::victims);
        victims.any(|victim| machine.uid().as_ref() == Some(&victim.uid))
    };
    if meta::is_deleting(&seen.set.metadata) {
        return Vec::new();
    }
    let present = || seen.owned().filter(|own| !is_leaving(own) && !is_released(plan, own));
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    let mut allowed = present().count().saturating_sub(wanted);
    let kept = present().filter(goes).filter(|own| set::facts::is_kept(own, now));
    let kept = kept.filter(|own| !own.is_named && !own.is_triggered_for_deletion());
    let replaced = kept.filter(|_| match allowed {
        0 => true,
        _ => {
            allowed -= 1;
            false
        }
    });
    let replaced = replaced.map(|own| Broken::PreservedReplaced(meta::name(&own.metadata).to_owned()));
    replaced.collect()
}

/// Names were reserved and are free; each child can be found and guarded from its first moment.
fn set_creation(seen: &set::Observed<'_>, batch: &[set::NewMachine], next: i64) -> Vec<Broken> {
    let own = meta::identity(&seen.set.metadata).1;
    let names = Names::of(seen.set);
    let settled = seen.set.status.as_ref().map_or(0, |status| {
        status.settled_machine_number.min(status.next_machine_number)
    });
    let reserved: BTreeSet<String> = (settled..next).map(|number| names.name(number)).collect();
    let mut used = BTreeSet::new();
    let mut broken = Vec::new();
    for made in batch {
        let name = made.name.as_str();
        broken.extend((!reserved.contains(name)).then(|| Broken::NameNotReserved(name.to_owned())));
        broken.extend((!used.insert(name) || (seen.exists)(name)).then(|| Broken::NameTaken(name.to_owned())));
        let selector = seen.set.spec.selector.as_ref();
        let child = is_guarded(&made.finalizers) && is_child(&made.owner, &made.labels, &own, selector);
        broken.extend((!child).then_some(Broken::ChildUnguarded));
    }
    broken
}

/// S10 and MS-7: victims are the set's own, not spared, the first in the order of leaving, and no more than need be.
fn set_victims(seen: &set::Observed<'_>, plan: &set::Plan, now: Timestamp) -> Vec<Broken> {
    let victims = || plan.steps.iter().flat_map(set::Step::victims);
    let uids: BTreeSet<&Uid> = victims().map(|victim| &victim.uid).collect();
    let leaving = meta::is_deleting(&seen.set.metadata);
    let spared =
        |machine: &Machine| meta::label(&machine.metadata, keys::UPDATE_RESULT) == Some(keys::UPDATE_SUCCESSFUL);
    let mut broken = Vec::new();
    for set::Victim { name, uid, .. } in victims() {
        let own = seen.owned().find(|own| own.uid().as_ref() == Some(uid));
        let stays = owner::orphans_children(&seen.set.metadata);
        let right = own.is_some_and(|own| !meta::is_deleting(&own.metadata) && !stays && (leaving || !spared(own)));
        broken.extend((!right).then(|| Broken::WrongVictim(name.to_string())));
    }
    if leaving {
        return broken;
    }
    let is_victim = |machine: &Machine| machine.uid().is_some_and(|uid| uids.contains(&uid));
    let present = || seen.owned().filter(|own| !is_leaving(own) && !is_released(plan, own));
    let policy = seen.set.spec.delete_policy.as_ref().and_then(|policy| policy.known());
    let goes_anyway = |own: &MachineView<'_>| is_replaceable(own) || own.is_named;
    let ordinary = present().filter(|own| !spared(own) && !goes_anyway(own));
    // Who was chosen and could not be deleted stays chosen; its deletion waits.
    let mut one_stays = false;
    for machine in rank::rank(ordinary, policy, now) {
        let is_held = seen.allowance.lose.is_some()
            && (set::facts::counts_as_available(seen, machine, now) || set::facts::is_needed_still(seen, machine, now));
        one_stays |= !is_victim(machine) && !waits(machine, now) && !is_held;
        if one_stays && is_victim(machine) {
            broken.push(Broken::VictimOrder(meta::name(&machine.metadata).to_owned()));
        }
    }
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    let left = present().filter(|own| !is_victim(own)).count();
    let took_wanted = present().any(|own| is_victim(own) && !goes_anyway(own));
    broken.extend((took_wanted && left < wanted).then_some(Broken::TooFewLeft));
    let lost = present()
        .filter(|own| is_victim(own) && !goes_anyway(own))
        .filter(|own| set::facts::counts_as_available(seen, own, now))
        .count();
    broken.extend(
        seen.allowance
            .lose
            .is_some_and(|may| lost > may)
            .then_some(Broken::TooFewAvailable),
    );
    broken
}

fn is_released(plan: &set::Plan, machine: &Machine) -> bool {
    plan.steps.iter().any(|step| match step {
        set::Step::Release(machines) => machines.iter().any(|other| other.metadata.uid == machine.metadata.uid),
        _ => false,
    })
}

/// May go whatever the count is: it failed, or the autoscaler chose it.
fn is_replaceable(machine: &Machine) -> bool {
    *machine.phase() == Phase::Failed || machine.is_triggered_for_deletion()
}
