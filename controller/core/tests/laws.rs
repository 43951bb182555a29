//! Laws that hold for whatever is observed: plans break none of `millwright-laws`, come to rest, and ask no driver without end.
//!
//! What is observed is thrown with dice whose falls are proptest's, so that what fails is shrunk.

#![expect(clippy::indexing_slicing, reason = "a test that panics is a test that fails")]

#[path = "laws/classes.rs"]
mod classes;
#[path = "laws/deployments.rs"]
mod deployments;
#[path = "laws/dice.rs"]
mod dice;
#[path = "laws/drivers.rs"]
mod drivers;
#[path = "laws/fuzz.rs"]
mod fuzz;
#[path = "laws/leaving.rs"]
mod leaving;
#[path = "laws/machines.rs"]
mod machines;
#[path = "laws/pool.rs"]
mod pool;
#[path = "laws/sets.rs"]
mod sets;
