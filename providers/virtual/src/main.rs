//! The virtual provider's binary: flags, then [`run`].

use clap::{Args as _, Command, FromArgMatches as _, Subcommand as _};
use millwright_provider_virtual::{RunArgs, Tool, carry_out, run, runtime};

fn main() -> anyhow::Result<()> {
    let command = Command::new("millwright-provider-virtual")
        .about("A simulated cloud and its driver")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true);
    let matches = Tool::augment_subcommands(RunArgs::augment_args(command))
        .subcommand_required(false)
        .get_matches();
    let runtime = runtime()?;
    if matches.subcommand_name().is_some() {
        let printed = runtime.block_on(carry_out(Tool::from_arg_matches(&matches)?))?;
        print!("{printed}");
        return Ok(());
    }
    Ok(runtime.block_on(run(RunArgs::from_arg_matches(&matches)?))?)
}
