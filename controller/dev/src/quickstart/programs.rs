//! The processes of the quick start and where their files are. It may not know what they do with machines.
//!
//! Logs outlive the processes: they lie below Cargo's target directory, one directory a run, the oldest swept that have ended. All
//! other files lie in the API server's directory and go with it, but for state that is to stay.

use std::fs::DirEntry;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use millwright::driver::Endpoint;
use millwright_dev::apiserver::binaries;
use millwright_dev::process::{Process, tail};
use millwright_dev::workdir;

use super::args::Args;
use super::plane::Plane;
use super::{MANAGER, PROVIDER};

/// How long a program may take to end by itself before it is killed.
const POLITE: Duration = Duration::from_secs(10);
/// Runs whose logs are kept, this one included.
const RUNS: usize = 5;
/// Between two looks whether the provider listens.
const LOOK: Duration = Duration::from_millis(5);
/// Where our provider listens, in the directory of the run.
const SOCKET: &str = "driver.sock";
/// Time for which a node of the simulated cloud may be unhealthy, else its machine is replaced: seconds, so that one can watch. Of
/// real machines it is the manager's own, which is minutes.
const HEALTH_TIMEOUT: &str = "3s";
/// Lines of a log that an error shows.
const TAIL: usize = 12;

/// The running processes. Dropping it kills them all.
pub struct Programs {
    // Dropped in this order: whoever uses the API server ends before it.
    manager: Option<Program>,
    provider: Option<Program>,
    plane: Plane,
    /// A user's own provider, in the place of ours.
    own_driver: Option<Endpoint>,
    logs: LogDir,
    metrics: SocketAddr,
}

/// One of ours, as often as it is started.
struct Program {
    name: &'static str,
    path: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    process: Process,
}

impl Program {
    fn start(name: &'static str, path: PathBuf, args: Vec<String>, log: PathBuf) -> anyhow::Result<Self> {
        let process = launch(name, &path, &args, &log)?;
        Ok(Self {
            name,
            path,
            args,
            log,
            process,
        })
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.process = launch(self.name, &self.path, &self.args, &self.log)?;
        Ok(())
    }

    async fn stop(mut self) {
        self.process.terminate();
        // Who does not end in time is killed by the drop.
        self.process.wait(POLITE).await;
    }
}

fn launch(name: &str, path: &Path, args: &[String], log: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(path);
    command.args(args);
    for (variable, _) in std::env::vars_os() {
        // A variable of the user's own installation must not turn into a flag here.
        if variable.to_string_lossy().starts_with("MILLWRIGHT_") {
            command.env_remove(variable);
        }
    }
    Process::start(name, command, log).with_context(|| format!("cannot start {}", path.display()))
}

impl Programs {
    /// Starts the API server (a real one is built the first time ever) and prepares the directories.
    pub async fn start_api_server(args: &Args) -> anyhow::Result<Self> {
        let plane = Plane::start(args).await?;
        let logs = LogDir::make().context("cannot make a directory for the logs")?;
        for log in plane.logs() {
            std::os::unix::fs::symlink(plane.dir().join(log), logs.path.join(log))
                .with_context(|| format!("cannot link {log} into {}", logs.path.display()))?;
        }
        link_programs(plane.dir()).context("cannot link the programs")?;
        let metrics = free_address().context("no free port on loopback")?;
        Ok(Self {
            manager: None,
            provider: None,
            plane,
            own_driver: args.driver.clone(),
            logs,
            metrics,
        })
    }

    /// The API server.
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Where all logs are.
    pub fn logs(&self) -> &Path {
        &self.logs.path
    }

    /// Where the manager serves its metrics and health.
    pub fn metrics(&self) -> SocketAddr {
        self.metrics
    }

    /// The directory of links to the two programs, for a user's PATH.
    pub fn bin(&self) -> PathBuf {
        self.plane.dir().join("bin")
    }

    /// Where the driver listens.
    pub fn driver(&self) -> String {
        match &self.own_driver {
            Some(endpoint) => endpoint.to_string(),
            None => format!("unix://{}", self.plane.dir().join(SOCKET).display()),
        }
    }

    /// Where the simulated cloud's console listens, if that cloud is ours.
    pub fn console(&self) -> Option<String> {
        let ours = format!("unix://{}", self.plane.dir().join("console.sock").display());
        self.own_driver.is_none().then_some(ours)
    }

    /// Process id of the manager, while there is one.
    pub fn manager_pid(&self) -> Option<u32> {
        self.manager.as_ref().map(|manager| manager.process.pid())
    }

