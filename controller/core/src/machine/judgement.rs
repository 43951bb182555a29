//! How a Machine is that joined: healthy, unhealthy since when and by what witness, ended, or unknown. The only place that says so.
//!
//! The manager of the Machine writes what it sees: phase `Unknown`, and since when. Who has been unhealthy for too long is failed: by
//! `set::repair`, within limits, where a set owns the Machine; by [`alone`] where nobody does, and then nobody replaces it.
//! MC-13, MC-14; S6.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::node;
use super::observed::Observed;
use super::outcome::Lost;
use super::status::StatusChange;
use super::step::{Plan, Step, Why};
use crate::api::lenient::GoDuration;
use crate::api::{Machine, OperationReason, OperationState, OperationType, Phase, meta};
use crate::ids::NodeName;
use crate::ledger::Calls;
use crate::settings::Settings;
use crate::sight::{Judging, Sight, later};

/// All that a judgement may read.
#[derive(Clone, Copy, Debug)]
pub struct Witnesses<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// Its own Node, where it is seen.
    pub node: Option<&'a Node>,
    /// What its driver said of its VM.
    pub calls: Option<&'a Calls>,
    /// Since when Nodes are seen.
    pub sight: Sight,
    /// The operator's wishes.
    pub settings: &'a Settings,
}

/// What speaks against a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its Node is unhealthy.
    NodeUnhealthy,
    /// Its Node is gone.
    NodeGone,
    /// An agent could not update its Node.
    NotUpdated,
    /// Its driver says that its VM does not run, or is about to end.
    Vm(Lost),
    /// The driver said so to an earlier process and has not been heard since. The Node looks healthy.
    Reported,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeUnhealthy => f.write_str("its node is unhealthy"),
            Self::NodeGone => f.write_str("its Node is gone"),
            Self::NotUpdated => f.write_str("its node was not updated in place"),
            Self::Vm(lost) => lost.fmt(f),
            Self::Reported => f.write_str("its VM was reported not to run"),
        }
    }
}

/// How a Machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing speaks against it, or it is not judged: it has not joined, or has failed.
    Healthy,
    /// Its Node is out of sight.
    Unknown,
    /// It is unhealthy.
    Ill {
        /// What speaks against it.
        fault: Fault,
        /// Until when it may recover. `None`: its time does not run.
        until: Option<Timestamp>,
    },
    /// Its VM is proven gone, by its driver and its Node, or is announced to go. It cannot recover, so no limit keeps it.
    Ended(Lost),
}

/// What becomes of a Machine that has failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    /// What its status says from now on.
    pub change: StatusChange,
    /// The reason of the event.
    pub reason: &'static str,
    /// Its Node, which must be unhealthy, or gone, when it is looked at live. `None`: the Node says nothing of what ails it.
    pub see: Option<NodeName>,
}

impl Witnesses<'_> {
    /// How the Machine is.
    pub fn judge(&self) -> Judgement {
        let machine = self.machine;
        let is_ill = matches!(machine.phase(), Phase::Unknown | Phase::InPlaceUpdateFailed);
        let Some(since) = machine.phase_since().filter(|_| is_ill) else {
            return Judgement::Healthy;
        };
        let Some(deadline) = self.sight.deadline(since, self.timeout(), Judging::Rollout) else {
            return Judgement::Unknown;
        };
        let Some(fault) = self.fault(since) else {
            return Judgement::Healthy;
        };
        let is_judged = machine.spec.disable_health_timeout != Some(true);
        match fault {
            _ if !is_judged => Judgement::Ill { fault, until: None },
            Fault::Vm(lost) if ends(lost, self.node, self.settings) => Judgement::Ended(lost),
            Fault::Vm(_) => Judgement::Ill {
                fault,
                until: Some(since),
            },
            Fault::NodeUnhealthy | Fault::NodeGone | Fault::NotUpdated => Judgement::Ill {
                fault,
                until: Some(deadline),
            },
            Fault::Reported => Judgement::Ill { fault, until: None },
        }
    }

    fn fault(&self, since: Timestamp) -> Option<Fault> {
        if let Some(lost) = self.calls.and_then(|calls| calls.lost(since, self.node)) {
            return Some(Fault::Vm(lost));
        }
        let is_reported = is_reported(self.machine);
        match self.node {
            _ if *self.machine.phase() == Phase::InPlaceUpdateFailed => Some(Fault::NotUpdated),
            None if self.settings.has_target => Some(Fault::NodeGone),
            None => is_reported.then_some(Fault::Reported),
            Some(node) if !node::is_healthy(node, &self.watched()) => Some(Fault::NodeUnhealthy),
            Some(_) => is_reported.then_some(Fault::Reported),
        }
    }

    fn watched(&self) -> Vec<String> {
        node::watched_conditions(self.machine, self.settings)
    }

    /// How long it may be unhealthy.
    pub(super) fn timeout(&self) -> SignedDuration {
        self.machine.health_timeout().unwrap_or(self.settings.health_timeout)
    }

    /// What is written of a Machine that failed for this.
    pub fn failed(&self, fault: Fault, now: Timestamp) -> Failed {
        let machine = self.machine;
        let (timeout, end) = (GoDuration::from(self.timeout()), end(machine));
        let said = self.words(fault);
        let text = match fault {
            Fault::Vm(_) => format!("{said}, so {end}"),
            Fault::NotUpdated => format!("The node has not been updated in place for {timeout}, so {end}"),
            Fault::NodeUnhealthy | Fault::NodeGone | Fault::Reported => {
                format!("{said}; this lasted longer than the health timeout of {timeout}, so {end}")
            }
        };
        let operation = match fault {
            Fault::NotUpdated => OperationType::InPlaceUpdate,
            Fault::NodeUnhealthy | Fault::NodeGone | Fault::Vm(_) | Fault::Reported => OperationType::HealthCheck,
        };
        let mut change =
            StatusChange::told(machine, operation, OperationState::Failed, text, now).entering(Phase::Failed);
        change.reason = fault.stored();
        Failed {
            change,
            reason: match fault {
                Fault::Vm(Lost::Ending) => "VmEnding",
                Fault::Vm(_) => "VmLost",
                Fault::NotUpdated => "InPlaceUpdateFailed",
                Fault::NodeUnhealthy | Fault::NodeGone | Fault::Reported => "HealthTimedOut",
            },
            see: match fault {
                Fault::NodeUnhealthy | Fault::NodeGone => node::likely_name(machine),
                Fault::Vm(_) if !self.looks_healthy() => node::likely_name(machine),
                Fault::Vm(_) | Fault::NotUpdated | Fault::Reported => None,
            },
        }
    }

    /// What ails the Machine, as its status tells it.
    pub fn words(&self, fault: Fault) -> String {
        match (fault, self.node) {
            (Fault::Vm(lost), _) if self.looks_healthy() || !self.settings.has_target => {
                format!("The provider says that {lost}")
            }
            (Fault::Vm(lost), _) => format!("The node is unhealthy, and {lost}"),
            (Fault::NodeUnhealthy, Some(node)) => {
                let bad = node::unhealthy_conditions(node, &self.watched()).join(", ");
                format!("The node is unhealthy: {bad}")
            }
            (Fault::NodeUnhealthy | Fault::NodeGone, _) => "The Node object is gone".to_owned(),
            (Fault::NotUpdated, _) => "The node was not updated in place".to_owned(),
            (Fault::Reported, _) => {
                "The provider said that the VM does not run, and has not been heard since".to_owned()
            }
        }
    }

    fn looks_healthy(&self) -> bool {
        self.node.is_some_and(|node| node::is_healthy(node, &self.watched()))
    }
}

