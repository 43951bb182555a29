//! The vocabulary of a Machine's plan: what can be done, and the reasons a person would be given.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::in_place::marks::Reason;
use super::node_patch::NodePatch;
use super::outcome::Lost;
use super::preserve::request::{Asked, End};
use super::status::{Keeping, StatusChange};
use crate::circuit_breaker::Operation;
use crate::drain::PodRef;
use crate::driver::Call;
use crate::ids::{Name, NodeName, NodeRef, ProviderId, Uid};
use crate::plan::Bearing;
use crate::replacement_limit::Tripped;

/// The plan of a Machine.
pub type Plan = crate::plan::Plan<Step, Why>;

/// One effect. The shell carries it out and chooses nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Store our finalizer on the Machine.
    AddFinalizer,
    /// Read the Machine live and stop here unless it is the same one and not deleting: no CreateMachine on a cached
    /// view (MC-4).
    Confirm,
    /// Read the Machine's Node live, and stop here unless the target cluster answers and the Node is gone or unhealthy: nobody is given
    /// up for what was so when the cluster was last heard of.
    SeeNode(NodeName),
    /// Write the status.
    Record(Box<StatusChange>),
    /// Make sure that the bootstrap token's Secret exists.
    EnsureToken,
    /// Reserve the probe for all Machines whose calls are suspended, and stop here if another was faster.
    Probe(Operation),
    /// Start a driver call; its answer wakes the Machine.
    Call(Call),
    /// Write what identifies the VM: `spec.providerID`, label `node`, the default priority.
    Identify {
        /// For `spec.providerID`.
        provider_id: Option<ProviderId>,
        /// For the label `node`; `None` without a target cluster.
        node: Option<NodeName>,
    },
    /// Bring the Machine's Node in line: label, finalizer, template, what steers pods away (`machine::node_sync`).
    WriteNode(Box<NodePatch>),
    /// Bring the virtual capacity of the Machine's class to the status of its Node.
    WriteCapacity(Box<NodePatch>),
    /// Write a condition into the status of the Machine's Node.
    WriteCondition(Box<NodePatch>),
    /// Write until when the Machine is preserved, and when its pods were gone.
    Keep(Keeping),
    /// Change annotations of the Machine that say what is requested for it.
    Annotate(BTreeMap<&'static str, Option<String>>),
    /// Say that a value of such an annotation cannot be read, and note that this was said.
    Complain(String),
    /// Let no new pods come to the Node. What was known of its pods is out of date then.
    Cordon(NodeRef),
    /// Watch the Node's pods from now on, until the VM goes.
    WatchPods(NodeName),
    /// Watch the Node's pods no longer.
    LeavePods,
    /// Watch where volumes are attached, until no Node is drained any more.
    WatchVolumes,
    /// Learn which volumes these pods use, which stay.
    LearnVolumes(Vec<PodRef>),
    /// Delete these VolumeAttachments, so that the volumes are detached although the Node does not say that they are unmounted.
    Detach(Vec<(Name, Uid)>),
    /// Evict these pods, as far as budgets allow.
    Evict(Vec<PodRef>),
    /// Delete these pods, whatever budgets say. One that cannot be deleted holds nobody up.
    DeletePods {
        /// The pods.
        pods: Vec<PodRef>,
        /// How long each may take to end, at the longest.
        grace: SignedDuration,
    },
    /// Delete the bootstrap token's Secret, if it is there.
    DropToken,
    /// Delete the Machine: its Node was deleted by somebody (MC-16).
    DeleteMachine,
    /// Delete the Node and take our finalizer from it. Does nothing if the Node is another VM's.
    RemoveNode(NodeName),
    /// Remove the Node and the bootstrap token from the target cluster, whose Nodes are not seen. What cannot be removed now is
    /// remembered and removed when the cluster returns.
    LeaveBehind,
    /// Take our finalizer from the Machine: nothing of it is left.
    RemoveFinalizer,
    /// Read the Lease live: a driver says that a newer leader has spoken to it. If the Lease is ours, the driver is wrong, and this is
    /// noted; if not, the term ends.
    StepDown,
}

