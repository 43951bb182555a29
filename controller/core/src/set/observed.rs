//! All that a decision about one MachineSet may read, and the vocabulary of its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::{Machine, MachineSet};
use crate::ids::{Name, Uid};

/// All that a decision about one MachineSet may read.
pub struct Observed<'a> {
    /// The set.
    pub set: &'a MachineSet,
    /// Machines that it controls, and Machines that nobody controls; by name.
    pub machines: &'a [Arc<Machine>],
    /// Whether any Machine bears a name.
    pub exists: &'a dyn Fn(&str) -> bool,
    /// Why no Machine should be made of its class, if that is known.
    pub refusal: Option<&'a str>,
    /// The class has not been looked at since it changed; that takes moments.
    pub class_unchecked: bool,
    /// The last creation that the API server refused, and when.
    pub refused: Option<&'a (String, Timestamp)>,
    /// Machines whose deletion was sent and not answered.
    pub condemned: &'a BTreeSet<Uid>,
    /// When creations were last sent that were not answered, by the Machine's name.
    pub unanswered: &'a BTreeMap<Name, Timestamp>,
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
    /// Store our finalizer on the set.
    AddFinalizer,
    /// Take our finalizer from the set: it has no Machine left.
    RemoveFinalizer,
    /// Make the set the controller of a Machine that nobody controls.
    Adopt(Name, Uid),
    /// Take the set's owner reference from a Machine that its selector no longer matches.
    Release(Name, Uid),
    /// Advance the counter of names, guarded by the version that was read, before anything is named by it.
    Reserve {
        /// The new value of `status.nextMachineNumber`.
        next: i64,
    },
    /// Create these Machines, together; stop at the first refusal.
    Create(Vec<Value>),
    /// Delete these Machines, together.
    Delete(Vec<(Name, Uid)>),
    /// Bring parts of the template to a Machine that exists (`spec/machineset.md` §5).
    Bring(Name, Value),
    /// Write the status.
    Record(Value),
}

/// Why a plan is what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "Display says what each means")]
pub enum Why {
    Unguarded,
    Invalid(String),
    Emptying,
    Empty,
    Claiming,
    TooFew { by: usize },
    TooMany { by: usize },
    Replacing { failed: usize },
    ClassRefused(String),
    ClassUnchecked,
    Frozen,
    CoolingOff,
    Settled,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unguarded => f.write_str("the finalizer is not stored yet"),
            Self::Invalid(fault) => write!(f, "the set is invalid: {fault}"),
            Self::Emptying => f.write_str("the set is being deleted and its machines go first"),
            Self::Empty => f.write_str("the set is being deleted and has no machine left"),
            Self::Claiming => f.write_str("machines are adopted or released"),
            Self::TooFew { by } => write!(f, "{by} machines are missing"),
            Self::TooMany { by } => write!(f, "there are {by} machines too many"),
            Self::Replacing { failed } => write!(f, "{failed} failed or marked machines are replaced"),
            Self::ClassRefused(fault) => write!(f, "no machine can be made of the class: {fault}"),
            Self::ClassUnchecked => f.write_str("the class has not been checked yet"),
            Self::Frozen => f.write_str("the set is frozen"),
            Self::CoolingOff => f.write_str("waiting before machines are created again"),
            Self::Settled => f.write_str("the set has what it wants"),
        }
    }
}

impl Why {
    /// One word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unguarded => "Unguarded",
            Self::Invalid(_) => "Invalid",
            Self::Emptying => "Emptying",
            Self::Empty => "Empty",
            Self::Claiming => "Claiming",
            Self::TooFew { .. } => "TooFew",
            Self::TooMany { .. } => "TooMany",
            Self::Replacing { .. } => "Replacing",
            Self::ClassRefused(_) => "ClassRefused",
            Self::ClassUnchecked => "ClassUnchecked",
            Self::Frozen => "Frozen",
            Self::CoolingOff => "CoolingOff",
            Self::Settled => "Settled",
        }
    }
}
