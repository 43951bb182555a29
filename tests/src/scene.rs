//! One namespace with a manager and a virtual provider of its own, on a control plane that all tests of a program share;
//! what a user does there, and what can be seen there from outside. It may not judge: that is `laws`.
//!
//! Objects are read as plain JSON, so that nothing here depends on the types under test.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use millwright_dev::apiserver::ControlPlane;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::fleet::{Manager, VirtualProvider};
use crate::programs::programs;
use crate::{apiserver, manifests};

/// Between two looks at the control plane; a list of a few objects costs it about a millisecond.
const LOOK: Duration = Duration::from_millis(100);
const TOKENS: &str = "kube-system";

/// The control plane that all tests of this program share, or `None` after saying that `what` is skipped. It ends with
/// the last test that holds it.
pub async fn shared_plane(what: &str) -> Option<Arc<ControlPlane>> {
    static SHARED: Mutex<Weak<ControlPlane>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(plane) = shared.upgrade() {
        return Some(plane);
    }
    let plane = Arc::new(apiserver::start_with_crds(what).await?);
    *shared = Arc::downgrade(&plane);
    Some(plane)
}

/// The kinds of `machine.sapcloud.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Machine,
    Set,
    Deployment,
    Class,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Machine, Self::Set, Self::Deployment, Self::Class];

    fn resource(self) -> ApiResource {
        let (kind, plural) = match self {
            Self::Machine => ("Machine", "machines"),
            Self::Set => ("MachineSet", "machinesets"),
            Self::Deployment => ("MachineDeployment", "machinedeployments"),
            Self::Class => ("MachineClass", "machineclasses"),
        };
        let gvk = GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", kind);
        ApiResource::from_gvk_with_plural(&gvk, plural)
    }
}

/// What a scene is made of, before it begins.
#[derive(Clone, Debug)]
pub struct Script {
    prefix: String,
    manager_flags: Vec<(String, String)>,
    manager_env: Vec<(String, String)>,
    provider_flags: Vec<(String, String)>,
    crash_points: bool,
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
            crash_points: false,
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

    /// The manager is the build that dies at crash points; see `controller/src/crash.rs`.
    #[must_use]
    pub fn with_crash_points(mut self) -> Self {
        self.crash_points = true;
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

    async fn manager_on(&self, plane: &ControlPlane, namespace: &str, driver: &str) -> Manager {
        let mut plan = match self.crash_points {
            true => Manager::with_crash_points_on(plane, namespace).await,
            false => Manager::on(plane, namespace).await,
        };
        plan = plan.driver(driver);
        for (flag, value) in &self.manager_flags {
            plan = plan.flag(flag, value);
        }
        for (name, value) in &self.manager_env {
            plan = plan.env(name, value);
        }
        plan.start()
    }
}

/// A scene under way. Dropping it kills its processes.
pub struct Scene {
    pub plane: Arc<ControlPlane>,
    pub client: Client,
    pub namespace: String,
    pub provider: VirtualProvider,
    pub manager: Manager,
    /// Whether waits start the manager and the provider again when they have died.
    pub revives: bool,
    /// How often they did.
    pub revived: u32,
    script: Script,
}

/// A VM as the cloud itself shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    pub provider_id: String,
    pub state: String,
    pub name: String,
    pub uid: String,
}

/// A line of the cloud's journal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub at: Timestamp,
    pub event: String,
    pub vm_id: String,
    pub uid: String,
    pub name: String,
}

/// All that can be seen of a scene at about one moment.
#[derive(Clone, Debug)]
pub struct Sight {
    pub machines: Vec<Value>,
    pub sets: Vec<Value>,
    pub deployments: Vec<Value>,
    pub vms: Vec<Vm>,
    pub nodes: Vec<Value>,
    /// Bootstrap tokens of the namespace's machines.
    pub tokens: Vec<Value>,
}

impl Scene {
    /// One more manager of the same flags.
    pub async fn another_manager(&self) -> Manager {
        let endpoint = &self.provider.endpoint;
        self.script.manager_on(&self.plane, &self.namespace, endpoint).await
    }

    /// The objects of a kind in this namespace.
    #[must_use]
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// Creates an object; its `kind` and `apiVersion` are set here.
    ///
    /// # Panics
    /// The API server refuses it.
    pub async fn create(&self, kind: Kind, body: &Value) -> Value {
        self.try_create(kind, body)
            .await
            .unwrap_or_else(|error| panic!("{kind:?}: {error}"))
    }

