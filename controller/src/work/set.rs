//! Observe and execute for one MachineSet. Every branch is a step of the plan; nothing is chosen here.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use millwright_core::api::{Machine, MachineSet, keys, meta};
use millwright_core::ids::Name;
use millwright_core::ledger::OwnerNotes;
use millwright_core::refusal::Refusal;
use millwright_core::set::repair::GivenUp;
use millwright_core::set::{Asked, NewMachine, Step, Victim, Why, claim, freeze, look};
use millwright_core::wake::{Key, group_of};
use millwright_core::world::World;
use serde_json::json;

use super::children::{self, TOGETHER};
use super::node::see_node;
use super::pass::{Planned, Reconciler, Run};
use super::shared::Shared;
use super::step::StepError;
use crate::kube::error::WriteError;
use crate::kube::events::Severity;
use crate::telemetry::original::Moment;

/// MachineSets.
pub(super) struct Sets;

impl Reconciler for Sets {
    const KIND: &'static str = "set";
    type Object = MachineSet;
    type Step = Step;
    type Why = Why;
    type Carry = ();

    fn plan(shared: &Shared, world: &World, name: &Name, now: Timestamp) -> Option<Planned<Self>> {
        let set = world.sets.get(name)?;
        // One that a deployment controls is planned together with it.
        if group_of(world, set) != Key::Set(name.clone()) {
            return None;
        }
        let (plan, broken) = asking(shared, world, |asked| {
            look(asked, set, |seen| {
                let plan = (shared.env.planners.set)(seen, now);
                let broken = shared.env.planners.broken(|laws| (laws.set)(seen, &plan, now));
                (plan, broken)
            })
        });
        let object = Arc::clone(set);
        Some(Planned { object, plan, broken })
    }

    async fn step(shared: &Arc<Shared>, run: &mut Run<Self>, step: Step, _: &Why) -> Result<(), StepError> {
        carry_out(shared, &mut run.object, step).await
    }
}

