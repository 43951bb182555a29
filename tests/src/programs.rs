//! Our own programs, built from this checkout once per test process, so that no test ever runs yesterday's binary. It
//! may not start them.
//!
//! They are built with the command that shares every dependency with `cargo test --workspace`; after that command it
//! costs a second or two. They are linked to a place of their own (`target/harness/…`) under a lock between test
//! processes, so that a build beside the tests does not change them.

use std::path::{Path, PathBuf};
use std::process::Command;

use millwright_dev::apiserver::binaries::{target_dir, workspace_root};
use millwright_dev::process::{self, say};
use tokio::sync::OnceCell;

const MANAGER: &str = "millwright";
const VIRTUAL_PROVIDER: &str = "millwright-provider-virtual";
const QUICK_START: &str = "millwright-dev";
/// The SDK's example, as an author of a provider would write one.
const HELLO: &str = "hello";

/// Where the programs of a build are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    pub manager: PathBuf,
    pub virtual_provider: PathBuf,
    pub quick_start: PathBuf,
    pub hello_provider: PathBuf,
}

/// The programs, in the profile of this test. In a debug build the manager has crash points (`controller/src/crash.rs`).
///
/// # Panics
/// They do not compile.
pub async fn programs() -> &'static Programs {
    static BUILT: OnceCell<Programs> = OnceCell::const_new();
    BUILT.get_or_init(built).await
}

async fn built() -> Programs {
    let built = tokio::task::spawn_blocking(build)
        .await
        .expect("the build does not panic");
    built.unwrap_or_else(|why| panic!("our own programs: {why}"))
}

fn build() -> Result<Programs, String> {
    let profile = profile();
    let kept = target_dir().join("harness").join(&profile);
    let lock = kept.join("lock");
    let waiting = || {
        say(
            "programs",
            "another test process is building our programs; waiting for it",
        )
    };
    let _lock = process::locked(&lock, waiting).map_err(|error| format!("{}: {error}", lock.display()))?;

    let log = kept.join("build.log");
    let status = process::run_long(cargo_build(&profile), &log, |elapsed| {
        say(
            "programs",
            &format!("building our programs for {} s", elapsed.as_secs()),
        );
    })
    .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err(format!(
            "{status}; the end of {}:\n{}",
            log.display(),
            process::tail(&log, 40)
        ));
    }
    let from = target_dir().join(if profile == "dev" { "debug" } else { &profile });
    let to = kept.join("programs");
    Ok(Programs {
        manager: keep(MANAGER, &from, &to)?,
        virtual_provider: keep(VIRTUAL_PROVIDER, &from, &to)?,
        quick_start: keep(QUICK_START, &from, &to)?,
        hello_provider: keep(HELLO, &from.join("examples"), &to)?,
    })
}

/// `--workspace`, because with fewer packages Cargo would choose other features for what they share and build all of it
/// a second time.
fn cargo_build(profile: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace_root())
        .args([
            "build",
            "--workspace",
            "--bins",
            "--examples",
            "--locked",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(target_dir());
    // What Cargo told this test about its own package: build scripts that watch it would run again.
    for (name, _) in std::env::vars_os() {
        let ours = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if ours.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// The profile this test was built with: `dev`, `release` or the name of another. A test program lies in
/// `<target>/<profile>/deps`, a binary in `<target>/<profile>`.
fn profile() -> String {
    let exe = std::env::current_exe().unwrap_or_default();
    let dir = exe
        .parent()
        .filter(|dir| !dir.ends_with("deps"))
        .or_else(|| exe.ancestors().nth(2));
    match dir
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned())
    {
        None => "dev".to_owned(),
        Some(name) if name == "debug" => "dev".to_owned(),
        Some(name) => name,
    }
}

/// Links a program to a place where the next build does not change it.
fn keep(name: &str, from: &Path, to: &Path) -> Result<PathBuf, String> {
    let (built, kept, new) = (from.join(name), to.join(name), to.join(format!("{name}.new")));
    let link = || -> std::io::Result<()> {
        std::fs::create_dir_all(to)?;
        if new.exists() {
            std::fs::remove_file(&new)?;
        }
        // Some file systems have no links.
        std::fs::hard_link(&built, &new).or_else(|_| std::fs::copy(&built, &new).map(drop))?;
        std::fs::rename(&new, &kept)
    };
    link().map_err(|error| format!("cannot keep {} as {}: {error}", built.display(), kept.display()))?;
    Ok(kept)
}
