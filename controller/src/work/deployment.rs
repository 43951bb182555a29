//! Observe and execute for one MachineDeployment. Every branch is a step of the plan; nothing is chosen here.

use std::sync::Arc;

use jiff::Timestamp;
use millwright_core::api::{MachineDeployment, MachineSet, keys, meta};
use millwright_core::check;
use millwright_core::deployment::change::{NewSet, SetChange};
use millwright_core::deployment::{Observed, Step, Why};
use millwright_core::ids::Name;
use millwright_core::kinds::OwnedBy;
use millwright_core::ledger::{OwnerNotes, Refusal};
use millwright_core::wake::{Key, Wake};
use millwright_core::world::World;
use serde_json::json;

use super::children;
use super::pass::{Planned, Reconciler, Run};
use super::shared::Shared;
use super::step::StepError;
use crate::kube::error::WriteError;
use crate::kube::events::Severity;

/// MachineDeployments.
pub(super) struct Deployments;

impl Reconciler for Deployments {
    const KIND: &'static str = "deployment";
    type Object = MachineDeployment;
    type Step = Step;
    type Why = Why;
    type Carry = ();

    fn plan(shared: &Shared, world: &World, name: &Name, now: Timestamp) -> Option<Planned<Self>> {
        let deployment = world.deployments.get(name)?;
        let uid = meta::identity(&deployment.metadata).1;
        let owned = world.sets.find(OwnedBy::Controller, uid.as_str());
        let orphans = world.sets.find(OwnedBy::Controller, "");
        let sets: Vec<Arc<MachineSet>> = owned.chain(orphans).cloned().collect();
        let nothing = OwnerNotes::default();
        let seen = Observed {
            deployment,
            sets: &sets,
            exists: &|set| world.sets.get(&Name::new(set)).is_some(),
            notes: world.ledger.owners.get(&uid).unwrap_or(&nothing),
        };
        let plan = (shared.env.planners.deployment)(&seen, now);
        let broken = shared.env.planners.checked(|| check::deployment(&seen, &plan, now));
        let object = Arc::clone(deployment);
        Some(Planned { object, plan, broken })
    }

    async fn step(shared: &Arc<Shared>, run: &mut Run<Self>, step: Step, _: &Why) -> Result<(), StepError> {
        let deployment = &mut run.object;
        match step {
            Step::AddFinalizer => {
                *deployment = shared.wrote(shared.write.add_finalizer(&**deployment, keys::FINALIZER).await?);
            }
            Step::RemoveFinalizer => {
                let left = shared.write.remove_finalizer(&**deployment, keys::FINALIZER).await?;
                if let Some(left) = shared.released(left) {
                    *deployment = left;
                }
            }
            Step::Adopt(sets) => children::adopt(shared, &**deployment, sets).await?,
            Step::Release(sets) => children::release(shared, &**deployment, sets).await?,
            Step::Create(made) => create(shared, deployment, &made).await?,
            Step::Change(made) => change(shared, deployment, &made).await?,
            Step::Delete(sets) => {
                let one = |(name, uid)| async move { children::delete::<MachineSet>(shared, &name, &uid).await };
                children::each(sets, one).await?;
            }
            Step::Number(revision) => {
                let body = json!({ "metadata": { "annotations": { keys::REVISION: revision.to_string() } } });
                *deployment = shared.wrote(shared.write.merge(&**deployment, body).await?);
            }
            Step::Record(status) => {
                *deployment = shared.wrote(shared.write.merge_status(&**deployment, status.into_patch()).await?);
                let now = shared.env.now();
                note(shared, deployment, |notes| notes.status_written = Some(now));
            }
        }
        Ok(())
    }
}

fn note(shared: &Shared, deployment: &MachineDeployment, note: impl FnOnce(&mut OwnerNotes)) {
    let (name, uid) = meta::identity(&deployment.metadata);
    shared.quietly(|world| world.note_owner::<MachineDeployment>(&name, &uid, note));
}

/// A name that is taken is the set of an earlier try whose answer was lost, or another's; it is read, so that the next plan, which
/// follows at once, knows which.
async fn create(shared: &Shared, deployment: &MachineDeployment, made: &NewSet) -> Result<(), StepError> {
    let NewSet { name, replicas, .. } = made;
    match shared.write.create::<MachineSet>(made.body()).await {
        Ok(set) => {
            shared.wrote(set);
            note(shared, deployment, |notes| notes.create_refused = None);
            if *replicas > 0 {
                let text = format!("Scaled up machine set {name} to {replicas}");
                shared
                    .events
                    .publish(deployment, Severity::Normal, "ScalingMachineSet", &text);
            }
            Ok(())
        }
        Err(WriteError::AlreadyExists) => {
            shared.wrote(shared.write.read::<MachineSet>(name).await?);
            let own = Wake::event(Key::Deployment(meta::identity(&deployment.metadata).0));
            shared.change(|world, uptime| world.wake([own], uptime));
            Ok(())
        }
        Err(error) => {
            let text = format!("Failed to create new machine set {name}: {error}");
            shared
                .events
                .publish(deployment, Severity::Warning, keys::REASON_SET_CREATE_FAILED, &text);
            let now = shared.env.now();
            note(shared, deployment, |notes| {
                notes.create_refused = Some(Refusal::after(notes.create_refused.as_ref(), text, now));
            });
            Err(error.into())
        }
    }
}

async fn change(shared: &Shared, deployment: &MachineDeployment, made: &SetChange) -> Result<(), StepError> {
    children::merge(shared, &*made.set, made.patch()).await?;
    if let Some(size) = made.replicas {
        let direction = match size > made.set.spec.replicas {
            true => "up",
            false => "down",
        };
        let name = meta::name(&made.set.metadata);
        let text = format!("Scaled {direction} machine set {name} to {size}");
        shared
            .events
            .publish(deployment, Severity::Normal, "ScalingMachineSet", &text);
    }
    Ok(())
}
