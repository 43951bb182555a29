//! The command line: serve, or one of the subcommands for people and scripts.
//!
//! In the library, so that the quick start can be the provider in a process of its own without a second binary.

use std::process::ExitCode;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, Subcommand as _};

use crate::{
    args::RunArgs,
    run::{run, runtime},
    tool::{Tool, carry_out},
};

/// The whole of the binary `millwright-provider-virtual`.
pub fn main() -> ExitCode {
    let command = Command::new("millwright-provider-virtual")
        .about("A simulated cloud and its driver")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true);
    let command = Tool::augment_subcommands(RunArgs::augment_args(command)).subcommand_required(false);
    match start(&command.get_matches()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(matches: &ArgMatches) -> anyhow::Result<()> {
    let runtime = runtime()?;
    if matches.subcommand_name().is_some() {
        print!("{}", runtime.block_on(carry_out(Tool::from_arg_matches(matches)?))?);
        return Ok(());
    }
    Ok(runtime.block_on(run(RunArgs::from_arg_matches(matches)?))?)
}
