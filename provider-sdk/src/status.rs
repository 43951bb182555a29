//! How a [`DriverError`] travels: a status whose details fit into HTTP/2 trailers.
//!
//! Decides what is cut when a text is too long. Both sides of a connection may drop a whole status whose trailers are
//! over their limit, so the code and the reason always win over the texts.

use std::time::Duration;

use millwright_proto::{ERROR_DOMAIN, v1};
use prost::Message as _;
use prost::bytes::Bytes;
use prost_types::Any;
use tonic::Status;
use tonic_types::pb;

use crate::error::DriverError;
use crate::reason::{Outcome, Reason};

/// Limits of the contract: `status.message`, and all details together.
const MESSAGE_MAX: usize = 1024;
const DETAILS_MAX: usize = 4096;
/// Shares of the details, so that with everything at its longest some violations still fit.
const STATE_MAX: usize = 1024;
const IDS_MAX: usize = 1024;
const METADATA_MAX: usize = 768;
/// One text within the details.
const TEXT_MAX: usize = 256;
/// VMs that one status names.
const IDS_COUNT_MAX: usize = 8;

/// Type urls, as every gRPC library spells them.
const GOOGLE_RPC: &str = "type.googleapis.com/google.rpc.";
const ERROR_DETAIL_URL: &str = "type.googleapis.com/machine.driver.v1.ErrorDetail";

/// The status of a failed call. `mutating`: CreateMachine, InitializeMachine and DeleteMachine also say what they have
/// left behind; GetMachineStatus does where the failure names VMs.
pub(crate) fn status(error: &DriverError, mutating: bool) -> Status {
    let code = error.reason().code();
    let message = cut(error.message(), MESSAGE_MAX);
    let mut details = Vec::new();
    if let Some(name) = error.reason().name() {
        details.push(any("ErrorInfo", &error_info(error, name)));
    }
    if mutating || !error.told_provider_ids().is_empty() {
        details.push(Any {
            type_url: ERROR_DETAIL_URL.to_owned(),
            value: error_detail(error).encode_to_vec(),
        });
    }
    if let Some(delay) = error.told_retry() {
        details.push(any("RetryInfo", &retry_info(delay)));
    }
    let room = DETAILS_MAX.saturating_sub(details.iter().map(framed_len).sum());
    details.extend(reason_detail(error, room));
    if details.is_empty() {
        return Status::new(code, message);
    }
    // grpc-go takes code and message from here, not from the other trailers: they must be the same.
    let rich = tonic_types::Status {
        code: code.into(),
        message: message.to_owned(),
        details,
    };
    Status::with_details(code, message, Bytes::from(rich.encode_to_vec()))
}

/// The longest start of a text that fits and ends between two characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default()
}

fn error_info(error: &DriverError, reason: &str) -> pb::ErrorInfo {
    let mut info = pb::ErrorInfo {
        reason: reason.to_owned(),
        domain: ERROR_DOMAIN.to_owned(),
        ..Default::default()
    };
    let mut used = 0;
    for (key, value) in error.told_metadata() {
        let (key, value) = (cut(&key, TEXT_MAX), cut(&value, TEXT_MAX));
        used += key.len() + value.len() + 6; // six bytes of framing for an entry of this size
        if used > METADATA_MAX {
            break;
        }
        info.metadata.insert(key.to_owned(), value.to_owned());
    }
    info
}

fn error_detail(error: &DriverError) -> v1::ErrorDetail {
    let mut provider_ids = Vec::new();
    let mut used = 0;
    for id in error.told_provider_ids().iter().take(IDS_COUNT_MAX) {
        used += id.len() + 3;
        // A cut id would name another VM, or none: the whole id or nothing.
        if used > IDS_MAX {
            break;
        }
        provider_ids.push(id.clone());
    }
    let (provider_code, provider_request_id) = error.told_provider_code();
    let state = error.told_state();
    v1::ErrorDetail {
        outcome: match error.told_outcome() {
            Outcome::NoEffect => v1::error_detail::Outcome::NoEffect,
            Outcome::Partial => v1::error_detail::Outcome::Partial,
            Outcome::Unknown => v1::error_detail::Outcome::Unknown,
        }
        .into(),
        provider_ids,
        last_known_state: if state.len() <= STATE_MAX {
            state.to_owned()
        } else {
            String::new()
        },
        provider_code: cut(provider_code, TEXT_MAX).to_owned(),
        provider_request_id: cut(provider_request_id, TEXT_MAX).to_owned(),
    }
}

