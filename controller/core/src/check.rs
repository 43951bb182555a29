//! Laws that every plan must keep, whatever was observed. Pure; tests run them on every plan.
//!
//! A law reads the observation and the plan and nothing of how the plan was made, so it holds for a planner written
//! anew. Sources: `reliability.md` §2 (S1–S4, S9, S10, S16), `architecture.md` §2, `spec/machine.md` §1.2.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::template::Scope;
use crate::api::{Machine, MachineSet, Phase, Template, keys, meta};
use crate::driver::{Capability, Initialization};
use crate::ids::Uid;
use crate::machine::{Call, DriverView};
use crate::selector::Matcher;
use crate::set::{names::machine_name, rank};
use crate::{deployment, machine, merge, set};

/// A law that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what each means")]
pub enum Broken {
    #[error("it looks again at a time that is not in the future")]
    WakeInThePast,
    #[error("it goes on after the finalizer is removed")]
    StepAfterTheEnd,
    #[error("it calls the driver while a call runs, or calls it twice, or goes on after a call")]
    CallsNotAlone,
    #[error("it calls CreateMachine without our finalizer, or for a Machine that is being deleted")]
    CreateUnguarded,
    #[error("it calls CreateMachine before the intent is stored and the Machine is read live")]
    CreateWithoutIntent,
    #[error("it calls DeleteMachine for a Machine that nobody deletes")]
    DeleteOfWanted,
    #[error("it removes the finalizer while something may be left at the provider")]
    ReleaseUnproven,
    #[error("it deletes a Machine that is being deleted already")]
    DeletedTwice,
    #[error("it writes another providerID than the one that is stored")]
    IdentityChanged,
    #[error("it moves the phase from {0:?} to {1:?}")]
    PhaseEdge(String, String),
    #[error("it passes over an initialisation that is pending")]
    InitializationSkipped,
    #[error("a phase begins later than it is written")]
    PhaseFromTheFuture,
    #[error("after step {step} it has {count} children where {allowed} are allowed")]
    OverBudget { step: usize, count: usize, allowed: usize },
    #[error("it creates {0}, a name that was not reserved")]
    NameNotReserved(String),
    #[error("it creates {0}, a name that is taken or used twice")]
    NameTaken(String),
    #[error("it creates a child without finalizer, controller or selected labels")]
    ChildUnguarded,
    #[error("it creates or changes children of an owner that is being deleted")]
    GrowthOfLeaving,
    #[error("it deletes {0}, which is not its own, is leaving already, or is spared")]
    WrongVictim(String),
    #[error("it deletes {0} although an earlier one in the order of leaving stays")]
    VictimOrder(String),
    #[error("it deletes machines that it wants")]
    TooFewLeft,
    #[error("it adopts or releases {0} against its selector")]
    WrongClaim(String),
    #[error("it counts the reserved names back")]
    CounterBackwards,
    #[error("it writes the status twice")]
    RecordedTwice,
    #[error("it changes what only a rollout may change")]
    TemplateReplaced,
}

fn wakes_later(wake: Option<Timestamp>, now: Timestamp) -> Option<Broken> {
    wake.filter(|at| *at <= now).map(|_| Broken::WakeInThePast)
}

/// Laws of a Machine's plan.
pub fn machine(seen: &machine::Observed<'_>, plan: &machine::Plan, now: Timestamp) -> Vec<Broken> {
    let mut broken: Vec<Broken> = wakes_later(plan.wake, now).into_iter().collect();
    broken.extend(calls_alone(seen, plan));
    let mut phase = seen.machine.phase().clone();
    let mut read_live = false;
    for (index, step) in plan.steps.iter().enumerate() {
        let last = index + 1 == plan.steps.len();
        broken.extend(machine_step(seen, step, &phase, read_live, last));
        match step {
            machine::Step::Record(change) => {
                phase = change.phase.clone();
                // The API server refuses the write if the uid differs, and answers with the object as it is.
                read_live = true;
            }
            machine::Step::Confirm => read_live = true,
            machine::Step::AddFinalizer
            | machine::Step::EnsureToken
            | machine::Step::Call(_)
            | machine::Step::Identify { .. }
            | machine::Step::GuardNode(_)
            | machine::Step::DropToken
            | machine::Step::DeleteMachine
            | machine::Step::RemoveNode(_)
            | machine::Step::RemoveFinalizer
            | machine::Step::StepDown => {}
        }
    }
    broken
}

