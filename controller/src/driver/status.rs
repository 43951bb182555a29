//! A gRPC status into a `Failure` of core: who made it, why, and what is left behind.
//!
//! Decides only what a status says, not what to do about it (`millwright_core::driver` does). The rule behind all of it:
//! without an `ErrorInfo` of the contract's domain nobody knows that the driver made the status, so nothing is known of
//! what the call has left behind (SPEC.md, GEN-21).

use jiff::SignedDuration;
use millwright_core::driver::{Code, Effect, Failure, Reason};
use millwright_core::ids::ProviderId;
use millwright_core::status::is_unseen;
use millwright_proto::{ERROR_DOMAIN, v1};
use prost::Message;
use tonic_types::pb;

use super::bounds;

/// Longest sentence of a driver that is kept.
pub(super) const MAX_MESSAGE: usize = 1024;
/// In place of a sentence that is not there.
const NO_WORDS: &str = "the answer says no more";
/// What the author of a driver has to know of a NOT_FOUND that counts for nothing.
const UNSIGNED_NOT_FOUND: &str = "NOT_FOUND came without ErrorInfo, so it may be anybody's and proves nothing; a driver that knows no such VM adds \
    the reason MACHINE_NOT_FOUND";
/// Longest `last_known_state` that is kept: beyond it the driver breaks the contract, and a cut one would mislead it.
const MAX_STATE: usize = 4096;
/// Most VMs that one failure names.
const MAX_IDS: usize = 8;

/// Every reason with its name on the wire. A test holds it complete.
const REASONS: [(Reason, v1::ErrorReason); 24] = [
    (Reason::InvalidField, v1::ErrorReason::InvalidField),
    (Reason::CredentialsRejected, v1::ErrorReason::CredentialsRejected),
    (Reason::AccessDenied, v1::ErrorReason::AccessDenied),
    (Reason::OperationInProgress, v1::ErrorReason::OperationInProgress),
    (Reason::RateLimited, v1::ErrorReason::RateLimited),
    (Reason::ProviderUnavailable, v1::ErrorReason::ProviderUnavailable),
    (Reason::StaleLeader, v1::ErrorReason::StaleLeader),
    (Reason::MachineNotFound, v1::ErrorReason::MachineNotFound),
    (Reason::NameConflict, v1::ErrorReason::NameConflict),
    (Reason::SpecConflict, v1::ErrorReason::SpecConflict),
    (Reason::CapacityUnavailable, v1::ErrorReason::CapacityUnavailable),
    (Reason::QuotaExceeded, v1::ErrorReason::QuotaExceeded),
    (Reason::DependencyMissing, v1::ErrorReason::DependencyMissing),
    (Reason::MachineDeleted, v1::ErrorReason::MachineDeleted),
    (Reason::VmInconsistent, v1::ErrorReason::VmInconsistent),
    (Reason::NotOwned, v1::ErrorReason::NotOwned),
    (Reason::DeleteBlocked, v1::ErrorReason::DeleteBlocked),
    (Reason::SpecOutOfRange, v1::ErrorReason::SpecOutOfRange),
    (Reason::DuplicateVms, v1::ErrorReason::DuplicateVms),
    (Reason::InitializationFailed, v1::ErrorReason::InitializationFailed),
    (Reason::PageTokenExpired, v1::ErrorReason::PageTokenExpired),
    (Reason::ResumeTokenExpired, v1::ErrorReason::ResumeTokenExpired),
    (Reason::DriverFault, v1::ErrorReason::DriverFault),
    (Reason::CredentialsMissing, v1::ErrorReason::CredentialsMissing),
];
const REASON_PREFIX: &str = "ERROR_REASON_";

/// The reason's name in `ErrorInfo`, for metrics and logs.
pub fn reason_name(reason: Reason) -> &'static str {
    let wire = REASONS
        .iter()
        .find(|(known, _)| *known == reason)
        .map(|(_, wire)| wire.as_str_name());
    wire.and_then(|name| name.strip_prefix(REASON_PREFIX)).unwrap_or("")
}

/// The reason of that name, `None` where this manager does not know it.
fn reason_of(name: &str) -> Option<Reason> {
    let wire = v1::ErrorReason::from_str_name(&format!("{REASON_PREFIX}{name}"))?;
    REASONS
        .iter()
        .find(|(_, known)| *known == wire)
        .map(|(reason, _)| *reason)
}

