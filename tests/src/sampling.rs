//! How much of what can be generated is tried, and which part of it. The only place that reads `MILLWRIGHT_LONG` and
//! `MILLWRIGHT_SEED`; `tests/long` sets the first.
//!
//! An ordinary run takes a sample, drawn from a seed that the commit gives: every commit tries another part, and trying
//! a commit again tries the same. The long suite takes everything.

use std::process::Command;

use millwright_dev::apiserver::binaries::workspace_root;

/// Digits of the commit's name that make the seed: the simulator's seed is made of as many, so that one number has both again.
const DIGITS: usize = 8;

/// True in the long suite.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("MILLWRIGHT_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// `MILLWRIGHT_SEED`, else a number made of the commit's name, else zero, where the sources are no checkout. Printed with
/// `what` it is drawn for and how to have it again.
///
/// # Panics
/// The variable is no number.
#[must_use]
pub fn seed(what: &str) -> u64 {
    let seed = match std::env::var("MILLWRIGHT_SEED") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("MILLWRIGHT_SEED={text}: {error}")),
        Err(_) => of_commit(&head()).unwrap_or(0),
    };
    println!("{what}: again with MILLWRIGHT_SEED={seed}");
    seed
}

/// The name of the commit that is checked out; empty where there is none.
fn head() -> String {
    let asked = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(workspace_root())
        .output();
    asked.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn of_commit(name: &str) -> Option<u64> {
    u64::from_str_radix(name.get(..DIGITS)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_gives_a_seed_of_its_own_and_what_is_none_gives_none() {
        assert_eq!(of_commit("e5baf4c0aa\n"), Some(0xe5ba_f4c0));
        assert_eq!(of_commit("e5baf4c1aa\n"), Some(0xe5ba_f4c1));
        assert_eq!(of_commit(""), None);
        assert_eq!(of_commit("no checkout"), None);
    }
}