fn calls_alone(seen: &machine::Observed<'_>, plan: &machine::Plan) -> Option<Broken> {
    let calls = plan
        .steps
        .iter()
        .filter(|step| matches!(step, machine::Step::Call(_)))
        .count();
    let last = matches!(plan.steps.last(), Some(machine::Step::Call(_)));
    let alone = calls == 0 || (calls == 1 && last && seen.calls.running.is_none());
    (!alone).then_some(Broken::CallsNotAlone)
}

fn machine_step(
    seen: &machine::Observed<'_>,
    step: &machine::Step,
    phase: &Phase,
    read_live: bool,
    last: bool,
) -> Option<Broken> {
    use machine::Step;
    let machine = seen.machine;
    let deleting = meta::is_deleting(&machine.metadata);
    let guarded = meta::has_finalizer(&machine.metadata, keys::FINALIZER);
    match step {
        Step::Call(Call::Create) if deleting || !guarded => Some(Broken::CreateUnguarded),
        Step::Call(Call::Create) => (phase.is_new() || !read_live).then_some(Broken::CreateWithoutIntent),
        Step::Call(Call::Delete) => (!deleting).then_some(Broken::DeleteOfWanted),
        Step::RemoveFinalizer if !last => Some(Broken::StepAfterTheEnd),
        Step::RemoveFinalizer => (!deleting || !is_proven(seen)).then_some(Broken::ReleaseUnproven),
        Step::DeleteMachine => deleting.then_some(Broken::DeletedTwice),
        Step::Identify { provider_id, .. } => {
            (provider_id.is_some() && machine.provider_id().is_some()).then_some(Broken::IdentityChanged)
        }
        // One that is stored already is carried on: clocks jump.
        Step::Record(change) if change.since > change.at && machine.phase_since() != Some(change.since) => {
            Some(Broken::PhaseFromTheFuture)
        }
        Step::Record(change) if !is_edge(phase, &change.phase, deleting) => {
            Some(Broken::PhaseEdge(phase.to_string(), change.phase.to_string()))
        }
        Step::Record(change) => skips_initialization(seen, phase, &change.phase),
        // RemoveNode looks at the Node live and leaves another VM's alone, so a name is enough.
        Step::AddFinalizer
        | Step::Confirm
        | Step::EnsureToken
        | Step::Call(Call::Initialize | Call::Status)
        | Step::GuardNode(_)
        | Step::RemoveNode(_)
        | Step::DropToken
        | Step::StepDown => None,
    }
}

/// S2. Nothing is left at the provider: the driver said so, and said so after its propagation delay where a create may
/// have been under way; or no driver was ever asked.
fn is_proven(seen: &machine::Observed<'_>) -> bool {
    let machine = seen.machine;
    let unnamed = machine.provider_id().is_none() && machine.node_label().is_none();
    if machine.phase().is_new() && unnamed && seen.calls.vm.is_none() {
        return true;
    }
    let Some(gone_since) = seen.calls.gone_since else {
        return false;
    };
    if machine.provider_id().is_some() {
        return true;
    }
    match seen.driver {
        DriverView::Ready(info) => seen
            .calls
            .not_found_at
            .is_some_and(|at| at >= gone_since + info.propagation_delay),
        // Nobody knows the delay of a driver that nobody knows; all of them have said that nothing is left.
        DriverView::Unnamed { all_ready } => all_ready,
        DriverView::Missing(_) | DriverView::Away { .. } => false,
    }
}

