//! Everything that speaks to an API server. Decides nothing about Machines.

pub mod bare;
pub mod budget;
pub mod call;
pub mod client;
pub mod error;
pub mod events;
pub mod leadership;
pub mod lease;
pub mod pods;
pub mod predecessor;
pub mod readable;
pub mod trouble;
pub mod watch;
pub mod write;
