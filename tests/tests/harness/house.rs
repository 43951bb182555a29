//! What the sources may not have, and the lists of what they still have, in `tests/exceptions`: a list may only shrink. A new fault fails
//! here, and so does an exception that is not needed any more. `MILLWRIGHT_WRITE_EXCEPTIONS=1` writes the lists anew.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use millwright_dev::apiserver::binaries::workspace_root;

/// Longest golden file: a longer one is compared by nobody.
const LONGEST_GOLDEN: usize = 400;

/// Turns of speech that readers stumbled over.
const WORDS: [&str; 12] = [
    "whoever",
    "nobody's",
    "befall",
    "lest ",
    "of whom",
    "of which",
    "gives whether",
    "somebody's",
    "whose every",
    "for good",
    "by halves",
    "all the same",
];

/// The files that Git knows, from the root.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .current_dir(workspace_root())
        .arg("ls-files")
        .output()
        .expect("git can be run");
    let text = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let is_there = |path: &&str| workspace_root().join(path).is_file();
    text.lines().filter(is_there).map(str::to_owned).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace_root().join(path)).expect("a source is text")
}

fn sources() -> impl Iterator<Item = String> {
    let is_ours = |path: &String| path.ends_with(".rs") && !path.ends_with("tests/harness/house.rs");
    files().into_iter().filter(is_ours)
}

/// Compares what was found with the list of that name: a fault and how often it is there.
fn compare(list: &str, found: &BTreeMap<String, usize>) {
    let path = workspace_root().join("tests/exceptions").join(list);
    if std::env::var_os("MILLWRIGHT_WRITE_EXCEPTIONS").is_some() {
        let text: String = found
            .iter()
            .map(|(fault, count)| format!("{count} {fault}\n"))
            .collect();
        std::fs::write(&path, text).expect("the list can be written");
        return;
    }
    let text = std::fs::read_to_string(&path).expect("the list is in the checkout");
    let excepted: BTreeMap<String, usize> = text
        .lines()
        .map(|line| line.split_once(' ').expect("a number and a fault"))
        .map(|(count, fault)| (fault.to_owned(), count.parse().expect("a number")))
        .collect();
    let count = |of: &BTreeMap<String, usize>, fault: &String| of.get(fault).copied().unwrap_or(0);
    let all: BTreeSet<&String> = found.keys().chain(excepted.keys()).collect();
    let differs = |fault: &&String| count(found, fault) != count(&excepted, fault);
    let told: Vec<String> = all
        .into_iter()
        .filter(differs)
        .map(|fault| {
            format!(
                "{fault}: {} found, {} in the list",
                count(found, fault),
                count(&excepted, fault)
            )
        })
        .collect();
    let how = "mend what is new; where there is less than before, lower the number in";
    assert!(told.is_empty(), "{how} {}: {told:#?}", path.display());
}

#[test]
fn pages_that_sources_name_are_in_the_repository() {
    let all = files();
    let is_there = |page: &str| {
        all.iter()
            .any(|path| *path == page || path.ends_with(&format!("/{page}")))
    };
    let mut found = BTreeMap::new();
    for path in files()
        .into_iter()
        .filter(|path| path.ends_with(".rs") || path.ends_with(".proto"))
    {
        for page in read(&path).split(|letter: char| !letter.is_ascii_alphanumeric() && !"._-/".contains(letter)) {
            let page = page.trim_start_matches(['.', '/']);
            if page.len() > 3 && page.ends_with(".md") && !is_there(page) {
                *found.entry(format!("{path} names {page}")).or_default() += 1;
            }
        }
    }
    compare("pages.txt", &found);
}

#[test]
fn golden_files_are_short_enough_to_be_read() {
    let is_golden =
        |path: &String| path.contains("/tests/") && [".golden", ".session"].iter().any(|end| path.ends_with(end));
    let lines = |path: String| (read(&path).lines().count(), path);
    let long = files()
        .into_iter()
        .filter(is_golden)
        .map(lines)
        .filter(|(lines, _)| *lines > LONGEST_GOLDEN);
    compare("goldens.txt", &long.map(|(lines, path)| (path, lines)).collect());
}

