//! A real cluster for a test, or for people: etcd, kube-apiserver, controller manager, scheduler, and nodes that are a real
//! kubelet, containerd and kube-proxy each, in namespaces that are made for it. It decides when a cluster begins and ends; how
//! one is made is in `node.sh` and `kit.sh` beside this crate. It may not know any kind of ours.
//!
//! ```no_run
//! use millwright_node::{Cluster, Kit};
//!
//! # fn main() -> Result<(), millwright_node::Error> {
//! let cluster = Cluster::start(&Kit::find()?)?;
//! cluster.boot("n1")?; // Ready when this returns
//! cluster.cut_power("n1")?;
//! println!("{}", cluster.kubectl(&["get", "nodes"])?);
//! # Ok(()) } // dropping `cluster` ends all of it; so does the end of this process, however it ends
//! ```

mod cluster;
mod kit;
pub mod requirement;

pub use cluster::Cluster;
pub use kit::Kit;

/// Why there is no cluster, or why it did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot have one.
    #[error("a cluster with real nodes needs {0}")]
    Absent(String),
    /// What was run, and all that it said.
    #[error("{what} failed ({status}):\n{said}")]
    Failed {
        what: String,
        status: std::process::ExitStatus,
        said: String,
    },
    /// The system refused something.
    #[error("cannot {doing}: {error}")]
    Io { doing: String, error: std::io::Error },
}

impl Error {
    /// True where this machine simply lacks what is needed, so that a test may be skipped. A download or a build that fails is
    /// a fault that has to be seen.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Absent(_))
    }
}

fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let doing = doing.into();
    move |error| Error::Io { doing, error }
}

/// What a command said, once it has ended well.
fn said(what: &str, output: std::process::Output) -> Result<String, Error> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    Err(Error::Failed {
        what: what.to_owned(),
        status: output.status,
        said: stdout + &String::from_utf8_lossy(&output.stderr),
    })
}
