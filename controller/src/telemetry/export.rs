//! The export of traces, with the feature `otlp`.

use millwright_trace::Export;
pub use millwright_trace::{Collector, ExportError};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// An export that goes on as long as it lives, if there is a collector.
pub type Exporting = Option<Export>;

/// Begins to export to the collector, and gives what makes the spans.
pub(super) fn begin<S>(collector: Option<&Collector>) -> Result<(Exporting, Option<impl Layer<S>>), ExportError>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let begin = |url| Export::begin(url, "millwright", env!("CARGO_PKG_VERSION"));
    let export = collector.and_then(Collector::url).map(begin).transpose()?;
    let spans = export.as_ref().map(|export| millwright_trace::layer(export.tracer()));
    Ok((export, spans))
}
