//! Pods of a Node that is drained: the watch that shows them, and the requests that remove them.
//!
//! Chooses nothing: which pods, and how, is the plan's. What became of each request goes into the ledger, where the next plan
//! reads it; no pod that cannot be removed holds up another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use millwright_core::api::{Machine, meta};
use millwright_core::change::Change;
use millwright_core::drain::{PodRef, Removal};
use millwright_core::ids::{Name, NodeName, NodeRef, Uid, VolumeName};
use millwright_core::queue::Urgency;
use millwright_core::wake::Key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use super::step::StepError;
use crate::kube::error::WriteError;
use crate::kube::watch::Watch;

/// How many drains begin at once. To list the pods of a Node takes long, because the API server asks etcd whether it has seen all, and costs
/// little: with fewer, empty Nodes would wait for one another.
const BEGIN_AT_ONCE: usize = 24;
/// How long a drain that found pods keeps its turn: meanwhile its Node is cordoned, its status is written, and each pod is tried, which
/// costs the API server as much as the creation of a Machine.
const BEGINNING: Duration = Duration::from_secs(1);

/// How long a scheduler may bind pods to a Node after that was cordoned, because it decides by its own copy of the Node.
const SETTLED: Duration = Duration::from_millis(200);

/// How many Nodes are watched at once. Each watch holds a connection, and a process may be allowed 256 open files.
const WATCHED_AT_ONCE: usize = 100;

/// The watches that run: of pods, by Machine, and the one of attached volumes.
#[derive(Debug)]
pub struct PodWatches {
    pods: Mutex<BTreeMap<Uid, CancellationToken>>,
    volumes: Mutex<Option<CancellationToken>>,
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for PodWatches {
    fn default() -> Self {
        Self {
            pods: Mutex::default(),
            volumes: Mutex::default(),
            turns: Arc::new(Semaphore::new(BEGIN_AT_ONCE)),
            places: Arc::new(Semaphore::new(WATCHED_AT_ONCE)),
        }
    }
}

impl PodWatches {
    /// Names a watch that is about to begin. What ran before for the Machine ends.
    fn begin(&self, uid: &Uid, stop: &CancellationToken) -> CancellationToken {
        let token = stop.child_token();
        let before = self.all().insert(uid.clone(), token.clone());
        if let Some(before) = before {
            before.cancel();
        }
        token
    }

    fn end(&self, uid: &Uid) {
        if let Some(token) = self.all().remove(uid) {
            token.cancel();
        }
    }

    fn begin_volumes(&self, stop: &CancellationToken) -> CancellationToken {
        let token = stop.child_token();
        let mut place = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = place.replace(token.clone()) {
            before.cancel();
        }
        token
    }

