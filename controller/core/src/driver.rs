//! What a driver can be asked and can say, without a wire type: calls, answers, failures, and how long to wait after each.
//!
//! Decides the pace and the class of a reaction from a failure (GE-12; one table, data). Knows no gRPC:
//! `controller/src/driver/call.rs` turns statuses into these values.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::api::lenient::{Word as _, words};
use crate::ids::{DriverName, NodeName, ProviderId, Uid};

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

words!(
    /// A gRPC status code.
    #[expect(missing_docs, reason = "the names are gRPC's")]
    Code {
        Cancelled,
        Unknown,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        Internal,
        Unavailable,
        DataLoss,
        Unauthenticated,
    }
);

impl Code {
    /// The code's name as the original spells it in `lastOperation.errorCode`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cancelled => "Canceled",
            _ => self.as_str(),
        }
    }
}

/// `ErrorReason` of the contract: which kind of failure the driver itself speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is explained in driver.proto")]
pub enum Reason {
    InvalidField,
    CredentialsRejected,
    AccessDenied,
    OperationInProgress,
    RateLimited,
    ProviderUnavailable,
    StaleLeader,
    MachineNotFound,
    NameConflict,
    SpecConflict,
    CapacityUnavailable,
    QuotaExceeded,
    DependencyMissing,
    MachineDeleted,
    VmInconsistent,
    NotOwned,
    DeleteBlocked,
    SpecOutOfRange,
    DuplicateVms,
    InitializationFailed,
    PageTokenExpired,
    ResumeTokenExpired,
    DriverFault,
    CredentialsMissing,
}

impl Reason {
    /// What it means for a creation, and how fast the call is repeated.
    fn meaning(self) -> (Reaction, Pace) {
        match self {
            Self::OperationInProgress | Self::ProviderUnavailable | Self::InitializationFailed => {
                (Reaction::Repeat, Pace::Growing)
            }
            // It is the account that is slowed, all its calls together: pauses of single Machines that grow would leave it idle.
            Self::RateLimited
            | Self::MachineNotFound
            | Self::DuplicateVms
            | Self::PageTokenExpired
            | Self::ResumeTokenExpired => (Reaction::Repeat, Pace::Short),
            Self::DriverFault => (Reaction::Repeat, Pace::Medium),
            Self::CapacityUnavailable | Self::QuotaExceeded | Self::NotOwned | Self::DeleteBlocked => {
                (Reaction::Repeat, Pace::Long)
            }
            Self::DependencyMissing | Self::CredentialsMissing => (Reaction::AwaitClass, Pace::Medium),
            Self::InvalidField | Self::SpecOutOfRange | Self::CredentialsRejected | Self::AccessDenied => {
                (Reaction::AwaitClass, Pace::Long)
            }
            Self::NameConflict | Self::SpecConflict | Self::VmInconsistent => (Reaction::GiveUp, Pace::Long),
            Self::MachineDeleted => (Reaction::Reread, Pace::Short),
            Self::StaleLeader => (Reaction::StepDown, Pace::Short),
        }
    }
}

impl Reason {
    /// The codes under which the contract has it.
    pub fn codes(self) -> &'static [Code] {
        match self {
            Self::InvalidField => &[Code::InvalidArgument],
            Self::CredentialsRejected => &[Code::Unauthenticated],
            Self::AccessDenied => &[Code::PermissionDenied],
            Self::OperationInProgress | Self::PageTokenExpired | Self::ResumeTokenExpired => &[Code::Aborted],
            Self::RateLimited | Self::ProviderUnavailable => &[Code::Unavailable],
            Self::MachineNotFound => &[Code::NotFound],
            Self::NameConflict | Self::SpecConflict => &[Code::AlreadyExists],
            Self::CapacityUnavailable | Self::QuotaExceeded => &[Code::ResourceExhausted],
            Self::StaleLeader
            | Self::DependencyMissing
            | Self::CredentialsMissing
            | Self::MachineDeleted
            | Self::VmInconsistent
            | Self::NotOwned
            | Self::DeleteBlocked => &[Code::FailedPrecondition],
            Self::SpecOutOfRange | Self::DuplicateVms => &[Code::OutOfRange],
            Self::InitializationFailed => &[Code::Internal, Code::Unavailable],
            Self::DriverFault => &[Code::Internal],
        }
    }

    /// Whether a driver may send it under that code.
    pub fn goes_with(self, code: Code) -> bool {
        self.codes().contains(&code)
    }
}

/// What a failed call has left behind at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the call may be forgotten.
    None,
    /// Something exists: repeat to go on, or delete to undo.
    Partial,
    /// The driver cannot tell, or the status did not come from a driver.
    Unknown,
}

