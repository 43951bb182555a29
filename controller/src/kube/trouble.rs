//! What a failed request means to a person at a command line. The server's answers are those that `error.rs` reads for the manager;
//! here the question is not what to do next but what to tell.

use kube::Error;
use kube::core::Status;
use kube::runtime::watcher;

use super::error::{WriteError, plain, said};

/// Why a request brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is no object of that name.
    NotFound,
    /// The server does not know the kind.
    NoKind,
    /// The server knows us and says no, in its own words.
    Forbidden(String),
    /// The server does not know us.
    Unauthorized,
    /// The version that was read, or the place in a list or a watch, is of the past.
    Stale,
    /// The server understood and said no, in its own words.
    Refused(String),
    /// The answer is not of the kind that was asked for.
    Unreadable,
    /// No answer, or one that says "later".
    Unreachable(String),
}

impl Trouble {
    /// Whether asking again may bring something else.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Stale | Self::Unreachable(_) => true,
            Self::NotFound
            | Self::NoKind
            | Self::Forbidden(_)
            | Self::Unauthorized
            | Self::Refused(_)
            | Self::Unreadable => false,
        }
    }

    fn of_status(status: &Status) -> Self {
        let names_an_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
        match status.code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden(said(status)),
            404 if names_an_object => Self::NotFound,
            404 => Self::NoKind,
            409 | 410 => Self::Stale,
            429 | 500..=599 => Self::Unreachable(said(status)),
            _ => Self::Refused(said(status)),
        }
    }
}

impl From<&Error> for Trouble {
    fn from(error: &Error) -> Self {
        match error {
            Error::Api(status) => Self::of_status(status),
            Error::SerdeError(_) | Error::FromUtf8(_) => Self::Unreadable,
            other => Self::Unreachable(plain(other)),
        }
    }
}

impl From<&watcher::Error> for Trouble {
    fn from(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Self::from(error),
            watcher::Error::WatchError(status) => Self::of_status(status),
            watcher::Error::NoResourceVersion => Self::Unreadable,
        }
    }
}

impl From<WriteError> for Trouble {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stale | WriteError::AlreadyExists => Self::Stale,
            WriteError::Gone => Self::NotFound,
            WriteError::Refused { reason } => Self::Refused(reason),
            WriteError::Fenced => Self::Refused("this process may not write".to_owned()),
            WriteError::Unreachable { reason } => Self::Unreachable(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(status: serde_json::Value) -> Trouble {
        let status: Status = serde_json::from_value(status).unwrap();
        Trouble::from(&Error::Api(status.boxed()))
    }

    #[test]
    fn a_missing_object_and_a_missing_kind_are_told_apart() {
        let object = json!({"code": 404, "message": "machinedeployments \"x\" not found", "reason": "NotFound",
            "details": {"name": "x", "kind": "machinedeployments"}});
        assert_eq!(of(object), Trouble::NotFound);
        assert_eq!(
            of(json!({"code": 404, "message": "404 page not found"})),
            Trouble::NoKind
        );
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words_and_lasts() {
        let forbidden = of(json!({"code": 403, "message": "User \"a\" cannot get", "reason": "Forbidden"}));
        assert_eq!(
            forbidden,
            Trouble::Forbidden("User \"a\" cannot get (HTTP 403)".to_owned())
        );
        assert!(!forbidden.may_pass());
        assert!(of(json!({"code": 410, "message": "too old", "reason": "Expired"})).may_pass());
        assert!(of(json!({"code": 503, "message": "starting", "reason": "x"})).may_pass());
    }
}
