//! One pod of a Node that is drained: what is kept of it, and whether it has to go.

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus, Volume};

use crate::api::meta;
use crate::ids::{Name, Uid};
use crate::store::{NoIndex, Stored};

/// A static pod of the kubelet, which the API server only mirrors.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How many seconds a pod has to end that does not say otherwise, as the API server's default.
const DEFAULT_GRACE: i64 = 30;

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
    /// Its labels: budgets speak of it by these.
    pub labels: BTreeMap<String, String>,
    /// How long it may take to end.
    pub grace: SignedDuration,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The pod, as a request names it.
pub fn reference(pod: &Pod) -> PodRef {
    let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    PodRef {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: meta::name(&pod.metadata).to_owned(),
        uid: pod.uid(),
        claims: claims(pod),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        grace: SignedDuration::from_secs(grace.unwrap_or(DEFAULT_GRACE).max(0)),
    }
}

/// Whether the pod must be gone before its Node is drained: not one that has finished, a static one, or one of a DaemonSet. A pod that was
/// asked to end must go even if its phase says that it has finished: its kubelet may not have unmounted its volumes.
pub(super) fn must_go(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_finished = matches!(phase, Some("Succeeded" | "Failed")) && !meta::is_deleting(&pod.metadata);
    let is_mirror = meta::annotation(&pod.metadata, MIRROR).is_some();
    let is_of_daemon = meta::controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "DaemonSet");
    !is_finished && !is_mirror && !is_of_daemon
}

/// Whether it has volumes that can be attached to another Node.
pub(super) fn has_claims(pod: &Pod) -> bool {
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
            termination_grace_period_seconds: spec.termination_grace_period_seconds,
            ..PodSpec::default()
        });
        self.status = Some(PodStatus {
            phase,
            ..PodStatus::default()
        });
    }
}
