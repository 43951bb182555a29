//! The flags that every provider binary has, for it to flatten into its own.

use std::net::SocketAddr;
use std::time::Duration;

#[cfg(feature = "otlp")]
use millwright_trace::Collector;

use crate::endpoint::Endpoint;
use crate::serve::ServeOptions;
use crate::telemetry::LogFormat;

/// Flags of the server. Use with `#[command(flatten)]`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServeArgs {
    /// Where to serve: unix:///PATH or tcp://127.0.0.1:PORT (loopback only: there is no TLS yet).
    #[arg(long, value_name = "ENDPOINT", env = "MILLWRIGHT_DRIVER_LISTEN")]
    pub listen: Endpoint,
    /// Where to serve /metrics and /healthz over HTTP. Without it there are none.
    #[arg(long, value_name = "ADDR")]
    pub metrics_addr: Option<SocketAddr>,
    /// How long calls in flight may take after SIGTERM, for example 25s.
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = parse_duration)]
    pub drain_timeout: Duration,
    /// User id that may connect to the socket, besides the driver's own and root. May be repeated.
    #[arg(long = "allow-uid", value_name = "UID")]
    pub allow_uid: Vec<u32>,
    /// How to write the log on stderr. What to write is up to RUST_LOG, "info" without it.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Where traces go: the URL of an OpenTelemetry collector that takes OTLP over gRPC, such as http://localhost:4317; with
    /// https:// by TLS. Without it there are none.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<Collector>,
}

impl From<ServeArgs> for ServeOptions {
    fn from(args: ServeArgs) -> Self {
        Self {
            metrics_addr: args.metrics_addr,
            drain_timeout: args.drain_timeout,
            allowed_uids: args.allow_uid,
            ..Self::new(args.listen)
        }
    }
}

/// A duration as in `25s`, `1500ms` or `2m`, for the flags of provider binaries.
///
/// # Errors
/// A sentence that says what is wrong, also for a negative duration.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(span).map_err(|_| format!("{text} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse_duration("25s"), Ok(Duration::from_secs(25)));
        assert_eq!(parse_duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert!(parse_duration("-1s").is_err());
        assert!(parse_duration("25").is_err());
    }
}
