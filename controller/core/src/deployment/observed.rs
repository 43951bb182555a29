//! All that a decision about one MachineDeployment may read, and the vocabulary of its plan.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::{MachineDeployment, MachineSet};
use crate::ids::{Name, Uid};

/// All that a decision about one MachineDeployment may read.
pub struct Observed<'a> {
    /// The deployment.
    pub deployment: &'a MachineDeployment,
    /// Sets that it controls, and sets that nobody controls; by name.
    pub sets: &'a [Arc<MachineSet>],
    /// Whether any set bears a name.
    pub exists: &'a dyn Fn(&str) -> bool,
    /// When the status was last written: small changes wait a moment so that many become one write.
    pub status_written: Option<Timestamp>,
}

/// What to do now, when to look again, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In order; every prefix is safe.
    pub steps: Vec<Step>,
    /// When to look again if nothing happens.
    pub wake: Option<Timestamp>,
    /// The reason.
    pub why: Why,
}

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Store our finalizer on the deployment.
    AddFinalizer,
    /// Take our finalizer from the deployment: it has no set left.
    RemoveFinalizer,
    /// Make the deployment the controller of a set that nobody controls.
    Adopt(Name, Uid),
    /// Take the deployment's owner reference from a set that its selector no longer matches.
    Release(Name, Uid),
    /// Create the deployment's set.
    Create(Value),
    /// Change a set: its size, and what the deployment passes on to it.
    Change(Name, Value),
    /// Delete these sets.
    Delete(Vec<(Name, Uid)>),
    /// Write the deployment's revision annotation.
    Number(i64),
    /// Write the status.
    Record(Value),
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
            Self::Settled => f.write_str("the deployment has what it wants"),
        }
    }
}

impl Why {
    /// One word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "Invalid",
            Self::Emptying => "Emptying",
            Self::Empty => "Empty",
            Self::Claiming => "Claiming",
            Self::NoSet => "NoSet",
            Self::NameTaken => "NameTaken",
            Self::Scaling { .. } => "Scaling",
            Self::Passing => "Passing",
            Self::TemplateChanged => "TemplateChanged",
            Self::Paused => "Paused",
            Self::Settled => "Settled",
        }
    }
}
