//! Circuit breakers before driver calls: a failure that every other Machine would meet too stops their calls, one Machine probes for
//! all, and its success lets the others go.
//!
//! Refused credentials stop an account (the driver, and the Secret with the credentials); a call that is not permitted stops that call
//! for a class; missing capacity or quota stops the creations of a class. A breaker is closed (absent) until such a failure, open until
//! its time to retry, then half-open: one call is in flight as a probe, and for capacity each batch that succeeds doubles how many.
//! Decides who may call now; starts no call and keeps no time. A new process knows the open breakers by the conditions of the classes
//! (`class::condition`). Calls about Machines that live pass no breaker: there are few of them, and they decide about a VM that is there.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::api::{Machine, OperationReason, meta};
use crate::driver::{Call, Code, Failure, Reason};
use crate::ids::{Name, Uid};
use crate::sight::later;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A VM is to be made.
    Create,
    /// A VM is to be removed, or looked for in order to be removed.
    Delete,
}

impl Operation {
    /// What a call about a Machine is for. `None`: the call passes no breaker.
    pub fn of(machine: &Machine, call: Call) -> Option<Self> {
        match call {
            Call::Status | Call::Delete if meta::is_deleting(&machine.metadata) => Some(Self::Delete),
            Call::Create => Some(Self::Create),
            Call::Initialize | Call::Status | Call::Delete => None,
        }
    }
}

/// Why calls are suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The provider refused the credentials.
    Credentials,
    /// The credentials are good and do not permit the call.
    Access,
    /// No capacity or no quota is left.
    Capacity,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Credentials, Self::Access, Self::Capacity];

    /// The cause that a failure has in common with other Machines' calls. `None`: the failure is this Machine's own.
    pub fn of(failure: &Failure) -> Option<Self> {
        match Meaning::of(failure) {
            Meaning::Suspends(cause) => Some(cause),
            Meaning::Accepted | Meaning::Unknown => None,
        }
    }

    /// Why a Machine was told to wait for another one's probe, if it was.
    fn told(machine: &Machine) -> Option<Self> {
        let code = machine.last_operation()?.error_code.as_deref();
        let mut causes = Self::ALL.into_iter().filter(|_| is_suspended(machine));
        causes.find(|cause| Some(cause.code()) == code)
    }

    /// The word for `lastOperation.errorCode`: what each Machine that waits would have got.
    pub fn code(self) -> &'static str {
        match self {
            Self::Credentials => Code::Unauthenticated.word(),
            Self::Access => Code::PermissionDenied.word(),
            Self::Capacity => Code::ResourceExhausted.word(),
        }
    }

    /// One word, for metrics and for the reason of a class's condition.
    pub fn label(self) -> &'static str {
        match self {
            Self::Credentials => "CredentialsRejected",
            Self::Access => "AccessDenied",
            Self::Capacity => "ResourceExhausted",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Credentials => {
                "the provider refused the credentials of the class; one machine tries them again for all, and at once when the Secret \
                 or the class changes"
            }
            Self::Access => {
                "the provider does not let the credentials of the class do this; one machine tries again for all, and at once when \
                 the Secret or the class changes"
            }
            Self::Capacity => {
                "the provider has no capacity or quota left for the class; one machine asks again for all"
            }
        }
    }
}

/// What a failure says of the calls of other Machines.
enum Meaning {
    /// They would fail for the same cause.
    Suspends(Cause),
    /// The provider accepted the credentials: only one that did so answers like this.
    Accepted,
    /// Nothing.
    Unknown,
}

impl Meaning {
    fn of(failure: &Failure) -> Self {
        let Some(reason) = failure.reason else {
            return Self::Unknown;
        };
        match reason {
            Reason::CredentialsRejected => Self::Suspends(Cause::Credentials),
            Reason::AccessDenied => Self::Suspends(Cause::Access),
            Reason::CapacityUnavailable | Reason::QuotaExceeded => Self::Suspends(Cause::Capacity),
            Reason::MachineNotFound
            | Reason::NameConflict
            | Reason::SpecConflict
            | Reason::DependencyMissing
            | Reason::VmInconsistent
            | Reason::NotOwned
            | Reason::DeleteBlocked
            | Reason::DuplicateVms
            | Reason::InitializationFailed => Self::Accepted,
            Reason::InvalidField
            | Reason::OperationInProgress
            | Reason::RateLimited
            | Reason::ProviderUnavailable
            | Reason::StaleLeader
            | Reason::MachineDeleted
            | Reason::SpecOutOfRange
            | Reason::PageTokenExpired
            | Reason::ResumeTokenExpired
            | Reason::DriverFault
            | Reason::CredentialsMissing => Self::Unknown,
        }
    }
}

