//! The permit without which nothing asks a driver to delete a VM. Decides nothing: it consumes the evidence.
//!
//! `DeleteMachine` is the one call that cannot be taken back, so `driver/call.rs` takes a permit by value and only the
//! functions of this file make one (GE-11). Each names its evidence: that is the list of all reasons
//! for which Millwright ever deletes a VM (S3: no VM is deleted whose Machine is wanted; S6: illness
//! alone is no reason to delete).

use crate::api::{Machine, meta};
use crate::ids::Uid;
use crate::orphans::Proof;

/// Leave to call `DeleteMachine` once, for the VM of one Machine. Not `Clone`: every call needs evidence of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct DeletePermit {
    uid: Uid,
}

impl DeletePermit {
    /// The Machine bears a `deletionTimestamp`. It never goes away again, so a stale read is as good as a live one.
    pub fn for_deleting(machine: &Machine) -> Option<Self> {
        meta::deleting_since(&machine.metadata)?;
        let uid = meta::identity(&machine.metadata).1;
        Some(Self { uid })
    }

    /// The VM is of no Machine: two complete listings and a live read say so.
    pub fn for_orphan(proof: Proof) -> Self {
        let uid = proof.into_vm().uid;
        Self {
            uid: uid.unwrap_or_else(|| Uid::new("")),
        }
    }

    /// The Machine whose VM may be deleted; the empty one for a VM that an older controller made and that bears none.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }
}
