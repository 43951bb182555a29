//! Observe and execute, one file per kind. Nothing here decides: plans come from `millwright-core`.

pub mod additions;
mod children;
pub mod class;
pub mod deployment;
pub mod dispatch;
pub mod leftover;
pub mod machine;
mod node;
mod notices;
pub mod orphans;
pub mod pass;
mod pods;
#[cfg(test)]
mod scripted;
pub mod set;
pub mod shared;
pub mod step;
pub mod token;
mod view;
pub mod vm;