/// What a status says.
pub(super) fn failure(status: &tonic::Status) -> Failure {
    let details = Details::read(status.details());
    let message = Some(cut(status.message(), MAX_MESSAGE)).filter(|message| !message.trim().is_empty());
    let mut failure = Failure::transport(code(status), message.unwrap_or_else(|| NO_WORDS.to_owned()));
    failure.retry_after = details.retry_after;
    let Some(info) = details.info else {
        return unsigned(failure);
    };
    failure.reason = reason_of(&info.reason);
    if failure.reason.is_none() {
        failure.message += &unknown_reason(&info.reason);
    }
    if let Some(detail) = details.detail {
        failure.effect = effect(detail.outcome());
        // One that no VM may have names none.
        let ids = detail.provider_ids.iter().filter(|id| bounds::id(id).is_ok());
        let ids = ids.filter_map(|id| ProviderId::non_empty(Some(id)));
        failure.provider_ids = ids.take(MAX_IDS).collect();
        failure.last_known_state = last_known_state(detail.last_known_state);
        failure.message = naming(failure.message, &failure.provider_ids);
    }
    contradicted(failure)
}

/// What people are told of a reason that this manager does not know: a newer driver's, or a mistake.
fn unknown_reason(name: &str) -> String {
    match name.strip_prefix(REASON_PREFIX) {
        _ if name.is_empty() => " (its ErrorInfo has no reason)".to_owned(),
        Some(bare) if reason_of(bare).is_some() => {
            format!(" (its reason {name} counts for nothing: a reason is written without {REASON_PREFIX})")
        }
        Some(_) | None => format!(" (its reason {:?} is none that this manager knows)", cut(name, 64)),
    }
}

/// A status of which nobody knows that the driver made it.
fn unsigned(mut failure: Failure) -> Failure {
    match failure.code {
        // The one code that says by itself that nothing was done: no such call is there.
        Code::Unimplemented => failure.effect = Effect::None,
        // tonic's word for a deadline that passed, on either side.
        Code::Cancelled if failure.message.contains("Timeout expired") => failure.code = Code::DeadlineExceeded,
        Code::NotFound => failure.message = format!("{UNSIGNED_NOT_FOUND}: {}", failure.message),
        _ => {}
    }
    failure
}

/// A reason under a code that does not go with it is a fault of the driver: neither of them is believed, so that nothing is concluded for
/// other Machines and no VM counts as gone.
fn contradicted(failure: Failure) -> Failure {
    let Some(reason) = failure.reason.filter(|reason| !reason.goes_with(failure.code)) else {
        return failure;
    };
    let (name, code) = (reason_name(reason), failure.code.word());
    let codes: Vec<&str> = reason.codes().iter().map(|code| code.word()).collect();
    Failure {
        reason: Some(Reason::DriverFault),
        message: format!(
            "the driver is at fault: it sent {name} under {code}, and the contract has it under {}. It said: {}",
            codes.join(" or "),
            failure.message
        ),
        ..failure
    }
}

/// The epoch of leadership that a driver remembers, where it refused a call for a newer one.
pub(super) fn remembered_epoch(status: &tonic::Status) -> Option<u64> {
    let info = Details::read(status.details()).info?;
    let is_fence = reason_of(&info.reason) == Some(Reason::StaleLeader);
    is_fence.then(|| info.metadata.get("epoch")?.parse().ok()).flatten()
}

/// The sentence with the VMs that it does not name itself: people read nothing else of a failure, and with two VMs of a machine
/// they have to look for both.
fn naming(message: String, ids: &[ProviderId]) -> String {
    let ids = ids.iter().map(ProviderId::as_str);
    let ids: Vec<&str> = ids.filter(|id| !message.contains(id)).collect();
    match ids.is_empty() {
        true => message,
        false => format!("{message} (about {})", cut(&ids.join(", "), MAX_MESSAGE)),
    }
}

/// A failure that the manager found in an answer: an OK that breaks the contract. What it left behind is unknown.
pub(super) fn broken_answer(why: impl Into<String>) -> Failure {
    Failure::transport(Code::Internal, cut(&why.into(), MAX_MESSAGE))
}

/// An opaque breadcrumb as core keeps it.
pub(super) fn last_known_state(text: String) -> Option<String> {
    if text.len() > MAX_STATE {
        tracing::warn!(
            bytes = text.len(),
            limit = MAX_STATE,
            "last_known_state dropped: the driver sent more than the contract allows"
        );
        return None;
    }
    Some(text).filter(|text| !text.is_empty())
}

