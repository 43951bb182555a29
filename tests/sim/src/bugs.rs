//! The zoo's commands: hunting its bugs, and writing their table and their tapes.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use clap::Args;
use millwright_sim::tape;
use millwright_sim::zoo::{self, Catch, Mutant};

/// The bugs of the zoo: their table, or their tapes.
#[derive(Args)]
pub struct Zoo {
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
}

impl Zoo {
    /// Writes what is wanted of them.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self.tapes {
            true => self.record(),
            false => self.hunt(),
        }
    }

    /// Writes a tape of each bug.
    fn record(&self) -> anyhow::Result<ExitCode> {
        let mutants = mutants(self.mutant.as_deref())?;
        let failed = AtomicUsize::new(0);
        tape::record(&mutants, self.most, self.budget, self.threads, |mutant, tape| {
            let path = tape::path(mutant.name);
            let written = match &tape {
                Some(tape) => std::fs::write(&path, tape.to_string()).map_err(|error| error.to_string()),
                None => Err(format!("not caught by {} seeds", self.most)),
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
    fn hunt(&self) -> anyhow::Result<ExitCode> {
        let (mutants, starts, most) = (mutants(self.mutant.as_deref())?, self.starts, self.most);
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
        let caught = zoo::hunt(&mutants, starts, most, self.threads, tell);
        if self.mutant.is_none() {
            let page = zoo::table::page(&mutants, &caught, most);
            std::fs::write(zoo::table::PATH, page).context(zoo::table::PATH)?;
            println!("written: {}", zoo::table::PATH);
        }
        Ok(match caught.iter().all(|caught| caught.caught() == starts) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

/// A bug by its name.
pub fn mutant(name: &str) -> anyhow::Result<Mutant> {
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
