//! What oracles are told of a run before it begins: how old views may be, how long things may take, and what is broken to the end.

use std::collections::BTreeSet;

use jiff::SignedDuration;

/// What a run is, as far as oracles must know it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How old a view may be on which a manager acts: the longest lag of a watch and of a request in flight.
    pub max_lag: SignedDuration,
    /// How old the answer to a read of the API server itself may be when a manager acts on it.
    pub read_lag: SignedDuration,
    /// How long a machine may take to join.
    pub creation_timeout: SignedDuration,
    /// How old a VM must be that is removed because no Machine owns it.
    pub orphan_min_age: SignedDuration,
    /// How far apart two listings of VMs must lie that are to prove that.
    pub orphan_apart: SignedDuration,
    /// How long pods of a Machine that is deleted may take to go.
    pub drain_timeout: SignedDuration,
    /// How long volumes may stay attached to a Node whose pods are gone before its VM goes.
    pub detach_timeout: SignedDuration,
    /// Whether a Machine may not be given up too early for a wall clock that was set while it was not waiting.
    pub judges_set_clocks: bool,
    /// Whether the target cluster may be away: what a released Machine has left there is removed later, or runs out.
    pub target_may_be_away: bool,
    /// Whether the API server may refuse a write without end, as a webhook does: a Machine may then not be released.
    pub writes_may_be_refused: bool,
    /// Whether a driver may say falsely that there is no VM.
    pub lookups_may_lie: bool,
    /// Whether managers elect a leader.
    pub elects: bool,
    /// How long a claim of the lease lasts.
    pub lease: SignedDuration,
    /// How long before its lease runs out a leader ends its work, so that what is under way then has an end, too.
    pub margin: SignedDuration,
    /// Bytes of secrets, user data and tokens, which no text may hold.
    pub canaries: Vec<String>,
    /// How often a watch may be listed again at rest.
    pub resync: SignedDuration,
    /// How long a deletion may take once faults have stopped.
    pub deletion: SignedDuration,
    /// Classes whose machines cannot come up, because their driver or the class itself is broken to the end.
    pub broken_classes: BTreeSet<String>,
    /// The run is about what goes on beside a broken class.
    pub beside: bool,
    /// The run began in a state that no manager made.
    pub any_state: bool,
    /// Something outside our objects was broken and then repaired: a quota, a secret, a class.
    pub repaired: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_lag: SignedDuration::from_mins(5),
            read_lag: SignedDuration::from_mins(5),
            creation_timeout: SignedDuration::from_mins(20),
            orphan_min_age: SignedDuration::from_mins(20),
            orphan_apart: SignedDuration::from_mins(1),
            drain_timeout: SignedDuration::from_hours(2),
            detach_timeout: SignedDuration::from_mins(2),
            judges_set_clocks: true,
            target_may_be_away: false,
            writes_may_be_refused: false,
            lookups_may_lie: false,
            elects: true,
            lease: SignedDuration::from_secs(15),
            margin: SignedDuration::from_secs(5),
            canaries: Vec::new(),
            resync: SignedDuration::from_hours(1),
            deletion: SignedDuration::from_mins(15),
            broken_classes: BTreeSet::new(),
            beside: false,
            any_state: false,
            repaired: false,
        }
    }
}
