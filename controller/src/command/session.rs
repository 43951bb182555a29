//! One cluster as a command sees it: from a kubeconfig to objects. Reads in pages, writes guarded by what was read.

use std::fmt::Debug;
use std::path::Path;

use http::Uri;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config, Resource};
use millwright_core::api::{MachineDeployment, MachineSet, meta};
use millwright_core::ids::NodeName;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;
use super::flags::Reach;
use super::output;
use crate::kube::access::wrong_with;
use crate::kube::bare::Bare;
use crate::kube::client::{Cluster, Policy, Role};
use crate::kube::error::WriteError;
use crate::kube::readable::Readable;
use crate::kube::trouble::Trouble;
use crate::kube::write::Writer;
use crate::telemetry::Metrics;

/// How many objects one answer holds: kubectl's number.
const PAGE: u32 = 500;
/// How often a list is begun anew, if its pages grow too old while it is read.
const LISTS: usize = 3;
/// Who we are in `managedFields`, beside the manager.
const FIELD_MANAGER: &str = "millwright-rollout";

/// A cluster and a namespace.
pub struct Session {
    client: Client,
    server: String,
    /// The namespace that is meant.
    pub namespace: String,
}

impl Session {
    /// Opens what the flags name. Nothing is sent yet.
    pub async fn open(reach: &Reach) -> Result<Self, Failure> {
        let config = config(reach).await?;
        let (server, namespace) = (url(&config.cluster_url), config.default_namespace.clone());
        let policy = Policy {
            role: Role::Control,
            leadership: None,
            budget: None,
            metrics: Metrics::default(),
        };
        let cluster = Cluster::configured(config, policy).map_err(|error| Failure::Unusable(error.to_string()))?;
        Ok(Self {
            client: cluster.client,
            server,
            namespace: reach.namespace.clone().unwrap_or(namespace),
        })
    }

    /// The same for the cluster that the nodes join.
    pub async fn target(path: Option<&Path>, reach: &Reach) -> Result<Self, Failure> {
        match path {
            None => Self::open(reach).await,
            Some(path) => {
                let reach = Reach {
                    kubeconfig: Some(path.to_owned()),
                    context: None,
                    namespace: None,
                };
                Self::open(&reach).await
            }
        }
    }

    /// A request about a deployment failed.
    pub fn failure(&self, name: &str, trouble: impl Into<Trouble>) -> Failure {
        let what = format!("machinedeployment {name:?} in namespace {:?}", self.namespace);
        Failure::request(&what, &self.server, trouble.into())
    }

    /// There is no such object: `what` is `KIND/NAME`.
    pub fn lacks(&self, what: &str) -> Failure {
        let what = format!("{what} in namespace {:?}", self.namespace);
        Failure::request(&what, &self.server, Trouble::NotFound)
    }

    /// The namespace's objects of a kind.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reads one deployment.
    pub async fn deployment(&self, name: &str) -> Result<MachineDeployment, Failure> {
        let answer = self.api::<Bare<MachineDeployment>>().get(name).await;
        answer
            .map(|Bare(deployment)| deployment)
            .map_err(|error| self.failure(name, &error))
    }

    /// All sets of the namespace.
    pub async fn sets(&self) -> Result<Vec<MachineSet>, Failure> {
        self.list().await
    }

