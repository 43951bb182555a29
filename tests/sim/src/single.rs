//! The commands about one run: its story, from a seed or a tape, and making it small.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use millwright_sim::run::{Faults, Plan, by_names, by_seed};
use millwright_sim::shrink::shrink;
use millwright_sim::strike::{self, Strike};
use millwright_sim::tape::Tape;

use crate::What;
use crate::report::story;

/// Tells the story of one run.
pub fn replay(what: &What, seed: u64, strike: Option<&str>) -> anyhow::Result<ExitCode> {
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
pub fn replay_tape(path: &Path, has_bug: bool) -> anyhow::Result<ExitCode> {
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

/// Prints the manager's log at this level.
pub fn show_log(level: String) {
    tracing_subscriber::fmt()
        .with_env_filter(level)
        .without_time()
        .with_ansi(false)
        .init();
}

/// Makes a failing run small and tells its tape.
pub fn make_small(what: &What, seed: u64, budget: usize, out: Option<&Path>) -> anyhow::Result<ExitCode> {
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
