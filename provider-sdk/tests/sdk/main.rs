//! A served driver seen from outside: over a real unix socket, by a plain tonic client.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends where it fails, helpers too"
)]

mod process;
mod server;
mod support;
mod tls;
mod work;
