//! How much of what can be generated is tried, and which part of it. The only place that reads `MILLWRIGHT_LONG` and
//! `MILLWRIGHT_SEED`; `tests/long` sets the first.
//!
//! An ordinary run takes a sample, drawn from a seed that the commit gives: every commit tries another part, and trying
//! a commit again tries the same. The long suite takes everything.

use std::process::Command;

use millwright_dev::apiserver::binaries::workspace_root;

/// Digits of the commit's name that make the seed: 48 bits, so that counting on from it never overflows.
const DIGITS: usize = 12;

/// True in the long suite.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("MILLWRIGHT_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// `MILLWRIGHT_SEED`, else a number made of the commit's name. Printed with `what` it is drawn for and how to have it again.
///
/// # Panics
/// The variable is no number, or the checkout has no commit.
#[must_use]
pub fn seed(what: &str) -> u64 {
    let seed = match std::env::var("MILLWRIGHT_SEED") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("MILLWRIGHT_SEED={text}: {error}")),
        Err(_) => of_commit(),
    };
    println!("{what}: again with MILLWRIGHT_SEED={seed}");
    seed
}

fn of_commit() -> u64 {
    let asked = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(workspace_root())
        .output();
    let name = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let name = name.unwrap_or_default();
    let seed = name.get(..DIGITS).map(|digits| u64::from_str_radix(digits, 16));
    match seed {
        Some(Ok(seed)) => seed,
        Some(Err(_)) | None => panic!("no seed: this is no git checkout with a commit, so say MILLWRIGHT_SEED=NUMBER"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_gives_the_same_seed_each_time() {
        assert_eq!(of_commit(), of_commit());
        assert!(of_commit() < 1 << 48);
    }
}
