//! `driver_call_seconds{method,code,reason}` and `driver_calls_in_flight{method}`, counted where the author's code is
//! called: a layer at HTTP would see neither the code nor the reason, both of which travel in trailers. Of the work that outlives its callers
//! `driver_work_in_flight{method}` and `driver_work_unheard_total{method,code,reason}`.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tonic::Code;

/// From a look into a table to a copy of a disk, as CSI's sidecars count.
const BUCKETS: [f64; 14] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 600.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    code: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

/// The process's metrics. Clones count together.
#[derive(Clone)]
pub(crate) struct Metrics {
    seconds: Family<CallLabels, Histogram, fn() -> Histogram>,
    in_flight: Family<MethodLabels, Gauge>,
    work: Family<MethodLabels, Gauge>,
    unheard: Family<CallLabels, Counter>,
    registry: Arc<Registry>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let seconds = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let in_flight = Family::<MethodLabels, Gauge>::default();
        let work = Family::<MethodLabels, Gauge>::default();
        let unheard = Family::<CallLabels, Counter>::default();
        let mut registry = Registry::default();
        registry.register(
            "driver_call_seconds",
            "How long calls took, by how they ended",
            seconds.clone(),
        );
        registry.register(
            "driver_calls_in_flight",
            "Calls that are not answered yet",
            in_flight.clone(),
        );
        registry.register(
            "driver_work_in_flight",
            "Changes of VMs that have not ended, whether or not a caller waits",
            work.clone(),
        );
        registry.register(
            "driver_work_unheard",
            "Changes of VMs that ended after all their callers were gone",
            unheard.clone(),
        );
        Self {
            seconds,
            in_flight,
            work,
            unheard,
            registry: Arc::new(registry),
        }
    }

    pub(crate) fn begin(&self, method: &'static str) {
        self.in_flight.get_or_create(&MethodLabels { method }).inc();
    }

    pub(crate) fn end(&self, method: &'static str, code: Code, reason: &'static str, took: Duration) {
        self.in_flight.get_or_create(&MethodLabels { method }).dec();
        let labels = CallLabels {
            method,
            code: code_name(code),
            reason,
        };
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn work_begins(&self, method: &'static str) {
        self.work.get_or_create(&MethodLabels { method }).inc();
    }

    pub(crate) fn work_ends(&self, method: &'static str) {
        self.work.get_or_create(&MethodLabels { method }).dec();
    }

    pub(crate) fn unheard(&self, method: &'static str, code: &'static str, reason: &'static str) {
        self.unheard.get_or_create(&CallLabels { method, code, reason }).inc();
    }

    /// The page for a scraper, in the OpenMetrics text format.
    pub(crate) fn page(&self) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_by_its_code_and_reason() {
        let metrics = Metrics::new();
        metrics.begin("CreateMachine");
        assert!(
            metrics
                .page()
                .unwrap()
                .contains("driver_calls_in_flight{method=\"CreateMachine\"} 1")
        );
        metrics.end(
            "CreateMachine",
            Code::ResourceExhausted,
            "QUOTA_EXCEEDED",
            Duration::from_millis(30),
        );
        let page = metrics.page().unwrap();
        assert!(
            page.contains("driver_calls_in_flight{method=\"CreateMachine\"} 0"),
            "{page}"
        );
        let count = "driver_call_seconds_count{method=\"CreateMachine\",code=\"RESOURCE_EXHAUSTED\",reason=\"QUOTA_EXCEEDED\"} 1";
        assert!(page.contains(count), "{page}");
    }
}
