//! The flags of the quick start.

use std::time::Duration;

use clap::Parser;
use millwright_core::api::lenient::GoDuration;

/// Millwright's quick start: a real API server, the manager and a simulated cloud, each a process of its own.
///
/// Applies the manifests of deploy/examples, shows machines come up, scales up, switches a VM off, scales down, and then
/// stays, so that kubectl works beside it. Ctrl-C ends every process.
#[derive(Clone, Debug, Parser)]
#[command(name = "millwright-dev", version, max_term_width = 120)]
pub struct Args {
    /// End after the last step, with exit code 0, instead of staying
    #[arg(long)]
    pub once: bool,

    /// Machines to begin and to end with; in between there are two more
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub replicas: u16,

    /// How long a simulated VM takes from accepted to running
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = duration)]
    pub create_delay: Duration,

    /// How long a running VM takes until its node registers
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = duration)]
    pub join_delay: Duration,
}

/// The machines of the second step.
pub const MORE: u16 = 2;

fn duration(text: &str) -> Result<Duration, String> {
    let signed = GoDuration::from_text(text).get().map_err(|error| error.to_string())?;
    Duration::try_from(signed).map_err(|_| format!("{text:?} is negative"))
}
