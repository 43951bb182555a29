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
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::accounts::Accounts;
use crate::apiserver;
use crate::cloud::Vm;
use crate::fleet::{Manager, VirtualProvider};
use crate::laws;
use crate::manifests;
use crate::script::Script;

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

    /// How the kind is named to the API server.
    #[must_use]
    pub fn resource(self) -> ApiResource {
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

/// A scene under way. Dropping it kills its processes.
pub struct Scene {
    pub plane: Arc<ControlPlane>,
    pub client: Client,
    pub namespace: String,
    pub provider: VirtualProvider,
    pub manager: Manager,
    /// Whom both are on the API server.
    pub accounts: Accounts,
    /// Whether waits start the manager and the provider again when they have died.
    pub revives: bool,
    /// How often they did.
    pub revived: u32,
    pub(crate) script: Script,
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

impl Sight {
    /// A bootstrap token as it may be looked at: without its data.
    pub(crate) fn token(token: &Secret) -> Value {
        json!({ "metadata": token.metadata, "type": token.type_ })
    }
}

impl millwright_oracles::Truth for Sight {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        let objects = match resource {
            "machines" => &self.machines,
            "machinesets" => &self.sets,
            "machinedeployments" => &self.deployments,
            "nodes" => &self.nodes,
            "secrets" => &self.tokens,
            other => unreachable!("no law of a scene asks for {other}"),
        };
        objects.iter().cloned().map(Arc::new).collect()
    }

    fn vms(&self) -> Vec<millwright_oracles::Vm> {
        let vms = self.vms.iter();
        vms.map(|vm| millwright_oracles::Vm {
            uid: vm.uid.clone(),
            id: vm.name.clone(),
            provider_id: vm.provider_id.clone(),
            // Whoever waits for an end waits until it is gone.
            leaving: false,
            runs: true,
        })
        .collect()
    }

    fn may_appear(&self, _: &str) -> bool {
        false
    }
}

impl Scene {
    /// One more manager of the same flags.
    pub async fn another_manager(&self) -> Manager {
        let manager = self
            .script
            .manager_on(&self.plane, &self.namespace, &self.accounts, &self.provider);
        manager.await
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
        self.post(kind, body, &PostParams::default()).await
    }

    /// What [`Scene::try_create`] would give; nothing is made.
    ///
    /// # Errors
    /// The API server's answer.
    pub async fn would_create(&self, kind: Kind, body: &Value) -> kube::Result<Value> {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        self.post(kind, body, &dry).await
    }

    async fn post(&self, kind: Kind, body: &Value, params: &PostParams) -> kube::Result<Value> {
        let resource = kind.resource();
        let mut body = body.clone();
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(resource.api_version));
            fields.insert("kind".to_owned(), json!(resource.kind));
        }
        let object: DynamicObject = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
        let made = self.api(kind).create(params, &object).await?;
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

    /// Changes the scene's class while there is no manager: the next one never sees it as it was. One that runs could see
    /// what the test does next sooner than the change.
    ///
    /// # Panics
    /// The API server refuses it.
    pub async fn class_from_the_start(&mut self, change: Value) {
        self.manager.service.kill();
        self.patch(Kind::Class, manifests::CLASS, change).await;
        self.manager.service.restart();
    }

    /// Asks for the deletion of an object.
    ///
    /// # Panics
    /// The API server refuses it.
    pub async fn delete(&self, kind: Kind, name: &str) {
        let deleted = self.api(kind).delete(name, &DeleteParams::default()).await;
        deleted.unwrap_or_else(|error| panic!("{kind:?} {name}: {error}"));
    }

    /// The user takes the deployment and the class away; waits until nothing is left of them.
    ///
    /// # Panics
    /// Something is left after the limit.
    pub async fn remove_all(&mut self, limit: Duration) {
        self.delete(Kind::Deployment, &self.namespace).await;
        self.delete(Kind::Class, manifests::CLASS).await;
        self.until("nothing is left", limit, async |scene: &Scene| {
            laws::nothing_left(&scene.look().await?)?;
            match left_over(scene).await?.as_slice() {
                [] => Ok(()),
                left => Err(format!("{left:?}")),
            }
        })
        .await;
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
                .map(Sight::token)
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
