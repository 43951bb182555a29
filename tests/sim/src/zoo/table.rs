//! The table of the zoo, as Markdown. The same for the same measurement.

use std::fmt::Write as _;

use super::{Catch, Mutant};

/// Where it lies.
pub const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/zoo.md");

/// The page.
pub fn page(mutants: &[Mutant], caught: &[Catch], most: u64) -> String {
    let starts = caught.first().map_or(0, |caught| caught.runs.len());
    let mut page = "\
         <!-- Made by `cargo run --release -p millwright-sim -- zoo`; a test compares its names with the registry. -->\n\
         | bug | rows | what is put back | caught by | in | median seeds | most | caught from |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (mutant, caught) in mutants.iter().zip(caught) {
        let number = |runs: Option<u64>| runs.map_or_else(|| "not caught".to_owned(), |runs| runs.to_string());
        let faults = match mutant.faults {
            [] => String::new(),
            names => format!(" with {}", names.join(", ")),
        };
        writeln!(
            page,
            "| `{}` | {} | {} | {} | {}{faults} | {} | {} | {} of {starts} |",
            mutant.name,
            mutant.rows,
            mutant.what,
            mutant.property,
            mutant.workload,
            number(caught.median()),
            number(caught.runs.last().copied().flatten()),
            caught.caught(),
        )
        .expect("a String takes all that is written");
    }
    writeln!(
        page,
        "\n{} bugs, each hunted from {starts} starting points with at most {most} seeds from each; a seed is one run.",
        mutants.len()
    )
    .expect("a String takes all that is written");
    page
}

/// The names that a page tells of, in its order.
pub fn names(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}
