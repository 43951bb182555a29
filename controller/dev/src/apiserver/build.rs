//! Builds kube-apiserver and etcd from the Go module `tests/kubernetes`, once per target directory however many
//! processes ask, with lines on standard error that show it is alive. It may not decide whether they are needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::binaries::{Binaries, FindError, built_in, workspace_root};
use crate::process::{self, say};

/// Pins of both programs. Compiled in, so that the name of the cache belongs to the sources this was built from.
const GO_MOD: &str = include_str!("../../../../tests/kubernetes/go.mod");
const APISERVER: &str = "k8s.io/kubernetes";
const ETCD: &str = "go.etcd.io/etcd/server/v3";
const WHO: &str = "apiserver";

/// What is pinned, as a directory name.
pub(super) fn version() -> String {
    format!("{}-etcd-{}", pinned(APISERVER), pinned(ETCD))
}

/// The version of a module in our go.mod.
fn pinned(module: &str) -> &'static str {
    GO_MOD
        .lines()
        .filter_map(|line| line.trim().strip_prefix(module)?.strip_prefix(' '))
        .find_map(|rest| rest.split_whitespace().next().filter(|word| word.starts_with('v')))
        .expect("go.mod, which is compiled in, pins both modules; a test reads it")
}

/// Builds into `cache`, or waits for the process that is at it.
pub(super) fn build(cache: &Path) -> Result<Binaries, FindError> {
    let go = process::on_path("go").ok_or_else(|| FindError::NoGo {
        cache: cache.to_owned(),
    })?;
    let lock = beside(cache, "lock");
    let waiting = || {
        say(
            WHO,
            "another process is building kube-apiserver and etcd; waiting for it",
        )
    };
    let _lock = process::locked(&lock, waiting).map_err(|error| io(format!("lock {}", lock.display()), error))?;
    if let Some(built) = built_in(cache) {
        return Ok(built);
    }
    let staging = beside(cache, "building");
    make_empty(&staging)?;
    run_go(&go, &staging, &beside(cache, "log"))?;
    // Go names a program after its package's last directory.
    rename(&staging.join("server"), &staging.join("etcd"))?;
    if cache.exists() {
        remove(cache)?; // half of a build that somebody cut short or took apart
    }
    rename(&staging, cache)?;
    built_in(cache).ok_or_else(|| {
        io(
            format!("find the programs in {}", cache.display()),
            std::io::ErrorKind::NotFound.into(),
        )
    })
}

fn run_go(go: &Path, out: &Path, log: &Path) -> Result<(), FindError> {
    let version = pinned(APISERVER);
    let mut build = Command::new(go);
    build
        .current_dir(workspace_root().join("tests/kubernetes"))
        .env("CGO_ENABLED", "0") // no C compiler needed
        .env("GOFLAGS", "-mod=readonly -trimpath")
        .args(["build", "-v", "-ldflags"])
        .arg(format!("-s -w -X k8s.io/component-base/version.gitVersion={version}"))
        .arg("-o")
        .arg(out)
        .args([format!("{APISERVER}/cmd/kube-apiserver"), ETCD.to_owned()]);
    let etcd = pinned(ETCD);
    say(
        WHO,
        &format!("building kube-apiserver {version} and etcd {etcd} with Go, once: about 4 minutes on 2 cores"),
    );
    let status = process::run_long(build, log, |elapsed| {
        let packages = std::fs::read_to_string(log).map_or(0, |text| text.lines().count());
        say(
            WHO,
            &format!("building for {} s, {packages} packages so far", elapsed.as_secs()),
        );
    })
    .map_err(|error| {
        io(
            format!("run {} with its output in {}", go.display(), log.display()),
            error,
        )
    })?;
    if !status.success() {
        return Err(FindError::Build {
            status,
            log: log.to_owned(),
            tail: process::tail(log, 20),
        });
    }
    say(WHO, &format!("built, and kept in {}", out.with_extension("").display()));
    Ok(())
}

/// `<cache>.<what>`; `with_extension` would cut the last number of the version.
fn beside(cache: &Path, what: &str) -> PathBuf {
    let mut name = cache.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

fn make_empty(dir: &Path) -> Result<(), FindError> {
    if dir.exists() {
        remove(dir)?;
    }
    std::fs::create_dir_all(dir).map_err(|error| io(format!("make {}", dir.display()), error))
}

fn remove(dir: &Path) -> Result<(), FindError> {
    std::fs::remove_dir_all(dir).map_err(|error| io(format!("remove {}", dir.display()), error))
}

fn rename(from: &Path, to: &Path) -> Result<(), FindError> {
    std::fs::rename(from, to).map_err(|error| io(format!("rename {} to {}", from.display(), to.display()), error))
}

fn io(doing: String, error: std::io::Error) -> FindError {
    FindError::Io { doing, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_named_after_both_pins() {
        assert_eq!(version(), format!("{}-etcd-{}", pinned(APISERVER), pinned(ETCD)));
        assert!(
            version().starts_with("v1.") && version().contains("-etcd-v3."),
            "{}",
            version()
        );
    }
}
