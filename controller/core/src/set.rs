//! One MachineSet: as many Machines as it wants, no more, and a status that says how it stands.

pub mod bring;
pub mod claim;
pub mod names;
pub mod observed;
pub mod plan;
pub mod rank;
pub mod status;

pub use observed::{Observed, Plan, Step, Why};
pub use plan::plan;
