//! The zoo's commands: hunting its bugs, and writing their table and their tapes.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use millwright_sim::tape;
use millwright_sim::zoo::{self, Catch, Mutant};

/// A bug by its name.
pub fn mutant(name: &str) -> anyhow::Result<Mutant> {
    zoo::named(name).with_context(|| {
        let names: Vec<&str> = zoo::all().iter().map(|mutant| mutant.name).collect();
        format!("{name} is no bug of the zoo; there are {}", names.join(", "))
    })
}

/// All bugs of the zoo, or one.
pub fn mutants(name: Option<&str>) -> anyhow::Result<Vec<Mutant>> {
    match name {
        Some(name) => Ok(vec![mutant(name)?]),
        None => Ok(zoo::all()),
    }
}

/// Writes a tape of each of these bugs.
pub fn record(mutants: &[Mutant], most: u64, budget: usize, threads: usize) -> anyhow::Result<ExitCode> {
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
pub fn hunt(name: Option<&str>, starts: usize, most: u64, threads: usize) -> anyhow::Result<ExitCode> {
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
