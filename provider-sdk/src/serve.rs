//! The process around a driver: takes the endpoint, serves, and ends well.
//!
//! Order of the end: health says NOT_SERVING, watches end, no connection is accepted any more, calls and the work that
//! outlived its calls are waited for up to `drain_timeout`, the socket is removed.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use millwright_proto::v1::driver_service_server::{DriverService, DriverServiceServer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::transport::server::Connected;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::driver::Driver;
use crate::endpoint::Endpoint;
use crate::health::Health;
use crate::http;
use crate::metrics::Metrics;
use crate::peer::Peers;
use crate::service::Service;
use crate::socket::{self, Claim, SocketError};
use crate::telemetry::{self, LogFormat, TelemetryError};
use crate::tls::{self, Tls, TlsError, TlsFiles};

/// The contract's limit for a message.
const MESSAGE_MAX: usize = 4 * 1024 * 1024;
/// How long idle connections have for their goodbye once all work is done. An open health watch never says one.
const GOODBYE: Duration = Duration::from_secs(1);
/// The contract's limit for a driver's name.
const DRIVER_NAME_MAX: usize = 63;
/// Longer than any copy of a disk that a creation waits for.
pub(crate) const WORK_TIMEOUT: Duration = Duration::from_secs(3600);
/// The names under which health is told.
const HEALTH_NAMES: [&str; 2] = ["", millwright_proto::SERVICE_NAME];

/// How to serve.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Where to listen.
    pub endpoint: Endpoint,
    /// Where to serve `/metrics` and `/healthz` over HTTP, if at all.
    pub metrics_addr: Option<SocketAddr>,
    /// How long calls in flight may take once the server stops.
    pub drain_timeout: Duration,
    /// Users that may connect to the socket besides the driver's own and root.
    pub allowed_uids: Vec<u32>,
    /// The greatest age of a `create_machine`, `initialize_machine` or `delete_machine`. One that is older is dropped, and its Machine is free for
    /// other calls.
    pub work_timeout: Duration,
    /// By what the driver says whether it can work.
    pub health: Health,
    /// The certificates of an endpoint with TLS.
    pub tls: Option<TlsFiles>,
}

impl ServeOptions {
    /// The defaults, at this endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        // 25 s fit into the 30 s that Kubernetes gives a Pod to end.
        Self {
            endpoint,
            metrics_addr: None,
            drain_timeout: Duration::from_secs(25),
            allowed_uids: Vec::new(),
            work_timeout: WORK_TIMEOUT,
            health: Health::default(),
            tls: None,
        }
    }
}

