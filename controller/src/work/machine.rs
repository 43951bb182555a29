//! Observe and execute for one Machine. Every branch is a step of the plan; nothing is chosen here.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, Phase, keys, meta};
use millwright_core::circuit_breaker::Operation;
use millwright_core::driver::{Call, Reaction};
use millwright_core::ids::{Name, NodeName, ProviderId};
use millwright_core::machine::life::{self, EventKind};
use millwright_core::machine::node_patch::NodePatch;
use millwright_core::machine::{self, preserve};
use millwright_core::machine::{StatusChange, Step, Why};
use millwright_core::world::World;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::node::{remove_nodes, see_node};
use super::pass::{Planned, Reconciler, Run};
use super::shared::Shared;
use super::step::StepError;
use super::view::{driver_of, look_at};
use super::{leftover, pods, token, vm};
use crate::driver::DriverState;
use crate::kube::error::WriteError;
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

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use http::Method;
    use millwright_core::change::Change;
    use millwright_core::ids::Uid;

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
