//! The API server of the quick start: the sandbox, or a real one. Decides which; knows no machines.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use millwright_dev::apiserver::ControlPlane;

use super::args::Args;
use super::sandbox::Sandbox;

/// Whatever serves the API.
pub enum Plane {
    Sandbox(Box<Sandbox>),
    Real(Box<ControlPlane>),
}

/// Logs that a real control plane writes into its own directory.
const REAL_LOGS: [&str; 2] = ["kube-apiserver.log", "etcd.log"];

impl Plane {
    /// Starts what the flags ask for.
    pub async fn start(args: &Args) -> anyhow::Result<Self> {
        Ok(if args.real {
            Self::Real(Box::new(ControlPlane::start().await?))
        } else {
            Self::Sandbox(Box::new(Sandbox::start(args.data.as_deref()).await?))
        })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        match self {
            Self::Sandbox(sandbox) => sandbox.url(),
            Self::Real(plane) => plane.url(),
        }
    }

    /// The directory of this run.
    pub fn dir(&self) -> &Path {
        match self {
            Self::Sandbox(sandbox) => sandbox.dir(),
            Self::Real(plane) => plane.dir(),
        }
    }

    /// Where the simulated cloud keeps its file.
    pub fn state(&self) -> &Path {
        match self {
            Self::Sandbox(sandbox) => sandbox.state(),
            Self::Real(plane) => plane.dir(),
        }
    }

    /// For people.
    pub fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Sandbox(sandbox) => sandbox.kubeconfig(),
            Self::Real(plane) => plane.kubeconfig(),
        }
    }

    /// For the manager: on a real server, everybody is the administrator.
    pub fn manager_kubeconfig(&self) -> PathBuf {
        match self {
            Self::Sandbox(sandbox) => sandbox.manager_kubeconfig(),
            Self::Real(plane) => plane.kubeconfig(),
        }
    }

    /// For the simulated kubelets.
    pub fn cloud_kubeconfig(&self) -> PathBuf {
        match self {
            Self::Sandbox(sandbox) => sandbox.cloud_kubeconfig(),
            Self::Real(plane) => plane.kubeconfig(),
        }
    }

    /// Files in its directory that are worth keeping.
    pub fn logs(&self) -> &'static [&'static str] {
        match self {
            Self::Sandbox(_) => &[],
            Self::Real(_) => &REAL_LOGS,
        }
    }

    /// Fails if it has stopped.
    pub fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Sandbox(sandbox) => sandbox.check(),
            Self::Real(_) => Ok(()),
        }
    }

    /// A client that may do everything.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// Ends it; whoever used it must have ended.
    pub async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Sandbox(sandbox) => sandbox.stop().await,
            Self::Real(plane) => {
                drop(plane);
                Ok(())
            }
        }
    }
}