    /// [`Scene::create`], for bodies that may be refused.
    ///
    /// # Errors
    /// The API server's answer.
    pub async fn try_create(&self, kind: Kind, body: &Value) -> kube::Result<Value> {
        let resource = kind.resource();
        let mut body = body.clone();
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(resource.api_version));
            fields.insert("kind".to_owned(), json!(resource.kind));
        }
        let object: DynamicObject = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
        let made = self.api(kind).create(&PostParams::default(), &object).await?;
        Ok(json!(made))
    }

    /// Creates a Secret in this namespace.
    ///
    /// # Panics
    /// The API server refuses it.
    pub async fn create_secret(&self, body: &Value) {
        let secret: Secret = serde_json::from_value(body.clone()).expect("a Secret");
        self.secrets()
            .create(&PostParams::default(), &secret)
            .await
            .expect("the Secret is made");
    }

    /// The Secrets of this namespace.
    #[must_use]
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The scene's deployment, named like its namespace, with the class of the scene.
    ///
    /// # Panics
    /// The API server refuses it.
    pub async fn deploy(&self, replicas: u32) {
        let body = manifests::deployment(&self.namespace, replicas);
        self.create(Kind::Deployment, &body).await;
    }

    /// Scales the scene's deployment by its subresource, as kubectl and the autoscaler do.
    ///
    /// # Panics
    /// The API server refuses it.
    pub async fn scale(&self, replicas: u32) {
        let wish = json!({ "spec": { "replicas": replicas } });
        let scaled = self
            .api(Kind::Deployment)
            .patch_scale(&self.namespace, &PatchParams::default(), &Patch::Merge(&wish))
            .await;
        scaled.expect("the deployment can be scaled");
    }

    /// Changes an object by a merge patch.
    ///
    /// # Panics
    /// The API server refuses it.
    pub async fn patch(&self, kind: Kind, name: &str, body: Value) {
        let params = PatchParams {
            field_manager: Some("test".to_owned()),
            ..PatchParams::default()
        };
        let patched = self.api(kind).patch(name, &params, &Patch::Merge(&body)).await;
        patched.unwrap_or_else(|error| panic!("{kind:?} {name}: {error}"));
    }

    /// Asks for the deletion of an object.
    ///
    /// # Panics
    /// The API server refuses it.
    pub async fn delete(&self, kind: Kind, name: &str) {
        let deleted = self.api(kind).delete(name, &DeleteParams::default()).await;
        deleted.unwrap_or_else(|error| panic!("{kind:?} {name}: {error}"));
    }

    /// An object as it is now.
    ///
    /// # Panics
    /// It is not there.
    pub async fn get(&self, kind: Kind, name: &str) -> Value {
        let found = self.api(kind).get(name).await;
        json!(found.unwrap_or_else(|error| panic!("{kind:?} {name}: {error}")))
    }

    /// kubectl in this namespace.
    ///
    /// # Panics
    /// It fails.
    pub async fn kubectl(&self, args: &[&str], input: &str) -> String {
        let all: Vec<&str> = ["-n", &self.namespace]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        let answer = self.plane.kubectl_with_input(&all, input).await.expect("kubectl runs");
        assert!(answer.success, "kubectl {args:?}: {}", answer.stderr);
        answer.stdout
    }

    /// Events of this namespace about an object: reason and message of each.
    ///
    /// # Errors
    /// The API server's answer.
    pub async fn events_about(&self, name: &str) -> Result<Vec<(String, String)>, String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = events
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let about = all
            .items
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(name));
        Ok(about
            .map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect())
    }

    /// All that can be seen now.
    ///
    /// # Errors
    /// The API server or the cloud does not answer.
    pub async fn look(&self) -> Result<Sight, String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let tokens: Api<Secret> = Api::namespaced(self.client.clone(), TOKENS);
        let of_tokens = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
        let everything = ListParams::default();
        let (machines, sets, deployments, nodes, tokens) = tokio::try_join!(
            async { self.list(Kind::Machine).await },
            async { self.list(Kind::Set).await },
            async { self.list(Kind::Deployment).await },
            async { nodes.list(&everything).await.map_err(|error| error.to_string()) },
            async { tokens.list(&of_tokens).await.map_err(|error| error.to_string()) },
        )?;
        let ours = format!("{}-", self.namespace);
        let place = format!("machine {}/", self.namespace);
        Ok(Sight {
            machines,
            sets,
            deployments,
            vms: self.vms().await?,
            nodes: nodes
                .items
                .iter()
                .filter(|node| node.name_any().starts_with(&ours))
                .map(|node| json!(node))
                .collect(),
            tokens: tokens
                .items
                .iter()
                .filter(|token| description(token).contains(&place))
                .map(|token| json!(token.metadata))
                .collect(),
        })
    }

    /// All objects of a kind in this namespace.
    ///
    /// # Errors
    /// The API server's answer.
    pub async fn list(&self, kind: Kind) -> Result<Vec<Value>, String> {
        let all = self.api(kind).list(&ListParams::default()).await;
        Ok(all
            .map_err(|error| error.to_string())?
            .items
            .iter()
            .map(|object| json!(object))
            .collect())
    }

    /// Every VM, from the console of the running cloud.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn vms(&self) -> Result<Vec<Vm>, String> {
        let listed = self.console("vms").await?;
        serde_json::from_str(&listed).map_err(|error| format!("{error}: {listed}"))
    }

    /// All that ever happened in the cloud.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn journal(&self) -> Result<Vec<Entry>, String> {
        let listed = self.console("journal").await?;
        serde_json::from_str(&listed).map_err(|error| format!("{error}: {listed}"))
    }

    /// Takes a VM away, or powers it off (`remove`, `stop`), past the Driver API.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn at_the_console(&self, act: &str, vm: &str) -> Result<(), String> {
        self.console_args(&[act, vm]).await.map(drop)
    }

    async fn console(&self, act: &str) -> Result<String, String> {
        self.console_args(&["-o", "json", act]).await
    }

    async fn console_args(&self, args: &[&str]) -> Result<String, String> {
        let output = tokio::process::Command::new(&programs().await.virtual_provider)
            .args(["console", "--connect"])
            .arg(format!("unix://{}", self.provider.console.display()))
            .args(args)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// A file of this scene's own.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.plane.dir().join(format!("{}.{name}", self.namespace))
    }

    /// Looks again and again until the answer is `Ok`.
    ///
    /// # Panics
    /// There is no `Ok` within `limit`; with the last reason and the ends of the logs.
    pub async fn until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut probe: impl AsyncFnMut(&Self) -> Result<T, String>,
    ) -> T {
        let began = Instant::now();
        loop {
            self.revive();
            let reason = match probe(self).await {
                Ok(found) => return found,
                Err(reason) => reason,
            };
            if began.elapsed() >= limit {
                let logs = [&self.manager.service, &self.provider.service].map(|service| service.log_tail());
                panic!(
                    "{}: not within {limit:?}: {what} ({reason})\n{}",
                    self.namespace,
                    logs.concat()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts what has died again, without its crash point.
    fn revive(&mut self) {
        if !self.revives {
            return;
        }
        if !self.manager.service.is_running() {
            self.manager
                .service
                .recipe_mut()
                .env
                .retain(|(name, _)| name != "MILLWRIGHT_CRASH_AT");
            self.manager.service.restart();
            self.revived += 1;
        }
        if !self.provider.service.is_running() {
            self.provider.service.restart();
            self.revived += 1;
        }
    }

    /// Waits until there are exactly `machines` running machines of the deployment and nothing else (`laws::settled`).
    ///
    /// # Panics
    /// It does not come to that.
    pub async fn settled_at(&mut self, machines: usize, limit: Duration) -> Sight {
        let what = format!("exactly {machines} machines, VMs and nodes");
        self.until(&what, limit, async |scene: &Self| {
            let sight = scene.look().await?;
            crate::laws::settled(&sight, machines).map(|()| sight)
        })
        .await
    }
}

fn description(token: &Secret) -> String {
    let text = token.data.as_ref().and_then(|data| data.get("description"));
    text.map_or_else(String::new, |text| String::from_utf8_lossy(&text.0).into_owned())
}

/// Every kind's objects of the namespace that are left, for the end of a scene.
///
/// # Errors
/// The API server's answer.
pub async fn left_over(scene: &Scene) -> Result<Vec<String>, String> {
    let mut left = Vec::new();
    for kind in Kind::ALL {
        for object in scene.list(kind).await? {
            left.push(format!("{kind:?} {}", object["metadata"]["name"]));
        }
    }
    Ok(left)
}
