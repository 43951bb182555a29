//! The manager and the virtual provider as processes, with the flags of issue 3. It may not look inside them, and
//! decides nothing but where their sockets and files are.
//!
//! ```no_run
//! # use millwright_tests::{apiserver, fleet::{Manager, VirtualProvider}};
//! # async fn example() {
//! # let plane = apiserver::start("x").await.unwrap();
//! let provider = VirtualProvider::on(&plane).await.flag("--list-lag", "3s").start();
//! let mut manager = Manager::on(&plane, "default").await.driver(&provider.endpoint).start();
//! manager.service.kill(); // -9
//! manager.service.restart();
//! # }
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use millwright_dev::apiserver::ControlPlane;
use millwright_dev::apiserver::binaries::workspace_root;
use serde_json::Value;

use crate::programs::programs;
use crate::service::{Recipe, ReservedPort, Service, eventually, log_in};

/// How long a program may take until it answers; only a machine under load comes near it.
const START: Duration = Duration::from_secs(60);

/// The Deployment in the original's place, as shipped.
const IN_PLACE: &str = "deploy/in-place/deployment.yaml";
/// Those of its manager's flags that are other ones on each machine.
const LOCAL: [&str; 7] = [
    "control-kubeconfig",
    "target-kubeconfig",
    "namespace",
    "address",
    "port",
    "cluster-id",
    "driver-dir",
];

/// A virtual provider before its start.
#[derive(Debug)]
pub struct VirtualProviderPlan {
    recipe: Recipe,
    endpoint: String,
    socket: PathBuf,
    console: PathBuf,
    state: PathBuf,
}

/// A running virtual provider.
#[derive(Debug)]
pub struct VirtualProvider {
    pub service: Service,
    /// What the manager's `--driver` takes: `unix:///PATH`.
    pub endpoint: String,
    pub socket: PathBuf,
    /// The cloud's own window (`--console`), past the Driver API.
    pub console: PathBuf,
    pub state: PathBuf,
}

impl VirtualProvider {
    /// A provider whose VMs register as nodes on `plane`, with its socket, state and log in the plane's directory.
    pub async fn on(plane: &ControlPlane) -> VirtualProviderPlan {
        let kubeconfig = plane.kubeconfig().display().to_string();
        Self::alone(plane.dir(), "virtual")
            .await
            .flag("--target-kubeconfig", kubeconfig)
    }

    /// A provider without a cluster, its files in `dir` under `name`.
    pub async fn alone(dir: &Path, name: &str) -> VirtualProviderPlan {
        let file = |extension: &str| dir.join(format!("{name}.{extension}"));
        let (socket, console, state) = (file("sock"), file("console"), file("state"));
        let endpoint = format!("unix://{}", socket.display());
        let recipe = Recipe {
            name: name.to_owned(),
            program: programs().await.virtual_provider.clone(),
            args: Vec::new(),
            env: vec![("RUST_LOG".to_owned(), "info".to_owned())],
            log: log_in(dir, name),
        };
        VirtualProviderPlan {
            recipe,
            endpoint,
            socket,
            console,
            state,
        }
        .flag("--listen", format!("unix://{}", file("sock").display()))
        .flag("--console", format!("unix://{}", file("console").display()))
        .flag("--state", file("state").display().to_string())
    }

    /// Waits until it accepts connections, after a start or a restart.
    ///
    /// # Panics
    /// It does not within a minute.
    pub async fn wait_until_it_listens(&self) {
        let probe = async || tokio::net::UnixStream::connect(&self.socket).await.map(drop);
        eventually("the provider listens", START, &[&self.service], probe).await;
    }
}

impl VirtualProviderPlan {
    /// One more flag with its value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: impl Into<String>) -> Self {
        self.recipe.args.extend([name.to_owned(), value.into()]);
        self
    }

    /// Starts it, without waiting.
    #[must_use]
    pub fn start(self) -> VirtualProvider {
        let Self {
            recipe,
            endpoint,
            socket,
            console,
            state,
        } = self;
        VirtualProvider {
            service: Service::start(recipe),
            endpoint,
            socket,
            console,
            state,
        }
    }
}

/// A manager before its start.
#[derive(Debug)]
pub struct ManagerPlan {
    recipe: Recipe,
    port: ReservedPort,
}

/// A running manager.
#[derive(Debug)]
pub struct Manager {
    pub service: Service,
    /// Of `/livez`, `/readyz` and `/metrics`.
    port: ReservedPort,
}

