//! Everything that speaks to drivers: where they listen, whether they are there, one function per call.
//!
//! Chooses nothing about machines: answers and failures leave here as values of `millwright_core::driver`, and what
//! they mean is decided there. No other part of the manager sees a wire type of the Driver API.

mod accounts;
mod answer;
mod bounded;
pub mod bounds;
mod call;
mod connection;
mod endpoint;
#[cfg(test)]
mod fuzz;
mod lanes;
mod lead;
mod lifeline;
mod mask;
mod notices;
mod pool;
mod roster;
mod secrets;
mod span;
mod status;
mod structs;
mod target;
mod throttle;
mod tls;

pub use answer::{Listed, Page, Told, ValidationReport, info_flaws, refusal};
pub use call::{CallObserver, CallRecord, Driver};
pub use connection::{ManagerIdentity, OnChange, Pauses};
pub use endpoint::{Connect, Endpoint, EndpointError, Endpoints, NamedEndpoint, Peers, Wire};
pub use lanes::{Deadlines, Method};
pub use lead::Lead;
pub use lifeline::Lifeline;
pub use notices::Notices;
pub use pool::{DriverState, Pool, PoolSettings};
pub use roster::{EndpointState, Health};
pub use secrets::{ClassSecrets, SecretData, SecretError, SecretStore};
pub use status::reason_name;
pub use target::{Creation, DriverClass, MachineKey, NodeMetadata, Scope, Target};
pub use tls::TlsFiles;
