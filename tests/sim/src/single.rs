//! The commands about one run: its story, from a seed or a tape, and making it small.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use millwright_sim::call_fault::{self, InjectedFault};
use millwright_sim::run::{Faults, Plan, by_names, by_seed};
use millwright_sim::shrink::shrink;
use millwright_sim::tape::Tape;

use crate::What;
use crate::report::story;

/// The story of one run.
#[derive(Args)]
pub struct Replay {
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
}

impl Replay {
    /// Tells it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(level) = &self.log {
            show_log(level);
        }
        if let Some(path) = &self.tape {
            return replay_tape(path, !self.mended);
        }
        let mut plan = Plan {
            is_told: true,
            ..self.what.plan()?
        };
        if let Some(strike) = &self.strike {
            plan.faults = Faults::Injected(parse(strike)?);
        }
        Ok(story(&by_seed(&plan, self.seed)))
    }
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

/// Prints the manager's log at this level.
fn show_log(level: &str) {
    tracing_subscriber::fmt()
        .with_env_filter(level)
        .without_time()
        .with_ansi(false)
        .init();
}

/// A failing run that is to be made small.
#[derive(Args)]
pub struct Shrink {
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
}

impl Shrink {
    /// Makes it small and tells its tape.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let plan = self.what.plan()?;
        let failed = by_seed(&plan, self.seed);
        let Some(smallest) = shrink(&plan, &failed.deviations, self.budget) else {
            println!("seed {} breaks nothing", self.seed);
            return Ok(ExitCode::SUCCESS);
        };
        let tape = Tape {
            bug: self.what.mutant.clone(),
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
        self.give(&tape)?;
        Ok(code)
    }

    fn give(&self, tape: &Tape) -> anyhow::Result<()> {
        let Some(path) = &self.out else {
            print!("--- the tape\n{tape}");
            return Ok(());
        };
        let name = path.display();
        std::fs::write(path, tape.to_string()).with_context(|| name.to_string())?;
        println!("written: {name}; its first line is to tell in words what it was");
        Ok(())
    }
}

fn parse(text: &str) -> anyhow::Result<InjectedFault> {
    let (kind, call) = text.rsplit_once('@').context("--strike wants NAME:BLOW@CALL")?;
    let found = call_fault::all().find(|(fault, call_fault)| format!("{fault}:{call_fault:?}") == kind);
    let (fault, call_fault) = *found.with_context(|| format!("{kind} is no call_fault"))?;
    let call = call.parse()?;
    Ok(InjectedFault {
        fault,
        call,
        call_fault,
    })
}
