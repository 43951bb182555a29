//! A simulated cloud and its driver.

mod agenda;
mod clock;
pub mod cloud;
pub mod driver;
mod fault;
mod labels;
mod size;
mod spec;
