//! The export of spans: in batches, from a thread of its own, to one collector.
//!
//! Holds up nobody: a span that finds the queue full is dropped, and an export that fails is told once and forgotten. What the queue
//! holds, how often it is emptied and which traces are kept, OpenTelemetry's own environment variables say (`OTEL_BSP_*`,
//! `OTEL_TRACES_SAMPLER`); by default every trace. A collector with TLS has to be trusted by the system's certificates, or by those in the
//! file that `SSL_CERT_FILE` names instead.

use std::io;
use std::time::Duration;

use opentelemetry::trace::{Tracer, TracerProvider as _};
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::ClientTlsConfig;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::TRACED;
use crate::away::Told;

/// How long the end of a process waits for its last spans.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Why spans cannot be exported at all.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The thread that sends them cannot be started.
    #[error("the runtime that exports traces cannot be started")]
    Runtime(#[source] io::Error),
    /// The exporter refuses its settings.
    #[error("the export of traces to {url} cannot be set up")]
    Exporter {
        /// Of the collector.
        url: String,
        /// What is wrong.
        source: ExporterBuildError,
    },
}

/// An export under way. Its drop sends the last spans and returns within two seconds.
#[derive(Debug)]
pub struct Export {
    provider: SdkTracerProvider,
    /// For the connection alone: exports go on whatever runtime the program has, or had.
    runtime: Option<Runtime>,
}

impl Export {
    /// Begins. Connects when there is something to send, so that a collector may come later than this process.
    ///
    /// # Errors
    /// The process cannot have another thread, OpenTelemetry's environment variables contradict each other, or a collector with TLS is named
    /// where no certificate is found to trust it by.
    pub fn begin(url: &str, service: &str, version: &str) -> Result<Self, ExportError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("traces")
            .enable_all()
            .build()
            .map_err(ExportError::Runtime)?;
        let exporter = {
            let _entered = runtime.enter();
            let exporter = SpanExporter::builder().with_tonic().with_endpoint(url);
            match url.to_ascii_lowercase().starts_with("https:") {
                true => exporter
                    .with_tls_config(ClientTlsConfig::new().with_native_roots())
                    .build(),
                false => exporter.build(),
            }
        };
        let exporter = exporter.map_err(|source| ExportError::Exporter {
            url: url.to_owned(),
            source,
        })?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(service, version))
            .with_batch_exporter(Told::new(exporter, url))
            .build();
        Ok(Self {
            provider,
            runtime: Some(runtime),
        })
    }

    /// What makes the spans, for [`layer`].
    pub fn tracer(&self) -> SdkTracer {
        self.provider.tracer("millwright")
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // That the collector is away has been told.
        let _ = self.provider.shutdown_with_timeout(LAST_SPANS);
        if let Some(runtime) = self.runtime.take() {
            // Dropping it would panic where the program's own runtime runs.
            runtime.shutdown_background();
        }
    }
}

/// Who sends the spans; what `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say wins.
fn resource(service: &str, version: &str) -> Resource {
    let given = Resource::builder().build();
    let name = Key::from_static_str("service.name");
    // What OpenTelemetry falls back to where nobody named the process.
    let is_named = given
        .get(&name)
        .is_some_and(|given| !given.as_str().starts_with("unknown_service"));
    let mut resource = Resource::builder();
    if !is_named {
        resource = resource.with_service_name(service.to_owned());
    }
    if given.get(&Key::from_static_str("service.version")).is_none() {
        resource = resource.with_attribute(KeyValue::new("service.version", version.to_owned()));
    }
    resource.build()
}

/// Gives the spans of [`TRACED`] to a tracer. Its filter is its own: what a log shows is another's.
pub fn layer<S, T>(tracer: T) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    T: Tracer + Send + Sync + 'static,
    T::Span: Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(TRACED, LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn a_collector_that_is_away_holds_up_neither_the_work_nor_for_long_the_end() {
        let export = Export::begin("http://127.0.0.1:9", "test", "1").expect("it begins without a collector");
        let began = Instant::now();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer(export.tracer())), || {
            for _ in 0..10_000 {
                tracing::info_span!(target: TRACED, "work").in_scope(|| {});
            }
        });
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let ends = Instant::now();
        drop(export);
        assert!(
            ends.elapsed() < LAST_SPANS + Duration::from_secs(1),
            "{:?}",
            ends.elapsed()
        );
    }

    #[tokio::test]
    async fn an_export_may_end_within_a_runtime() {
        drop(Export::begin("http://127.0.0.1:9", "test", "1").expect("it begins"));
    }
}
