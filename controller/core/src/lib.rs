//! Everything in Millwright that decides, in the order in which a change travels (`aesthetics.md` §3).
//!
//! Pure: no async, no clock, no randomness, no network. The walls are kept by `tests/tests/walls.rs`.

pub mod api;
pub mod change;
pub mod driver;
pub mod ids;
pub mod permit;
pub mod provider_spec;
pub mod user_data;
