//! Which test shows that a known weakness of machine controllers cannot come back: `tests/rows.md`, made of the list of
//! weaknesses in `tests/rows.yaml` and of the tests that name them. `UPDATE_EXPECT=1` writes the table anew.
//!
//! A test names the rows that it shows on a line of its doc comment, `Rows: W13, L4, pains 49, 57.`; a story on a line of its
//! comment; a bug of the zoo, which its tape must show to be caught, in its field `rows`. Nothing is marked that would stay
//! green if the weakness came back.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

#[path = "rows/scan.rs"]
mod scan;
#[path = "rows/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use scan::Mark;
use table::Row;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(root().join("tests/rows.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

#[test]
fn the_table_says_of_every_row_which_tests_show_it() {
    let page = table::page(&rows(), &scan::marks(&root()));
    expect_file![root().join("tests/rows.md")].assert_eq(&page);
}

#[test]
fn no_row_is_left_without_a_test_or_a_word_why() {
    let marks = scan::marks(&root());
    let is_told = |row: &&Row| row.word().is_some() || marks.iter().any(|mark| mark.row == row.row);
    let silent: Vec<String> = rows()
        .iter()
        .filter(|row| !is_told(row))
        .map(|row| row.row.clone())
        .collect();
    assert_eq!(silent, Vec::<String>::new(), "no test shows them, and nothing says why");
}

#[test]
fn no_test_names_a_row_that_is_not_in_the_list() {
    let rows = rows();
    let known: BTreeSet<&str> = rows.iter().map(|row| row.row.as_str()).collect();
    let marks = scan::marks(&root());
    // The zoo tells of other groups of complaints too.
    let strange = |mark: &&Mark| mark.kind != scan::Kind::Bug && !known.contains(mark.row.as_str());
    let strange: Vec<&Mark> = marks.iter().filter(strange).collect();
    assert_eq!(strange, Vec::<&Mark>::new());
}

#[test]
fn every_row_of_the_sources_is_in_the_list_once_and_in_few_words() {
    let numbered = |(group, last)| (1..=last).map(move |number| format!("{group}{number}"));
    let groups = [1..=31, 32..=72, 92..=103, 104..=112, 161..=167];
    let complaints = groups.into_iter().flatten().map(|number| format!("pain {number}"));
    let reviews = [("R", 23), ("L", 22), ("K", 8), ("O", 25), ("D", 9)];
    let reviews = reviews.into_iter().flat_map(numbered);
    let wanted: Vec<String> = numbered(("W", 52)).chain(complaints).chain(reviews).collect();
    let rows = rows();
    let listed: Vec<&String> = rows.iter().map(|row| &row.row).collect();
    assert_eq!(listed, wanted.iter().collect::<Vec<_>>());
    let long: Vec<&str> = rows
        .iter()
        .map(|row| row.short.as_str())
        .filter(|short| short.split_whitespace().count() > 12)
        .collect();
    assert_eq!(long, Vec::<&str>::new());
    let torn: Vec<&str> = rows
        .iter()
        .filter(|row| row.words() > 1)
        .map(|row| row.row.as_str())
        .collect();
    assert_eq!(
        torn,
        Vec::<&str>::new(),
        "of `open`, `later` and `not ours` one at most"
    );
}
