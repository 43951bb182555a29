//! The command line of the simulator. Decides only what is run.

mod report;
mod whole;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use millwright_sim::campaign::{self, Job, Sum};
use millwright_sim::fault;
use millwright_sim::provider::Transport;
use millwright_sim::run::{Faults, Plan, by_names, by_seed};
use millwright_sim::shrink::shrink;
use millwright_sim::strike::{self, Strike};
use millwright_sim::tape::{self, Tape};
use millwright_sim::workload;
use millwright_sim::zoo::{self, Catch, Mutant};
use report::{print_coverage, progress, story, tell};

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
            Some(name) => mutant(name)?.plan(),
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
                show_log(log);
            }
            match tape {
                Some(path) => replay_tape(&path, !mended),
                None => replay(&what, seed, strike.as_deref()),
            }
        }
        Command::Shrink {
            seed,
            budget,
            out,
            what,
        } => make_small(&what, seed, budget, out.as_deref()),
        Command::Zoo {
            mutant,
            most,
            tapes: true,
            budget,
            threads,
            ..
        } => record(&mutants(mutant.as_deref())?, most, budget, threads),
        Command::Zoo {
            mutant,
            starts,
            most,
            threads,
            ..
        } => hunt(mutant.as_deref(), starts, most, threads),
        Command::Faults => Ok(name_faults()),
    }
}

/// Tells the story of one run.
fn replay(what: &What, seed: u64, strike: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut plan = Plan {
        is_told: true,
        ..what.plan()?
    };
    if let Some(strike) = strike {
        plan.faults = Faults::Strike(parse(strike)?);
    }
    Ok(story(&by_seed(&plan, seed)))
}

/// Tells the story of the run on a tape.
fn replay_tape(path: &Path, has_bug: bool) -> anyhow::Result<ExitCode> {
    let tape = Tape::load(path)?;
    let plan = Plan {
        is_told: true,
        ..tape.plan(has_bug)
    };
    let outcome = by_names(&plan, &tape.choices);
    let code = story(&outcome);
    let unmet = tape.unmet(&outcome);
    unmet.iter().for_each(|unmet| println!("{unmet}"));
    match unmet.is_empty() {
        true => Ok(code),
        false => bail!("{}: the run is not what it was; record it anew", path.display()),
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

/// Prints the manager's log at this level.
fn show_log(level: String) {
    tracing_subscriber::fmt()
        .with_env_filter(level)
        .without_time()
        .with_ansi(false)
        .init();
}

fn mutant(name: &str) -> anyhow::Result<Mutant> {
    zoo::named(name).with_context(|| {
        let names: Vec<&str> = zoo::all().iter().map(|mutant| mutant.name).collect();
        format!("{name} is no bug of the zoo; there are {}", names.join(", "))
    })
}

/// All bugs of the zoo, or one.
fn mutants(name: Option<&str>) -> anyhow::Result<Vec<Mutant>> {
    match name {
        Some(name) => Ok(vec![mutant(name)?]),
        None => Ok(zoo::all()),
    }
}

/// Writes a tape of each of these bugs.
fn record(mutants: &[Mutant], most: u64, budget: usize, threads: usize) -> anyhow::Result<ExitCode> {
    let failed = AtomicUsize::new(0);
    zoo::record(mutants, most, budget, threads, |mutant, tape| {
        let path = tape::path(mutant.name);
        let written = match &tape {
            Some(tape) => std::fs::write(&path, tape.to_string()).map_err(|error| error.to_string()),
            None => Err(format!("not caught by {most} seeds")),
        };
        match (tape, written) {
            (Some(tape), Ok(())) => println!("{:22} {:3} choices", mutant.name, tape.choices.len()),
            (_, written) => {
                failed.fetch_add(1, Ordering::Relaxed);
                println!("{:22} {}", mutant.name, written.err().unwrap_or_default());
            }
        }
    });
    Ok(match failed.into_inner() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Hunts all bugs and writes the table, or hunts one.
fn hunt(name: Option<&str>, starts: usize, most: u64, threads: usize) -> anyhow::Result<ExitCode> {
    let mutants = mutants(name)?;
    let tell = |mutant: &Mutant, caught: &Catch| {
        let median = caught.median().map_or_else(|| "-".to_owned(), |runs| runs.to_string());
        println!(
            "{:22} {:4} median {median:>4}, caught from {} of {starts}, {} runs",
            mutant.name,
            mutant.property,
            caught.caught(),
            caught.total(most)
        );
    };
    let caught = zoo::hunt(&mutants, starts, most, threads, tell);
    if name.is_none() {
        let page = zoo::table::page(&mutants, &caught, most);
        std::fs::write(zoo::table::PATH, page).context(zoo::table::PATH)?;
        println!("written: {}", zoo::table::PATH);
    }
    Ok(match caught.iter().all(|caught| caught.caught() == starts) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
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

fn make_small(what: &What, seed: u64, budget: usize, out: Option<&Path>) -> anyhow::Result<ExitCode> {
    let plan = what.plan()?;
    let failed = by_seed(&plan, seed);
    let Some(smallest) = shrink(&plan, &failed.wild, budget) else {
        println!("seed {seed} breaks nothing");
        return Ok(ExitCode::SUCCESS);
    };
    let tape = Tape {
        bug: what.mutant.clone(),
        ..Tape::of(&plan, &smallest).context("a strike has no tape; its own words have it again")?
    };
    let told = Plan {
        is_told: true,
        ..tape.plan(true)
    };
    let again = by_names(&told, &tape.choices);
    let code = story(&again);
    if again.digest != smallest.digest {
        bail!("the tape does not have the run again: a point of choice is missing on it");
    }
    match out {
        Some(path) => {
            std::fs::write(path, tape.to_string()).with_context(|| path.display().to_string())?;
            println!(
                "written: {}; its first line is to tell in words what it was",
                path.display()
            );
        }
        None => print!("--- the tape\n{tape}"),
    }
    Ok(code)
}

fn parse(text: &str) -> anyhow::Result<Strike> {
    let (kind, call) = text.rsplit_once('@').context("--strike wants NAME:BLOW@CALL")?;
    let found = strike::all().find(|(fault, blow)| format!("{fault}:{blow:?}") == kind);
    let (fault, blow) = *found.with_context(|| format!("{kind} is no blow"))?;
    let call = call.parse()?;
    Ok(Strike { fault, call, blow })
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