/// What a plan of a set or of a deployment asks.
pub(super) fn asking<T>(shared: &Shared, world: &World, ask: impl FnOnce(&Asked<'_>) -> T) -> T {
    ask(&Asked {
        world,
        machine_exists: &|machine| world.machines.get(&Name::new(machine)).is_some(),
        can_check: &|class| can_check(shared, world, class),
        sight: shared.sight(None),
        settings: &shared.settings,
    })
}

/// Whether somebody is there to check a class. Nobody but its driver can; while that is away, Machines are made and say so.
fn can_check(shared: &Shared, world: &World, class: &Name) -> bool {
    let driver = world.classes.get(class).and_then(|class| world.ledger.driver_of(class));
    driver.is_some_and(|driver| shared.is_here(&driver))
}

/// Carries out one step for a set, and keeps the set as the write left it.
pub(super) async fn carry_out(shared: &Shared, set: &mut Arc<MachineSet>, step: Step) -> Result<(), StepError> {
    match step {
        Step::AddFinalizer => *set = shared.wrote(shared.write.add_finalizer(&**set, keys::FINALIZER).await?),
        Step::RemoveFinalizer => {
            let left = shared.write.remove_finalizer(&**set, keys::FINALIZER).await?;
            if let Some(left) = shared.released(left) {
                *set = left;
            }
        }
        Step::Adopt(machines) => children::adopt(shared, &**set, machines).await?,
        Step::Release(machines) => {
            let set = &**set;
            let one = |machine: Arc<Machine>| async move {
                children::merge(shared, &*machine, claim::release(set, &machine)).await
            };
            children::each(machines, one).await?;
        }
        Step::Thaw => {
            let turn = freeze::turn_by_thaw(set);
            *set = shared.wrote(shared.write.merge(&**set, freeze::thawed()).await?);
            if let Some((reason, text)) = turn {
                shared.events.publish(&**set, Severity::Normal, reason, &text);
            }
        }
        Step::Reserve { next } => {
            let body = json!({ "status": { "nextMachineNumber": next } });
            *set = shared.wrote(shared.write.merge_status(&**set, body).await?);
        }
        Step::Create(batch) => create(shared, set, batch).await?,
        Step::Delete(victims) => delete(shared, set, victims).await?,
        Step::Bring(all) => {
            let one = |brought: millwright_core::set::Brought| async move {
                children::merge(shared, &*brought.machine, brought.patch()).await
            };
            children::each(all, one).await?;
        }
        Step::GiveUp(all) => {
            // One that cannot be failed holds up no other.
            let one = |given| give_up(shared, given);
            let results: Vec<Result<(), StepError>> =
                stream::iter(all).map(one).buffer_unordered(TOGETHER).collect().await;
            let failure = results.into_iter().find_map(Result::err);
            failure.map_or(Ok(()), |failure| Err(StepError::of_another(failure)))?;
        }
        Step::Keep(marks) => {
            let one = |mark: millwright_core::set::keep::Mark| async move {
                children::merge(shared, &*mark.machine, mark.patch()).await
            };
            children::each(marks, one).await?;
        }
        Step::Record(change) => {
            *set = shared.wrote(shared.write.merge_status(&**set, change.patch()).await?);
            let now = shared.env.now();
            note(shared, set, |notes| notes.status_written = Some(now));
        }
    }
    Ok(())
}

async fn give_up(shared: &Shared, given: GivenUp) -> Result<(), StepError> {
    let GivenUp { machine, failed, .. } = given;
    if let Some(node) = &failed.see {
        see_node(shared, &machine, node).await?;
    }
    children::merge_status(shared, &*machine, failed.change.patch()).await?;
    shared.metrics.original.happened.note(&machine, Moment::Stale);
    shared
        .events
        .publish(&*machine, Severity::Warning, failed.reason, &failed.change.description);
    Ok(())
}

fn note(shared: &Shared, set: &MachineSet, note: impl FnOnce(&mut OwnerNotes)) {
    let (name, uid) = meta::identity(&set.metadata);
    shared.quietly(|world| world.note_owner::<MachineSet>(&name, &uid, note));
}

/// "1 machine", "2 machines".
fn machines(count: usize) -> String {
    match count {
        1 => "1 machine".to_owned(),
        count => format!("{count} machines"),
    }
}

/// Creates one batch of Machines together; what the API server refuses stops the rest and is told on the set.
async fn create(shared: &Shared, set: &MachineSet, batch: Vec<NewMachine>) -> Result<(), StepError> {
    let wanted = batch.len();
    let mut posts = stream::iter(batch)
        .map(|made| post(shared, made))
        .buffer_unordered(TOGETHER);
    let (mut made, mut failure) = (0_usize, None);
    while let Some(result) = posts.next().await {
        match result {
            Ok(()) => made += 1,
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    drop(posts);
    if made > 0 {
        let text = format!("Created {}", machines(made));
        shared.events.publish(set, Severity::Normal, "SuccessfulCreate", &text);
    }
    let now = shared.env.now();
    let Some(failure) = failure else {
        note(shared, set, |notes| {
            notes.create_refused = None;
            notes.batches = notes.batches.saturating_add(1);
            notes.batch_ended = Some(now);
        });
        return Ok(());
    };
    let text = format!("Error creating {} of {}: {failure}", wanted - made, machines(wanted));
    shared
        .events
        .publish(set, Severity::Warning, keys::REASON_FAILED_CREATE, &text);
    note(shared, set, |notes| {
        // Who gives no answer may give one the next moment, and the key's own back-off is pause enough; who says no says it again.
        let before = notes
            .create_refused
            .take()
            .filter(|_| matches!(failure, WriteError::Refused { .. }));
        let mut refusal = Refusal::after(before.as_ref(), text, now);
        if !matches!(failure, WriteError::Refused { .. }) {
            refusal.retry_at = now;
        }
        notes.create_refused = Some(refusal);
        notes.batches = 0;
        notes.batch_ended = Some(now);
    });
    Err(failure.into())
}

/// A name that is taken was taken by an earlier try whose answer was lost; its Machine is read, so that it counts. A try that is given
/// up, as when another one is refused, stays unanswered.
async fn post(shared: &Shared, made: NewMachine) -> Result<(), WriteError> {
    let now = shared.env.now();
    let earlier = shared.quietly(|world| world.ledger.sends(&made.name, now));
    let answer = shared.write.create::<Machine>(made.body()).await;
    if !matches!(answer, Err(WriteError::Unreachable { .. })) {
        shared.quietly(|world| world.ledger.answered(&made.name, earlier));
    }
    match answer {
        Ok(machine) => {
            shared.wrote(machine);
            Ok(())
        }
        Err(WriteError::AlreadyExists) => {
            if let Ok(machine) = shared.write.read::<Machine>(&made.name).await {
                shared.wrote(machine);
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn delete(shared: &Shared, set: &MachineSet, victims: Vec<Victim>) -> Result<(), StepError> {
    let one = |victim: Victim| async move {
        let deleted = children::delete::<Machine>(shared, &victim.name, &victim.uid, victim.version).await;
        children::note_unanswered(shared, &victim.name, &victim.uid, &deleted);
        deleted.map(|()| victim.is_replaced)
    };
    let results: Vec<Result<bool, WriteError>> = stream::iter(victims)
        .map(one)
        .buffer_unordered(TOGETHER)
        .collect()
        .await;
    let done = results.iter().filter(|result| result.is_ok()).count();
    let is_replacement = results.iter().any(|result| matches!(result, Ok(true)));
    if done > 0 {
        let text = format!("Deleted {}", machines(done));
        shared.events.publish(set, Severity::Normal, "SuccessfulDelete", &text);
    }
    let failure = results.into_iter().find_map(Result::err);
    let now = shared.env.now();
    let refusal = failure
        .as_ref()
        // A Machine that changed in the same moment is looked at again; nobody refused anything.
        .filter(|failure| !matches!(failure, WriteError::Stale))
        .map(|failure| format!("Error deleting machines: {failure}"));
    if is_replacement {
        let (name, uid) = meta::identity(&set.metadata);
        shared.quietly(|world| world.replaced(&name, &uid, now));
    }
    note(shared, set, |notes| {
        let before = notes.delete_refused.take();
        notes.delete_refused = refusal.clone().map(|text| Refusal::after(before.as_ref(), text, now));
    });
    if let Some(text) = refusal {
        shared
            .events
            .publish(set, Severity::Warning, keys::REASON_FAILED_DELETE, &text);
    }
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}
