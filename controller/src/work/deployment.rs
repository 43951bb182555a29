//! Observe and execute for one MachineDeployment. Every branch is a step of the plan; nothing is chosen here.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use millwright_core::api::{MachineDeployment, MachineSet, keys, meta};
use millwright_core::deployment::change::{NewSet, SetChange};
use millwright_core::deployment::in_place::Transfer;
use millwright_core::deployment::observed::Mark;
use millwright_core::deployment::status::not_running_at;
use millwright_core::deployment::{Step, Why, look};
use millwright_core::ids::{Name, Uid};
use millwright_core::ledger::OwnerNotes;
use millwright_core::machine::node_patch::NodePatch;
use millwright_core::refusal::Refusal;
use millwright_core::set::freeze;
use millwright_core::wake::{Key, Wake};
use millwright_core::world::World;
use serde_json::json;

use super::children;
use super::pass::{Planned, Reconciler, Run};
use super::set::{asking, carry_out};
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
    type Carry = Sets;

    fn plan(shared: &Shared, world: &World, name: &Name, now: Timestamp) -> Option<Planned<Self>> {
        let deployment = world.deployments.get(name)?;
        let planners = &shared.env.planners;
        let set_exists = |set: &str| world.sets.get(&Name::new(set)).is_some();
        let (plan, broken) = asking(shared, world, |asked| {
            look(asked, deployment, &set_exists, planners.set, |seen| {
                let plan = (planners.deployment)(seen, now);
                let broken = planners.broken(|laws| (laws.deployment)(seen, &plan, now));
                (plan, broken)
            })
        });
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
            Step::Create(made) => create(shared, deployment, &made).await?,
            Step::Change(made) => {
                change(shared, deployment, &made).await?;
                if made.replicas.is_some() {
                    let now = shared.env.now();
                    note(shared, deployment, |notes| notes.numbers_written = Some(now));
                }
            }
            Step::Mark(marks) => {
                let one = |mark: Mark| async move { children::merge(shared, &*mark.machine, mark.patch()).await };
                children::each(marks, one).await?;
            }
            Step::Thaw => *deployment = shared.wrote(shared.write.merge(&**deployment, freeze::thawed()).await?),
            Step::Prune(left) => {
                let body = json!({ "metadata": { "annotations": { keys::TRIGGER_DELETION: left } } });
                *deployment = shared.wrote(shared.write.merge(&**deployment, body).await?);
            }
            Step::RollBack(made) => {
                *deployment = shared.wrote(shared.write.merge(&**deployment, made.patch).await?);
                let (is_warning, reason, text) = made.outcome.event(meta::name(&deployment.metadata));
                let severity = if is_warning {
                    Severity::Warning
                } else {
                    Severity::Normal
                };
                shared.events.publish(&**deployment, severity, reason, &text);
            }
            Step::Of(set, step) => {
                let uid = meta::identity(&set.metadata).1;
                let set = run.carry.0.entry(uid).or_insert(set);
                carry_out(shared, set, step).await?;
            }
            Step::Transfer(moved) => {
                let one =
                    |moved: Transfer| async move { children::merge(shared, &*moved.machine, moved.patch()).await };
                children::each(moved, one).await?;
            }
            Step::Select(patches) => {
                let one = |patch: NodePatch| async move {
                    let selected = shared.write.node(&patch.node, patch.body()).await?;
                    shared.wrote(selected);
                    Ok(())
                };
                children::each(patches, one).await?;
            }
            Step::Delete(sets) => {
                let one = |set: Arc<MachineSet>| async move { delete(shared, &set).await };
                children::each(sets, one).await?;
            }
            Step::Number(revision) => {
                let body = json!({ "metadata": { "annotations": { keys::REVISION: revision.to_string() } } });
                *deployment = shared.wrote(shared.write.merge(&**deployment, body).await?);
            }
            Step::Record(change) => {
                let news = not_running_at(deployment, &change);
                *deployment = shared.wrote(shared.write.merge_status(&**deployment, change.patch()).await?);
                let now = shared.env.now();
                note(shared, deployment, |notes| notes.status_written = Some(now));
                for (reason, text) in news {
                    shared.events.publish(&**deployment, Severity::Warning, &reason, &text);
                }
            }
        }
        Ok(())
    }
}

/// Deletes a set as it was seen: one that somebody has changed since is looked at again.
async fn delete(shared: &Shared, set: &MachineSet) -> Result<(), WriteError> {
    let (name, uid) = meta::identity(&set.metadata);
    children::delete::<MachineSet>(shared, &name, &uid, set.metadata.resource_version.clone()).await
}

/// The sets as our last writes left them: each write is guarded by the version of the one before.
#[derive(Default)]
pub(super) struct Sets(BTreeMap<Uid, Arc<MachineSet>>);

