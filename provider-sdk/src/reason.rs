//! Why a call failed, as the contract counts it.
//!
//! Decides which status code and outcome each reason means (`driver.proto`, `ErrorReason`; SPEC.md, "Errors").

use tonic::Code;

/// Why a call failed: one variant for each `ErrorReason` of the contract, and `Unimplemented`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The request or the class is wrong; someone must mend it.
    InvalidField {
        /// Every fault that was found.
        violations: Vec<FieldViolation>,
    },
    /// The provider does not accept the credentials.
    CredentialsRejected,
    /// The credentials do not allow an action.
    AccessDenied {
        /// What is not allowed, in the provider's words.
        action: String,
    },
    /// Another operation of this machine is under way. The SDK says this by itself; a driver needs it only for
    /// operations that it did not start.
    OperationInProgress,
    /// The provider throttles. Never used for quota or stock.
    RateLimited,
    /// The provider's API cannot be reached or fails.
    ProviderUnavailable,
    /// A newer leader has spoken. Said by the SDK.
    StaleLeader,
    /// The VM does not exist: a statement of fact, after the provider was asked.
    MachineNotFound,
    /// Another uid's VM has the name.
    NameConflict,
    /// This uid's VM was made of another spec.
    SpecConflict,
    /// The provider is out of stock; another zone or type may do.
    CapacityUnavailable {
        /// Where.
        zone: String,
        /// Of what.
        instance_type: String,
    },
    /// The account's limit is reached; a person must act.
    QuotaExceeded {
        /// Which quota, for example `vcpus:project-7`.
        quota: String,
    },
    /// Something that the class names is absent.
    DependencyMissing {
        /// What kind of thing, for example `IMAGE`.
        kind: String,
        /// Which one.
        subject: String,
    },
    /// The uid has been deleted; it never comes back. The SDK says this for its own tombstones.
    MachineDeleted,
    /// The VM is in a state that the driver cannot mend.
    VmInconsistent,
    /// The VM bears another owner's tags.
    NotOwned,
    /// Deletion protection or a lock.
    DeleteBlocked,
    /// The provider does not offer the size or type asked for.
    SpecOutOfRange,
    /// More than one VM bears the machine's uid or name. Name all in [`DriverError::provider_ids`](crate::DriverError::provider_ids).
    DuplicateVms,
    /// `initialize_machine` has not finished.
    InitializationFailed {
        /// Whether the provider may do it at the next try (UNAVAILABLE) or something is broken (INTERNAL).
        transient: bool,
    },
    /// The cursor of a list is no longer good: start over.
    PageTokenExpired,
    /// The resume token of a watch is no longer good: start over.
    ResumeTokenExpired,
    /// A fault of the driver.
    DriverFault,
    /// The request lacks what says where to look, so that the driver looked nowhere. Stops no other machine.
    CredentialsMissing {
        /// What is lacking: a key of the Secret, or a field of the spec such as `/region`.
        missing: String,
    },
    /// The driver has no such call. Has no `ErrorReason`: the code says it all.
    Unimplemented,
}

/// What a failed call has left behind at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing: the call may be forgotten.
    NoEffect,
    /// Something exists: repeat the call to go on, or delete to undo.
    Partial,
    /// The driver cannot tell: repeat the call.
    Unknown,
}

/// One wrong field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldViolation {
    /// Path as in `key.uid`.
    pub field: String,
    /// What is wrong with it. Never the value of a secret.
    pub description: String,
}

impl FieldViolation {
    /// A fault of the field at this path.
    pub fn new(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            description: description.into(),
        }
    }
}

