//! What happens to a test whose tools this machine lacks: skipped, with a line nobody can overlook, or failed where
//! `MILLWRIGHT_REQUIRE_APISERVER=1` says that nothing may be skipped (CI).

use std::fmt::Display;
use std::io::Write as _;

/// Says that `what` is skipped because of `why`.
///
/// # Panics
/// Where nothing may be skipped.
pub fn skip(what: &str, why: impl Display) {
    assert!(!demanded(), "{what}: MILLWRIGHT_REQUIRE_APISERVER is set, but {why}");
    // Written past the capture of the test runner, which would hide it from a passing test.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: {what}\n***          {why}\n");
}

/// True where a missing tool is a failure.
#[must_use]
pub fn demanded() -> bool {
    std::env::var_os("MILLWRIGHT_REQUIRE_APISERVER").is_some_and(|value| !value.is_empty() && value != "0")
}
