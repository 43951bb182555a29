//! The programs and the image that a cluster is made of: from Debian's archive and the Go module proxy, by `kit.sh`, kept
//! below the target directory. It decides whether this machine can have them; it may not start a cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, io, said};

/// This crate's folder, where the scripts are.
const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// What this machine must have, and the package that has it.
const TOOLS: [(&str, &str); 9] = [
    ("apt-get", "a Debian"),
    ("dpkg-deb", "a Debian"),
    ("go", "https://go.dev/dl"),
    ("kubectl", "https://kubernetes.io/docs/tasks/tools"),
    ("ip", "apt install iproute2"),
    ("unshare", "apt install util-linux"),
    ("nsenter", "apt install util-linux"),
    ("setpriv", "apt install util-linux"),
    ("openssl", "apt install openssl"),
];

/// A directory with all that `node.sh` needs.
#[derive(Clone, Debug)]
pub struct Kit {
    pub(crate) dir: PathBuf,
}

impl Kit {
    /// Finds it, or makes it (minutes, with lines on standard error) where it was never made.
    ///
    /// # Errors
    /// This machine cannot have a cluster, or a download or build failed.
    pub fn find() -> Result<Self, Error> {
        possible()?;
        let output = Command::new("bash")
            .arg(script("kit.sh"))
            .arg(target_dir())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(io("run bash"))?;
        let dir = said("tests/node/kit.sh", output)?;
        Ok(Self { dir: dir.trim().into() })
    }

    /// `node.sh` for the cluster whose files are in `dir`, without arguments yet.
    #[must_use]
    pub fn node_sh(&self, dir: &Path) -> Command {
        let mut command = Command::new("bash");
        command.arg(script("node.sh"));
        command.env("NODE_KIT", &self.dir).env("NODE_DIR", dir);
        command
    }

    /// The folder in which clusters have their files.
    #[must_use]
    pub fn clusters(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(HERE).join(name)
}

/// Checks what costs nothing, before minutes are spent on a kit that would be of no use.
fn possible() -> Result<(), Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where administrators' tools are, which not every shell has on PATH.
    let dirs: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    let lacks = |(tool, _): &&(&str, &str)| !dirs.iter().any(|dir| dir.join(tool).is_file());
    let lacking: Vec<String> = TOOLS
        .iter()
        .filter(lacks)
        .map(|(tool, from)| format!("{tool} ({from})"))
        .collect();
    if !lacking.is_empty() {
        return Err(Error::Absent(lacking.join(", ")));
    }
    // Asks for what only root may do, rather than for the user's number: root of a container may do less.
    let tried = Command::new("unshare")
        .args([
            "--net", "--pid", "--mount", "--ipc", "--uts", "--cgroup", "--fork", "true",
        ])
        .stdin(Stdio::null())
        .output()
        .map_err(io("run unshare"))?;
    if tried.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&tried.stderr);
    Err(Error::Absent(format!(
        "root and namespaces of its own ({})",
        said.trim()
    )))
}

/// Where the kit is kept: in Cargo's target directory, if the environment names it, else in the workspace's own.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(HERE).join("../../target"), PathBuf::from)
}
