//! One cluster: begun, told what to do by `node.sh`, ended. It may not outlive this process.
//!
//! `node.sh hold` makes the place that everything is inside of, and lasts as long as its standard input does. That is a pipe from
//! this process; when this process ends, even by kill -9, the kernel closes the pipe.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::kit::Kit;
use crate::{Error, io, said};

/// How often the start of a place is looked at: it takes some tens of milliseconds.
const LOOK: Duration = Duration::from_millis(20);

/// A running cluster. Dropping it ends its processes and removes its files and cgroups.
#[derive(Debug)]
pub struct Cluster {
    kit: Kit,
    dir: PathBuf,
    /// Runs `node.sh hold`; `None` once it has ended.
    holder: Option<Child>,
    /// The folder around `dir`, which `node.sh` removes itself.
    _around: TempDir,
}

impl Cluster {
    /// Starts a control plane without nodes.
    ///
    /// # Errors
    /// It does not start; nothing of it is left then.
    pub fn start(kit: &Kit) -> Result<Self, Error> {
        Self::start_with(kit, &[])
    }

    /// [`Cluster::start`], with variables that `node.sh` names for `up`.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_with(kit: &Kit, variables: &[(&str, &str)]) -> Result<Self, Error> {
        let around = tempfile::Builder::new()
            .prefix("cluster-")
            .tempdir_in(kit.clusters())
            .map_err(io("make a folder for a cluster"))?;
        let dir = around.path().join("files");
        let mut hold = kit.node_sh(&dir);
        // In a process group of its own: a Ctrl-C is for this process, whose end the holder sees and cleans up after.
        std::os::unix::process::CommandExt::process_group(&mut hold, 0);
        let holder = hold
            .arg("hold")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(io("run bash"))?;
        let mut cluster = Self {
            kit: kit.clone(),
            dir,
            holder: Some(holder),
            _around: around,
        };
        cluster.await_place()?;
        cluster.node_sh(&["up", "0"], variables)?;
        Ok(cluster)
    }

    fn await_place(&mut self) -> Result<(), Error> {
        while !self.dir.join("pid").is_file() {
            let has_ended = |holder: &mut Child| holder.try_wait().ok().flatten().is_some();
            if self.holder.as_mut().is_none_or(has_ended) {
                return self.end();
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Where its files are; `log/` and `nodes/<name>/var/log/` have what its programs say.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// An administrator's, for programs that [`Cluster::command`] starts.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// Starts a node, or starts it again after a power cut, and waits until it is Ready.
    ///
    /// # Errors
    /// It does not become Ready.
    pub fn boot(&self, node: &str) -> Result<(), Error> {
        self.boot_with(node, &[])
    }

    /// [`Cluster::boot`], with variables that `node.sh` names for `add`.
    ///
    /// # Errors
    /// As `boot`.
    pub fn boot_with(&self, node: &str, variables: &[(&str, &str)]) -> Result<(), Error> {
        self.node_sh(&["add", node], variables).map(drop)
    }

    /// Every process of the node is gone at once, and its network card; the disk stays.
    ///
    /// # Errors
    /// There is no such node.
    pub fn cut_power(&self, node: &str) -> Result<(), Error> {
        self.node_sh(&["cut", node], &[]).map(drop)
    }

    /// [`Cluster::cut_power`], and the disk is wiped. The Node object stays.
    ///
    /// # Errors
    /// There is no such node.
    pub fn remove(&self, node: &str) -> Result<(), Error> {
        self.node_sh(&["rm", node], &[]).map(drop)
    }

    /// No new pods there.
    ///
    /// # Errors
    /// There is no such Node.
    pub fn cordon(&self, node: &str) -> Result<(), Error> {
        self.node_sh(&["cordon", node], &[]).map(drop)
    }

    /// New pods there again.
    ///
    /// # Errors
    /// There is no such Node.
    pub fn uncordon(&self, node: &str) -> Result<(), Error> {
        self.node_sh(&["uncordon", node], &[]).map(drop)
    }

    /// Imports the images of an archive into every node that runs.
    ///
    /// # Errors
    /// It is no archive of images.
    pub fn load(&self, archive: &Path) -> Result<(), Error> {
        self.node_sh(&["load", &archive.to_string_lossy()], &[]).map(drop)
    }

    /// What kubectl says as administrator.
    ///
    /// # Errors
    /// kubectl fails.
    pub fn kubectl(&self, args: &[&str]) -> Result<String, Error> {
        let args: Vec<&str> = ["kubectl"].iter().chain(args).copied().collect();
        self.node_sh(&args, &[])
    }

    /// A program of this machine that sees the cluster's network instead of the machine's, with `KUBECONFIG` set; give it
    /// arguments and start it. It ends with the cluster only if its starter sees to that.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.kit.node_sh(&self.dir);
        command.arg("run").arg(program);
        command
    }

    /// A program of this machine that starts nodes itself, as a driver does: `NODE_SH` names `node.sh`, and `NODE_DIR` and `NODE_KIT`
    /// are this cluster's. Give it arguments and start it; see [`Cluster::command`].
    #[must_use]
    pub fn beside(&self, program: &Path) -> Command {
        let mut command = self.kit.node_sh(&self.dir);
        command.arg("beside").arg(program);
        command
    }

    /// Names of the nodes whose power is on.
    ///
    /// # Errors
    /// The cluster has ended.
    pub fn powered_on(&self) -> Result<Vec<String>, Error> {
        let names = self.node_sh(&["power"], &[])?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Ends it, and says what went wrong at that.
    ///
    /// # Errors
    /// Something could not be removed.
    pub fn down(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some(mut holder) = self.holder.take() else {
            return Ok(());
        };
        drop(holder.stdin.take()); // the end of its input is the order to end
        let output = holder.wait_with_output().map_err(io("wait for node.sh"))?;
        // A holder that was killed has removed nothing.
        let rest = self
            .kit
            .node_sh(&self.dir)
            .arg("down")
            .output()
            .map_err(io("run bash"))?;
        let told = !output.stderr.is_empty();
        said("node.sh down", rest)?;
        match told {
            false => Ok(()),
            true => Err(Error::Failed {
                what: "node.sh hold".to_owned(),
                status: output.status,
                said: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }

    fn node_sh(&self, args: &[&str], variables: &[(&str, &str)]) -> Result<String, Error> {
        let mut command = self.kit.node_sh(&self.dir);
        command.args(args).envs(variables.iter().copied()).stdin(Stdio::null());
        let output = command.output().map_err(io("run bash"))?;
        said(&format!("node.sh {}", args.join(" ")), output)
    }

    /// The ends of all logs, for whom a test failed.
    fn log_ends(&self) -> String {
        let folders = std::fs::read_dir(self.dir.join("nodes"))
            .into_iter()
            .flatten()
            .flatten();
        let folders = folders.map(|node| node.path().join("var/log"));
        let files = std::iter::once(self.dir.join("log"))
            .chain(folders)
            .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
            .map(|file| file.path())
            .filter(|file| file.is_file());
        files
            .map(|file| {
                let bytes = std::fs::read(&file).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes);
                let lines: Vec<&str> = text.lines().rev().take(5).collect();
                let lines: Vec<&str> = lines.into_iter().rev().collect();
                format!("--- {}\n{}\n", file.display(), lines.join("\n"))
            })
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() && self.holder.is_some() {
            eprintln!("{}", self.log_ends());
        }
        if let Err(error) = self.end() {
            eprintln!("{error}");
        }
    }
}
