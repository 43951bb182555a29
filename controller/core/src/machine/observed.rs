//! All that a decision about one Machine may read. Observes nothing itself.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::judgement::Witnesses;
use super::node;
use super::steer::Standing;
use crate::api::Machine;
use crate::circuit_breaker::{Admission, Cause, Circuits, Operation};
use crate::class::{Readiness, Recipe};
use crate::drain::{Drain, Volumes};
use crate::driver::DriverInfo;
use crate::ledger::{Calls, Trouble};
use crate::replacement_limit::Tally;
use crate::settings::Settings;
use crate::sight::Sight;

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
        own.filter(|_| self.settings.has_target && !self.is_blind())
    }

    /// There is a target cluster, and its Nodes are out of sight.
    pub(crate) fn is_blind(&self) -> bool {
        self.settings.has_target && self.sight.target_since.is_none()
    }

    /// Whether the Machine carries all that names its VM and its node. Without a target cluster there is none to wait for.
    pub(crate) fn awaits_node(&self) -> bool {
        let machine = self.machine;
        self.settings.has_target && machine.provider_id().is_some() && machine.node_label().is_some()
    }

    /// The creation timeout in force (MC-8): annotation, then spec, then the operator's.
    pub(crate) fn creation_timeout(&self) -> SignedDuration {
        self.machine
            .creation_timeout()
            .unwrap_or(self.settings.creation_timeout)
    }

    /// The node conditions in force: the Machine's own list, then the operator's.
    pub(crate) fn node_conditions(&self) -> Vec<String> {
        node::watched_conditions(self.machine, self.settings)
    }

    /// Whether the Machine's Node is awaited, and the Machine has never had it.
    pub fn is_yet_to_join(&self) -> bool {
        self.awaits_node() && !self.machine.has_joined()
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
