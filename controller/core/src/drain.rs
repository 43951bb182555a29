//! The pods of a Node whose Machine is deleted: which of them must go before the VM does, and how far each is.
//!
//! Known only to this process and only while the Node is drained; all of it can be asked again. Decides about single pods; when the
//! drain ends, and when it is forced, is decided by `machine::drain`. MC-22, MC-23; S7.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use crate::api::meta;
use crate::change::Change;
use crate::ids::{Name, NodeName, Uid, VolumeName};
use crate::settings::Settings;
use crate::sight::later;
use crate::store::{Store, Stored};
pub use pod::{PodRef, reference};
use pod::{has_claims, must_go};
pub use volume::Volumes;

pub mod budget;
mod pod;
pub mod volume;

/// How many pods are evicted in one pass: a pass holds a worker.
const BATCH: usize = 20;
/// How many pods with volumes may be on their way at once: each is a detachment and an attachment at the cloud.
const VOLUMES_AT_ONCE: usize = 10;
/// How long the watch may take to show what became of an eviction that was accepted.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_secs(20);
/// How long pods with volumes wait until it is known where those are attached.
const KNOWN_WITHIN: SignedDuration = SignedDuration::from_secs(20);
/// The longest pause between two tries to evict a pod, as in the original.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(20);

/// What became of a request to remove a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It was accepted, or the pod was gone.
    Accepted,
    /// A PodDisruptionBudget does not let the pod go now. The server's words.
    OverBudget(String),
    /// A PodDisruptionBudget never lets a pod go, although all its pods are well.
    Misconfigured {
        /// What is wrong with it.
        fault: String,
        /// The server's words.
        words: String,
    },
    /// It was refused for another reason, or not answered.
    Failed(String),
}

/// The last request to remove a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tried {
    removal: Removal,
    /// How often in a row it was not accepted.
    times: u32,
    at: Timestamp,
}

impl Tried {
    /// When it may be tried again: after 1, 2, 4 … 20 s, and once more at the last chance; after what was accepted, when the watch should have
    /// shown it.
    fn again_at(&self, last_chance: Option<Timestamp>) -> Timestamp {
        let pause = match self.removal {
            Removal::Accepted => SHOWN_WITHIN,
            Removal::OverBudget(_) | Removal::Misconfigured { .. } | Removal::Failed(_) => {
                SignedDuration::from_secs(1 << self.times.saturating_sub(1).min(5)).min(LONGEST_PAUSE)
            }
        };
        let at = later(self.at, pause);
        let last_chance = last_chance.filter(|_| self.removal != Removal::Accepted);
        last_chance.filter(|last| self.at < *last && *last < at).unwrap_or(at)
    }
}

/// A pod that was evicted, and the volumes that must follow it to another Node.
#[derive(Debug)]
struct Moving {
    /// Those that were attached to the Node when it was evicted.
    volumes: Vec<VolumeName>,
    /// When it was first seen that the pod is gone.
    gone: Option<Timestamp>,
}

/// What this process knows of the pods of one Node.
#[derive(Debug)]
pub struct Drain {
    /// Whose Node it is.
    pub machine: Name,
    /// The Node.
    pub node: NodeName,
    /// Since when this process wants to know.
    pub began: Timestamp,
    /// When its turn came to list the pods. `None`: others come first.
    pub turn: Option<Timestamp>,
    /// Whether pods that come to the Node later are seen.
    pub is_watched: bool,
    /// The volumes of the pods that stay, once these were found out about.
    pub staying: Option<BTreeSet<VolumeName>>,
    /// The pods were deleted without regard to budgets and grace.
    pub is_forced: bool,
    moving: BTreeMap<Uid, Moving>,
    pods: Store<Pod>,
    tried: BTreeMap<Uid, Tried>,
    /// When it was first seen that no pod is left that must go.
    emptied: Option<Timestamp>,
}

