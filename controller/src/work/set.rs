//! Observe and execute for one MachineSet. Every branch is a step of the plan; nothing is chosen here.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use millwright_core::api::{Machine, MachineSet, keys, meta};
use millwright_core::class::Readiness;
use millwright_core::ids::{Name, Uid};
use millwright_core::kinds::OwnedBy;
use millwright_core::set::plan::owner_reference;
use millwright_core::set::{Observed, Plan, Step};
use millwright_core::wake::Key;
use millwright_core::world::World;
use serde_json::{Value, json};

use super::dispatch::Pass;
use super::shared::Shared;
use super::step::StepError;
use crate::driver::DriverState;
use crate::kube::error::WriteError;
use crate::kube::events::Severity;

/// How many Machines are created or deleted at once: what an API server with two cores takes without queueing
/// (`architecture.md` §4).
const TOGETHER: usize = 32;

/// One pass over a set.
pub async fn work(shared: &Arc<Shared>, name: &Name) -> Pass {
    let Some((set, plan)) = shared.look(|world| observe(shared, world, name)) else {
        return Pass::gone();
    };
    let (why, wake) = (plan.why.label().to_owned(), plan.wake.map(|at| shared.uptime_of(at)));
    if !plan.steps.is_empty() {
        tracing::debug!(set = %name, why = %plan.why, steps = plan.steps.len(), "plan");
    }
    let done = execute(shared, set, plan).await;
    Pass::ended("set", name, why, done.map(|()| wake))
}

/// Gathers what the plan may read, and plans.
fn observe(shared: &Shared, world: &World, name: &Name) -> Option<(Arc<MachineSet>, Plan)> {
    let set = world.sets.get(name)?;
    let uid = meta::identity(&set.metadata).1;
    let owned = world.machines.find(OwnedBy::Controller, uid.as_str());
    let orphans = world.machines.find(OwnedBy::Controller, "");
    let machines: Vec<Arc<Machine>> = owned.chain(orphans).cloned().collect();
    let class = set.spec.template.class().and_then(|class| class.name).map(Name::new);
    let readiness = class.as_ref().map(|class| world.readiness(class));
    let refusal = match readiness {
        Some(Readiness::Faulty(fault)) if fault.refuses_machines() => Some(fault.to_string()),
        Some(Readiness::Faulty(_) | Readiness::Unchecked | Readiness::Ready(_)) | None => None,
    };
    // Nobody but a driver that is there can check a class; while it is away, Machines are made and say so.
    let checkable = class
        .as_ref()
        .and_then(|class| world.classes.get(class))
        .and_then(|class| class.driver());
    let checkable = checkable.is_some_and(|driver| matches!(shared.drivers.get(&driver), DriverState::Ready(_)));
    let seen = Observed {
        set,
        machines: &machines,
        exists: &|machine| world.machines.get(&Name::new(machine)).is_some(),
        refusal: refusal.as_deref(),
        class_unchecked: checkable && readiness == Some(&Readiness::Unchecked),
        refused: world.refused.get(name),
        condemned: &world.condemned,
        unanswered: &world.unanswered,
        status_written: world.status_written.get(&Key::Set(name.clone())).copied(),
    };
    let plan = (shared.env.planners.set)(&seen, shared.env.now());
    Some((Arc::clone(set), plan))
}

async fn execute(shared: &Shared, mut set: Arc<MachineSet>, plan: Plan) -> Result<(), StepError> {
    let name = meta::identity(&set.metadata).0;
    for step in plan.steps {
        match step {
            Step::AddFinalizer => set = shared.wrote(shared.write.add_finalizer(&*set, keys::FINALIZER).await?),
            Step::RemoveFinalizer => {
                let left = shared.write.remove_finalizer(&*set, keys::FINALIZER).await?;
                if let Some(left) = shared.released(left) {
                    set = left;
                }
            }
            Step::Adopt(machine, machine_uid) => adopt(shared, &set, &machine, &machine_uid).await?,
            Step::Release(machine, machine_uid) => release(shared, &set, &machine, &machine_uid).await?,
            Step::Reserve { next } => {
                let body = json!({ "status": { "nextMachineNumber": next } });
                set = shared.wrote(shared.write.merge_status(&*set, body).await?);
            }
            Step::Create(bodies) => create(shared, &set, bodies).await?,
            Step::Delete(victims) => delete(shared, &set, victims).await?,
            Step::Bring(machine, body) => bring(shared, &machine, body).await?,
            Step::Record(body) => {
                set = shared.wrote(shared.write.merge_status(&*set, body).await?);
                let now = shared.env.now();
                shared.quietly(|world| world.status_written.insert(Key::Set(name.clone()), now));
            }
        }
    }
    Ok(())
}

