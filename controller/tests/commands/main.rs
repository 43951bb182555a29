//! The commands for people, as they are typed: the binary against the API in memory, with what it prints and its exit codes. The
//! controller's part, which is the status, is played by the tests.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test says by its panic what went wrong"
)]

mod bad_input;
mod cluster;
mod history;
mod orders;
mod proxies;
mod relay;
mod status;
mod tree;
mod why;
