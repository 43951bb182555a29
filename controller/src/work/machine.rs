//! Observe and execute for one Machine. Every branch is a step of the plan; nothing is chosen here.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, Phase, keys, meta};
use millwright_core::circuit_breaker::Operation;
use millwright_core::class::Readiness;
use millwright_core::driver::{Call, DriverInfo, Reaction};
use millwright_core::ids::{DriverName, Name, NodeName, ProviderId, Uid};
use millwright_core::kin;
use millwright_core::ledger::Calls;
use millwright_core::machine::life::{self, EventKind};
use millwright_core::machine::node_patch::NodePatch;
use millwright_core::machine::{self, leave, node, preserve};
use millwright_core::machine::{DriverView, Observed, StatusChange, Step, Why};
use millwright_core::world::World;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::pass::{Planned, Reconciler, Run};
use super::shared::Shared;
use super::step::StepError;
use super::{leftover, pods, token, vm};
use crate::driver::DriverState;
use crate::kube::error::{ReadError, WriteError};
use crate::kube::events::Severity;
use crate::telemetry::original::Moment;

/// Machines.
pub(super) struct Machines;

impl Reconciler for Machines {
    const KIND: &'static str = "machine";
    type Object = Machine;
    type Step = Step;
    type Why = Why;
    /// The bootstrap token, for the call that follows.
    type Carry = Option<Zeroizing<String>>;

    fn plan(shared: &Shared, world: &World, name: &Name, now: Timestamp) -> Option<Planned<Self>> {
        let machine = world.machines.get(name)?;
        let (plan, broken) = look_at(shared, world, machine, |seen| {
            let plan = (shared.env.planners.machine)(seen, now);
            let broken = shared.env.planners.broken(|laws| (laws.machine)(seen, &plan, now));
            (plan, broken)
        });
        let object = Arc::clone(machine);
        Some(Planned { object, plan, broken })
    }

    async fn step(shared: &Arc<Shared>, run: &mut Run<Self>, step: Step, why: &Why) -> Result<(), StepError> {
        let before = Arc::clone(&run.object);
        let event = life::event(&before, &step, why, shared.env.wall());
        let moment = Moment::of(&before, &step, why, shared.env.now());
        carry_out(shared, run, step).await?;
        if let Some(moment) = moment {
            shared.metrics.original.happened.note(&before, moment);
        }
        if let Some(event) = event {
            let severity = match event.kind {
                EventKind::Ordinary | EventKind::Better => Severity::Normal,
                EventKind::Worse => Severity::Warning,
            };
            shared.events.life(&*before, severity, &event.reason, &event.note);
        }
        Ok(())
    }
}