/// The text, cut at a character's border and without letters that nobody sees: it goes into logs, events and statuses.
pub(super) fn cut(text: &str, limit: usize) -> String {
    let text = text.get(..text.floor_char_boundary(limit)).unwrap_or_default();
    text.replace(is_unseen, " ")
}

/// A duration of the wire; negative ones are none.
pub(super) fn duration(wire: prost_types::Duration) -> Option<SignedDuration> {
    let whole = SignedDuration::from_secs(wire.seconds);
    let duration = whole.saturating_add(SignedDuration::from_nanos(wire.nanos.into()));
    (!duration.is_negative()).then_some(duration)
}

/// The details that the manager reads.
#[derive(Default)]
struct Details {
    info: Option<pb::ErrorInfo>,
    detail: Option<v1::ErrorDetail>,
    retry_after: Option<SignedDuration>,
}

impl Details {
    /// Reads the details of a status. What cannot be read counts as absent: the status then says less, never more.
    fn read(bytes: &[u8]) -> Self {
        let mut details = Self::default();
        let Ok(status) = pb::Status::decode(bytes) else {
            return details;
        };
        for any in status.details {
            let Some((_, kind)) = any.type_url.rsplit_once('/') else {
                continue;
            };
            match kind {
                "google.rpc.ErrorInfo" => {
                    details.info = details
                        .info
                        .or(read(&any.value).filter(|info: &pb::ErrorInfo| info.domain == ERROR_DOMAIN));
                }
                "google.rpc.RetryInfo" => {
                    let told = read(&any.value)
                        .and_then(|info: pb::RetryInfo| info.retry_delay)
                        .and_then(duration);
                    details.retry_after = details.retry_after.or(told);
                }
                "machine.driver.v1.ErrorDetail" => details.detail = details.detail.or(read(&any.value)),
                _ => {}
            }
        }
        details
    }
}

fn read<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}

fn effect(outcome: v1::error_detail::Outcome) -> Effect {
    match outcome {
        v1::error_detail::Outcome::NoEffect => Effect::None,
        v1::error_detail::Outcome::Partial => Effect::Partial,
        v1::error_detail::Outcome::Unknown | v1::error_detail::Outcome::Unspecified => Effect::Unknown,
    }
}

