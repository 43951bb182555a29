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
use crate::ids::{Name, NodeName, ResourceVersion, Uid, VolumeName};
use crate::kinds::NoIndex;
use crate::settings::Settings;
use crate::sight::later;
use crate::store::{Store, Stored};
pub use volume::Volumes;

pub mod budget;
pub mod volume;

/// A static pod of the kubelet, which the API server only mirrors.
const MIRROR: &str = "kubernetes.io/config.mirror";
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

/// One pod, as a request names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: a namesake is another pod.
    pub uid: Uid,
    /// The PersistentVolumeClaims that it uses.
    pub claims: Vec<String>,
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
    /// When it may be tried again: after 1, 2, 4 … 20 s; after what was accepted, when the watch should have shown it.
    fn again_at(&self) -> Timestamp {
        let pause = match self.removal {
            Removal::Accepted => SHOWN_WITHIN,
            Removal::OverBudget(_) | Removal::Misconfigured { .. } | Removal::Failed(_) => {
                SignedDuration::from_secs(1 << self.times.saturating_sub(1).min(5)).min(LONGEST_PAUSE)
            }
        };
        later(self.at, pause)
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
    machine: Name,
    node: NodeName,
    began: Timestamp,
    /// When its turn came to list them. `None`: others come first.
    turn: Option<Timestamp>,
    moving: BTreeMap<Uid, Moving>,
    pods: Store<Pod>,
    tried: BTreeMap<Uid, Tried>,
    /// When it was first seen that no pod is left that must go.
    emptied: Option<Timestamp>,
    /// The Node took no new pods when its pods were to be listed.
    was_closed: bool,
    /// A pod was there that had to go, so they are watched.
    is_watched: bool,
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
    pub fn begin(machine: Name, node: NodeName, now: Timestamp) -> Self {
        Self {
            machine,
            node,
            began: now,
            turn: Some(now),
            moving: BTreeMap::new(),
            pods: Store::default(),
            tried: BTreeMap::new(),
            emptied: None,
            was_closed: false,
            is_watched: false,
            forced: false,
        }
    }

    /// The same, of a Node that takes no new pods.
    #[must_use]
    pub fn of_closed(self, was_closed: bool) -> Self {
        Self { was_closed, ..self }
    }

    /// Whether pods may have come since none was seen: the list was empty and nothing is watched, and the Node was closed afterwards.
    pub fn may_have_missed_pods(&self) -> bool {
        !self.was_closed && !self.is_watched
    }

    /// Whose Node it is.
    pub fn machine(&self) -> &Name {
        &self.machine
    }

    /// Whether a change of where a volume is attached is of interest.
    pub fn concerns(&self, volume: Option<&str>, node: &str) -> bool {
        let mut followed = self.moving.values().flat_map(|moving| &moving.volumes);
        self.node.as_str() == node || followed.any(|followed| Some(followed.as_str()) == volume)
    }

    /// Since when this process wants to know.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// Others list the pods of their Nodes first.
    pub fn waits_its_turn(&mut self) {
        self.turn = None;
    }

    /// Its pods are listed now.
    pub fn has_its_turn(&mut self, now: Timestamp) {
        self.turn = Some(now);
    }

    /// When its turn came to list the pods. `None`: others come first.
    pub fn turn(&self) -> Option<Timestamp> {
        self.turn
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
        let is_left = self.left().next().is_some();
        if self.is_listed() && !is_left {
            self.emptied.get_or_insert(now);
        } else {
            self.emptied = None;
        }
        self.is_watched |= is_left;
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

    /// Whether a pod that must go has volumes.
    pub fn has_volumes(&self) -> bool {
        self.left().any(|pod| has_claims(pod))
    }

    /// Pods that may be evicted now: the important ones first, as they are to run again first. Those with volumes, a few at a time.
    pub fn due(&self, volumes: &Volumes, settings: &Settings, now: Timestamp) -> Vec<PodRef> {
        let leaving = |pod: &Pod| meta::is_deleting(&pod.metadata);
        let mut free = VOLUMES_AT_ONCE.saturating_sub(self.on_their_way(volumes, settings, now).0);
        let can_move = volumes.is_known() || now >= later(self.began, KNOWN_WITHIN);
        let mut due = Vec::new();
        for pod in self.by_priority().into_iter().filter(|pod| !leaving(pod)) {
            if self.tried.get(&pod.uid()).is_some_and(|tried| now < tried.again_at()) {
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

    /// How many pods with volumes are on their way: evicted and not gone, or gone and their volumes neither detached nor attached
    /// elsewhere yet, for as long as that is waited for; and when the first of these waits ends.
    fn on_their_way(&self, volumes: &Volumes, settings: &Settings, now: Timestamp) -> (usize, Option<Timestamp>) {
        let is_leaving = |pod: &&Arc<Pod>| meta::is_deleting(&pod.metadata) && has_claims(pod);
        let leaving = self.left().filter(is_leaving).count();
        let waits: Vec<Timestamp> = self
            .moving
            .values()
            .filter_map(|moving| self.waited_for(moving, volumes, settings))
            .filter(|until| *until > now)
            .collect();
        (leaving + waits.len(), waits.into_iter().min())
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
    pub fn again_at(&self, volumes: &Volumes, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.left().filter(|pod| !meta::is_deleting(&pod.metadata));
        let times = waiting.filter_map(|pod| self.tried.get(&pod.uid()).map(Tried::again_at));
        let unknown = (self.has_volumes() && !volumes.is_known()).then(|| later(self.began, KNOWN_WITHIN));
        let moving = self.on_their_way(volumes, settings, now).1;
        times.chain(unknown).chain(moving).filter(|at| *at > now).min()
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
        claims: claims(pod),
    }
}

fn must_go(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_finished = matches!(phase, Some("Succeeded" | "Failed"));
    let is_mirror = meta::annotation(&pod.metadata, MIRROR).is_some();
    let is_of_daemon = meta::controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "DaemonSet");
    !is_finished && !is_mirror && !is_of_daemon
}

/// Whether it has volumes that can be attached to another Node.
fn has_claims(pod: &Pod) -> bool {
    !claims(pod).is_empty()
}

/// The claims that a pod uses. One of a generic ephemeral volume bears the names of both.
fn claims(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let claim = |volume: &Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", meta::name(&pod.metadata), volume.name)),
        (None, None) => None,
    };
    volumes.unwrap_or_default().iter().filter_map(claim).collect()
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
        let spec = self.spec.take().unwrap_or_default();
        let phase = self.status.take().and_then(|status| status.phase);
        self.spec = Some(PodSpec {
            volumes: spec.volumes,
            priority: spec.priority,
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
        let mut drain = Drain::begin(Name::new("m"), NodeName::new("n"), now());
        drain.observe(Change::Restarted, now());
        for pod in pods {
            drain.observe(Change::Listed(pod), now());
        }
        drain.observe(Change::Synced, now());
        drain
    }

    fn settings() -> Settings {
        Settings::new("test")
    }

    /// Volumes that are attached to Nodes, as a watch that has listed shows them.
    fn known<const N: usize>(attached: [(&str, &str); N]) -> Volumes {
        let mut volumes = Volumes::default();
        volumes.begin();
        let attachment = |(volume, node): (&str, &str)| {
            let attachment = json!({"metadata": {"name": format!("{volume}-{node}"), "uid": volume},
                "spec": {"attacher": "csi", "nodeName": node, "source": {"persistentVolumeName": volume}},
                "status": {"attached": true}});
            Change::Listed(serde_json::from_value(attachment).expect("it is a VolumeAttachment"))
        };
        let all = attached.into_iter().map(attachment);
        for change in [Change::Restarted].into_iter().chain(all).chain([Change::Synced]) {
            drop(volumes.apply(change));
        }
        volumes
    }

    fn names(pods: &[PodRef]) -> Vec<&str> {
        pods.iter().map(|pod| pod.name.as_str()).collect()
    }

    fn claim() -> Value {
        json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})
    }

    /// A pod may have been scheduled between the list and the cordon.
    #[test]
    fn an_empty_list_is_certain_only_of_a_closed_node_and_where_pods_are_watched() {
        assert!(listed([]).may_have_missed_pods());
        assert!(!listed([]).of_closed(true).may_have_missed_pods());
        let mut watched = listed([pod("a", json!({}))]);
        watched.observe(Change::Deleted(pod("a", json!({}))), now());
        assert_eq!(watched.emptied(), Some(now()));
        assert!(!watched.may_have_missed_pods());
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
        assert_eq!(names(&drain.due(&known([]), &settings(), now())), ["plain"]);
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
    fn a_refusal_in_the_same_words_says_what_it_said_before() {
        let web = pod("web", json!({}));
        let mut drain = listed([web.clone()]);
        let (web, words) = (reference(&web), "needs 2 healthy pods and has 2 currently");
        assert_eq!(drain.refused(&web, words), None);
        let misconfigured = Removal::Misconfigured {
            fault: "it allows none".to_owned(),
            words: words.to_owned(),
        };
        drain.tried(&web, misconfigured.clone(), now());
        assert_eq!(drain.refused(&web, words), Some(&misconfigured));
        assert_eq!(drain.refused(&web, "needs 2 healthy pods and has 1 currently"), None);
    }

    #[test]
    fn a_pod_that_is_refused_is_tried_again_after_pauses_that_grow_to_twenty_seconds() {
        let mut drain = listed([pod("plain", json!({}))]);
        let pods = drain.due(&known([]), &settings(), now());
        let (mut at, mut pauses) = (now(), Vec::new());
        for _ in 0..7 {
            drain.tried(&pods[0], Removal::OverBudget("no".to_owned()), at);
            assert!(drain.due(&known([]), &settings(), at).is_empty());
            let again = drain.again_at(&known([]), &settings(), at).expect("it is tried again");
            pauses.push(again.duration_since(at).as_secs());
            at = again;
            assert_eq!(names(&drain.due(&known([]), &settings(), at)), ["plain"]);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20]);
        let blocker = drain.blocker().expect("it is refused");
        assert_eq!(blocker.pod.to_string(), "default/plain");
    }

    /// Rows: pains 56.
    #[test]
    fn pods_with_volumes_go_a_few_at_a_time_and_others_do_not_wait_for_them() {
        let many = (0..30).map(|number| pod(&format!("db-{number:02}"), claim()));
        let drain = listed(many.chain([pod("web", json!({}))]));
        let due = drain.due(&known([]), &settings(), now());
        assert_eq!(due.len(), VOLUMES_AT_ONCE + 1);
        assert!(names(&due).contains(&"web"));
    }

    #[test]
    fn a_namesake_is_another_pod_and_the_end_of_the_last_one_is_remembered() {
        let mut drain = listed([pod("web-0", json!({}))]);
        let pods = drain.due(&known([]), &settings(), now());
        drain.tried(&pods[0], Removal::Accepted, now());
        assert!(drain.due(&known([]), &settings(), now()).is_empty());
        let newer = json!({"metadata": {"uid": "other", "resourceVersion": "9"}});
        drain.observe(Change::Applied(pod("web-0", newer.clone())), now());
        assert_eq!(drain.due(&known([]), &settings(), now()).len(), 1);
        drain.observe(Change::Deleted(pod("web-0", newer)), now());
        assert_eq!(drain.emptied(), Some(now()));
    }

    /// Rows: W28.
    #[test]
    fn the_next_pods_with_volumes_wait_until_those_of_the_last_are_attached_elsewhere_or_their_time_is_over() {
        let many = (0..=VOLUMES_AT_ONCE).map(|number| pod(&format!("db-{number:02}"), claim()));
        let mut drain = listed(many);
        let (settings, here) = (settings(), known([("pv", "n")]));
        let first = drain.due(&here, &settings, now());
        for pod in &first {
            drain.takes_along(pod, vec![VolumeName::new("pv")], &here);
            drain.tried(pod, Removal::Accepted, now());
            let gone = json!({"metadata": {"resourceVersion": "2"}});
            let gone = self::pod(&pod.name, gone);
            drain.observe(Change::Deleted(gone), now());
        }
        assert!(drain.due(&here, &settings, now()).is_empty(), "none is detached");
        assert!(drain.due(&known([]), &settings, now()).is_empty(), "none has arrived");
        let elsewhere = known([("pv", "other")]);
        assert_eq!(names(&drain.due(&elsewhere, &settings, now())), ["db-10"]);
        let late = later(now(), settings.detach_timeout);
        assert_eq!(
            names(&drain.due(&here, &settings, late)),
            ["db-10"],
            "their time is over"
        );
        assert_eq!(drain.again_at(&here, &settings, now()), Some(late));
    }

    /// Rows: W29.
    #[test]
    fn a_claim_that_lives_as_long_as_its_pod_is_a_volume_like_any_other() {
        let volumes = json!([
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "db"}},
            {"name": "settings", "configMap": {"name": "settings"}},
        ]);
        let many =
            (0..=VOLUMES_AT_ONCE).map(|number| pod(&format!("db-{number:02}"), json!({"spec": {"volumes": volumes}})));
        let drain = listed(many);
        let due = drain.due(&known([]), &settings(), now());
        assert_eq!(due.len(), VOLUMES_AT_ONCE, "they go a few at a time");
        assert_eq!(due[0].claims, ["db-00-scratch", "db"]);
    }

    /// Rows: W29.
    #[test]
    fn important_pods_go_first() {
        let drain = listed([pod("a", json!({})), pod("b", json!({"spec": {"priority": 1000}}))]);
        assert_eq!(names(&drain.due(&known([]), &settings(), now())), ["b", "a"]);
    }
}