/// Creates Machines together; what the API server refuses stops the rest and is told on the set.
async fn create(shared: &Shared, set: &MachineSet, bodies: Vec<Value>) -> Result<(), StepError> {
    let wanted = bodies.len();
    let mut posts = stream::iter(bodies)
        .map(|body| post(shared, body))
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
        let note = format!("Created {made} machines");
        shared.events.publish(set, Severity::Normal, "SuccessfulCreate", &note);
    }
    let name = meta::identity(&set.metadata).0;
    let Some(failure) = failure else {
        shared.quietly(|world| world.refused.remove(&name));
        return Ok(());
    };
    let now = shared.env.now();
    let text = format!("Error creating {} of {wanted} machines: {failure}", wanted - made);
    shared.events.publish(set, Severity::Warning, "FailedCreate", &text);
    shared.quietly(|world| world.refused.insert(name, (text, now)));
    Err(failure.into())
}

/// A name that is taken was taken by an earlier try whose answer was lost; its Machine is read, so that it counts. A try that is given
/// up, as when another one is refused, stays unanswered.
async fn post(shared: &Shared, body: Value) -> Result<(), WriteError> {
    let name = body.pointer("/metadata/name").and_then(Value::as_str);
    let (name, now) = (Name::new(name.unwrap_or_default()), shared.env.now());
    let earlier = shared.quietly(|world| world.sends(&name, now));
    let answer = shared.write.create::<Machine>(body).await;
    if !matches!(answer, Err(WriteError::Unreachable { .. })) {
        shared.quietly(|world| world.answered(&name, earlier));
    }
    match answer {
        Ok(machine) => {
            shared.wrote(machine);
            Ok(())
        }
        Err(WriteError::AlreadyExists) => {
            if let Ok(machine) = shared.write.read::<Machine>(&name).await {
                shared.wrote(machine);
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn delete(shared: &Shared, set: &MachineSet, victims: Vec<(Name, Uid)>) -> Result<(), StepError> {
    let asked = victims.len();
    let one = |(name, uid): (Name, Uid)| async move {
        match shared.write.delete::<Machine>(&name, &uid).await {
            Ok(Some(left)) => drop(shared.wrote(left)),
            Ok(None) => shared.change(|world, uptime| world.ended::<Machine>(&name, &uid, uptime)),
            Err(WriteError::Gone) => {}
            Err(error) => {
                if matches!(error, WriteError::Unreachable { .. }) {
                    shared.quietly(|world| world.condemned.insert(uid));
                }
                return Err(error);
            }
        }
        Ok(())
    };
    let results: Vec<Result<(), WriteError>> = stream::iter(victims)
        .map(one)
        .buffer_unordered(TOGETHER)
        .collect()
        .await;
    let failures: Vec<WriteError> = results.into_iter().filter_map(Result::err).collect();
    let done = asked - failures.len();
    if done > 0 {
        shared.events.publish(
            set,
            Severity::Normal,
            "SuccessfulDelete",
            &format!("Deleted {done} machines"),
        );
    }
    let Some(failure) = failures.into_iter().next() else {
        return Ok(());
    };
    shared.events.publish(
        set,
        Severity::Warning,
        "FailedDelete",
        &format!("Error deleting machines: {failure}"),
    );
    Err(failure.into())
}

/// The Machine of that name and uid as the store knows it; the write is guarded by its version.
fn known(shared: &Shared, name: &Name, uid: &Uid) -> Result<Arc<Machine>, StepError> {
    let machine = shared.look(|world| world.machines.get(name).cloned());
    machine
        .filter(|machine| machine.uid().as_ref() == Some(uid))
        .ok_or(StepError::Void)
}

/// Adds the set as controller before everybody else's references, which stay.
async fn adopt(shared: &Shared, set: &MachineSet, name: &Name, uid: &Uid) -> Result<(), StepError> {
    // The decision was made on a cached set: an adoption by one that is gone would orphan the Machine for good.
    let live = shared
        .write
        .read::<MachineSet>(&meta::identity(&set.metadata).0)
        .await?;
    if live.metadata.uid != set.metadata.uid || meta::is_deleting(&live.metadata) {
        return Err(StepError::Void);
    }
    let machine = known(shared, name, uid)?;
    let mut owners = vec![owner_reference(set)];
    owners.extend(
        machine
            .metadata
            .owner_references
            .iter()
            .flatten()
            .map(|owner| json!(owner)),
    );
    let body = json!({ "metadata": { "ownerReferences": owners } });
    shared.wrote(shared.write.merge(&*machine, body).await?);
    Ok(())
}

async fn release(shared: &Shared, set: &MachineSet, name: &Name, uid: &Uid) -> Result<(), StepError> {
    let machine = known(shared, name, uid)?;
    let others = machine.metadata.owner_references.iter().flatten();
    let others: Vec<Value> = others
        .filter(|owner| Some(&owner.uid) != set.metadata.uid.as_ref())
        .map(|owner| json!(owner))
        .collect();
    let body = json!({ "metadata": { "ownerReferences": others } });
    shared.wrote(shared.write.merge(&*machine, body).await?);
    Ok(())
}

async fn bring(shared: &Shared, name: &Name, body: Value) -> Result<(), StepError> {
    let machine = shared.look(|world| world.machines.get(name).cloned());
    let machine = machine.ok_or(StepError::Void)?;
    shared.wrote(shared.write.merge(&*machine, body).await?);
    Ok(())
}
