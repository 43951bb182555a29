//! The log of a provider's process, lines on stderr as text or JSON; and with the feature `otlp` the export of its traces.
//!
//! Every call is a span, the child of the caller's. An author adds spans within a call by [`TRACED`]; nothing else is exported, so that
//! no argument of a function and no line of the log gets to a collector by accident.

use std::io::IsTerminal as _;

use millwright_trace::NOT_LOGGED;
pub use millwright_trace::TRACED;
#[cfg(feature = "otlp")]
use millwright_trace::{Collector, Export, ExportError};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::args::ServeArgs;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

/// Why there is no log, or no export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The process has a log already.
    #[error("logging is already set up in this process")]
    AlreadySet,
    /// Traces are asked for and cannot be had.
    #[cfg(feature = "otlp")]
    #[error("--otlp-endpoint")]
    Export(#[from] ExportError),
}

/// Log and traces under way. Its drop exports the last spans, for which it waits two seconds at most.
#[derive(Debug)]
#[must_use = "traces are exported as long as this lives"]
pub struct Telemetry {
    #[cfg(feature = "otlp")]
    _export: Option<Export>,
}

/// Starts the log as [`init`] does, and the export of traces if `args` name a collector. `service` and `version` say in every trace
/// who made it.
///
/// # Errors
/// If the process has a log already, or traces cannot be exported.
#[cfg_attr(
    not(feature = "otlp"),
    expect(unused_variables, reason = "without the feature nothing is exported")
)]
pub fn start(args: &ServeArgs, service: &str, version: &str) -> Result<Telemetry, TelemetryError> {
    let process = tracing_subscriber::registry().with(log(args.log_format));
    #[cfg(feature = "otlp")]
    {
        let url = args.otlp_endpoint.as_ref().and_then(Collector::url);
        let export = url.map(|url| Export::begin(url, service, version)).transpose()?;
        let spans = export.as_ref().map(|export| millwright_trace::layer(export.tracer()));
        process.with(spans).try_init().map_err(|_| TelemetryError::AlreadySet)?;
        Ok(Telemetry { _export: export })
    }
    #[cfg(not(feature = "otlp"))]
    {
        process.try_init().map_err(|_| TelemetryError::AlreadySet)?;
        Ok(Telemetry {})
    }
}

/// Starts the log. What is written is up to `RUST_LOG`; without it, `info` and above.
///
/// # Errors
/// If the process has a log already.
pub fn init(format: LogFormat) -> Result<(), TelemetryError> {
    let process = tracing_subscriber::registry().with(log(format));
    process.try_init().map_err(|_| TelemetryError::AlreadySet)
}

/// The log with its filter, which is not that of what is exported.
fn log(format: LogFormat) -> impl Layer<Registry> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let never = NOT_LOGGED.parse().expect("it is a directive");
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    lines.with_filter(filter.add_directive(never))
}
