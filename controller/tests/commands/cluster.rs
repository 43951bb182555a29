//! A cluster in memory, its kubeconfig, and the binary.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use millwright_core::api::{MachineDeployment, keys};
use millwright_sandbox::api::Api as Value;
use millwright_sandbox::http::outside::{Outside as _, System};
use millwright_sandbox::http::users::Users;
use millwright_sandbox::http::{Options, Running, Server};
use millwright_sandbox::rbac::User;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// What a step of a test may take on a busy computer.
pub const PATIENCE: Duration = Duration::from_secs(60);
const ADMIN: &str = "admin";
/// An account that may do nothing.
pub const NOBODY: &str = "system:serviceaccount:default:nobody";

pub struct Cluster {
    pub server: Running,
    pub client: Client,
    pub dir: TempDir,
}

/// What a command left behind.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// It went well; what it printed.
    #[track_caller]
    pub fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// It failed; what it said.
    #[track_caller]
    pub fn badly(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.err
    }
}

impl Cluster {
    /// With our kinds.
    pub async fn start() -> Self {
        let mut api = Value::new(System.moment().now);
        for definition in millwright_core::api::crds::all() {
            let definition = serde_json::to_value(definition).unwrap();
            api.install(&definition, &System.moment()).unwrap();
        }
        Self::serve(api).await
    }

    /// Without our kinds.
    pub async fn bare() -> Self {
        Self::serve(Value::new(System.moment().now)).await
    }

    async fn serve(api: Value) -> Self {
        let users = Users::default()
            .with(ADMIN, "t0ken")
            .with_user(User::service_account("default", "nobody"), "t1ken");
        let server = Server::start(Options::new(api, users)).await.unwrap();
        let text = server.kubeconfig(ADMIN).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kubeconfig"), text).unwrap();
        Self { server, client, dir }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Writes another kubeconfig and gives its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Stores an object; its status, if it has one, too.
    pub async fn store<K>(&self, object: serde_json::Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let status = json!({ "status": object["status"] });
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let object: K = serde_json::from_value(object).unwrap();
        let made = self.api::<K>().create(&PostParams::default(), &object).await.unwrap();
        match status["status"].is_null() {
            true => made,
            false => self.tell(&name, status).await,
        }
    }

    /// Merges into an object.
    pub async fn edit(&self, name: &str, body: serde_json::Value) -> MachineDeployment {
        let api = self.api::<MachineDeployment>();
        api.patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap()
    }

    /// Merges into an object's status.
    pub async fn tell<K>(&self, name: &str, body: serde_json::Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api = self.api::<K>();
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap()
    }

    /// The deployment `workers` of three, of the class `large`, without a status.
    pub async fn deployment(&self) -> MachineDeployment {
        self.store(json!({
            "metadata": { "name": "workers", "annotations": { keys::REVISION: "2" } },
            "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "shop" } }, "template": template("large") },
        }))
        .await
    }

    /// A status of `workers` with the numbers updated, all and available.
    pub async fn numbers(&self, numbers: [i32; 3]) -> MachineDeployment {
        let generation = self.workers().await.metadata.generation;
        let [updated, all, available] = numbers;
        let status = json!({
            "observedGeneration": generation,
            "updatedReplicas": updated, "replicas": all, "availableReplicas": available, "readyReplicas": available,
            "conditions": [{ "type": "Progressing", "status": "True", "reason": "MachineSetUpdated",
                "message": "MachineSet \"workers-2\" is progressing." }],
        });
        self.tell("workers", json!({ "status": status })).await
    }

    /// `workers` as it is stored.
    pub async fn workers(&self) -> MachineDeployment {
        self.api().get("workers").await.unwrap()
    }

    /// Runs a command to its end.
    pub async fn run(&self, words: &str) -> Ended {
        run(command(words).env("KUBECONFIG", self.kubeconfig())).await
    }

    /// Begins a command.
    pub fn begin(&self, words: &str) -> Begun {
        begin(command(words).env("KUBECONFIG", self.kubeconfig()))
    }
}

/// What machines are made from.
pub fn template(class: &str) -> serde_json::Value {
    json!({
        "metadata": { "labels": { "app": "shop" } },
        "spec": { "class": { "kind": "MachineClass", "name": class } },
    })
}

/// The binary with words, in an environment that names no cluster.
pub fn command(words: &str) -> Command {
    called(Path::new(env!("CARGO_BIN_EXE_millwright")), words)
}

pub fn called(binary: &Path, words: &str) -> Command {
    let mut command = Command::new(binary);
    command
        .args(words.split_whitespace())
        .env_clear()
        .env("HOME", "/nonexistent");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub async fn run(command: &mut Command) -> Ended {
    let output = tokio::time::timeout(PATIENCE, command.output());
    let output = output.await.expect("the command ends in time").unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A command that runs.
pub struct Begun {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

pub fn begin(command: &mut Command) -> Begun {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Begun { child, lines }
}

impl Begun {
    /// Its next line; none at its end.
    pub async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line());
        line.await.expect("a line comes in time").unwrap()
    }

    /// Waits for its end; what it printed since the last line that was read.
    pub async fn ended(mut self) -> Ended {
        let (mut out, mut err) = (String::new(), String::new());
        while let Some(line) = self.line().await {
            out += &line;
            out.push('\n');
        }
        let mut said = self.child.stderr.take().unwrap();
        said.read_to_string(&mut err).await.unwrap();
        let status = tokio::time::timeout(PATIENCE, self.child.wait());
        Ended {
            code: status.await.expect("it ends in time").unwrap().code(),
            out,
            err,
        }
    }
}