    /// All objects of a kind in the namespace.
    pub async fn list<K>(&self) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let place = format!("in namespace {:?}", self.namespace);
        self.pages(Api::namespaced(self.client.clone(), &self.namespace), &place)
            .await
    }

    /// All objects of a kind in all namespaces.
    pub async fn list_everywhere<K>(&self) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.pages(Api::all(self.client.clone()), "in all namespaces").await
    }

    /// All pods that are bound to a Node.
    pub async fn pods_on(&self, node: &NodeName) -> Result<Vec<Pod>, Failure> {
        let api = Api::<Readable<Pod>>::all(self.client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let listed = api.list(&params).await;
        let failed = |error| Failure::request(&format!("pods on node {node}"), &self.server, Trouble::from(&error));
        listed.map(|list| readable(list.items)).map_err(failed)
    }

    /// One page after the other. If the server has forgotten the state that the pages are of, from the first one again.
    async fn pages<K>(&self, api: Api<Readable<K>>, place: &str) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let what = format!("{} {place}", K::plural(&()));
        let mut trouble = Trouble::Stale;
        for _ in 0..LISTS {
            match self.whole_list(&api).await {
                Ok(objects) => return Ok(readable(objects)),
                Err(error) => trouble = Trouble::from(&error),
            }
            if trouble != Trouble::Stale {
                break;
            }
        }
        Err(Failure::request(&what, &self.server, trouble))
    }

    async fn whole_list<K>(&self, api: &Api<Readable<K>>) -> kube::Result<Vec<Readable<K>>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let mut objects = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&params).await?;
            objects.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(objects),
            }
        }
    }

    /// Merges a body into the deployment that was read. None: it has changed meanwhile.
    pub async fn merge(
        &self,
        read: &MachineDeployment,
        body: Value,
        dry_run: bool,
    ) -> Result<Option<MachineDeployment>, Failure> {
        let writer = Writer::new(self.client.clone(), None, &self.namespace).patching(FIELD_MANAGER, dry_run);
        match writer.merge(read, body).await {
            Ok(written) => Ok(Some(written)),
            Err(WriteError::Stale) => Ok(None),
            Err(error) => Err(self.failure(meta::name(&read.metadata), error)),
        }
    }
}

/// Those that can be read; the others are named, so that nobody takes the list for whole.
fn readable<K: Resource<DynamicType = ()>>(objects: Vec<Readable<K>>) -> Vec<K> {
    let mut all = Vec::with_capacity(objects.len());
    for object in objects {
        match object {
            Readable::Yes(object) => all.push(object),
            Readable::No(bad) => output::note(&format!(
                "{} {:?} cannot be read and is left out: {}",
                K::kind(&()).to_lowercase(),
                meta::name(&bad.metadata),
                bad.error
            )),
        }
    }
    all
}

async fn config(reach: &Reach) -> Result<Config, Failure> {
    let kubeconfig = match &reach.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let kubeconfig = match kubeconfig {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => return without_kubeconfig(reach, error),
    };
    let contexts = kubeconfig.contexts.iter().map(|context| context.name.clone());
    let there: Vec<String> = contexts.collect();
    let current = kubeconfig.current_context.clone().filter(|name| !name.is_empty());
    let Some(wanted) = reach.context.clone().or(current) else {
        return Err(Failure::NoCurrentContext(there));
    };
    if !there.contains(&wanted) {
        return Err(Failure::NoContext { wanted, there });
    }
    let options = KubeConfigOptions {
        context: Some(wanted),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.map_err(|error| Failure::Unusable(wrong_with(&error)))
}

/// In a pod, its service account will do, as for kubectl. A file that was named, or that is there and wrong, is a mistake to be told.
fn without_kubeconfig(reach: &Reach, error: KubeconfigError) -> Result<Config, Failure> {
    let (path, is_missing) = match &error {
        KubeconfigError::ReadConfig(error, path) => (Some(path.clone()), error.kind() == std::io::ErrorKind::NotFound),
        KubeconfigError::FindPath => (None, true),
        _ => (reach.kubeconfig.clone(), false),
    };
    let is_default = path.as_deref().is_none_or(|path| path.ends_with(".kube/config"));
    if is_missing && is_default && reach.kubeconfig.is_none() {
        return match reach.context {
            Some(_) => Err(Failure::NoKubeconfig),
            None => Config::incluster().map_err(|_| Failure::NoKubeconfig),
        };
    }
    let reason = wrong_with(&error);
    Err(match path {
        Some(path) => Failure::Kubeconfig { path, reason },
        None => Failure::Unusable(reason),
    })
}

/// The server's address without anything secret that might stand in it.
fn url(uri: &Uri) -> String {
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    let (scheme, host) = (uri.scheme_str().unwrap_or("https"), uri.host().unwrap_or_default());
    format!("{scheme}://{host}{port}")
}
