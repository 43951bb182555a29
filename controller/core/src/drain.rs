//! The pods of a Node whose Machine is deleted: which of them must go before the VM does, and how far each is.
//!
//! Known only to this process and only while the Node is drained; all of it can be asked again. Decides about single pods; when the
//! drain ends, and when it is forced, is decided by `machine::drain`. Source: `spec/machine.md` §5.4, S7 of `reliability.md`,
//! `user-pains.md` C.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus, Volume};

use crate::api::meta;
use crate::change::Change;
use crate::ids::{Name, ResourceVersion, Uid};
use crate::kinds::NoIndex;
use crate::sight::later;
use crate::store::{Store, Stored};

/// A static pod of the kubelet, which the API server only mirrors.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How many pods are evicted in one pass: a pass holds a worker.
const BATCH: usize = 20;
/// How many pods with volumes may be on their way at once: each is a detachment and an attachment at the cloud.
const VOLUMES_AT_ONCE: usize = 10;
/// How long the watch may take to show what became of an eviction that was accepted.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_secs(20);
/// The longest pause between two tries to evict a pod, as in the original.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(20);

/// One pod, as a request names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: a namesake is another pod.
    pub uid: Uid,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What became of a request to remove a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It was accepted, or the pod was gone.
    Accepted,
    /// A PodDisruptionBudget does not let the pod go now. The server's words.
    OverBudget(String),
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
    /// When it may be tried again: after 1, 2, 4 … 20 s; after what was accepted, when the watch should have shown it.
    fn again_at(&self) -> Timestamp {
        let pause = match self.removal {
            Removal::Accepted => SHOWN_WITHIN,
            Removal::OverBudget(_) | Removal::Failed(_) => {
                SignedDuration::from_secs(1 << self.times.saturating_sub(1).min(5)).min(LONGEST_PAUSE)
            }
        };
        later(self.at, pause)
    }
}

/// What this process knows of the pods of one Node.
#[derive(Debug)]
pub struct Drain {
    began: Timestamp,
    pods: Store<Pod>,
    tried: BTreeMap<Uid, Tried>,
    /// When it was first seen that no pod is left that must go.
    emptied: Option<Timestamp>,
    /// The pods were deleted without regard to budgets and grace.
    forced: bool,
}

/// What stands in the way of one pod's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The pod.
    pub pod: PodRef,
    /// What refuses.
    pub removal: Removal,
}

impl Drain {
    /// Nothing is known yet.
    pub fn begin(now: Timestamp) -> Self {
        Self {
            began: now,
            pods: Store::default(),
            tried: BTreeMap::new(),
            emptied: None,
            forced: false,
        }
    }

    /// Since when this process wants to know.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// Takes what the watch of the Node's pods brought.
    pub fn observe(&mut self, change: Change<Pod>, now: Timestamp) {
        drop(self.pods.apply(change));
        self.tried
            .retain(|uid, _| self.pods.iter().any(|pod| pod.uid() == *uid));
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

    /// All pods were asked to go at once, once.
    pub fn forced(&mut self) {
        self.forced = true;
    }

    /// Whether that was done.
    pub fn is_forced(&self) -> bool {
        self.forced
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
    /// finished does no work any more.
    pub fn left(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| must_go(pod))
    }

    /// Pods that may be evicted now.
    pub fn due(&self, now: Timestamp) -> Vec<PodRef> {
        let leaving = |pod: &Pod| meta::is_deleting(&pod.metadata);
        let with_volumes = self.left().filter(|pod| leaving(pod) && has_claims(pod)).count();
        let mut free = VOLUMES_AT_ONCE.saturating_sub(with_volumes);
        let mut due = Vec::new();
        for pod in self.left().filter(|pod| !leaving(pod)) {
            if self.tried.get(&pod.uid()).is_some_and(|tried| now < tried.again_at()) {
                continue;
            }
            if has_claims(pod) {
                if free == 0 {
                    continue;
                }
                free -= 1;
            }
            due.push(reference(pod));
        }
        due.truncate(BATCH);
        due
    }

    /// When a pod may be tried again that may not be tried now.
    pub fn again_at(&self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.left().filter(|pod| !meta::is_deleting(&pod.metadata));
        let times = waiting.filter_map(|pod| self.tried.get(&pod.uid()).map(Tried::again_at));
        times.filter(|at| *at > now).min()
    }

    /// The first pod that is refused to go.
    pub fn blocker(&self) -> Option<Blocker> {
        let mut waiting = self.left().filter(|pod| !meta::is_deleting(&pod.metadata));
        waiting.find_map(|pod| match &self.tried.get(&pod.uid())?.removal {
            Removal::Accepted => None,
            removal => Some(Blocker {
                pod: reference(pod),
                removal: removal.clone(),
            }),
        })
    }
}

/// The pod, as a request names it.
pub fn reference(pod: &Pod) -> PodRef {
    PodRef {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: meta::name(&pod.metadata).to_owned(),
        uid: pod.uid(),
    }
}

fn must_go(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_finished = matches!(phase, Some("Succeeded" | "Failed"));
    let is_mirror = meta::annotation(&pod.metadata, MIRROR).is_some();
    let is_of_daemon = meta::controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "DaemonSet");
    !is_finished && !is_mirror && !is_of_daemon
}

