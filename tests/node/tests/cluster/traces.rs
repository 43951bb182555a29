//! What a cluster has on the machine, looked for from outside: processes, namespaces, mounts, cgroups, files.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_link, read_to_string};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The kernel ends hundreds of processes in less than a second; the rest is for a machine that is busy.
const LONG: Duration = Duration::from_secs(60);

/// What was there while a cluster ran.
#[derive(Debug)]
pub struct Traces {
    dir: PathBuf,
    /// In the names of its cgroups.
    id: String,
    processes: BTreeSet<u32>,
    /// As `/proc/<pid>/ns/*` names them; none is the machine's.
    namespaces: BTreeSet<PathBuf>,
}

impl Traces {
    /// All that comes from the holder of the cluster in `dir`.
    pub fn of(dir: &Path) -> Self {
        let holder: u32 = read_to_string(dir.join("holder.pid")).unwrap().trim().parse().unwrap();
        // A process that lost its parent gets PID 1 of its namespace as parent, which comes from the holder, too.
        let mut processes = BTreeSet::from([holder]);
        loop {
            let children: BTreeSet<u32> = all_processes()
                .filter(|pid| parent(*pid).is_some_and(|parent| processes.contains(&parent)))
                .collect();
            let before = processes.len();
            processes.extend(children);
            if processes.len() == before {
                break;
            }
        }
        let machine = namespaces(std::process::id());
        let theirs = processes.iter().flat_map(|pid| namespaces(*pid));
        Self {
            dir: dir.to_owned(),
            id: read_to_string(dir.join("id")).unwrap().trim().to_owned(),
            namespaces: theirs.filter(|namespace| !machine.contains(namespace)).collect(),
            processes,
        }
    }

    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// No process of it runs, and none is in a namespace of it, so that the kernel has removed the namespaces with their mounts
    /// and network cards.
    pub fn assert_ended(&self) {
        let runs = || {
            let is_there = |pid: &u32| {
                let is_of_it = self.processes.contains(pid) && mentions(*pid, &self.dir);
                is_of_it || !namespaces(*pid).is_disjoint(&self.namespaces)
            };
            all_processes().filter(is_there).collect::<Vec<_>>()
        };
        let began = Instant::now();
        while !runs().is_empty() {
            assert!(began.elapsed() < LONG, "these still run: {:?}", runs());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!self.namespaces.is_empty());
    }

    /// Nothing of it is there at all.
    pub fn assert_gone(&self) {
        self.assert_ended();
        let began = Instant::now();
        while self.dir.exists() {
            assert!(began.elapsed() < LONG, "{} is still there", self.dir.display());
            std::thread::sleep(Duration::from_millis(50));
        }
        let mounts = read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&*self.dir.to_string_lossy()), "{mounts}");
        let find = Command::new("find")
            .args(["/sys/fs/cgroup", "-name", &format!("millwright-{}-*", self.id)])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&find.stdout), "");
    }
}

/// The machine's links, addresses and routes.
pub fn network_of_the_machine() -> String {
    let output = Command::new("sh")
        .args([
            "-c",
            "PATH=$PATH:/usr/sbin:/sbin; ip -o link; ip -o addr | sed 's/valid_lft.*//'; ip route",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    let status = read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// Empty for a process that has ended and that its parent has not waited for yet.
fn namespaces(pid: u32) -> BTreeSet<PathBuf> {
    let entries = read_dir(format!("/proc/{pid}/ns")).into_iter().flatten().flatten();
    entries.filter_map(|entry| read_link(entry.path()).ok()).collect()
}

/// Its pid may have gone to another process; what came from `node.sh` has the cluster's folder in its environment.
fn mentions(pid: u32, dir: &Path) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&environment).contains(&*dir.to_string_lossy())
}