/// The table of `spec/machine.md` §1.2. Staying is always allowed, and deletion leads to `Terminating` and nowhere else.
fn is_edge(from: &Phase, to: &Phase, deleting: bool) -> bool {
    if deleting || *to == Phase::Terminating {
        return deleting && *to == Phase::Terminating;
    }
    let reachable: &[Phase] = match from {
        Phase::New | Phase::CrashLoopBackOff => &[
            Phase::Pending,
            Phase::Available,
            Phase::CrashLoopBackOff,
            Phase::Failed,
            Phase::Running,
        ],
        Phase::Pending => &[Phase::Available, Phase::CrashLoopBackOff, Phase::Failed, Phase::Running],
        Phase::Running => &[Phase::Unknown, Phase::InPlaceUpdating],
        Phase::Unknown => &[Phase::Running, Phase::Failed, Phase::InPlaceUpdating],
        Phase::Available => &[Phase::Running, Phase::InPlaceUpdating],
        Phase::Failed => &[Phase::Running],
        Phase::InPlaceUpdating => &[Phase::InPlaceUpdateSuccessful, Phase::InPlaceUpdateFailed],
        Phase::InPlaceUpdateFailed => &[Phase::InPlaceUpdateSuccessful, Phase::Failed],
        Phase::InPlaceUpdateSuccessful => &[Phase::Running, Phase::InPlaceUpdating],
        Phase::Terminating | Phase::Other(_) => &[],
    };
    from == to || reachable.contains(to)
}

/// W19: nothing becomes usable while the driver says that InitializeMachine has work to do.
fn skips_initialization(seen: &machine::Observed<'_>, from: &Phase, to: &Phase) -> Option<Broken> {
    let usable = matches!(to, Phase::Running | Phase::Available);
    let creating = matches!(from, Phase::New | Phase::Pending | Phase::CrashLoopBackOff);
    let pending = seen
        .calls
        .vm
        .as_ref()
        .is_some_and(|vm| vm.initialization == Initialization::Pending);
    let can = match seen.driver {
        DriverView::Ready(info) => info.capabilities.contains(&Capability::InitializeMachine),
        DriverView::Unnamed { .. } | DriverView::Missing(_) | DriverView::Away { .. } => true,
    };
    (usable && creating && pending && can).then_some(Broken::InitializationSkipped)
}

/// Laws of a set's plan.
pub fn set(seen: &set::Observed<'_>, plan: &set::Plan, now: Timestamp) -> Vec<Broken> {
    let mut broken: Vec<Broken> = wakes_later(plan.wake, now).into_iter().collect();
    let records = plan
        .steps
        .iter()
        .filter(|step| matches!(step, set::Step::Record(_)))
        .count();
    broken.extend((records > 1).then_some(Broken::RecordedTwice));
    broken.extend(set_budget(seen, plan));
    broken.extend(set_victims(seen, plan, now));
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
            set::Step::Create(bodies) => broken.extend(set_creation(seen, bodies, next)),
            set::Step::RemoveFinalizer => {
                broken.extend((!last).then_some(Broken::StepAfterTheEnd));
                broken.extend((!leaving || own_machines(seen).next().is_some()).then_some(Broken::ReleaseUnproven));
            }
            set::Step::Adopt(name, uid) => {
                let fits = find(seen.machines, uid).is_some_and(|machine| {
                    let free = meta::controller_uid(&machine.metadata).is_none();
                    free && !meta::is_deleting(&machine.metadata) && selects(seen.set, machine)
                });
                broken.extend((leaving || !fits).then(|| Broken::WrongClaim(name.to_string())));
            }
            set::Step::Release(name, uid) => {
                let fits = own_machines(seen).any(|own| own.uid().as_ref() == Some(uid) && !selects(seen.set, own));
                broken.extend((!fits).then(|| Broken::WrongClaim(name.to_string())));
            }
            set::Step::AddFinalizer => broken.extend(leaving.then_some(Broken::GrowthOfLeaving)),
            set::Step::Delete(_) | set::Step::Bring(..) | set::Step::Record(_) => {}
        }
    }
    broken
}

fn own_machines<'a>(seen: &'a set::Observed<'_>) -> impl Iterator<Item = &'a Machine> {
    let own = meta::uid(&seen.set.metadata);
    let machines = seen.machines.iter().map(Arc::as_ref);
    machines.filter(move |machine| own.is_some() && meta::controller_uid(&machine.metadata) == own)
}

fn find<'a>(machines: &'a [Arc<Machine>], uid: &Uid) -> Option<&'a Machine> {
    machines
        .iter()
        .map(Arc::as_ref)
        .find(|machine| machine.uid().as_ref() == Some(uid))
}

fn selects(set: &MachineSet, machine: &Machine) -> bool {
    let matcher = set
        .spec
        .selector
        .as_ref()
        .and_then(|selector| Matcher::new(selector).ok());
    matcher.is_some_and(|matcher| matcher.selects(&machine.metadata))
}

