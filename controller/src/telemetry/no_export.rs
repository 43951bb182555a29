//! [`export`](super::export) of a manager that was built without the feature `otlp`: it refuses to be told of a collector.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use tracing_subscriber::layer::Identity;

/// Nothing goes on.
pub type Exporting = ();
/// Nothing is tried.
pub type ExportError = Infallible;

/// No collector: an empty URL, which counts as none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector;

/// A collector is named.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this manager was built without the feature otlp and exports no traces: build it with \
     `cargo build --release -p millwright --features otlp`, or name no collector"
)]
pub struct NotBuilt;

impl FromStr for Collector {
    type Err = NotBuilt;

    fn from_str(text: &str) -> Result<Self, NotBuilt> {
        text.is_empty().then_some(Self).ok_or(NotBuilt)
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Begins nothing.
pub(super) fn begin(_: Option<&Collector>) -> Result<(Exporting, Option<Identity>), ExportError> {
    Ok(((), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_refused_with_the_name_of_the_feature_and_an_empty_url_is_none() {
        assert_eq!("".parse(), Ok(Collector));
        let refused = "http://localhost:4317".parse::<Collector>();
        assert!(refused.is_err_and(|why| why.to_string().contains("--features otlp")));
        assert!(begin(None).is_ok_and(|(_, spans)| spans.is_none()));
    }
}
