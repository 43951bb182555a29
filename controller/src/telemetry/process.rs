//! The open files of this process, under the names that Prometheus' own clients give them. Decides nothing.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use rustix::process::{Resource, getrlimit};

/// How many files are open, and how many may be.
#[derive(Debug)]
pub(super) struct Files;

impl Collector for Files {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut tell = |name, help, value: u64| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode_gauge(&value)
        };
        // Only Linux tells; elsewhere there is no series.
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            tell("process_open_fds", "Open files", open.count() as u64)?;
        }
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        tell("process_max_fds", "Files that may be open", most)
    }
}
