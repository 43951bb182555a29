//! Rollouts as people follow and order them: how one stands, which revisions there are, and what an order comes to.
//!
//! Judges only by what is stored in a deployment and its sets, as anybody can read them. It moves nothing: what an order leads to is for
//! `deployment` to plan.

pub mod order;
pub mod standing;

pub use crate::deployment::history::{Revision, Revisions};
pub use order::{Order, Refusal};
pub use standing::{Fault, Standing, Unsteady};
