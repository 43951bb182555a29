//! Which unhealthy Machines a set gives up: by phase `Failed`, which is replaced.
//!
//! Source: `spec/machine.md` T9, `design/rollout.md` §1, S6 of `reliability.md`. A Machine whose Node has been unhealthy, or gone, for
//! longer than its health timeout, is given up, as time counts only while Nodes are seen; at most so many of a deployment at once,
//! until their replacements run; none while the breaker is open. Decides nothing about what is deleted: `set::plan` replaces.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::observed::{Observed, Plan, Step, Why};
use super::plan::{is_kept, is_leaving, owned};
use crate::api::{Machine, OperationType, Phase, meta};
use crate::breaker::Tripped;
use crate::ids::{Name, NodeName, Uid};
use crate::machine::health::{self, timed_out, vm_lost};
use crate::machine::{Calls, Lost, StatusChange, in_place, node};
use crate::sight::{Judging, Sight, later};

/// How often a set looks whether the breaker closed again: nothing of its own changes when others recover.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// What a set may do about Machines whose Nodes are unhealthy.
#[derive(Clone, Copy, Debug)]
pub struct Repair<'a> {
    /// How many of its Machines may be on the way from given up to replaced.
    pub at_most: usize,
    /// Since when Nodes are seen.
    pub sight: Sight,
    /// The health timeout of Machines that name none.
    pub timeout: SignedDuration,
    /// What is known of the Machines' VMs: one that does not run any more is not waited for.
    pub vms: &'a BTreeMap<Uid, Calls>,
    /// Unhealthy Machines that are kept because too many others are unhealthy, too.
    pub kept: &'a BTreeMap<Uid, Tripped>,
}

impl Repair<'_> {
    /// Nobody is given up.
    pub const OFF: Repair<'static> = Repair {
        at_most: 0,
        sight: Sight::CLEAR,
        timeout: crate::settings::Settings::HEALTH_TIMEOUT,
        vms: &BTreeMap::new(),
        kept: &BTreeMap::new(),
    };
}

/// A Machine that is given up.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenUp {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// Its Node, which must be unhealthy, or gone, when it is looked at live.
    pub ill: Option<NodeName>,
    /// What its status says from now on.
    pub change: Box<StatusChange>,
    /// The reason of the event that tells it.
    pub reason: &'static str,
    /// What ails it.
    pub fault: Ill,
}

/// What ails a Machine that may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// Its Node is unhealthy, or gone.
    Node,
    /// An agent could not update its Node.
    NotUpdated,
    /// Its VM does not run any more, as its driver says.
    Vm(Lost),
    /// The same, as its provider told unasked; its driver has not been asked since.
    Said,
}

impl fmt::Display for Ill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("its node is unhealthy"),
            Self::NotUpdated => f.write_str("its node was not updated in place"),
            Self::Vm(lost) => lost.fmt(f),
            Self::Said => f.write_str("its VM is said not to run any more"),
        }
    }
}

/// How it stands with one unhealthy Machine.
enum Verdict {
    /// It may still recover.
    Until(Timestamp),
    /// It had its time, and is kept because too many others are unhealthy.
    Kept(Tripped),
    /// It had its time.
    Over,
}

/// The step that gives Machines up, if any may be, and when to look again.
pub fn give_up(seen: &Observed<'_>, present: &[&Machine], now: Timestamp, plan: &mut Plan) -> Option<Step> {
    let (mut over, mut wake): (Vec<&Machine>, Option<Timestamp>) = (Vec::new(), None);
    let mut look_again = |at: Timestamp| wake = Some(wake.map_or(at, |sooner: Timestamp| sooner.min(at)));
    for machine in present.iter().copied() {
        let Some(verdict) = verdict(seen, machine, now) else {
            continue;
        };
        let why = match verdict {
            Verdict::Over => {
                over.push(machine);
                continue;
            }
            Verdict::Until(at) => {
                look_again(at);
                Why::GivenUpAt(ill(seen, machine), at)
            }
            Verdict::Kept(tripped) => {
                look_again(later(now, LOOK_AGAIN));
                Why::TooManyIll(ill(seen, machine), tripped)
            }
        };
        plan.withheld.push((Name::new(meta::name(&machine.metadata)), why));
    }
    over.sort_by_cached_key(|machine| (machine.phase_since(), meta::name(&machine.metadata).to_owned()));
    let free = seen.repair.at_most.saturating_sub(under_way(seen, present, now));
    let waiting = over.split_off(free.min(over.len()));
    plan.withheld.extend(waiting.iter().map(|machine| {
        let name = Name::new(meta::name(&machine.metadata));
        (name, Why::OthersFirst(ill(seen, machine)))
    }));
    *plan = std::mem::replace(plan, Plan::rest(Why::Settled)).or_at(wake, now);
    let given: Vec<GivenUp> = over
        .into_iter()
        .filter_map(|machine| given_up(seen, machine, now))
        .collect();
    (!given.is_empty()).then_some(Step::GiveUp(given))
}

