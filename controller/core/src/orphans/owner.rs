//! Whose a VM of a listing is, as far as its tags and the objects that are known say. Decides nothing about it.

use std::collections::BTreeMap;

use super::Observed;
use super::listing::Sighting;
use crate::ids::{ProviderId, Uid};
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
    /// A Machine's that names another VM as its own: there are two.
    Twin,
    /// Nobody's that is known.
    Nobody,
}

/// The uids of all Machines that are known, with the VM that each names: a Machine is the VM's owner under whatever name it is known.
pub(super) fn uids(seen: &Observed<'_>) -> BTreeMap<Uid, Option<ProviderId>> {
    let machines = seen.world.machines.iter();
    machines
        .filter_map(|machine| Some((machine.uid()?, machine.provider_id())))
        .collect()
}

/// Whose the VM is.
pub(super) fn of(seen: &Observed<'_>, uids: &BTreeMap<Uid, Option<ProviderId>>, vm: &Sighting) -> Owner {
    let world = seen.world;
    let claimants = |id: &ProviderId| world.machines.find(OwnedBy::ProviderId, id.as_str()).count();
    // A Machine that was restored from a backup has another uid than its VM is tagged with.
    let is_claimed = vm.provider_id.as_ref().is_some_and(|id| claimants(id) > 0);
    // A VM of an older controller bears no namespace.
    if is_claimed && vm.cluster_id == seen.settings.cluster_id && vm.namespace.is_empty() {
        return Owner::Machine;
    }
    if vm.cluster_id.is_empty() || vm.namespace.is_empty() {
        return Owner::Unmarked;
    }
    if vm.cluster_id != seen.settings.cluster_id || vm.namespace != seen.namespace {
        return Owner::Foreign;
    }
    let Some(name) = &vm.name else {
        return Owner::Unmarked;
    };
    // Of a VM that only an older controller has marked nobody knows whether it was ever a Machine's: a bastion bears the same tags.
    let may_be_anything = vm.uid.is_none() && !seen.settings.legacy_marks.is_empty();
    if may_be_anything && world.machines.get(name).is_none() {
        return Owner::Unmarked;
    }
    let Some(id) = &vm.provider_id else {
        return Owner::Unnamed;
    };
    let is_owned = match &vm.uid {
        Some(uid) => uids.contains_key(uid),
        // An older controller's VM is found by its name.
        None => world.machines.get(name).is_some(),
    };
    // A creation of that name was sent and not answered: the Machine may be there without anybody knowing.
    let may_arrive = world.ledger.unanswered.contains_key(name);
    let named = vm.uid.as_ref().and_then(|uid| uids.get(uid)?.as_ref());
    let is_twin = named.is_some_and(|named| named != id);
    match is_owned || is_claimed || may_arrive {
        true if is_twin && !is_claimed => Owner::Twin,
        true => Owner::Machine,
        false => Owner::Nobody,
    }
}