/// Shows a Machine with all that is known about it.
fn look_at<T>(shared: &Shared, world: &World, machine: &Machine, ask: impl FnOnce(&Observed<'_>) -> T) -> T {
    let uid = meta::identity(&machine.metadata).1;
    let driver = driver_of(world, machine);
    let state = driver.as_ref().map(|driver| shared.drivers.get(driver));
    let (info, nothing): (DriverInfo, _);
    let driver_name = driver.as_ref().map_or("", |driver| driver.as_str());
    nothing = Calls::default();
    let driver_view = match &state {
        None => DriverView::Unnamed,
        Some(DriverState::Missing { .. }) => DriverView::Missing { name: driver_name },
        Some(DriverState::Away { why }) => DriverView::Away { name: driver_name, why },
        Some(DriverState::Ready(driver)) => {
            info = driver.info().clone();
            DriverView::Ready(&info)
        }
    };
    let asked = machine::view::Asked {
        world,
        driver: driver_view,
        calls: world.ledger.calls.get(&uid).unwrap_or(&nothing),
        sight: shared.sight(driver.as_ref()),
        settings: &shared.settings,
    };
    machine::look(asked, machine, ask)
}

/// Whether its VM may go although the call had to wait: a Node that joined meanwhile is drained first.
pub(super) fn is_due_still(shared: &Shared, name: &Name, uid: &Uid) -> bool {
    let now = shared.env.now();
    shared.look(|world| {
        let known = world.machines.get(name);
        let it = known.filter(|machine| meta::identity(&machine.metadata).1 == *uid);
        it.is_none_or(|machine| look_at(shared, world, machine, |seen| leave::due(seen, now).is_none()))
    })
}

/// The driver of a Machine: the one that was asked for its VM, else the class's.
fn driver_of(world: &World, machine: &Machine) -> Option<DriverName> {
    let asked = machine.creation_request().and_then(|request| request.driver());
    asked.or_else(|| {
        let class = world.classes.get(&Name::new(machine.class_name()?))?;
        world.ledger.driver_of(class)
    })
}

async fn carry_out(shared: &Arc<Shared>, run: &mut Run<Machines>, step: Step) -> Result<(), StepError> {
    let machine = &mut run.object;
    match step {
        Step::AddFinalizer => {
            *machine = shared.wrote(shared.write.merge(&**machine, machine::guarded(machine)).await?);
        }
        Step::Confirm => *machine = confirm(shared, machine).await?,
        Step::SeeNode(node) => see_node(shared, machine, &node).await?,
        Step::Record(change) => {
            let (written, is_whole) = shared.write.record(&**machine, change.patch()).await?;
            if change.creation_request.is_some() {
                let now = shared.env.now();
                shared.quietly(|world| world.recorded_request(machine, now));
            }
            *machine = shared.wrote(written);
            if !is_whole && meta::annotation(&machine.metadata, keys::REQUESTS_RECORDED).is_some() {
                // Nothing on the Machine will say that a VM was asked for.
                let unrecorded = json!({ "metadata": { "annotations": { keys::REQUESTS_RECORDED: null } } });
                *machine = shared.wrote(shared.write.merge(&**machine, unrecorded).await?);
            }
            warn_of_durations(shared, machine, &change);
        }
        Step::EnsureToken => run.carry = Some(token::ensure(shared, machine).await?),
        Step::Probe(operation) => reserve_probe(shared, machine, operation)?,
        Step::Cordon(node) => pods::cordon(shared, machine, &node).await?,
        Step::WatchPods(node) => pods::watch(shared, machine, &node),
        Step::LeavePods => pods::end(shared, &meta::identity(&machine.metadata).1),
        Step::WatchVolumes => pods::watch_volumes(shared),
        Step::Detach(all) => pods::detach(shared, all).await?,
        Step::Evict(all) => pods::evict(shared, machine, all).await?,
        Step::LearnVolumes(all) => pods::learn_volumes(shared, machine, all).await,
        Step::DeletePods { pods, grace } => pods::delete(shared, machine, pods, grace).await?,
        Step::Call(call) => {
            if call == Call::Delete {
                pods::end_watch(shared, &meta::identity(&machine.metadata).1);
            }
            vm::start(shared, machine, call, run.carry.take());
        }
        Step::Identify { provider_id, node } => {
            let body = identity(machine, provider_id, node);
            *machine = shared.wrote(shared.write.merge(&**machine, body).await?);
        }
        Step::WriteNode(patch) => {
            let sent = shared.write.node(&patch.node, patch.body()).await;
            let left = accepted(shared, machine, &patch, sent).map_err(StepError::of_another)?;
            note_write(shared, machine);
            // A Node that waited for our finalizer alone ends with it.
            let _left = shared.released(left);
        }
        Step::WriteCapacity(patch) => {
            let sent = shared.write.node_status(&patch.node, patch.body()).await;
            let left = accepted(shared, machine, &patch, sent).map_err(StepError::of_another)?;
            shared.wrote(left);
        }
        Step::WriteCondition(patch) => {
            let sent = shared.write.node_status(&patch.node, patch.body()).await;
            let left = accepted(shared, machine, &patch, sent).map_err(StepError::of_another)?;
            shared.wrote(left);
        }
        Step::Keep(keeping) => {
            *machine = shared.wrote(shared.write.merge_status(&**machine, keeping.patch()).await?);
        }
        Step::Annotate(changes) => {
            let body = preserve::annotations(&changes);
            *machine = shared.wrote(shared.write.merge(&**machine, body).await?);
        }
        Step::Complain(fault) => note_complaint(shared, machine, fault),
        Step::DropToken => token::remove(shared, machine).await?,
        Step::DeleteMachine => delete(shared, machine).await?,
        Step::RemoveNode(node) => remove_nodes(shared, machine, &node).await?,
        Step::LeaveBehind => leftover::leave(shared, machine).await,
        Step::RemoveFinalizer => {
            let left = shared.write.remove_finalizer(&**machine, keys::FINALIZER).await?;
            if let Some(left) = shared.released(left) {
                *machine = left;
            }
        }
        Step::StepDown => step_down(shared, machine).await?,
    }
    Ok(())
}

/// A driver says that a newer leader has spoken to it about a Machine. If it is wrong, the Machine goes on.
async fn step_down(shared: &Shared, machine: &Machine) -> Result<(), StepError> {
    let (name, uid) = meta::identity(&machine.metadata);
    let driver = shared.look(|world| driver_of(world, machine));
    let driver = match driver.map(|name| shared.drivers.get(&name)) {
        Some(DriverState::Ready(driver)) => Some(driver),
        _ => None,
    };
    let Some(text) = shared.leads_against(driver.as_deref()).await? else {
        return Err(StepError::Void);
    };
    shared
        .events
        .publish(machine, Severity::Warning, "FalseStaleLeader", text);
    shared.change(|world, uptime| {
        if let Some(trouble) = world
            .ledger
            .calls
            .get_mut(&uid)
            .and_then(|calls| calls.trouble.as_mut())
        {
            trouble.is_false_alarm |= trouble.failure.reaction() == Reaction::StepDown;
        }
        world.wake(
            [millwright_core::wake::Wake::event(millwright_core::wake::Key::Machine(
                name,
            ))],
            uptime,
        );
    });
    Ok(())
}

/// Another Machine may have been faster; then this one looks again.
fn reserve_probe(shared: &Shared, machine: &Machine, operation: Operation) -> Result<(), StepError> {
    let now = shared.env.now();
    let may_call = shared.change(|world, uptime| world.reserve(machine, operation, now, uptime));
    may_call.then_some(()).ok_or(StepError::Void)
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

/// Whoever is given up is given up for what is so now: the watch may not have noticed yet that the target cluster is silent.
pub(super) async fn see_node(shared: &Shared, machine: &Machine, name: &NodeName) -> Result<(), StepError> {
    let live = match shared.write.read_node(name).await {
        Ok(live) => shared.wrote(live),
        Err(ReadError::Gone) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match node::keeps_from_failing(&live, machine, &shared.settings) {
        true => Err(StepError::Void),
        false => Ok(()),
    }
}

/// Malformed durations are said once in a Machine's life, where it begins; nothing waits for a repair.
fn warn_of_durations(shared: &Shared, machine: &Machine, change: &StatusChange) {
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

/// Remembers when the Machine's Node was last written: how soon it is corrected again depends on it.
fn note_write(shared: &Shared, machine: &Machine) {
    let ((name, uid), now) = (meta::identity(&machine.metadata), shared.env.now());
    shared.quietly(|world| {
        world.note_calls(&name, &uid, |calls| calls.node_written = Some(now));
    });
}

/// Remembers what was said of the Machine's annotations, so that it is not said at each look.
fn note_complaint(shared: &Shared, machine: &Machine, fault: String) {
    let (name, uid) = meta::identity(&machine.metadata);
    tracing::warn!(machine = %name, "{fault}");
    shared.quietly(|world| {
        world.note_calls(&name, &uid, |calls| calls.complaint = Some(fault));
    });
}

/// A write of the Machine's Node that the target cluster refuses is said on the Machine: nobody else would know.
fn accepted(
    shared: &Shared,
    machine: &Machine,
    patch: &NodePatch,
    sent: Result<Node, WriteError>,
) -> Result<Node, WriteError> {
    if let Err(WriteError::Refused { reason }) = &sent {
        let text = format!("Node {} could not be brought in line: {reason}", patch.node);
        shared
            .events
            .publish(machine, Severity::Warning, "NodeWriteRefused", &text);
    }
    sent
}

async fn delete(shared: &Shared, machine: &Machine) -> Result<(), StepError> {
    let (name, uid) = meta::identity(&machine.metadata);
    // Its set, which may scale down before the answer comes or without one, is to delete no other one instead.
    let (now, mut before) = (shared.env.now(), None);
    shared.quietly(|world| {
        before = world.ledger.condemned.get(&uid).copied();
        world.condemn(&name, &uid, now);
    });
    let deleted = shared.write.delete::<Machine>(&name, &uid, None).await;
    if let Err(error) = &deleted
        && !matches!(error, WriteError::Unreachable { .. })
    {
        shared.quietly(|world| match before {
            Some(before) => world.condemn(&name, &uid, before),
            None => drop(world.ledger.condemned.remove(&uid)),
        });
    }
    if let Some(left) = deleted? {
        shared.wrote(left);
    }
    Ok(())
}

/// Deletes the Machine's Node, and all others of its VM.
pub(super) async fn remove_nodes(shared: &Shared, machine: &Machine, name: &NodeName) -> Result<(), StepError> {
    for node in shared.look(|world| kin::nodes_of(world, machine, name)) {
        remove_node(shared, machine, &node).await?;
    }
    Ok(())
}

/// Deletes a Node of the Machine's VM. The store may lag behind a node that joined at the last moment, so a Node that it does
/// not show is asked for by name.
async fn remove_node(shared: &Shared, machine: &Machine, name: &NodeName) -> Result<(), StepError> {
    let known = shared.look(|world| world.nodes.get(&Name::new(name.as_str())).cloned());
    let node = match known {
        Some(node) => node,
        None => match shared.write.read_node(name).await {
            Ok(node) => Arc::new(node),
            Err(ReadError::Gone) => return Ok(()),
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
    shared.change(|world, uptime| world.ended::<Node>(&Name::new(name.as_str()), &uid, uptime));
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
    shared.look(|world| world.ledger.readiness(class).clone())
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use http::Method;
    use millwright_core::change::Change;

    use super::*;
    use crate::work::scripted::{Scripted, failure};

    /// Whether the Machine's set counts a deletion under way: while the request travels, and after the answer.
    async fn counts(code: u16) -> (Vec<bool>, bool) {
        let machine =
            json!({ "metadata": { "name": "m", "namespace": "default", "uid": "u", "resourceVersion": "1" } });
        let known: Arc<OnceLock<Arc<Shared>>> = Arc::default();
        let seen: Arc<std::sync::Mutex<Vec<bool>>> = Arc::default();
        let is_counted = |shared: &Shared| shared.look(|world| world.ledger.condemned.contains_key(&Uid::new("u")));
        let (asked, told) = (Arc::clone(&known), Arc::clone(&seen));
        let scripted = Scripted::new(move |_, _, _| {
            told.lock().unwrap().push(is_counted(asked.get().unwrap()));
            failure(code, "No")
        });
        let shared = Arc::clone(known.get_or_init(|| Arc::clone(&scripted.shared)));
        let machine: Machine = serde_json::from_value(machine).unwrap();
        shared.change(|world, uptime| world.observe(Change::Applied(machine.clone()), uptime));
        let deleted = delete(&shared, &machine).await;
        assert!(deleted.is_err(), "{code}");
        (std::mem::take(&mut *seen.lock().unwrap()), is_counted(&shared))
    }

    #[tokio::test]
    async fn a_deletion_counts_for_the_set_from_before_it_is_sent_and_no_longer_once_it_is_refused() {
        assert_eq!(counts(403).await, (vec![true], false));
        assert_eq!(counts(503).await, (vec![true], true), "it may have been carried out");
    }

    /// Whoever took the 404 of a proxy for the Machine's end would make another one in its place.
    #[tokio::test]
    async fn a_machine_that_a_read_still_shows_is_not_gone_though_its_deletion_was_answered_by_404() {
        let machine =
            json!({ "metadata": { "name": "m", "namespace": "default", "uid": "u", "resourceVersion": "1" } });
        let (stored, machine): (_, Machine) = (machine.clone(), serde_json::from_value(machine).unwrap());
        let scripted = Scripted::new(move |method, _, _| match *method {
            Method::GET => (200, stored.clone()),
            _ => failure(404, "NotFound"),
        });
        let (name, uid) = meta::identity(&machine.metadata);
        let deleted = scripted.shared.write.delete::<Machine>(&name, &uid, None).await;
        assert!(matches!(deleted, Err(WriteError::Refused { .. })), "{deleted:?}");
    }
}