fn is_leaving(machine: &Machine) -> bool {
    meta::is_deleting(&machine.metadata) || *machine.phase() == Phase::Terminating
}

/// S4: after any prefix no more Machines that stay than are wanted, or than there were.
fn set_budget(seen: &set::Observed<'_>, plan: &set::Plan) -> Vec<Broken> {
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    let staying: BTreeSet<Uid> = own_machines(seen)
        .filter(|own| !is_leaving(own))
        .filter_map(Machine::uid)
        .collect();
    let mut count = staying.len();
    let mut allowed = wanted.max(count);
    let mut broken = Vec::new();
    for (step, done) in plan.steps.iter().enumerate() {
        match done {
            set::Step::Create(bodies) => count += bodies.len(),
            set::Step::Delete(victims) => {
                count = count.saturating_sub(victims.iter().filter(|(_, uid)| staying.contains(uid)).count());
            }
            // What is adopted was there before.
            set::Step::Adopt(..) => {
                count += 1;
                allowed = allowed.max(count);
            }
            set::Step::AddFinalizer
            | set::Step::RemoveFinalizer
            | set::Step::Release(..)
            | set::Step::Reserve { .. }
            | set::Step::Bring(..)
            | set::Step::Record(_) => {}
        }
        if count > allowed {
            broken.push(Broken::OverBudget { step, count, allowed });
        }
    }
    broken
}

/// Names were reserved and are free; each child can be found and guarded from its first moment.
fn set_creation(seen: &set::Observed<'_>, bodies: &[Value], next: i64) -> Vec<Broken> {
    let (title, own) = meta::identity(&seen.set.metadata);
    let settled = seen.set.status.as_ref().map_or(0, |status| {
        status.settled_machine_number.min(status.next_machine_number)
    });
    let reserved: BTreeSet<String> = (settled..next)
        .map(|number| machine_name(title.as_str(), &own, number))
        .collect();
    let mut used = BTreeSet::new();
    let mut broken = Vec::new();
    for body in bodies {
        let name = text(body, "/metadata/name");
        broken.extend((!reserved.contains(name)).then(|| Broken::NameNotReserved(name.to_owned())));
        broken.extend((!used.insert(name) || (seen.exists)(name)).then(|| Broken::NameTaken(name.to_owned())));
        let selector = seen.set.spec.selector.as_ref();
        broken.extend((!is_child(body, &own, selector)).then_some(Broken::ChildUnguarded));
    }
    broken
}

fn text<'a>(body: &'a Value, pointer: &str) -> &'a str {
    body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

type LabelSelector = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Finalizer, the owner as first reference and controller, and labels that the owner selects.
fn is_child(body: &Value, owner: &Uid, selector: Option<&LabelSelector>) -> bool {
    let finalizers = body.pointer("/metadata/finalizers").and_then(Value::as_array);
    let guarded = finalizers.is_some_and(|held| held.iter().any(|finalizer| finalizer == keys::FINALIZER));
    let owned = text(body, "/metadata/ownerReferences/0/uid") == owner.as_str()
        && body.pointer("/metadata/ownerReferences/0/controller") == Some(&Value::Bool(true));
    let labels = meta::string_map(body.pointer("/metadata/labels"));
    let matcher = selector.and_then(|selector| Matcher::new(selector).ok());
    guarded && owned && matcher.is_some_and(|matcher| matcher.matches(&labels))
}

