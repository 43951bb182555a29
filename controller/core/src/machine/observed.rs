//! All that a decision about one Machine may read. Observes nothing itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::judgement::Witnesses;
use super::node;
use super::steer::Standing;
use crate::api::{CreationRequest, Machine, keys, meta};
use crate::breaker::Tally;
use crate::circuit_breaker::{Admission, Cause, Circuits, Operation};
use crate::class::{Readiness, Recipe};
use crate::drain::{Drain, Volumes};
use crate::driver::{Deletion, DriverInfo, Failure, Vm};
use crate::ids::Name;
use crate::ledger::Stamp;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::sight::Sight;
use crate::world::World;

/// All that a decision about one Machine may read.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// Its class.
    pub class: ClassView<'a>,
    /// The driver of its class.
    pub driver: DriverView<'a>,
    /// Its Node: the one that bears its providerID, or the name that its VM registers with. None where another Machine has the
    /// better claim to it.
    pub node: Option<&'a Node>,
    /// The Machine that has the better claim to the Node that this one names; without a target cluster, to its VM.
    pub rival: Option<&'a str>,
    /// How many Machines of its deployment are unhealthy, where somebody has deleted its Node; else none.
    pub losers: Tally,
    /// What its class adds to the capacity of its Nodes; `None` where the class says nothing of Nodes, or is not known.
    pub virtual_capacity: Option<&'a BTreeMap<String, Quantity>>,
    /// How it stands in its deployment's rollout.
    pub standing: Standing,
    /// Since when all is seen that timeouts rest on.
    pub sight: Sight,
    /// What this process knows of its VM.
    pub calls: &'a Calls,
    /// What stops driver calls of its class.
    pub circuits: Circuits<'a>,
    /// The pods of its Node, while that is drained.
    pub drain: Option<&'a Drain>,
    /// Where volumes are attached, while any Node is drained whose pods have some.
    pub volumes: &'a Volumes,
    /// The operator's wishes.
    pub settings: &'a Settings,
}

impl<'a> Observed<'a> {
    /// The Machine's own Node, where it is seen and nobody wants it left alone.
    pub fn own_node(&self) -> Option<&'a Node> {
        let is_own = |node: &&Node| node::belongs(node, self.machine) && !node::is_unmanaged(node);
        let own = self.node.filter(is_own);
        own.filter(|_| self.settings.has_target && !super::is_blind(self))
    }

    /// What the Machine is judged by.
    pub fn witnesses(&self) -> Witnesses<'a> {
        Witnesses {
            machine: self.machine,
            node: self.node.filter(|node| node::belongs(node, self.machine)),
            calls: Some(self.calls),
            sight: self.sight,
            settings: self.settings,
        }
    }

    /// Whether the Machine may call.
    pub fn admit(&self, operation: Operation, now: Timestamp) -> Admission<'a> {
        self.circuits.admit(operation, self.machine, now)
    }

    /// When a call that failed may be tried again: where others wait for the same, one probes for all.
    pub fn retry_at(&self, trouble: &Trouble, operation: Operation, now: Timestamp) -> Timestamp {
        if Cause::of(&trouble.failure).is_none() {
            return trouble.retry_at;
        }
        match self.admit(operation, now) {
            Admission::Allow => trouble.retry_at,
            Admission::Probe => trouble.retry_at.min(now),
            Admission::Deny(_, look) => look,
        }
    }
}

/// A Machine's class, as far as the Machine is concerned.
#[derive(Clone, Copy, Debug)]
pub enum ClassView<'a> {
    /// The Machine names none, or one of a kind that does not exist.
    Unnamed,
    /// There is no class of that name.
    Missing(&'a str),
    /// The class is there.
    Present {
        /// Its name.
        name: &'a str,
        /// It carries our finalizer, so it cannot vanish before the VM.
        guarded: bool,
        /// What is known of it.
        readiness: &'a Readiness,
    },
}

impl<'a> ClassView<'a> {
    /// The class that a Machine names, as it is known now.
    pub(super) fn of(world: &'a World, name: Option<&'a Name>) -> Self {
        let Some(name) = name else { return Self::Unnamed };
        match world.classes.get(name) {
            None => Self::Missing(name.as_str()),
            Some(class) => Self::Present {
                name: name.as_str(),
                guarded: meta::has_finalizer(&class.metadata, keys::FINALIZER),
                readiness: world.ledger.readiness(name),
            },
        }
    }

    /// What Machines are made with, where the class is good.
    pub fn recipe(self) -> Option<&'a Recipe> {
        match self {
            Self::Present {
                readiness: Readiness::Ready(recipe),
                ..
            } => Some(recipe),
            Self::Present { .. } | Self::Missing(_) | Self::Unnamed => None,
        }
    }
}

