//! Every bug of the zoo is caught, by the property that it breaks, and the table tells of these bugs and no others.

use std::collections::BTreeSet;

use millwright_sim::zoo::{self, table};

/// Seeds of which one at least must show a bug.
const SEEDS: u64 = 60;

#[test]
#[ignore = "of the long suite: every bug has its tape, which is played in each run"]
fn every_bug_of_the_zoo_is_caught_by_its_property() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mutants = zoo::all();
    let caught = zoo::hunt(&mutants, 1, SEEDS, threads, |_, _| ());
    let missed = mutants.iter().zip(&caught).filter(|(_, caught)| caught.caught() == 0);
    let missed: Vec<&str> = missed.map(|(mutant, _)| mutant.name).collect();
    assert_eq!(missed, Vec::<&str>::new(), "not caught by {SEEDS} seeds");
}

#[test]
fn the_table_tells_of_every_bug_of_the_zoo() {
    let page = std::fs::read_to_string(table::PATH).unwrap();
    let names: Vec<&str> = zoo::all().iter().map(|mutant| mutant.name).collect();
    assert_eq!(table::names(&page), names, "`sim zoo` writes the table");
}

#[test]
fn no_two_bugs_of_the_zoo_share_a_name() {
    let all = zoo::all();
    let names: BTreeSet<&str> = all.iter().map(|mutant| mutant.name).collect();
    assert_eq!(names.len(), all.len());
}
