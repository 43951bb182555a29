//! What happens to a test on a machine that cannot have real nodes: skipped, with a line that cannot be overlooked, or failed
//! where `MILLWRIGHT_REQUIRE_NODE=1` says that nothing may be skipped (CI). A sister of `millwright_tests::requirement`, with
//! a variable of its own: a control plane needs Go, real nodes need root as well.

use std::fmt::Display;
use std::io::Write as _;

use crate::{Cluster, Kit};

/// What clusters are made of, or `None` after saying that `what` is skipped because this machine cannot have one.
///
/// # Panics
/// It cannot be made, or this machine lacks something where nothing may be skipped.
#[must_use]
pub fn kit(what: &str) -> Option<Kit> {
    match Kit::find() {
        Ok(kit) => Some(kit),
        Err(error) if error.is_absence() => {
            skip(what, error);
            None
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// A cluster without nodes, or `None` as [`kit`].
///
/// # Panics
/// As `kit`, or the cluster does not start.
#[must_use]
pub fn start(what: &str) -> Option<Cluster> {
    let kit = kit(what)?;
    Some(Cluster::start(&kit).unwrap_or_else(|error| panic!("{what}: {error}")))
}

/// Says that `what` is skipped because of `why`.
///
/// # Panics
/// Where nothing may be skipped.
pub fn skip(what: &str, why: impl Display) {
    let demanded = std::env::var_os("MILLWRIGHT_REQUIRE_NODE").is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!demanded, "{what}: MILLWRIGHT_REQUIRE_NODE is set, but {why}");
    // Written past the capture of the test runner, which would hide it from a passing test.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: {what}\n***          {why}\n");
}
