//! The server around a driver. Under construction: the public face is here, the works follow.

use std::net::SocketAddr;
use std::time::Duration;

use crate::driver::Driver;
use crate::endpoint::Endpoint;

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
}

impl ServeOptions {
    /// The defaults, at this endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            metrics_addr: None,
            drain_timeout: Duration::from_secs(25),
            allowed_uids: Vec::new(),
        }
    }
}

/// Why a server did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Under construction.
    #[error("the server is not built yet")]
    NotBuilt,
}

/// Serves the driver until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// If the endpoint cannot be taken, or what is in flight does not end in time.
pub async fn serve<D: Driver>(driver: D, options: ServeOptions) -> Result<(), ServeError> {
    let _ = (driver, options);
    Err(ServeError::NotBuilt)
}
