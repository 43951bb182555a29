//! A run that is worth having again, as a small text: what is run, and the choices in it that are not the default, by name.
//!
//! ```text
//! # A line like this one is passed over.
//! what      which bug it was, in words
//! bug       the bug of the zoo that is put back; without it the manager is as it is
//! breaks    the property that the bug breaks, or broke
//! workload  a workload
//! faults    names as F9 F16x3; without this line no fault at all, and what they delay is not asked for
//! transport grpc, where it is not a call of a function
//! pair      two managers side by side
//! rests     a time of rest at the end
//! choice    POINT NTH VALUE: at its nth decision, from zero, the point chose this
//! ```
//!
//! Decides nothing about runs. A choice counts at its own point only, so that it stays where it is when other points come or
//! go; if the manager itself asks its point more or less often than before, [`Tape::unmet`] tells of it.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::choices::Deviation;
use crate::fault::Enabled;
use crate::provider::Transport;
use crate::run::{Faults, Outcome, Plan, by_names, by_seed};
use crate::shrink::shrink;
use crate::world::hooks::Hooks;
use crate::zoo::Mutant;
use crate::{share, workload, zoo};

/// Where the tapes of this repository lie.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tapes");
/// How their names end.
pub const ENDING: &str = "tape";
/// Points that choose workload and faults, which a tape names.
const NAMED: [&str; 4] = ["workload", "swarm-size", "swarm-fault", "swarm-rate"];

/// A run, as it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    /// Which bug it was, in words.
    pub what: String,
    /// The bug of the zoo that is put back.
    pub bug: Option<String>,
    /// The property that the bug breaks, or broke.
    pub breaks: Option<String>,
    /// The workload.
    pub workload: String,
    /// Names of faults; none: no fault at all.
    pub faults: Option<Vec<String>>,
    /// What carries calls to the driver.
    pub transport: Transport,
    /// Two managers side by side.
    pub is_pair: bool,
    /// With a time of rest.
    pub rests: bool,
    /// The choices that are not the default.
    pub choices: Vec<Deviation>,
}

impl Tape {
    /// What has this run of that plan again. Nothing for a strike: its own words have it again.
    pub fn of(plan: &Plan, outcome: &Outcome) -> Option<Self> {
        let faults = match &plan.faults {
            Faults::None => None,
            Faults::These(names) => Some(names.clone()),
            Faults::Swarm => Some(outcome.faults.iter().map(|&name| name.to_owned()).collect()),
            Faults::Injected(_) => return None,
        };
        let is_named = |deviations: &&Deviation| NAMED.contains(&deviations.point.as_ref());
        Some(Self {
            what: outcome.violation.as_ref().map_or_else(String::new, ToString::to_string),
            bug: None,
            breaks: outcome.violation.as_ref().map(|broken| broken.property.to_owned()),
            workload: outcome.workload.clone(),
            faults,
            transport: plan.transport,
            is_pair: plan.is_pair,
            rests: plan.rests,
            choices: outcome
                .deviations
                .iter()
                .filter(|deviations| !is_named(deviations))
                .cloned()
                .collect(),
        })
    }

    /// The run of a bug of the zoo by the first of so many seeds that shows it, made small by so many runs. Nothing where no seed shows it.
    pub fn of_bug(bug: &Mutant, most: u64, budget: usize) -> Option<Self> {
        let plan = bug.plan();
        let mut runs = (0..most).map(|seed| by_seed(&plan, seed));
        let shown = runs.find(|outcome| bug.is_caught(outcome))?;
        let small = shrink(&plan, &shown.deviations, budget)?;
        Some(Self {
            what: bug.what.to_owned(),
            bug: Some(bug.name.to_owned()),
            ..Self::of(&plan, &small)?
        })
    }

    /// The plan of the run, with its bug put back or without it.
    pub fn plan(&self, has_bug: bool) -> Plan {
        let bug = self.bug.as_deref().and_then(zoo::named);
        let hooks = bug.map_or_else(Hooks::default, |bug| (bug.hooks)());
        let mended = Hooks {
            // Who leads is no mistake, and without it the run would be another one.
            elects: hooks.elects,
            ..Hooks::default()
        };
        Plan {
            workload: Some(self.workload.clone()),
            faults: self.faults.clone().map_or(Faults::None, Faults::These),
            hooks: if has_bug { hooks } else { mended },
            transport: self.transport,
            is_pair: self.is_pair,
            rests: self.rests,
            ..Plan::default()
        }
    }

    /// Runs it.
    pub fn play(&self, has_bug: bool) -> Outcome {
        by_names(&self.plan(has_bug), &self.choices)
    }

    /// Choices that the run did not come to, or that its points do not have.
    pub fn unmet(&self, outcome: &Outcome) -> Vec<String> {
        let missed = |deviations: &Deviation| {
            if outcome.deviations.contains(deviations) {
                return None;
            }
            let Deviation { point, nth, value } = deviations;
            let asked = outcome.points.get(point.as_ref()).map_or(0, |count| count.asked);
            Some(match *nth < asked {
                false => format!("choice {point} {nth} {value} was never reached: {point} decided {asked} times"),
                true => format!("choice {point} {nth} {value} does not fit: {point} has no such value there"),
            })
        };
        self.choices.iter().filter_map(missed).collect()
    }

