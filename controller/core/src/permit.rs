//! The permit without which nothing asks a driver to delete a VM. Decides nothing: it carries the evidence.
//!
//! `DeleteMachine` is the one call that cannot be taken back, so `driver/call.rs` takes a permit by value and only the
//! functions of this file make one (`architecture.md` §2.7). Each names its evidence: that is the list of all reasons
//! for which Millwright ever deletes a VM (`reliability.md` S3: no VM is deleted whose Machine is wanted; S6: illness
//! alone is no reason to delete).

use jiff::Timestamp;

use crate::ids::Uid;

/// Leave to call `DeleteMachine` once, for the VM of one Machine. Not `Clone`: every call needs evidence of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct DeletePermit {
    uid: Uid,
    seen: Timestamp,
}

impl DeletePermit {
    /// The Machine's own `deletionTimestamp` was read. It never goes away again, so a stale read is as good as a live
    /// one.
    pub fn for_deleting(uid: Uid, deletion_timestamp_seen: Timestamp) -> Self {
        Self {
            uid,
            seen: deletion_timestamp_seen,
        }
    }

    /// The Machine whose VM may be deleted.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// The `deletionTimestamp` that was read.
    pub fn seen(&self) -> Timestamp {
        self.seen
    }
}
