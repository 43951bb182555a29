//! The virtual provider's binary: flags, then [`run`].

use std::process::ExitCode;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, Subcommand as _};
use millwright_provider_virtual::{RunArgs, Tool, carry_out, run, runtime};

fn main() -> ExitCode {
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
