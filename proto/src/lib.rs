//! The wire contract between the Millwright manager and a provider's driver.
//!
//! `machine/driver/v1/driver.proto` is the contract and `SPEC.md` beside it its clauses; this crate only compiles it, and makes the tags
//! that both ends must spell alike. What the manager decides is in `millwright-core`.

#![warn(missing_docs)]

mod identity;
mod redact;

pub use identity::{DIGEST_TAG, identity_tags, is_same_name};

/// Generated from `machine/driver/v1/driver.proto`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_types
)]
pub mod v1 {
    tonic::include_proto!("machine.driver.v1");
}

/// The encoded `FileDescriptorSet` of the contract with its imports and comments, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/driver.bin"));

/// `domain` of the `google.rpc.ErrorInfo` that every error of a driver carries.
pub const ERROR_DOMAIN: &str = "machine.driver.v1";

/// Full name of the service, as health checks and reflection spell it.
pub const SERVICE_NAME: &str = "machine.driver.v1.DriverService";

/// Metadata key of the leader's epoch (`SPEC.md`, GEN-33): a decimal number that grows with every new leader.
pub const LEADER_EPOCH_KEY: &str = "machine-leader-epoch";
