//! What an HTTP answer of a provider's API means in the contract's words, as far as the status alone says it.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use crate::error::DriverError;
use crate::reason::{Outcome, Reason};

/// A provider's `Retry-After` may say anything; longer waits than this help nobody.
const RETRY_MAX: Duration = Duration::from_secs(3600);

impl DriverError {
    /// An HTTP answer of the provider that is no success, by its status and its header `Retry-After`. `action` says what was asked, for example
    /// `ec2:RunInstances`, and is part of the message; the answer's body is not, since it may hold anything.
    ///
    /// | status | reason |
    /// |---|---|
    /// | 401 | CREDENTIALS_REJECTED |
    /// | 403 | ACCESS_DENIED |
    /// | 429 | RATE_LIMITED |
    /// | 408, 425, 500 and more but 501 | PROVIDER_UNAVAILABLE |
    /// | any other | DRIVER_FAULT |
    ///
    /// What 400, 404, 409 and 422 mean depends on the question (a missing VM, image or quota), so ask for these first. After a request that
    /// changes something the outcome is unknown from 500 on; of several requests say by [`outcome`](Self::outcome) what the others have left.
    pub fn from_http(action: &str, status: u16, retry_after: Option<&str>) -> Self {
        let reason = match status {
            401 => Reason::CredentialsRejected,
            403 => Reason::AccessDenied {
                action: action.to_owned(),
            },
            429 => Reason::RateLimited,
            501 => Reason::DriverFault,
            408 | 425 | 500.. => Reason::ProviderUnavailable,
            _ => Reason::DriverFault,
        };
        let outcome = match reason {
            Reason::DriverFault | Reason::ProviderUnavailable => Outcome::Unknown,
            _ => Outcome::NoEffect,
        };
        let error = Self::new(reason, format!("{action}: the provider answered HTTP {status}"))
            .outcome(outcome)
            .provider_code(status.to_string());
        match retry_after.and_then(|header| wait(header, Timestamp::now())) {
            Some(wait) => error.retry_after(wait),
            None => error,
        }
    }
}

/// How long `Retry-After` says to wait: seconds, or a date. `None` if it is neither, or a date that has passed.
fn wait(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    let wait = match header.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = DateTimeParser::new().parse_timestamp(header).ok()?;
            Duration::try_from(until.duration_since(now)).ok()?
        }
    };
    Some(wait.min(RETRY_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(status: u16) -> &'static str {
        let error = DriverError::from_http("vm:Make", status, None);
        error.reason().name().expect("it has a name")
    }

    #[test]
    fn a_status_that_the_question_explains_is_a_fault_of_the_driver() {
        for status in [400, 404, 409, 418, 422, 501, 302] {
            assert_eq!(reason(status), "DRIVER_FAULT", "{status}");
        }
    }

    #[test]
    fn a_status_that_speaks_for_itself_has_its_reason() {
        let table = [
            (401, "CREDENTIALS_REJECTED"),
            (403, "ACCESS_DENIED"),
            (429, "RATE_LIMITED"),
            (408, "PROVIDER_UNAVAILABLE"),
            (500, "PROVIDER_UNAVAILABLE"),
            (503, "PROVIDER_UNAVAILABLE"),
        ];
        for (status, expected) in table {
            assert_eq!(reason(status), expected, "{status}");
        }
        let denied = DriverError::from_http("vm:Make", 403, None);
        assert_eq!(denied.told_metadata()["action"], "vm:Make");
        assert_eq!(
            DriverError::from_http("vm:Make", 500, None).told_outcome(),
            Outcome::Unknown
        );
    }

    #[test]
    fn retry_after_is_read_in_both_forms_and_bounded() {
        let now: Timestamp = "2026-11-27T18:00:00Z".parse().unwrap();
        for header in ["soon", "", "-5", "Fri, 27 Nov 2026 17:59:59 GMT"] {
            assert_eq!(wait(header, now), None, "{header}");
        }
        assert_eq!(wait("7", now), Some(Duration::from_secs(7)));
        assert_eq!(
            wait("Fri, 27 Nov 2026 18:00:30 GMT", now),
            Some(Duration::from_secs(30))
        );
        assert_eq!(wait("999999", now), Some(RETRY_MAX));
        let told = DriverError::from_http("vm:Make", 429, Some("7")).told_retry();
        assert_eq!(told, Some(Duration::from_secs(7)));
    }
}
