//! Observe and execute for one Machine. Every branch is a step of the plan; nothing is chosen here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millwright_core::api::{Machine, Phase, keys, meta};
use millwright_core::class::Readiness;
use millwright_core::driver::DriverInfo;
use millwright_core::ids::{Name, NodeName, ProviderId, Uid};
use millwright_core::kin;
use millwright_core::machine::{self, Call, Calls, ClassView, DriverView, Observed, Plan, Step, Why};
use millwright_core::world::World;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::dispatch::Pass;
use super::shared::Shared;
use super::step::StepError;
use super::{token, vm};
use crate::driver::DriverState;
use crate::kube::error::WriteError;
use crate::kube::events::Severity;

/// One pass over a Machine.
pub async fn work(shared: &Arc<Shared>, name: &Name) -> Pass {
    let Some((machine, plan)) = shared.look(|world| observe(shared, world, name)) else {
        return Pass::gone();
    };
    let why = plan.why.label();
    let wake = plan.wake.map(|at| shared.uptime_of(at));
    if !plan.steps.is_empty() {
        tracing::debug!(machine = %name, why = %plan.why, steps = plan.steps.len(), "plan");
    }
    let done = execute(shared, machine, plan).await;
    Pass::ended("machine", name, why, done.map(|()| wake))
}

/// Gathers what the plan may read, and plans.
fn observe(shared: &Shared, world: &World, name: &Name) -> Option<(Arc<Machine>, Plan)> {
    let machine = world.machines.get(name)?;
    let uid = meta::identity(&machine.metadata).1;
    let class_name = machine.class_name().map(Name::new);
    let class = class_name.as_ref().and_then(|class| world.classes.get(class));
    let class_view = match (&class_name, class) {
        (None, _) => ClassView::Unnamed,
        (Some(name), None) => ClassView::Missing(name.as_str()),
        (Some(name), Some(class)) => ClassView::Present {
            name: name.as_str(),
            guarded: meta::has_finalizer(&class.metadata, keys::FINALIZER),
            readiness: world.readiness(name),
        },
    };
    let driver = class.and_then(|class| class.driver());
    let state = driver.as_ref().map(|driver| shared.drivers.get(driver));
    let info: DriverInfo;
    let driver_name = driver.as_ref().map_or("", |driver| driver.as_str());
    let driver_view = match &state {
        None => DriverView::Unnamed {
            all_ready: all_ready(shared),
        },
        Some(DriverState::Missing { is_certain, .. }) => DriverView::Missing {
            name: driver_name,
            is_certain: *is_certain,
        },
        Some(DriverState::Away { why }) => DriverView::Away { name: driver_name, why },
        Some(DriverState::Ready(driver)) => {
            info = driver.info().clone();
            DriverView::Ready(&info)
        }
    };
    let nothing = Calls::default();
    let seen = Observed {
        machine,
        class: class_view,
        driver: driver_view,
        node: kin::node_of(world, machine),
        calls: world.calls.get(&uid).unwrap_or(&nothing),
        settings: &shared.settings,
    };
    let plan = (shared.env.planners.machine)(&seen, shared.env.now());
    Some((Arc::clone(machine), plan))
}

/// Whether every driver that this manager was given can be asked.
fn all_ready(shared: &Shared) -> bool {
    let states = shared.drivers.states();
    !states.is_empty() && states.iter().all(|state| state.is_ready())
}

/// Runs the steps in order and stops at the first that fails, because each was planned on the assumption that those
/// before it took effect.
async fn execute(shared: &Arc<Shared>, mut machine: Arc<Machine>, plan: Plan) -> Result<(), StepError> {
    let mut token: Option<Zeroizing<String>> = None;
    for step in plan.steps {
        tracing::debug!(machine = meta::name(&machine.metadata), ?step, "step");
        match step {
            Step::AddFinalizer => {
                machine = shared.wrote(shared.write.add_finalizer(&*machine, keys::FINALIZER).await?);
            }
            Step::Confirm => machine = confirm(shared, &machine).await?,
            Step::Record(change) => {
                let written = shared.write.merge_status(&*machine, change.patch()).await?;
                machine = shared.wrote(written);
                tell(shared, &machine, &change, &plan.why);
            }
            Step::EnsureToken => token = Some(token::ensure(shared, &machine).await?),
            Step::Call(call) => vm::start(shared, &machine, call, token.take()),
            Step::Identify { provider_id, node } => {
                let body = identity(&machine, provider_id, node);
                machine = shared.wrote(shared.write.merge(&*machine, body).await?);
            }
            Step::GuardNode(node) => guard_node(shared, &machine, &node).await?,
            Step::DropToken => token::remove(shared, &machine).await?,
            Step::DeleteMachine => delete(shared, &machine).await?,
            Step::RemoveNode(node) => remove_node(shared, &machine, &node).await?,
            Step::RemoveFinalizer => {
                let left = shared.write.remove_finalizer(&*machine, keys::FINALIZER).await?;
                if let Some(left) = shared.released(left) {
                    machine = left;
                }
            }
            Step::StepDown => {
                tracing::error!("a driver has heard a newer leader; this manager gives up its lease and ends");
                shared.deposed.store(true, Ordering::Release);
                shared.stop.cancel();
                return Err(StepError::Void);
            }
        }
    }
    Ok(())
}

