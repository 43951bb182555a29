//! What a scene is made of: the flags of its processes, the prefix of its names. It starts the processes and applies the
//! class; what happens then is the scene's.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millwright_dev::apiserver::ControlPlane;

use crate::accounts::{self, Accounts, readdressed};
use crate::fleet::{Manager, VirtualProvider};
use crate::manifests;
use crate::scene::{Kind, Scene};

/// What a scene is made of, before it begins.
#[derive(Clone, Debug)]
pub struct Script {
    prefix: String,
    manager_flags: Vec<(String, String)>,
    manager_env: Vec<(String, String)>,
    manager_files: Option<u32>,
    provider_flags: Vec<(String, String)>,
    /// Where the manager finds the API server, if not where it is.
    manager_server: Option<String>,
    /// Where the manager finds the cluster with the nodes, if not where everything is.
    manager_target: Option<SocketAddr>,
    provider_target: Option<SocketAddr>,
    has_driver_dir: bool,
    is_in_the_originals_place: bool,
}

impl Script {
    /// A scene whose namespace, deployment and machines have names that begin with `prefix`. VMs are made and join
    /// without delay; the manager runs without an election.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            manager_flags: Vec::new(),
            manager_env: vec![("MILLWRIGHT_LEADER_ELECT".to_owned(), "false".to_owned())],
            manager_files: None,
            provider_flags: Vec::new(),
            manager_server: None,
            manager_target: None,
            provider_target: None,
            has_driver_dir: false,
            is_in_the_originals_place: false,
        }
        .provider("--create-delay", "100ms")
        .provider("--join-delay", "100ms")
    }

    /// One more flag of the manager, or another value of one.
    #[must_use]
    pub fn manager(mut self, flag: &str, value: impl Into<String>) -> Self {
        self.manager_flags.push((flag.to_owned(), value.into()));
        self
    }

    /// One more flag of the provider, or another value of one.
    #[must_use]
    pub fn provider(mut self, flag: &str, value: impl Into<String>) -> Self {
        self.provider_flags.retain(|(known, _)| known != flag);
        self.provider_flags.push((flag.to_owned(), value.into()));
        self
    }

    /// One more environment variable of the manager.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.manager_env.retain(|(known, _)| known != name);
        self.manager_env.push((name.to_owned(), value.into()));
        self
    }

    /// The manager may not open more files than this.
    #[must_use]
    pub fn manager_opens_at_most(mut self, files: u32) -> Self {
        self.manager_files = Some(files);
        self
    }

    /// The manager reaches the API server by another URL.
    #[must_use]
    pub fn manager_sees_the_server_at(mut self, url: String) -> Self {
        self.manager_server = Some(url);
        self
    }

    /// The manager gets a target cluster of its own, at another address of the same API server.
    #[must_use]
    pub fn manager_sees_its_nodes_at(mut self, address: SocketAddr) -> Self {
        self.manager_target = Some(address);
        self
    }

    /// VMs register as nodes at another address of the same API server.
    #[must_use]
    pub fn nodes_register_at(mut self, address: SocketAddr) -> Self {
        self.provider_target = Some(address);
        self
    }

    /// The manager is not told the provider's socket but the directory in which it lies.
    #[must_use]
    pub fn drivers_of_a_directory(mut self) -> Self {
        self.has_driver_dir = true;
        self
    }

    /// The manager has the command line and the roles that the original is deployed with.
    #[must_use]
    pub fn in_the_originals_place(mut self) -> Self {
        self.is_in_the_originals_place = true;
        self.env("MILLWRIGHT_LEADER_ELECT", "true")
    }

    /// Starts everything on `plane`, each under its shipped role unless told otherwise, with the class and its Secret applied.
    ///
    /// # Panics
    /// Something does not start.
    pub async fn begin(self, plane: &Arc<ControlPlane>) -> Scene {
        let namespace = plane.create_namespace(&self.prefix).await.expect("a namespace");
        let roles = match self.is_in_the_originals_place {
            true => accounts::ORIGINALS,
            false => accounts::SHIPPED,
        };
        let accounts = Accounts::granted(plane, &namespace, roles).await;
        let target = seen_at(plane, &accounts.provider, self.provider_target.map(tls));
        let dir = self.sockets(plane, &namespace);
        std::fs::create_dir_all(&dir).expect("a directory can be made");
        let mut provider = VirtualProvider::alone(&dir, &namespace)
            .await
            .flag("--target-kubeconfig", target.display().to_string());
        for (flag, value) in &self.provider_flags {
            provider = provider.flag(flag, value);
        }
        let provider = provider.start();
        provider.wait_until_it_listens().await;
        let manager = self.manager_on(plane, &namespace, &accounts, &provider).await;
        let scene = Scene {
            client: plane.client().await.expect("a client"),
            plane: Arc::clone(plane),
            script: self,
            namespace,
            provider,
            manager,
            accounts,
            revives: false,
            revived: 0,
        };
        scene.create(Kind::Class, &manifests::class()).await;
        scene.create_secret(&manifests::secret()).await;
        scene
    }

    /// Where the provider's socket lies.
    fn sockets(&self, plane: &ControlPlane, namespace: &str) -> PathBuf {
        match self.has_driver_dir {
            true => plane.dir().join(format!("{namespace}.d")),
            false => plane.dir().to_owned(),
        }
    }

    pub(crate) async fn manager_on(
        &self,
        plane: &ControlPlane,
        namespace: &str,
        accounts: &Accounts,
        provider: &VirtualProvider,
    ) -> Manager {
        let kubeconfig = seen_at(plane, &accounts.manager, self.manager_server.clone());
        let mut plan = match self.is_in_the_originals_place {
            true => Manager::in_the_originals_place(plane, namespace, &kubeconfig).await,
            false => Manager::of_account(plane, namespace, &kubeconfig).await,
        };
        plan = match self.has_driver_dir {
            true => plan.flag("--driver-dir", self.sockets(plane, namespace).display().to_string()),
            false => plan.driver(&provider.endpoint),
        };
        if let Some(address) = self.manager_target {
            let target = seen_at(plane, &accounts.manager, Some(tls(address)));
            plan = plan.flag("--target-kubeconfig", target.display().to_string());
        }
        for (flag, value) in &self.manager_flags {
            plan = plan.flag(flag, value);
        }
        for (name, value) in &self.manager_env {
            plan = plan.env(name, value);
        }
        if let Some(files) = self.manager_files {
            plan = plan.with_files(files);
        }
        plan.start()
    }
}

fn tls(address: SocketAddr) -> String {
    format!("https://{address}")
}

/// A kubeconfig, or the same for another URL of the API server.
fn seen_at(plane: &ControlPlane, kubeconfig: &Path, url: Option<String>) -> PathBuf {
    match url {
        Some(url) => readdressed(kubeconfig, &plane.url(), &url),
        None => kubeconfig.to_owned(),
    }
}
