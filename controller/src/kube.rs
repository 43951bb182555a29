//! Everything that speaks to an API server. Decides nothing about Machines.

pub mod access;
pub mod bare;
pub mod budget;
pub mod call;
pub mod client;
pub mod credentials;
pub mod definitions;
pub mod error;
pub mod events;
pub mod leadership;
pub mod lease;
pub mod outage;
mod plugin;
pub mod pods;
pub mod predecessor;
pub mod readable;
mod retry_after;
pub mod trouble;
pub mod watch;
pub mod write;
