//! What a failed request means to whoever made it. The one place that reads `kube::Error`.
//!
//! Facts about the server's answers come from a real kube-apiserver.

use kube::client::AuthError;
use kube::core::Status;

use crate::kube::call::TIME_LIMIT;

/// Enough of a reason to act on it; a validation error can list every field of an object.
const LONGEST_REASON: usize = 1000;

/// The API server's own word for what does not exist.
const NOT_FOUND: &str = "NotFound";

/// Why a request was not carried to its end by us, whatever the server might have said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCarried {
    /// It would have changed something, and we do not lead. It was not sent.
    #[error("this process is not the leader")]
    Fenced,
    /// It was sent; no whole answer came in time.
    #[error("no answer within {} s", TIME_LIMIT.as_secs())]
    TimedOut,
}

/// Why a write did not take effect. The variant alone decides what happens next.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object is a newer one than was read: look again.
    #[error("the object changed since it was read")]
    Stale,
    /// The object, or the one that had the uid we meant, is not there any more.
    #[error("the object is gone")]
    Gone,
    /// Another object has the name.
    #[error("an object of that name exists already")]
    AlreadyExists,
    /// The server understood and said no; asking again the same way gets the same answer.
    #[error("the API server refused the write: {reason}")]
    Refused {
        /// The server's own words.
        reason: String,
    },
    /// This process does not lead (any more), so nothing was sent.
    #[error("nothing was written: this process is not the leader")]
    Fenced,
    /// No answer, or one that says "later". The write may have taken effect.
    #[error("the API server did not answer the write: {reason}")]
    Unreachable {
        /// What was heard instead.
        reason: String,
    },
}

/// Why a read brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such object.
    #[error("there is no such object")]
    Gone,
    /// The server understood and said no.
    #[error("the API server refused the read: {reason}")]
    Refused {
        /// The server's own words.
        reason: String,
    },
    /// The answer was no object of that kind. Its text is not repeated: it may be a Secret.
    #[error("the answer cannot be read as the kind that was asked for")]
    Unreadable,
    /// No answer, or one that says "later".
    #[error("the API server did not answer the read: {reason}")]
    Unreachable {
        /// What was heard instead.
        reason: String,
    },
}

impl WriteError {
    /// The meaning of an error of a create: there, 404 speaks of the namespace or the kind.
    pub fn of_create(error: kube::Error) -> Self {
        let reason = match &error {
            kube::Error::Api(status) => said(status),
            _ => return Self::from(error),
        };
        match Self::from(error) {
            Self::Gone => Self::Refused { reason },
            other => other,
        }
    }

    /// A word for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Gone => "gone",
            Self::AlreadyExists => "already_exists",
            Self::Refused { .. } => "refused",
            Self::Fenced => "fenced",
            Self::Unreachable { .. } => "unreachable",
        }
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(&status),
            kube::Error::BuildRequest(error) => Self::Refused {
                reason: error.to_string(),
            },
            // The write was carried out; what came back is not the kind we know. Unsure is the honest answer.
            kube::Error::SerdeError(_) => Self::Unreachable {
                reason: "the answer cannot be read".to_owned(),
            },
            kube::Error::Service(error) if is_fenced(&error) => Self::Fenced,
            other => Self::Unreachable { reason: plain(&other) },
        }
    }
}

impl WriteError {
    fn of_status(status: &Status) -> Self {
        match status.code {
            404 if status.reason == NOT_FOUND => Self::Gone,
            410 => Self::Gone,
            // A bare 404 may come from a proxy: it proves nothing of the object.
            404 => Self::Unreachable { reason: said(status) },
            409 if status.is_already_exists() => Self::AlreadyExists,
            409 if speaks_of_another_uid(&status.message) => Self::Gone,
            409 => Self::Stale,
            422 if is_immutable_uid(&status.message) => Self::Gone,
            422 if is_failed_json_patch(status) => Self::Stale,
            429 | 500..=599 => Self::Unreachable { reason: said(status) },
            _ => Self::Refused { reason: said(status) },
        }
    }
}

impl From<kube::Error> for ReadError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                404 if status.reason == NOT_FOUND => Self::Gone,
                410 => Self::Gone,
                // The same of a bare 404 as for writes, and of a server that does not serve the kind.
                404 | 429 | 500..=599 => Self::Unreachable { reason: said(&status) },
                _ => Self::Refused { reason: said(&status) },
            },
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Unreadable,
            kube::Error::BuildRequest(error) => Self::Refused {
                reason: error.to_string(),
            },
            other => Self::Unreachable { reason: plain(&other) },
        }
    }
}

/// The words of a PodDisruptionBudget that does not let a pod be evicted. A 429 of a server that has too much to do is none of these.
pub fn over_budget(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let said_by_budget = causes
        .find(|cause| cause.reason == "DisruptionBudget")
        .map(|cause| &cause.message);
    match (status.code, said_by_budget) {
        (429, Some(words)) => Some(words.clone()),
        _ => None,
    }
}

/// The text of an error without the repeated status that kube adds, and without anything that was read.
pub fn plain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => said(status),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => "the answer cannot be read".to_owned(),
        kube::Error::Service(error) => innermost(error.as_ref()),
        kube::Error::HyperError(error) => innermost(error),
        kube::Error::Auth(error) => refused_credentials(error),
        other => other.to_string(),
    }
}

/// The last cause says what happened ("connection refused"); those before it say which library noticed.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    loop {
        if let Some(error) = cause.downcast_ref::<AuthError>() {
            return refused_credentials(error);
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => return cause.to_string(),
        }
    }
}

/// Why there are no credentials, without a word of what a plugin was given or brought: it may be a token.
fn refused_credentials(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            format!(
                "the credential plugin failed ({}); run it by hand to see what it says",
                out.status
            )
        }
        AuthError::AuthExecParse(_) | AuthError::AuthExec(_) => {
            "what the credential plugin printed cannot be read".to_owned()
        }
        other => other.to_string(),
    }
}

/// The server's own words, without objects and not too many.
pub(super) fn said(status: &Status) -> String {
    let text = if status.message.is_empty() {
        &status.reason
    } else {
        &status.message
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let text = match causes.filter(|cause| cause.field == "patch").count() {
        0 => text,
        // A patch that does not fit is answered with the whole object in the text, and the object may be a Secret.
        _ => text
            .rsplit_once("}\": ")
            .map_or("the patch does not fit the object", |(_, why)| why),
    };
    let text: String = text.chars().take(LONGEST_REASON).collect();
    format!("{text} (HTTP {})", status.code)
}

/// A delete whose uid precondition fails is a conflict too, but its object is not coming back.
fn speaks_of_another_uid(message: &str) -> bool {
    message.contains("the UID in the precondition") || message.contains("UID in precondition")
}

/// A merge patch or an apply with another object's uid.
fn is_immutable_uid(message: &str) -> bool {
    message.contains("metadata.uid") && message.contains("immutable")
}

/// A JSON patch whose `test` failed, or whose path is not there. The server says neither which nor where; in both cases
/// the object is not as it was read. A validation error names its causes.
fn is_failed_json_patch(status: &Status) -> bool {
    let names_causes = status
        .details
        .as_ref()
        .is_some_and(|details| !details.causes.is_empty());
    !names_causes && status.message == "the server rejected our request due to an error in our request"
}

fn is_fenced(error: &tower::BoxError) -> bool {
    matches!(error.downcast_ref::<NotCarried>(), Some(NotCarried::Fenced))
}
