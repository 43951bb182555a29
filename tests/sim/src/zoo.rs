//! Bugs that systems like this one had, put back into ours one at a time: each must be caught, by the property that it breaks.
//!
//! A mutant is a value: where its mistake sits ([`Hooks`]), and the workload and faults that bring it out. Rows are the pains of
//! `tests/rows.yaml`. How soon each is caught stands in `zoo.md`, made by
//! `sim zoo`.

use std::sync::{Mutex, PoisonError};

use crate::run::{Faults, Outcome, Plan, by_seed};
use crate::share;
use crate::world::hooks::Hooks;

mod clouds;
mod deployments;
mod drains;
mod health;
mod in_place;
mod keeping;
mod machines;
mod orphans;
mod sets;
pub mod table;
mod wires;

/// One bug.
#[derive(Clone, Copy)]
pub struct Mutant {
    /// Its name, as `sim run --mutant` takes it.
    pub name: &'static str,
    /// Rows of the list of complaints that it stands for; `-` for a bug that was ours alone.
    pub rows: &'static str,
    /// What is put back.
    pub what: &'static str,
    /// The property that catches it.
    pub property: &'static str,
    /// What brings it out.
    pub workload: &'static str,
    /// Faults that it needs, by their names; none: none.
    pub faults: &'static [&'static str],
    /// Whether it shows only in a time of rest.
    pub rests: bool,
    /// Puts it back.
    pub hooks: fn() -> Hooks,
}

/// All of them, by the property that catches them.
pub fn all() -> Vec<Mutant> {
    let mut all = machines::ALL.to_vec();
    all.extend(sets::ALL);
    all.extend(deployments::ALL);
    all.extend(wires::ALL);
    all.extend(clouds::ALL);
    all.extend(orphans::ALL);
    all.extend(drains::ALL);
    all.extend(health::ALL);
    all.extend(keeping::ALL);
    all.extend(in_place::ALL);
    all.sort_by_key(|mutant| (order(mutant.property), mutant.name));
    all
}

/// S before L, and by number.
fn order(property: &str) -> (bool, u32) {
    (
        property.starts_with('L'),
        property.get(1..).and_then(|number| number.parse().ok()).unwrap_or(0),
    )
}

/// The mutant of that name.
pub fn named(name: &str) -> Option<Mutant> {
    all().into_iter().find(|mutant| mutant.name == name)
}

impl Mutant {
    /// The runs in which it must be caught.
    pub fn plan(&self) -> Plan {
        let faults = self.faults.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Plan {
            workload: Some(self.workload.to_owned()),
            faults: if faults.is_empty() {
                Faults::None
            } else {
                Faults::These(faults)
            },
            hooks: (self.hooks)(),
            rests: self.rests,
            ..Plan::default()
        }
    }

    /// How many runs, from this seed on, until its property is broken; nothing if so many are not enough.
    pub fn hunt(&self, from: u64, most: u64) -> Option<u64> {
        let plan = self.plan();
        let caught = |nth: &u64| self.is_caught(&by_seed(&plan, from + nth));
        (0..most).find(caught).map(|nth| nth + 1)
    }

    /// Whether a run shows it, by the property that must catch it.
    pub fn is_caught(&self, outcome: &Outcome) -> bool {
        let broken = outcome.violation.as_ref();
        broken.is_some_and(|broken| broken.property == self.property)
    }
}

/// How soon one mutant was caught, from several starting points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catch {
    /// Runs that each start took, in order of size; nothing for a start from which it was not caught.
    pub runs: Vec<Option<u64>>,
}

impl Catch {
    /// The median, where more than half of the starts came to something.
    pub fn median(&self) -> Option<u64> {
        self.runs.get(self.runs.len() / 2).copied().flatten()
    }

    /// All runs that were made.
    pub fn total(&self, most: u64) -> u64 {
        self.runs.iter().map(|runs| runs.unwrap_or(most)).sum()
    }

    /// Starts from which it was caught.
    pub fn caught(&self) -> usize {
        self.runs.iter().flatten().count()
    }
}

/// Where the nth start begins: far from the others, so that no seed is run twice.
fn start(nth: usize) -> u64 {
    u64::try_from(nth).unwrap_or(0) * 1_000_000
}

/// Hunts each of these from so many starts, on so many threads, and tells `progress` of each that is done.
pub fn hunt(
    mutants: &[Mutant],
    starts: usize,
    most: u64,
    threads: usize,
    progress: impl Fn(&Mutant, &Catch) + Sync,
) -> Vec<Catch> {
    let starts: Vec<u64> = (0..starts).map(start).collect();
    hunt_from(mutants, &starts, most, threads, progress)
}

/// The same from these seeds.
pub fn hunt_from(
    mutants: &[Mutant],
    starts: &[u64],
    most: u64,
    threads: usize,
    progress: impl Fn(&Mutant, &Catch) + Sync,
) -> Vec<Catch> {
    let found: Mutex<Vec<Vec<Option<u64>>>> = Mutex::new(vec![Vec::new(); mutants.len()]);
    let of_each = |(which, mutant)| starts.iter().map(move |start| (which, mutant, *start));
    let jobs: Vec<(usize, &Mutant, u64)> = mutants.iter().enumerate().flat_map(of_each).collect();
    share::each(&jobs, threads, |&(which, mutant, start)| {
        let runs = mutant.hunt(start, most);
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_it) = found.get_mut(which) else { return };
        of_it.push(runs);
        if of_it.len() == starts.len() {
            progress(mutant, &catch(of_it.clone()));
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.into_iter().map(catch).collect()
}

/// Sorted, those that came to nothing last, so that the order of threads makes no difference.
fn catch(mut runs: Vec<Option<u64>>) -> Catch {
    runs.sort_by_key(|runs| (runs.is_none(), *runs));
    Catch { runs }
}
