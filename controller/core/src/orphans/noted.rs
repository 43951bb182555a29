//! What looks remember from one to the next: whom they suspect, what was told, how many VMs are what. Decides nothing.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use super::listing::Gap;
use crate::ids::{ProviderId, Uid};
use crate::replacement_limit::Tripped;

/// What looks remember.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// VMs of no Machine.
    pub suspects: BTreeMap<ProviderId, Suspicion>,
    /// What was told of VMs, so that it is told once.
    pub(super) told: BTreeMap<ProviderId, Finding>,
    /// Why the last look deleted nothing.
    pub(super) held: Option<Why>,
}

/// A VM that was seen without a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The uid that it was tagged with then.
    pub uid: Option<Uid>,
    /// When the first complete listing that showed it had ended.
    pub since: Timestamp,
}

/// What people are told of a VM that is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The tags that say whose it is are lost.
    Unmarked,
    /// Its Machine names another VM as its own.
    Duplicate,
    /// The driver does not say when it was made.
    Ageless,
    /// It is an orphan, and deletions are not wanted.
    DryRun,
}

/// Why a look deletes no more than it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Every VM is accounted for, or waits for its second look or its age.
    Accounted,
    /// All orphans are being deleted.
    Deleting,
    /// Some are, the others in later looks.
    Capped,
    /// Only telling is wanted.
    DryRun,
    /// The lead, the watches or the driver are not there now.
    Blind,
    /// The listing may not show all.
    Incomplete(Gap),
    /// Too many machines or nodes are unhealthy.
    Breaker(Tripped),
    /// Too many VMs have no Machine.
    TooMany {
        /// So many.
        orphans: usize,
        /// Of so many of this cluster.
        vms: usize,
        /// May be, by `--max-orphans`.
        limit: usize,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accounted => f.write_str("every VM has a Machine, or is not proven to have none"),
            Self::Deleting => f.write_str("VMs of no Machine are deleted"),
            Self::Capped => f.write_str("VMs of no Machine are deleted, a few in each look"),
            Self::DryRun => f.write_str("VMs of no Machine are told and not deleted (--orphan-dry-run)"),
            Self::Blind => f.write_str("the lead, the watches or the driver are not there now"),
            Self::Incomplete(gap) => write!(f, "the listing is not complete: {gap}"),
            Self::Breaker(tripped) => write!(f, "no VM is deleted as an orphan while {tripped}"),
            Self::TooMany { orphans, vms, limit } => write!(
                f,
                "{orphans} of {vms} VMs have no Machine, more than {limit} (--max-orphans): the cause is not theirs, and none is deleted"
            ),
        }
    }
}

/// How many VMs are what, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// A Machine's.
    pub owned: usize,
    /// Another manager's, by namespace.
    pub foreign: usize,
    /// Of lost tags, without an id or a time of creation, or one of two of a Machine.
    pub unclear: usize,
    /// Of no Machine, and not proven to be.
    pub suspected: usize,
    /// Orphans.
    pub orphans: usize,
}

impl Report {
    /// Each count with its name.
    pub fn states(&self) -> [(&'static str, usize); 5] {
        [
            ("owned", self.owned),
            ("foreign", self.foreign),
            ("unclear", self.unclear),
            ("suspected", self.suspected),
            ("orphan", self.orphans),
        ]
    }
}