impl Fault {
    /// The reason that is stored with a Machine of this fault: what a later process must know before it believes the Node.
    pub fn stored(self) -> Option<OperationReason> {
        match self {
            Self::Vm(Lost::Ending) => Some(OperationReason::VmEnding),
            Self::Vm(_) | Self::Reported => Some(OperationReason::VmReported),
            Self::NodeUnhealthy | Self::NodeGone | Self::NotUpdated => None,
        }
    }
}

/// Whether the Machine's VM is proven gone, or is announced to go.
pub fn is_ended(machine: &Machine, node: Option<&Node>, calls: Option<&Calls>, settings: &Settings) -> bool {
    // One that has failed did so on what was said before.
    let since = machine.phase_since().filter(|_| *machine.phase() == Phase::Unknown);
    let lost = calls.and_then(|calls| calls.lost(since.unwrap_or(Timestamp::MIN), node));
    let may_be = matches!(machine.phase(), Phase::Unknown | Phase::Failed);
    may_be && lost.is_some_and(|lost| ends(lost, node, settings))
}

/// Whether a VM that is lost cannot come back. A driver alone does not prove that a VM is gone while the VM's Node is ready. Without a target
/// cluster no Node can confirm what the driver says: a driver with the credentials of another account finds none of the VMs.
fn ends(lost: Lost, node: Option<&Node>, settings: &Settings) -> bool {
    match lost {
        Lost::Ending => true,
        Lost::Gone => settings.has_target && !node.is_some_and(node::is_ready),
        Lost::Stopped | Lost::Failed => false,
    }
}

/// A Machine that failed because its driver said that its VM does not run is looked at once more, so long after it failed: the VM may be on
/// again, with its disk.
pub const LAST_LOOK: SignedDuration = SignedDuration::from_secs(5);

/// Whether the VM of a Machine that failed runs, as its driver said at that last look. `None`: it has not said anything yet.
pub fn runs_after_all(machine: &Machine, calls: &Calls) -> Option<bool> {
    calls.runs_since(later(machine.phase_since()?, LAST_LOOK))
}

/// Whether the Machine's status says that its VM does not run, or is about to end.
pub fn is_reported(machine: &Machine) -> bool {
    let reason = machine.operation_reason();
    matches!(reason, Some(OperationReason::VmReported | OperationReason::VmEnding))
}

/// What becomes of a Machine that has failed.
pub fn end(machine: &Machine) -> &'static str {
    match meta::controller_of(&machine.metadata) {
        Some(_) => "the machine is replaced",
        None => "the machine is Failed",
    }
}

/// The plan of a Machine, or that it has failed: where nobody owns it, it is failed here.
pub fn alone(seen: &Observed<'_>, plan: Plan, now: Timestamp) -> Plan {
    if meta::controller_of(&seen.machine.metadata).is_some() {
        return plan;
    }
    let witnesses = seen.witnesses();
    let fault = match witnesses.judge() {
        Judgement::Healthy | Judgement::Unknown => return plan,
        Judgement::Ill { until, .. } if until.is_none_or(|until| until > now) => return plan.or_at(until, now),
        Judgement::Ill { fault, .. } => fault,
        Judgement::Ended(lost) => Fault::Vm(lost),
    };
    let failed = witnesses.failed(fault, now);
    let why = match fault {
        Fault::Vm(lost) => Why::VmLost(lost),
        Fault::NotUpdated => Why::InPlaceUpdateFailed,
        Fault::NodeUnhealthy | Fault::NodeGone | Fault::Reported => Why::HealthTimedOut,
    };
    let mut plan = failed.change.act(why);
    plan.steps.splice(0..0, failed.see.map(Step::SeeNode));
    plan
}