/// S10 and S16: victims are the set's own, not spared, the first in the order of leaving, and no more than need be.
fn set_victims(seen: &set::Observed<'_>, plan: &set::Plan, now: Timestamp) -> Vec<Broken> {
    let victims: Vec<&(crate::ids::Name, Uid)> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            set::Step::Delete(victims) => Some(victims.iter()),
            _ => None,
        })
        .flatten()
        .collect();
    let uids: BTreeSet<&Uid> = victims.iter().map(|(_, uid)| uid).collect();
    let leaving = meta::is_deleting(&seen.set.metadata);
    let spared =
        |machine: &Machine| meta::label(&machine.metadata, keys::UPDATE_RESULT) == Some(keys::UPDATE_SUCCESSFUL);
    let mut broken = Vec::new();
    for (name, uid) in &victims {
        let own = own_machines(seen).find(|own| own.uid().as_ref() == Some(uid));
        let right = own.is_some_and(|own| !meta::is_deleting(&own.metadata) && (leaving || !spared(own)));
        broken.extend((!right).then(|| Broken::WrongVictim(name.to_string())));
    }
    if leaving {
        return broken;
    }
    let is_victim = |machine: &Machine| machine.uid().is_some_and(|uid| uids.contains(&uid));
    let present = || own_machines(seen).filter(|own| selects(seen.set, own) && !is_leaving(own));
    let policy = seen.set.spec.delete_policy.as_ref().and_then(|policy| policy.known());
    let ordinary = present().filter(|own| !spared(own) && !is_replaceable(own));
    let mut one_stays = false;
    for machine in rank::rank(ordinary, policy, now) {
        one_stays |= !is_victim(machine);
        if one_stays && is_victim(machine) {
            broken.push(Broken::VictimOrder(meta::name(&machine.metadata).to_owned()));
        }
    }
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    let left = present().filter(|own| !is_victim(own)).count();
    let took_wanted = present().any(|own| is_victim(own) && !is_replaceable(own));
    broken.extend((took_wanted && left < wanted).then_some(Broken::TooFewLeft));
    broken
}

/// May go whatever the count is: it failed, or the autoscaler chose it.
fn is_replaceable(machine: &Machine) -> bool {
    *machine.phase() == Phase::Failed || machine.is_triggered_for_deletion()
}

/// Laws of a deployment's plan.
pub fn deployment(seen: &deployment::Observed<'_>, plan: &deployment::Plan, now: Timestamp) -> Vec<Broken> {
    use deployment::Step;
    let mut broken: Vec<Broken> = wakes_later(plan.wake, now).into_iter().collect();
    let own = meta::uid(&seen.deployment.metadata);
    let owned = || {
        seen.sets
            .iter()
            .filter(|set| own.is_some() && meta::controller_uid(&set.metadata) == own)
    };
    let leaving = meta::is_deleting(&seen.deployment.metadata);
    for (index, step) in plan.steps.iter().enumerate() {
        let last = index + 1 == plan.steps.len();
        match step {
            Step::RemoveFinalizer => {
                broken.extend((!last).then_some(Broken::StepAfterTheEnd));
                broken.extend((!leaving || owned().next().is_some()).then_some(Broken::ReleaseUnproven));
            }
            Step::Create(_) | Step::Change(..) | Step::Adopt(..) | Step::Number(_) | Step::AddFinalizer if leaving => {
                broken.push(Broken::GrowthOfLeaving);
            }
            Step::Create(body) => {
                let count = owned().filter(|set| !meta::is_deleting(&set.metadata)).count() + 1;
                broken.extend((count > 1).then_some(Broken::OverBudget {
                    step: index,
                    count,
                    allowed: 1,
                }));
                let name = text(body, "/metadata/name");
                broken.extend((seen.exists)(name).then(|| Broken::NameTaken(name.to_owned())));
                let uid = own.clone().unwrap_or_else(|| Uid::new(""));
                let child = is_child(body, &uid, seen.deployment.spec.selector.as_ref());
                broken.extend((!child).then_some(Broken::ChildUnguarded));
            }
            Step::Change(name, body) => {
                let set = owned().find(|set| meta::name(&set.metadata) == name.as_str());
                let kept = set.is_some_and(|set| keeps_template(&set.spec.template, body));
                broken.extend((!kept).then_some(Broken::TemplateReplaced));
            }
            Step::Delete(victims) => {
                for (name, uid) in victims {
                    let right = leaving && owned().any(|set| meta::uid(&set.metadata).as_ref() == Some(uid));
                    broken.extend((!right).then(|| Broken::WrongVictim(name.to_string())));
                }
            }
            Step::Adopt(..) | Step::Release(..) | Step::Number(_) | Step::AddFinalizer | Step::Record(_) => {}
        }
    }
    broken
}

/// A change of a set leaves alone what its Machines were made from.
fn keeps_template(template: &Template, body: &Value) -> bool {
    let Some(change) = body.pointer("/spec/template") else {
        return true;
    };
    let before = Value::Object(template.as_json().clone());
    let mut after = before.clone();
    merge::apply(&mut after, change);
    match serde_json::from_value::<Template>(after) {
        Ok(after) => after.semantically_equal(template, Scope::Rollout),
        Err(_) => false,
    }
}