/// A pod that was asked to end and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The pod.
    pub pod: PodRef,
    /// When it was asked.
    pub since: Timestamp,
    /// When its grace is over.
    pub until: Timestamp,
    /// Finalizers that others hold.
    pub finalizers: Vec<String>,
}

/// What stands in the way of one pod's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// The request to remove it is refused.
    Refused(PodRef, Removal),
    /// Its grace is over, and it is still there.
    Overdue(Leaving),
}

impl Drain {
    /// Nothing is known yet.
    pub fn begin(machine: Name, node: NodeName, now: Timestamp) -> Self {
        Self {
            machine,
            node,
            began: now,
            turn: Some(now),
            is_watched: true,
            staying: None,
            is_forced: false,
            moving: BTreeMap::new(),
            pods: Store::default(),
            tried: BTreeMap::new(),
            emptied: None,
        }
    }

    /// Whether a change of where a volume is attached is of interest.
    pub fn concerns(&self, volume: Option<&str>, node: &str) -> bool {
        let mut followed = self.moving.values().flat_map(|moving| &moving.volumes);
        self.node.as_str() == node || followed.any(|followed| Some(followed.as_str()) == volume)
    }

    /// Takes what the watch of the Node's pods brought.
    pub fn observe(&mut self, change: Change<Pod>, now: Timestamp) {
        drop(self.pods.apply(change));
        let is_there = |uid: &Uid| self.pods.iter().any(|pod| pod.uid() == *uid);
        self.tried.retain(|uid, _| is_there(uid));
        for (uid, moving) in &mut self.moving {
            if moving.gone.is_none() && !is_there(uid) {
                moving.gone = Some(now);
            }
        }
        if self.is_listed() && self.left().next().is_none() {
            self.emptied.get_or_insert(now);
        } else {
            self.emptied = None;
        }
    }

    /// A request to remove a pod was answered, or was not.
    pub fn tried(&mut self, pod: &PodRef, removal: Removal, now: Timestamp) {
        let before = self.tried.get(&pod.uid).filter(|_| removal != Removal::Accepted);
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        self.tried.insert(
            pod.uid.clone(),
            Tried {
                removal,
                times,
                at: now,
            },
        );
    }

    /// What is known of a budget that refuses this pod in these words: the same words again say the same of it, because they count its
    /// pods.
    pub fn refused(&self, pod: &PodRef, words: &str) -> Option<&Removal> {
        let before = &self.tried.get(&pod.uid)?.removal;
        let is_same = match before {
            Removal::OverBudget(said) | Removal::Misconfigured { words: said, .. } => said == words,
            Removal::Accepted | Removal::Failed(_) => false,
        };
        is_same.then_some(before)
    }

    /// A pod is about to be evicted that uses these volumes.
    pub fn takes_along(&mut self, pod: &PodRef, volumes: Vec<VolumeName>, known: &Volumes) {
        let here = |volume: &VolumeName| known.is_on(volume, &self.node);
        let volumes = volumes.into_iter().filter(here).collect();
        self.moving.insert(pod.uid.clone(), Moving { volumes, gone: None });
    }

    /// Pods with volumes that stay, because nobody evicts them, and whose volumes are not known yet: nobody waits for these to be detached.
    pub fn unknown_staying(&self) -> Vec<PodRef> {
        let staying = self.pods.iter().filter(|pod| !must_go(pod) && has_claims(pod));
        let unknown = staying.filter(|_| self.staying.is_none());
        unknown.map(|pod| reference(pod)).collect()
    }

    /// Whether a volume is one of a pod that stays.
    pub fn stays(&self, volume: &str) -> bool {
        let mut known = self.staying.iter().flatten();
        known.any(|known| known.as_str() == volume)
    }

    /// Whether the pods are known.
    pub fn is_listed(&self) -> bool {
        self.pods.is_synced()
    }

    /// Since when no pod is left that must go.
    pub fn emptied(&self) -> Option<Timestamp> {
        self.emptied
    }

