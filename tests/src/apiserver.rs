//! Control planes for tests: those of `millwright_dev::apiserver` with the token that `bench/measure.py` expects, under
//! the rule of architecture.md §5 for machines without Go. It may not start anything else.

use std::path::PathBuf;

use millwright_dev::apiserver::{ControlPlane, Settings, StartError, binaries};

use crate::requirement;

/// The bearer token of every test's control plane.
pub const ADMIN_TOKEN: &str = "admintoken";

/// An empty control plane, or `None` after saying that `what` is skipped because this machine has no API server and
/// cannot build one.
///
/// # Panics
/// The control plane does not start, or is missing where it is demanded.
pub async fn start(what: &str) -> Option<ControlPlane> {
    match ControlPlane::start_with(Settings {
        admin_token: ADMIN_TOKEN.to_owned(),
    })
    .await
    {
        Ok(plane) => Some(plane),
        Err(StartError::Find(error)) if error.is_absence() => {
            requirement::skip(what, error);
            None
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// [`start`], with our CRDs installed.
///
/// # Panics
/// As `start`, or the API server refuses a CRD.
pub async fn start_with_crds(what: &str) -> Option<ControlPlane> {
    let plane = start(what).await?;
    match plane.install_crds(&crds()).await {
        Ok(()) => Some(plane),
        Err(error) => panic!("{what}: {error}"),
    }
}

/// `deploy/crds` of this checkout.
#[must_use]
pub fn crds() -> PathBuf {
    binaries::workspace_root().join("deploy/crds")
}
