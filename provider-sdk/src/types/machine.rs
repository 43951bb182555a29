//! A VM and the Machine that it belongs to.

use jiff::Timestamp;

/// Names one Machine. Immutable for the Machine's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineKey {
    /// The ownership domain. A driver never shows, changes or deletes a VM tagged with another `cluster_id`.
    pub cluster_id: String,
    /// The Machine object's namespace.
    pub namespace: String,
    /// The Machine object's name.
    pub name: String,
    /// The Machine object's uid: the idempotency token of every call. Empty only in [`DeleteMachine`] of a VM that
    /// bears none, and in answers about such a VM.
    ///
    /// [`DeleteMachine`]: crate::DeleteMachine
    pub uid: String,
}

impl MachineKey {
    /// Whether that is another Machine of the same name, in the same namespace and cluster: its VM keeps this one from being made
    /// (`NAME_CONFLICT`). A VM without a uid was made by an older controller and is no namesake but the Machine's own.
    pub fn is_namesake(&self, other: &Self) -> bool {
        let is_same_name =
            self.cluster_id == other.cluster_id && self.namespace == other.namespace && self.name == other.name;
        let has_uids = !self.uid.is_empty() && !other.uid.is_empty();
        is_same_name && has_uids && self.uid != other.uid
    }
}

/// Where a VM is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MachineState {
    /// Accepted by the provider, not yet powered on.
    Creating,
    /// Powered on. Says nothing about the node.
    Running,
    /// Exists and is powered off, with no change under way.
    Stopped,
    /// Being removed.
    Deleting,
    /// Gone. Only in watch events.
    Deleted,
    /// Will not become running. The manager deletes it.
    Failed,
}

/// Whether `initialize_machine` has work to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Initialization {
    /// The driver has no such step.
    #[default]
    NotNeeded,
    /// `initialize_machine` must be called.
    Pending,
    /// Done.
    Done,
}

/// How the VM is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CapacityType {
    /// At the list price, as long as wanted.
    OnDemand,
    /// Cheaper, and may be reclaimed.
    Spot,
    /// Of capacity reserved beforehand.
    Reserved,
}

/// What kind of disturbance was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterruptionKind {
    /// Spot or preemptible capacity is being reclaimed.
    Reclaim,
    /// Host maintenance that stops or moves the VM.
    Maintenance,
    /// The provider advises replacement (rebalance, degraded hardware).
    Advisory,
}

/// An announced disturbance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// What will happen.
    pub kind: InterruptionKind,
    /// When, if known.
    pub effective_time: Option<Timestamp>,
    /// For people.
    pub message: String,
}

/// Type of a node's address, as in core/v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of core/v1 NodeAddress")]
pub enum AddressType {
    Hostname,
    InternalIp,
    ExternalIp,
    InternalDns,
    ExternalDns,
}

/// One address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    /// What the address is.
    pub kind: AddressType,
    /// The address.
    pub address: String,
}

/// A VM as the driver sees it. Build one with [`Machine::new`] and set what is known beyond that:
/// `Machine { zone, ..Machine::new(key, id, state) }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// From the VM's tags. `uid` is empty if an older controller made the VM; `name` is empty if the tags are lost.
    pub key: MachineKey,
    /// Equal to the node's `spec.providerID`, up to 512 bytes. Constant from first sight. Empty only while the state
    /// is `Creating` at a provider that gives ids late.
    pub provider_id: String,
    /// Name that the node will register with. Required from `Running` on.
    pub node_name: String,
    /// Where the VM is in its life.
    pub state: MachineState,
    /// The provider's own word for the state. Never parsed.
    pub state_reason: String,
    /// A sentence for people. The SDK cuts it to 1 KiB.
    pub state_message: String,
    /// Whether `initialize_machine` must be called.
    pub initialization: Initialization,
    /// Addresses of the node to be.
    pub addresses: Vec<NodeAddress>,
    /// Name of the MachineClass that the VM was made of, from its tags; empty if lost.
    pub machine_class: String,
    /// `spec_digest` that the VM was made with, from its tags; empty if lost.
    pub spec_digest: String,
    /// When the provider accepted the VM. Required in [`MachinePage`](crate::MachinePage): the manager takes no young
    /// VM for an orphan.
    pub create_time: Option<Timestamp>,
    /// Region, as the provider names it.
    pub region: String,
    /// Zone, as the provider names it.
    pub zone: String,
    /// Size or type, as the provider names it.
    pub instance_type: String,
    /// How the VM is paid for, if known.
    pub capacity_type: Option<CapacityType>,
    /// Set when the provider has announced that it will take the VM away or disturb it.
    pub interruption: Option<Interruption>,
    /// Opaque to the manager, stored in the Machine's status and sent back. Up to 4 KiB.
    pub last_known_state: String,
    /// Volume ids attached now, in the form of `get_volume_ids`. Complete if the capability `AttachedVolumes` is told.
    pub attached_volume_ids: Vec<String>,
}

impl Machine {
    /// A VM with its required fields; everything else is empty.
    pub fn new(key: MachineKey, provider_id: impl Into<String>, state: MachineState) -> Self {
        Self {
            key,
            provider_id: provider_id.into(),
            node_name: String::new(),
            state,
            state_reason: String::new(),
            state_message: String::new(),
            initialization: Initialization::NotNeeded,
            addresses: Vec::new(),
            machine_class: String::new(),
            spec_digest: String::new(),
            create_time: None,
            region: String::new(),
            zone: String::new(),
            instance_type: String::new(),
            capacity_type: None,
            interruption: None,
            last_known_state: String::new(),
            attached_volume_ids: Vec::new(),
        }
    }
}
