//! Questions about a Machine of a set that several plans ask: is the Machine being deleted, preserved, available, or updated in place?
//!
//! Each question has one answer here, for sets and deployments alike. Decides nothing: `plan` and its parts decide what follows.

use jiff::{SignedDuration, Timestamp};

use super::observed::{MachineView, Observed};
use crate::api::{Machine, Phase, keys, meta};
use crate::ledger::{LINGERS, OwnerNotes};
use crate::machine::preserve::request;
use crate::sight::later;

/// Whether somebody asked for its deletion. No phase says so: anybody may write one.
pub fn is_leaving(machine: &Machine) -> bool {
    meta::is_deleting(&machine.metadata)
}

/// In the hands of the deployment's in-place transfer: never deleted (MS-7).
pub(super) fn is_exempt(machine: &Machine) -> bool {
    meta::label(&machine.metadata, keys::UPDATE_RESULT) == Some(keys::UPDATE_SUCCESSFUL)
}

/// Whether the Machine is needed although its deletion was sent: it may be there still, and is not deleted again.
pub fn is_needed_still(seen: &Observed<'_>, machine: &MachineView<'_>, now: Timestamp) -> bool {
    !seen.allowance.resend && may_be_available(seen, machine, now) && !counts_as_available(seen, machine, now)
}

/// Whether deleting the Machine makes the set's available ones fewer: not while it is updated in place. One whose deletion was sent and
/// not answered may be going, as long as such a request may take to arrive.
pub fn counts_as_available(seen: &Observed<'_>, machine: &MachineView<'_>, now: Timestamp) -> bool {
    let may_be_going = may_go_until(machine).is_some_and(|until| until > now);
    !may_be_going && may_be_available(seen, machine, now)
}

/// The same, whether or not a deletion of it was sent.
fn may_be_available(seen: &Observed<'_>, machine: &MachineView<'_>, now: Timestamp) -> bool {
    !is_leaving(machine) && !is_being_updated(machine) && is_available(seen, machine, now)
}

/// Whether the Machine is updated in place, so that it does not serve.
pub(crate) fn is_being_updated(machine: &MachineView<'_>) -> bool {
    machine
        .update
        .as_ref()
        .is_some_and(|update| update.marks.is_under_way())
}

/// Until when a deletion of the Machine that was not answered may still arrive.
pub(crate) fn may_go_until(machine: &MachineView<'_>) -> Option<Timestamp> {
    machine.deletion_sent.map(|sent| later(sent, LINGERS))
}

/// Whether a Failed Machine is kept for somebody who wants to look at it, or is about to be.
pub fn is_kept(machine: &MachineView<'_>, now: Timestamp) -> bool {
    *machine.phase() == Phase::Failed && request::keeps_failed(machine, machine.request, now)
}

/// How often failed Machines of a set were replaced in a row with none of `machines`, which are the set's, becoming ready since.
pub(crate) fn replacements<'a>(notes: &OwnerNotes, machines: impl IntoIterator<Item = &'a Machine>) -> u32 {
    let Some((times, at)) = notes.replaced else { return 0 };
    let is_ready = |machine: &&Machine| matches!(machine.phase(), Phase::Running | Phase::Available);
    let mut ready = machines.into_iter().filter(is_ready);
    match ready.any(|machine| machine.phase_since().is_some_and(|since| since >= at)) {
        true => 0,
        false => times,
    }
}

/// Running for `minReadySeconds`, or made where no node is expected.
pub(crate) fn is_available(seen: &Observed<'_>, machine: &Machine, now: Timestamp) -> bool {
    available_at(seen, machine).is_some_and(|at| at <= now)
}

/// How long a Machine of the set must have been running to be available.
fn min_ready(seen: &Observed<'_>) -> SignedDuration {
    let owner = || meta::controller_of(&seen.set.metadata);
    if !seen.settings.heeds_min_ready && owner().is_some_and(|owner| owner.kind == "MachineDeployment") {
        return SignedDuration::ZERO;
    }
    SignedDuration::from_secs(i64::from(seen.set.spec.min_ready_seconds.max(0)))
}

/// Since when, or from when on.
pub(super) fn available_at(seen: &Observed<'_>, machine: &Machine) -> Option<Timestamp> {
    let wait = min_ready(seen);
    match machine.phase() {
        Phase::Available => Some(Timestamp::MIN),
        Phase::Running if wait.is_zero() => Some(Timestamp::MIN),
        Phase::Running => machine.phase_since().map(|since| later(since, wait)),
        Phase::New
        | Phase::Pending
        | Phase::Unknown
        | Phase::Failed
        | Phase::CrashLoopBackOff
        | Phase::Terminating
        | Phase::InPlaceUpdating
        | Phase::InPlaceUpdateSuccessful
        | Phase::InPlaceUpdateFailed
        | Phase::Other(_) => None,
    }
}
