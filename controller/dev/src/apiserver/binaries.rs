//! Decides which kube-apiserver and etcd are used: named by the environment, on PATH, built earlier, or built now. The
//! controllers of a whole cluster are always built, because their version has to be the API server's.
//! It may not start them.

use std::path::{Path, PathBuf};

use super::build::{self, Build};
use crate::process;

/// The two programs of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    pub kube_apiserver: PathBuf,
    pub etcd: PathBuf,
}

/// Why there is no API server to start.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{variable} names {path}, which is not an executable file", path = .path.display())]
    Named { variable: &'static str, path: PathBuf },
    #[error(
        "no {programs} in {cache}, on PATH or by a variable of the environment (README.md), and no Go (https://go.dev/dl) on \
         PATH to build them with",
        cache = .cache.display()
    )]
    NoGo { programs: &'static str, cache: PathBuf },
    #[error("building {programs} failed ({status}); the end of {log}:\n{tail}", log = .log.display())]
    Build {
        programs: &'static str,
        status: std::process::ExitStatus,
        log: PathBuf,
        tail: String,
    },
    #[error("cannot {doing}")]
    Io {
        doing: String,
        #[source]
        error: std::io::Error,
    },
}

impl FindError {
    /// True when this machine simply lacks what is needed, so that a test may be skipped. A build that fails or a
    /// variable that names nothing is a mistake that has to be seen.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NoGo { .. } => true,
            Self::Named { .. } | Self::Build { .. } | Self::Io { .. } => false,
        }
    }
}

/// Finds both programs, and builds them (minutes, with lines on standard error) where they were never built.
///
/// # Errors
/// They are nowhere and cannot be built, or the environment names something that cannot be executed.
pub fn find() -> Result<Binaries, FindError> {
    if let Some(named) = named_by_environment()? {
        return Ok(named);
    }
    if let (Some(kube_apiserver), Some(etcd)) = (process::on_path("kube-apiserver"), process::on_path("etcd")) {
        return Ok(Binaries { kube_apiserver, etcd });
    }
    let [kube_apiserver, etcd] = built(&build::control_plane(), ["kube-apiserver", "etcd"])?;
    Ok(Binaries { kube_apiserver, etcd })
}

/// What makes a cluster of a control plane: the controllers of Deployments and their like, the scheduler, and kwok, which
/// plays the kubelet's part in the life of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers {
    pub kube_controller_manager: PathBuf,
    pub kube_scheduler: PathBuf,
    pub kwok: PathBuf,
}

/// Finds the programs that were built, or builds them (minutes, with lines on standard error). Only what needs a whole
/// cluster asks for them.
///
/// # Errors
/// They are not built and cannot be.
pub fn find_controllers() -> Result<Controllers, FindError> {
    let names = ["kube-controller-manager", "kube-scheduler", "kwok"];
    let [kube_controller_manager, kube_scheduler, kwok] = built(&build::controllers(), names)?;
    Ok(Controllers {
        kube_controller_manager,
        kube_scheduler,
        kwok,
    })
}

/// Programs in `target/kubernetes/<version>`, built if they are not there: a new pin in a Go module never meets an old build.
fn built<const N: usize>(build: &Build, names: [&str; N]) -> Result<[PathBuf; N], FindError> {
    let cache = target_dir().join("kubernetes").join(&build.version);
    let programs = names.map(|name| cache.join(name));
    let is_complete = || programs.iter().all(|program| process::is_executable(program));
    if is_complete() {
        return Ok(programs);
    }
    build.run(&cache)?;
    if is_complete() {
        return Ok(programs);
    }
    Err(FindError::Io {
        doing: format!("use {}, which is incomplete; remove it", cache.display()),
        error: std::io::ErrorKind::NotFound.into(),
    })
}

/// Cargo's target directory: the one this program was built into, because a target directory may be set in many ways.
#[must_use]
pub fn target_dir() -> PathBuf {
    if let Some(named) = std::env::var_os("CARGO_TARGET_DIR") {
        return PathBuf::from(named);
    }
    let ours = std::env::current_exe().ok();
    let above = ours
        .iter()
        .flat_map(|exe| exe.ancestors())
        .find(|dir| dir.join("CACHEDIR.TAG").is_file());
    above.map_or_else(|| workspace_root().join("target"), Path::to_owned)
}

/// The checkout this was built from.
#[must_use]
pub fn workspace_root() -> &'static Path {
    let dev = Path::new(env!("CARGO_MANIFEST_DIR"));
    dev.ancestors()
        .nth(2)
        .expect("controller/dev is two levels below the root")
}

fn named_by_environment() -> Result<Option<Binaries>, FindError> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let pick = |variables: [&'static str; 2], file: &str| -> Result<Option<PathBuf>, FindError> {
        for variable in variables {
            if let Some(path) = std::env::var_os(variable).map(PathBuf::from) {
                return executable(variable, path).map(Some);
            }
        }
        assets
            .as_ref()
            .map(|dir| executable("KUBEBUILDER_ASSETS", dir.join(file)))
            .transpose()
    };
    let kube_apiserver = pick(
        ["MILLWRIGHT_KUBE_APISERVER", "TEST_ASSET_KUBE_APISERVER"],
        "kube-apiserver",
    )?;
    let etcd = pick(["MILLWRIGHT_ETCD", "TEST_ASSET_ETCD"], "etcd")?;
    Ok(kube_apiserver
        .zip(etcd)
        .map(|(kube_apiserver, etcd)| Binaries { kube_apiserver, etcd }))
}

fn executable(variable: &'static str, path: PathBuf) -> Result<PathBuf, FindError> {
    if process::is_executable(&path) {
        Ok(path)
    } else {
        Err(FindError::Named { variable, path })
    }
}