/// The live read before a CreateMachine that no write of ours precedes.
async fn confirm(shared: &Shared, machine: &Machine) -> Result<Arc<Machine>, StepError> {
    let (name, uid) = meta::identity(&machine.metadata);
    let live = shared.write.read::<Machine>(&name).await?;
    let live = shared.wrote(live);
    if meta::identity(&live.metadata).1 != uid || meta::is_deleting(&live.metadata) {
        return Err(StepError::Void);
    }
    Ok(live)
}

/// An event for what a person should know; the status alone for the rest.
fn tell(shared: &Shared, machine: &Machine, change: &machine::StatusChange, why: &Why) {
    if change.state == millwright_core::api::OperationState::Failed {
        shared
            .events
            .publish(machine, Severity::Warning, &why.label(), &change.description);
    }
    // Said once in a Machine's life, where it begins; nothing waits for a repair.
    if change.phase != Phase::Pending || change.since != change.at {
        return;
    }
    let malformed = machine.malformed_durations();
    if malformed.is_empty() {
        return;
    }
    let text = format!("Ignored, the default holds: {}", malformed.join("; "));
    let name = meta::name(&machine.metadata);
    tracing::warn!(machine = name, text, "malformed durations");
    shared
        .events
        .publish(machine, Severity::Warning, "InvalidDuration", &text);
}

fn identity(machine: &Machine, provider_id: Option<ProviderId>, node: Option<NodeName>) -> Value {
    let mut metadata = Map::new();
    if let Some(node) = node {
        metadata.insert("labels".to_owned(), json!({ keys::NODE: node.as_str() }));
    }
    if meta::annotation(&machine.metadata, keys::PRIORITY)
        .unwrap_or_default()
        .is_empty()
    {
        metadata.insert(
            "annotations".to_owned(),
            json!({ keys::PRIORITY: keys::PRIORITY_DEFAULT }),
        );
    }
    let mut body = json!({ "metadata": metadata });
    if let (Some(provider_id), Some(fields)) = (provider_id, body.as_object_mut()) {
        fields.insert("spec".to_owned(), json!({ "providerID": provider_id.as_str() }));
    }
    body
}

async fn guard_node(shared: &Shared, machine: &Machine, node: &NodeName) -> Result<(), StepError> {
    let Some(known) = shared.look(|world| world.nodes.get(&Name::new(node.as_str())).cloned()) else {
        return Ok(());
    };
    let name = meta::identity(&machine.metadata).0;
    shared.wrote(shared.write.guard_node(&known, &name).await?);
    Ok(())
}

async fn delete(shared: &Shared, machine: &Machine) -> Result<(), StepError> {
    let (name, uid) = meta::identity(&machine.metadata);
    if let Some(left) = shared.write.delete::<Machine>(&name, &uid).await? {
        shared.wrote(left);
    }
    Ok(())
}

/// Deletes the Machine's Node. The store may lag behind a node that joined at the last moment, so a Node that it does
/// not show is asked for by name.
async fn remove_node(shared: &Shared, machine: &Machine, name: &NodeName) -> Result<(), StepError> {
    let known = shared.look(|world| world.nodes.get(&Name::new(name.as_str())).cloned());
    let node = match known {
        Some(node) => node,
        None => match shared.write.read_node(name).await {
            Ok(node) => Arc::new(node),
            Err(crate::kube::error::ReadError::Gone) => return Ok(()),
            Err(error) => return Err(error.into()),
        },
    };
    if !shared.look(|world| kin::goes_with(world, machine, &node)) {
        return Ok(());
    }
    let uid = Uid::new(node.metadata.uid.clone().unwrap_or_default());
    let left = if meta::is_deleting(&node.metadata) {
        Some(node)
    } else {
        ended(shared.write.delete_node(name, &uid).await)?.map(|left| shared.wrote(left))
    };
    if let Some(left) = left.filter(|left| meta::has_finalizer(&left.metadata, keys::NODE_FINALIZER)) {
        ended(shared.write.release_node(&left).await.map(Some))?;
    }
    shared.change(|world, uptime| {
        world.ended::<k8s_openapi::api::core::v1::Node>(&Name::new(name.as_str()), &uid, uptime)
    });
    Ok(())
}

/// An object that is gone already is what a deletion wants.
fn ended<T>(result: Result<Option<T>, WriteError>) -> Result<Option<T>, WriteError> {
    match result {
        Err(WriteError::Gone) => Ok(None),
        other => other,
    }
}

/// What a class is known for, cloned out of the world.
pub fn readiness(shared: &Shared, class: &Name) -> Readiness {
    shared.look(|world| world.readiness(class).clone())
}

/// Which call failed how is known only to this process; a Machine of another uid starts afresh.
pub fn begin(shared: &Shared, uid: &Uid, call: Call) {
    shared.quietly(|world| world.calls.entry(uid.clone()).or_default().begin(call));
}
