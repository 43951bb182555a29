//! A simulated cloud and its driver: the reference implementation of the Driver API, and the test double of everything
//! that needs machines.
//!
//! | module | decides |
//! |---|---|
//! | [`cloud`] | what a cloud does: VMs, tokens, lag, durability, the journal. Knows no gRPC and no Kubernetes |
//! | [`driver`] | what the contract makes of it |
//! | `spec`, `fault`, `size` | what a class may say |
//! | `kubelet` | what a VM does on the target cluster |
//! | [`console`] | what people and tests see and do behind the driver's back |
//! | [`cli`], `run`, `args`, `tool` | the process |

mod agenda;
mod args;
pub mod cli;
pub mod clock;
pub mod cloud;
pub mod console;
pub mod driver;
mod fault;
mod kubelet;
mod labels;
mod run;
mod size;
mod spec;
mod tool;

pub use self::{
    args::RunArgs,
    kubelet::KubeconfigError,
    run::{RunError, run, runtime},
    tool::{Action, Output, Tool, carry_out},
};
