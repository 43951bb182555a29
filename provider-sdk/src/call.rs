//! The eleven calls, and what is seen of each: a span, a line in the log, a duration and a count.
//!
//! Decides nothing about a call. Never holds a request: only names and the Machine's key get into logs and metrics.

use std::time::Instant;

use millwright_proto::v1;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::{Code, Status};
use tracing::Span;

use crate::error::DriverError;
use crate::metrics::Metrics;
use crate::reason::Reason;
use crate::status;
use crate::types::Capability;

/// One call of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    GetDriverInfo,
    CreateMachine,
    InitializeMachine,
    DeleteMachine,
    GetMachineStatus,
    ListMachines,
    WatchMachines,
    GetVolumeIds,
    GetMachineClassSchema,
    ValidateMachineClass,
    GetNodeTemplate,
}

impl Call {
    /// Its name in the contract.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GetDriverInfo => "GetDriverInfo",
            Self::CreateMachine => "CreateMachine",
            Self::InitializeMachine => "InitializeMachine",
            Self::DeleteMachine => "DeleteMachine",
            Self::GetMachineStatus => "GetMachineStatus",
            Self::ListMachines => "ListMachines",
            Self::WatchMachines => "WatchMachines",
            Self::GetVolumeIds => "GetVolumeIDs",
            Self::GetMachineClassSchema => "GetMachineClassSchema",
            Self::ValidateMachineClass => "ValidateMachineClass",
            Self::GetNodeTemplate => "GetNodeTemplate",
        }
    }

    /// Whether it changes something at the provider.
    pub(crate) fn mutating(self) -> bool {
        matches!(
            self,
            Self::CreateMachine | Self::InitializeMachine | Self::DeleteMachine
        )
    }

    /// The capability without which it is unimplemented.
    pub(crate) fn capability(self) -> Option<Capability> {
        match self {
            Self::GetDriverInfo
            | Self::CreateMachine
            | Self::DeleteMachine
            | Self::GetMachineStatus
            | Self::ListMachines => None,
            Self::InitializeMachine => Some(Capability::InitializeMachine),
            Self::WatchMachines => Some(Capability::WatchMachines),
            Self::GetVolumeIds => Some(Capability::GetVolumeIds),
            Self::GetMachineClassSchema => Some(Capability::MachineClassSchema),
            Self::ValidateMachineClass => Some(Capability::ValidateMachineClass),
            Self::GetNodeTemplate => Some(Capability::NodeTemplate),
        }
    }

    /// The span of one call about this Machine, or about none.
    pub(crate) fn span(self, key: Option<&v1::MachineKey>) -> Span {
        let method = self.name();
        match key {
            Some(key) => tracing::info_span!(
                "call",
                method,
                cluster = key.cluster_id,
                namespace = key.namespace,
                machine = key.name,
                uid = key.uid
            ),
            None => tracing::info_span!("call", method),
        }
    }
}

/// A call under way. Dropped without a verdict it counts as cancelled: its caller is gone or its deadline passed.
pub(crate) struct Observation {
    call: Call,
    started: Instant,
    metrics: Metrics,
    done: bool,
    /// Keeps the process from ending before the answer is out.
    _alive: TaskTrackerToken,
}

impl Observation {
    pub(crate) fn new(call: Call, metrics: Metrics, alive: TaskTrackerToken) -> Self {
        metrics.begin(call.name());
        Self {
            call,
            started: Instant::now(),
            metrics,
            done: false,
            _alive: alive,
        }
    }

    /// The call was answered.
    pub(crate) fn succeeded(mut self) {
        self.record(Code::Ok, "");
        let elapsed = self.started.elapsed();
        // One line for each change; reads come by the thousand.
        if self.call.mutating() {
            tracing::info!(?elapsed, "done");
        } else {
            tracing::debug!(?elapsed, "done");
        }
    }

    /// The call failed. Returns what to send.
    pub(crate) fn failed(mut self, error: &DriverError) -> Status {
        let status = status::status(error, self.call.mutating());
        let reason = error.reason().name().unwrap_or_default();
        self.record(status.code(), reason);
        let elapsed = self.started.elapsed();
        let cause = std::error::Error::source(error).map(ToString::to_string);
        match error.reason() {
            Reason::DriverFault => tracing::error!(reason, error = error.message(), cause, ?elapsed, "failed"),
            Reason::MachineNotFound | Reason::OperationInProgress | Reason::Unimplemented => {
                tracing::debug!(reason, error = error.message(), cause, ?elapsed, "failed");
            }
            _ => tracing::info!(reason, error = error.message(), cause, ?elapsed, "failed"),
        }
        status
    }

    fn record(&mut self, code: Code, reason: &'static str) {
        self.done = true;
        self.metrics.end(self.call.name(), code, reason, self.started.elapsed());
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if !self.done {
            self.record(Code::Cancelled, "");
            tracing::debug!(call = self.call.name(), elapsed = ?self.started.elapsed(), "the caller is gone");
        }
    }
}
