//! The simulator's tests, in one binary. What is sampled here is run whole by `sim campaign --whole` and by the tests that are ignored
//! unless they are asked for.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

mod faults;
mod judge;
mod regressions;
mod runs;
mod tapes;
mod wire;
mod zoo;
