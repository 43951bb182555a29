//! Pods of Nodes: they run, are held by a budget, do not end, or go when they are evicted.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use millwright_core::api::meta;
use millwright_core::change::Change;
use millwright_core::drain::{PodRef, Removal};
use millwright_core::ids::{Name, NodeName, Uid, VolumeName};
use serde_json::json;

use crate::stage::Stage;

/// What a budget says where it lets nothing go, as the API server puts it.
const HELD: &str = "The disruption budget web needs 2 healthy pods and has 2 currently";

/// What is wrong with a budget that never lets anything go.
const MISHELD: &str = "the PodDisruptionBudget web wants 2 of 2 pods healthy, and they are";

/// What the manager makes of a 429 that no budget gave.
const BUSY: &str = "the API server did not answer the write: too many requests (HTTP 429)";

/// How many seconds a pod has to end.
const GRACE: i64 = 30;

/// How a pod takes its eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Goes,
    /// A budget does not let it go.
    Held,
    /// A budget never lets it go.
    Misheld,
    /// The API server has too much to do to evict it.
    Throttled,
    /// It is asked to end, and does not.
    Stuck,
}

/// All pods, by name.
#[derive(Debug, Default)]
pub struct Pods {
    all: BTreeMap<String, Placed>,
    attachments: BTreeMap<String, VolumeAttachment>,
    version: u64,
}

#[derive(Debug)]
struct Placed {
    machine: Name,
    pod: Pod,
    manner: Manner,
}

