//! How much of what can be generated is tried, and which part of it. The only place that reads `MILLWRIGHT_LONG` and
//! `MILLWRIGHT_SEED`; `tests/long` sets the first.
//!
//! An ordinary run takes a sample, drawn from a seed that the commit gives: every commit tries another part, and trying
//! a commit again tries the same. The long suite takes everything.

use std::process::Command;
use std::time::Duration;

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

/// Numbers drawn from a seed, the same everywhere: splitmix64, which instants and sizes need no better than.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The numbers of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end
    }

    /// A time below `end`, to the millisecond.
    pub fn time_below(&mut self, end: Duration) -> Duration {
        let millis = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.below(millis.max(1)))
    }
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
    fn a_seed_draws_the_same_numbers_again_and_another_one_others() {
        let of = |seed| {
            let mut draw = Draw::of(seed);
            [0; 5].map(|_: u64| draw.below(1000))
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert!(Draw::of(7).time_below(Duration::from_millis(3)) < Duration::from_millis(3));
    }

    #[test]
    fn each_commit_gives_a_seed_of_its_own_and_what_is_none_gives_none() {
        assert_eq!(of_commit("e5baf4c0aa\n"), Some(0xe5ba_f4c0));
        assert_eq!(of_commit("e5baf4c1aa\n"), Some(0xe5ba_f4c1));
        assert_eq!(of_commit(""), None);
        assert_eq!(of_commit("no checkout"), None);
    }
}
