//! What a driver says when a call does not succeed: why, and what it has left behind.
//!
//! Decides which status code, outcome and retry each reason means unless the author says otherwise (`driver.proto`,
//! `ErrorReason`; `driver-api.md` §5). How that travels is `status.rs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::Code;

use crate::types::Violation;

/// Why a call failed: one variant for each `ErrorReason` of the contract, and `Unimplemented`.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// More than one VM bears the machine's uid or name. Name all in [`DriverError::provider_ids`].
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
    /// The driver has no such call. Has no `ErrorReason`: the code says it all.
    Unimplemented,
}

/// What a failed call has left behind at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// A call that did not succeed. Make one with [`DriverError::new`] or a constructor, add what is known by the methods.
#[derive(Clone)]
pub struct DriverError(Box<Parts>);

#[derive(Clone)]
struct Parts {
    reason: Reason,
    message: String,
    outcome: Option<Outcome>,
    retry_after: Option<Duration>,
    provider_ids: Vec<String>,
    last_known_state: String,
    provider_code: String,
    provider_request_id: String,
    metadata: BTreeMap<String, String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Long enough for an operation of a moment to end, short enough that nobody waits for it.
const IN_PROGRESS_RETRY: Duration = Duration::from_secs(2);
/// The manager's own shortest pace.
const THROTTLED_RETRY: Duration = Duration::from_secs(5);

impl DriverError {
    /// A failure for this reason, with a sentence for people. The sentence must hold no secret; it is cut to 1 KiB.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            reason,
            message: message.into(),
            outcome: None,
            retry_after: None,
            provider_ids: Vec::new(),
            last_known_state: String::new(),
            provider_code: String::new(),
            provider_request_id: String::new(),
            metadata: BTreeMap::new(),
            source: None,
        }))
    }

    /// One wrong field, by its path.
    pub fn invalid_field(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::invalid_fields(vec![FieldViolation::new(field, description)])
    }

    /// Several wrong fields at once.
    pub fn invalid_fields(violations: Vec<FieldViolation>) -> Self {
        let faults: Vec<String> = violations
            .iter()
            .map(|fault| format!("{}: {}", fault.field, fault.description))
            .collect();
        Self::new(Reason::InvalidField { violations }, faults.join("; "))
    }

    /// The VM does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Reason::MachineNotFound, message)
    }

    /// The provider's API cannot be reached or fails.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Reason::ProviderUnavailable, message)
    }

    /// A fault of the driver.
    pub fn fault(message: impl Into<String>) -> Self {
        Self::new(Reason::DriverFault, message)
    }

    /// The driver has no such call.
    pub fn unimplemented(call: &str) -> Self {
        Self::new(Reason::Unimplemented, format!("this driver has no {call}"))
    }

    /// What the call has left behind, where the reason's default is not the truth.
    #[must_use]
    pub fn outcome(mut self, outcome: Outcome) -> Self {
        self.0.outcome = Some(outcome);
        self
    }

    /// When a repeat may succeed.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// VMs that the failure is about; the first 8 are sent.
    #[must_use]
    pub fn provider_ids(mut self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.provider_ids.extend(ids.into_iter().map(Into::into));
        self
    }

    /// What to send back with the next call, up to 1 KiB; longer ones are left out, since half a state is none.
    #[must_use]
    pub fn last_known_state(mut self, state: impl Into<String>) -> Self {
        self.0.last_known_state = state.into();
        self
    }

    /// The provider's own error code, for people and metrics.
    #[must_use]
    pub fn provider_code(mut self, code: impl Into<String>) -> Self {
        self.0.provider_code = code.into();
        self
    }

    /// The provider's id of the request, for its support.
    #[must_use]
    pub fn provider_request_id(mut self, id: impl Into<String>) -> Self {
        self.0.provider_request_id = id.into();
        self
    }

    /// A fact for programs in `ErrorInfo.metadata`, beside those that the reason brings.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.metadata.insert(key.into(), value.into());
        self
    }

    /// The error behind this one. Written to the driver's log, never sent.
    #[must_use]
    pub fn source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Why the call failed.
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn told_outcome(&self) -> Outcome {
        self.0.outcome.unwrap_or_else(|| self.0.reason.usual_outcome())
    }

    pub(crate) fn told_retry(&self) -> Option<Duration> {
        self.0.retry_after.or(match self.0.reason {
            Reason::OperationInProgress => Some(IN_PROGRESS_RETRY),
            Reason::RateLimited => Some(THROTTLED_RETRY),
            _ => None,
        })
    }

    pub(crate) fn told_provider_ids(&self) -> &[String] {
        &self.0.provider_ids
    }

    pub(crate) fn told_state(&self) -> &str {
        &self.0.last_known_state
    }

    pub(crate) fn told_provider_code(&self) -> (&str, &str) {
        (&self.0.provider_code, &self.0.provider_request_id)
    }

    /// Facts of the reason and of the author, in that order of weight.
    pub(crate) fn told_metadata(&self) -> BTreeMap<String, String> {
        let mut metadata = self.0.metadata.clone();
        match &self.0.reason {
            Reason::AccessDenied { action } => {
                metadata.insert("action".to_owned(), action.clone());
            }
            Reason::CapacityUnavailable { zone, instance_type } => {
                metadata.insert("zone".to_owned(), zone.clone());
                metadata.insert("instanceType".to_owned(), instance_type.clone());
            }
            _ => {}
        }
        metadata
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
            | Self::MachineDeleted
            | Self::VmInconsistent
            | Self::NotOwned
            | Self::DeleteBlocked => Code::FailedPrecondition,
            Self::SpecOutOfRange | Self::DuplicateVms => Code::OutOfRange,
            Self::InitializationFailed { transient: false } | Self::DriverFault => Code::Internal,
            Self::Unimplemented => Code::Unimplemented,
        }
    }

    /// What such a failure leaves behind unless the author says otherwise (`driver-api.md` §5, column "outcome").
    fn usual_outcome(&self) -> Outcome {
        match self {
            Self::InvalidField { .. }
            | Self::CredentialsRejected
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

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.reason.name() {
            Some(name) => write!(f, "{name}: {}", self.0.message),
            None => f.write_str(&self.0.message),
        }
    }
}

