//! What a provider tells unasked of a VM (WatchMachines): a notice. Decides which are bad news.
//!
//! A notice is a hint, never a fact: it may be late, doubled or wrong, and it names a VM that may be nobody's. Bad news make the
//! manager ask for the VM (`machine::health`), and only the answer counts. Source: driver.proto, WatchMachines.

use crate::driver::{Disturbance, VmState};
use crate::ids::{Name, ProviderId, Uid};
use crate::machine::Lost;

/// What a driver says unasked of one VM, as its watch or a listing brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Namespace of the VM's Machine.
    pub namespace: String,
    /// Name of its Machine. `None`: the tag is lost.
    pub name: Option<Name>,
    /// Uid of its Machine. `None`: an older controller made it.
    pub uid: Option<Uid>,
    /// The VM's id. `None` while it is created at a provider that gives ids late.
    pub provider_id: Option<ProviderId>,
    /// Its state.
    pub state: VmState,
    /// What the provider has announced that it will do to it.
    pub disturbance: Option<Disturbance>,
}

impl Notice {
    /// Whether the VM does not run, or will not for long.
    pub fn is_bad(&self) -> bool {
        Lost::of(self.state, self.disturbance).is_some()
    }
}
