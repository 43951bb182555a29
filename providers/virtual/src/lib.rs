//! A simulated cloud and its driver.

mod agenda;
mod clock;
pub mod cloud;