fn note(shared: &Shared, deployment: &MachineDeployment, note: impl FnOnce(&mut OwnerNotes)) {
    let (name, uid) = meta::identity(&deployment.metadata);
    shared.quietly(|world| world.note_owner::<MachineDeployment>(&name, &uid, note));
}

/// A name that is taken is the set of an earlier try whose answer was lost, or another's; it is read, so that the next plan, which
/// follows at once, knows which.
async fn create(shared: &Shared, deployment: &MachineDeployment, made: &NewSet) -> Result<(), StepError> {
    let NewSet { name, replicas, .. } = made;
    let now = shared.env.now();
    let mut earlier = None;
    note(shared, deployment, |notes| {
        earlier = notes.sends_set(name, *replicas, now)
    });
    let answered = |notes: &mut OwnerNotes| {
        notes.unanswered_sets.remove(name);
    };
    match shared.write.create::<MachineSet>(made.body()).await {
        Ok(set) => {
            shared.wrote(set);
            note(shared, deployment, |notes| notes.create_refused = None);
            note(shared, deployment, answered);
            if *replicas > 0 {
                let text = format!("Scaled up machine set {name} to {replicas}");
                shared
                    .events
                    .publish(deployment, Severity::Normal, "ScalingMachineSet", &text);
            }
            Ok(())
        }
        Err(WriteError::AlreadyExists) => {
            // Until it could be read, it counts by what was asked for.
            shared.wrote(shared.write.read::<MachineSet>(name).await?);
            note(shared, deployment, answered);
            let own = Wake::event(Key::Deployment(meta::identity(&deployment.metadata).0));
            shared.change(|world, uptime| world.wake([own], uptime));
            Ok(())
        }
        Err(error) => {
            let text = format!("Failed to create new machine set {name}: {error}");
            shared
                .events
                .publish(deployment, Severity::Warning, keys::REASON_SET_CREATE_FAILED, &text);
            if !matches!(error, WriteError::Unreachable { .. }) {
                note(shared, deployment, |notes| notes.refused_set(name, earlier));
            }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;
    use millwright_core::change::Change;
    use serde_json::Value;

    use super::*;
    use crate::work::pass::pass;
    use crate::work::scripted::{Answer, Scripted, failure};

    fn deployment() -> Value {
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "d", "namespace": "default", "uid": "uid-d", "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [keys::FINALIZER]},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"pool": "workers"}},
                "template": {
                    "metadata": {"labels": {"pool": "workers"}},
                    "spec": {"class": {"kind": "MachineClass", "name": "small"}},
                },
            },
        })
    }

    /// Another owner's set has whatever name is asked for first.
    fn answer(method: &Method, path: &str, body: &Value) -> Answer {
        match *method {
            Method::POST => failure(409, "AlreadyExists"),
            Method::GET => {
                let owner = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "uid-x", "controller": true}]);
                let name = path.rsplit('/').next().unwrap();
                let metadata = json!({"name": name, "namespace": "default", "uid": "uid-s", "resourceVersion": "1",
                    "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owner});
                (200, json!({"metadata": metadata, "spec": deployment()["spec"]}))
            }
            _ => {
                let mut object = deployment();
                object["status"] = body["status"].clone();
                (200, object)
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_of_another_owner_under_the_name_lets_the_deployment_take_the_next_name_at_once() {
        let (name, scripted) = (Name::new("d"), Scripted::new(answer));
        let shared = &scripted.shared;
        let stored: MachineDeployment = serde_json::from_value(deployment()).unwrap();
        shared.change(|world, uptime| world.observe(Change::Applied(stored), uptime));
        let take = |after: Duration| shared.quietly(|world| world.queue.take(shared.env.uptime() + after));
        let key = take(Duration::ZERO).expect("a deployment that is new is looked at");
        let ended = pass::<Deployments>(shared, &name).await;
        assert_eq!((ended.why.as_str(), ended.result), ("NoSet", "done"));
        let taken = shared.look(|world| world.sets.iter().map(|set| meta::name(&set.metadata).to_owned()).next());
        let taken = taken.expect("it was read");

        shared.change(|world, uptime| world.queue.give_back(key.clone(), ended.verdict, uptime));
        let due: Vec<Key> = std::iter::from_fn(|| take(Duration::from_secs(1))).collect();
        assert!(
            due.contains(&key),
            "the set is another's and wakes only its owner: {due:?}"
        );
        let seen = shared.look(|world| Deployments::plan(shared, world, &name, shared.env.now()));
        let steps = seen.expect("it is there").plan.steps;
        let next = steps.iter().find_map(|step| match step {
            Step::Create(made) => Some(made.name.to_string()),
            _ => None,
        });
        assert!(next.is_some_and(|next| next != taken), "{steps:?}");
    }
}
