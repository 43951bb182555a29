//! Observe and execute for one MachineDeployment. Every branch is a step of the plan; nothing is chosen here.

use std::sync::Arc;

use millwright_core::api::{MachineDeployment, MachineSet, keys, meta};
use millwright_core::deployment::plan::owner_reference;
use millwright_core::deployment::{Observed, Plan, Step};
use millwright_core::ids::{Name, Uid};
use millwright_core::kinds::OwnedBy;
use millwright_core::wake::Key;
use millwright_core::world::World;
use serde_json::{Value, json};

use super::dispatch::Pass;
use super::shared::Shared;
use super::step::StepError;
use crate::kube::error::WriteError;
use crate::kube::events::Severity;

/// One pass over a deployment.
pub async fn work(shared: &Arc<Shared>, name: &Name) -> Pass {
    let Some((deployment, plan)) = shared.look(|world| observe(shared, world, name)) else {
        return Pass::gone();
    };
    let (why, wake) = (plan.why.label().to_owned(), plan.wake.map(|at| shared.uptime_of(at)));
    if !plan.steps.is_empty() {
        tracing::debug!(deployment = %name, why = %plan.why, steps = plan.steps.len(), "plan");
    }
    let done = execute(shared, deployment, plan).await;
    Pass::ended("deployment", name, why, done.map(|()| wake))
}

fn observe(shared: &Shared, world: &World, name: &Name) -> Option<(Arc<MachineDeployment>, Plan)> {
    let deployment = world.deployments.get(name)?;
    let uid = meta::identity(&deployment.metadata).1;
    let owned = world.sets.find(OwnedBy::Controller, uid.as_str());
    let orphans = world.sets.find(OwnedBy::Controller, "");
    let sets: Vec<Arc<MachineSet>> = owned.chain(orphans).cloned().collect();
    let seen = Observed {
        deployment,
        sets: &sets,
        exists: &|set| world.sets.get(&Name::new(set)).is_some(),
        status_written: world.status_written.get(&Key::Deployment(name.clone())).copied(),
    };
    let plan = (shared.env.planners.deployment)(&seen, shared.env.now());
    Some((Arc::clone(deployment), plan))
}

async fn execute(shared: &Shared, mut deployment: Arc<MachineDeployment>, plan: Plan) -> Result<(), StepError> {
    let name = meta::identity(&deployment.metadata).0;
    for step in plan.steps {
        match step {
            Step::AddFinalizer => {
                deployment = shared.wrote(shared.write.add_finalizer(&*deployment, keys::FINALIZER).await?)
            }
            Step::RemoveFinalizer => {
                let left = shared.write.remove_finalizer(&*deployment, keys::FINALIZER).await?;
                if let Some(left) = shared.released(left) {
                    deployment = left;
                }
            }
            Step::Adopt(set, set_uid) => adopt(shared, &deployment, &set, &set_uid).await?,
            Step::Release(set, set_uid) => release(shared, &deployment, &set, &set_uid).await?,
            Step::Create(body) => create(shared, &deployment, body).await?,
            Step::Change(set, body) => change(shared, &deployment, &set, body).await?,
            Step::Delete(sets) => delete(shared, sets).await?,
            Step::Number(revision) => {
                let body = json!({ "metadata": { "annotations": { keys::REVISION: revision.to_string() } } });
                deployment = shared.wrote(shared.write.merge(&*deployment, body).await?);
            }
            Step::Record(body) => {
                deployment = shared.wrote(shared.write.merge_status(&*deployment, body).await?);
                let now = shared.env.now();
                shared.quietly(|world| world.status_written.insert(Key::Deployment(name.clone()), now));
            }
        }
    }
    Ok(())
}

/// A name that is taken is the set of an earlier try whose answer was lost, or another's; it is read, so that the next
/// plan knows which.
async fn create(shared: &Shared, deployment: &MachineDeployment, body: Value) -> Result<(), StepError> {
    let name = body
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let size = body
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    match shared.write.create::<MachineSet>(body).await {
        Ok(set) => {
            shared.wrote(set);
            if size > 0 {
                let note = format!("Scaled up machine set {name} to {size}");
                shared
                    .events
                    .publish(deployment, Severity::Normal, "ScalingMachineSet", &note);
            }
            Ok(())
        }
        Err(WriteError::AlreadyExists) => {
            shared.wrote(shared.write.read::<MachineSet>(&Name::new(name)).await?);
            Ok(())
        }
        Err(error) => {
            let note = format!("Failed to create new machine set {name}: {error}");
            shared
                .events
                .publish(deployment, Severity::Warning, keys::REASON_SET_CREATE_FAILED, &note);
            Err(error.into())
        }
    }
}

fn known(shared: &Shared, name: &Name) -> Result<Arc<MachineSet>, StepError> {
    let set = shared.look(|world| world.sets.get(name).cloned());
    set.ok_or(StepError::Void)
}

async fn change(shared: &Shared, deployment: &MachineDeployment, name: &Name, body: Value) -> Result<(), StepError> {
    let set = known(shared, name)?;
    let size = body.pointer("/spec/replicas").and_then(Value::as_i64);
    let written = shared.wrote(shared.write.merge(&*set, body).await?);
    if let Some(size) = size {
        let direction = if size > i64::from(set.spec.replicas) {
            "up"
        } else {
            "down"
        };
        let note = format!(
            "Scaled {direction} machine set {} to {size}",
            meta::name(&written.metadata)
        );
        shared
            .events
            .publish(deployment, Severity::Normal, "ScalingMachineSet", &note);
    }
    Ok(())
}

async fn delete(shared: &Shared, sets: Vec<(Name, Uid)>) -> Result<(), StepError> {
    for (name, uid) in sets {
        match shared.write.delete::<MachineSet>(&name, &uid).await {
            Ok(Some(left)) => drop(shared.wrote(left)),
            Ok(None) => shared.change(|world, uptime| world.ended::<MachineSet>(&name, &uid, uptime)),
            Err(WriteError::Gone) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Adds the deployment as controller before everybody else's references, which stay.
async fn adopt(shared: &Shared, deployment: &MachineDeployment, name: &Name, uid: &Uid) -> Result<(), StepError> {
    let live = shared
        .write
        .read::<MachineDeployment>(&meta::identity(&deployment.metadata).0)
        .await?;
    let set = known(shared, name)?;
    let wrong = live.metadata.uid != deployment.metadata.uid || meta::is_deleting(&live.metadata);
    if wrong || meta::identity(&set.metadata).1 != *uid {
        return Err(StepError::Void);
    }
    let mut owners = vec![owner_reference(deployment)];
    owners.extend(set.metadata.owner_references.iter().flatten().map(|owner| json!(owner)));
    let body = json!({ "metadata": { "ownerReferences": owners } });
    shared.wrote(shared.write.merge(&*set, body).await?);
    Ok(())
}

async fn release(shared: &Shared, deployment: &MachineDeployment, name: &Name, uid: &Uid) -> Result<(), StepError> {
    let set = known(shared, name)?;
    if meta::identity(&set.metadata).1 != *uid {
        return Err(StepError::Void);
    }
    let others = set.metadata.owner_references.iter().flatten();
    let others: Vec<Value> = others
        .filter(|owner| Some(&owner.uid) != deployment.metadata.uid.as_ref())
        .map(|owner| json!(owner))
        .collect();
    let body = json!({ "metadata": { "ownerReferences": others } });
    shared.wrote(shared.write.merge(&*set, body).await?);
    Ok(())
}
