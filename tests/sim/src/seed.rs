//! The first seed of whoever names none: each commit explores other seeds than the last, and the same ones each time.

use std::process::Command;

/// The variable that says it.
pub const VARIABLE: &str = "MILLWRIGHT_SEED";

/// What `MILLWRIGHT_SEED` says, else a number made of the commit that is checked out, else zero.
pub fn first() -> u64 {
    let said = std::env::var(VARIABLE).ok();
    let said = said.and_then(|text| text.trim().parse().ok());
    said.or_else(|| of_commit(&head()?)).unwrap_or(0)
}

fn head() -> Option<String> {
    let mut git = Command::new("git");
    let git = git.args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    String::from_utf8(git.output().ok()?.stdout).ok()
}

/// The first digits of a commit's name, which is a hash.
fn of_commit(name: &str) -> Option<u64> {
    u64::from_str_radix(name.trim().get(..8)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_a_seed_and_what_is_none_is_not() {
        assert_eq!(of_commit("e5baf4c0aa\n"), Some(0xe5ba_f4c0));
        assert_eq!(of_commit("fatal: not a git repository"), None);
        assert_eq!(of_commit(""), None);
    }
}
