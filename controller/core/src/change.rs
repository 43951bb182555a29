//! What a watch reports of one kind, as values: the only way objects enter the store. Decides nothing.

use crate::ids::Name;

/// One report of a watch. After `Restarted` come the `Listed` objects, then `Synced`; what was not listed in between is
/// gone, because a watch that lost its place sends no deletions for what it missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K> {
    /// A new listing begins. Keep what is known: it stays true until `Synced`.
    Restarted,
    /// The object is part of the listing.
    Listed(K),
    /// The listing is complete.
    Synced,
    /// The object is new or has changed.
    Applied(K),
    /// The object is gone; this was its last state.
    Deleted(K),
    /// The object exists but cannot be read as its kind. What is known of it stays, also at `Synced`: an object that we
    /// cannot read must not be taken for one that is gone.
    Unreadable(Name),
}
