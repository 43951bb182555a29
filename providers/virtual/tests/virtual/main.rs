//! The virtual provider: its simulated cloud alone, and its driver over a socket in a process of its own.

mod cloud;
mod driver;
mod older;
mod place;
mod process;
