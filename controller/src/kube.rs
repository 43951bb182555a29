//! Everything that speaks to an API server. Decides nothing about Machines.

pub mod bare;
pub mod budget;
pub mod call;
mod calm;
pub mod client;
pub mod credentials;
pub mod error;
pub mod events;
pub mod leadership;
pub mod lease;
mod plugin;
pub mod pods;
pub mod predecessor;
pub mod readable;
pub mod trouble;
pub mod watch;
pub mod write;
