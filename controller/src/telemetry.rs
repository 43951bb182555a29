//! Logs, metrics and the export of traces. The only file that names a metric or shapes a log line; decides nothing else.
//!
//! Labels take few values by construction: verbs, kinds, codes, phases, never names of objects. Where the original names objects,
//! [`original`] does.

mod count;
#[cfg(feature = "otlp")]
pub mod export;
mod klog;
mod lines;
// Its test runs with the feature, too.
#[cfg(any(test, not(feature = "otlp")))]
pub mod no_export;
pub mod original;
mod process;

use std::fmt;
use std::io::IsTerminal as _;
use std::time::Duration;

use millwright_trace::NOT_LOGGED;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use self::count::Count;
use self::export::{Collector, ExportError, Exporting};
#[cfg(not(feature = "otlp"))]
pub use self::no_export as export;
use self::original::Original;

/// What is logged when nothing is said: our own words at info, others' only when they matter. The HTTP client tells of
/// every failed request at error level; we say the same once, with the consequence.
pub const DEFAULT_FILTER: &str =
    "info,kube_client=error,kube_client::client::builder=off,kube_runtime=error,tower=warn,hyper=warn,h2=warn";

/// Added to every filter: this module of kube logs whole answers that it cannot decode, and an answer may be a Secret. And the spans
/// that are exported would stand around lines that have spans of their own.
const NEVER_LOGGED: [&str; 2] = ["kube_client::client=error", NOT_LOGGED];

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
    /// As klog, the log of Kubernetes' own programs, for what reads theirs.
    Klog,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is no filter.
    #[error(
        "--log-level {filter:?} is not understood: {reason}. Say a level (\"info\") or directives (\"info,millwright=debug\")"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What the parser says.
        reason: String,
    },
    /// The process already has a subscriber.
    #[error("logging is already set up in this process")]
    AlreadySet,
    /// Traces are asked for and cannot be had.
    #[error("--otlp-endpoint")]
    Export(#[from] ExportError),
}

/// What goes on as long as it lives: the log, and the export of traces. When it ends, what was said last is written.
pub struct Telemetry {
    // What the export says at its end is logged, so it ends first.
    _export: Exporting,
    _lines: WorkerGuard,
}

/// Starts logging to stderr, so that stdout stays for results; and the export of traces, if it is wanted. The filter is for the log alone.
pub fn init(format: LogFormat, filter: &str, collector: Option<&Collector>) -> Result<Telemetry, TelemetryError> {
    let filter = filter_of(filter)?;
    let (export, spans) = export::begin(collector)?;
    let (writer, guard) = lines::writer(std::io::stderr());
    let is_terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer();
    let lines = match format {
        LogFormat::Text => lines
            .with_ansi(is_terminal)
            .with_writer(move || lines::OneLine::new(writer.clone(), is_terminal))
            .boxed(),
        LogFormat::Klog => lines
            .event_format(klog::Klog)
            .with_ansi(false)
            .with_writer(move || lines::OneLine::new(writer.clone(), false))
            .boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_writer(move || lines::OneLine::new(writer.clone(), false))
            .boxed(),
    };
    let subscriber = tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(spans);
    subscriber.try_init().map_err(|_| TelemetryError::AlreadySet)?;
    Ok(Telemetry {
        _export: export,
        _lines: guard,
    })
}

/// Builds the filter with what is never logged.
fn filter_of(text: &str) -> Result<EnvFilter, TelemetryError> {
    let wrong = |reason: String| TelemetryError::Filter {
        filter: text.to_owned(),
        reason,
    };
    let mut filter = EnvFilter::builder()
        .parse(text)
        .map_err(|error| wrong(error.to_string()))?;
    for directive in NEVER_LOGGED {
        let directive = directive
            .parse()
            .map_err(|error: tracing_subscriber::filter::ParseError| wrong(error.to_string()))?;
        filter = filter.add_directive(directive);
    }
    Ok(filter)
}