    /// Starts the simulated cloud with its driver and waits until it listens, unless the user has a provider.
    pub async fn start_provider(&mut self, args: &Args) -> anyhow::Result<()> {
        let Some(console) = self.console() else {
            return Ok(());
        };
        let flags = vec![
            format!("--listen={}", self.driver()),
            format!("--console={console}"),
            format!("--target-kubeconfig={}", self.plane.cloud_kubeconfig().display()),
            format!("--state={}", self.plane.state().join("cloud.redb").display()),
            format!("--create-delay={}ms", args.create_delay.as_millis()),
            format!("--join-delay={}ms", args.join_delay.as_millis()),
        ];
        let log = self.logs.path.join("provider.log");
        self.provider = Some(Program::start("provider", self.bin().join(PROVIDER), flags, log)?);
        // A manager that finds nobody there asks again only a second later.
        let until = Instant::now() + POLITE;
        while !self.plane.dir().join(SOCKET).exists() && Instant::now() < until {
            self.check_alive()?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Starts the manager.
    pub fn start_manager(&mut self, args: &Args) -> anyhow::Result<()> {
        let mut flags = vec![
            "manager".to_owned(),
            format!("--kubeconfig={}", self.plane.manager_kubeconfig().display()),
            "--namespace=default".to_owned(),
            "--cluster-id=quickstart".to_owned(),
            format!("--driver={}", self.driver()),
            format!("--metrics-addr={}", self.metrics),
        ];
        if args.no_nodes {
            flags.push("--target-kubeconfig=none".to_owned());
        }
        if self.own_driver.is_none() {
            flags.push(format!("--machine-health-timeout={HEALTH_TIMEOUT}"));
        }
        let log = self.logs.path.join("manager.log");
        self.manager = Some(Program::start("manager", self.bin().join(MANAGER), flags, log)?);
        Ok(())
    }

    /// What a command of the manager's program prints.
    pub async fn ask(&self, command: &[&str]) -> anyhow::Result<String> {
        let asked = tokio::process::Command::new(self.bin().join(MANAGER))
            .args(command)
            .arg(format!("--kubeconfig={}", self.plane.kubeconfig().display()))
            .stdin(Stdio::null())
            .output()
            .await
            .with_context(|| format!("{MANAGER} {} cannot be started", command.join(" ")))?;
        if !asked.status.success() {
            let told = String::from_utf8_lossy(&asked.stderr);
            bail!("{MANAGER} {} failed: {}", command.join(" "), told.trim());
        }
        Ok(String::from_utf8_lossy(&asked.stdout).into_owned())
    }

    /// An error, with the end of its log, if the manager or the provider has ended, or the API server has stopped.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        self.plane.check()?;
        for program in [&mut self.manager, &mut self.provider].into_iter().flatten() {
            if let Some(status) = program.process.exit_status() {
                let end = tail(&program.log, TAIL);
                bail!(
                    "the {} ended ({status}); the end of {}:\n{end}",
                    program.name,
                    program.log.display()
                );
            }
        }
        Ok(())
    }

    /// Starts again what has ended, and says what it was. An API server that has stopped is an error.
    pub fn revive(&mut self) -> anyhow::Result<Vec<String>> {
        self.plane.check()?;
        let mut told = Vec::new();
        for program in [&mut self.manager, &mut self.provider].into_iter().flatten() {
            if let Some(status) = program.process.exit_status() {
                program.restart()?;
                told.push(format!("the {} ended ({status}) and was started again", program.name));
            }
        }
        Ok(told)
    }

    /// Ends everything in order, and keeps the logs.
    ///
    /// # Errors
    /// The API server did not end in order.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(manager) = self.manager.take() {
            manager.stop().await;
        }
        if let Some(provider) = self.provider.take() {
            provider.stop().await;
        }
        for log in self.plane.logs() {
            if let Err(error) = keep(&self.plane.dir().join(log), &self.logs.path.join(log)) {
                eprintln!("{log} is not kept: {error}");
            }
        }
        self.plane.stop().await
    }
}

/// Puts a copy in the place of the link to it.
fn keep(log: &Path, link: &Path) -> io::Result<()> {
    std::fs::remove_file(link)?;
    std::fs::copy(log, link).map(drop)
}

/// A directory of logs, which is ours for as long as this lives.
struct LogDir {
    path: PathBuf,
    _mark: workdir::Mark,
}

impl LogDir {
    /// `<target>/quick-start/<time>-<pid>`: sorts by age, and two runs at once have two.
    fn make() -> io::Result<Self> {
        let parent = std::path::absolute(binaries::target_dir().join("quick-start"))?;
        std::fs::create_dir_all(&parent)?;
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S");
        Self::make_in(&parent, &format!("{now}-{}", std::process::id()))
    }

    fn make_in(parent: &Path, name: &str) -> io::Result<Self> {
        sweep(parent)?;
        let path = parent.join(name);
        // It gets its name when it bears the mark: another run may be sweeping.
        let unnamed = parent.join(format!(".{name}"));
        std::fs::create_dir(&unnamed)?;
        let mark = workdir::mark(&unnamed)?;
        std::fs::rename(&unnamed, &path)?;
        Ok(Self { path, _mark: mark })
    }
}

/// Removes the oldest logs, but never those of a quick start that still runs.
fn sweep(parent: &Path) -> io::Result<()> {
    let is_named = |entry: &DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
    let runs: Vec<PathBuf> = std::fs::read_dir(parent)?
        .flatten()
        .filter(is_named)
        .map(|entry| entry.path())
        .collect();
    let too_many = (runs.len() + 1).saturating_sub(RUNS);
    let mut ended: Vec<&PathBuf> = runs.iter().filter(|run| !workdir::is_in_use(run)).collect();
    ended.sort();
    for run in ended.into_iter().take(too_many) {
        // Another run may be sweeping too.
        std::fs::remove_dir_all(run).ok();
    }
    Ok(())
}

/// This binary under the names of the programs that it also is: manager, provider, and the manager's commands as kubectl's plugin.
fn link_programs(dir: &Path) -> io::Result<()> {
    let bin = dir.join("bin");
    let this = std::env::current_exe()?;
    std::fs::create_dir(&bin)?;
    for name in [MANAGER, PROVIDER, millwright::cli::PLUGIN] {
        std::os::unix::fs::symlink(&this, bin.join(name))?;
    }
    Ok(())
}

/// The manager's port must be known here and be the same after a restart.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_of_a_running_quick_start_stay_however_many_begin_after_it() {
        let parent = tempfile::tempdir().unwrap();
        let begin = |name: &str| LogDir::make_in(parent.path(), name).unwrap();
        let first = begin("1");
        for name in ["2", "3", "4", "5", "6", "7", "8"] {
            drop(begin(name));
        }
        let last = begin("9");

        let entries = std::fs::read_dir(parent.path()).unwrap();
        let mut left: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["1", "6", "7", "8", "9"]);
        assert!(first.path.is_dir() && last.path.is_dir());
    }
}
