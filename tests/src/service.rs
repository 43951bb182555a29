//! A program under test: started, killed with -9, started again with the same command, its log kept across lives. And
//! the one way in which tests wait. It may not know which program it is.

use std::fmt::{Debug, Display};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use millwright_dev::process::Process;
use tokio::net::TcpSocket;

const LOOK: Duration = Duration::from_millis(50);
/// Lines of a log that a failed wait shows.
const TAIL: usize = 40;

/// What to run, as often as it is started.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub log: PathBuf,
}

/// A program that may be running.
#[derive(Debug)]
pub struct Service {
    recipe: Recipe,
    process: Process,
}

impl Service {
    /// Starts it.
    ///
    /// # Panics
    /// It cannot be executed.
    #[must_use]
    pub fn start(recipe: Recipe) -> Self {
        let process = launch(&recipe);
        Self { recipe, process }
    }

    /// Kill -9; returns when it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Kill -9 if it runs, and start it again with the same command.
    ///
    /// # Panics
    /// It cannot be executed.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(&self.recipe);
    }

    /// Changes what the next [`Service::restart`] runs, for example to disarm a crash point.
    pub fn recipe_mut(&mut self) -> &mut Recipe {
        &mut self.recipe
    }

    /// SIGTERM, then waits for the end.
    ///
    /// # Panics
    /// It does not end within `limit`.
    pub async fn stop(&mut self, limit: Duration) -> ExitStatus {
        self.process.terminate();
        self.wait_for_exit(limit).await
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// It does not end within `limit`.
    pub async fn wait_for_exit(&mut self, limit: Duration) -> ExitStatus {
        match self.process.wait(limit).await {
            Some(status) => status,
            None => panic!("{} did not end within {limit:?}\n{}", self.recipe.name, self.log_tail()),
        }
    }

    /// Waits until its log, of all its lives, contains `text`.
    ///
    /// # Panics
    /// The text does not come within `limit`.
    pub async fn wait_for_log(&self, text: &str, limit: Duration) {
        let what = format!("{:?} in the log of {}", text, self.recipe.name);
        eventually(&what, limit, &[self], async || {
            if self.log().contains(text) {
                Ok(())
            } else {
                Err("not there")
            }
        })
        .await;
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The CPU time that it has taken in this life, to a hundredth of a second.
    ///
    /// # Panics
    /// It does not run.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let stat = self.told_by_the_kernel("stat");
        // The name, in brackets, may hold anything; what follows are numbers.
        let (_, numbers) = stat.rsplit_once(')').expect("a name in brackets");
        let ticks = |field: usize| {
            numbers
                .split_whitespace()
                .nth(field)
                .and_then(|text| text.parse::<u64>().ok())
        };
        let ticks = ticks(11).expect("utime") + ticks(12).expect("stime");
        // Linux counts it in hundredths of a second for processes, whatever its own clock is.
        Duration::from_millis(ticks * 10)
    }

    /// The most memory that it has had at one time in this life, in bytes.
    ///
    /// # Panics
    /// It does not run.
    #[must_use]
    pub fn peak_memory(&self) -> u64 {
        let status = self.told_by_the_kernel("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.expect("VmHWM in kB") * 1024
    }

    fn told_by_the_kernel(&self, what: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{what}", self.pid())).expect("it runs, on Linux")
    }

    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// How it ended, or `None` while it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.process.exit_status()
    }

    /// Everything it has printed, of all its lives.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(&self.recipe.log).map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// The end of its log under a headline.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.recipe.log.display();
        format!("--- {} ({log})\n{}\n", self.recipe.name, self.process.log_tail(TAIL))
    }
}

fn launch(recipe: &Recipe) -> Process {
    let mut command = Command::new(&recipe.program);
    command
        .args(&recipe.args)
        .envs(recipe.env.iter().map(|(key, value)| (key, value)));
    Process::start(&recipe.name, command, &recipe.log)
        .unwrap_or_else(|error| panic!("{} ({}): {error}", recipe.name, recipe.program.display()))
}

/// Asks again and again until the answer is `Ok`, and gives what is in it.
///
/// # Panics
/// There is no `Ok` within `limit`: with the last reason and the ends of the services' logs.
pub async fn eventually<T, E: Display>(
    what: &str,
    limit: Duration,
    services: &[&Service],
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let began = Instant::now();
    loop {
        let reason = match probe().await {
            Ok(found) => return found,
            Err(reason) => reason,
        };
        if began.elapsed() >= limit {
            let logs: String = services.iter().map(|service| service.log_tail()).collect();
            panic!("not within {limit:?}: {what} ({reason})\n{logs}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A port on loopback for a program that cannot choose its own. As long as this lives nobody else gets the port, neither
/// between two lives of the program nor before its first: the system gives a bound port to nobody, and the program may
/// listen on it all the same, as both sides allow reuse (`SO_REUSEADDR`, which servers set on Unix).
#[derive(Debug)]
pub struct ReservedPort {
    socket: TcpSocket,
}

impl ReservedPort {
    /// Any port that is free.
    ///
    /// # Panics
    /// The machine has no free port.
    #[must_use]
    pub fn any() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.set_reuseaddr(true).expect("ports can be shared");
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(anywhere).expect("loopback has a free port");
        Self { socket }
    }

    /// Where the program is to listen.
    ///
    /// # Panics
    /// Never: the socket is bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("a bound socket has an address")
    }
}

/// A new file name for a log in `dir`.
#[must_use]
pub fn log_in(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.log"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::ReservedPort;

    #[tokio::test]
    async fn a_reserved_port_can_be_listened_on_again_and_again_and_is_given_to_nobody_else() {
        let port = ReservedPort::any();
        for _life in 0..3 {
            // The standard library sets SO_REUSEADDR, as servers do.
            let server = TcpListener::bind(port.address()).expect("the program listens");
            let others: Vec<TcpListener> = (0..200).map_while(|_| TcpListener::bind("127.0.0.1:0").ok()).collect();
            assert_eq!(others.len(), 200);
            drop(server);
        }
        let taken: Vec<ReservedPort> = (0..200).map(|_| ReservedPort::any()).collect();
        assert!(taken.iter().all(|other| other.address() != port.address()));
    }
}
