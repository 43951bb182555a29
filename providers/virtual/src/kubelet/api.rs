//! The requests that kubelets make. One function a request; decides nothing but what an answer means.
//!
//! Bodies are small JSON values and answers are read for three fields only: typed nodes would cost memory for nothing.

use std::{path::Path, time::Duration};

use http::{HeaderValue, Method, Request, StatusCode, header};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::Value;

use super::object;
use crate::{clock, cloud::Vm};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const NODES: &str = "/api/v1/nodes";
const NAMESPACES: &str = "/api/v1/namespaces";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Merges conditions by their type instead of replacing the list.
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const USER_AGENT: &str = concat!("millwright-provider-virtual/", env!("CARGO_PKG_VERSION"));

/// Why the kubeconfig is of no use. Found at start, and ends the process.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It does not read or names nothing usable.
    #[error("the kubeconfig {path} cannot be used")]
    Read {
        /// The file.
        path: String,
        /// What kube says.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// No client can be made of it, for example because a certificate does not parse.
    #[error("the kubeconfig {path} makes no client")]
    Client {
        /// The file.
        path: String,
        /// What kube says.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Why a request did not do its work.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("the API server did not answer within {REQUEST_TIMEOUT:?}")]
    TimedOut,
    #[error("the request failed")]
    Failed(#[source] Box<kube::Error>),
}

/// What a registration has found.
pub(super) enum Posted {
    /// The node is there and is the VM's.
    Ours { node_uid: String },
    /// The name belongs to the node of another VM.
    Foreign { provider_id: String },
}

/// What is read of a node.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Seen {
    metadata: SeenMetadata,
    spec: SeenSpec,
    status: SeenStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeenMetadata {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeenSpec {
    #[serde(rename = "providerID")]
    provider_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeenStatus {
    conditions: Vec<SeenCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeenCondition {
    r#type: String,
    status: String,
}

pub(super) struct NodeApi {
    client: Client,
    heartbeat: Duration,
}

impl NodeApi {
    pub(super) async fn new(kubeconfig: &Path, heartbeat: Duration) -> Result<Self, KubeconfigError> {
        let path = kubeconfig.display().to_string();
        let unusable = |source| KubeconfigError::Read {
            path: path.clone(),
            source: Box::new(source),
        };
        let read = Kubeconfig::read_from(kubeconfig).map_err(unusable)?;
        let unusable = |source| KubeconfigError::Read {
            path: path.clone(),
            source: Box::new(source),
        };
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .map_err(unusable)?;
        config
            .headers
            .push((header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
        let client = Client::try_from(config);
        let client = client.map_err(|source| KubeconfigError::Client {
            path,
            source: Box::new(source),
        })?;
        Ok(Self { client, heartbeat })
    }

    /// Registers the VM's node, or finds that it is there already.
    pub(super) async fn post_node(&self, vm: &Vm) -> Result<Posted, ApiError> {
        let node = object::node(vm, clock::now());
        match self.send(Method::POST, NODES.to_owned(), JSON, &node).await {
            Ok(seen) => Ok(Posted::Ours {
                node_uid: seen.metadata.uid,
            }),
            // An earlier try whose answer was lost, or somebody else.
            Err(error) if error.is(StatusCode::CONFLICT) => self.own_node(vm).await,
            Err(error) => Err(error),
        }
    }

    async fn own_node(&self, vm: &Vm) -> Result<Posted, ApiError> {
        let seen = self.get_node(&vm.node_name()).await?;
        if seen.spec.provider_id == vm.provider_id() {
            return Ok(Posted::Ours {
                node_uid: seen.metadata.uid,
            });
        }
        Ok(Posted::Foreign {
            provider_id: seen.spec.provider_id,
        })
    }

    /// Renews the node's Lease; makes it if there is none, and the namespace if that is missing, too.
    pub(super) async fn renew_lease(&self, vm: &Vm, node_uid: Option<&str>) -> Result<(), ApiError> {
        if let Some(node_uid) = node_uid {
            match self.post_lease(vm, node_uid).await {
                Err(error) if error.is(StatusCode::CONFLICT) => {}
                done => return done,
            }
        }
        let path = format!("{LEASES}/{}", vm.node_name());
        match self
            .send(
                Method::PATCH,
                path,
                MERGE_PATCH,
                &object::renewal(vm, clock::now(), self.heartbeat),
            )
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.is(StatusCode::NOT_FOUND) => {
                let seen = self.get_node(&vm.node_name()).await?;
                self.post_lease(vm, &seen.metadata.uid).await
            }
            Err(error) => Err(error),
        }
    }

    async fn post_lease(&self, vm: &Vm, node_uid: &str) -> Result<(), ApiError> {
        let lease = object::lease(vm, node_uid, clock::now(), self.heartbeat);
        match self.send(Method::POST, LEASES.to_owned(), JSON, &lease).await {
            Ok(_) => Ok(()),
            // Bare API servers take a moment to make their own namespaces.
            Err(error) if error.is(StatusCode::NOT_FOUND) => {
                let namespace = object::lease_namespace();
                match self.send(Method::POST, NAMESPACES.to_owned(), JSON, &namespace).await {
                    Err(error) if !error.is(StatusCode::CONFLICT) => return Err(error),
                    Ok(_) | Err(_) => {}
                }
                self.send(Method::POST, LEASES.to_owned(), JSON, &lease).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Marks the node as Ready, or as one that nobody hears of, if it is still there, still the VM's, and says otherwise.
    pub(super) async fn mark(&self, node: &str, provider_id: &str, is_ready: bool) -> Result<(), ApiError> {
        let seen = match self.get_node(node).await {
            Ok(seen) => seen,
            Err(error) if error.is(StatusCode::NOT_FOUND) => return Ok(()),
            Err(error) => return Err(error),
        };
        let says_ready = |told: &SeenCondition| told.r#type == "Ready" && told.status == "True";
        if seen.spec.provider_id != provider_id || seen.status.conditions.iter().any(says_ready) == is_ready {
            return Ok(());
        }
        let now = clock::now();
        let body = if is_ready {
            object::ready(now)
        } else {
            object::unknown(now)
        };
        let path = format!("{NODES}/{node}/status");
        match self.send(Method::PATCH, path, STRATEGIC_PATCH, &body).await {
            Err(error) if !error.is(StatusCode::NOT_FOUND) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn get_node(&self, name: &str) -> Result<Seen, ApiError> {
        self.send(Method::GET, format!("{NODES}/{name}"), JSON, &Value::Null)
            .await
    }

    async fn send(&self, method: Method, path: String, content: &str, body: &Value) -> Result<Seen, ApiError> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .body(body);
        let request = request.expect("paths are made of names that the API server accepts");
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.client.request::<Seen>(request)).await;
        answer
            .map_err(|_| ApiError::TimedOut)?
            .map_err(|error| ApiError::Failed(Box::new(error)))
    }
}

impl ApiError {
    fn is(&self, code: StatusCode) -> bool {
        match self {
            Self::TimedOut => false,
            Self::Failed(error) => matches!(error.as_ref(), kube::Error::Api(status) if status.code == code.as_u16()),
        }
    }
}