    /// Reads one.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        let mut tape = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                tape.take(line).with_context(|| format!("line {number}: {line}"))?;
            }
        }
        anyhow::ensure!(
            !tape.what.is_empty(),
            "a line `what` must tell in words which bug it was"
        );
        anyhow::ensure!(!tape.workload.is_empty(), "a line `workload` is missing");
        Ok(tape)
    }

    /// Reads the one in this file.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::read(&text).with_context(|| format!("{} is no tape (`sim shrink --out` writes them)", path.display()))
    }

    fn take(&mut self, line: &str) -> anyhow::Result<()> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "what" => rest.clone_into(&mut self.what),
            "bug" => {
                let known = || zoo::all().iter().map(|bug| bug.name).collect::<Vec<_>>().join(", ");
                zoo::named(rest).with_context(|| format!("{rest} is no bug of the zoo; there are {}", known()))?;
                self.bug = Some(rest.to_owned());
            }
            "breaks" => self.breaks = Some(rest.to_owned()),
            "workload" => {
                let known = workload::ALL.join(", ");
                workload::actions(rest).with_context(|| format!("{rest} is no workload; there are {known}"))?;
                rest.clone_into(&mut self.workload);
            }
            "faults" => {
                let names: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
                Enabled::these(&names).map_err(anyhow::Error::msg)?;
                self.faults = Some(names);
            }
            "transport" => {
                anyhow::ensure!(
                    rest == "grpc",
                    "{rest} is no transport but a call of a function; there is grpc"
                );
                self.transport = Transport::Grpc;
            }
            "pair" => self.is_pair = true,
            "rests" => self.rests = true,
            "choice" => self.choices.push(choice(rest)?),
            _ => anyhow::bail!(
                "{word} is no word of a tape; there are what, bug, breaks, workload, faults, transport, pair, rests, choice"
            ),
        }
        Ok(())
    }
}

fn choice(text: &str) -> anyhow::Result<Deviation> {
    let mut parts = text.split_whitespace();
    let (Some(point), Some(nth), Some(value), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        anyhow::bail!("a choice is POINT NTH VALUE");
    };
    let value = value.parse().context("its value is a number")?;
    anyhow::ensure!(value != 0, "a value of 0 is the default choice, which no tape tells");
    Ok(Deviation {
        point: Cow::Owned(point.to_owned()),
        nth: nth.parse().context("its nth is a number")?,
        value,
    })
}

impl fmt::Display for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "what      {}", self.what)?;
        if let Some(bug) = &self.bug {
            writeln!(f, "bug       {bug}")?;
        }
        if let Some(breaks) = &self.breaks {
            writeln!(f, "breaks    {breaks}")?;
        }
        writeln!(f, "workload  {}", self.workload)?;
        if let Some(faults) = &self.faults {
            writeln!(f, "{}", format!("faults    {}", faults.join(" ")).trim_end())?;
        }
        if self.transport == Transport::Grpc {
            writeln!(f, "transport grpc")?;
        }
        if self.is_pair {
            writeln!(f, "pair")?;
        }
        if self.rests {
            writeln!(f, "rests")?;
        }
        let mut each = self.choices.iter();
        each.try_for_each(|Deviation { point, nth, value }| writeln!(f, "choice    {point} {nth} {value}"))
    }
}

/// The tapes of this repository, by their names.
pub fn committed() -> anyhow::Result<Vec<(String, Tape)>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(FOLDER)
        .context(FOLDER)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.sort();
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    paths.iter().map(|path| Ok((stem(path), Tape::load(path)?))).collect()
}

/// Records each of these bugs, on so many threads, and hands `keep` each tape that is done.
pub fn record(bugs: &[Mutant], most: u64, budget: usize, threads: usize, keep: impl Fn(&Mutant, Option<Tape>) + Sync) {
    share::each(bugs, threads, |bug| keep(bug, Tape::of_bug(bug, most, budget)));
}

/// Where the tape of that name lies.
pub fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name).with_extension(ENDING)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
mod tests {
    use super::*;

    fn full() -> Tape {
        Tape {
            what: "two words".to_owned(),
            bug: Some("victim-anew".to_owned()),
            breaks: Some("S3".to_owned()),
            workload: "scale".to_owned(),
            faults: Some(vec!["F9".to_owned(), "F16x3".to_owned()]),
            transport: Transport::Grpc,
            is_pair: true,
            rests: true,
            choices: vec![Deviation {
                point: Cow::Borrowed("F9"),
                nth: 4,
                value: 1,
            }],
        }
    }

    #[test]
    fn a_tape_is_read_as_it_was_written() {
        let bare = Tape {
            what: "nothing".to_owned(),
            workload: "create".to_owned(),
            ..Tape::default()
        };
        let faultless = Tape {
            faults: Some(Vec::new()),
            ..bare.clone()
        };
        for tape in [full(), bare, faultless] {
            assert_eq!(Tape::read(&tape.to_string()).unwrap(), tape);
        }
    }

    #[test]
    fn a_tape_that_cannot_be_read_says_which_line_and_what_there_is() {
        let wrong = [
            (
                "workload scael",
                "line 2: workload scael: scael is no workload; there are scale,",
            ),
            (
                "bug tapeworm",
                "tapeworm is no bug of the zoo; there are orders-by-lookup,",
            ),
            ("faults F9 F999", "F999 is no fault; `sim faults` names all"),
            ("choice F9 4", "a choice is POINT NTH VALUE"),
            ("choice F9 4 0", "a value of 0 is the default choice"),
            ("choice F9 x 1", "its nth is a number"),
            ("transport pigeons", "there is grpc"),
            ("1 0 0 4", "1 is no word of a tape; there are what,"),
            ("# no more", "a line `workload` is missing"),
        ];
        for (line, told) in wrong {
            let error = format!("{:#}", Tape::read(&format!("what it was\n{line}")).unwrap_err());
            assert!(error.contains(told), "{line}: {error}");
        }
        let error = format!("{:#}", Tape::read("workload scale").unwrap_err());
        assert!(error.contains("`what`"), "{error}");
    }
}
