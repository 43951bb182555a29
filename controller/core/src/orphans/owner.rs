//! Whose a VM of a listing is, as far as its tags and the objects that are known say. Decides nothing about it.

use std::collections::BTreeSet;

use super::Observed;
use super::listing::Sighting;
use crate::ids::Uid;
use crate::kinds::OwnedBy;

/// Whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Another cluster's, or another namespace's of this one: another manager's.
    Foreign,
    /// The tags that say whose it is are lost.
    Unmarked,
    /// It has no id yet by which it could be known again.
    Unnamed,
    /// A Machine's that is there, or may be about to be.
    Machine,
    /// Nobody's that is known.
    Nobody,
}

/// The uids of all Machines that are known: a Machine is the VM's owner under whatever name it is known.
pub(super) fn uids(seen: &Observed<'_>) -> BTreeSet<Uid> {
    seen.world.machines.iter().filter_map(|machine| machine.uid()).collect()
}

/// Whose the VM is.
pub(super) fn of(seen: &Observed<'_>, uids: &BTreeSet<Uid>, vm: &Sighting) -> Owner {
    if vm.cluster_id.is_empty() || vm.namespace.is_empty() {
        return Owner::Unmarked;
    }
    if vm.cluster_id != seen.settings.cluster_id || vm.namespace != seen.namespace {
        return Owner::Foreign;
    }
    let Some(name) = &vm.name else {
        return Owner::Unmarked;
    };
    let Some(id) = &vm.provider_id else {
        return Owner::Unnamed;
    };
    let world = seen.world;
    let is_owned = match &vm.uid {
        Some(uid) => uids.contains(uid),
        // An older controller's VM is found by its name.
        None => world.machines.get(name).is_some(),
    };
    // A Machine that was restored from elsewhere has another uid than its VM is tagged with.
    let is_claimed = world.machines.find(OwnedBy::ProviderId, id.as_str()).next().is_some();
    // A creation of that name was sent and not answered: the Machine may be there without anybody knowing.
    let may_arrive = world.ledger.unanswered.contains_key(name);
    match is_owned || is_claimed || may_arrive {
        true => Owner::Machine,
        false => Owner::Nobody,
    }
}
