//! The command line of the simulator. Decides only what is run.

mod bugs;
mod many;
mod report;
mod single;
mod whole;

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};
use millwright_sim::fault;
use millwright_sim::provider::Transport;
use millwright_sim::run::{Faults, Plan};
use millwright_sim::workload;

/// A run is made of many small JSON trees; a third of its time went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(
    name = "sim",
    about = "Simulates Millwright under virtual time with faults",
    max_term_width = 120
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a range of seeds
    Run(many::Range),
    /// What CI runs: each fault at each call, seeds, any start state, gRPC, and the same seeds in two processes; a sample, or all of it
    /// by --whole. The first seed is MILLWRIGHT_SEED, else made of the commit; it is printed, and --from runs it again
    Campaign(whole::Campaign),
    /// Each kind of fault at each call of a workload
    Exhaust(many::Exhaust),
    /// Tell the story of one run
    Replay(single::Replay),
    /// Make a failing run small and print its tape
    Shrink(single::Shrink),
    /// Name all faults
    Faults,
    /// Hunt the bugs of the zoo and write their table, or their tapes
    Zoo(bugs::Zoo),
}

#[derive(Args)]
struct What {
    /// The workload; by choice where none is named
    #[arg(long)]
    workload: Option<String>,
    /// `swarm` (about four by choice, as where nothing is named), `none`, or names as F9,F16x3
    #[arg(long)]
    faults: Option<String>,
    /// A bug of the zoo, with its workload and faults where none are named
    #[arg(long)]
    mutant: Option<String>,
    /// What carries calls to the driver
    #[arg(long, value_enum, default_value = "in-process")]
    transport: Way,
    /// Two managers side by side; without it by choice
    #[arg(long)]
    pair: bool,
    /// Without a time of rest at the end
    #[arg(long)]
    no_rest: bool,
    /// Threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Way {
    /// A call of a function
    InProcess,
    /// gRPC over pipes in memory
    Grpc,
}

impl From<Way> for Transport {
    fn from(way: Way) -> Self {
        match way {
            Way::InProcess => Self::InProcess,
            Way::Grpc => Self::Grpc,
        }
    }
}

impl What {
    fn plan(&self) -> anyhow::Result<Plan> {
        if let Some(name) = &self.workload
            && workload::actions(name).is_none()
        {
            bail!(
                "{name} is no workload; there are {}, {}",
                workload::ALL.join(", "),
                workload::ANY
            );
        }
        let mut plan = match &self.mutant {
            Some(name) => bugs::mutant(name)?.plan(),
            None => Plan::default(),
        };
        match self.faults.as_deref() {
            None => {}
            Some("swarm") => plan.faults = Faults::Swarm,
            Some("none") => plan.faults = Faults::None,
            Some(names) => {
                let names: Vec<String> = names.split(',').map(str::to_owned).collect();
                fault::Enabled::these(&names).map_err(anyhow::Error::msg)?;
                plan.faults = Faults::These(names);
            }
        }
        plan.workload = self.workload.clone().or(plan.workload);
        plan.transport = self.transport.into();
        plan.is_pair |= self.pair;
        plan.rests &= !self.no_rest;
        Ok(plan)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Run(range) => range.run(),
        Command::Campaign(campaign) => campaign.run(),
        Command::Exhaust(exhaust) => exhaust.run(),
        Command::Replay(replay) => replay.run(),
        Command::Shrink(shrink) => shrink.run(),
        Command::Faults => Ok(report::faults()),
        Command::Zoo(zoo) => zoo.run(),
    }
}
