//! Why the driver says no: faults of a class, of credentials and of the cloud in the contract's words.

use std::time::Duration;

use millwright_provider_sdk::{DriverError, Outcome, Reason, Secrets, Violation};

use crate::{cloud::CloudError, spec::Spec};

/// Key of the Secret that the cloud looks at, and the one value that it refuses.
pub(super) const PASSWORD: &str = "password";
const WRONG_PASSWORD: &[u8] = b"wrong";

pub(super) fn check_credentials(secrets: &Secrets) -> Result<(), DriverError> {
    if secrets.get(PASSWORD) == Some(WRONG_PASSWORD) {
        return Err(DriverError::new(
            Reason::CredentialsRejected,
            "the cloud does not accept the password",
        ));
    }
    Ok(())
}

/// The spec, or every fault of it in one error.
pub(super) fn readable(provider_spec: &serde_json::Value) -> Result<Spec, DriverError> {
    Spec::read(provider_spec).map_err(DriverError::from)
}

pub(super) fn warning_of_faults(spec: &Spec) -> Option<Violation> {
    (!spec.faults.is_empty())
        .then(|| Violation::warning("/faults", "SCRIPTED_FAULTS", "calls for this class fail as it scripts"))
}

pub(super) fn too_early(left: Duration) -> DriverError {
    DriverError::unavailable("lookups may not show yet what was ordered before this process started").retry_after(left)
}

/// Why the cloud took no order, in the contract's words.
pub(super) fn failed_order(error: CloudError) -> DriverError {
    let text = error.to_string();
    match error {
        CloudError::TokenSpent => DriverError::new(Reason::MachineDeleted, text),
        CloudError::ParameterMismatch { provider_id } => {
            DriverError::new(Reason::SpecConflict, text).provider_ids([provider_id])
        }
        error @ (CloudError::NoSuchVm { .. } | CloudError::Storage(_) | CloudError::Closed) => cloud_failure(error),
    }
}

pub(super) fn cloud_failure(error: CloudError) -> DriverError {
    DriverError::unavailable(error.to_string())
        .outcome(Outcome::Unknown)
        .source(error)
}