impl Stage {
    /// `pod NAME runs on MACHINE [with volume] [of daemon]`
    pub fn run_pod(&mut self, name: &str, machine: &str, how: &[&str]) {
        self.pods.version += 1;
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("pod-{name}-{}", self.pods.version)},
            "spec": {"containers": []},
            "status": {"phase": "Running"},
        }))
        .expect("it is a Pod");
        if how.contains(&"volume") {
            let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
            pod.spec.get_or_insert_default().volumes = serde_json::from_value(volumes).expect("these are volumes");
        }
        if how.contains(&"daemon") {
            let owners =
                json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
            pod.metadata.owner_references = serde_json::from_value(owners).expect("these are owners");
        }
        let (machine, manner) = (Name::new(machine), Manner::Goes);
        self.pods.all.insert(name.to_owned(), Placed { machine, pod, manner });
        self.show_pod(name);
    }

    /// `pod NAME is held | misheld | throttled | free | stuck | failed | gone`
    pub fn treat_pod(&mut self, name: &str, how: &str) -> Option<()> {
        let manner = match how {
            "held" => Manner::Held,
            "misheld" => Manner::Misheld,
            "throttled" => Manner::Throttled,
            "free" => Manner::Goes,
            "stuck" => Manner::Stuck,
            "gone" => return self.end_pod(name),
            "failed" => {
                let placed = self.pods.all.get_mut(name)?;
                placed.pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
                self.show_pod(name);
                return Some(());
            }
            _ => return None,
        };
        self.pods.all.get_mut(name)?.manner = manner;
        Some(())
    }

    /// The watch of a Node's pods begins, and lists.
    pub fn watch_pods(&mut self, machine: &Name, uid: &Uid, node: &NodeName) -> bool {
        let (now, uptime) = (self.now(), self.uptime);
        let is_new = self.world.drains(machine, uid, node, now);
        let all = self.pods.all.values().filter(|placed| placed.machine == *machine);
        let all = all.map(|placed| Change::Listed(placed.pod.clone())).filter(|_| is_new);
        for change in [Change::Restarted].into_iter().chain(all).chain([Change::Synced]) {
            self.world.see_pods(machine, uid, change, now, uptime);
        }
        if self.world.needs_no_watch(uid) {
            self.world.watches_no_pods(uid);
        }
        true
    }

    /// Evictions, as the API server answers them.
    pub fn evict(&mut self, uid: &Uid, pods: &[PodRef]) -> bool {
        for pod in pods {
            let manner = self.pods.all.get(&pod.name).map(|placed| placed.manner);
            let removal = match manner {
                Some(Manner::Held) => Removal::OverBudget(HELD.to_owned()),
                Some(Manner::Misheld) => Removal::Misconfigured {
                    fault: MISHELD.to_owned(),
                    words: String::new(),
                },
                Some(Manner::Throttled) => Removal::Failed(BUSY.to_owned()),
                Some(Manner::Goes | Manner::Stuck) | None => Removal::Accepted,
            };
            if removal == Removal::Accepted {
                self.take_along(uid, pod);
            }
            self.note_removal(uid, pod, removal);
            match manner {
                Some(Manner::Goes) => drop(self.end_pod(&pod.name)),
                Some(Manner::Stuck) => self.begin_end(&pod.name),
                Some(Manner::Held | Manner::Misheld | Manner::Throttled) | None => {}
            }
        }
        true
    }

    /// Which volumes pods use that stay.
    pub fn learn_volumes(&mut self, machine: &Name, uid: &Uid, pods: &[PodRef]) -> bool {
        let volumes = pods.iter().flat_map(|pod| &pod.claims).map(VolumeName::new).collect();
        self.world.found_staying(machine, uid, volumes, self.uptime);
        true
    }

    /// Deletions, with grace or without: nothing withstands them.
    pub fn delete_pods(&mut self, uid: &Uid, pods: &[PodRef], grace: SignedDuration) -> bool {
        for pod in pods {
            self.note_removal(uid, pod, Removal::Accepted);
            let _gone = self.end_pod(&pod.name);
        }
        if let Some(drain) = self.world.ledger.drains.get_mut(uid).filter(|_| grace.is_zero()) {
            drain.is_forced = true;
        }
        true
    }

    /// `volume NAME is attached to MACHINE | volume NAME is detached from MACHINE`
    pub fn attach(&mut self, volume: &str, machine: &str, is_attached: bool) {
        self.pods.version += 1;
        let name = format!("csi-{volume}-{machine}");
        let attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": self.pods.version.to_string()},
            "spec": {"attacher": "csi", "nodeName": machine, "source": {"persistentVolumeName": volume}},
            "status": {"attached": true},
        }))
        .expect("it is a VolumeAttachment");
        let change = match is_attached {
            true => Change::Applied(attachment.clone()),
            false => Change::Deleted(attachment.clone()),
        };
        self.pods.attachments.remove(&name);
        if is_attached {
            self.pods.attachments.insert(name, attachment);
        }
        if self.world.volumes.is_watched() {
            self.world.see_volumes(change, self.uptime);
        }
    }

    /// The watch of attachments begins, and lists.
    pub fn watch_volumes(&mut self) -> bool {
        if !self.world.volumes.begin() {
            return true;
        }
        let all = self.pods.attachments.values().cloned().map(Change::Listed);
        let changes: Vec<_> = [Change::Restarted]
            .into_iter()
            .chain(all)
            .chain([Change::Synced])
            .collect();
        for change in changes {
            self.world.see_volumes(change, self.uptime);
        }
        true
    }

    /// VolumeAttachments are deleted: whoever detaches does it at once.
    pub fn detach(&mut self, attachments: &[(Name, Uid)]) -> bool {
        for (name, _) in attachments {
            if let Some(attachment) = self.pods.attachments.remove(name.as_str()) {
                self.world.see_volumes(Change::Deleted(attachment), self.uptime);
            }
        }
        true
    }

    /// The volumes of a pod are named as its claims.
    fn take_along(&mut self, uid: &Uid, pod: &PodRef) {
        let volumes = pod.claims.iter().map(VolumeName::new).collect();
        if let Some(drain) = self.world.ledger.drains.get_mut(uid) {
            drain.takes_along(pod, volumes, &self.world.volumes);
        }
    }

    fn note_removal(&mut self, uid: &Uid, pod: &PodRef, removal: Removal) {
        let now = self.now();
        if let Some(drain) = self.world.ledger.drains.get_mut(uid) {
            drain.tried(pod, removal, now);
        }
    }

    fn begin_end(&mut self, name: &str) {
        let now = self.now();
        if let Some(placed) = self.pods.all.get_mut(name) {
            placed.pod.metadata.deletion_timestamp = Some(Time(now + SignedDuration::from_secs(GRACE)));
            placed.pod.metadata.deletion_grace_period_seconds = Some(GRACE);
        }
        self.show_pod(name);
    }

    fn end_pod(&mut self, name: &str) -> Option<()> {
        let placed = self.pods.all.remove(name)?;
        self.tell_watch(&placed.machine, Change::Deleted(placed.pod));
        Some(())
    }

    /// The watch brings the pod as it is now.
    fn show_pod(&mut self, name: &str) {
        self.pods.version += 1;
        let version = self.pods.version;
        let Some(placed) = self.pods.all.get_mut(name) else {
            return;
        };
        placed.pod.metadata.resource_version = Some(version.to_string());
        let (machine, change) = (placed.machine.clone(), Change::Applied(placed.pod.clone()));
        self.tell_watch(&machine, change);
    }

    fn tell_watch(&mut self, machine: &Name, change: Change<Pod>) {
        let (now, uptime): (Timestamp, _) = (self.now(), self.uptime);
        let known = self.world.machines.get(machine);
        let uid = known.map(|machine| meta::identity(&machine.metadata).1);
        let is_watched = |uid: &Uid| self.world.ledger.drains.get(uid).is_some_and(|drain| drain.is_watched);
        if let Some(uid) = uid.filter(is_watched) {
            self.world.see_pods(machine, &uid, change, now, uptime);
        }
    }
}