    /// A turn that is free. It ends when it is dropped.
    fn free_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).try_acquire_owned().ok()
    }

    /// Waits until few enough begin.
    async fn next_turn(&self) -> OwnedSemaphorePermit {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        turn.expect("nobody closes the semaphore")
    }

    fn end_volumes(&self) {
        let place = self.volumes.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(token) = place {
            token.cancel();
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Uid, CancellationToken>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows the Node's pods from now on. A Node without pods that must go and without volumes is listed once and not watched: it is cordoned.
/// Of hundreds of drains a few begin at a time, so that machines are made meanwhile as ever.
pub(super) fn watch(shared: &Arc<Shared>, machine: &Machine, node: &NodeName) {
    let (name, uid) = meta::identity(&machine.metadata);
    let now = shared.env.now();
    if !shared.quietly(|world| world.drains(&name, &uid, node, now)) {
        return;
    }
    let Some(cluster) = shared.target.clone() else { return };
    let stop = shared.pod_watches.begin(&uid, &shared.stop);
    let watch = Watch::everywhere(&cluster, &shared.env)
        .of_fields(&format!("spec.nodeName={node}"))
        .within(&shared.pod_watches.places);
    let task = Arc::clone(shared);
    shared.calls.spawn(async move {
        let turn = async {
            tokio::time::sleep(SETTLED).await;
            turn(&task, &name, &uid).await
        };
        let Some(turn) = stop.run_until_cancelled(turn).await else {
            return;
        };
        let mut listing = Listing::Due(turn);
        let end = stop.clone();
        let sink = |change| {
            let is_first = listing.follow(&change);
            let is_wanted = show(&task, &name, &uid, change);
            if !is_wanted {
                task.pod_watches.end(&uid);
            }
            if !is_first {
                return;
            }
            let turn = listing.end();
            if task.look(|world| world.needs_no_watch(&uid)) {
                task.quietly(|world| world.watches_no_pods(&uid));
                end.cancel();
            } else {
                let end = end.clone();
                task.calls.spawn(async move {
                    end.run_until_cancelled(tokio::time::sleep(BEGINNING)).await;
                    drop(turn);
                });
            }
        };
        Box::pin(watch.run(stop, sink)).await;
    });
}

/// The turn to begin. Who has to wait for it says so, because the time in which a list has to come begins with it.
async fn turn(shared: &Shared, name: &Name, uid: &Uid) -> OwnedSemaphorePermit {
    if let Some(turn) = shared.pod_watches.free_turn() {
        return turn;
    }
    shared.quietly(|world| world.drain_waits(uid));
    let turn = shared.pod_watches.next_turn().await;
    let now = shared.env.now();
    shared.change(|world, uptime| world.drain_has_turn(name, uid, now, uptime));
    turn
}

/// How far the first list of a Node's pods is. It keeps others waiting while it is under way, and not when it failed and begins anew.
enum Listing<Turn> {
    Due(Turn),
    UnderWay(Turn),
    Late,
    Done,
}

impl<Turn> Listing<Turn> {
    /// Gives whether the first list is complete with this.
    fn follow(&mut self, change: &Change<Pod>) -> bool {
        match change {
            Change::Synced => !matches!(self, Self::Done),
            Change::Restarted => {
                *self = match std::mem::replace(self, Self::Late) {
                    Self::Due(turn) => Self::UnderWay(turn),
                    Self::UnderWay(_) | Self::Late => Self::Late,
                    Self::Done => Self::Done,
                };
                false
            }
            Change::Listed(_) | Change::Applied(_) | Change::Deleted(_) | Change::Unreadable(_) => false,
        }
    }

    /// The first list is complete; gives the turn that it still has.
    fn end(&mut self) -> Option<Turn> {
        match std::mem::replace(self, Self::Done) {
            Self::Due(turn) | Self::UnderWay(turn) => Some(turn),
            Self::Late | Self::Done => None,
        }
    }

    #[cfg(test)]
    fn keeps_others_waiting(&self) -> bool {
        matches!(self, Self::Due(_) | Self::UnderWay(_))
    }
}

/// Lets no new pods come to the Node. A refusal is an answer, for the next plan.
pub(super) async fn cordon(shared: &Shared, machine: &Machine, node: &NodeRef) -> Result<(), StepError> {
    let (name, uid) = meta::identity(&machine.metadata);
    let sent = shared.write.cordon_node(node).await;
    let refused = match &sent {
        Ok(_) => None,
        Err(error @ (WriteError::Refused { .. } | WriteError::Unreachable { .. })) => Some(error.to_string()),
        Err(WriteError::Stale | WriteError::Gone | WriteError::AlreadyExists | WriteError::Fenced) => {
            return sent.map(drop).map_err(StepError::of_another);
        }
    };
    if let Some(words) = &refused {
        tracing::warn!(machine = %name, %node, words, "the node could not be cordoned");
    } else {
        shared.pod_watches.end(&uid);
    }
    let at = |uptime| (shared.env.now(), uptime);
    shared.change(|world, uptime| world.cordoned(&name, &uid, refused, at(uptime)));
    if let Ok(node) = sent {
        shared.wrote(node);
    }
    Ok(())
}

/// Nothing of the pods of the Machine's Node is news any more. Where volumes are is of interest until the Machine is gone.
pub(super) fn end_watch(shared: &Shared, uid: &Uid) {
    shared.quietly(|world| world.watches_no_pods(uid));
    shared.pod_watches.end(uid);
}

/// Nobody wants to know the pods of the Machine's Node any more.
pub(super) fn end(shared: &Shared, uid: &Uid) {
    shared.pod_watches.end(uid);
    if shared.quietly(|world| world.ends_drain(uid)) {
        shared.pod_watches.end_volumes();
    }
}

/// Shows where volumes are attached, until no Node is drained any more.
pub(super) fn watch_volumes(shared: &Arc<Shared>) {
    if !shared.quietly(|world| world.volumes.begin()) {
        return;
    }
    let Some(cluster) = shared.target.clone() else { return };
    let stop = shared.pod_watches.begin_volumes(&shared.stop);
    let watch = Watch::<VolumeAttachment>::everywhere(&cluster, &shared.env);
    let task = Arc::clone(shared);
    shared.calls.spawn(async move {
        let sink = |change| {
            if !task.change(|world, uptime| world.see_volumes(change, uptime)) {
                task.pod_watches.end_volumes();
            }
        };
        Box::pin(watch.run(stop.clone(), sink)).await;
    });
}

/// Deletes VolumeAttachments. Each is tried; one that cannot be deleted holds up no other.
pub(super) async fn detach(shared: &Shared, attachments: Vec<(Name, Uid)>) -> Result<(), StepError> {
    let mut failure = None;
    for (attachment, uid) in attachments {
        if let Err(error) = shared.write.detach(&attachment, &uid).await {
            failure.get_or_insert(error);
        }
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Gives whether anybody wants to know more.
fn show(shared: &Shared, name: &Name, uid: &Uid, change: Change<Pod>) -> bool {
    let now = shared.env.now();
    shared.change(|world, uptime| world.see_pods(name, uid, change, now, uptime))
}

/// Evicts pods, one after the other, until the API server does not answer.
pub(super) async fn evict(shared: &Shared, machine: &Machine, pods: Vec<PodRef>) -> Result<(), StepError> {
    for pod in pods {
        take_along(shared, machine, &pod).await;
        let removal = match shared.write.evict(&pod).await? {
            Removal::OverBudget(words) => refused(shared, machine, &pod, words).await,
            removal => removal,
        };
        let is_answered = !matches!(removal, Removal::Failed(_));
        note(shared, machine, &pod, removal);
        if !is_answered {
            break;
        }
    }
    Ok(())
}

/// What a budget's refusal means. The budget is read once for the same words: of hundreds of drains that wait each would read it at each
/// try else.
async fn refused(shared: &Shared, machine: &Machine, pod: &PodRef, words: String) -> Removal {
    let uid = meta::identity(&machine.metadata).1;
    let known = shared.look(|world| world.ledger.drains.get(&uid)?.refused(pod, &words).cloned());
    if let Some(known) = known {
        return known;
    }
    match shared.write.fault_of_budgets(pod).await {
        Some(fault) => Removal::Misconfigured { fault, words },
        None => Removal::OverBudget(words),
    }
}

/// The volumes of a pod, as far as they can be found out about.
async fn volumes_of(shared: &Shared, pod: &PodRef) -> Vec<VolumeName> {
    let mut volumes = Vec::new();
    for claim in &pod.claims {
        match shared.write.volume_of(pod, claim).await {
            Ok(volume) => volumes.extend(volume),
            Err(error) => tracing::warn!(%pod, claim, %error, "the volume of a claim could not be found out about"),
        }
    }
    volumes
}

/// Learns which volumes are those of pods that stay.
pub(super) async fn learn_volumes(shared: &Shared, machine: &Machine, pods: Vec<PodRef>) {
    let mut volumes = BTreeSet::new();
    for pod in &pods {
        volumes.extend(volumes_of(shared, pod).await);
    }
    let (name, uid) = meta::identity(&machine.metadata);
    shared.change(|world, uptime| world.found_staying(&name, &uid, volumes, uptime));
}

/// Learns which volumes have to follow a pod. One that cannot be found out about is not waited for.
async fn take_along(shared: &Shared, machine: &Machine, pod: &PodRef) {
    let volumes = volumes_of(shared, pod).await;
    let uid = meta::identity(&machine.metadata).1;
    shared.quietly(|world| {
        if let Some(drain) = world.ledger.drains.get_mut(&uid) {
            drain.takes_along(pod, volumes, &world.volumes);
        }
    });
}

/// Deletes pods, with their grace or as much as is left. Each is tried, and tried once.
pub(super) async fn delete(
    shared: &Shared,
    machine: &Machine,
    pods: Vec<PodRef>,
    grace: SignedDuration,
) -> Result<(), StepError> {
    for pod in pods {
        let removal = shared.write.delete_pod(&pod, pod.grace.min(grace)).await?;
        if let Removal::Failed(reason) = &removal {
            tracing::warn!(machine = meta::name(&machine.metadata), %pod, reason, "a pod could not be deleted");
        }
        note(shared, machine, &pod, removal);
    }
    let (name, uid) = meta::identity(&machine.metadata);
    shared.change(|world, uptime| {
        if let Some(drain) = world.ledger.drains.get_mut(&uid).filter(|_| grace.is_zero()) {
            drain.is_forced = true;
        }
        world.queue.push(Key::Machine(name), uptime, Urgency::Event);
    });
    Ok(())
}

fn note(shared: &Shared, machine: &Machine, pod: &PodRef, removal: Removal) {
    let uid = meta::identity(&machine.metadata).1;
    let now = shared.env.now();
    shared.quietly(|world| {
        if let Some(drain) = world.ledger.drains.get_mut(&uid) {
            drain.tried(pod, removal, now);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_pods_that_fails_gives_its_turn_to_others_and_is_the_first_all_the_same() {
        let mut listing = Listing::Due(());
        assert!(!listing.follow(&Change::Restarted));
        assert!(listing.keeps_others_waiting(), "it is under way");
        assert!(!listing.follow(&Change::Restarted));
        assert!(!listing.keeps_others_waiting(), "it failed and begins anew");
        assert!(listing.follow(&Change::Synced));
        assert_eq!(listing.end(), None);
        assert!(!listing.follow(&Change::Restarted));
        assert!(!listing.follow(&Change::Synced), "the second one");
    }

    #[test]
    fn a_list_of_pods_that_is_complete_gives_back_its_turn() {
        let mut listing = Listing::Due(());
        assert!(!listing.follow(&Change::Restarted));
        assert!(listing.follow(&Change::Synced));
        assert_eq!(listing.end(), Some(()));
        assert!(!listing.keeps_others_waiting());
    }
}
