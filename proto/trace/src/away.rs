//! An exporter whose failures are told once, not with every batch.
//!
//! Decides nothing: spans that could not be exported are gone, and the next ones are tried.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Tells when the collector goes and when it is back.
#[derive(Debug)]
pub(crate) struct Told<E> {
    exporter: E,
    url: String,
    is_away: AtomicBool,
}

impl<E> Told<E> {
    pub(crate) fn new(exporter: E, url: &str) -> Self {
        Self {
            exporter,
            url: url.to_owned(),
            is_away: AtomicBool::new(false),
        }
    }

    fn tell(&self, result: &OTelSdkResult) {
        let was_away = self.is_away.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Err(error) if !was_away => tracing::warn!(
                collector = self.url, %error,
                "traces cannot be exported and are lost until they can be; this is said once"
            ),
            Ok(()) if was_away => tracing::info!(collector = self.url, "traces are exported again"),
            Ok(()) | Err(_) => {}
        }
    }
}

impl<E: SpanExporter> SpanExporter for Told<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        self.tell(&result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
