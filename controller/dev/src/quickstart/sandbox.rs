//! The API in memory, served by this process, and the files by which others find it.
//!
//! A part of this process rather than one of its own: there is nothing to wait for at the start, nothing that could die
//! alone, and the kernel ends it with us. Decides who gets which token and where state lies; knows no machines.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use millwright_dev::workdir::WorkDir;
use millwright_sandbox::api::Api;
use millwright_sandbox::http::disk::{Disk, DiskError};
use millwright_sandbox::http::outside::{Outside as _, System};
use millwright_sandbox::http::users::Users;
use millwright_sandbox::http::{Options, Running, Server};
use millwright_sandbox::rbac::User;

/// Who works with kubectl.
const ADMIN: &str = "admin";
/// The accounts of `deploy/rbac.yaml` and `provider-rbac.yaml`.
const NAMESPACE: &str = "default";
const MANAGER: &str = "millwright";
const CLOUD: &str = "virtual-cloud";

/// A running server with its files.
pub struct Sandbox {
    // The server ends before its directory.
    server: Running,
    dir: WorkDir,
    data: Option<PathBuf>,
}

impl Sandbox {
    /// Serves what the directory holds, or an API without any objects of ours.
    pub async fn start(data: Option<&Path>) -> anyhow::Result<Self> {
        let dir = WorkDir::make().context("cannot make a directory for sockets and kubeconfigs")?;
        let now = System.moment().now;
        let (disk, api) = match data {
            Some(data) => open(data).await?,
            None => (None, None),
        };
        let token = || uuid::Uuid::new_v4().simple().to_string();
        let users = Users::default()
            .with(ADMIN, &token())
            .with_user(User::service_account(NAMESPACE, MANAGER), &token())
            .with_user(User::service_account(NAMESPACE, CLOUD), &token())
            .with_unnamed(ADMIN);
        let options = Options {
            disk,
            ..Options::new(api.unwrap_or_else(|| Api::new(now)), users)
        };
        let server = Server::start(options).await?;
        let sandbox = Self {
            server,
            dir,
            data: data.map(Path::to_owned),
        };
        sandbox.write_kubeconfigs().context("cannot write the kubeconfigs")?;
        Ok(sandbox)
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Of this run alone: sockets, kubeconfigs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where state that is to stay lies.
    pub fn state(&self) -> &Path {
        self.data.as_deref().unwrap_or(self.dir.path())
    }

    /// For people, who may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state().join("kubeconfig")
    }

    pub fn manager_kubeconfig(&self) -> PathBuf {
        self.dir.path().join("manager.kubeconfig")
    }

    pub fn cloud_kubeconfig(&self) -> PathBuf {
        self.dir.path().join("cloud.kubeconfig")
    }

    /// Fails if state can no longer be kept.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.server.fault() {
            Some(why) => bail!("the API has stopped: {why}"),
            None => Ok(()),
        }
    }

    /// Ends, with everything on disk.
    pub async fn stop(self) -> anyhow::Result<()> {
        Ok(self.server.stop().await?)
    }

    fn write_kubeconfigs(&self) -> io::Result<()> {
        for (file, user) in [
            (self.kubeconfig(), ADMIN.to_owned()),
            (
                self.manager_kubeconfig(),
                User::service_account(NAMESPACE, MANAGER).name,
            ),
            (self.cloud_kubeconfig(), User::service_account(NAMESPACE, CLOUD).name),
        ] {
            let text = self.server.kubeconfig(&user);
            write_private(&file, &text.expect("each of them was given a token above"))?;
        }
        Ok(())
    }
}

async fn open(data: &Path) -> anyhow::Result<(Option<Disk>, Option<Api>)> {
    std::fs::create_dir_all(data).with_context(|| format!("the directory {} cannot be made", data.display()))?;
    let file = data.join("api.redb");
    // Another process that is just ending is waited for.
    let opened = tokio::task::spawn_blocking(move || Disk::open(&file, System.moment().now)).await?;
    match opened {
        Ok((disk, api)) => Ok((Some(disk), api)),
        Err(DiskError::Locked(_)) => bail!(
            "{} is in use by another process: end the other quick start, or name another directory",
            data.display()
        ),
        Err(error) => Err(error).with_context(|| format!("the state in {} cannot be used", data.display())),
    }
}

/// Replaces the file as a whole, readable for its owner only: it holds a token.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    std::fs::remove_file(&new).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    let mut handle = std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&new)?;
    handle.write_all(text.as_bytes())?;
    std::fs::rename(&new, file)
}
