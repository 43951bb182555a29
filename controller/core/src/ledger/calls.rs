//! What this process knows of each Machine's VM: the call under way, the last answers, what failed.
//!
//! Holds; decides nothing. `machine::outcome` takes answers in, and plans read what came of them.

use std::sync::Arc;

use jiff::Timestamp;

use super::Stamp;
use crate::api::CreationRequest;
use crate::driver::{Call, Deletion, Failure, Vm};
use crate::refusal::Refusal;

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
