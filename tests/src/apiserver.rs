//! Control planes for tests: those of `millwright_dev::apiserver` with the token that `bench/measure.py` expects, under
//! the rule for machines without Go. It may not start anything else.

use std::path::{Path, PathBuf};

use millwright_dev::apiserver::{ControlPlane, Settings, StartError, binaries};
use serde_json::Value;

use crate::requirement;

/// The bearer token of every test's control plane.
pub const ADMIN_TOKEN: &str = "admintoken";
/// Where [`start_recorded`] has the record, in the plane's directory.
pub const AUDIT_LOG: &str = "audit.log";

/// An empty control plane, or `None` after saying that `what` is skipped because this machine has no API server and
/// cannot build one.
///
/// # Panics
/// The control plane does not start, or is missing where it is demanded.
pub async fn start(what: &str) -> Option<ControlPlane> {
    start_with(what, Settings::default().flags).await
}

/// [`start`], with a record of all requests (`audit.log` in the plane's directory) and no admission plugin but Kubernetes' own.
///
/// # Panics
/// As `start`.
pub async fn start_recorded(what: &str) -> Option<ControlPlane> {
    let policy = binaries::workspace_root().join("tests/kubernetes/audit.yaml");
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={AUDIT_LOG}"),
    ];
    start_with(what, flags.into()).await
}

async fn start_with(what: &str, flags: Vec<String>) -> Option<ControlPlane> {
    match ControlPlane::start_with(Settings {
        admin_token: ADMIN_TOKEN.to_owned(),
        flags,
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

/// The shipped definitions, each changed, in a folder of that name.
///
/// # Panics
/// The folder cannot be written.
pub fn changed_crds(dir: &Path, name: &str, change: impl Fn(&mut Value)) -> PathBuf {
    let changed = dir.join(name);
    std::fs::create_dir_all(&changed).expect("a folder can be made");
    for entry in std::fs::read_dir(crds()).expect("the definitions are in the checkout") {
        let file = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&file).expect("a definition is text");
        let mut definition: Value = serde_saphyr::from_str(&text).expect("a definition is YAML");
        change(&mut definition);
        let to = changed.join(file.file_name().expect("a file has a name"));
        std::fs::write(to, definition.to_string()).expect("the folder can be written");
    }
    changed
}
