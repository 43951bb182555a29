//! The ten calls, and what is seen of each: spans, a line in the log, a duration and a count.
//!
//! Decides nothing about a call. Never holds a request: only names, the Machine's key and the caller's trace get into logs, traces and
//! metrics.

use std::future::Future;
use std::time::Instant;

use millwright_proto::v1;
use millwright_trace::{Parent, TRACED};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::{Code, Request, Status};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::error::DriverError;
use crate::metrics::{Metrics, code_name};
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
            Self::GetMachineClassSchema => Some(Capability::MachineClassSchema),
            Self::ValidateMachineClass => Some(Capability::ValidateMachineClass),
            Self::GetNodeTemplate => Some(Capability::NodeTemplate),
        }
    }

    /// The spans of one call.
    pub(crate) fn spans(self, asked: &Asked) -> Spans {
        let exported = self.exported(asked);
        let log = self.log(asked.key.as_ref());
        let trace = millwright_trace::trace_of(&exported);
        let trace = trace.or_else(|| asked.parent.as_ref().map(Parent::trace_id));
        if let Some(trace) = trace {
            log.record("trace_id", tracing::field::display(trace));
        }
        Spans { log, exported }
    }

    fn log(self, key: Option<&v1::MachineKey>) -> Span {
        let method = self.name();
        match key {
            Some(key) => tracing::info_span!(
                "call",
                method,
                cluster = key.cluster_id,
                namespace = key.namespace,
                machine = key.name,
                uid = key.uid,
                trace_id = Empty
            ),
            None => tracing::info_span!("call", method, trace_id = Empty),
        }
    }

    fn exported(self, asked: &Asked) -> Span {
        let (method, key) = (self.name(), asked.key.as_ref());
        let span = tracing::info_span!(
            target: TRACED,
            "call of the driver",
            otel.name = %format_args!("{}/{method}", millwright_proto::SERVICE_NAME),
            otel.kind = "server",
            otel.status_code = Empty,
            rpc.system = "grpc",
            rpc.service = millwright_proto::SERVICE_NAME,
            rpc.method = method,
            cluster = key.map(|key| key.cluster_id.as_str()),
            namespace = key.map(|key| key.namespace.as_str()),
            machine = key.map(|key| key.name.as_str()),
            uid = key.map(|key| key.uid.as_str()),
            code = Empty,
            reason = Empty,
        );
        if let Some(parent) = &asked.parent {
            millwright_trace::adopt(&span, parent);
        }
        span
    }
}

/// About which Machine a call is, if about one, and from which span it came.
#[derive(Default)]
pub(crate) struct Asked {
    key: Option<v1::MachineKey>,
    parent: Option<Parent>,
}

impl Asked {
    pub(crate) fn by<T>(request: &Request<T>) -> Self {
        Self::about(None, request)
    }

    pub(crate) fn about<T>(key: Option<&v1::MachineKey>, request: &Request<T>) -> Self {
        Self {
            key: key.cloned(),
            parent: Parent::of(request.metadata()),
        }
    }
}

/// What stands around a call. The one is the log's and the other the collector's, so that neither shows the other's words.
pub(crate) struct Spans {
    log: Span,
    exported: Span,
}

impl Spans {
    /// Runs the call within both.
    pub(crate) fn around<T>(self, call: impl Future<Output = T>) -> impl Future<Output = T> {
        call.instrument(self.log).instrument(self.exported)
    }
}

/// A call under way. Dropped without a verdict it counts as cancelled: its caller is gone or its deadline passed.
pub(crate) struct Observation {
    call: Call,
    started: Instant,
    metrics: Metrics,
    exported: Span,
    done: bool,
    /// Keeps the process from ending before the answer is out.
    _alive: Option<TaskTrackerToken>,
}

impl Observation {
    pub(crate) fn new(call: Call, spans: &Spans, metrics: Metrics, alive: Option<TaskTrackerToken>) -> Self {
        metrics.begin(call.name());
        Self {
            call,
            started: Instant::now(),
            metrics,
            exported: spans.exported.clone(),
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
        self.tell(code, reason);
        self.metrics.end(self.call.name(), code, reason, self.started.elapsed());
    }

    /// Into the trace. What is only the caller's mistake, or its news, is no error of the driver.
    fn tell(&self, code: Code, reason: &'static str) {
        self.exported.record("code", code_name(code));
        if !reason.is_empty() {
            self.exported.record("reason", reason);
        }
        if matches!(
            code,
            Code::Unknown | Code::DeadlineExceeded | Code::Internal | Code::Unavailable | Code::DataLoss
        ) {
            self.exported.record("otel.status_code", "ERROR");
        }
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

#[cfg(test)]
mod tests {
    #[cfg(feature = "otlp")]
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::test_log::Log;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    /// A request with this `traceparent`.
    fn from(parent: &str) -> Asked {
        let mut request = Request::new(());
        let header = parent.parse().expect("a legal value");
        request.metadata_mut().insert(millwright_trace::TRACEPARENT, header);
        Asked::about(Some(&v1::MachineKey::default()), &request)
    }

    /// The line of a call, with the filter that every provider's log has.
    fn line_of(asked: &Asked) -> String {
        let log = Log::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt()
            .with_env_filter(format!("info,{}", millwright_trace::NOT_LOGGED))
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false);
        tracing::subscriber::with_default(lines.finish(), || {
            let call = Call::CreateMachine
                .spans(asked)
                .around(async { tracing::info!("done") });
            futures::FutureExt::now_or_never(call).expect("it waits for nothing");
        });
        log.text()
    }

    #[test]
    fn the_line_of_a_call_has_the_trace_of_its_caller_also_where_nothing_is_exported() {
        let line = line_of(&from(&format!("00-{TRACE}-00f067aa0ba902b7-01")));
        assert!(line.contains(&format!("trace_id={TRACE}")), "{line}");
    }

    #[test]
    fn the_line_of_a_call_without_a_trace_is_as_it_always_was() {
        let wanted = " INFO call{method=\"CreateMachine\" cluster=\"\" namespace=\"\" machine=\"\" uid=\"\"}: done\n";
        for asked in [
            from("garbage"),
            from(""),
            Asked::about(Some(&v1::MachineKey::default()), &Request::new(())),
        ] {
            assert_eq!(line_of(&asked), wanted);
        }
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn the_span_of_a_call_belongs_to_the_trace_of_its_caller() {
        // Nobody listens there: what is asked is only which trace the span belongs to.
        let export = millwright_trace::Export::begin("http://127.0.0.1:9", "test", "1").expect("it begins");
        let exported = tracing_subscriber::registry().with(millwright_trace::layer(export.tracer()));
        tracing::subscriber::with_default(exported, || {
            let trace = |asked: &Asked| {
                let trace = millwright_trace::trace_of(&Call::CreateMachine.spans(asked).exported);
                trace.expect("it is exported").to_string()
            };
            assert_eq!(trace(&from(&format!("00-{TRACE}-00f067aa0ba902b7-01"))), TRACE);
            assert_ne!(trace(&from("garbage")), TRACE, "a trace of its own");
        });
    }
}