fn retry_info(delay: Duration) -> pb::RetryInfo {
    // A delay beyond what a protobuf duration holds is as good as none.
    pb::RetryInfo {
        retry_delay: delay.try_into().ok(),
    }
}

/// The standard detail that goes with a reason, as much of it as there is room for.
fn reason_detail(error: &DriverError, room: usize) -> Option<Any> {
    match error.reason() {
        Reason::InvalidField { violations } => {
            let mut bad = pb::BadRequest::default();
            for violation in violations {
                bad.field_violations.push(pb::bad_request::FieldViolation {
                    field: cut(&violation.field, TEXT_MAX).to_owned(),
                    description: cut(&violation.description, TEXT_MAX).to_owned(),
                    ..Default::default()
                });
                if framed_len(&any("BadRequest", &bad)) > room {
                    bad.field_violations.pop();
                    break;
                }
            }
            Some(any("BadRequest", &bad))
        }
        Reason::QuotaExceeded { quota } => {
            let violation = pb::quota_failure::Violation {
                subject: cut(quota, TEXT_MAX).to_owned(),
                description: cut(error.message(), TEXT_MAX).to_owned(),
                ..Default::default()
            };
            Some(any(
                "QuotaFailure",
                &pb::QuotaFailure {
                    violations: vec![violation],
                },
            ))
            .filter(|any| framed_len(any) <= room)
        }
        Reason::DependencyMissing { kind, subject } => {
            let violation = pb::precondition_failure::Violation {
                r#type: cut(kind, TEXT_MAX).to_owned(),
                subject: cut(subject, TEXT_MAX).to_owned(),
                description: cut(error.message(), TEXT_MAX).to_owned(),
            };
            Some(any(
                "PreconditionFailure",
                &pb::PreconditionFailure {
                    violations: vec![violation],
                },
            ))
            .filter(|any| framed_len(any) <= room)
        }
        _ => None,
    }
}

fn any(name: &str, message: &impl prost::Message) -> Any {
    Any {
        type_url: format!("{GOOGLE_RPC}{name}"),
        value: message.encode_to_vec(),
    }
}