#[test]
fn sources_are_written_in_plain_words() {
    let mut found = BTreeMap::new();
    for path in sources() {
        let text = read(&path).to_lowercase();
        for word in WORDS {
            let count = text.matches(word).count();
            if count > 0 {
                *found.entry(format!("{} in {path}", word.trim_end())).or_default() += count;
            }
        }
    }
    compare("words.txt", &found);
}

/// Files of one crate that name each other in a circle, and do not lie in one folder.
#[test]
fn no_files_of_different_folders_use_each_other_in_a_circle() {
    let mut crates: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for path in sources() {
        let Some((root, _)) = path.split_once("/src/") else {
            continue;
        };
        crates.entry(format!("{root}/src").into()).or_default().insert(path);
    }
    let mut found = BTreeMap::new();
    for (root, files) in crates {
        let uses: BTreeMap<&String, BTreeSet<String>> =
            files.iter().map(|file| (file, used_by(&root, file, &files))).collect();
        let reached: BTreeMap<&String, BTreeSet<&String>> =
            files.iter().map(|file| (file, reach(file, &uses))).collect();
        for file in &files {
            let elsewhere = |other: &&&String| folder(file) != folder(other) && reached[**other].contains(file);
            if reached[file].iter().any(|other| elsewhere(&other)) {
                found.insert(file.clone(), 1);
            }
        }
    }
    compare("circles.txt", &found);
}

/// The folder whose module a file belongs to: `a.rs` is the head of `a/`.
fn folder(path: &str) -> &str {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    match workspace_root().join(path).is_dir() {
        true => path,
        false => path.rsplit_once('/').map_or("", |(folder, _)| folder),
    }
}

fn reach<'a>(from: &'a String, uses: &'a BTreeMap<&'a String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        for used in &uses[file] {
            if reached.insert(used) {
                next.push(used);
            }
        }
    }
    reached
}

/// The files of its crate that a file names by `crate::` or `super::`. Its tests do not count, nor do comments.
fn used_by(root: &Path, file: &str, files: &BTreeSet<String>) -> BTreeSet<String> {
    let text = read(file);
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let own = module(root, file);
    let mut used = BTreeSet::new();
    for (start, base) in [("crate::", Vec::new()), ("super::", parent(&own))] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':') {
                continue;
            }
            for path in paths(&code[at + start.len()..]) {
                let full = path.iter().fold(base.clone(), |full, part| match part.as_str() {
                    "super" => parent(&full),
                    "self" => full,
                    part => full.into_iter().chain([part.to_owned()]).collect(),
                });
                used.extend(file_of(root, &full, files).filter(|used| used != file));
            }
        }
    }
    used
}

fn module(root: &Path, file: &str) -> Vec<String> {
    let path = Path::new(file).strip_prefix(root).unwrap().with_extension("");
    let parts = path.iter().map(|part| part.to_str().unwrap().to_owned());
    parts.filter(|part| !["lib", "main"].contains(&part.as_str())).collect()
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}

/// The file of the longest part of a path that is a module. The root says nothing: everything is below it.
fn file_of(root: &Path, path: &[String], files: &BTreeSet<String>) -> Option<String> {
    let candidates = (1..=path.len())
        .rev()
        .map(|length| format!("{}/{}.rs", root.display(), path[..length].join("/")));
    candidates.into_iter().find(|candidate| files.contains(candidate))
}

/// The paths that begin here: `a::b`, and each of `a::{b, c::d}`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let end = code
        .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .unwrap_or(code.len());
    let (name, rest) = (code[..end].to_owned(), &code[end..]);
    if name.is_empty() && rest.starts_with('{') {
        return group(&rest[1..]).into_iter().flat_map(paths).collect();
    }
    match rest.strip_prefix("::") {
        None => vec![vec![name]],
        Some(rest) => {
            let below = paths(rest);
            below
                .into_iter()
                .map(|path| [name.clone()].into_iter().chain(path).collect())
                .collect()
        }
    }
}

/// The items between two braces, the first of which is behind us.
fn group(code: &str) -> Vec<&str> {
    let (mut items, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, letter) in code.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                items.push(code[from..at].trim());
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(code[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    items
}
