//! A VM and the Machine that it belongs to.

use jiff::Timestamp;
use millwright_proto::is_same_name;
use sha2::{Digest as _, Sha256};

use super::Identity;

/// The longest name of a node that is a label value, too.
pub(crate) const NODE_NAME_MAX: usize = 63;

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
    /// A name for the Machine's node, where the node may be named after the Machine: the Machine's own, or where that is longer than a node's name
    /// may be, its start and 12 hex digits that tell it from others.
    ///
    /// Machines of one name in two namespaces have the same one: it is for clusters whose Machines are in one namespace (GEN-51).
    pub fn node_name(&self) -> String {
        if self.name.len() <= NODE_NAME_MAX {
            return self.name.clone();
        }
        let hash = Sha256::digest(format!("{}/{}/{}", self.cluster_id, self.namespace, self.name));
        let digits: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let start = self.name.get(..NODE_NAME_MAX - 1 - digits.len()).unwrap_or_default();
        format!("{}-{digits}", start.trim_end_matches(['-', '.']))
    }

    /// Whether that is another Machine of the same name, in the same namespace and cluster: its VM keeps this one from being made
    /// (`NAME_CONFLICT`). A VM without a uid was made by an older controller and is no namesake but the Machine's own.
    ///
    /// Either key may have been read from tags, which hold the start of a name of more than 63 bytes (CRE-12).
    pub fn is_namesake(&self, other: &Self) -> bool {
        self.namespace == other.namespace && self.may_be_restored_from(other)
    }

    /// Whether a VM of that key may have been this Machine's before the Machine was restored from a backup (GET-5): it bears the same cluster
    /// and name, and another uid. A restore may also change the namespace: the manager knows whether it did.
    ///
    /// Names are compared as by [`is_namesake`](Self::is_namesake).
    pub fn may_be_restored_from(&self, other: &Self) -> bool {
        let is_same_name = self.cluster_id == other.cluster_id && is_same_name(&self.name, &other.name);
        is_same_name && self.is_other_uid(other)
    }

    fn is_other_uid(&self, other: &Self) -> bool {
        let has_uids = !self.uid.is_empty() && !other.uid.is_empty();
        has_uids && self.uid != other.uid
    }
}

/// Where a VM is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
pub struct Interruption {
    /// What will happen.
    pub kind: InterruptionKind,
    /// When, if known.
    pub effective_time: Option<Timestamp>,
    /// For people.
    pub message: String,
}

impl Interruption {
    /// What will happen, in a sentence for people.
    pub fn new(kind: InterruptionKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            effective_time: None,
            message: message.into(),
        }
    }
}

/// Type of a node's address, as in core/v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of core/v1 NodeAddress")]
#[non_exhaustive]
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

/// A VM as the driver sees it. Build one with [`Machine::new`] or [`Machine::of`] and set what is known beyond that: `vm.zone = zone;`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Machine {
    /// From the VM's tags. `uid` is empty if an older controller made the VM, and so is `namespace` in lists and watches (GEN-6); `name` is
    /// empty if the tags are lost.
    pub key: MachineKey,
    /// Equal to the node's `spec.providerID`, up to 512 bytes without control characters. Constant from first sight. Empty only while the state
    /// is `Creating` at a provider that gives ids late.
    pub provider_id: String,
    /// Name that the node will register with: at most 63 bytes of `a-z`, `0-9`, `-` and `.`, each part between dots beginning and ending with a
    /// letter or digit. Required from `Running` on.
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
}

impl Machine {
    /// A VM with what its tags say of it: key, class and digest.
    pub fn of(identity: Identity, provider_id: impl Into<String>, state: MachineState) -> Self {
        Self {
            machine_class: identity.machine_class,
            spec_digest: identity.spec_digest,
            ..Self::new(identity.key, provider_id, state)
        }
    }

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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CreateMachine, MachineClass};

    #[test]
    fn a_long_name_of_a_machine_becomes_a_short_one_of_a_node_and_stays_unique() {
        let key = |name: String| MachineKey {
            name,
            ..MachineKey::default()
        };
        let start = "a".repeat(49);
        let (one, other) = (
            key(format!("{start}.{}", "b".repeat(200))),
            key(format!("{start}.{}", "c".repeat(200))),
        );
        let name = one.node_name();
        assert!(name.len() <= 63 && name.starts_with(&format!("{start}-")), "{name}");
        assert_ne!(name, other.node_name());
        assert_eq!(name, one.node_name());
        assert_eq!(key("m.1".to_owned()).node_name(), "m.1");
    }

    /// A driver reads its VMs' keys from tags, which hold the start of a long name.
    #[test]
    fn a_vm_whose_tags_hold_the_start_of_a_long_name_is_a_namesake_and_may_be_handed_over() {
        let key = |uid: &str| MachineKey {
            cluster_id: "dev".into(),
            namespace: "default".into(),
            name: format!("{}.{}", "a".repeat(62), "b".repeat(20)),
            uid: uid.into(),
        };
        let request = CreateMachine::new(key("before"), MachineClass::default());
        let tagged = Identity::from_tags(&request.tags).key;
        assert!(tagged.name.len() < 63);
        let (now, same) = (key("now"), key("before"));
        assert!(tagged.is_namesake(&now) && now.is_namesake(&tagged), "NAME_CONFLICT");
        assert!(now.may_be_restored_from(&tagged), "GET-5");
        assert!(!tagged.is_namesake(&same) && !same.may_be_restored_from(&tagged));
        let elsewhere = MachineKey {
            namespace: "other".into(),
            ..now.clone()
        };
        assert!(!tagged.is_namesake(&elsewhere) && elsewhere.may_be_restored_from(&tagged));
        let whole = MachineKey {
            name: format!("{}c", now.name),
            ..now.clone()
        };
        assert!(!whole.is_namesake(&same), "two whole names differ");
    }
}