fn verdict(seen: &Observed<'_>, machine: &Machine, now: Timestamp) -> Option<Verdict> {
    let is_ill = matches!(machine.phase(), Phase::Unknown | Phase::InPlaceUpdateFailed);
    let is_judged = is_ill && machine.spec.disable_health_timeout != Some(true);
    let since = machine.phase_since().filter(|_| is_judged)?;
    let deadline = seen
        .repair
        .sight
        .deadline(since, timeout(seen, machine), Judging::Rollout)?;
    if deadline > now && lost(seen, machine).is_none() {
        return Some(Verdict::Until(deadline));
    }
    let tripped = machine.uid().and_then(|uid| seen.repair.kept.get(&uid));
    Some(tripped.map_or(Verdict::Over, |tripped| Verdict::Kept(tripped.clone())))
}

/// What ails an unhealthy Machine.
fn ill(seen: &Observed<'_>, machine: &Machine) -> Ill {
    match lost(seen, machine) {
        Some(lost) => Ill::Vm(lost),
        None if *machine.phase() == Phase::InPlaceUpdateFailed => Ill::NotUpdated,
        None if health::tells_of_vm(machine) => Ill::Said,
        None => Ill::Node,
    }
}

/// Why the VM does not run any more, as its driver said since the node is unhealthy.
fn lost(seen: &Observed<'_>, machine: &Machine) -> Option<Lost> {
    let calls = seen.repair.vms.get(&machine.uid()?)?;
    calls.lost(machine.phase_since()?)
}

fn timeout(seen: &Observed<'_>, machine: &Machine) -> SignedDuration {
    machine.health_timeout().unwrap_or(seen.repair.timeout)
}

/// How many Machines of the set are given up and not replaced yet, or are on their way: as long as a Machine that was asked for does
/// not run, another one is not given up for it.
fn under_way(seen: &Observed<'_>, present: &[&Machine], now: Timestamp) -> usize {
    let settled = present
        .iter()
        .filter(|machine| machine.phase().is_there() || is_kept(seen, machine, now));
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    wanted.saturating_sub(settled.count()).max(given_up_before(seen, now))
}

/// How many Machines of a set were given up and are still there. Those that are preserved are not being replaced.
pub fn given_up_before(seen: &Observed<'_>, now: Timestamp) -> usize {
    let own = owned(seen);
    own.iter()
        .filter(|machine| is_failed(machine) && !is_leaving(machine) && !is_kept(seen, machine, now))
        .count()
}

/// Whether a Machine that had joined failed.
fn is_failed(machine: &Machine) -> bool {
    is_given_up(machine)
        || (*machine.phase() == Phase::Failed && machine.operation_type() == Some(OperationType::InPlaceUpdate))
}

/// Whether a Machine failed because its Node was unhealthy for too long.
pub fn is_given_up(machine: &Machine) -> bool {
    *machine.phase() == Phase::Failed && machine.operation_type() == Some(OperationType::HealthCheck)
}

fn given_up(seen: &Observed<'_>, machine: &Machine, now: Timestamp) -> Option<GivenUp> {
    let uid = machine.uid()?;
    let object = seen.machines.iter().find(|other| other.uid().as_ref() == Some(&uid))?;
    let timeout = timeout(seen, machine);
    let fault = ill(seen, machine);
    let (change, reason) = match fault {
        Ill::Vm(lost) => (vm_lost(machine, lost, now), "VmLost"),
        Ill::NotUpdated => (in_place::timed_out(machine, timeout, now), "InPlaceUpdateFailed"),
        Ill::Node | Ill::Said => (timed_out(machine, timeout, now), "HealthTimedOut"),
    };
    // Whether a node could be updated cannot be told from its health.
    // Nor does it say anything of a VM whose end its provider told.
    let is_lost_unasked = seen
        .repair
        .vms
        .get(&uid)
        .is_some_and(|calls| calls.lost_unasked().is_some());
    let is_seen = *machine.phase() != Phase::InPlaceUpdateFailed && !is_lost_unasked;
    let ill = node::likely_name(machine).filter(|_| is_seen);
    Some(GivenUp {
        machine: Arc::clone(object),
        ill,
        change: Box::new(change),
        reason,
        fault,
    })
}

/// Why the set gives nobody up although it would, for its condition: the first reason, by the Machines' names.
pub fn held_back(seen: &Observed<'_>, machines: &[Arc<Machine>], now: Timestamp) -> Option<Tripped> {
    let mut present = machines.iter().filter(|machine| !is_leaving(machine));
    present.find_map(|machine| match verdict(seen, machine, now) {
        Some(Verdict::Kept(tripped)) => Some(tripped),
        Some(Verdict::Until(_) | Verdict::Over) | None => None,
    })
}
