//! What people ask of a cluster with this binary: how a rollout stands, what it should do, the machines as a tree, and why an object
//! is as it is; and of a driver what one call says.
//!
//! Each command reads, lets core or a function without side effects decide and draw, and prints. Nothing here runs beside a manager or
//! needs one: it is for the user's computer, with the user's kubeconfig, also as a plugin of kubectl.

pub mod age;
pub mod driver;
pub mod failure;
pub mod flags;
pub mod history;
pub mod leader;
pub mod order;
pub mod output;
pub mod session;
pub mod status;
pub mod subject;
pub mod table;
pub mod tree;
pub mod why;

use std::process::ExitCode;

use failure::Failure;
use flags::{DriverFlags, DryRun, Order, Reach, RolloutCommand, RolloutFlags, Target, TreeFlags, WhyFlags};

/// Runs `rollout`.
pub fn rollout(flags: RolloutFlags, program: &str) -> ExitCode {
    finish(async {
        let reach = flags.reach;
        match flags.command {
            RolloutCommand::Status(flags) => status::run(&flags, &reach).await,
            RolloutCommand::History(flags) => history::run(&flags, &reach).await,
            RolloutCommand::Undo(flags) => {
                let (name, order) = (flags.target.name()?, Order::Undo(flags.to_revision));
                order::run(order, &name, flags.dry_run, &reach, program).await
            }
            RolloutCommand::Pause(flags) => given(Order::Pause, &flags, &reach, program).await,
            RolloutCommand::Resume(flags) => given(Order::Resume, &flags, &reach, program).await,
            RolloutCommand::Restart(flags) => given(Order::Restart, &flags, &reach, program).await,
        }
    })
}

async fn given(order: Order, target: &Target, reach: &Reach, program: &str) -> Result<(), Failure> {
    order::run(order, &target.name()?, DryRun::None, reach, program).await
}

/// Runs `tree`.
pub fn tree(flags: TreeFlags) -> ExitCode {
    finish(async { tree::run(&flags).await })
}

/// Runs `driver`.
pub fn driver(flags: DriverFlags) -> ExitCode {
    finish(async { driver::run(&flags).await })
}

/// Runs `why`.
pub fn why(flags: WhyFlags) -> ExitCode {
    finish(async { why::run(&flags).await })
}

fn finish(work: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.told(),
    }
}
