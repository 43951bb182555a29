//! The optional HTTP side: `/metrics` for a scraper and `/healthz` for a kubelet, whose gRPC probe cannot reach a
//! socket.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::metrics::Metrics;

#[derive(Clone)]
struct Shared {
    metrics: Metrics,
    health: Health,
    stopping: CancellationToken,
}

/// The two pages. `/healthz` fails while the driver says that it cannot work, and from the moment the server is asked to stop.
pub(crate) fn router(metrics: Metrics, health: Health, stopping: CancellationToken) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/healthz", get(health_page))
        .with_state(Shared {
            metrics,
            health,
            stopping,
        })
}

async fn metrics_page(State(shared): State<Shared>) -> Response {
    match shared.metrics.page() {
        Ok(page) => (
            [(
                header::CONTENT_TYPE,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            )],
            page,
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn health_page(State(shared): State<Shared>) -> (StatusCode, &'static str) {
    if shared.stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    if !shared.health.is_serving() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the driver says that it cannot work\n");
    }
    (StatusCode::OK, "ok\n")
}
