//! The command line of the simulator. Decides only what is run.

mod bugs;
mod report;
mod single;
mod whole;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use millwright_sim::campaign::{self, Job, Sum};
use millwright_sim::fault;
use millwright_sim::provider::Transport;
use millwright_sim::run::{Faults, Plan};
use millwright_sim::workload;
use report::{print_coverage, progress, tell};

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
    Run {
        /// FROM..TO, without TO
        #[arg(long, default_value = "0..200")]
        seeds: String,
        /// Run each twice and compare
        #[arg(long)]
        twice: bool,
        /// Print the digest of each run, to compare processes
        #[arg(long)]
        digests: bool,
        /// Print how often each point of choice was reached
        #[arg(long)]
        coverage: bool,
        #[command(flatten)]
        what: What,
    },
    /// All that CI runs: each fault at each call, seeds, any start state, gRPC, and the same seeds in two processes
    Campaign {
        /// Seeds with faults by choice
        #[arg(long, default_value_t = 5000)]
        seeds: u64,
        /// The first seed; each range explores anew
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Seeds that begin in any state that the API admits
        #[arg(long, default_value_t = 1000)]
        any: u64,
        /// Seeds whose driver is reached by gRPC over pipes
        #[arg(long, default_value_t = 300)]
        grpc: u64,
        /// Seeds that are run in two fresh processes, to compare
        #[arg(long, default_value_t = 200)]
        twice: u64,
        /// Threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
    },
    /// Each kind of fault at each call of a workload
    Exhaust {
        #[command(flatten)]
        what: What,
    },
    /// Tell the story of one run
    Replay {
        /// The seed
        #[arg(default_value_t = 0)]
        seed: u64,
        /// A file with a tape instead, which says all else, as `shrink --out` writes it
        #[arg(long, conflicts_with_all = ["seed", "strike", "workload", "faults", "mutant", "transport", "pair", "no_rest"])]
        tape: Option<PathBuf>,
        /// Without the bug that the tape names
        #[arg(long, requires = "tape")]
        mended: bool,
        /// One fault at one call, as printed by `exhaust`: NAME:BLOW@CALL
        #[arg(long)]
        strike: Option<String>,
        /// With the manager's log at this level, for example `millwright=debug`
        #[arg(long)]
        log: Option<String>,
        #[command(flatten)]
        what: What,
    },
    /// Make a failing run small and print its tape
    Shrink {
        /// The seed
        seed: u64,
        /// Most runs that are tried
        #[arg(long, default_value_t = 2000)]
        budget: usize,
        /// A file to write the tape to
        #[arg(long)]
        out: Option<PathBuf>,
        #[command(flatten)]
        what: What,
    },
    /// Name all faults
    Faults,
    /// Hunt the bugs of the zoo and write their table, or their tapes
    Zoo {
        /// One of them; no table is written then
        #[arg(long)]
        mutant: Option<String>,
        /// Starting points
        #[arg(long, default_value_t = 20)]
        starts: usize,
        /// Most seeds from each
        #[arg(long, default_value_t = 200)]
        most: u64,
        /// Write a small run of each to `tests/sim/tapes` instead
        #[arg(long)]
        tapes: bool,
        /// Most runs by which each tape is made small
        #[arg(long, default_value_t = 600, requires = "tapes")]
        budget: usize,
        /// Threads
        #[arg(long, default_value_t = 1)]
        threads: usize,
    },
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
            && workload::deeds(name).is_none()
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
        Command::Run {
            seeds,
            twice,
            digests,
            coverage,
            what,
        } => {
            let plan = what.plan()?;
            let (from, to) = seeds.split_once("..").context("--seeds wants FROM..TO")?;
            let jobs = campaign::seeds(&plan, from.parse()?, to.parse()?);
            let sum = campaign::all(&jobs, what.threads, &progress(jobs.len()));
            if digests {
                print_digests(&sum);
            }
            let is_same = !twice || is_same(&jobs, what.threads, &sum);
            if coverage {
                print_coverage(&sum);
            }
            Ok(tell(&sum, is_same))
        }
        Command::Campaign {
            seeds,
            from,
            any,
            grpc,
            twice,
            threads,
        } => {
            let of = |plan: Plan, count| campaign::seeds(&plan, from, from + count);
            let default = Plan::default;
            let (workload, transport) = (Some(workload::ANY.to_owned()), Transport::Grpc);
            let parts = [
                ("each fault at each call", campaign::exhaustive(&default())),
                ("faults by choice", of(default(), seeds)),
                ("any start", of(Plan { workload, ..default() }, any)),
                ("gRPC over pipes", of(Plan { transport, ..default() }, grpc)),
            ];
            whole::run(parts, (from, from + twice), threads)
        }
        Command::Exhaust { what } => exhaust(&what),
        Command::Replay {
            seed,
            tape,
            mended,
            strike,
            log,
            what,
        } => {
            if let Some(log) = log {
                single::show_log(log);
            }
            match tape {
                Some(path) => single::replay_tape(&path, !mended),
                None => single::replay(&what, seed, strike.as_deref()),
            }
        }
        Command::Shrink {
            seed,
            budget,
            out,
            what,
        } => single::make_small(&what, seed, budget, out.as_deref()),
        Command::Zoo {
            mutant,
            most,
            tapes: true,
            budget,
            threads,
            ..
        } => bugs::record(&bugs::mutants(mutant.as_deref())?, most, budget, threads),
        Command::Zoo {
            mutant,
            starts,
            most,
            threads,
            ..
        } => bugs::hunt(mutant.as_deref(), starts, most, threads),
        Command::Faults => Ok(name_faults()),
    }
}

fn name_faults() -> ExitCode {
    fault::ALL
        .iter()
        .for_each(|fault| println!("{:4} {}", fault.name, fault.what));
    ExitCode::SUCCESS
}

fn print_digests(sum: &Sum) {
    sum.digests
        .iter()
        .for_each(|(seed, digest)| println!("{seed} {digest:016x}"));
}

/// Each kind of fault at each call of a workload, or of all.
fn exhaust(what: &What) -> anyhow::Result<ExitCode> {
    let plan = what.plan()?;
    let jobs = match plan.workload {
        Some(_) => campaign::strikes(&plan, 0),
        None => campaign::exhaustive(&plan),
    };
    Ok(tell(&campaign::all(&jobs, what.threads, &progress(jobs.len())), true))
}

fn is_same(jobs: &[Job], threads: usize, first: &Sum) -> bool {
    let second = campaign::all(jobs, threads, &progress(jobs.len()));
    let differ: Vec<u64> = first
        .digests
        .iter()
        .filter(|(seed, digest)| second.digests.get(seed) != Some(digest))
        .map(|(seed, _)| *seed)
        .collect();
    println!(
        "run twice: {} of {} differ {differ:?}",
        differ.len(),
        first.digests.len()
    );
    differ.is_empty()
}
