//! What is exported of a driver call: one span, whose context goes with the request.
//!
//! Decides which words of a call leave the process: names, ids and codes. Never the request, and never a message, because nobody
//! knows what a driver quotes in one.

use millwright_core::driver::Failure;
use millwright_core::ids::DriverName;
use millwright_trace::TRACED;
use tonic::Request;
use tracing::Span;
use tracing::field::Empty;

use super::endpoint::Endpoint;
use super::status;
use super::target::MachineKey;

/// The exported span of one call. Empty where traces are not exported.
#[derive(Clone, Debug)]
pub(super) struct CallSpan(Span);

impl CallSpan {
    /// Below the pass that wanted the call, or below none. `driver`: its name, where it has told it.
    pub(super) fn begin(
        method: &'static str,
        endpoint: &Endpoint,
        driver: Option<&DriverName>,
        key: Option<&MachineKey>,
    ) -> Self {
        Self(tracing::info_span!(
            target: TRACED,
            "driver call",
            otel.name = %format_args!("{}/{method}", millwright_proto::SERVICE_NAME),
            otel.kind = "client",
            otel.status_code = Empty,
            rpc.system = "grpc",
            rpc.service = millwright_proto::SERVICE_NAME,
            rpc.method = method,
            server.address = %endpoint,
            driver = driver.map(DriverName::as_str),
            namespace = key.map(|key| key.namespace.as_str()),
            machine = key.map(|key| key.name.as_str()),
            uid = key.map(|key| key.uid.as_str()),
            code = Empty,
            reason = Empty,
        ))
    }

    /// For what runs within the call.
    pub(super) fn span(&self) -> &Span {
        &self.0
    }

    /// The request goes with the context of the span.
    pub(super) fn send<T>(&self, request: &mut Request<T>) {
        millwright_trace::send(&self.0, request.metadata_mut());
    }

    /// How the call ended, in the words of the metrics. An answer of an ordinary life is no error.
    pub(super) fn end(&self, failure: Option<&Failure>, is_expected: bool) {
        self.0.record("code", failure.map_or("OK", Failure::word));
        if let Some(reason) = failure.and_then(|failure| failure.reason) {
            self.0.record("reason", status::reason_name(reason));
        }
        if failure.is_some() && !is_expected {
            self.0.record("otel.status_code", "ERROR");
        }
    }
}