/// When the time to retry comes, Machines of other classes may probe so much earlier than those of the class whose probe failed: if the
/// refusal is that class's own fault, another class finds out that the credentials are good. The Machine whose probe failed looks so much
/// later than the others.
const APART: SignedDuration = SignedDuration::from_secs(10);
/// How often a waiting Machine looks while another probes. The answer wakes them all; this is the net under it.
const WHILE_ANOTHER_PROBES: SignedDuration = SignedDuration::from_mins(1);
/// How long a reserved probe waits for its call: a live read and a write or two lie between.
const RESERVED_FOR: SignedDuration = SignedDuration::from_secs(30);

/// A breaker that is open or half-open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// Why it opened.
    pub cause: Cause,
    /// What the provider said when it opened; empty where that is not known any more. Later words for the same cause are not taken over:
    /// each Machine that waits would be written anew.
    pub message: String,
    retry_at: Timestamp,
    /// Class and Machine whose call failed last.
    failed_by: (Name, Uid),
    /// How many calls may be in flight together, once a probe has succeeded. Zero: none has.
    limit: usize,
    /// Successes since the limit last grew.
    successes: usize,
    /// Calls in flight. With a time: reserved then, and not begun.
    in_flight: BTreeMap<Uid, Option<Timestamp>>,
}

/// Whether a Machine may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<'a> {
    /// No breaker is in the way.
    Allow,
    /// It may probe, if it reserves the probe before another Machine does.
    Probe,
    /// It waits, and looks again at that time at the latest.
    Deny(&'a CircuitBreaker, Timestamp),
}

/// Whether a Machine was told to wait for another one's probe.
pub fn is_suspended(machine: &Machine) -> bool {
    machine.operation_reason() == Some(OperationReason::Suspended)
}

impl CircuitBreaker {
    /// One that an earlier process left open: one Machine probes at once.
    pub fn restored(cause: Cause, message: String) -> Self {
        Self {
            cause,
            message,
            retry_at: Timestamp::MIN,
            failed_by: (Name::new(""), Uid::new("")),
            limit: 0,
            successes: 0,
            in_flight: BTreeMap::new(),
        }
    }

    /// A call failed for a cause that it shares with others.
    fn fail(&mut self, cause: Cause, message: &str, (class, uid): (&Name, &Uid), retry_at: Timestamp) {
        if self.cause != cause {
            (self.cause, self.message) = (cause, message.to_owned());
        }
        (self.retry_at, self.limit, self.successes) = (retry_at, 0, 0);
        self.failed_by = (class.clone(), uid.clone());
    }

    /// A probe came to nothing for a reason that only time mends.
    fn postpone(&mut self, class: &Name, uid: &Uid, retry_at: Timestamp) {
        self.retry_at = self.retry_at.max(retry_at);
        self.failed_by = (class.clone(), uid.clone());
    }

    /// What the provider said may hold no longer: one Machine probes at once. Calls in flight are about what was before.
    fn retry_at_once(&mut self) {
        (self.retry_at, self.limit, self.successes) = (Timestamp::MIN, 0, 0);
        self.in_flight.clear();
    }

    fn admit(&self, (class, uid): (&Name, &Uid), now: Timestamp) -> Admission<'_> {
        let is_taken = |begun: &Option<Timestamp>| begun.is_none_or(|at| now < later(at, RESERVED_FOR));
        let others = self
            .in_flight
            .iter()
            .filter(|(of, begun)| *of != uid && is_taken(begun));
        let due = match self.failed_by.0 == *class {
            true => self.retry_at,
            false => self.retry_at.saturating_sub(APART).unwrap_or(Timestamp::MIN),
        };
        let limit = match self.limit {
            0 => usize::from(now >= due),
            limit => limit,
        };
        if others.count() < limit {
            return Admission::Probe;
        }
        let look = match limit {
            // A Machine that fails for a reason of its own would else be the probe of all others for ever.
            0 if self.failed_by.1 == *uid => later(due, APART),
            0 => due,
            _ => later(now, WHILE_ANOTHER_PROBES),
        };
        Admission::Deny(self, look)
    }

    /// A probe succeeded. Gives whether the breaker closes: at once, but for capacity, where it closes when all Machines that wait fit.
    fn succeeded(&mut self, waiting: usize) -> bool {
        if self.cause != Cause::Capacity {
            return true;
        }
        self.successes += 1;
        if self.successes >= self.limit {
            (self.limit, self.successes) = (self.limit.max(1) * 2, 0);
        }
        self.limit >= waiting
    }
}

impl fmt::Display for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => f.write_str(self.cause.text()),
            message => write!(f, "{}. It said: {message}", self.cause.text()),
        }
    }
}

mod breakers;
pub use breakers::{Account, Breakers, Change, Circuits, Outcome};

#[cfg(test)]
mod tests;
