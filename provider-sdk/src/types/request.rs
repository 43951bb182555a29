//! What the manager asks, one struct a call. Required fields and sizes are already checked (`validate.rs`).
//!
//! A request that holds secrets has no `Debug`; log its `key`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{MachineClass, MachineKey, Secrets, UserData};

/// What is known about a call besides its request.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Context {
    /// When the caller stops waiting, from its `grpc-timeout`. The work itself is not stopped then: a mutating call
    /// goes on in its own task, and the caller's repeat joins it. Use it to bound single requests to the provider.
    pub deadline: Option<Instant>,
}

impl Context {
    /// A context with a deadline, for tests of a driver without a server.
    pub fn with_deadline(deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
        }
    }

    /// Time left until the deadline; `None` without one, zero when it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// Request of `create_machine`.
#[derive(Clone)]
pub struct CreateMachine {
    /// The Machine.
    pub key: MachineKey,
    /// Its recipe.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// Boot configuration, byte for byte the same while an earlier outcome is unknown.
    pub user_data: UserData,
    /// Tags that the VM must carry from its first moment, never empty. A driver that stores all of them finds the VM again by
    /// `millwright/cluster` and `millwright/uid`.
    pub tags: BTreeMap<String, String>,
    /// Digest of what the manager made the request of. Store it as a tag, and compare it by [`is_made_of`](Self::is_made_of). Empty: the
    /// caller does not know it.
    pub spec_digest: String,
    /// What an earlier answer said to remember.
    pub last_known_state: String,
}

impl CreateMachine {
    /// Whether a VM with that digest is the one that is asked for: the digests are equal, or one of them is not known. If not, the call
    /// fails with `SPEC_CONFLICT`.
    pub fn is_made_of(&self, spec_digest: &str) -> bool {
        is_same_spec(&self.spec_digest, spec_digest)
    }
}

/// Whether two digests are equal, or one of them is not known.
pub(crate) fn is_same_spec(one: &str, other: &str) -> bool {
    one == other || one.is_empty() || other.is_empty()
}

/// Request of `initialize_machine`.
#[derive(Clone)]
pub struct InitializeMachine {
    /// The Machine.
    pub key: MachineKey,
    /// Hint; may be empty.
    pub provider_id: String,
    /// Its recipe.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// What an earlier answer said to remember.
    pub last_known_state: String,
}

/// Request of `delete_machine`.
#[derive(Clone)]
pub struct DeleteMachine {
    /// The Machine. `uid` is empty only for a VM that bears none; `provider_id` is set then.
    pub key: MachineKey,
    /// Hint; empty if the manager never learned it.
    pub provider_id: String,
    /// For region and credentials. The VM may have been made of an older spec.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// What an earlier answer said to remember.
    pub last_known_state: String,
}

/// Request of `get_machine_status`.
#[derive(Clone)]
pub struct GetMachineStatus {
    /// The Machine.
    pub key: MachineKey,
    /// Hint; may be empty or wrong.
    pub provider_id: String,
    /// For region and credentials.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
}

/// Request of `list_machines`.
#[derive(Clone)]
pub struct ListMachines {
    /// Whose VMs.
    pub cluster_id: String,
    /// For region and credentials.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// At most this many machines: 1 to 1000, defaults are filled in.
    pub page_size: usize,
    /// Empty for the first page, else the `next_cursor` of the page before. The SDK has checked that it belongs to
    /// this cluster and class.
    pub cursor: String,
}

/// Request of `watch_machines`.
#[derive(Clone)]
pub struct WatchMachines {
    /// Whose VMs.
    pub cluster_id: String,
    /// For region and credentials.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// Empty: start with all VMs. Else the last `resume_token` that the manager saw.
    pub resume_token: String,
}

/// Request of `get_volume_ids`.
#[derive(Clone, Debug)]
pub struct GetVolumeIds {
    /// At most 1000.
    pub volumes: Vec<VolumeSpec>,
}

/// One persistent volume, as much as a driver needs of it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// The PersistentVolume's name.
    pub name: String,
    /// `None`: a source that this SDK does not know.
    pub source: Option<VolumeSource>,
}

/// Where a volume comes from.
#[derive(Clone, Debug)]
pub enum VolumeSource {
    /// `spec.csi` of the PersistentVolume.
    Csi {
        /// The CSI driver's name.
        driver: String,
        /// The CSI driver's id of the volume.
        volume_handle: String,
        /// Attributes given at its creation.
        volume_attributes: BTreeMap<String, String>,
    },
    /// A source of the days before CSI.
    InTree {
        /// Its field in the PersistentVolume, for example `awsElasticBlockStore`.
        plugin: String,
        /// That field's value.
        spec: Value,
    },
}

/// Request of `validate_machine_class`.
#[derive(Clone)]
pub struct ValidateMachineClass {
    /// The class to check.
    pub machine_class: MachineClass,
    /// The class's credentials; may be empty if `live` is false.
    pub secrets: Secrets,
    /// Whether to ask the provider, too. With `false` no provider call is made.
    pub live: bool,
}

/// Request of `node_template`.
#[derive(Clone)]
pub struct GetNodeTemplate {
    /// The class.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
}
