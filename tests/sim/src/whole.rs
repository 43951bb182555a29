//! The whole campaign: all parts, the same seeds in two processes, what was reached together, and how fast plain runs are.

use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;
use millwright_sim::campaign::{self, Job, Sum};
use millwright_sim::provider::Transport;
use millwright_sim::run::{Faults, Plan};
use millwright_sim::workload;

use crate::report::{progress, tell};

/// How often each fault must have struck, and each property must have been judged, in a whole campaign.
const LEAST: u64 = 100;

/// All that CI runs.
#[derive(Args)]
pub struct Campaign {
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
}

impl Campaign {
    /// Runs it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let of = |plan: Plan, count| campaign::seeds(&plan, self.from, self.from + count);
        let default = Plan::default;
        let (workload, transport) = (Some(workload::ANY.to_owned()), Transport::Grpc);
        let parts = [
            ("each fault at each call", campaign::exhaustive(&default())),
            ("faults by choice", of(default(), self.seeds)),
            ("any start", of(Plan { workload, ..default() }, self.any)),
            ("gRPC over pipes", of(Plan { transport, ..default() }, self.grpc)),
        ];
        run(parts, (self.from, self.from + self.twice), self.threads)
    }
}

/// Runs all parts, one after the other, and judges what they reached together.
fn run<const N: usize>(parts: [(&str, Vec<Job>); N], twice: (u64, u64), threads: usize) -> anyhow::Result<ExitCode> {
    pace()?;
    let (mut whole, mut is_right) = (Sum::default(), true);
    for (title, jobs) in parts {
        println!("== {title}: {} runs", jobs.len());
        let sum = campaign::all(&jobs, threads, &progress(jobs.len()));
        is_right &= tell(&sum, true) == ExitCode::SUCCESS;
        whole.take(sum);
    }
    println!("== seeds {}..{} in two fresh processes", twice.0, twice.1);
    is_right &= is_same_elsewhere(twice)?;
    println!("== all");
    let rare = whole.rare(LEAST);
    for (name, count) in &rare {
        println!("TOO RARE {name}: {count} times, {LEAST} are wanted");
    }
    is_right &= rare.is_empty();
    let struck: Vec<String> = whole
        .struck
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("struck: {}", struck.join(", "));
    is_right &= tell(&whole, true) == ExitCode::SUCCESS;
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
