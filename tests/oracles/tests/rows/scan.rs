//! Reads from the sources which test names which rows. Knows lines, not Rust.

use std::path::{Path, PathBuf};

/// Where tests are.
const FOLDERS: [&str; 5] = ["controller", "proto", "provider-sdk", "providers", "tests"];

/// What names a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Test,
    Story,
    Bug,
}

/// One test names one row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub row: String,
    pub kind: Kind,
    pub name: String,
    /// From the root of the repository.
    pub file: String,
}

/// All marks, by row, kind and name.
pub fn marks(root: &Path) -> Vec<Mark> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        gather(&root.join(folder), &mut files);
    }
    let mut marks: Vec<Mark> = files.iter().flat_map(|path| of_file(root, path)).collect();
    marks.sort();
    marks
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().unwrap_or_default();
        if path.is_dir() && !path.ends_with("target") {
            gather(&path, files);
        } else if extension == "rs" || extension == "txt" {
            files.push(path);
        }
    }
}

fn of_file(root: &Path, path: &Path) -> Vec<Mark> {
    let file = path.strip_prefix(root).unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let named: Vec<(Kind, String, String)> = if file.starts_with("tests/sim/src/zoo/") {
        bugs(&text)
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        tests(file, &text)
    } else {
        story(path, &text)
    };
    let mark = |(kind, name, row)| Mark {
        row,
        kind,
        name,
        file: file.to_owned(),
    };
    named.into_iter().map(mark).collect()
}

/// The rows of a list such as `W13, L4, pains 49, 57.`
fn list(text: &str) -> impl Iterator<Item = String> {
    let items = text.trim_end_matches('.').split(", ").filter(|item| *item != "-");
    items.map(|item| {
        let number = item
            .strip_prefix("pains ")
            .or_else(|| item.strip_prefix("pain "))
            .unwrap_or(item);
        if number.starts_with(|first: char| first.is_ascii_uppercase()) {
            number.to_owned()
        } else {
            format!("pain {number}")
        }
    })
}

fn bugs(text: &str) -> Vec<(Kind, String, String)> {
    let field = |line: &str, field: &str| {
        let value = line
            .trim()
            .strip_prefix(field)?
            .strip_prefix(": \"")?
            .strip_suffix("\",")?;
        Some(value.to_owned())
    };
    let names = text.lines().filter_map(|line| field(line, "name"));
    let rows = text.lines().filter_map(|line| field(line, "rows"));
    names
        .zip(rows)
        .flat_map(|(name, rows)| {
            list(&rows)
                .map(|row| (Kind::Bug, name.clone(), row))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn tests(file: &str, text: &str) -> Vec<(Kind, String, String)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let marked = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((at, line.strip_prefix("/// Rows: ")?)));
    marked
        .flat_map(|(at, rows)| {
            let below = lines.iter().skip(at).take_while(|line| !line.is_empty());
            let mut head = below.skip_while(|line| !line.starts_with("#[test]") && !line.starts_with("#[tokio::test"));
            let name = head.find_map(|line| {
                line.strip_prefix("async ")
                    .unwrap_or(line)
                    .strip_prefix("fn ")?
                    .split('(')
                    .next()
            });
            let name = name.unwrap_or_else(|| panic!("{file}:{}: no test stands below `Rows:`", at + 1));
            list(rows)
                .map(|row| (Kind::Test, name.to_owned(), row))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn story(path: &Path, text: &str) -> Vec<(Kind, String, String)> {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let marked = text.lines().filter_map(|line| line.strip_prefix("# Rows: "));
    marked
        .flat_map(list)
        .map(|row| (Kind::Story, name.to_owned(), row))
        .collect()
}
