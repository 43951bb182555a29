//! Counters under their whole names.
//!
//! `/metrics` has the text format that the original has and every scraper reads (`text/plain; version=0.0.4`). There a counter is described
//! under the name of its series; prometheus-client writes OpenMetrics, where the name is described without `_total` and every counter
//! has it. That is the only difference for what is exposed here. Decides nothing.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter. Clones share the number.
#[derive(Clone, Debug, Default)]
pub(super) struct Count(Counter);

impl Count {
    pub(super) fn inc(&self) {
        self.inc_by(1);
    }

    pub(super) fn inc_by(&self, more: u64) {
        self.0.inc_by(more);
    }
}

impl TypedMetric for Count {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Count {
    /// As a gauge is written: the name as it is.
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