/// Whether it has volumes that outlive it.
fn has_claims(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let is_claim = |volume: &Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    volumes.unwrap_or_default().iter().any(is_claim)
}

impl Stored for Pod {
    type Index = NoIndex;

    /// With the namespace: pods of a Node come from all.
    fn key(&self) -> Name {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        Name::new(format!("{namespace}/{}", meta::name(&self.metadata)))
    }

    fn uid(&self) -> Uid {
        meta::identity(&self.metadata).1
    }

    fn version(&self) -> Option<ResourceVersion> {
        meta::resource_version(&self.metadata)
    }

    fn indexed(&self) -> Vec<(NoIndex, String)> {
        Vec::new()
    }

    /// What it runs, with which environment, is nobody's business here.
    fn shorten(&mut self) {
        self.metadata.managed_fields = None;
        let volumes = self.spec.take().and_then(|spec| spec.volumes);
        let phase = self.status.take().and_then(|status| status.phase);
        self.spec = Some(PodSpec {
            volumes,
            ..PodSpec::default()
        });
        self.status = Some(PodStatus {
            phase,
            ..PodStatus::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::constant(1_893_456_000, 0)
    }

    fn pod(name: &str, extra: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1"},
            "spec": {"containers": [{"name": "c", "env": [{"name": "SECRET", "value": "hidden"}]}]},
            "status": {"phase": "Running"},
        });
        crate::merge::apply(&mut pod, &extra);
        serde_json::from_value(pod).expect("it is a Pod")
    }

    fn listed(pods: impl IntoIterator<Item = Pod>) -> Drain {
        let mut drain = Drain::begin(now());
        drain.observe(Change::Restarted, now());
        for pod in pods {
            drain.observe(Change::Listed(pod), now());
        }
        drain.observe(Change::Synced, now());
        drain
    }

    fn names(pods: &[PodRef]) -> Vec<&str> {
        pods.iter().map(|pod| pod.name.as_str()).collect()
    }

    fn claim() -> Value {
        json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})
    }

    #[test]
    fn pods_of_daemon_sets_of_the_kubelet_and_those_that_are_finished_stay() {
        let daemon = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]}});
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
        let drain = listed([
            pod("plain", json!({})),
            pod("daemon", daemon),
            pod("mirror", mirror),
            pod("done", json!({"status": {"phase": "Succeeded"}})),
        ]);
        assert_eq!(names(&drain.due(now())), ["plain"]);
        assert_eq!(drain.emptied(), None);
    }

    #[test]
    fn nothing_is_kept_of_a_pod_that_nobody_reads() {
        let drain = listed([pod("plain", claim())]);
        let kept = drain.left().next().expect("it is there");
        let text = serde_json::to_string(&**kept).expect("it can be written");
        assert!(!text.contains("hidden") && text.contains("claimName"), "{text}");
    }

    #[test]
    fn a_pod_that_is_refused_is_tried_again_after_pauses_that_grow_to_twenty_seconds() {
        let mut drain = listed([pod("plain", json!({}))]);
        let pods = drain.due(now());
        let (mut at, mut pauses) = (now(), Vec::new());
        for _ in 0..7 {
            drain.tried(&pods[0], Removal::OverBudget("no".to_owned()), at);
            assert!(drain.due(at).is_empty());
            let again = drain.again_at(at).expect("it is tried again");
            pauses.push(again.duration_since(at).as_secs());
            at = again;
            assert_eq!(names(&drain.due(at)), ["plain"]);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20]);
        let blocker = drain.blocker().expect("it is refused");
        assert_eq!(blocker.pod.to_string(), "default/plain");
    }

    #[test]
    fn pods_with_volumes_go_a_few_at_a_time_and_others_do_not_wait_for_them() {
        let many = (0..30).map(|number| pod(&format!("db-{number:02}"), claim()));
        let drain = listed(many.chain([pod("web", json!({}))]));
        let due = drain.due(now());
        assert_eq!(due.len(), VOLUMES_AT_ONCE + 1);
        assert!(names(&due).contains(&"web"));
    }

    #[test]
    fn a_namesake_is_another_pod_and_the_end_of_the_last_one_is_remembered() {
        let mut drain = listed([pod("web-0", json!({}))]);
        let pods = drain.due(now());
        drain.tried(&pods[0], Removal::Accepted, now());
        assert!(drain.due(now()).is_empty());
        let newer = json!({"metadata": {"uid": "other", "resourceVersion": "9"}});
        drain.observe(Change::Applied(pod("web-0", newer.clone())), now());
        assert_eq!(drain.due(now()).len(), 1);
        drain.observe(Change::Deleted(pod("web-0", newer)), now());
        assert_eq!(drain.emptied(), Some(now()));
    }
}
