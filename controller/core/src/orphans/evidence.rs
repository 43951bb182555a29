//! The evidence that a VM is of no Machine, from the second complete listing to the permit. Each stage consumes the one before.
//!
//! Two complete listings make [`Evidence`] (`orphans::plan` alone does); a live read of the Machine that the VM is tagged with makes
//! of it a [`Proof`], for one permit. Where the read finds the Machine, or one that claims the VM, the evidence is gone and the protocol begins anew.

use std::fmt;

use jiff::Timestamp;

use super::listing::Sighting;
use crate::api::Machine;
use crate::ids::Name;

/// Two complete listings showed the VM, and no Machine that is known owns it. Not `Clone`: it serves for one deletion.
#[derive(Debug, PartialEq, Eq)]
pub struct Evidence {
    vm: Sighting,
    machine: Name,
    first: Timestamp,
    second: Timestamp,
}

/// It was read live as well. Not `Clone`.
#[derive(Debug, PartialEq, Eq)]
pub struct Proof(Evidence);

/// Why a VM stays although two listings and the watch took it for one of no Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spared {
    /// Its Machine is there.
    Lives(Name),
    /// A Machine of another uid names the VM as its own: it was restored from somewhere else.
    Claimed(Name),
}

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lives(name) => write!(f, "Machine {name} is there, although the watch does not show it"),
            Self::Claimed(name) => write!(f, "Machine {name} names the VM as its own"),
        }
    }
}

impl Evidence {
    /// Both listings were complete, `machine` is the name that the VM is tagged with, and the rest of the protocol holds.
    pub(super) fn of(vm: &Sighting, machine: &Name, first: Timestamp, second: Timestamp) -> Self {
        Self {
            vm: vm.clone(),
            machine: machine.clone(),
            first,
            second,
        }
    }

    /// The VM.
    pub fn vm(&self) -> &Sighting {
        &self.vm
    }

    /// The Machine that must be read live: a Machine of the VM's uid can have no other name.
    pub fn machine(&self) -> &Name {
        &self.machine
    }

    /// The two listings, for people.
    pub fn text(&self) -> String {
        format!(
            "seen in two complete listings, of {:.0} and {:.0}",
            self.first, self.second
        )
    }

    /// What the API server itself has just said of that Machine. `None`: there is none of the name.
    pub fn confirm(self, live: Option<&Machine>) -> Result<Proof, Spared> {
        let Some(live) = live else {
            return Ok(Proof(self));
        };
        // A VM without a uid belongs to whatever Machine has its name.
        if self.vm.uid.is_none() || live.uid() == self.vm.uid {
            return Err(Spared::Lives(self.machine));
        }
        if live.provider_id().is_some() && live.provider_id() == self.vm.provider_id {
            return Err(Spared::Claimed(self.machine));
        }
        Ok(Proof(self))
    }
}

impl Proof {
    /// The VM, for the permit that uses the proof up.
    pub(crate) fn into_vm(self) -> Sighting {
        self.0.vm
    }
}
