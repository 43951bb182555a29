//! Which unhealthy Machines a set fails: by phase `Failed`, which is replaced.
//!
//! `machine::judgement` says how each is. One whose VM is proven gone, or is announced to go, fails at once. Of the others, which have been
//! unhealthy for longer than their health timeout, at most so many of a deployment fail at once, until their replacements run; and
//! none while a limit of unhealthy Machines is reached (`breaker`). Decides nothing about what is deleted: `set::plan` replaces.
//! Source: `spec/machine.md` T9, `design/rollout.md` §1, S6 of `reliability.md`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::observed::{Observed, Plan, Step, Why};
use super::plan::{is_kept, is_leaving, owned};
use crate::api::{Machine, MachineSet, OperationReason, OperationType, Phase, meta};
use crate::breaker::{self, Tally, Tripped};
use crate::driver::Code;
use crate::ids::{Name, Uid};
use crate::kinds::{self, NodeBy};
use crate::machine::judgement::{Failed, Fault, Judgement, LAST_LOOK, Witnesses, runs_after_all};
use crate::machine::{Calls, node};
use crate::settings::Settings;
use crate::sight::{Sight, later};
use crate::world::World;
use crate::{kin, owner};

/// How often a set looks whether a zone is well again: nothing of its own changes when others recover.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// What a set may do about Machines that are unhealthy.
#[derive(Clone, Copy, Debug)]
pub struct Repair<'a> {
    /// Since when Nodes are seen.
    pub sight: Sight,
    /// The operator's wishes.
    pub settings: &'a Settings,
    /// What is known of the Machines' VMs.
    pub vms: &'a BTreeMap<Uid, Calls>,
    /// The Nodes of those that are unhealthy, and how many others are.
    pub surroundings: &'a Surroundings,
}

/// What the world says of the unhealthy Machines of a set.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Their Nodes.
    pub nodes: BTreeMap<Uid, Arc<Node>>,
    /// How many Machines of the deployment are unhealthy, or of the set that has none.
    pub group: Tally,
    /// How many Nodes of their zones are not ready.
    pub zones: BTreeMap<String, Tally>,
}

impl Surroundings {
    /// Those of a set.
    pub fn of(world: &World, set: &Arc<MachineSet>, machines: &[Arc<Machine>]) -> Self {
        let mut found = Self::default();
        let some_nodes_go = world.nodes.count(NodeBy::Leaving, "") > 0;
        let loses_node = |machine: &Machine| {
            let node = kin::node_of(world, machine).node;
            some_nodes_go && node.is_some_and(|node| meta::is_deleting(&node.metadata))
        };
        let is_ill = |machine: &&Arc<Machine>| {
            matches!(machine.phase(), Phase::Unknown | Phase::InPlaceUpdateFailed) || loses_node(machine)
        };
        let own = |machine: &&Arc<Machine>| owner::controls(&set.metadata, &machine.metadata);
        let mut ill = machines.iter().filter(own).filter(is_ill).peekable();
        if ill.peek().is_some() {
            found.group = breaker::of_group(world, set);
        }
        for machine in ill {
            let node = kin::node_of(world, machine)
                .node
                .filter(|node| node::belongs(node, machine));
            let node = node.and_then(|node| world.nodes.get(&Name::new(meta::name(&node.metadata))));
            let zone = node.and_then(|node| kinds::zone(node));
            if let Some(zone) = zone.filter(|zone| !found.zones.contains_key(*zone)) {
                found.zones.insert(zone.to_owned(), breaker::of_zone(world, zone));
            }
            found.nodes.extend(machine.uid().zip(node.cloned()));
        }
        found
    }
}

