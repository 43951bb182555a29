//! Numbers and words that an operator may set, with their defaults and the reason of each. Parses nothing.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::api::lenient::{IntOrPercent, Rounding};

/// What decisions may read of the configuration. A leader tells it in its Lease, as JSON; what another version leaves out is at its default.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Ownership domain at the provider: a driver never touches a VM of another cluster.
    pub cluster_id: String,
    /// Tags by which an older controller marked the VMs of this cluster. A VM with all of them and without a uid is the cluster's own.
    pub legacy_marks: BTreeMap<String, String>,
    /// The namespace that the Machines had before they were restored into this one: VMs that bear it are theirs as well.
    pub former_namespace: Option<String>,
    /// Whether there is a cluster for nodes to join (`--target-kubeconfig none` says no).
    pub has_target: bool,
    /// How long a VM may take to become a healthy node. 20 min, as in the original: slow images and bare metal.
    pub creation_timeout: SignedDuration,
    /// How long a node may be unhealthy before its Machine is replaced. 10 min, as in the original.
    pub health_timeout: SignedDuration,
    /// How long the agent on a node may take to update it in place. 20 min, as in the original.
    pub in_place_update_timeout: SignedDuration,
    /// How long pods of a deleted Machine's node may take to go before they are deleted without grace. 2 h, as in the original.
    pub drain_timeout: SignedDuration,
    /// How often an eviction is tried, in steps of 20 s, before the pods are deleted without grace. 360, as in the original.
    pub max_evict_retries: i32,
    /// How long volumes may stay attached to a node whose pods are gone before its VM is removed. 2 min, as in the original.
    pub detach_timeout: SignedDuration,
    /// How long the volumes of an evicted pod may take to be attached elsewhere before the next pods with volumes go. 90 s, as in the
    /// original.
    pub reattach_timeout: SignedDuration,
    /// How long a preserved Machine is kept. 96 h, as in the original: somebody has to find the time to look at it.
    pub preserve_timeout: SignedDuration,
    /// How many unhealthy Machines of a deployment, or of a set without one, are replaced at once: a number, or a part of its size, of
    /// which one is the least. 1: who replaces many at once makes one fault of all into an outage. 0: none.
    pub max_replacements: IntOrPercent,
    /// So many unhealthy Machines of a deployment, or of a set without one, are kept: a number, or a part of those that have joined, of
    /// which three are the least. 55 %, as the node lifecycle controller of Kubernetes: more than half have a common cause.
    pub unhealthy_threshold: IntOrPercent,
    /// The same for the Nodes of one zone that are not ready.
    pub unhealthy_zone_threshold: IntOrPercent,
    /// How often VMs that no Machine owns are looked for. 15 min, as in the original. Zero: never.
    pub orphan_period: SignedDuration,
    /// How old a VM must be that is taken for one of no Machine: no creation is under way for so long. 20 min, the creation timeout's.
    pub orphan_min_age: SignedDuration,
    /// Whether they are only told.
    pub orphan_dry_run: bool,
    /// How many of the VMs of a listing may have no Machine, as number or percent, of which two are the least. More have a common cause,
    /// as Machines that were not restored yet, and none of them is deleted.
    pub max_orphans: IntOrPercent,
    /// Pause after a driver said that a resource is exhausted, unless the driver names one.
    pub resource_exhausted_retry: SignedDuration,
    /// Whether Nodes of old templates are annotated, so that the autoscaler leaves them to the rollout.
    pub annotates_old_nodes: bool,
    /// Node conditions that make a node unhealthy when they are not `False`.
    pub node_conditions: Vec<String>,
    /// Whether Machines of a deployment are available only after its `minReadySeconds`. The original stores the field and does not look at
    /// it.
    pub heeds_min_ready: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new("")
    }
}

impl Settings {
    /// How many unhealthy Machines of so many are replaced at once.
    pub fn replacements_of(&self, replicas: i32) -> usize {
        let count = self.max_replacements.resolve(replicas, Rounding::Up).unwrap_or(1);
        usize::try_from(count).unwrap_or(0)
    }

    /// The original's default of `--machine-safety-orphan-vms-period`.
    pub const ORPHAN_PERIOD: SignedDuration = SignedDuration::from_mins(15);
    /// The default of `--orphan-min-age`.
    pub const ORPHAN_MIN_AGE: SignedDuration = SignedDuration::from_mins(20);
    /// The default of `--max-orphans`.
    pub const MAX_ORPHANS: &'static str = "50%";
    /// The default of `--unhealthy-threshold` and of `--unhealthy-zone-threshold`.
    pub const UNHEALTHY_THRESHOLD: &'static str = "55%";
    /// The original's default of `--machine-creation-timeout`.
    pub const CREATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);
    /// The original's default of `--machine-health-timeout`.
    pub const HEALTH_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);
    /// The original's default of `--machine-inplace-update-timeout`.
    pub const IN_PLACE_UPDATE_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);
    /// The original's default of `--machine-pv-reattach-timeout`.
    pub const REATTACH_TIMEOUT: SignedDuration = SignedDuration::from_secs(90);
    /// The original's default of `--machine-drain-timeout`.
    pub const DRAIN_TIMEOUT: SignedDuration = SignedDuration::from_hours(2);
    /// The original's default of `--machine-preserve-timeout`.
    pub const PRESERVE_TIMEOUT: SignedDuration = SignedDuration::from_hours(96);
    /// The original's default of `--machine-max-evict-retries`.
    pub const MAX_EVICT_RETRIES: i32 = 360;
    /// The original's default of `--machine-pv-detach-timeout`.
    pub const DETACH_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
    /// The original's default of `--resource-exhausted-retry`.
    pub const RESOURCE_EXHAUSTED_RETRY: SignedDuration = SignedDuration::from_mins(10);
    /// The original's default of `--node-conditions`.
    pub const NODE_CONDITIONS: &'static str = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable";

    /// The defaults for a cluster.
    pub fn new(cluster_id: impl Into<String>) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            legacy_marks: BTreeMap::new(),
            former_namespace: None,
            has_target: true,
            creation_timeout: Self::CREATION_TIMEOUT,
            health_timeout: Self::HEALTH_TIMEOUT,
            in_place_update_timeout: Self::IN_PLACE_UPDATE_TIMEOUT,
            drain_timeout: Self::DRAIN_TIMEOUT,
            max_evict_retries: Self::MAX_EVICT_RETRIES,
            detach_timeout: Self::DETACH_TIMEOUT,
            reattach_timeout: Self::REATTACH_TIMEOUT,
            preserve_timeout: Self::PRESERVE_TIMEOUT,
            max_replacements: IntOrPercent::Int(1),
            unhealthy_threshold: IntOrPercent::Text(Self::UNHEALTHY_THRESHOLD.to_owned()),
            unhealthy_zone_threshold: IntOrPercent::Text(Self::UNHEALTHY_THRESHOLD.to_owned()),
            orphan_period: Self::ORPHAN_PERIOD,
            orphan_min_age: Self::ORPHAN_MIN_AGE,
            orphan_dry_run: false,
            max_orphans: IntOrPercent::Text(Self::MAX_ORPHANS.to_owned()),
            resource_exhausted_retry: Self::RESOURCE_EXHAUSTED_RETRY,
            annotates_old_nodes: true,
            node_conditions: Self::NODE_CONDITIONS.split(',').map(str::to_owned).collect(),
            heeds_min_ready: true,
        }
    }
}
