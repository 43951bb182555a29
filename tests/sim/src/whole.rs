//! The campaign, whole or in part: all parts, the same seeds in two processes, what was reached together, and how fast plain runs are.

use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;
use millwright_sim::campaign::{self, Job, Sum};
use millwright_sim::provider::Transport;
use millwright_sim::run::{Faults, Plan};
use millwright_sim::{seed, workload, zoo};

use crate::report::{progress, tell};

/// How much is run.
struct Size {
    seeds: u64,
    any: u64,
    grpc: u64,
    twice: u64,
    /// Of the runs of the exhaustive part, one in so many, which ones by the first seed.
    one_in: u64,
    /// How often each fault must have struck, and each property must have been judged.
    least: u64,
}

const WHOLE: Size = Size {
    seeds: 5000,
    any: 1000,
    grpc: 300,
    twice: 200,
    one_in: 1,
    least: 100,
};

const SAMPLE: Size = Size {
    seeds: 1200,
    any: 300,
    grpc: 60,
    twice: 40,
    one_in: 64,
    least: 10,
};

/// Most seeds by which each bug of the zoo must be caught.
const ZOO_SEEDS: u64 = 100;

/// Most runs, each with that fault for certain, in which a fault that struck too rarely by choice must reach its number.
const RARE_SEEDS: u64 = 200;

