//! The Millwright controller manager: everything that acts. What it does is decided in `millwright-core`.
//!
//! Public only for the binary and the tests.

pub mod admin;
pub mod cli;
pub mod command;
pub mod config;
pub mod crash;
pub mod driver;
pub mod env;
pub mod health;
pub mod kube;
pub mod run;
pub mod telemetry;
pub mod work;
