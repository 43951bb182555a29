//! Arbitrary things out of a tape of numbers; a tape that has run out says the plainest thing.

use jiff::{SignedDuration, Timestamp};
use millwright_core::driver::{Code, Disturbance, Effect, Failure, Initialization, Reason, Vm, VmState};
use millwright_core::ids::{NodeName, ProviderId};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Random choices that a test can replay and shrink.
pub struct Dice {
    tape: std::vec::IntoIter<u16>,
}

/// Tapes for proptest.
pub fn tapes() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..160)
}

/// The moment at which plans are made.
pub fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("it is a time")
}

impl Dice {
    pub fn new(tape: Vec<u16>) -> Self {
        Self { tape: tape.into_iter() }
    }

    /// One of the given; the first is the plainest.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        let throw = usize::from(self.tape.next().unwrap_or(0));
        of[throw % of.len()].clone()
    }

    pub fn number(&mut self, below: u16) -> u16 {
        self.tape.next().unwrap_or(0) % below
    }

    pub fn flag(&mut self) -> bool {
        self.number(2) == 1
    }

    /// Seldom.
    pub fn rarely(&mut self) -> bool {
        self.number(6) == 5
    }

    pub fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| make(self))
    }

    /// A time around now.
    pub fn time(&mut self) -> Timestamp {
        now()
            + SignedDuration::from_secs(
                self.pick(&[0, -1, 1, -5, 5, -11, 60, -60, -600, 600, -1200, -1201, 86_400, -86_400]),
            )
    }

    pub fn stamp(&mut self) -> Value {
        json!(format!("{:.0}", self.time()))
    }

    pub fn failure(&mut self) -> Failure {
        let code = self.pick(&CODES);
        Failure {
            reason: self.maybe(|dice| dice.pick(&REASONS)),
            effect: self.pick(&[Effect::None, Effect::Partial, Effect::Unknown]),
            retry_after: if self.rarely() {
                Some(SignedDuration::from_secs(self.pick(&[0, 30, 86_400])))
            } else {
                None
            },
            last_known_state: self.maybe(|_| "crumb".to_owned()),
            ..Failure::transport(code, self.pick(&["no", "Timeout expired", "Initiate node drain"]))
        }
    }

    pub fn vm(&mut self) -> Vm {
        let states = [
            VmState::Running,
            VmState::Creating,
            VmState::Stopped,
            VmState::Failed,
            VmState::Deleting,
            VmState::Deleted,
            VmState::Unrecognized,
        ];
        let initializations = [Initialization::NotNeeded, Initialization::Pending, Initialization::Done];
        Vm {
            provider_id: if self.rarely() {
                None
            } else {
                Some(ProviderId::new(self.pick(&["id-1", "id-2"])))
            },
            node_name: if self.rarely() {
                None
            } else {
                Some(NodeName::new(self.pick(&["node-1", "node-2"])))
            },
            state: self.pick(&states),
            state_message: "words".to_owned(),
            initialization: self.pick(&initializations),
            addresses: Vec::new(),
            last_known_state: self.maybe(|dice| dice.pick(&["crumb", "other", ""]).to_owned()),
            ends_at: self.maybe(Self::time),
            tagged_uid: None,
            disturbance: self
                .maybe(|dice| dice.pick(&[Disturbance::Reclaim, Disturbance::Maintenance, Disturbance::Advice])),
            poll_after: self.maybe(|dice| SignedDuration::from_secs(dice.pick(&[1, 0, 3600]))),
        }
    }

    /// Conditions as a kubelet, or anybody, may write them.
    pub fn conditions(&mut self) -> Value {
        let types = ["Ready", "DiskPressure", "KernelDeadlock", "Custom"];
        let count = self.number(4);
        let all = (0..count)
            .map(|_| json!({"type": self.pick(&types), "status": self.pick(&["True", "False", "Unknown", ""])}));
        all.collect()
    }
}

pub const CODES: [Code; 16] = [
    Code::Unavailable,
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
    Code::DataLoss,
    Code::Unauthenticated,
];

pub const REASONS: [Reason; 24] = [
    Reason::ProviderUnavailable,
    Reason::InvalidField,
    Reason::CredentialsRejected,
    Reason::AccessDenied,
    Reason::OperationInProgress,
    Reason::RateLimited,
    Reason::StaleLeader,
    Reason::MachineNotFound,
    Reason::NameConflict,
    Reason::SpecConflict,
    Reason::CapacityUnavailable,
    Reason::QuotaExceeded,
    Reason::DependencyMissing,
    Reason::MachineDeleted,
    Reason::VmInconsistent,
    Reason::NotOwned,
    Reason::DeleteBlocked,
    Reason::SpecOutOfRange,
    Reason::DuplicateVms,
    Reason::InitializationFailed,
    Reason::PageTokenExpired,
    Reason::ResumeTokenExpired,
    Reason::DriverFault,
    Reason::CredentialsMissing,
];
