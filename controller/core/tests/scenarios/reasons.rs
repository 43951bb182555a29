//! Every failure that a driver can report, and what a Machine makes of it (GE-12).

use std::path::Path;
use std::time::Duration;

use expect_test::expect_file;
use millwright_core::driver::{Call, Code, Reason};
use millwright_core::ids::Name;

use crate::cloud::{Dictated, failure};
use crate::script;
use crate::stage::Stage;

/// Each reason with the code that it travels with.
const REASONS: [(Code, Reason); 24] = [
    (Code::InvalidArgument, Reason::InvalidField),
    (Code::Unauthenticated, Reason::CredentialsRejected),
    (Code::PermissionDenied, Reason::AccessDenied),
    (Code::Aborted, Reason::OperationInProgress),
    (Code::Unavailable, Reason::RateLimited),
    (Code::Unavailable, Reason::ProviderUnavailable),
    (Code::FailedPrecondition, Reason::StaleLeader),
    (Code::NotFound, Reason::MachineNotFound),
    (Code::AlreadyExists, Reason::NameConflict),
    (Code::AlreadyExists, Reason::SpecConflict),
    (Code::ResourceExhausted, Reason::CapacityUnavailable),
    (Code::ResourceExhausted, Reason::QuotaExceeded),
    (Code::FailedPrecondition, Reason::DependencyMissing),
    (Code::FailedPrecondition, Reason::MachineDeleted),
    (Code::FailedPrecondition, Reason::VmInconsistent),
    (Code::FailedPrecondition, Reason::NotOwned),
    (Code::FailedPrecondition, Reason::DeleteBlocked),
    (Code::OutOfRange, Reason::SpecOutOfRange),
    (Code::OutOfRange, Reason::DuplicateVms),
    (Code::Internal, Reason::InitializationFailed),
    (Code::Aborted, Reason::PageTokenExpired),
    (Code::Aborted, Reason::ResumeTokenExpired),
    (Code::Internal, Reason::DriverFault),
    (Code::FailedPrecondition, Reason::CredentialsMissing),
];

/// Codes that come without a reason: from the transport, a proxy or a crash.
const BARE: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// A reason, or a bare code, by its name.
pub fn named(word: &str) -> Option<(Code, Option<Reason>)> {
    all().find(|(code, reason)| reason.map_or_else(|| format!("{code:?}"), |reason| format!("{reason:?}")) == word)
}

fn all() -> impl Iterator<Item = (Code, Option<Reason>)> {
    let reasons = REASONS.into_iter().map(|(code, reason)| (code, Some(reason)));
    reasons.chain(BARE.into_iter().map(|code| (code, None)))
}

/// What the Machine's last pass told, in one line.
fn outcome(stage: &Stage) -> String {
    let machine = stage.etcd.machines.values().next().expect("the Machine is there");
    let operation = machine.last_operation().cloned().unwrap_or_default();
    let code = operation.error_code.unwrap_or_else(|| "-".to_owned());
    let last = stage
        .told
        .last()
        .map_or("", |told| told.lines().last().unwrap_or_default().trim());
    format!("{:<16} {code:<18} {last}", machine.phase())
}

fn after_failures(call: Call, code: Code, reason: Option<Reason>) -> String {
    let mut stage = Stage::default();
    stage.line("create class small");
    let dictated = (call, Dictated::Fails(failure(code, reason)));
    if call == Call::Create {
        stage.cloud.dictated.push_back(dictated);
        stage.line("create machine m of small");
    } else {
        stage.line("create machine m of small");
        stage.cloud.dictated.push_back(dictated);
        stage.line("delete machine m");
    }
    if stage.etcd.machines.contains_key(&Name::new("m")) {
        outcome(&stage)
    } else {
        "gone".to_owned()
    }
}

impl Stage {
    fn line(&mut self, line: &str) {
        self.told.clear();
        script::line(self, line);
        self.settle(self.uptime + Duration::from_millis(10))
            .expect("nothing crashes");
    }
}

/// Rows: W34, pains 105, 162, 163, 167.
#[test]
fn every_reason_has_the_reaction_and_the_pace_of_the_table() {
    let mut table = String::new();
    for call in [Call::Create, Call::Delete] {
        table.push_str(&format!("{call} fails with\n"));
        for (code, reason) in all() {
            let name = reason.map_or_else(|| format!("({code:?})"), |reason| format!("{reason:?}"));
            table.push_str(&format!("  {name:<21} -> {}\n", after_failures(call, code, reason)));
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/reasons.golden");
    expect_file![golden].assert_eq(&table);
}
