//! Builds kube-apiserver and etcd from the Go module `tests/kubernetes`, once per target directory however many
//! processes ask, with lines on standard error that show it is alive. It may not decide whether they are needed.

use std::path::Path;
use std::process::Command;

use super::binaries::{Binaries, FindError, built_in, workspace_root};
use crate::once::{OnceError, beside, made_once};
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
    let made = made_once(cache, |staging| {
        run_go(&go, staging, &beside(cache, "log"))?;
        // Go names a program after its package's last directory.
        let (named, wanted) = (staging.join("server"), staging.join("etcd"));
        std::fs::rename(&named, &wanted).map_err(|error| io(format!("rename {}", named.display()), error))
    });
    made.map_err(|error| match error {
        OnceError::Io { doing, error } => io(doing, error),
        OnceError::Make(error) => error,
    })?;
    built_in(cache).ok_or_else(|| {
        io(
            format!("use {}, which is incomplete; remove it", cache.display()),
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
    say(WHO, "built, and kept for the next time");
    Ok(())
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