impl Repair<'_> {
    /// Nobody fails.
    pub fn off() -> Repair<'static> {
        static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings::new(String::new()));
        static VMS: BTreeMap<Uid, Calls> = BTreeMap::new();
        static NOTHING: LazyLock<Surroundings> = LazyLock::new(Surroundings::default);
        Repair {
            sight: Sight::CLEAR,
            settings: &SETTINGS,
            vms: &VMS,
            surroundings: &NOTHING,
        }
    }

    /// The limit that keeps an unhealthy Machine, whatever time it had.
    pub fn tripped(&self, machine: &Machine) -> Option<Tripped> {
        let limit = &self.settings.unhealthy_threshold;
        let (group, node) = (self.surroundings.group, self.node(machine));
        if group.reaches(limit) {
            return Some(Tripped::Group(group, limit.clone()));
        }
        let zone = kinds::zone(node?)?;
        let tally = *self.surroundings.zones.get(zone)?;
        breaker::tripped_zone(zone, tally, self.settings)
    }

    fn node(&self, machine: &Machine) -> Option<&Node> {
        self.surroundings.nodes.get(&machine.uid()?).map(Arc::as_ref)
    }

    fn witnesses<'b>(&'b self, machine: &'b Machine) -> Witnesses<'b> {
        Witnesses {
            machine,
            node: self.node(machine),
            calls: machine.uid().and_then(|uid| self.vms.get(&uid)),
            sight: self.sight,
            settings: self.settings,
        }
    }
}

/// A Machine that has failed.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenUp {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// What is written of it.
    pub failed: Box<Failed>,
    /// What ails it.
    pub fault: Fault,
    /// Its VM is gone, or is announced to go: no limit keeps it.
    pub has_ended: bool,
}

/// The step that fails Machines, if any may be, and when to look again.
pub fn give_up(seen: &Observed<'_>, present: &[&Machine], now: Timestamp, plan: &mut Plan) -> Option<Step> {
    let mut over: Vec<(&Machine, Fault)> = Vec::new();
    let mut given: Vec<GivenUp> = Vec::new();
    for machine in present.iter().copied() {
        let refusal = machine.uid().and_then(|uid| seen.refusals.get(&uid));
        let refusal = refusal.filter(|refusal| refusal.holds(now));
        let why = match (seen.repair.witnesses(machine).judge(), refusal) {
            (Judgement::Healthy | Judgement::Unknown | Judgement::Ill { until: None, .. }, _) => continue,
            (_, Some(refusal)) => {
                plan.look_at(Some(refusal.retry_at), now);
                Why::Refused(refusal.message.clone())
            }
            (Judgement::Ended(lost), None) => {
                given.extend(given_up(seen, machine, Fault::Vm(lost), true, now));
                continue;
            }
            (Judgement::Ill { fault, until: Some(at) }, None) if at > now => {
                plan.look_at(Some(at), now);
                Why::GivenUpAt(fault, at)
            }
            (Judgement::Ill { fault, .. }, None) => match seen.repair.tripped(machine) {
                None => {
                    over.push((machine, fault));
                    continue;
                }
                Some(tripped) => {
                    plan.look_at(Some(later(now, LOOK_AGAIN)), now);
                    Why::TooManyIll(fault, tripped)
                }
            },
        };
        plan.withheld.push((Name::new(meta::name(&machine.metadata)), why));
    }
    over.sort_by_cached_key(|(machine, _)| (machine.phase_since(), meta::name(&machine.metadata).to_owned()));
    let free = seen.allowance.replace.saturating_sub(under_way(seen, present, now));
    let waiting = over.split_off(free.min(over.len()));
    plan.withheld.extend(waiting.iter().map(|(machine, fault)| {
        let name = Name::new(meta::name(&machine.metadata));
        (name, Why::OthersFirst(*fault, seen.allowance.replace))
    }));
    let chosen = over.into_iter();
    given.extend(chosen.filter_map(|(machine, fault)| given_up(seen, machine, fault, false, now)));
    plan.why = Why::GivingUp(given.first()?.fault);
    Some(Step::GiveUp(given))
}

fn given_up(seen: &Observed<'_>, machine: &Machine, fault: Fault, has_ended: bool, now: Timestamp) -> Option<GivenUp> {
    let uid = machine.uid()?;
    let object = seen.machines.iter().find(|other| other.uid().as_ref() == Some(&uid))?;
    Some(GivenUp {
        machine: Arc::clone(object),
        failed: Box::new(seen.repair.witnesses(machine).failed(fault, now)),
        fault,
        has_ended,
    })
}

