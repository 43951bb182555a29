//! The commands about many runs: a range of seeds, and each fault at each call.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use millwright_sim::campaign::{self, Job, Sum};
use millwright_sim::seed;

use crate::What;
use crate::report::{print_coverage, print_digests, progress, tell};

/// A range of seeds.
#[derive(Args)]
pub struct Range {
    /// FROM..TO, without TO; or COUNT, from the commit's seed on
    #[arg(long, default_value = "200")]
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
}

impl Range {
    fn range(&self) -> anyhow::Result<(u64, u64)> {
        if let Some((from, to)) = self.seeds.split_once("..") {
            return Ok((from.parse()?, to.parse()?));
        }
        let count: u64 = self.seeds.parse().context("--seeds wants FROM..TO or a COUNT")?;
        let first = seed::first();
        println!("seeds {first}..{}", first + count);
        Ok((first, first + count))
    }

    /// Runs them.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let plan = self.what.plan()?;
        let (from, to) = self.range()?;
        let jobs = campaign::seeds(&plan, from, to);
        let sum = campaign::all(&jobs, self.what.threads, &progress(jobs.len()));
        if self.digests {
            print_digests(&sum);
        }
        let is_same = !self.twice || is_same(&jobs, self.what.threads, &sum);
        if self.coverage {
            print_coverage(&sum);
        }
        Ok(tell(&sum, is_same))
    }
}

/// Each kind of fault at each call.
#[derive(Args)]
pub struct Exhaust {
    #[command(flatten)]
    what: What,
}

impl Exhaust {
    /// Runs each, of a workload or of all.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let plan = self.what.plan()?;
        let jobs = match plan.workload {
            Some(_) => campaign::strikes(&plan, 0),
            None => campaign::exhaustive(&plan),
        };
        let sum = campaign::all(&jobs, self.what.threads, &progress(jobs.len()));
        Ok(tell(&sum, true))
    }
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
