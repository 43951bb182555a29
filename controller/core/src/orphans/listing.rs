//! What a look at a provider brought: its VMs, and whether these are all. Decides nothing.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;

use crate::ids::{Name, NodeName, ProviderId, Uid};

/// A VM of a listing, with what its tags say of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The cluster that it is tagged with; empty if the tag is lost.
    pub cluster_id: String,
    /// The namespace of its Machine; empty if the tag is lost.
    pub namespace: String,
    /// The name of its Machine. `None`: the tag is lost.
    pub name: Option<Name>,
    /// The uid of its Machine. `None`: an older controller made it.
    pub uid: Option<Uid>,
    /// The VM's id. `None` while it is created at a provider that gives ids late.
    pub provider_id: Option<ProviderId>,
    /// The name that its node registers with.
    pub node_name: Option<NodeName>,
    /// Where it stands; empty if the driver does not say.
    pub zone: String,
    /// Whether the provider shows it as stopped, failed or going.
    pub is_down: bool,
    /// When the provider accepted it, by the provider's clock. `None` breaks the contract.
    pub created: Option<Timestamp>,
}

impl Sighting {
    /// The VM and its owner, for people.
    pub fn text(&self) -> String {
        let id = self.provider_id.as_ref().map_or("(no id)", ProviderId::as_str);
        let name = self.name.as_ref().map_or("(lost)", Name::as_str);
        let uid = self.uid.as_ref().map_or("(none)", Uid::as_str);
        format!("VM {id}, tagged with Machine {name}, uid {uid}")
    }
}

/// One look at all VMs that one inventory reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// When its first page was asked for.
    pub begun: Timestamp,
    /// When its last page had come.
    pub ended: Timestamp,
    /// The VMs, some of them perhaps twice.
    pub vms: Vec<Sighting>,
    /// Why these may not be all. `None`: they are.
    pub gap: Option<Gap>,
}

impl Listing {
    /// The VMs that run or may yet. Where a driver cannot watch, a Machine without a Node has no other witness than the listing: one whose VM
    /// is down is asked for as if the VM were missing.
    pub fn up(&self) -> BTreeSet<ProviderId> {
        let up = self.vms.iter().filter(|vm| !vm.is_down);
        up.filter_map(|vm| vm.provider_id.clone()).collect()
    }
}

/// Why a listing is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Zones, regions or accounts that could not be asked.
    Unreachable(Vec<String>),
    /// A page did not come, or the listing was never begun.
    Failed(String),
}

impl Gap {
    /// As metrics say it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Failed(_) => "failed",
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(places) => write!(f, "could not be asked: {}", places.join(", ")),
            Self::Failed(why) => f.write_str(why),
        }
    }
}