/// Why a server did not start or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// `Driver::info` breaks the contract.
    #[error("the driver's name {0:?} is no DNS label or domain of 1 to 63 bytes (letters, digits, '-' and '.')")]
    DriverName(String),
    /// `Driver::info` breaks the contract.
    #[error("the driver tells no vendor_version")]
    VendorVersion,
    /// The socket cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A TCP address cannot be had.
    #[error("cannot listen at {address}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What came back.
        source: io::Error,
    },
    /// An address that others could reach.
    #[error("{0} is not a loopback address: elsewhere serve with TLS, at https://{0}")]
    NotLoopback(SocketAddr),
    /// An endpoint with TLS, and no certificates.
    #[error("https:// needs a certificate, its key and the CA of the callers (--tls-cert, --tls-key, --tls-client-ca)")]
    NoTlsFiles,
    /// The certificates are of no use.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The log could not be started.
    #[error(transparent)]
    Log(#[from] TelemetryError),
    /// SIGTERM or SIGINT came a second time.
    #[error("stopped at once by a second signal; calls and work in flight were cut off")]
    CutOff,
    /// The descriptors that the crate was built with are broken.
    #[error("cannot set up gRPC reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The process cannot have signal handlers.
    #[error("cannot wait for SIGTERM and SIGINT")]
    Signals(#[source] io::Error),
    /// The gRPC server failed while serving.
    #[error("the gRPC server failed")]
    Grpc(#[source] tonic::transport::Error),
    /// The HTTP server failed while serving.
    #[error("the metrics server failed")]
    Http(#[source] io::Error),
    /// The end came before all work was done.
    #[error("{left} calls or pieces of work were not done after {}s", after.as_secs_f32())]
    DrainTimedOut {
        /// How many.
        left: usize,
        /// `drain_timeout`.
        after: Duration,
    },
}

/// Serves the driver until SIGTERM or SIGINT, then drains; a second signal ends it at once. A process that has no log yet gets that of
/// [`telemetry::init`]: lines on stderr, `info` and above without `RUST_LOG`.
///
/// # Errors
/// If the endpoint cannot be taken, or what is in flight does not end in time.
pub async fn serve<D: Driver>(driver: D, options: ServeOptions) -> Result<(), ServeError> {
    match telemetry::init(LogFormat::default()) {
        // The process has chosen its log itself.
        Ok(()) | Err(TelemetryError::AlreadySet) => {}
        #[cfg(feature = "otlp")]
        Err(error) => return Err(error.into()),
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let server = Server::bind(driver, options).await?;
    let stop = CancellationToken::new();
    let signals = async {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
                _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            }
            stop.cancel();
        }
    };
    tokio::select! {
        served = server.run_until(stop.cancelled()) => served,
        () = signals => Err(ServeError::CutOff),
    }
}

/// A driver that listens already and is not served yet. [`serve`] is all that a provider's `main` needs; this is for
/// tests and for embedding.
pub struct Server {
    listener: Listener,
    metrics_listener: Option<TcpListener>,
    endpoint: Endpoint,
    metrics_addr: Option<SocketAddr>,
    routes: Routes,
    health: HealthReporter,
    metrics: Metrics,
    tasks: TaskTracker,
    stopping: CancellationToken,
    drain_timeout: Duration,
    own_health: Health,
}

/// The driver's calls as a service without a socket, for simulations: what callers over gRPC meet (admission, fence,
/// validation, flights, statuses), but neither HTTP/2 nor deadlines.
pub fn in_process<D: Driver>(driver: D) -> Result<DriverServiceServer<impl DriverService>, ServeError> {
    check_info(&driver)?;
    let service = Service::new(
        driver,
        Peers::new(&[]),
        Metrics::new(),
        TaskTracker::new(),
        CancellationToken::new(),
        WORK_TIMEOUT,
    );
    Ok(DriverServiceServer::new(service).max_decoding_message_size(MESSAGE_MAX))
}

enum Listener {
    Unix(tokio::net::UnixListener, Claim),
    Tcp(TcpListener),
    Tls(TcpListener, Tls),
}

impl Server {
    /// Takes the endpoint. From here on callers can connect; they are answered once the server runs.
    ///
    /// # Errors
    /// If the endpoint cannot be taken, or `Driver::info` breaks the contract.
    pub async fn bind<D: Driver>(driver: D, options: ServeOptions) -> Result<Self, ServeError> {
        check_info(&driver)?;
        let (metrics, tasks, stopping) = (Metrics::new(), TaskTracker::new(), CancellationToken::new());
        let (health, routes) = {
            let peers = Peers::new(&options.allowed_uids);
            let (metrics, tasks, stopping) = (metrics.clone(), tasks.clone(), stopping.clone());
            let service = Service::new(driver, peers, metrics, tasks, stopping, options.work_timeout);
            routes(DriverServiceServer::new(service).max_decoding_message_size(MESSAGE_MAX))?
        };
        let (metrics_listener, metrics_addr) = match options.metrics_addr {
            Some(address) => {
                let (listener, real) = bind_tcp(address).await?;
                (Some(listener), Some(real))
            }
            None => (None, None),
        };
        let (listener, endpoint) = listen(options.endpoint, options.tls).await?;
        let (drain_timeout, own_health) = (options.drain_timeout, options.health);
        Ok(Self {
            listener,
            metrics_listener,
            endpoint,
            metrics_addr,
            routes,
            health,
            metrics,
            tasks,
            stopping,
            drain_timeout,
            own_health,
        })
    }

    /// Where the driver is reached, with the real port if 0 was asked for.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Where the metrics are, with the real port.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_addr
    }

    /// Serves until `stop` is done, then drains.
    ///
    /// # Errors
    /// If serving fails, or what is in flight does not end in time.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        // Whatever ends this ends what was started for it.
        let _end = self.stopping.clone().drop_guard();
        let telling = tell_health(self.health.clone(), self.own_health.clone(), self.stopping.clone()).await;
        tracing::info!(endpoint = %self.endpoint, metrics = self.metrics_addr.map(tracing::field::display), "serving");
        let mut servers = JoinSet::new();
        if let Some(listener) = self.metrics_listener {
            servers.spawn(serve_http(
                listener,
                self.metrics,
                self.own_health,
                self.stopping.clone(),
            ));
        }
        // The claim keeps the socket's path until the last answer is out.
        let _claim = match self.listener {
            Listener::Unix(listener, claim) => {
                let incoming = UnixListenerStream::new(listener);
                servers.spawn(serve_grpc(incoming, self.routes, self.stopping.clone()));
                Some(claim)
            }
            Listener::Tcp(listener) => {
                let incoming = TcpListenerStream::new(listener);
                servers.spawn(serve_grpc(incoming, self.routes, self.stopping.clone()));
                None
            }
            Listener::Tls(listener, tls) => {
                let incoming = tls::incoming(listener, Arc::new(tls), self.stopping.clone());
                servers.spawn(serve_grpc(incoming, self.routes, self.stopping.clone()));
                None
            }
        };
        tokio::select! {
            () = stop => {}
            ended = servers.join_next() => return ended.map_or(Ok(()), outcome),
        }

        self.stopping.cancel();
        // From here on nobody else says anything of health.
        telling.await.ok();
        say_health(&self.health, false).await;
        self.tasks.close();
        let drained = tokio::time::timeout(self.drain_timeout, self.tasks.wait()).await;
        if drained.is_err() {
            return Err(ServeError::DrainTimedOut {
                left: self.tasks.len(),
                after: self.drain_timeout,
            });
        }
        let goodbye = async {
            while let Some(ended) = servers.join_next().await {
                outcome(ended)?;
            }
            Ok::<(), ServeError>(())
        };
        // Over time only for connections on which nothing is in flight: nothing is lost with them.
        tokio::time::timeout(GOODBYE, goodbye).await.unwrap_or(Ok(()))?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Tells callers what the driver says of its health, now and until the process stops.
async fn tell_health(reporter: HealthReporter, own: Health, stopping: CancellationToken) -> JoinHandle<()> {
    let mut said = own.follow();
    let is_serving = *said.borrow_and_update();
    say_health(&reporter, is_serving).await;
    tokio::spawn(async move {
        let follow = async {
            // Ends with the last handle, and this task holds one.
            let _own = own;
            while said.changed().await.is_ok() {
                let is_serving = *said.borrow_and_update();
                say_health(&reporter, is_serving).await;
            }
        };
        stopping.run_until_cancelled(follow).await;
    })
}

async fn say_health(reporter: &HealthReporter, is_serving: bool) {
    let status = match is_serving {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    };
    for name in HEALTH_NAMES {
        reporter.set_service_status(name, status).await;
    }
}

fn outcome(ended: Result<Result<(), ServeError>, JoinError>) -> Result<(), ServeError> {
    match ended {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only dropping the set aborts a server, and then nobody is left to ask.
            Err(_) => Ok(()),
        },
    }
}

/// The driver with the standard services beside it.
fn routes<D: Driver>(driver: DriverServiceServer<Service<D>>) -> Result<(HealthReporter, Routes), ServeError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    // With google.rpc among them a client like grpcurl prints error details in full.
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(millwright_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let routes = Routes::new(driver)
        .add_service(health)
        .add_service(reflection().build_v1().map_err(ServeError::Reflection)?)
        .add_service(reflection().build_v1alpha().map_err(ServeError::Reflection)?);
    Ok((reporter, routes))
}

async fn listen(endpoint: Endpoint, files: Option<TlsFiles>) -> Result<(Listener, Endpoint), ServeError> {
    match endpoint {
        Endpoint::Unix(path) => {
            let (listener, claim) = socket::listen(&path).await?;
            Ok((Listener::Unix(listener, claim), Endpoint::Unix(path)))
        }
        // The type can be built past its parser, so the rule is checked here, too.
        Endpoint::Tcp(address) if !address.ip().is_loopback() => Err(ServeError::NotLoopback(address)),
        Endpoint::Tcp(address) => {
            let (listener, real) = bind_tcp(address).await?;
            Ok((Listener::Tcp(listener), Endpoint::Tcp(real)))
        }
        Endpoint::Tls(address) => {
            let tls = Tls::read(files.ok_or(ServeError::NoTlsFiles)?)?;
            let (listener, real) = bind_tcp(address).await?;
            Ok((Listener::Tls(listener, tls), Endpoint::Tls(real)))
        }
    }
}

/// The listener, and its address with the real port.
async fn bind_tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Tcp { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let real = listener.local_addr().map_err(failed)?;
    Ok((listener, real))
}

async fn serve_grpc<I, S>(incoming: I, routes: Routes, stopping: CancellationToken) -> Result<(), ServeError>
where
    I: Stream<Item = io::Result<S>>,
    S: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    tonic::transport::Server::builder()
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, stopping.cancelled_owned())
        .await
        .map_err(ServeError::Grpc)
}

async fn serve_http(
    listener: TcpListener,
    metrics: Metrics,
    health: Health,
    stopping: CancellationToken,
) -> Result<(), ServeError> {
    axum::serve(listener, http::router(metrics, health, stopping.clone()))
        .with_graceful_shutdown(stopping.cancelled_owned())
        .await
        .map_err(ServeError::Http)
}

fn check_info(driver: &impl Driver) -> Result<(), ServeError> {
    let info = driver.info();
    // Upper case, too: classes that exist may spell it so (INF-2).
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(legal) && !label.starts_with('-') && !label.ends_with('-');
    if info.name.len() > DRIVER_NAME_MAX || !info.name.split('.').all(label) {
        return Err(ServeError::DriverName(info.name));
    }
    if info.vendor_version.is_empty() {
        return Err(ServeError::VendorVersion);
    }
    Ok(())
}
