//! Builds programs of a control plane from the Go modules in `tests/kubernetes`, once per target directory however many
//! processes ask, with lines on standard error that show it is alive. It may not decide which are needed.

use std::path::Path;
use std::process::Command;

use super::binaries::{FindError, workspace_root};
use crate::once::{OnceError, beside, made_once};
use crate::process::{self, say};

/// Pins of the control plane's programs. Compiled in, so that the name of a cache belongs to the sources this was built from.
const GO_MOD: &str = include_str!("../../../../tests/kubernetes/go.mod");
/// kwok has a module of its own: its dependencies would change those that kube-apiserver is built with.
const KWOK_MOD: &str = include_str!("../../../../tests/kubernetes/kwok/go.mod");
const KUBERNETES: &str = "k8s.io/kubernetes";
const ETCD: &str = "go.etcd.io/etcd/server/v3";
const KWOK: &str = "sigs.k8s.io/kwok";
const WHO: &str = "apiserver";

/// Programs that are built together and kept in one directory.
pub(super) struct Build {
    /// For people, who wait for it.
    pub(super) programs: &'static str,
    pub(super) minutes: u32,
    /// What is pinned, as a directory name.
    pub(super) version: String,
    modules: Vec<Module>,
    /// Go names a program after its package's last directory; what is to bear another name.
    renamed: &'static [(&'static str, &'static str)],
}

/// Packages of one Go module of ours.
struct Module {
    /// Below the checkout.
    dir: &'static str,
    packages: Vec<String>,
    ldflags: String,
}

/// kube-apiserver and etcd.
pub(super) fn control_plane() -> Build {
    let packages = vec![format!("{KUBERNETES}/cmd/kube-apiserver"), ETCD.to_owned()];
    Build {
        programs: "kube-apiserver and etcd",
        minutes: 4,
        version: format!("{}-etcd-{}", pinned(GO_MOD, KUBERNETES), pinned(GO_MOD, ETCD)),
        modules: vec![of_kubernetes(packages)],
        renamed: &[("server", "etcd")],
    }
}

/// kube-controller-manager, kube-scheduler and kwok.
pub(super) fn controllers() -> Build {
    let packages = ["kube-controller-manager", "kube-scheduler"];
    let packages = packages.map(|name| format!("{KUBERNETES}/cmd/{name}"));
    let kwok = Module {
        dir: "tests/kubernetes/kwok",
        packages: vec![format!("{KWOK}/cmd/kwok")],
        ldflags: "-s -w".to_owned(),
    };
    Build {
        programs: "kube-controller-manager, kube-scheduler and kwok",
        minutes: 5,
        version: format!("{}-kwok-{}", pinned(GO_MOD, KUBERNETES), pinned(KWOK_MOD, KWOK)),
        modules: vec![of_kubernetes(packages.into()), kwok],
        renamed: &[],
    }
}

fn of_kubernetes(packages: Vec<String>) -> Module {
    let version = pinned(GO_MOD, KUBERNETES);
    Module {
        dir: "tests/kubernetes",
        packages,
        ldflags: format!("-s -w -X k8s.io/component-base/version.gitVersion={version}"),
    }
}

/// The version of a module in a go.mod of ours.
fn pinned(go_mod: &'static str, module: &str) -> &'static str {
    go_mod
        .lines()
        .filter_map(|line| line.trim().strip_prefix(module)?.strip_prefix(' '))
        .find_map(|rest| rest.split_whitespace().next().filter(|word| word.starts_with('v')))
        .expect("go.mod, which is compiled in, pins the module; a test reads it")
}

impl Build {
    /// Builds into `cache`, or waits for the process that is at it.
    pub(super) fn run(&self, cache: &Path) -> Result<(), FindError> {
        let go = process::on_path("go").ok_or_else(|| FindError::NoGo {
            programs: self.programs,
            cache: cache.to_owned(),
        })?;
        let made = made_once(cache, |staging| self.make(&go, staging, &beside(cache, "log")));
        made.map_err(|error| match error {
            OnceError::Io { doing, error } => io(doing, error),
            OnceError::Make(error) => error,
        })
    }

    fn make(&self, go: &Path, staging: &Path, log: &Path) -> Result<(), FindError> {
        let (programs, version, minutes) = (self.programs, &self.version, self.minutes);
        say(
            WHO,
            &format!("building {programs} ({version}) with Go, once: about {minutes} minutes on 2 cores"),
        );
        for module in &self.modules {
            self.run_go(go, module, staging, log)?;
        }
        for (named, wanted) in self.renamed {
            let named = staging.join(named);
            std::fs::rename(&named, staging.join(wanted))
                .map_err(|error| io(format!("rename {}", named.display()), error))?;
        }
        say(WHO, "built, and kept for the next time");
        Ok(())
    }

    fn run_go(&self, go: &Path, module: &Module, out: &Path, log: &Path) -> Result<(), FindError> {
        let mut build = Command::new(go);
        build
            .current_dir(workspace_root().join(module.dir))
            .env("CGO_ENABLED", "0") // no C compiler needed
            .env("GOFLAGS", "-mod=readonly -trimpath")
            .args(["build", "-v", "-ldflags", &module.ldflags, "-o"])
            .arg(out)
            .args(&module.packages);
        let status = process::run_long(build, log, |elapsed| {
            let packages = std::fs::read_to_string(log).map_or(0, |text| text.lines().count());
            let what = module.packages.join(" and ");
            say(
                WHO,
                &format!(
                    "building {what} for {} s, {packages} packages so far",
                    elapsed.as_secs()
                ),
            );
        })
        .map_err(|error| {
            io(
                format!("run {} with its output in {}", go.display(), log.display()),
                error,
            )
        })?;
        if status.success() {
            return Ok(());
        }
        Err(FindError::Build {
            programs: self.programs,
            status,
            log: log.to_owned(),
            tail: process::tail(log, 20),
        })
    }
}

fn io(doing: String, error: std::io::Error) -> FindError {
    FindError::Io { doing, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_named_after_all_pins_of_its_programs() {
        let (kubernetes, etcd, kwok) = (pinned(GO_MOD, KUBERNETES), pinned(GO_MOD, ETCD), pinned(KWOK_MOD, KWOK));
        assert!(kubernetes.starts_with("v1.") && etcd.starts_with("v3.") && kwok.starts_with("v0."));
        assert_eq!(control_plane().version, format!("{kubernetes}-etcd-{etcd}"));
        assert_eq!(controllers().version, format!("{kubernetes}-kwok-{kwok}"));
    }
}