impl Reason {
    /// Name of the `ErrorReason` on the wire; `None` for `Unimplemented`.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::InvalidField { .. } => "INVALID_FIELD",
            Self::CredentialsRejected => "CREDENTIALS_REJECTED",
            Self::AccessDenied { .. } => "ACCESS_DENIED",
            Self::OperationInProgress => "OPERATION_IN_PROGRESS",
            Self::RateLimited => "RATE_LIMITED",
            Self::ProviderUnavailable => "PROVIDER_UNAVAILABLE",
            Self::StaleLeader => "STALE_LEADER",
            Self::MachineNotFound => "MACHINE_NOT_FOUND",
            Self::NameConflict => "NAME_CONFLICT",
            Self::SpecConflict => "SPEC_CONFLICT",
            Self::CapacityUnavailable { .. } => "CAPACITY_UNAVAILABLE",
            Self::QuotaExceeded { .. } => "QUOTA_EXCEEDED",
            Self::DependencyMissing { .. } => "DEPENDENCY_MISSING",
            Self::MachineDeleted => "MACHINE_DELETED",
            Self::VmInconsistent => "VM_INCONSISTENT",
            Self::NotOwned => "NOT_OWNED",
            Self::DeleteBlocked => "DELETE_BLOCKED",
            Self::SpecOutOfRange => "SPEC_OUT_OF_RANGE",
            Self::DuplicateVms => "DUPLICATE_VMS",
            Self::InitializationFailed { .. } => "INITIALIZATION_FAILED",
            Self::PageTokenExpired => "PAGE_TOKEN_EXPIRED",
            Self::ResumeTokenExpired => "RESUME_TOKEN_EXPIRED",
            Self::DriverFault => "DRIVER_FAULT",
            Self::CredentialsMissing { .. } => "CREDENTIALS_MISSING",
            Self::Unimplemented => return None,
        })
    }

    /// Every reason that has a name, with empty data. For scripted faults and for tables.
    pub fn all() -> Vec<Self> {
        vec![
            Self::InvalidField { violations: Vec::new() },
            Self::CredentialsRejected,
            Self::AccessDenied { action: String::new() },
            Self::OperationInProgress,
            Self::RateLimited,
            Self::ProviderUnavailable,
            Self::StaleLeader,
            Self::MachineNotFound,
            Self::NameConflict,
            Self::SpecConflict,
            Self::CapacityUnavailable {
                zone: String::new(),
                instance_type: String::new(),
            },
            Self::QuotaExceeded { quota: String::new() },
            Self::DependencyMissing {
                kind: String::new(),
                subject: String::new(),
            },
            Self::MachineDeleted,
            Self::VmInconsistent,
            Self::NotOwned,
            Self::DeleteBlocked,
            Self::SpecOutOfRange,
            Self::DuplicateVms,
            Self::InitializationFailed { transient: true },
            Self::PageTokenExpired,
            Self::ResumeTokenExpired,
            Self::DriverFault,
            Self::CredentialsMissing { missing: String::new() },
        ]
    }

    /// The reason of this name on the wire, with empty data.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|reason| reason.name() == Some(name))
    }

    /// The code that goes with the reason.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::InvalidField { .. } => Code::InvalidArgument,
            Self::CredentialsRejected => Code::Unauthenticated,
            Self::AccessDenied { .. } => Code::PermissionDenied,
            Self::OperationInProgress | Self::PageTokenExpired | Self::ResumeTokenExpired => Code::Aborted,
            Self::RateLimited | Self::ProviderUnavailable | Self::InitializationFailed { transient: true } => {
                Code::Unavailable
            }
            Self::MachineNotFound => Code::NotFound,
            Self::NameConflict | Self::SpecConflict => Code::AlreadyExists,
            Self::CapacityUnavailable { .. } | Self::QuotaExceeded { .. } => Code::ResourceExhausted,
            Self::StaleLeader
            | Self::DependencyMissing { .. }
            | Self::CredentialsMissing { .. }
            | Self::MachineDeleted
            | Self::VmInconsistent
            | Self::NotOwned
            | Self::DeleteBlocked => Code::FailedPrecondition,
            Self::SpecOutOfRange | Self::DuplicateVms => Code::OutOfRange,
            Self::InitializationFailed { transient: false } | Self::DriverFault => Code::Internal,
            Self::Unimplemented => Code::Unimplemented,
        }
    }

    /// What such a failure leaves behind unless the author says otherwise (SPEC.md, "Errors").
    pub(crate) fn usual_outcome(&self) -> Outcome {
        match self {
            Self::InvalidField { .. }
            | Self::CredentialsRejected
            | Self::CredentialsMissing { .. }
            | Self::AccessDenied { .. }
            | Self::RateLimited
            | Self::StaleLeader
            | Self::MachineNotFound
            | Self::NameConflict
            | Self::CapacityUnavailable { .. }
            | Self::QuotaExceeded { .. }
            | Self::DependencyMissing { .. }
            | Self::MachineDeleted
            | Self::NotOwned
            | Self::DeleteBlocked
            | Self::SpecOutOfRange
            | Self::PageTokenExpired
            | Self::ResumeTokenExpired
            | Self::Unimplemented => Outcome::NoEffect,
            Self::SpecConflict | Self::VmInconsistent | Self::DuplicateVms | Self::InitializationFailed { .. } => {
                Outcome::Partial
            }
            Self::OperationInProgress | Self::ProviderUnavailable | Self::DriverFault => Outcome::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_but_unimplemented_has_the_name_that_the_contract_gives_it() {
        for reason in Reason::all() {
            let name = reason.name().unwrap();
            assert!(
                millwright_proto::v1::ErrorReason::from_str_name(&format!("ERROR_REASON_{name}")).is_some(),
                "{name} is not in driver.proto"
            );
            assert_eq!(Reason::from_name(name), Some(reason));
        }
        assert_eq!(Reason::all().len(), 24);
        assert_eq!(Reason::Unimplemented.name(), None);
    }

    /// Rows: pains 108.
    #[test]
    fn throttling_is_unavailable_and_never_resource_exhausted() {
        assert_eq!(Reason::RateLimited.code(), Code::Unavailable);
    }
}
