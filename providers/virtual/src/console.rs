//! The cloud's console: a small gRPC service on a socket of its own, a client for it, and what both show.
//!
//! For people and tests. It sees past every lag and every cluster's border, which a driver must not; hence it is no
//! part of the Driver API and shares no socket with it.

mod client;
mod server;
mod view;

pub(crate) use self::server::serve;
pub use self::{
    client::{Console, ConsoleError},
    server::ConsoleServeError,
    view::{Listing, VmView, listing},
};

/// Generated from `millwright/cloud/v1/console.proto`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing
)]
mod v1 {
    tonic::include_proto!("millwright.cloud.v1");
}
