//! The command line of the simulator. Decides only what is printed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use millwright_sim::campaign::{self, Job, Sum};
use millwright_sim::fault;
use millwright_sim::provider::Transport;
use millwright_sim::run::{Faults, Outcome, Plan, by_seed, by_tape};
use millwright_sim::shrink::shrink;
use millwright_sim::strike::{self, Strike};
use millwright_sim::workload;
use millwright_sim::zoo::{self, Catch, Mutant};

/// Failures that are printed in full.
const SHOWN: usize = 20;

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
    /// Each kind of fault at each call of a workload
    Exhaust {
        #[command(flatten)]
        what: What,
    },
    /// Tell the story of one run
    Replay {
        /// The seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// A file with a tape instead: numbers, separated by blanks or commas
        #[arg(long)]
        tape: Option<PathBuf>,
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
        #[arg(long)]
        seed: u64,
        /// Most runs that are tried
        #[arg(long, default_value_t = 2000)]
        budget: usize,
        #[command(flatten)]
        what: What,
    },
    /// Name all faults
    Faults,
    /// Hunt the bugs of the zoo and write their table
    Zoo {
        /// One of them; nothing is written then
        #[arg(long)]
        mutant: Option<String>,
        /// Starting points
        #[arg(long, default_value_t = 20)]
        starts: usize,
        /// Most seeds from each
        #[arg(long, default_value_t = 200)]
        most: u64,
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
            bail!("{name} is no workload; there are {}", workload::ALL.join(", "));
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
            let sum = campaign::all(&jobs, what.threads);
            if digests {
                sum.digests
                    .iter()
                    .for_each(|(seed, digest)| println!("{seed} {digest:016x}"));
            }
            let is_same = !twice || is_same(&jobs, what.threads, &sum);
            if coverage {
                print_coverage(&sum);
            }
            Ok(tell(&sum, is_same))
        }
        Command::Exhaust { what } => Ok(exhaust(&what)),
        Command::Replay {
            seed,
            tape,
            strike,
            log,
            what,
        } => {
            if let Some(log) = log {
                tracing_subscriber::fmt()
                    .with_env_filter(log)
                    .without_time()
                    .with_ansi(false)
                    .init();
            }
            let mut plan = Plan {
                is_told: true,
                ..what.plan()?
            };
            if let Some(strike) = strike {
                plan.faults = Faults::Strike(parse(&strike)?);
            }
            let outcome = match tape {
                Some(path) => by_tape(&plan, read(&path)?),
                None => by_seed(&plan, seed),
            };
            Ok(story(&outcome))
        }
        Command::Shrink { seed, budget, what } => make_small(&what.plan()?, seed, budget),
        Command::Zoo {
            mutant,
            starts,
            most,
            threads,
        } => hunt(mutant.as_deref(), starts, most, threads),
        Command::Faults => {
            fault::ALL
                .iter()
                .for_each(|fault| println!("{:4} {}", fault.name, fault.what));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn mutant(name: &str) -> anyhow::Result<Mutant> {
    zoo::named(name).with_context(|| {
        let names: Vec<&str> = zoo::all().iter().map(|mutant| mutant.name).collect();
        format!("{name} is no bug of the zoo; there are {}", names.join(", "))
    })
}

/// Hunts all bugs and writes the table, or hunts one.
fn hunt(name: Option<&str>, starts: usize, most: u64, threads: usize) -> anyhow::Result<ExitCode> {
    let mutants = match name {
        Some(name) => vec![mutant(name)?],
        None => zoo::all(),
    };
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

/// Each kind of fault at each call.
fn exhaust(what: &What) -> ExitCode {
    let named: Vec<String> = what.workload.iter().cloned().collect();
    let all = || workload::ALL.map(str::to_owned).to_vec();
    let names = if named.is_empty() { all() } else { named };
    let jobs: Vec<Job> = names
        .into_iter()
        .flat_map(|name| {
            let plan = Plan {
                workload: Some(name),
                transport: what.transport.into(),
                is_pair: what.pair,
                ..Plan::default()
            };
            campaign::strikes(&plan, 0)
        })
        .collect();
    tell(&campaign::all(&jobs, what.threads), true)
}

fn make_small(plan: &Plan, seed: u64, budget: usize) -> anyhow::Result<ExitCode> {
    let failed = by_seed(plan, seed);
    let Some((tape, _)) = shrink(plan, failed.tape, budget) else {
        println!("seed {seed} breaks nothing");
        return Ok(ExitCode::SUCCESS);
    };
    let told = Plan {
        is_told: true,
        ..plan.clone()
    };
    let code = story(&by_tape(&told, tape.clone()));
    let tape: Vec<String> = tape.iter().map(u32::to_string).collect();
    println!("tape: {}", tape.join(" "));
    Ok(code)
}

fn read(path: &PathBuf) -> anyhow::Result<Vec<u32>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let numbers = text.split([' ', ',', '\n']).filter(|number| !number.is_empty());
    numbers
        .map(|number| number.parse().context("a tape is made of numbers"))
        .collect()
}

fn parse(text: &str) -> anyhow::Result<Strike> {
    let (kind, call) = text.rsplit_once('@').context("--strike wants NAME:BLOW@CALL")?;
    let found = strike::all().find(|(fault, blow)| format!("{fault}:{blow:?}") == kind);
    let (fault, blow) = *found.with_context(|| format!("{kind} is no blow"))?;
    let call = call.parse()?;
    Ok(Strike { fault, call, blow })
}

fn is_same(jobs: &[Job], threads: usize, first: &Sum) -> bool {
    let second = campaign::all(jobs, threads);
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

fn print_coverage(sum: &Sum) {
    println!("{:20} {:>10} {:>10}", "point", "asked", "taken");
    for (point, count) in &sum.points {
        println!("{point:20} {:>10} {:>10}", count.asked, count.taken);
    }
}

fn tell(sum: &Sum, is_same: bool) -> ExitCode {
    let mut kinds: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for failure in &sum.failures {
        // Numbers and names differ from run to run; what broke is the same.
        let kind: String = failure
            .violation
            .to_string()
            .chars()
            .filter(|letter| !letter.is_ascii_digit())
            .collect();
        let entry = kinds.entry(kind).or_insert_with(|| (0, failure.how.clone()));
        entry.0 += 1;
    }
    for failure in sum.failures.iter().take(SHOWN) {
        let faults = failure.faults.join(",");
        println!(
            "FAILED {} ({}; {faults}) {}",
            failure.how, failure.workload, failure.violation
        );
    }
    if kinds.len() > 1 {
        println!("--- {} kinds of failure", kinds.len());
        kinds
            .iter()
            .take(SHOWN)
            .for_each(|(kind, (count, how))| println!("{count:6} {how}: {kind}"));
    }
    // An oracle with nothing to judge proves nothing: its zero is shown.
    let hits: Vec<String> = sum
        .antecedents
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("judged: {}", hits.join(", "));
    println!(
        "{} runs in {:.1} s on {} threads: {:.0} runs/s/core, {:.0} simulated hours/s, {:.0} requests a run ({:.0} writes), {} failed",
        sum.runs,
        sum.took.as_secs_f64(),
        sum.threads,
        sum.pace(),
        sum.speed(),
        sum.requests as f64 / sum.runs.max(1) as f64,
        sum.writes as f64 / sum.runs.max(1) as f64,
        sum.failures.len()
    );
    if sum.failures.is_empty() && is_same {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn story(outcome: &Outcome) -> ExitCode {
    outcome.story.iter().for_each(|line| println!("{line}"));
    println!(
        "workload {}, faults {:?}: {} events, {} requests, {} writes, {} choices, {:.1} s of virtual time, digest {:016x}",
        outcome.workload,
        outcome.faults,
        outcome.events,
        outcome.requests,
        outcome.writes,
        outcome.tape.len(),
        outcome.passed.as_secs_f64(),
        outcome.digest
    );
    match &outcome.violation {
        None => {
            println!("all came right");
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("BROKEN {violation}");
            ExitCode::FAILURE
        }
    }
}