/// Size of a detail within the status: its own bytes, a tag and at most two bytes of length.
fn framed_len(any: &Any) -> usize {
    any.encoded_len() + 3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::Code;
    use tonic_types::StatusExt as _;

    use super::*;
    use crate::reason::FieldViolation;

    fn details(status: &Status) -> Vec<Any> {
        tonic_types::Status::decode(status.details()).unwrap().details
    }

    fn detail(status: &Status) -> v1::ErrorDetail {
        let any = details(status)
            .into_iter()
            .find(|any| any.type_url == ERROR_DETAIL_URL)
            .unwrap();
        v1::ErrorDetail::decode(any.value.as_slice()).unwrap()
    }

    /// Rows: pains 167.
    #[test]
    fn every_reason_arrives_with_one_error_info_and_the_code_of_the_contract() {
        for reason in Reason::all() {
            let status = status(&DriverError::new(reason.clone(), "m"), true);
            assert_eq!(status.code(), reason.code());
            let info = status.get_details_error_info().unwrap();
            assert_eq!(
                (info.reason.as_str(), info.domain.as_str()),
                (reason.name().unwrap(), "machine.driver.v1")
            );
            let infos = details(&status)
                .iter()
                .filter(|any| any.type_url.ends_with(".ErrorInfo"))
                .count();
            assert_eq!(infos, 1);
            assert_ne!(detail(&status).outcome, 0, "{reason:?}");
        }
    }

    #[test]
    fn reasons_bring_the_details_that_the_contract_names() {
        let quota = status(
            &DriverError::new(Reason::QuotaExceeded { quota: "vcpus".into() }, "m"),
            true,
        );
        assert_eq!(
            quota.get_details_quota_failure().unwrap().violations[0].subject,
            "vcpus"
        );
        let missing = Reason::DependencyMissing {
            kind: "IMAGE".into(),
            subject: "ubuntu".into(),
        };
        let missing = status(&DriverError::new(missing, "m"), true);
        assert_eq!(
            missing.get_details_precondition_failure().unwrap().violations[0].r#type,
            "IMAGE"
        );
        let busy = status(&DriverError::new(Reason::OperationInProgress, "m"), true);
        assert!(busy.get_details_retry_info().unwrap().retry_delay.is_some());
        let throttled = status(
            &DriverError::new(Reason::RateLimited, "m").retry_after(Duration::from_secs(9)),
            false,
        );
        assert_eq!(
            throttled.get_details_retry_info().unwrap().retry_delay,
            Some(Duration::from_secs(9))
        );
        let stock = Reason::CapacityUnavailable {
            zone: "a".into(),
            instance_type: "big".into(),
        };
        let info = status(&DriverError::new(stock, "m"), true)
            .get_details_error_info()
            .unwrap();
        assert_eq!(
            (info.metadata["zone"].as_str(), info.metadata["instanceType"].as_str()),
            ("a", "big")
        );
    }

    #[test]
    fn only_mutating_calls_say_what_they_have_left_behind() {
        let status = status(&DriverError::unavailable("m"), false);
        assert!(details(&status).iter().all(|any| any.type_url != ERROR_DETAIL_URL));
    }

    #[test]
    fn an_unimplemented_call_has_the_code_and_no_error_info() {
        let status = status(&DriverError::unimplemented("WatchMachines"), false);
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.details().is_empty());
    }

    #[test]
    fn the_longest_error_keeps_its_code_and_fits_into_the_limits() {
        let long = "ü".repeat(10 * 1024);
        let violations = (0..500)
            .map(|n| FieldViolation::new(format!("field{n}.{long}"), long.clone()))
            .collect();
        let reasons = [
            Reason::InvalidField { violations },
            Reason::QuotaExceeded { quota: long.clone() },
            Reason::DependencyMissing {
                kind: long.clone(),
                subject: long.clone(),
            },
            Reason::CapacityUnavailable {
                zone: long.clone(),
                instance_type: long.clone(),
            },
        ];
        for reason in reasons {
            let mut error = DriverError::new(reason, long.clone())
                .provider_ids((0..20).map(|n| format!("{n}{}", "i".repeat(500))))
                .last_known_state("s".repeat(1024))
                .provider_code(long.clone())
                .provider_request_id(long.clone())
                .retry_after(Duration::from_secs(1));
            for n in 0..100 {
                error = error.metadata(format!("key{n}"), long.clone());
            }
            let status = status(&error, true);
            assert_eq!(status.code(), error.reason().code());
            assert!(status.message().len() <= 1024 && status.message().len() > 1000);
            let details = details(&status);
            let total: usize = details.iter().map(framed_len).sum();
            assert!(total <= DETAILS_MAX, "{total}");
            assert_eq!(
                status.get_details_error_info().unwrap().reason,
                error.reason().name().unwrap()
            );
            assert_eq!(detail(&status).last_known_state.len(), 1024);
            assert!(!detail(&status).provider_ids.is_empty());
            assert!(status.details().len() <= DETAILS_MAX + MESSAGE_MAX + 16);
        }
    }

    #[test]
    fn a_state_that_is_too_long_is_left_out_instead_of_cut() {
        let error = DriverError::fault("m").last_known_state("s".repeat(1025));
        assert_eq!(detail(&status(&error, true)).last_known_state, "");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aüb", 2), "a");
        assert_eq!(cut("aüb", 3), "aü");
        assert_eq!(cut("ab", 9), "ab");
    }
}
