//! One MachineDeployment with its sets and their Machines: one plan from one snapshot.
//!
//! Read `group` (the terms), `members` (what they are taken from), `budget` (the rules), `plan` (what comes first, and what follows) in
//! this order.

mod blocker;
pub mod budget;
pub mod change;
mod facts;
pub mod freeze;
pub mod group;
pub mod history;
pub mod in_place;
pub mod label;
pub mod members;
pub mod named;
pub mod names;
pub mod observed;
pub mod pass_on;
pub mod plan;
pub mod progress;
pub mod rollback;
pub mod status;
pub mod view;

pub use observed::{Observed, Plan, Step, Why};
pub use plan::plan;
pub use status::StatusChange;
pub use view::look;
