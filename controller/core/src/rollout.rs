//! Rollouts as people follow and order them: how one stands, which revisions there are, and what an order comes to.
//!
//! Judges only by what is stored in a deployment and its sets, as anybody can read them. It moves nothing: what an order leads to is for
//! `deployment` to plan.

pub mod order;
pub mod revisions;
pub mod standing;

pub use order::{Order, Refusal};
pub use revisions::{Revision, Revisions};
pub use standing::{Fault, Standing, Unsteady};