/// A call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status code.
    pub code: Code,
    /// The driver's reason. `None`: no `ErrorInfo`, so the status may come from the transport, a proxy or a crash.
    pub reason: Option<Reason>,
    /// What is left behind.
    pub effect: Effect,
    /// The driver's sentence for people, at most 1 KiB, and behind it the VMs that it does not name itself. Never parsed.
    pub message: String,
    /// `RetryInfo`, as sent.
    pub retry_after: Option<SignedDuration>,
    /// VMs that the failure is about.
    pub provider_ids: Vec<ProviderId>,
    /// Opaque breadcrumb to store and send back.
    pub last_known_state: Option<String>,
}

/// How fast to try again (GE-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// 5 s, doubling with each failure in a row, up to 10 min.
    Growing,
    /// 5 s.
    Short,
    /// 3 min.
    Medium,
    /// 10 min.
    Long,
}

/// What a failed creation means for its Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Repeat the same call.
    Repeat,
    /// Repeat at the long pace, or as soon as the class or its Secret changes.
    AwaitClass,
    /// This Machine cannot get a VM: Failed, so that its set makes another.
    GiveUp,
    /// The Machine was deleted, or a newer one has its name: read it live before anything else.
    Reread,
    /// A newer leader has spoken: give the lease up and exit.
    StepDown,
}

impl Failure {
    /// A failure that no driver made: nothing is known about what it left behind.
    pub fn transport(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: None,
            effect: Effect::Unknown,
            message: message.into(),
            retry_after: None,
            provider_ids: Vec::new(),
            last_known_state: None,
        }
    }

    /// A call that this process did not send: nothing is left behind.
    pub fn not_sent(code: Code, message: impl Into<String>) -> Self {
        Self {
            effect: Effect::None,
            ..Self::transport(code, message)
        }
    }

    /// The VM is not there, said by the driver itself or, weaker, by a bare `NOT_FOUND`.
    pub fn is_not_found(&self) -> bool {
        match self.reason {
            Some(reason) => reason == Reason::MachineNotFound,
            None => self.code == Code::NotFound,
        }
    }

    /// No capacity or no quota is left.
    pub fn is_exhausted(&self) -> bool {
        self.code == Code::ResourceExhausted
    }

    /// The word for `lastOperation.errorCode`.
    pub fn word(&self) -> &'static str {
        match self.reason {
            Some(Reason::InitializationFailed) => "Uninitialized",
            // tonic reports a passed deadline as CANCELLED.
            None if self.code == Code::Cancelled && self.message.contains("Timeout expired") => {
                Code::DeadlineExceeded.word()
            }
            _ => self.code.word(),
        }
    }

    /// What a failed CreateMachine means.
    pub fn reaction(&self) -> Reaction {
        self.reason.map_or(Reaction::Repeat, |reason| reason.meaning().0)
    }

    /// How fast to repeat the call.
    pub fn pace(&self) -> Pace {
        if let Some(reason) = self.reason {
            return reason.meaning().1;
        }
        match self.code {
            Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::Aborted
            | Code::Internal
            | Code::DataLoss => Pace::Growing,
            Code::NotFound => Pace::Short,
            Code::ResourceExhausted
            | Code::OutOfRange
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::AlreadyExists
            | Code::Unauthenticated
            | Code::PermissionDenied
            | Code::Unimplemented => Pace::Long,
        }
    }

    /// The pause before the next try, after `failures` failures in a row (at least 1). `RetryInfo` wins, clamped to
    /// 1 s … 10 min. Jitter is the shell's.
    ///
    /// `exhausted` is the operator's pause after `RESOURCE_EXHAUSTED`.
    pub fn pause(&self, failures: u32, exhausted: SignedDuration) -> SignedDuration {
        const SHORT: SignedDuration = SignedDuration::from_secs(5);
        const LONG: SignedDuration = SignedDuration::from_mins(10);
        if let Some(told) = self.retry_after {
            return told.clamp(SignedDuration::from_secs(1), LONG);
        }
        if self.code == Code::ResourceExhausted {
            return exhausted;
        }
        match self.pace() {
            Pace::Short => SHORT,
            Pace::Medium => SignedDuration::from_mins(3),
            Pace::Long => LONG,
            Pace::Growing => {
                let doublings = failures.saturating_sub(1).min(8);
                SignedDuration::from_secs(5 << doublings).min(LONG)
            }
        }
    }
}

/// Where a VM is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmState {
    /// A value that this manager does not know: wait and ask again.
    Unrecognized,
    /// Accepted, not yet powered on.
    Creating,
    /// Powered on; says nothing about the node.
    Running,
    /// Powered off, with no change under way.
    Stopped,
    /// Being removed.
    Deleting,
    /// Gone.
    Deleted,
    /// Will not become running.
    Failed,
}

/// Whether InitializeMachine has work to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialization {
    /// The driver has no such step.
    NotNeeded,
    /// InitializeMachine must be called.
    Pending,
    /// Done.
    Done,
}

/// What a provider has announced that it will do to a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// It takes spot or preemptible capacity back.
    Reclaim,
    /// It stops or moves the VM.
    Maintenance,
    /// It advises to replace it.
    Advice,
}