/// A Machine's driver, as far as the Machine is concerned: the one that its VM was asked of, else that of its class.
#[derive(Clone, Copy, Debug)]
pub enum DriverView<'a> {
    /// No VM was asked for yet, and the class is missing or names no provider: nobody knows which driver it is.
    Unnamed,
    /// No driver of that name is known to this manager.
    Missing {
        /// Its name.
        name: &'a str,
    },
    /// The driver cannot be reached or used now.
    Away {
        /// Its name.
        name: &'a str,
        /// Why.
        why: &'a str,
    },
    /// The driver answers.
    Ready(&'a DriverInfo),
}

/// One of the calls that a Machine's plan can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// CreateMachine.
    Create,
    /// InitializeMachine.
    Initialize,
    /// GetMachineStatus.
    Status,
    /// DeleteMachine.
    Delete,
}

/// An answer of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To CreateMachine, InitializeMachine or GetMachineStatus.
    Vm(Call, Result<Vm, Failure>),
    /// To DeleteMachine.
    Deletion(Result<Deletion, Failure>),
    /// None: what the plan had seen was no longer so, and no driver was asked. The next plan sees what is so now.
    NotAsked(Call),
}

impl Answer {
    /// The failure, if it is one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Vm(_, Err(failure)) | Self::Deletion(Err(failure)) => Some(failure),
            Self::Vm(_, Ok(_)) | Self::Deletion(Ok(_)) | Self::NotAsked(_) => None,
        }
    }
}

/// The last failure of a call, until one succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The call that failed.
    pub call: Call,
    /// How.
    pub failure: Failure,
    /// How often in a row.
    pub times: u32,
    /// When it may be tried again.
    pub retry_at: Timestamp,
    /// The recipe it was tried with: another one may be tried at once.
    pub digest: Option<String>,
    /// A driver claimed that a newer leader has spoken to it, and the Lease says otherwise.
    pub is_false_alarm: bool,
}

/// Bad news of a VM that nobody asked for (`notice`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// When they came first.
    pub since: Timestamp,
    /// They came while a call was under way, whose answer may be older than they are.
    pub during_call: bool,
}

/// That no VM was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmade {
    /// When the last creation was answered, or, before the first answer, when the request was recorded.
    pub since: Timestamp,
    /// The provider accepted the credentials of none, or the driver got none. Only then it is certain that nothing else was made either: a driver may have made a
    /// disk before it met a quota.
    pub is_locked_out: bool,
}

/// What this process knows of a Machine's VM. It dies with the process, and all of it can be asked again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The call that is under way. One at a time (MC-1).
    pub running: Option<Call>,
    /// What was known of the class when it began.
    pub asked_under: Option<Stamp>,
    /// The essentials of the Machine's class, noted when a listing or a watch through that class has shown the VM. For Machines whose own
    /// record is missing or names no inventory.
    pub reached: Option<Arc<CreationRequest>>,
    /// This process sent all creations of the VM that were ever sent, and each was answered that nothing was done. `None`: something may have
    /// been made.
    pub unmade: Option<Unmade>,
    /// When a creation of the VM was last answered that it is made.
    pub made_at: Option<Timestamp>,
    /// The VM as last described.
    pub vm: Option<Vm>,
    /// When the driver last said that there is no such VM, if that was its last word.
    pub not_found_at: Option<Timestamp>,
    /// When it said that the VM does not run, and since then nothing else: the last answers, the oldest first.
    pub not_running_at: Vec<Timestamp>,
    /// When it last described the VM, or said that there is none.
    pub heard_at: Option<Timestamp>,
    /// When the driver was last asked for the VM's state, whatever it answered. `None`: bad news came meanwhile, so it is to be asked again.
    pub asked_at: Option<Timestamp>,
    /// When the last question for the VM's state ended, whatever came meanwhile.
    pub question_ended: Option<Timestamp>,
    /// When to ask for the VM's state again.
    pub poll_at: Option<Timestamp>,
    /// When to ask for its deletion again. Not the same: a driver that advises patience with a boot has not been asked
    /// to delete yet.
    pub delete_at: Option<Timestamp>,
    /// The provider told unasked that the VM does not run, or will not for long. Until an answer says that it does.
    pub doubt: Option<Doubt>,
    /// The last failure.
    pub trouble: Option<Trouble>,
    /// When DeleteMachine first answered that nothing is left.
    pub gone_since: Option<Timestamp>,
    /// The driver's last breadcrumb.
    pub crumb: Option<String>,
    /// The last cordon of its Node, if the target cluster refused it.
    pub cordon_refused: Option<Refusal>,
    /// When its Node was last written by this process.
    pub node_written: Option<Timestamp>,
    /// Until when the bootstrap token is good, if this process made sure of it.
    pub token_until: Option<Timestamp>,
    /// What was last said of annotations that nobody can read.
    pub complaint: Option<String>,
}
