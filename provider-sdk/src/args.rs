//! The flags that every provider binary has, for it to flatten into its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "otlp")]
use millwright_trace::Collector;

use crate::endpoint::Endpoint;
use crate::serve::ServeOptions;
use crate::telemetry::LogFormat;
use crate::tls::TlsFiles;

/// Flags of the server. Use with `#[command(flatten)]`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
#[non_exhaustive]
pub struct ServeArgs {
    /// Where to serve: unix:///PATH, tcp://127.0.0.1:PORT (loopback only), or https://IP:PORT with TLS of both sides.
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
    /// PEM file of the driver's certificate and those that lead to its CA, for https://. The files of TLS are read again when they change.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_client_ca"])]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of the CA that the callers' certificates are of. Nobody calls without one.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// The greatest age of a creation, initialization or deletion, for example 1h; at least 1m. One that is older is dropped.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_work_timeout)]
    pub work_timeout: Duration,
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
        let tls = match (args.tls_cert, args.tls_key, args.tls_client_ca) {
            (Some(cert), Some(key), Some(client_ca)) => Some(TlsFiles { cert, key, client_ca }),
            // The flags need each other; where they are lacking, the endpoint says whether they are needed.
            _ => None,
        };
        Self {
            metrics_addr: args.metrics_addr,
            drain_timeout: args.drain_timeout,
            allowed_uids: args.allow_uid,
            work_timeout: args.work_timeout,
            tls,
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

/// Below this a driver would drop all work that asks its provider anything.
const WORK_TIMEOUT_MIN: Duration = Duration::from_secs(60);

fn parse_work_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text)?;
    match timeout < WORK_TIMEOUT_MIN {
        true => Err(format!("{text} is too short: it must be at least 1m")),
        false => Ok(timeout),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeArgs,
    }

    #[test]
    fn work_has_a_minute_at_least_and_the_refusal_says_so() {
        let told = |timeout: &str| {
            let flags = ["driver", "--listen", "unix:///run/d.sock", "--work-timeout", timeout];
            Cli::try_parse_from(flags).map(|cli| cli.serve.work_timeout)
        };
        for short in ["0s", "59s", "59999ms"] {
            let error = told(short).unwrap_err().to_string();
            assert!(error.contains("at least 1m"), "{error}");
        }
        assert_eq!(told("1m").unwrap(), Duration::from_secs(60));
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse_duration("25s"), Ok(Duration::from_secs(25)));
        assert_eq!(parse_duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert!(parse_duration("-1s").is_err());
        assert!(parse_duration("25").is_err());
    }
}
