//! Everything in Millwright that decides, in the order in which a change travels. `README.md` beside `src` numbers its rules.
//!
//! Pure: no async, no clock, no randomness, no network. The walls are kept by `tests/tests/walls.rs`.

pub mod api;

pub mod change;
pub mod circuit_breaker;
pub mod class;
pub mod deployment;
pub mod drain;
pub mod driver;
pub mod explain;
pub mod fence;
pub mod ids;
mod intake;
pub mod kin;
pub mod kinds;
pub mod laws;
pub mod lease;
pub mod ledger;
pub mod machine;
pub mod merge;
pub mod narrate;
pub mod notice;
pub mod orphans;
pub mod owner;
pub mod permit;
pub mod plan;
pub mod provider_spec;
pub mod queue;
pub mod refusal;
pub mod replacement_limit;
pub mod rollout;
pub mod selector;
pub mod set;
pub mod settings;
pub mod sight;
pub mod status;
pub mod store;
pub mod user_data;
pub mod wake;
pub mod world;
