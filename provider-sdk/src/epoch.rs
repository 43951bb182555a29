//! Fencing: a manager that has lost its lease must not change anything any more (SPEC.md, GEN-33 to GEN-36).
//!
//! Decides by the highest epoch seen for a cluster. Epochs count the changes of one Lease, so those of two clusters that
//! share a driver have nothing to do with each other. The memory ends with the process; a new leader speaks soon.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use millwright_proto::LEADER_EPOCH_KEY;
use tonic::metadata::MetadataMap;

use crate::error::DriverError;
use crate::reason::Reason;

/// The highest epoch of each cluster. Grows with the clusters that a driver serves: one, or a few.
#[derive(Default)]
pub(crate) struct Epochs(Mutex<HashMap<String, u64>>);

impl Epochs {
    /// Remembers the caller's epoch, and refuses a mutating call of an older one than was seen. A caller without an
    /// epoch, as grpcurl, is served.
    pub(crate) fn admit(&self, cluster_id: &str, epoch: Option<u64>, mutating: bool) -> Result<(), DriverError> {
        let Some(epoch) = epoch else { return Ok(()) };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = seen.entry(cluster_id.to_owned()).or_default();
        *highest = epoch.max(*highest);
        if mutating && epoch < *highest {
            let message = format!("a leader of epoch {highest} has spoken, this call is of epoch {epoch}");
            return Err(DriverError::new(Reason::StaleLeader, message).metadata("epoch", highest.to_string()));
        }
        Ok(())
    }
}

/// The caller's epoch, if it names one.
pub(crate) fn epoch_of(metadata: &MetadataMap) -> Result<Option<u64>, DriverError> {
    let Some(value) = metadata.get(LEADER_EPOCH_KEY) else {
        return Ok(None);
    };
    let epoch = value.to_str().ok().and_then(|text| text.parse().ok());
    // Taking a garbled epoch for none would let a stale leader through.
    epoch
        .map(Some)
        .ok_or_else(|| DriverError::invalid_field(format!("metadata.{LEADER_EPOCH_KEY}"), "is not a decimal number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: pains 34.
    #[test]
    fn an_older_leader_may_look_but_not_touch() {
        let epochs = Epochs::default();
        epochs.admit("c", Some(5), true).expect("the first");
        let refusal = epochs.admit("c", Some(4), true).unwrap_err();
        assert_eq!(refusal.reason(), &Reason::StaleLeader);
        assert_eq!(refusal.told_metadata().get("epoch").map(String::as_str), Some("5"));
        epochs.admit("c", Some(4), false).expect("reads are allowed");
        epochs.admit("c", None, true).expect("no epoch, no fence");
        epochs.admit("c", Some(5), true).expect("the same leader again");
    }

    #[test]
    fn a_read_of_a_new_leader_already_fences_the_old_one() {
        let epochs = Epochs::default();
        epochs.admit("c", Some(2), false).expect("a read");
        epochs.admit("c", Some(1), true).unwrap_err();
    }

    #[test]
    fn clusters_do_not_fence_each_other() {
        let epochs = Epochs::default();
        epochs.admit("a", Some(9), true).expect("the first");
        epochs.admit("b", Some(1), true).expect("another lease");
    }

    #[test]
    fn a_garbled_epoch_is_refused_instead_of_ignored() {
        let mut metadata = MetadataMap::new();
        assert_eq!(epoch_of(&metadata).unwrap(), None);
        metadata.insert(LEADER_EPOCH_KEY, "7".parse().unwrap());
        assert_eq!(epoch_of(&metadata).unwrap(), Some(7));
        metadata.insert(LEADER_EPOCH_KEY, "-7".parse().unwrap());
        assert!(matches!(
            epoch_of(&metadata).unwrap_err().reason(),
            Reason::InvalidField { .. }
        ));
    }
}