    /// Pods that must go before the VM does, by namespace and name. Those of DaemonSets and of the kubelet itself stay; one that is
    /// finished does no work any more. One that was asked to end is there until its object is gone: a kubelet says that it has finished
    /// before it has unmounted its volumes.
    pub fn left(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| must_go(pod))
    }

    /// The pods whose objects are deleted after the Node: pods that should have gone before the Node, and pods with claims, for which
    /// Kubernetes would attach the volumes to the deleted Node again.
    pub fn left_behind(&self) -> Vec<PodRef> {
        let left = self.pods.iter().filter(|pod| must_go(pod) || has_claims(pod));
        left.map(|pod| reference(pod)).collect()
    }

    /// Whether a pod that must go has volumes.
    pub fn has_volumes(&self) -> bool {
        self.left().any(|pod| has_claims(pod))
    }

    /// Pods that may be evicted now: the important ones first, as they are to run again first. Those with volumes, a few at a time.
    /// Any that was refused may be tried once more at the last chance.
    pub fn due(
        &self,
        volumes: &Volumes,
        settings: &Settings,
        last_chance: Option<Timestamp>,
        now: Timestamp,
    ) -> Vec<PodRef> {
        let leaving = |pod: &Pod| meta::is_deleting(&pod.metadata);
        let mut free = VOLUMES_AT_ONCE.saturating_sub(self.on_their_way(volumes, settings, now).len());
        let can_move = volumes.is_known() || now >= later(self.began, KNOWN_WITHIN);
        let mut due = Vec::new();
        for pod in self.by_priority().into_iter().filter(|pod| !leaving(pod)) {
            if self
                .tried
                .get(&pod.uid())
                .is_some_and(|tried| now < tried.again_at(last_chance))
            {
                continue;
            }
            if has_claims(pod) {
                if free == 0 || !can_move {
                    continue;
                }
                free -= 1;
            }
            due.push(reference(pod));
        }
        due.truncate(BATCH);
        due
    }

    fn by_priority(&self) -> Vec<&Arc<Pod>> {
        let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let mut pods: Vec<&Arc<Pod>> = self.left().collect();
        pods.sort_by_key(|pod| std::cmp::Reverse(priority(pod)));
        pods
    }

    /// Until when each pod with volumes is waited for that is on its way: asked to end and not gone, or gone and its volumes neither
    /// detached nor attached elsewhere yet.
    fn on_their_way(&self, volumes: &Volumes, settings: &Settings, now: Timestamp) -> Vec<Timestamp> {
        let leaving = self.left().filter(|pod| has_claims(pod));
        let leaving = leaving.filter_map(|pod| self.holds_its_place(pod, settings));
        let moving = self.moving.values();
        let moving = moving.filter_map(|moving| self.waited_for(moving, volumes, settings));
        leaving.chain(moving).filter(|until| *until > now).collect()
    }

    /// Until when a pod that was asked to end counts as one of the [`VOLUMES_AT_ONCE`]: for the detach timeout after its grace ends, or
    /// after our request, whichever is sooner.
    fn holds_its_place(&self, pod: &Pod, settings: &Settings) -> Option<Timestamp> {
        let grace_ends = pod.metadata.deletion_timestamp.as_ref()?.0;
        let asked = self.tried.get(&pod.uid());
        let asked = asked
            .filter(|tried| tried.removal == Removal::Accepted)
            .map(|tried| tried.at);
        Some(later(
            asked.map_or(grace_ends, |at| at.min(grace_ends)),
            settings.detach_timeout,
        ))
    }

    /// Until when the volumes of a pod that is gone are waited for. `None`: not, or not any more.
    fn waited_for(&self, moving: &Moving, volumes: &Volumes, settings: &Settings) -> Option<Timestamp> {
        let gone = moving.gone.filter(|_| volumes.is_known())?;
        let detached_by = later(gone, settings.detach_timeout);
        if moving.volumes.iter().any(|volume| volumes.is_on(volume, &self.node)) {
            return Some(detached_by);
        }
        let has_arrived = |volume: &VolumeName| volumes.is_elsewhere(volume, &self.node);
        (!moving.volumes.iter().all(has_arrived)).then(|| later(gone, settings.reattach_timeout))
    }

    /// When a pod may be tried again that may not be tried now.
    pub fn again_at(
        &self,
        volumes: &Volumes,
        settings: &Settings,
        last_chance: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let waiting = self.left().filter(|pod| !meta::is_deleting(&pod.metadata));
        let tried = waiting.filter_map(|pod| self.tried.get(&pod.uid()));
        let times = tried.map(|tried| tried.again_at(last_chance));
        let unknown = (self.has_volumes() && !volumes.is_known()).then(|| later(self.began, KNOWN_WITHIN));
        let moving = self.on_their_way(volumes, settings, now);
        let overdue = self.leaving().map(|leaving| later(leaving.until, SHOWN_WITHIN));
        let all = times.chain(unknown).chain(moving).chain(overdue);
        all.filter(|at| *at > now).min()
    }

    /// Pods that are to be deleted before the VM ends at an instant that its provider has announced: each so early that it has its grace.
    /// And when the next of them is due.
    pub fn due_before(&self, end: Timestamp, now: Timestamp) -> (Vec<PodRef>, Option<Timestamp>) {
        let waiting = self.left().filter(|pod| !meta::is_deleting(&pod.metadata));
        let begins = |pod: &PodRef| end.saturating_sub(pod.grace).unwrap_or(Timestamp::MIN);
        let waiting = waiting.map(|pod| reference(pod));
        // What a budget refused was an eviction. A deletion that was accepted or failed has its pause.
        let is_deletion = |tried: &&Tried| matches!(tried.removal, Removal::Accepted | Removal::Failed(_));
        let again = |pod: &PodRef| Some(self.tried.get(&pod.uid).filter(is_deletion)?.again_at(None));
        let begins = |pod: &PodRef| begins(pod).max(again(pod).unwrap_or(Timestamp::MIN));
        let (due, later): (Vec<PodRef>, Vec<PodRef>) = waiting.partition(|pod| begins(pod) <= now);
        (due, later.iter().map(begins).min())
    }

    /// The first pod that does not go.
    pub fn blocker(&self, now: Timestamp) -> Option<Blocker> {
        let mut waiting = self.left().filter(|pod| !meta::is_deleting(&pod.metadata));
        let refused = waiting.find_map(|pod| match &self.tried.get(&pod.uid())?.removal {
            Removal::Accepted => None,
            removal => Some(Blocker::Refused(reference(pod), removal.clone())),
        });
        let overdue = || {
            self.leaving()
                .filter(|leaving| later(leaving.until, SHOWN_WITHIN) <= now)
        };
        refused.or_else(|| overdue().map(Blocker::Overdue))
    }

    /// Of the pods that were asked to end and have not ended, the one whose grace is over first.
    pub fn leaving(&self) -> Option<Leaving> {
        let leaving = self.left().filter_map(|pod| {
            let until = pod.metadata.deletion_timestamp.as_ref()?.0;
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
            // A kubelet writes both anew when the pod has ended and only its finalizers are left.
            let asked = self.tried.get(&pod.uid()).filter(|_| grace == 0).map(|tried| tried.at);
            let since = until.saturating_sub(SignedDuration::from_secs(grace)).unwrap_or(until);
            Some(Leaving {
                pod: reference(pod),
                since: asked.map_or(since, |asked| asked.min(since)),
                until,
                finalizers: pod.metadata.finalizers.clone().unwrap_or_default(),
            })
        });
        leaving.min_by_key(|leaving| leaving.until)
    }
}

#[cfg(test)]
mod tests;