impl crate::plan::Step for Step {
    fn bearing(&self) -> Bearing {
        match self {
            // A target cluster that refuses what is written to Nodes keeps nobody from being told how the Machine is.
            Self::WriteNode(_)
            | Self::WriteCapacity(_)
            | Self::WriteCondition(_)
            | Self::Keep(_)
            | Self::Annotate(_)
            | Self::Complain(_)
            | Self::Evict(_)
            | Self::DeletePods { .. }
            | Self::Detach(_) => Bearing::Independent,
            _ => Bearing::Stops,
        }
    }
}

/// Why a plan is what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "Display says what each means")]
pub enum Why {
    Unguarded,
    CallRunning(Call),
    Invalid(String),
    ClassUnnamed,
    ClassMissing(String),
    ClassUnguarded,
    ClassUnchecked,
    ClassFaulty(String),
    DriverMissing(String),
    DriverAway(String),
    DriverUnnamed,
    NoVm,
    Parked(String),
    CoolingOff,
    CreationFailed,
    CreationTimedOut,
    VmMade,
    VmBooting,
    NoRoom,
    VmFailed,
    NotInitialized,
    InitializationFailed,
    Joining,
    ClockWasWrong,
    NodeNotReady(String),
    NodeGated,
    NodeForeign,
    NodeContested(String),
    VmContested(String),
    TargetAway,
    CrumbChanged,
    VmReached,
    FindingVm,
    Joined,
    JoinTimedOut,
    NodeDeleted,
    NodesDeleted(Box<Tripped>),
    NodeMissing,
    NodeUnhealthy,
    NodeRecovered,
    ConditionsChanged,
    Running,
    HealthTimedOut,
    Failed,
    Preserved(Timestamp, Asked),
    PreservationOver(End),
    RequestNoted,
    InPlace(Reason),
    UpdatingInPlace,
    UpdatedInPlace,
    InPlaceUpdateFailed,
    PhaseWrong,
    NoNodeExpected,
    Deleting,
    VmDoubted,
    VmLost(Lost),
    VmRuns,
    Draining,
    CordonRefused,
    PodsUnknown,
    DrainBlocked,
    DrainForced,
    VolumesUnknown,
    Detaching,
    Drained,
    FindingNode,
    VmGoing,
    VmStays,
    VmMayAppear,
    VmGone,
    NeverMade,
    DeletionFailed,
    Released,
    StaleLeader,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Unguarded => "the finalizer is not stored yet",
            Self::CallRunning(call) => return write!(f, "waiting for the driver's answer to {call}"),
            Self::Invalid(fault) => return f.write_str(fault),
            Self::ClassUnnamed => "spec.class names no MachineClass",
            Self::ClassMissing(name) => return write!(f, "MachineClass {name} does not exist"),
            Self::ClassUnguarded => "the class does not carry our finalizer yet",
            Self::ClassUnchecked => "the class has not been checked yet",
            Self::ClassFaulty(fault) => return write!(f, "the class cannot be used: {fault}"),
            Self::DriverMissing(name) => return write!(f, "no driver named {name} is known to this manager"),
            Self::DriverAway(why) => return write!(f, "the driver cannot be used: {why}"),
            Self::DriverUnnamed => "nothing says which driver has the VM: create the class again or set its provider",
            Self::NoVm => "there is no VM yet",
            Self::Parked(why) => return f.write_str(why),
            Self::CoolingOff => "waiting before the next try",
            Self::CreationFailed => "the VM could not be created",
            Self::CreationTimedOut => "the VM could not be created in time",
            Self::VmMade => "the provider has accepted the VM",
            Self::VmBooting => "the VM is not running yet",
            Self::NoRoom => "the provider has no room for the VM that it accepted",
            Self::VmFailed => "the VM will not run",
            Self::NotInitialized => "the VM is not initialised yet",
            Self::InitializationFailed => "the VM could not be initialised",
            Self::Joining => "waiting for the node to join",
            Self::ClockWasWrong => "the phase's time was written by a clock that was wrong; it counts from now",
            Self::NodeNotReady(bad) => return write!(f, "the node is not ready yet: {bad}"),
            Self::NodeGated => "critical components on the node are not ready",
            Self::NodeForeign => "a Node of that name belongs to another VM",
            Self::VmContested(rival) => return write!(f, "the driver gave machine {rival} the same provider id"),
            Self::NodeContested(rival) => return write!(f, "machine {rival} has the better claim to the Node"),
            Self::TargetAway => "the target cluster cannot be seen now",
            Self::CrumbChanged => "the driver wants its last known state stored",
            Self::VmReached => "its driver has shown the VM: what it is reached by is stored",
            Self::FindingVm => "a VM may be there already, and is looked for first",
            Self::Joined => "the node has joined",
            Self::JoinTimedOut => "the node did not join in time",
            Self::NodeDeleted => "the Node was deleted",
            Self::NodesDeleted(why) => return write!(f, "the Node was deleted, and the machine is kept while {why}"),
            Self::NodeMissing => "the Node is gone",
            Self::NodeUnhealthy => "the node is unhealthy",
            Self::NodeRecovered => "the node is healthy again",
            Self::ConditionsChanged => "the node's conditions changed",
            Self::Running => "the machine is running",
            Self::HealthTimedOut => "the machine was unhealthy for too long",
            Self::Failed => "the machine has failed and awaits its replacement",
            Self::Preserved(until, asked) => {
                return write!(f, "the machine is preserved until {until:.0}, because {asked}");
            }
            Self::PreservationOver(end) => return write!(f, "the machine is preserved no longer, because {end}"),
            Self::RequestNoted => "the preserve annotation of its Node is stored",
            Self::InPlace(reason) => in_place(*reason),
            Self::UpdatingInPlace => "the node is being updated in place",
            Self::UpdatedInPlace => "the node was updated in place",
            Self::InPlaceUpdateFailed => "the node was not updated in place",
            Self::PhaseWrong => "the machine's phase does not fit what is known of it",
            Self::NoNodeExpected => "the VM exists and no node is expected",
            Self::Deleting => "the machine is being deleted",
            Self::VmDoubted => "whether the VM runs is in doubt; the driver is asked for it",
            Self::VmLost(lost) => return lost.fmt(f),
            Self::VmRuns => "its VM runs after all",
            Self::Draining => "the node is being drained",
            Self::CordonRefused => "the target cluster refuses to cordon the node",
            Self::PodsUnknown => "the node's pods are not known yet",
            Self::DrainBlocked => "a pod holds up the drain",
            Self::DrainForced => "pods are not waited for any longer",
            Self::VolumesUnknown => "it is not known yet whether volumes are attached to the node",
            Self::Detaching => "volumes are still attached to the node",
            Self::Drained => "the drain is over",
            Self::FindingNode => "looking for the node's name before the VM goes",
            Self::VmGoing => "the VM is being removed",
            Self::VmStays => "the removal of the VM takes long",
            Self::VmMayAppear => "a VM asked for may still appear",
            Self::VmGone => "nothing is left of the VM",
            Self::NeverMade => "no VM was ever made for the machine",
            Self::DeletionFailed => "the VM could not be removed",
            Self::Released => "the machine is released",
            Self::StaleLeader => "a newer leader has spoken to the driver",
        };
        f.write_str(text)
    }
}

/// How far an update in place is.
fn in_place(reason: Reason) -> &'static str {
    match reason {
        Reason::Candidate => "the node awaits its update in place",
        Reason::Selected => "the node is drained for its update in place",
        Reason::Drained | Reason::Ready => "the node is drained and may be updated in place",
        Reason::Successful => "the node was updated in place",
        Reason::Failed => "the node could not be updated in place",
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "CreateMachine",
            Self::Initialize => "InitializeMachine",
            Self::Status => "GetMachineStatus",
            Self::Delete => "DeleteMachine",
        })
    }
}
