//! The HTTP port for operators: `/metrics`, `/livez`, `/readyz` and `/healthz`. Decides nothing; it asks and prints.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::health::{Health, Report};
use crate::telemetry::Metrics;

/// The format of `/metrics`.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may last: whoever holds all of them would keep `/livez` from the kubelet.
const CONNECTION: Duration = Duration::from_secs(60);
/// Connections at a time; more wait.
const CONNECTIONS: usize = 64;
/// How long answers may take after the stop.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// The pause after a connection that could not be accepted: there may be no file left.
const RETRY: Duration = Duration::from_millis(100);

/// Why the port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Somebody has it, or the address is not of this host.
    #[error("--metrics-addr {addr}: {reason}. Choose a free one; port 0 takes any")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        reason: std::io::Error,
    },
}

/// Takes the port, so that a port that is taken is an error at the start and not a line in the log.
pub async fn bind(addr: SocketAddr) -> Result<TcpListener, AdminError> {
    let wrong = |reason| AdminError::Bind { addr, reason };
    let listener = TcpListener::bind(addr).await.map_err(wrong)?;
    let addr = listener.local_addr().map_err(wrong)?;
    tracing::info!(%addr, "serving /metrics, /livez and /readyz");
    Ok(listener)
}

/// Serves until `stop`.
pub async fn run(listener: TcpListener, health: Arc<Health>, metrics: Metrics, stop: CancellationToken) {
    let app = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/livez", get(show_liveness))
        .route("/healthz", get(show_liveness))
        .route("/readyz", get(show_readiness))
        .with_state(Admin { health, metrics });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let next = async || (Arc::clone(&places).acquire_owned().await, accept(&listener).await);
    while let Some((place, stream)) = stop.run_until_cancelled(next()).await {
        let (app, stop) = (app.clone(), stop.clone());
        connections.spawn(async move {
            // One that lasts longer is cut.
            let _ = tokio::time::timeout(CONNECTION, answer(stream, app, stop)).await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
    let answers = async { while connections.join_next().await.is_some() {} };
    // Connections that have not sent a whole request by then are closed.
    let _ = tokio::time::timeout(LAST_ANSWERS, answers).await;
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics or health could not be accepted");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Serves one connection; after `stop` no longer than the request that is under way.
async fn answer(stream: TcpStream, app: Router, stop: CancellationToken) {
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection for metrics or health broke");
    }
}

#[derive(Clone)]
struct Admin {
    health: Arc<Health>,
    metrics: Metrics,
}

async fn show_metrics(State(admin): State<Admin>) -> Response {
    match admin.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn show_liveness(State(admin): State<Admin>, query: RawQuery) -> Response {
    show(&admin.health.liveness(), "livez", &query)
}

async fn show_readiness(State(admin): State<Admin>, query: RawQuery) -> Response {
    show(&admin.health.readiness(), "readyz", &query)
}

/// A failure is always told in full; success only to those who ask with `?verbose`.
fn show(report: &Report, name: &str, RawQuery(query): &RawQuery) -> Response {
    if !report.holds() {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{report}{name} check failed\n"),
        )
            .into_response();
    }
    let asks_for_more = query
        .as_deref()
        .unwrap_or_default()
        .split('&')
        .any(|word| word.starts_with("verbose"));
    if asks_for_more {
        format!("{report}{name} check passed\n").into_response()
    } else {
        "ok".into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(addr: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readiness_fails_and_heals_with_its_checks_while_liveness_stays() {
        let synced = Arc::new(AtomicBool::new(false));
        let mut health = Health::default();
        let fact = synced.clone();
        let check = move || {
            if fact.load(Ordering::SeqCst) {
                Ok(())
            } else {
                Err("still listing".to_owned())
            }
        };
        health.ready("watch machines", check);
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        metrics.leader(true);

        let server = run(listener, Arc::new(health), metrics, stop.clone());
        let asking = async {
            let answer = ask(addr, "/readyz").await;
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            assert!(answer.contains("[-]watch machines failed: still listing"), "{answer}");
            assert!(ask(addr, "/livez").await.starts_with("HTTP/1.1 200"));

            synced.store(true, Ordering::SeqCst);
            assert!(ask(addr, "/readyz").await.ends_with("\r\n\r\nok"));
            assert!(ask(addr, "/readyz?verbose").await.contains("[+]watch machines ok"));
            assert!(ask(addr, "/metrics").await.contains("millwright_leader 1"));
            stop.cancel();
        };
        tokio::join!(server, asking);
    }

    /// A port with a connection that has sent half a request.
    async fn half_asked() -> (TcpListener, TcpStream) {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let mut half = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        half.write_all(b"GET /metrics HTTP/1.1\r\nHost:").await.unwrap();
        (listener, half)
    }

    /// Rows: O8.
    #[tokio::test]
    async fn half_a_request_holds_up_neither_others_nor_the_end() {
        let (listener, half) = half_asked().await;
        let (addr, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let server = run(listener, Arc::default(), Metrics::default(), stop.clone());
        let asking = async {
            assert!(ask(addr, "/livez").await.starts_with("HTTP/1.1 200"));
            stop.cancel();
            half
        };
        let both = async { tokio::join!(server, asking) };
        let ended = tokio::time::timeout(LAST_ANSWERS + Duration::from_secs(5), both).await;
        assert!(ended.is_ok(), "the end waits for half a request");
    }

    /// Rows: O8.
    #[tokio::test(start_paused = true)]
    async fn whoever_sends_no_head_in_time_is_hung_up_on() {
        let (listener, mut half) = half_asked().await;
        let (stop, begun) = (CancellationToken::new(), tokio::time::Instant::now());
        let server = run(listener, Arc::default(), Metrics::default(), stop.clone());
        let asking = async {
            let mut answer = Vec::new();
            half.read_to_end(&mut answer).await.unwrap();
            stop.cancel();
        };
        tokio::join!(server, asking);
        assert!(begun.elapsed() < CONNECTION, "it was cut by its age");
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = taken.local_addr().unwrap();
        let error = bind(addr).await.unwrap_err().to_string();
        assert!(error.contains(&addr.to_string()), "{error}");
    }
}