/// Seconds; a healthy API server answers within milliseconds, its own limit is a minute.
const API_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// Seconds; clouds answer between a tenth of a second and ten minutes.
const DRIVER_BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 180.0, 600.0];
/// Seconds; a pass over one key, without the driver's time.
const RECONCILE_BUCKETS: [f64; 9] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabels {
    cluster: &'static str,
    verb: &'static str,
    resource: String,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriverLabels {
    driver: String,
    method: &'static str,
    code: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HoldUpLabels {
    driver: String,
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: &'static str,
    why: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    lane: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VmLabels {
    driver: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookLabels {
    driver: String,
    result: &'static str,
}

/// Makes histograms of one set of buckets.
#[derive(Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Everything that is measured, behind one small method each. Clones share the numbers.
#[derive(Clone)]
pub struct Metrics {
    registry: std::sync::Arc<Registry>,
    originals: std::sync::Arc<Registry>,
    /// What the original measures.
    pub original: Original,
    api: Family<ApiLabels, Histogram, Buckets>,
    driver: Family<DriverLabels, Histogram, Buckets>,
    held_up: Family<HoldUpLabels, Histogram, Buckets>,
    reconcile: Family<ReconcileLabels, Histogram, Buckets>,
    queue: Family<KindLabels, Gauge>,
    watch_errors: Family<KindLabels, Count>,
    machines: Family<PhaseLabels, Gauge>,
    events: Family<EventLabels, Count>,
    parked: Family<CauseLabels, Gauge>,
    vms: Family<VmLabels, Gauge>,
    listings: Family<LookLabels, Count>,
    orphans: Family<LookLabels, Count>,
    doubts: Family<LookLabels, Count>,
    leader: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let original = Original::default();
        let mut metrics = Self {
            registry: std::sync::Arc::default(),
            originals: std::sync::Arc::new(original.registry()),
            original,
            api: Family::new_with_constructor(Buckets(&API_BUCKETS)),
            driver: Family::new_with_constructor(Buckets(&DRIVER_BUCKETS)),
            held_up: Family::new_with_constructor(Buckets(&DRIVER_BUCKETS)),
            reconcile: Family::new_with_constructor(Buckets(&RECONCILE_BUCKETS)),
            queue: Family::default(),
            watch_errors: Family::default(),
            machines: Family::default(),
            events: Family::default(),
            parked: Family::default(),
            vms: Family::default(),
            listings: Family::default(),
            orphans: Family::default(),
            doubts: Family::default(),
            leader: Gauge::default(),
        };
        metrics.registry = std::sync::Arc::new(metrics.registered());
        metrics
    }
}

impl Metrics {
    fn registered(&self) -> Registry {
        let mut r = Registry::with_prefix("millwright");
        r.register(
            "api_request_seconds",
            "Requests to an API server, with the time until the whole answer (watches: until its beginning)",
            self.api.clone(),
        );
        r.register(
            "driver_call_seconds",
            "Calls to a driver; reason is the driver's own, code is gRPC's",
            self.driver.clone(),
        );
        r.register(
            "driver_throttle_seconds",
            "How long calls waited because the provider throttles their account; those that would wait too long are not sent",
            self.held_up.clone(),
        );
        r.register(
            "reconcile_seconds",
            "Passes over one key, by what they decided and how that went",
            self.reconcile.clone(),
        );
        r.register(
            "queue_depth",
            "Keys that wait for a worker or for their time",
            self.queue.clone(),
        );
        r.register(
            "watch_errors_total",
            "Errors of watches; each is followed by a retry",
            self.watch_errors.clone(),
        );
        r.register("machines", "Machines by phase", self.machines.clone());
        r.register(
            "events_total",
            "Kubernetes events by what became of them; lane life is of what every machine goes through",
            self.events.clone(),
        );
        r.register(
            "parked_classes",
            "Classes whose machines wait while one asks for all, because a driver refused one of them, by cause",
            self.parked.clone(),
        );
        r.register(
            "vms",
            "VMs of the last complete listings, by whose they are; state orphan: of no Machine, by all evidence",
            self.vms.clone(),
        );
        r.register(
            "vm_listings_total",
            "Listings of the VMs at a driver's provider, by whether they were complete",
            self.listings.clone(),
        );
        r.register(
            "orphans_total",
            "VMs that no Machine owns, and Nodes that are left of VMs, by what became of them",
            self.orphans.clone(),
        );
        r.register(
            "vm_doubts_total",
            "Machines whose VM was asked for because its provider told bad news of it, or did not show it when a watch began",
            self.doubts.clone(),
        );
        r.register_collector(Box::new(lines::Dropped));
        r.register("leader", "1 while this process is the leader", self.leader.clone());
        r
    }

    /// A request to an API server ended. `code` is the HTTP status or a word for why there is none.
    pub fn api_request(&self, cluster: &'static str, verb: &'static str, resource: &str, code: String, took: Duration) {
        let labels = ApiLabels {
            cluster,
            verb,
            resource: resource.to_owned(),
            code,
        };
        self.api.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A call to a driver ended. `reason` is empty where the driver gave none.
    pub fn driver_call(&self, driver: &str, method: &'static str, code: &str, reason: &str, took: Duration) {
        let labels = DriverLabels {
            driver: driver.to_owned(),
            method,
            code: code.to_owned(),
            reason: reason.to_owned(),
        };
        self.driver.get_or_create(&labels).observe(took.as_secs_f64());
        self.original.happened.driver_call(driver, method, code, took);
    }

    /// A call to a driver was held up because its provider throttles its account.
    pub fn held_up(&self, driver: &str, method: &'static str, took: Duration) {
        let driver = driver.to_owned();
        let labels = HoldUpLabels { driver, method };
        self.held_up.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A pass over a key ended.
    pub fn reconciled(&self, kind: &'static str, why: &str, result: &'static str, took: Duration) {
        let labels = ReconcileLabels {
            kind,
            why: why.to_owned(),
            result,
        };
        self.reconcile.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// How many keys of a kind are in the queue.
    pub fn queue_depth(&self, kind: &str, keys: usize) {
        let labels = KindLabels { kind: kind.to_owned() };
        self.queue
            .get_or_create(&labels)
            .set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    /// A watch of a resource failed and will try again.
    pub fn watch_failed(&self, resource: &str) {
        self.watch_errors
            .get_or_create(&KindLabels {
                kind: resource.to_owned(),
            })
            .inc();
    }

    /// How many Machines there are in each phase. Phases that are not named have none.
    pub fn machines(&self, phases: impl IntoIterator<Item = (String, usize)>) {
        self.machines.clear();
        for (phase, machines) in phases {
            let machines = i64::try_from(machines).unwrap_or(i64::MAX);
            self.machines.get_or_create(&PhaseLabels { phase }).set(machines);
        }
    }

    /// What became of a Kubernetes event. What the words mean is said in `kube/events.rs`.
    pub fn event(&self, lane: &'static str, result: &'static str) {
        self.events.get_or_create(&EventLabels { lane, result }).inc();
    }

    /// How many classes are parked for each cause. Causes that are not named park none.
    pub fn parked(&self, causes: impl IntoIterator<Item = (&'static str, usize)>) {
        self.parked.clear();
        for (cause, classes) in causes {
            let classes = i64::try_from(classes).unwrap_or(i64::MAX);
            self.parked.get_or_create(&CauseLabels { cause }).set(classes);
        }
    }

    /// How many VMs there are at each driver, by whose they are. Others than are named there are none.
    pub fn vms(&self, states: impl IntoIterator<Item = ((String, &'static str), usize)>) {
        self.vms.clear();
        for ((driver, state), vms) in states {
            let vms = i64::try_from(vms).unwrap_or(i64::MAX);
            self.vms.get_or_create(&VmLabels { driver, state }).set(vms);
        }
    }

    /// A listing of VMs ended, complete or not.
    pub fn listed(&self, driver: &str, result: &'static str) {
        let driver = driver.to_owned();
        self.listings.get_or_create(&LookLabels { driver, result }).inc();
    }

    /// What became of a VM of no Machine, or of a Node that was left.
    pub fn orphan(&self, driver: &str, result: &'static str) {
        let driver = driver.to_owned();
        self.orphans.get_or_create(&LookLabels { driver, result }).inc();
    }

    /// So many Machines' VMs are in doubt, because of bad news or because they were not shown.
    pub fn doubted(&self, driver: &str, result: &'static str, machines: usize) {
        let driver = driver.to_owned();
        let machines = u64::try_from(machines).unwrap_or(u64::MAX);
        self.doubts
            .get_or_create(&LookLabels { driver, result })
            .inc_by(machines);
    }

    /// Whether this process leads.
    pub fn leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// The text of `/metrics`, in the format of Prometheus.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode_registry(&mut text, &self.originals)?;
        prometheus_client::encoding::text::encode_registry(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_rendered_with_its_labels() {
        let metrics = Metrics::default();
        metrics.api_request(
            "control",
            "patch",
            "machines/status",
            "200".into(),
            Duration::from_millis(7),
        );
        metrics.driver_call(
            "virtual",
            "CreateMachine",
            "ResourceExhausted",
            "QUOTA_EXCEEDED",
            Duration::from_secs(2),
        );
        metrics.leader(true);

        let text = metrics.render().unwrap();

        assert!(
            text.contains(
                r#"api_request_seconds_count{cluster="control",verb="patch",resource="machines/status",code="200"} 1"#
            ),
            "{text}"
        );
        assert!(text.contains(r#"reason="QUOTA_EXCEEDED""#), "{text}");
        assert!(text.contains("millwright_leader 1"), "{text}");
    }

    /// Rows: W30.
    #[test]
    fn a_phase_without_machines_is_no_longer_shown() {
        let metrics = Metrics::default();
        metrics.machines([("Pending".to_owned(), 3)]);
        metrics.machines([("Running".to_owned(), 3)]);

        let text = metrics.render().unwrap();

        assert!(text.contains(r#"millwright_machines{phase="Running"} 3"#), "{text}");
        assert!(!text.contains("Pending"), "{text}");
    }

    #[test]
    fn a_wrong_filter_is_named() {
        let error = filter_of("millwright=loud").unwrap_err().to_string();
        assert!(
            error.contains("--log-level") && error.contains("millwright=loud"),
            "{error}"
        );
    }

    #[test]
    fn undecodable_answers_are_kept_out_of_the_log_whatever_the_filter_says() {
        let filter = filter_of("trace,kube_client::client=trace").unwrap().to_string();
        assert!(
            NEVER_LOGGED.iter().all(|never| filter.contains(never)) && !filter.contains("kube_client::client=trace"),
            "{filter}"
        );
    }
}
