//! Under construction.

pub mod driver;
pub mod kube;
pub mod telemetry;