/// How many Machines of the set have failed and are not replaced yet, or are on their way: as long as a Machine that was asked for does
/// not run, another one does not fail for it. One that waits for capacity, or for whatever else must be there before a VM is asked for, is
/// not on its way: nobody knows when it will be, and what has failed may hold the capacity.
fn under_way(seen: &Observed<'_>, present: &[&Machine], now: Timestamp) -> usize {
    let settled = present
        .iter()
        .filter(|machine| machine.phase().is_there() || waits(machine) || is_kept(seen, machine, now));
    let wanted = usize::try_from(seen.set.spec.replicas).unwrap_or(0);
    wanted.saturating_sub(settled.count()).max(given_up_before(seen, now))
}

/// Whether the Machine waits before it gets a VM.
fn waits(machine: &Machine) -> bool {
    let last = machine.last_operation().and_then(|last| last.error_code.as_deref());
    let reason = machine.operation_reason();
    matches!(machine.phase(), Phase::Pending | Phase::CrashLoopBackOff)
        && (matches!(reason, Some(OperationReason::Waiting | OperationReason::Suspended))
            || last == Some(Code::ResourceExhausted.word()))
}

/// When a Failed Machine may be deleted: after the pause; at once where its VM is announced to go; and where it failed because its VM was
/// said not to run, not before its driver has said so again: the VM may be on again, with its disk. A driver that says nothing more for as
/// long as a health timeout holds nobody up. An answer wakes the Machine alone, so the set looks again by itself.
pub fn replaced_at(seen: &Observed<'_>, machine: &Machine, pause: SignedDuration, now: Timestamp) -> Option<Timestamp> {
    let since = machine.phase_since()?;
    if machine.operation_reason() == Some(OperationReason::VmEnding) {
        return None;
    }
    let due = later(since, pause);
    let at_most = later(since, seen.repair.settings.health_timeout);
    match awaits_driver(seen, machine) {
        true => Some(due.max(later(now, LAST_LOOK).min(at_most))),
        false => Some(due),
    }
}

/// Whether a Machine failed because its VM was said not to run, and its driver has not said so since.
pub fn awaits_driver(seen: &Observed<'_>, machine: &Machine) -> bool {
    let is_said = is_given_up(machine) && machine.operation_reason() == Some(OperationReason::VmReported);
    let calls = machine.uid().and_then(|uid| seen.repair.vms.get(&uid));
    is_said && calls.and_then(|calls| runs_after_all(machine, calls)) != Some(false)
}

/// How many Machines of a set failed and are still there. Those that are preserved are not being replaced.
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

/// Whether a Machine failed for its Node or its VM.
pub fn is_given_up(machine: &Machine) -> bool {
    *machine.phase() == Phase::Failed && machine.operation_type() == Some(OperationType::HealthCheck)
}

/// Who is kept although its time is over: the first, how many, and by which limit.
pub fn held_back(seen: &Observed<'_>, machines: &[Arc<Machine>], now: Timestamp) -> Option<String> {
    let is_over = |machine: &Machine| match seen.repair.witnesses(machine).judge() {
        Judgement::Ill { until: Some(at), .. } => at <= now,
        Judgement::Ill { until: None, .. } | Judgement::Ended(_) | Judgement::Unknown => false,
        Judgement::Healthy => seen
            .repair
            .node(machine)
            .is_some_and(|node| meta::is_deleting(&node.metadata)),
    };
    let mut held = machines
        .iter()
        .filter(|machine| !is_leaving(machine) && is_over(machine))
        .filter_map(|machine| Some((machine, seen.repair.tripped(machine)?)));
    let (first, tripped) = held.next()?;
    let name = meta::name(&first.metadata);
    Some(match held.count() {
        0 => format!("{name} is kept while {tripped}"),
        more => format!("{name} and {more} more are kept while {tripped}"),
    })
}
