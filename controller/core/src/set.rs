//! One MachineSet: as many Machines as it wants, no more, and a status that says how it stands.

pub mod bring;
pub mod claim;
pub mod facts;
pub mod freeze;
pub mod growth;
pub mod keep;
pub mod made;
pub mod names;
pub mod observed;
pub mod plan;
pub mod rank;
pub mod repair;
pub mod status;
pub mod view;

pub use bring::Brought;
pub use made::NewMachine;
pub use observed::{Allowance, MachineView, Observed, Plan, Step, Victim, Why};
pub use plan::plan;
pub use status::StatusChange;
pub use view::{Asked, look};
