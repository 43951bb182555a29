//! All that a decision about one MachineSet may read, and the vocabulary of its plan.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::bring::Brought;
use super::keep::{Choice, Mark};
use super::made::NewMachine;
use super::repair::GivenUp;
use super::status::StatusChange;
use crate::api::{Machine, MachineSet, meta};
use crate::class;
use crate::ids::{Name, Uid};
use crate::ledger::{Calls, OwnerNotes};
use crate::machine::in_place::marks::Update;
use crate::machine::judgement::Fault;
use crate::machine::preserve::request::Value;
use crate::plan::Bearing;
use crate::refusal::Refusal;
use crate::replacement_limit::{Tally, Tripped};
use crate::settings::Settings;
use crate::sight::Sight;

/// All that a decision about one MachineSet may read.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    /// The set.
    pub set: &'a Arc<MachineSet>,
    /// Machines that it controls, and Machines that nobody controls; by name.
    pub machines: &'a [MachineView<'a>],
    /// Whether any Machine bears a name.
    pub exists: &'a dyn Fn(&str) -> bool,
    /// Why no Machine should be made of its class, if that is known.
    pub refusal: Option<&'a class::Fault>,
    /// The class has not been looked at since it changed; that takes moments.
    pub class_unchecked: bool,
    /// What this process knows of the set.
    pub notes: &'a OwnerNotes,
    /// When creations were last sent that were not answered, by the Machine's name.
    pub unanswered: &'a BTreeMap<Name, Timestamp>,
    /// What it may do now.
    pub allowance: Allowance<'a>,
    /// Its deployment is frozen.
    pub is_frozen: bool,
    /// Somebody asked on its deployment for the end of a freeze.
    pub unfreeze: bool,
    /// Since when Nodes are seen.
    pub sight: Sight,
    /// The operator's wishes.
    pub settings: &'a Settings,
}

impl<'a> Observed<'a> {
    /// The Machines that the set controls.
    pub fn owned(&self) -> impl Iterator<Item = &'a MachineView<'a>> + Clone + use<'a> {
        self.machines.iter().filter(|machine| machine.is_own)
    }
}

/// A Machine with all that a decision about its set may know of it.
#[derive(Clone, Debug)]
pub struct MachineView<'a> {
    /// The Machine.
    pub machine: &'a Arc<Machine>,
    /// The set controls it. Else nobody does.
    pub is_own: bool,
    /// The API server refused the last write to it.
    pub refusal: Option<&'a Refusal>,
    /// When its deletion was sent, which was not answered.
    pub deletion_sent: Option<Timestamp>,
    /// The autoscaler named it as a victim of its scale-down: it goes, whatever the count is.
    pub is_named: bool,
    /// Whether it is requested to be kept, where it failed.
    pub request: Option<Value>,
    /// What its Node bears of an update in place, where its deployment updates so.
    pub update: Option<Update>,
    /// What is known of its VM.
    pub calls: Option<&'a Calls>,
    /// Its Node, where it is unhealthy or loses that.
    pub node: Option<&'a Node>,
    /// How many Machines of its deployment, or of its set without one, are unhealthy, where it is itself.
    pub group: Tally,
    /// How many Nodes of that Node's zone are not ready.
    pub zone: Tally,
}

impl<'a> MachineView<'a> {
    /// A Machine of which nothing else is known.
    pub fn new(machine: &'a Arc<Machine>) -> Self {
        Self {
            machine,
            is_own: meta::controller_of(&machine.metadata).is_some(),
            refusal: None,
            deletion_sent: None,
            is_named: false,
            request: None,
            update: None,
            calls: None,
            node: None,
            group: Tally::default(),
            zone: Tally::default(),
        }
    }
}

impl Deref for MachineView<'_> {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        self.machine
    }
}

/// What a set may do now about its Machines; its deployment divides that up among its sets.
#[derive(Clone, Copy, Debug)]
pub struct Allowance<'a> {
    /// Make the Machines that it lacks; else another set of its deployment does.
    pub grow: bool,
    /// Delete so many available Machines above its number. `None`: as many as there are.
    pub lose: Option<usize>,
    /// Send a deletion of an available Machine again that was sent and not answered.
    pub resend: bool,
    /// Have so many of its Machines on the way from failed to replaced.
    pub replace: usize,
    /// Keep these of its Failed Machines without being asked. `None`: it chooses itself, as its spec says.
    pub keep: Option<&'a Choice>,
}

impl Allowance<'_> {
    /// All that a set without a deployment may do, with so many Machines replaced at once.
    pub const fn all(replace: usize) -> Self {
        Self {
            grow: true,
            lose: None,
            resend: true,
            replace,
            keep: None,
        }
    }
}

/// The plan of a set.
pub type Plan = crate::plan::Plan<Step, Why>;

/// One effect. A child is meant in the version that the plan saw: a write to a newer one is refused as stale.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Store our finalizer on the set.
    AddFinalizer,
    /// Take our finalizer from the set: it has no Machine left.
    RemoveFinalizer,
    /// Make the set the controller of Machines that nobody controls.
    Adopt(Vec<Arc<Machine>>),
    /// Take the set's owner reference from Machines that its selector no longer matches.
    Release(Vec<Arc<Machine>>),
    /// Advance the counter of names, guarded by the version that was read, before anything is named by it.
    Reserve {
        /// The new value of `status.nextMachineNumber`.
        next: i64,
    },
    /// Create these Machines, together: one batch. Whether more are wanted is looked at again after it.
    Create(Vec<NewMachine>),
    /// Delete these Machines, together.
    Delete(Vec<Victim>),
    /// Bring parts of the template to Machines that exist (MS-6).
    Bring(Vec<Brought>),
    /// Move unhealthy Machines to phase `Failed`, by which they are replaced.
    GiveUp(Vec<GivenUp>),
    /// Annotate Failed Machines that are kept without being asked, or are so no longer.
    Keep(Vec<Mark>),
    /// Take off the label by which nothing is created, and the annotation that asks for that.
    Thaw,
    /// Write the status.
    Record(Box<StatusChange>),
}

