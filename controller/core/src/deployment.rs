//! One MachineDeployment: its MachineSet, their size, and a status that says how it stands.
//!
//! A changed template is reported and left alone: rolling updates are not built yet.

pub mod change;
pub mod names;
pub mod observed;
pub mod plan;
pub mod status;

pub use observed::{Observed, Plan, Step, Why};
pub use plan::plan;