/// All that CI runs: a sample, by another first seed for each commit, or the whole.
#[derive(Args)]
pub struct Campaign {
    /// All of it: 5000 seeds, 1000 from any state, 300 over gRPC, each fault at each call, the zoo
    #[arg(long)]
    whole: bool,
    /// The first seed [default: MILLWRIGHT_SEED, else made of the commit, else 0]
    #[arg(long)]
    from: Option<u64>,
    /// Seeds with faults by choice
    #[arg(long)]
    seeds: Option<u64>,
    /// Seeds that begin in any state that the API admits
    #[arg(long)]
    any: Option<u64>,
    /// Seeds whose driver is reached by gRPC over pipes
    #[arg(long)]
    grpc: Option<u64>,
    /// Seeds that are run in two fresh processes, to compare
    #[arg(long)]
    twice: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

impl Campaign {
    /// Runs it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let size = if self.whole { WHOLE } else { SAMPLE };
        let from = self.from.unwrap_or_else(seed::first);
        println!("first seed {from}: `sim campaign --from {from}` runs these again");
        let of = |plan: Plan, count| campaign::seeds(&plan, from, from + count);
        let default = Plan::default;
        let (workload, transport) = (Some(workload::ANY.to_owned()), Transport::Grpc);
        let exhaustive = campaign::sample(campaign::exhaustive(&default()), from, size.one_in);
        let parts = [
            ("each fault at each call", exhaustive),
            ("faults by choice", of(default(), self.seeds.unwrap_or(size.seeds))),
            (
                "any start",
                of(Plan { workload, ..default() }, self.any.unwrap_or(size.any)),
            ),
            (
                "gRPC over pipes",
                of(Plan { transport, ..default() }, self.grpc.unwrap_or(size.grpc)),
            ),
        ];
        let twice = (from, from + self.twice.unwrap_or(size.twice));
        let mut is_right = run(parts, twice, self.threads, size.least)?;
        if self.whole {
            is_right &= hunt(from, self.threads);
        }
        Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Hunts every bug of the zoo.
fn hunt(from: u64, threads: usize) -> bool {
    let mutants = zoo::all();
    println!("== {} bugs of the zoo", mutants.len());
    let caught = zoo::hunt_from(&mutants, &[from], ZOO_SEEDS, threads, |_, _| ());
    let missed = mutants.iter().zip(&caught).filter(|(_, caught)| caught.caught() == 0);
    let missed: Vec<&str> = missed.map(|(mutant, _)| mutant.name).collect();
    println!("not caught by {ZOO_SEEDS} seeds: {missed:?}");
    missed.is_empty()
}

/// Runs all parts, one after the other, and judges what they reached together.
fn run<const N: usize>(
    parts: [(&str, Vec<Job>); N],
    twice: (u64, u64),
    threads: usize,
    least: u64,
) -> anyhow::Result<bool> {
    pace()?;
    let (mut whole, mut is_right) = (Sum::default(), true);
    for (title, jobs) in parts {
        println!("== {title}: {} runs", jobs.len());
        let sum = campaign::all(&jobs, threads, &progress(jobs.len()));
        is_right &= tell(&sum, true) == ExitCode::SUCCESS;
        whole.take(sum);
    }
    for (name, count) in whole.rare_faults(least) {
        println!("== {name} by name: it struck {count} times, {least} are wanted");
        let sum = strike(name, least - count, twice.0, threads);
        is_right &= tell(&sum, true) == ExitCode::SUCCESS;
        whole.take(sum);
    }
    println!("== seeds {}..{} in two fresh processes", twice.0, twice.1);
    is_right &= is_same_elsewhere(twice)?;
    println!("== all");
    let rare = whole.rare(least);
    for (name, count) in &rare {
        println!("TOO RARE {name}: {count} times, {least} are wanted");
    }
    is_right &= rare.is_empty();
    let struck: Vec<String> = whole
        .struck
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("struck: {}", struck.join(", "));
    is_right &= tell(&whole, true) == ExitCode::SUCCESS;
    Ok(is_right)
}

/// Runs seeds that have one fault by name until it has struck `wanted` times or [`RARE_SEEDS`] have been run: how often a
/// fault strikes by choice varies with the first seed, whether it can strike does not.
fn strike(name: &'static str, wanted: u64, from: u64, threads: usize) -> Sum {
    const ROUND: u64 = 20;
    let plan = Plan {
        faults: Faults::These(vec![format!("{name}x3")]),
        ..Plan::default()
    };
    let mut sum = Sum::default();
    let has_struck = |sum: &Sum| sum.struck.get(name).is_some_and(|struck| *struck >= wanted);
    let mut first = from;
    while first < from + RARE_SEEDS && !has_struck(&sum) {
        let jobs = campaign::seeds(&plan, first, first + ROUND);
        sum.take(campaign::all(&jobs, threads, &|_, _| ()));
        first += ROUND;
    }
    sum
}

/// How fast plain runs are, on one core.
fn pace() -> anyhow::Result<()> {
    for name in ["create", "scale"] {
        let plan = Plan {
            workload: Some(name.to_owned()),
            faults: Faults::None,
            rests: false,
            ..Plan::default()
        };
        let sum = campaign::all(&campaign::seeds(&plan, 0, 100), 1, &|_, _| ());
        println!(
            "{name} without faults: {:.0} runs/s on one core, {:.1} simulated hours/s",
            sum.pace(),
            sum.speed()
        );
        anyhow::ensure!(sum.failures.is_empty(), "{name} fails without any fault");
    }
    Ok(())
}

/// Runs seeds in two processes of their own and compares the digests of the runs.
fn is_same_elsewhere((from, to): (u64, u64)) -> anyhow::Result<bool> {
    let program = std::env::current_exe().context("the path of this program")?;
    let start = || {
        Command::new(&program)
            .args(["run", "--digests", "--seeds", &format!("{from}..{to}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("a second process of this program")
    };
    let (one, other) = (start()?, start()?);
    let digests = |process: Child| -> anyhow::Result<Vec<String>> {
        let text = String::from_utf8(process.wait_with_output()?.stdout)?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        let is_digest = |line: &&str| line.split(' ').count() == 2;
        Ok(lines.filter(is_digest).map(str::to_owned).collect())
    };
    let (one, other) = (digests(one)?, digests(other)?);
    let wanted = usize::try_from(to - from)?;
    anyhow::ensure!(one.len() == wanted, "{} of {wanted} digests were printed", one.len());
    let differ: Vec<&String> = one
        .iter()
        .zip(&other)
        .filter(|(one, other)| one != other)
        .map(|(one, _)| one)
        .collect();
    println!("{} runs, {} of them differ {differ:?}", one.len(), differ.len());
    Ok(one.len() == other.len() && differ.is_empty())
}