/// A Machine to delete. Mostly that is right whatever else changed about the Machine, so that it is bound to its uid alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: Uid,
    /// The version that it must have, where its deletion is right only while it is as the plan saw it.
    pub version: Option<String>,
    /// It failed and another is made in its place.
    pub is_replaced: bool,
    /// It is available, and not named by the autoscaler: its deployment must be able to spare it.
    pub is_lost: bool,
}

impl Step {
    /// The Machines that the step deletes.
    pub fn victims(&self) -> &[Victim] {
        match self {
            Self::Delete(victims) => victims,
            _ => &[],
        }
    }

    /// How many Machines the step gives up within limits.
    pub fn given_up(&self) -> usize {
        match self {
            Self::GiveUp(given) => given.iter().filter(|given| !given.has_ended).count(),
            _ => 0,
        }
    }
}

impl crate::plan::Step for Step {
    fn bearing(&self) -> Bearing {
        match self {
            Self::Adopt(_)
            | Self::Release(_)
            | Self::Bring(_)
            | Self::GiveUp(_)
            | Self::Keep(_)
            | Self::Thaw
            | Self::Record(_) => Bearing::Independent,
            _ => Bearing::Stops,
        }
    }
}

/// Why a plan is what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "Display says what each means")]
pub enum Why {
    Unguarded,
    Invalid(String),
    Emptying,
    Orphaning,
    MayStillArrive,
    MayComeAgain,
    Empty,
    Claiming,
    TooFew { by: usize },
    TooMany { by: usize },
    Replacing { failed: usize },
    ClassRefused(String),
    ClassUnchecked,
    Frozen,
    MadeElsewhere,
    CoolingOff,
    NextBatch,
    Refused(String),
    ReplacedAt(Timestamp),
    LastLook,
    Preserved(Option<Timestamp>),
    Spared,
    Held,
    GivingUp(Fault),
    GivenUpAt(Fault, Timestamp),
    TooManyIll(Fault, Tripped),
    OthersFirst(Fault, usize),
    Settled,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unguarded => f.write_str("the finalizer is not stored yet"),
            Self::Invalid(fault) => write!(f, "the set is invalid: {fault}"),
            Self::Emptying => f.write_str("the set is being deleted and its machines go first"),
            Self::Orphaning => f.write_str("the set is being deleted and its machines are to stay"),
            Self::MayStillArrive => f.write_str("a creation that was not answered may still arrive"),
            Self::MayComeAgain => f.write_str(
                "a machine that leaves may come again by a creation that was not answered; its place is kept",
            ),
            Self::Empty => f.write_str("the set is being deleted and has no machine left"),
            Self::Claiming => f.write_str("machines are adopted or released"),
            Self::TooFew { by } => write!(f, "{by} machines are missing"),
            Self::TooMany { by } => write!(f, "there are {by} machines too many"),
            Self::Replacing { failed } => write!(f, "{failed} failed or marked machines are replaced"),
            Self::ClassRefused(fault) => write!(f, "no machine can be made of the class: {fault}"),
            Self::ClassUnchecked => f.write_str("the class has not been checked yet"),
            Self::MadeElsewhere => f.write_str("what is missing is made with the new template"),
            Self::Frozen => f.write_str(
                "no machine is made: the set or its deployment is frozen, or is kept from growing by a label",
            ),
            Self::CoolingOff => f.write_str("waiting before machines are created again"),
            Self::NextBatch => f.write_str("the next batch of machines is about to be created"),
            Self::Refused(message) => write!(f, "the API server refused a write: {message}"),
            Self::ReplacedAt(at) => write!(f, "the machine failed and is replaced at {at:.0}"),
            Self::LastLook => {
                f.write_str("the machine failed, and its driver is asked for the VM once more before that is deleted")
            }
            Self::Preserved(None) => f.write_str("the machine failed and is about to be preserved"),
            Self::Preserved(Some(until)) => write!(f, "the machine failed and is preserved until {until:.0}"),
            Self::Spared => f.write_str("the machine is in the hands of an in-place update"),
            Self::Held => {
                f.write_str("the machine is too many, but available, and the deployment has none to spare now")
            }
            Self::GivingUp(Fault::NodeUnhealthy | Fault::NodeGone | Fault::Reported) => {
                f.write_str("machines were unhealthy for longer than their health timeout")
            }
            Self::GivingUp(Fault::NotUpdated) => {
                f.write_str("machines were not updated in place for longer than their health timeout")
            }
            Self::GivingUp(Fault::Vm(_)) => f.write_str("VMs of machines do not run any more"),
            Self::GivenUpAt(fault, at) => write!(f, "{fault}, and it is replaced at {at:.0} if that lasts"),
            Self::TooManyIll(fault, tripped) => write!(f, "{fault}, and it is kept while {tripped}"),
            Self::OthersFirst(fault, limit) => {
                write!(
                    f,
                    "{fault}, and other machines are replaced first, {limit} at once (--max-replacements)"
                )
            }
            Self::Settled => f.write_str("the set has nothing to change"),
        }
    }
}