/// The status code.
fn code(status: &tonic::Status) -> Code {
    match status.code() {
        tonic::Code::Cancelled => Code::Cancelled,
        // An error status without an error: a proxy's work.
        tonic::Code::Ok | tonic::Code::Unknown => Code::Unknown,
        tonic::Code::InvalidArgument => Code::InvalidArgument,
        tonic::Code::DeadlineExceeded => Code::DeadlineExceeded,
        tonic::Code::NotFound => Code::NotFound,
        tonic::Code::AlreadyExists => Code::AlreadyExists,
        tonic::Code::PermissionDenied => Code::PermissionDenied,
        tonic::Code::ResourceExhausted => Code::ResourceExhausted,
        tonic::Code::FailedPrecondition => Code::FailedPrecondition,
        tonic::Code::Aborted => Code::Aborted,
        tonic::Code::OutOfRange => Code::OutOfRange,
        tonic::Code::Unimplemented => Code::Unimplemented,
        tonic::Code::Internal => Code::Internal,
        tonic::Code::Unavailable => Code::Unavailable,
        tonic::Code::DataLoss => Code::DataLoss,
        tonic::Code::Unauthenticated => Code::Unauthenticated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(kind: &str, message: &impl Message) -> prost_types::Any {
        prost_types::Any {
            type_url: format!("type.googleapis.com/{kind}"),
            value: message.encode_to_vec(),
        }
    }

    fn info(domain: &str, reason: &str) -> prost_types::Any {
        let info = pb::ErrorInfo {
            domain: domain.into(),
            reason: reason.into(),
            ..Default::default()
        };
        any("google.rpc.ErrorInfo", &info)
    }

    fn status(code: tonic::Code, message: &str, details: Vec<prost_types::Any>) -> tonic::Status {
        let body = pb::Status {
            code: code as i32,
            message: message.into(),
            details,
        };
        tonic::Status::with_details(code, message, body.encode_to_vec().into())
    }

    fn detail(outcome: v1::error_detail::Outcome) -> v1::ErrorDetail {
        v1::ErrorDetail {
            outcome: outcome.into(),
            ..Default::default()
        }
    }

    /// Rows: pains 167.
    #[test]
    fn every_reason_of_the_contract_is_known_by_name() {
        let all: Vec<v1::ErrorReason> = (1..)
            .map_while(|number| v1::ErrorReason::try_from(number).ok())
            .collect();
        assert_eq!(all.len(), REASONS.len());
        for wire in all {
            let name = wire
                .as_str_name()
                .strip_prefix(REASON_PREFIX)
                .expect("the prefix is the enum's");
            assert_eq!(reason_of(name).map(reason_name), Some(name));
        }
    }

    #[test]
    fn a_reason_that_is_not_known_counts_for_nothing_and_is_told() {
        let of = |reason| failure(&status(tonic::Code::NotFound, "m", vec![info(ERROR_DOMAIN, reason)]));
        for (reason, told) in [
            ("", "m (its ErrorInfo has no reason)"),
            (
                "ERROR_REASON_MACHINE_NOT_FOUND",
                "m (its reason ERROR_REASON_MACHINE_NOT_FOUND counts for nothing: a reason is written without ERROR_REASON_)",
            ),
            (
                "SOLD_OUT\n",
                "m (its reason \"SOLD_OUT \" is none that this manager knows)",
            ),
        ] {
            let failure = of(reason);
            assert_eq!((failure.reason, failure.message.as_str()), (None, told));
        }
        assert_eq!(of("MACHINE_NOT_FOUND").message, "m");
    }

    /// Rows: D5.
    #[test]
    fn a_reason_under_a_code_that_is_not_its_own_is_the_drivers_fault() {
        let of = |code, reason| failure(&status(code, "m", vec![info(ERROR_DOMAIN, reason)]));
        let quota = of(tonic::Code::ResourceExhausted, "QUOTA_EXCEEDED");
        assert_eq!(
            (quota.reason, quota.message.as_str()),
            (Some(Reason::QuotaExceeded), "m")
        );
        for (code, reason) in [
            (tonic::Code::DataLoss, "QUOTA_EXCEEDED"),
            (tonic::Code::Internal, "MACHINE_NOT_FOUND"),
            (tonic::Code::NotFound, "CREDENTIALS_REJECTED"),
        ] {
            let failure = of(code, reason);
            assert_eq!(failure.reason, Some(Reason::DriverFault), "{reason}");
            assert!(
                failure.message.contains(&format!("{reason} under ")),
                "{}",
                failure.message
            );
            assert!(!failure.is_not_found());
        }
        for code in [tonic::Code::Internal, tonic::Code::Unavailable] {
            let failure = of(code, "INITIALIZATION_FAILED");
            assert_eq!(failure.reason, Some(Reason::InitializationFailed));
        }
    }

    /// Rows: D9.
    #[test]
    fn an_author_learns_what_a_bare_not_found_lacks_and_no_sentence_ends_in_nothing() {
        let bare = failure(&tonic::Status::not_found("404 page not found"));
        assert!(bare.message.contains("without ErrorInfo"), "{}", bare.message);
        assert!(
            bare.message.contains("MACHINE_NOT_FOUND: 404 page not found"),
            "{}",
            bare.message
        );
        assert_eq!(failure(&tonic::Status::internal(" \n")).message, NO_WORDS);
    }

    #[test]
    fn a_driver_names_the_epoch_that_it_remembers_where_it_refuses_for_it() {
        let told = |reason: &str, epoch: &str| {
            let info = pb::ErrorInfo {
                domain: ERROR_DOMAIN.into(),
                reason: reason.into(),
                metadata: [("epoch".into(), epoch.into())].into(),
            };
            let status = status(
                tonic::Code::FailedPrecondition,
                "m",
                vec![any("google.rpc.ErrorInfo", &info)],
            );
            remembered_epoch(&status)
        };
        assert_eq!(told("STALE_LEADER", "7"), Some(7));
        assert_eq!(told("STALE_LEADER", "seven"), None);
        assert_eq!(told("MACHINE_DELETED", "7"), None);
    }

    #[test]
    fn an_unknown_reason_goes_by_the_code_and_still_tells_what_is_left() {
        let detail = any(
            "machine.driver.v1.ErrorDetail",
            &detail(v1::error_detail::Outcome::NoEffect),
        );
        let failure = failure(&status(
            tonic::Code::OutOfRange,
            "m",
            vec![info(ERROR_DOMAIN, "OF_TOMORROW"), detail],
        ));
        assert_eq!(
            (failure.code, failure.reason, failure.effect),
            (Code::OutOfRange, None, Effect::None)
        );
    }

    #[test]
    fn without_an_error_info_of_our_domain_the_outcome_is_unknown_whatever_is_claimed() {
        let detail = any(
            "machine.driver.v1.ErrorDetail",
            &detail(v1::error_detail::Outcome::NoEffect),
        );
        for foreign in [
            vec![detail.clone()],
            vec![info("example.com", "QUOTA_EXCEEDED"), detail],
        ] {
            let failure = failure(&status(tonic::Code::ResourceExhausted, "m", foreign));
            assert_eq!(failure, Failure::transport(Code::ResourceExhausted, "m"));
        }
    }

    /// Rows: pains 162.
    #[test]
    fn a_not_found_that_the_driver_stands_for_can_be_told_from_a_bare_one() {
        let said = failure(&status(
            tonic::Code::NotFound,
            "m",
            vec![info(ERROR_DOMAIN, "MACHINE_NOT_FOUND")],
        ));
        let bare = failure(&tonic::Status::not_found("m"));
        assert_eq!(
            (said.code, said.reason),
            (Code::NotFound, Some(Reason::MachineNotFound))
        );
        assert_eq!((bare.code, bare.reason), (Code::NotFound, None));
    }

    #[test]
    fn details_are_read_whole() {
        let detail = v1::ErrorDetail {
            provider_ids: (0..9).map(|n| format!("virtual:///{n}")).collect(),
            last_known_state: "step=2".into(),
            ..detail(v1::error_detail::Outcome::Partial)
        };
        let retry = pb::RetryInfo {
            retry_delay: Some(prost_types::Duration {
                seconds: 7,
                nanos: 500_000_000,
            }),
        };
        let details = vec![
            any("google.rpc.Help", &pb::Help::default()),
            any("google.rpc.RetryInfo", &retry),
            info(ERROR_DOMAIN, "DUPLICATE_VMS"),
            any("machine.driver.v1.ErrorDetail", &detail),
        ];
        let failure = failure(&status(tonic::Code::OutOfRange, "two VMs", details));
        assert_eq!(failure.reason, Some(Reason::DuplicateVms));
        assert_eq!(failure.effect, Effect::Partial);
        assert_eq!(failure.retry_after, Some(SignedDuration::from_millis(7500)));
        assert_eq!(failure.provider_ids.len(), MAX_IDS);
        assert_eq!(failure.last_known_state.as_deref(), Some("step=2"));
        assert!(
            failure
                .message
                .starts_with("two VMs (about virtual:///0, virtual:///1, "),
            "{}",
            failure.message
        );
        assert!(failure.message.ends_with("virtual:///7)"), "{}", failure.message);
    }

    #[test]
    fn a_reason_without_an_outcome_leaves_the_outcome_unknown() {
        let failure = failure(&status(
            tonic::Code::ResourceExhausted,
            "m",
            vec![info(ERROR_DOMAIN, "QUOTA_EXCEEDED")],
        ));
        assert_eq!(
            (failure.reason, failure.effect),
            (Some(Reason::QuotaExceeded), Effect::Unknown)
        );
    }

    #[test]
    fn a_call_that_is_not_there_has_done_nothing() {
        let failure = failure(&tonic::Status::unimplemented("m"));
        assert_eq!((failure.code, failure.effect), (Code::Unimplemented, Effect::None));
    }

    #[test]
    fn tonics_word_for_a_passed_deadline_is_a_passed_deadline() {
        assert_eq!(
            failure(&tonic::Status::cancelled("Timeout expired")).code,
            Code::DeadlineExceeded
        );
        assert_eq!(
            failure(&tonic::Status::cancelled("h2 protocol error")).code,
            Code::Cancelled
        );
    }

    #[test]
    fn details_that_are_no_protobuf_count_as_absent() {
        let status = tonic::Status::with_details(tonic::Code::Aborted, "m", vec![0xff, 0xff].into());
        assert_eq!(failure(&status), Failure::transport(Code::Aborted, "m"));
    }

    #[test]
    fn messages_are_cut_at_a_characters_border() {
        let failure = failure(&tonic::Status::internal("ä".repeat(1000)));
        assert_eq!(failure.message.len(), 1024);
        assert_eq!(cut("aä", 2), "a");
    }

    #[test]
    fn durations_at_the_edge_do_no_harm() {
        let of = |seconds, nanos| duration(prost_types::Duration { seconds, nanos });
        assert_eq!(of(-1, 0), None);
        assert_eq!(of(0, -1), None);
        assert_eq!(of(i64::MAX, i32::MAX), Some(SignedDuration::MAX));
        assert_eq!(last_known_state("x".repeat(4097)), None);
    }
}