/// Type of a node's address, as in core/v1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// `Hostname`, `InternalIP`, `ExternalIP`, `InternalDNS` or `ExternalDNS`.
    pub kind: &'static str,
    /// The address.
    pub address: String,
}

/// A VM as its driver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Empty only while the VM is being created at a provider that gives ids late.
    pub provider_id: Option<ProviderId>,
    /// Name that the node will register with; required from `Running` on.
    pub node_name: Option<NodeName>,
    /// State of the VM.
    pub state: VmState,
    /// Provider's own words for the state. For people.
    pub state_message: String,
    /// Whether InitializeMachine has work to do.
    pub initialization: Initialization,
    /// Addresses, in the driver's order.
    pub addresses: Vec<Address>,
    /// Opaque breadcrumb.
    pub last_known_state: Option<String>,
    /// When to ask GetMachineStatus next, as the driver advised.
    pub poll_after: Option<SignedDuration>,
    /// What the provider has announced that it will do to the VM.
    pub disturbance: Option<Disturbance>,
    /// When it ends for that, where the provider has said so.
    pub ends_at: Option<Timestamp>,
    /// The uid that the VM bears, where it is not the Machine's own: the Machine had it before it was restored from a backup. Calls about the
    /// VM name it by this uid (`SPEC.md`, MAN-53).
    pub tagged_uid: Option<Uid>,
}

/// Answer of DeleteMachine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Nothing is left of the VM.
    pub gone: bool,
    /// When to call again if something is left.
    pub poll_after: Option<SignedDuration>,
    /// Opaque breadcrumb.
    pub last_known_state: Option<String>,
}

/// A fault of a class found by ValidateMachineClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// RFC 6901 pointer into providerSpec, or `secret:KEY`.
    pub field: String,
    /// Whether machines cannot be made of the class. `false`: a warning.
    pub fatal: bool,
    /// Stable word for programs.
    pub reason: String,
    /// For people.
    pub description: String,
}

/// Features of a driver that the manager may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is explained in driver.proto")]
pub enum Capability {
    InitializeMachine,
    WatchMachines,
    MachineClassSchema,
    ValidateMachineClass,
    NodeTemplate,
    Interruptions,
}

/// What GetDriverInfo told, reduced to what decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// The driver's name.
    pub name: DriverName,
    /// The driver's own version; a change means that it was upgraded.
    pub vendor_version: String,
    /// What the driver can do.
    pub capabilities: BTreeSet<Capability>,
    /// How long after an accepted CreateMachine the provider may still not show the VM.
    pub propagation_delay: SignedDuration,
}

/// The drivers that there are, as far as they have told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drivers {
    /// Their names, also of those that are away for now.
    pub names: BTreeSet<DriverName>,
    /// There may be more: somebody has not told a name yet.
    pub is_incomplete: bool,
}

impl Drivers {
    /// The only driver that there is.
    pub fn only(&self) -> Option<&DriverName> {
        let mut names = self.names.iter().filter(|_| !self.is_incomplete);
        names.next().filter(|_| self.names.len() == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: SignedDuration = SignedDuration::from_mins(10);

    fn failure(code: Code, reason: Option<Reason>) -> Failure {
        Failure {
            reason,
            ..Failure::transport(code, "m")
        }
    }

    #[test]
    fn a_passed_deadline_reported_as_cancelled_is_told_as_deadline_exceeded() {
        let failure = Failure::transport(Code::Cancelled, "Timeout expired");
        assert_eq!(failure.word(), "DeadlineExceeded");
        assert_eq!(failure.pause(1, LONG), SignedDuration::from_secs(5));
    }

    /// Rows: W34, pains 104.
    #[test]
    fn pauses_double_up_to_ten_minutes() {
        let failure = failure(Code::Unavailable, Some(Reason::ProviderUnavailable));
        let pauses: Vec<i64> = (1..=9).map(|n| failure.pause(n, LONG).as_secs()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(failure.pause(u32::MAX, LONG).as_secs(), 600);
    }

    #[test]
    fn retry_info_wins_but_is_clamped() {
        let told = |secs| Failure {
            retry_after: Some(SignedDuration::from_secs(secs)),
            ..failure(Code::Unavailable, None)
        };
        assert_eq!(told(30).pause(7, LONG).as_secs(), 30);
        assert_eq!(told(0).pause(1, LONG).as_secs(), 1);
        assert_eq!(told(86_400).pause(1, LONG).as_secs(), 600);
    }

    /// Rows: pains 108, 166.
    #[test]
    fn throttling_is_never_told_as_a_stock_out() {
        assert_eq!(
            failure(Code::Unavailable, Some(Reason::RateLimited)).word(),
            "Unavailable"
        );
        assert_eq!(
            failure(Code::ResourceExhausted, Some(Reason::CapacityUnavailable)).word(),
            "ResourceExhausted"
        );
    }
}
