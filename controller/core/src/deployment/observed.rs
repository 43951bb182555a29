//! All that a decision about one MachineDeployment may read, and the vocabulary of its plan.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::change::{NewSet, SetChange};
use super::in_place::Transfer;
use super::rollback::RollBack;
use super::status::StatusChange;
use crate::api::{Machine, MachineDeployment, MachineSet, keys, meta};
use crate::ids::Uid;
use crate::ledger::OwnerNotes;
use crate::machine::node_patch::NodePatch;
use crate::owner;
use crate::plan::Bearing;
use crate::refusal::Refusal;
use crate::set;
use crate::sight::Sight;

/// Who decides about one set; core's, but where a test puts another one in its place.
pub type PlanSet = fn(&set::Observed<'_>, Timestamp) -> set::Plan;

/// All that a decision about one MachineDeployment may read.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    /// The deployment.
    pub deployment: &'a MachineDeployment,
    /// Sets that it controls, and sets that nobody controls, each with its Machines; by name.
    pub sets: &'a [set::Observed<'a>],
    /// Whether any set bears a name.
    pub exists: &'a dyn Fn(&str) -> bool,
    /// What this process knows of the deployment.
    pub notes: &'a OwnerNotes,
    /// Writes that the API server refused, by the object's uid.
    pub refusals: &'a BTreeMap<Uid, Refusal>,
    /// Since when this process leads and sees Machines and Nodes.
    pub sight: Sight,
    /// Whether there is a cluster for Nodes to join.
    pub has_target: bool,
    /// How many of its Machines may be on the way from given up, for being unhealthy, to replaced.
    pub replacements: usize,
    /// Who decides about its sets' Machines.
    pub plan_set: PlanSet,
}

impl<'a> Observed<'a> {
    /// Sets that the deployment controls, oldest first.
    pub fn owned(&self) -> Vec<&'a set::Observed<'a>> {
        let is_own = |member: &&set::Observed<'_>| owner::controls(&self.deployment.metadata, &member.set.metadata);
        let mut sets: Vec<&set::Observed<'a>> = self.sets.iter().filter(is_own).collect();
        sets.sort_by_cached_key(|member| {
            let metadata = &member.set.metadata;
            (meta::created(metadata), meta::name(metadata).to_owned())
        });
        sets
    }
}

/// The plan of a deployment with its sets.
pub type Plan = crate::plan::Plan<Step, Why>;

/// One effect. An object is meant in the version that the plan saw: a write to a newer one is refused as stale, and ends the plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Store our finalizer on the deployment.
    AddFinalizer,
    /// Take our finalizer from the deployment: it has no set left.
    RemoveFinalizer,
    /// Make the deployment the controller of sets that nobody controls.
    Adopt(Vec<Arc<MachineSet>>),
    /// Create the deployment's set.
    Create(Box<NewSet>),
    /// Change a set: its number, and what the deployment passes on to it.
    Change(Box<SetChange>),
    /// Move Machines that were updated in place to the set of the present template.
    Transfer(Vec<Transfer>),
    /// Label these Nodes: their Machines are updated in place now.
    Select(Vec<NodePatch>),
    /// Delete these sets.
    Delete(Vec<Arc<MachineSet>>),
    /// Mark Machines that the autoscaler named, as the original does.
    Mark(Vec<Mark>),
    /// Take off the label of a freeze, and the annotation that asks for that.
    Thaw,
    /// Write the autoscaler's list without the Machines that are gone; `None` removes it.
    Prune(Option<String>),
    /// Put an earlier template back.
    RollBack(Box<RollBack>),
    /// Write the deployment's revision annotation.
    Number(i64),
    /// Write the status.
    Record(Box<StatusChange>),
    /// A step of one of its sets.
    Of(Arc<MachineSet>, set::Step),
}

/// A Machine that the autoscaler named.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// When the autoscaler named it, as it wrote the time.
    pub time: String,
}

impl Mark {
    /// The body of a JSON merge patch of the Machine.
    pub fn patch(&self) -> Value {
        json!({ "metadata": { "annotations": {
            keys::PRIORITY: keys::PRIORITY_TRIGGERED,
            keys::MARKED_FOR_DELETION_TIME: self.time,
        } } })
    }
}

impl crate::plan::Step for Step {
    fn bearing(&self) -> Bearing {
        match self {
            Self::Adopt(_) | Self::Select(_) | Self::Mark(_) | Self::Thaw | Self::Prune(_) | Self::Record(_) => {
                Bearing::Independent
            }
            Self::Of(_, step) => step.bearing(),
            // A move, too: numbers that follow from it are planned from what it left.
            _ => Bearing::Stops,
        }
    }

    fn part(&self) -> Option<&str> {
        match self {
            Self::Of(set, _) => set.metadata.uid.as_deref(),
            _ => None,
        }
    }
}

/// Why a plan is what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "Display says what each means")]
pub enum Why {
    Invalid(String),
    Emptying,
    Empty,
    Orphaning,
    Claiming,
    RollingBack,
    NoSet,
    NameTaken,
    Scaling { from: i64, to: i64 },
    Rolling { left: i64 },
    Recreating { left: i64 },
    InPlace { left: i64 },
    NoTarget,
    Passing,
    Paused,
    CoolingOff,
    Cleaning,
    Set(set::Why),
    Settled,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(fault) => write!(f, "the deployment is invalid: {fault}"),
            Self::Emptying => f.write_str("the deployment is being deleted and its sets go first"),
            Self::Empty => f.write_str("the deployment is being deleted and has no set left"),
            Self::Orphaning => f.write_str("the deployment is being deleted and its sets are to stay"),
            Self::Claiming => f.write_str("sets are adopted"),
            Self::RollingBack => f.write_str("an earlier template is put back"),
            Self::NoSet => f.write_str("there is no set for the template yet"),
            Self::NameTaken => f.write_str("the new set's name is taken"),
            Self::Scaling { from, to } => write!(f, "it is scaled from {from} to {to}"),
            Self::Rolling { left } => write!(f, "machines move to the new template; {left} of older ones are left"),
            Self::Recreating { left } => write!(f, "old machines go before new ones come; {left} are left"),
            Self::InPlace { left } => write!(f, "machines are updated in place; {left} of older templates are left"),
            Self::NoTarget => f.write_str(
                "the template changed, and updates in place need a target cluster, which there is not: nothing is touched",
            ),
            Self::Passing => f.write_str("changes are passed on to the set"),
            Self::Paused => f.write_str("the deployment is paused"),
            Self::CoolingOff => f.write_str("waiting before the set is created again"),
            Self::Cleaning => f.write_str("sets beyond the history limit are deleted"),
            Self::Set(why) => why.fmt(f),
            Self::Settled => f.write_str("the deployment has nothing to change"),
        }
    }
}
