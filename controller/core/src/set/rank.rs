//! Which Machines a scale-down deletes first: named ones, then unhealthy ones, then as `deletePolicy` says.
//!
//! The order of the original's table (MS-7), with `deletePolicy` (as MachineSets of Cluster API have) behind health, and with equal
//! Machines told apart by name, so that two passes choose the same victims. Machines that are updated in place rank as healthy: their work
//! would be lost.

use jiff::Timestamp;

use super::observed::MachineView;
use crate::api::machine_set::DeletePolicy;
use crate::api::{Phase, keys, meta};

/// The machines in the order of leaving.
pub fn rank<'a>(
    machines: impl Iterator<Item = &'a MachineView<'a>>,
    policy: Option<DeletePolicy>,
    now: Timestamp,
) -> Vec<&'a MachineView<'a>> {
    let mut ranked: Vec<&MachineView<'_>> = machines.collect();
    ranked.sort_by_cached_key(|machine| DeletionOrder::of(machine, policy, now));
    ranked
}

/// The place of a Machine: the smallest is deleted first, and an earlier field decides before a later one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DeletionOrder {
    /// A deletion that was sent and not answered may still arrive: it must not find another Machine gone instead.
    no_deletion_sent: bool,
    /// Preserved Machines go last: first those that nobody asked to preserve, then those whose time ends sooner.
    preserved: Option<(bool, Timestamp)>,
    /// The annotation by which the autoscaler names its victims.
    priority: i64,
    /// When the Machine was marked for deletion; unmarked ones come last.
    marked: Timestamp,
    /// Nobody marked the Machine with the annotation `cluster.k8s.io/delete-machine`.
    no_user_mark: bool,
    is_healthy: bool,
    /// As `deletePolicy` says: the time of creation, negative for Newest, the same for all without a policy.
    age: i64,
    phase: u8,
    created: Option<Timestamp>,
    name: String,
}

impl DeletionOrder {
    fn of(machine: &MachineView<'_>, policy: Option<DeletePolicy>, now: Timestamp) -> Self {
        let metadata = &machine.metadata;
        let preserved = machine.preserved_until().filter(|until| *until > now);
        let is_asked = meta::annotation(metadata, keys::PRESERVE) != Some(keys::PRESERVE_AUTO);
        let created = meta::created(metadata);
        let seconds = created.map_or(i64::MIN, Timestamp::as_second);
        let phase = phase_rank(machine.phase());
        Self {
            no_deletion_sent: machine.deletion_sent.is_none(),
            preserved: preserved.map(|until| (is_asked, until)),
            priority: machine.priority(),
            marked: machine.marked_for_deletion().unwrap_or(Timestamp::MAX),
            no_user_mark: meta::annotation(metadata, keys::DELETE_MACHINE).is_none_or(str::is_empty),
            is_healthy: phase >= HEALTHY,
            age: match policy {
                None | Some(DeletePolicy::Random) => 0,
                Some(DeletePolicy::Oldest) => seconds,
                Some(DeletePolicy::Newest) => seconds.saturating_neg(),
            },
            phase,
            created,
            name: meta::name(metadata).to_owned(),
        }
    }
}

/// The lowest rank of a phase in which a Machine serves.
const HEALTHY: u8 = 5;

fn phase_rank(phase: &Phase) -> u8 {
    match phase {
        Phase::New | Phase::Terminating | Phase::Other(_) => 0,
        Phase::Failed => 1,
        Phase::CrashLoopBackOff => 2,
        Phase::Unknown | Phase::InPlaceUpdateFailed => 3,
        Phase::Pending => 4,
        Phase::Available => HEALTHY,
        Phase::Running | Phase::InPlaceUpdating | Phase::InPlaceUpdateSuccessful => 6,
    }
}