/// The flags of [`IN_PLACE`] that are the same everywhere.
fn flags_in_place() -> impl Iterator<Item = String> {
    let text = std::fs::read_to_string(workspace_root().join(IN_PLACE)).expect("the example is in the checkout");
    let example: Value = serde_saphyr::from_str(&text).expect("the example is YAML");
    let args = example.pointer("/spec/template/spec/containers/0/args").cloned();
    let args: Vec<String> = serde_json::from_value(args.unwrap_or_default()).expect("the arguments are texts");
    let is_local = |arg: &String| {
        let name = arg.trim_start_matches('-').split('=').next().unwrap_or_default();
        LOCAL.contains(&name)
    };
    args.into_iter().filter(move |arg| !is_local(arg))
}

impl Manager {
    /// The manager as shipped, for one namespace of `plane`, with cluster id `local`; it may do everything.
    pub async fn on(plane: &ControlPlane, namespace: &str) -> ManagerPlan {
        Self::of_account(plane, namespace, &plane.kubeconfig()).await
    }

    /// [`Manager::on`] with the kubeconfig of an account.
    pub async fn of_account(plane: &ControlPlane, namespace: &str, kubeconfig: &Path) -> ManagerPlan {
        let plan = Self::plan(plane, namespace).await;
        let admin = plan.port.address();
        plan.flag("--kubeconfig", kubeconfig.display().to_string())
            .flag("--metrics-addr", admin.to_string())
    }

    /// [`Manager::of_account`] with the command line of the shipped Deployment in the original's place.
    pub async fn in_the_originals_place(plane: &ControlPlane, namespace: &str, kubeconfig: &Path) -> ManagerPlan {
        let mut plan = Self::plan(plane, namespace).await;
        plan.recipe.args.extend(flags_in_place());
        let admin = plan.port.address();
        plan.flag("--control-kubeconfig", kubeconfig.display().to_string())
            .flag("--target-kubeconfig", kubeconfig.display().to_string())
            .flag("--port", admin.port().to_string())
    }

    async fn plan(plane: &ControlPlane, namespace: &str) -> ManagerPlan {
        let port = ReservedPort::any();
        let admin = port.address();
        // Several managers may stand beside each other on one control plane.
        let log = log_in(plane.dir(), &format!("manager-{}", admin.port()));
        let recipe = Recipe {
            name: format!("manager-{}", admin.port()),
            program: programs().await.manager.clone(),
            args: vec!["manager".to_owned()],
            env: vec![("RUST_LOG".to_owned(), "info".to_owned())],
            log,
        };
        ManagerPlan { recipe, port }
            .flag("--namespace", namespace)
            .flag("--cluster-id", "local")
    }

    /// The answer of one of `/livez`, `/readyz`, `/metrics`: status code and text.
    ///
    /// # Errors
    /// Nobody listens, or what answers is not HTTP.
    pub async fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(self.port.address()).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.port.address());
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
        let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
        Ok((status.ok_or(std::io::ErrorKind::InvalidData)?, body.to_owned()))
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Panics
    /// It does not within a minute.
    pub async fn wait_until_ready(&self) {
        self.wait_until("/readyz").await;
    }

    /// Waits until `/livez` answers 200: it runs, whatever it can reach.
    ///
    /// # Panics
    /// It does not within a minute.
    pub async fn wait_until_live(&self) {
        self.wait_until("/livez").await;
    }

    async fn wait_until(&self, path: &str) {
        let probe = async || match self.get(path).await {
            Ok((200, _)) => Ok(()),
            Ok((code, body)) => Err(format!("{code} {body}")),
            Err(error) => Err(error.to_string()),
        };
        eventually(
            &format!("200 from {path} of the manager"),
            START,
            &[&self.service],
            probe,
        )
        .await;
    }
}

impl ManagerPlan {
    /// One driver to use.
    #[must_use]
    pub fn driver(self, endpoint: &str) -> Self {
        self.flag("--driver", endpoint)
    }

    /// One more flag with its value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: impl Into<String>) -> Self {
        self.recipe.args.extend([name.to_owned(), value.into()]);
        self
    }

    /// One more environment variable, for example to arm a crash point.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.recipe.env.push((name.to_owned(), value.into()));
        self
    }

    /// The process may not open more files than this, whatever it asks for.
    #[must_use]
    pub fn with_files(mut self, most: u32) -> Self {
        let program = std::mem::replace(&mut self.recipe.program, "prlimit".into());
        let first = [format!("--nofile={most}:{most}"), program.display().to_string()];
        self.recipe.args.splice(0..0, first);
        self
    }

    /// Starts it, without waiting.
    #[must_use]
    pub fn start(self) -> Manager {
        Manager {
            service: Service::start(self.recipe),
            port: self.port,
        }
    }
}
