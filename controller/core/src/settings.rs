//! Numbers and words that an operator may set, with their defaults and the reason of each. Parses nothing.

use jiff::SignedDuration;

/// What decisions may read of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Ownership domain at the provider: a driver never touches a VM of another cluster.
    pub cluster_id: String,
    /// Whether there is a cluster for nodes to join (`--target-kubeconfig none` says no).
    pub has_target: bool,
    /// How long a VM may take to become a healthy node. 20 min, as in the original: slow images and bare metal.
    pub creation_timeout: SignedDuration,
    /// Pause after a driver said that a resource is exhausted, unless the driver names one.
    pub resource_exhausted_retry: SignedDuration,
    /// Whether Nodes of old templates are annotated, so that the autoscaler leaves them to the rollout.
    pub annotates_old_nodes: bool,
    /// Node conditions that make a node unhealthy when they are not `False`.
    pub node_conditions: Vec<String>,
}

impl Settings {
    /// The original's default of `--machine-creation-timeout`.
    pub const CREATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);
    /// The original's default of `--resource-exhausted-retry`.
    pub const RESOURCE_EXHAUSTED_RETRY: SignedDuration = SignedDuration::from_mins(10);
    /// The original's default of `--node-conditions`.
    pub const NODE_CONDITIONS: &'static str = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable";

    /// The defaults for a cluster.
    pub fn new(cluster_id: impl Into<String>) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            has_target: true,
            creation_timeout: Self::CREATION_TIMEOUT,
            resource_exhausted_retry: Self::RESOURCE_EXHAUSTED_RETRY,
            annotates_old_nodes: true,
            node_conditions: Self::NODE_CONDITIONS.split(',').map(str::to_owned).collect(),
        }
    }
}
