//! What happened to every VM, in order, kept for proof: tests read here that no uid ever had two VMs.
//!
//! Holds only the shape of an entry. Written in the same transaction as the change it tells of.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::vm::{Vm, VmId};

/// A step in a VM's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// The cloud accepted the order.
    Accepted,
    /// The VM powered on, for the first time or again.
    Booted,
    /// Its node was registered.
    Joined,
    /// It was powered off.
    Stopped,
    /// Its deletion was accepted.
    Deleting,
    /// Nothing is left of it.
    Removed,
}

impl Event {
    const ALL: [Self; 6] = [
        Self::Accepted,
        Self::Booted,
        Self::Joined,
        Self::Stopped,
        Self::Deleting,
        Self::Removed,
    ];

    /// The event of this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.word() == word)
    }

    /// The word that JSON and tables show.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Booted => "booted",
            Self::Joined => "joined",
            Self::Stopped => "stopped",
            Self::Deleting => "deleting",
            Self::Removed => "removed",
        }
    }
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When it happened; by the cloud's clock, also if the process noticed later.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
    /// To which VM.
    pub vm_id: VmId,
    /// The Machine's uid.
    pub uid: String,
    /// The owning cluster.
    pub cluster: String,
    /// The Machine's name.
    pub name: String,
}

impl Entry {
    pub(crate) fn of(vm: &Vm, event: Event, at: Timestamp) -> Self {
        Self {
            at,
            event,
            vm_id: vm.id.clone(),
            uid: vm.owner.uid.clone(),
            cluster: vm.owner.cluster.clone(),
            name: vm.owner.name.clone(),
        }
    }
}