impl fmt::Debug for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverError")
            .field("reason", &self.0.reason)
            .field("message", &self.0.message)
            .field("outcome", &self.told_outcome())
            .field("provider_ids", &self.0.provider_ids)
            .field("provider_code", &self.0.provider_code)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl Error for DriverError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// A fault of the class as an error of a call that needed the class to be good.
impl From<Violation> for DriverError {
    fn from(violation: Violation) -> Self {
        Self::invalid_field(field_path(&violation.field), violation.description)
    }
}

/// `/disks/0/size` as `machine_class.provider_spec.disks[0].size`; `secret:KEY` as `secret_data.KEY`.
fn field_path(field: &str) -> String {
    if let Some(key) = field.strip_prefix("secret:") {
        return format!("secret_data.{key}");
    }
    let mut path = "machine_class.provider_spec".to_owned();
    for token in field.split('/').skip(1) {
        if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push_str(&format!("[{token}]"));
        } else {
            path.push('.');
            path.push_str(&token.replace("~1", "/").replace("~0", "~"));
        }
    }
    path
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
        assert_eq!(Reason::all().len(), 23);
        assert_eq!(Reason::Unimplemented.name(), None);
    }

    #[test]
    fn throttling_is_unavailable_and_never_resource_exhausted() {
        assert_eq!(Reason::RateLimited.code(), Code::Unavailable);
    }

    #[test]
    fn a_secret_fault_is_named_by_its_key() {
        assert_eq!(field_path("secret:token"), "secret_data.token");
        assert_eq!(field_path(""), "machine_class.provider_spec");
        assert_eq!(field_path("/a~1b/0/c"), "machine_class.provider_spec.a/b[0].c");
    }
}
