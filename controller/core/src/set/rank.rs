//! Whom to delete first. Source: `spec/machineset.md` §7.3, every key in its order, with two deliberate changes: equal
//! Machines are told apart by name, so that two passes choose the same victims, and the in-place phases rank where
//! their work would be lost (§12.12 there). `deletePolicy` (seed 002) stands between the marks and the phases. Before all that stand
//! Machines whose deletion was sent and never answered: it may still arrive, and must not find another one gone instead.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::machine_set::DeletePolicy;
use crate::api::{Machine, Phase, keys, meta};
use crate::ids::Uid;

/// The machines in the order of leaving.
pub fn rank<'a>(
    machines: impl Iterator<Item = &'a Machine>,
    condemned: &BTreeMap<Uid, Timestamp>,
    policy: Option<DeletePolicy>,
    now: Timestamp,
) -> Vec<&'a Machine> {
    let mut ranked: Vec<&Machine> = machines.collect();
    ranked.sort_by_cached_key(|machine| {
        let is_condemned = machine.uid().is_some_and(|uid| condemned.contains_key(&uid));
        (!is_condemned, order(machine, policy, now))
    });
    ranked
}

type Order = (bool, Preserved, i64, Marked, Policy, u8, Option<Timestamp>, String);
type Preserved = Option<(bool, Timestamp)>;
type Marked = (bool, Option<Timestamp>);
type Policy = (bool, Option<Timestamp>, Option<Reverse<Option<Timestamp>>>);

fn order(machine: &Machine, policy: Option<DeletePolicy>, now: Timestamp) -> Order {
    let preserved = machine.preserved_until().filter(|until| *until > now);
    let by_user = meta::annotation(&machine.metadata, keys::PRESERVE) != Some(keys::PRESERVE_AUTO);
    let marked = machine.marked_for_deletion();
    (
        preserved.is_some(),
        preserved.map(|until| (by_user, until)),
        machine.priority(),
        (marked.is_none(), marked),
        by_policy(machine, policy),
        phase_rank(machine.phase()),
        meta::created(&machine.metadata),
        meta::name(&machine.metadata).to_owned(),
    )
}

/// The part that `deletePolicy` asks for; the same for all Machines where it is absent.
fn by_policy(machine: &Machine, policy: Option<DeletePolicy>) -> Policy {
    let spared = meta::annotation(&machine.metadata, keys::DELETE_MACHINE).is_none_or(str::is_empty);
    match policy {
        None | Some(DeletePolicy::Random) => (spared, None, None),
        Some(DeletePolicy::Oldest) => (spared, meta::created(&machine.metadata), None),
        Some(DeletePolicy::Newest) => (spared, None, Some(Reverse(meta::created(&machine.metadata)))),
    }
}

fn phase_rank(phase: &Phase) -> u8 {
    match phase {
        Phase::New | Phase::Terminating | Phase::Other(_) => 0,
        Phase::Failed => 1,
        Phase::CrashLoopBackOff => 2,
        Phase::Unknown | Phase::InPlaceUpdateFailed => 3,
        Phase::Pending => 4,
        Phase::Available => 5,
        Phase::Running | Phase::InPlaceUpdating | Phase::InPlaceUpdateSuccessful => 6,
    }
}
