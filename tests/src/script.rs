//! What a scene is made of: the flags of its processes, the prefix of its names. It starts the processes and applies the
//! class; what happens then is the scene's.

use std::sync::Arc;

use millwright_dev::apiserver::ControlPlane;

use crate::fleet::{Manager, VirtualProvider};
use crate::manifests;
use crate::scene::{Kind, Scene};

/// What a scene is made of, before it begins.
#[derive(Clone, Debug)]
pub struct Script {
    prefix: String,
    manager_flags: Vec<(String, String)>,
    manager_env: Vec<(String, String)>,
    provider_flags: Vec<(String, String)>,
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
            provider_flags: Vec::new(),
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

    /// Starts everything on `plane`, with the class and its Secret applied.
    ///
    /// # Panics
    /// Something does not start.
    pub async fn begin(self, plane: &Arc<ControlPlane>) -> Scene {
        let namespace = plane.create_namespace(&self.prefix).await.expect("a namespace");
        let mut provider = VirtualProvider::alone(plane.dir(), &namespace)
            .await
            .flag("--target-kubeconfig", plane.kubeconfig().display().to_string());
        for (flag, value) in &self.provider_flags {
            provider = provider.flag(flag, value);
        }
        let provider = provider.start();
        provider.wait_until_it_listens().await;
        let manager = self.manager_on(plane, &namespace, &provider.endpoint).await;
        let scene = Scene {
            client: plane.client().await.expect("a client"),
            plane: Arc::clone(plane),
            script: self,
            namespace,
            provider,
            manager,
            revives: false,
            revived: 0,
        };
        scene.create(Kind::Class, &manifests::class()).await;
        scene.create_secret(&manifests::secret()).await;
        scene
    }

    pub(crate) async fn manager_on(&self, plane: &ControlPlane, namespace: &str, driver: &str) -> Manager {
        let mut plan = Manager::on(plane, namespace).await.driver(driver);
        for (flag, value) in &self.manager_flags {
            plan = plan.flag(flag, value);
        }
        for (name, value) in &self.manager_env {
            plan = plan.env(name, value);
        }
        plan.start()
    }
}
