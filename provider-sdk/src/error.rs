//! What a driver says when a call does not succeed: why, and what it has left behind.
//!
//! Decides what is told where the author says nothing. How it travels is `status.rs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::reason::{FieldViolation, Outcome, Reason};
use crate::types::Violation;

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

    /// The request lacks a key of the Secret or a field of the spec, without which the driver does not know where to look.
    pub fn credentials_missing(missing: impl Into<String>) -> Self {
        let missing = missing.into();
        let message = format!("the request lacks {missing}, so the driver does not know where to look");
        Self::new(Reason::CredentialsMissing { missing }, message)
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
            Reason::CredentialsMissing { missing } => {
                metadata.insert("missing".to_owned(), missing.clone());
            }
            _ => {}
        }
        metadata
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
        vec![violation].into()
    }
}

/// As of one fault.
impl From<Vec<Violation>> for DriverError {
    fn from(violations: Vec<Violation>) -> Self {
        let named = violations
            .into_iter()
            .map(|fault| FieldViolation::new(field_path(&fault.field), fault.description));
        Self::invalid_fields(named.collect())
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
    fn a_secret_fault_is_named_by_its_key() {
        assert_eq!(field_path("secret:token"), "secret_data.token");
        assert_eq!(field_path(""), "machine_class.provider_spec");
        assert_eq!(field_path("/a~1b/0/c"), "machine_class.provider_spec.a/b[0].c");
    }
}
