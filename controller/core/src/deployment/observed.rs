//! All that a decision about one MachineDeployment may read, and the vocabulary of its plan.

use std::fmt;
use std::sync::Arc;

use super::change::{NewSet, SetChange};
use crate::api::{MachineDeployment, MachineSet};
use crate::ids::{Name, Uid};
use crate::ledger::OwnerNotes;
use crate::plan::Bearing;
use crate::set::StatusPatch;

/// All that a decision about one MachineDeployment may read.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    /// The deployment.
    pub deployment: &'a MachineDeployment,
    /// Sets that it controls, and sets that nobody controls; by name.
    pub sets: &'a [Arc<MachineSet>],
    /// Whether any set bears a name.
    pub exists: &'a dyn Fn(&str) -> bool,
    /// What this process knows of the deployment.
    pub notes: &'a OwnerNotes,
}

/// The plan of a deployment.
pub type Plan = crate::plan::Plan<Step, Why>;

/// One effect. A set is meant in the version that the plan saw: a write to a newer one is refused as stale, and ends the plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Store our finalizer on the deployment.
    AddFinalizer,
    /// Take our finalizer from the deployment: it has no set left.
    RemoveFinalizer,
    /// Make the deployment the controller of sets that nobody controls.
    Adopt(Vec<Arc<MachineSet>>),
    /// Take the deployment's owner reference from sets that its selector no longer matches.
    Release(Vec<Arc<MachineSet>>),
    /// Create the deployment's set.
    Create(Box<NewSet>),
    /// Change a set: its size, and what the deployment passes on to it.
    Change(Box<SetChange>),
    /// Delete these sets.
    Delete(Vec<(Name, Uid)>),
    /// Write the deployment's revision annotation.
    Number(i64),
    /// Write the status.
    Record(StatusPatch),
}

impl crate::plan::Step for Step {
    fn bearing(&self) -> Bearing {
        match self {
            Self::AddFinalizer
            | Self::RemoveFinalizer
            | Self::Create(_)
            | Self::Change(_)
            | Self::Delete(_)
            | Self::Number(_) => Bearing::Stops,
            Self::Adopt(_) | Self::Release(_) | Self::Record(_) => Bearing::Independent,
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
    Claiming,
    NoSet,
    NameTaken,
    Scaling { from: i32, to: i32 },
    Passing,
    TemplateChanged,
    Paused,
    CoolingOff,
    Settled,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(fault) => write!(f, "the deployment is invalid: {fault}"),
            Self::Emptying => f.write_str("the deployment is being deleted and its sets go first"),
            Self::Empty => f.write_str("the deployment is being deleted and has no set left"),
            Self::Claiming => f.write_str("sets are adopted or released"),
            Self::NoSet => f.write_str("there is no set yet"),
            Self::NameTaken => f.write_str("the new set's name is taken"),
            Self::Scaling { from, to } => write!(f, "the set is scaled from {from} to {to}"),
            Self::Passing => f.write_str("changes are passed on to the set"),
            Self::TemplateChanged => f.write_str("the template changed, and rollouts are not built yet"),
            Self::Paused => f.write_str("the deployment is paused"),
            Self::CoolingOff => f.write_str("waiting before the set is created again"),
            Self::Settled => f.write_str("the deployment has what it wants"),
        }
    }
}
