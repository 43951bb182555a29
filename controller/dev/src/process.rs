//! A child process whose output goes to a file and which does not outlive us: not a panic, not `Drop` forgotten in a
//! `static`, not a kill -9 of the parent. It may not know what the program does.
//!
//! Where util-linux' `setpriv` exists (every Debian), the kernel kills the child when its parent dies; elsewhere only
//! `Drop` does. The kernel ties this to the *thread* that started the child, so one thread that lives as long as this
//! process starts them all: a child started from a test's own thread would die with that test.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How often a wait for an exit looks again.
const LOOK: Duration = Duration::from_millis(20);
/// A line this often: long enough not to flood a log, short enough that nobody believes it hangs.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// A running child with its log. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` in its own process group, standard output and error appended to `log`.
    ///
    /// # Errors
    /// The log cannot be opened, or the program cannot be started.
    pub fn start(name: &str, command: Command, log: &Path) -> io::Result<Self> {
        let sink = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = tied_to_us(command);
        command.stdin(Stdio::null()).stdout(sink.try_clone()?).stderr(sink);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = spawn_on_the_lasting_thread(command)?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// The name given at the start, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id; `setpriv` keeps it, because it replaces itself by the program.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, or `None` while it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        // Waiting for a child of ours that was not reaped by anyone else does not fail.
        self.child.try_wait().ok().flatten()
    }

    /// True while it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Kill -9 for the whole group, and waits until the process is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        // Nothing can be done about a failed wait, and the signal was sent.
        let _ = self.child.wait();
    }

    /// Asks the process to end (SIGTERM) and returns at once; see [`Process::wait`].
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Waits for the end, at most `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.exit_status() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The last `lines` lines of the log, for a message about a failure.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }

    fn signal(&mut self, signal: Signal) {
        // A reaped pid may belong to a stranger by now.
        if self.exit_status().is_some() {
            return;
        }
        let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        // ESRCH: it ended between the check and here, which is what was wanted.
        let _ = kill_process_group(group, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last `lines` lines of a text file; a file that cannot be read says so in place of its text.
#[must_use]
pub fn tail(file: &Path, lines: usize) -> String {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => return format!("({} cannot be read: {error})", file.display()),
    };
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all.get(from..).unwrap_or_default().join("\n")
}

/// The same command under `setpriv --pdeathsig KILL`, where that works.
fn tied_to_us(command: Command) -> Command {
    static WORKS: LazyLock<bool> = LazyLock::new(|| {
        // BusyBox has a `setpriv` without the option, so asking for the name is not enough.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "true"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    if !*WORKS {
        return command;
    }
    let mut tied = Command::new("setpriv");
    tied.args(["--pdeathsig", "KILL", "--"])
        .arg(command.get_program())
        .args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(key, value),
            None => tied.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        tied.current_dir(dir);
    }
    tied
}

type Order = (Command, Sender<io::Result<Child>>);

fn spawn_on_the_lasting_thread(command: Command) -> io::Result<Child> {
    static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
        let (orders, inbox) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in inbox {
                // Who asked may be gone (a cancelled future); its `Child` is then dropped and ends with us.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, child) = channel();
    STARTER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, answer))
        .map_err(|_| io::Error::other("the thread that starts processes has ended"))?;
    child
        .recv()
        .map_err(|_| io::Error::other("the thread that starts processes has ended"))?
}

/// Runs a command that may take minutes: its output goes to `log`, and every ten seconds `alive` is told for how long
/// it has been running, so that it can show that it is.
///
/// # Errors
/// The log cannot be written or the program cannot be run. That it failed is in the status.
pub fn run_long(mut command: Command, log: &Path, mut alive: impl FnMut(Duration)) -> io::Result<ExitStatus> {
    let sink = File::create(log)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(sink.try_clone()?)
        .stderr(sink)
        .spawn()?;
    let began = Instant::now();
    let mut said = began;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if said.elapsed() >= SIGN_OF_LIFE {
            said = Instant::now();
            alive(began.elapsed());
        }
        std::thread::sleep(LOOK);
    }
}

/// A line on standard error, past the capture of the test runner: who waits minutes must see why.
pub fn say(who: &str, line: &str) {
    // Nobody to tell if standard error is closed.
    let _ = writeln!(io::stderr(), "[{who}] {line}");
}

/// The full path of `program` if a file of that name is on PATH.
#[must_use]
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| is_executable(file))
}

/// True for a regular file somebody may execute.
#[must_use]
pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Opens (and makes) a file for use as a lock between processes; the lock goes with the returned file.
///
/// # Errors
/// The directory or the file cannot be made, or the lock cannot be taken.
pub fn locked(file: &Path, on_wait: impl FnOnce()) -> io::Result<File> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(file)?;
    if lock.try_lock().is_err() {
        on_wait();
        lock.lock()?;
    }
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_child_outlives_the_thread_that_asked_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut child = std::thread::spawn(move || Process::start("sleeper", shell("sleep 60"), &log).unwrap())
            .join()
            .unwrap();
        assert!(child.wait(Duration::from_millis(300)).await.is_none());
    }

    #[test]
    fn killing_takes_the_grandchildren_along() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("pid");
        let script = format!("sleep 60 & echo $! > {0}.tmp; mv {0}.tmp {0}; wait", note.display());
        let mut child = Process::start("parent", shell(&script), &dir.path().join("log")).unwrap();
        while !note.exists() {
            std::thread::sleep(LOOK);
        }
        let grandchild = std::fs::read_to_string(&note).unwrap();
        child.kill();
        let stat = format!("/proc/{}/stat", grandchild.trim());
        for _ in 0..100 {
            // Reaped by init, or a zombie where no init reaps.
            if std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
                std::thread::sleep(LOOK);
            }
        }
        assert!(!std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")));
    }

    #[tokio::test]
    async fn output_of_both_streams_is_in_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Process::start("talker", shell("echo one; echo two >&2"), &dir.path().join("log")).unwrap();
        assert!(child.wait(Duration::from_secs(10)).await.unwrap().success());
        assert_eq!(child.log_tail(5), "one\ntwo");
    }
}
