//! Every write to the API, with the precondition that makes a stale one fail.
//!
//! Chooses nothing. Objects of ours are written by merge patches of only our fields that carry the resourceVersion that
//! was read: versions are the cluster's, so that guards the uid as well, and unknown fields stay
//! (S8, S10). Nodes have other writers every few seconds and are written by strategic merge of list items
//! of ours, guarded by uid. Deletions carry the uid. Answers are read without `managedFields`. Nothing here repeats a
//! request.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use millwright_core::api::pruned::{self, Pruned};
use millwright_core::api::{keys, meta};
use millwright_core::ids::{Name, NodeName, NodeRef, Uid};
use millwright_core::kinds::SecretMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::bare::Bare;
use super::error::{ReadError, WriteError, said};
use crate::crash;

/// Who we are in `managedFields`.
const FIELD_MANAGER: &str = "millwright";

/// Writes to the control cluster's namespace and to the target cluster.
#[derive(Clone)]
pub struct Writer {
    control: Client,
    target: Option<Client>,
    namespace: String,
    params: PatchParams,
}

/// A kind of ours that lives in the control namespace.
pub trait Own:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + 'static
{
}

impl<K> Own for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + 'static
{
}

impl Writer {
    /// A writer; `target` is absent where there is no cluster to join.
    pub fn new(control: Client, target: Option<Client>, namespace: impl Into<String>) -> Self {
        Self {
            control,
            target,
            namespace: namespace.into(),
            params: params(),
        }
    }

    /// Patches are written in this name, and with `dry_run` only tried.
    #[must_use]
    pub fn patching(mut self, field_manager: &str, dry_run: bool) -> Self {
        self.params = PatchParams {
            field_manager: Some(field_manager.to_owned()),
            dry_run,
            ..PatchParams::default()
        };
        self
    }

    /// The namespace of our kinds.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    fn own<K: Own>(&self) -> Api<Bare<K>> {
        Api::namespaced(self.control.clone(), &self.namespace)
    }

    /// Reads one object from the API server itself.
    pub async fn read<K: Own>(&self, name: &Name) -> Result<K, ReadError> {
        self.own::<K>()
            .get(name.as_str())
            .await
            .map(bare)
            .map_err(ReadError::from)
    }

    /// Merges `body` into the object that was read.
    pub async fn merge<K: Own>(&self, read: &K, body: Value) -> Result<K, WriteError> {
        let api = self.own::<K>();
        let ((name, uid), patch) = (meta::identity(read.meta()), Patch::Merge(guarded(read, body)));
        let sent = async { api.patch(name.as_str(), &self.params, &patch).await };
        match crash::around("merge", sent).await {
            Ok(Bare(written)) => Ok(written),
            Err(error) => Err(self.failure::<K>((&name, &uid), error).await),
        }
    }

    /// Merges `body` into the status of the object that was read. Gives the object as it is meant to be, also where the cluster's CRD does
    /// not know some of it.
    pub async fn merge_status<K: Own + Pruned>(&self, read: &K, body: Value) -> Result<K, WriteError> {
        self.record(read, body).await.map(|(written, _)| written)
    }

    /// The same, and whether all of it was stored.
    pub async fn record<K: Own + Pruned>(&self, read: &K, body: Value) -> Result<(K, bool), WriteError> {
        let api = self.own::<K>();
        let ((name, uid), body) = (meta::identity(read.meta()), guarded(read, body));
        let patch = Patch::Merge(&body);
        let sent = async { api.patch_status(name.as_str(), &self.params, &patch).await };
        match crash::around("status", sent).await {
            Ok(Bare(written)) if written.lacks(&body) => Ok((pruned::completed(written, &body), false)),
            Ok(Bare(written)) => Ok((written, true)),
            Err(error) => Err(self.failure::<K>((&name, &uid), error).await),
        }
    }

    /// What an error of a write to the object means. A 404 speaks of the path: that the object is gone only a read says.
    async fn failure<K: Own>(&self, (name, uid): (&Name, &Uid), error: kube::Error) -> WriteError {
        let refused = match &error {
            kube::Error::Api(status) if status.code == 404 => format!("it does not serve that path: {}", said(status)),
            _ => return WriteError::from(error),
        };
        match self.read::<K>(name).await {
            Ok(there) if meta::identity(there.meta()).1 == *uid => WriteError::Refused { reason: refused },
            Ok(_) | Err(ReadError::Gone) => WriteError::Gone,
            Err(unread) => WriteError::Unreachable {
                reason: unread.to_string(),
            },
        }
    }

    /// Adds a finalizer to the object that was read.
    pub async fn add_finalizer<K: Own>(&self, read: &K, finalizer: &str) -> Result<K, WriteError> {
        let mut held = read.meta().finalizers.clone().unwrap_or_default();
        held.push(finalizer.to_owned());
        self.merge(read, json!({ "metadata": { "finalizers": held } })).await
    }

    /// Takes a finalizer from the object that was read.
    pub async fn remove_finalizer<K: Own>(&self, read: &K, finalizer: &str) -> Result<K, WriteError> {
        let mut held = read.meta().finalizers.clone().unwrap_or_default();
        held.retain(|item| item != finalizer);
        self.merge(read, json!({ "metadata": { "finalizers": held } })).await
    }

    /// Creates an object under a name that was chosen before. The body goes out as it is: a template's fields that our
    /// types do not know would be lost on the way through them.
    pub async fn create<K: Own>(&self, body: Value) -> Result<K, WriteError> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let url = self.own::<K>().resource_url().to_owned();
        let request = kube::core::Request::new(url)
            .create(&params, body.to_string().into_bytes())
            .map_err(|error| WriteError::Refused {
                reason: format!("the request cannot be built: {error}"),
            })?;
        crash::around("create", async { self.control.request::<Bare<K>>(request).await })
            .await
            .map(bare)
            .map_err(WriteError::of_create)
    }

    /// Deletes the object of that name and uid, in that version if one is given. Returns it as far as it still stands.
    pub async fn delete<K: Own>(
        &self,
        name: &Name,
        uid: &Uid,
        version: Option<String>,
    ) -> Result<Option<K>, WriteError> {
        let api = self.own::<K>();
        let params = DeleteParams::background().preconditions(Preconditions {
            resource_version: version,
            ..same(uid)
        });
        let sent = async { api.delete(name.as_str(), &params).await };
        match crash::around("delete", sent).await {
            Ok(left) => Ok(left.left().map(bare)),
            Err(error) => Err(self.failure::<K>((name, uid), error).await),
        }
    }

    /// Puts our finalizer on a Secret of the control namespace. Only metadata travels: nothing here reads its data.
    pub async fn guard_secret(&self, secret: &SecretMeta) -> Result<SecretMeta, WriteError> {
        let mut held = secret.metadata.finalizers.clone().unwrap_or_default();
        held.push(keys::SECRET_FINALIZER.to_owned());
        self.patch_secret(secret, &held).await
    }

    /// Takes our finalizer from a Secret of the control namespace.
    pub async fn release_secret(&self, secret: &SecretMeta) -> Result<SecretMeta, WriteError> {
        let mut held = secret.metadata.finalizers.clone().unwrap_or_default();
        held.retain(|item| item != keys::SECRET_FINALIZER);
        self.patch_secret(secret, &held).await
    }

    async fn patch_secret(&self, secret: &SecretMeta, finalizers: &[String]) -> Result<SecretMeta, WriteError> {
        let api: Api<Secret> = Api::namespaced(self.control.clone(), &self.namespace);
        let body = guarded(secret, json!({ "metadata": { "finalizers": finalizers } }));
        let name = meta::name(&secret.metadata);
        let sent = async { api.patch_metadata(name, &self.params, &Patch::Merge(body)).await };
        crash::around("secret finalizer", sent).await.map_err(WriteError::from)
    }

    fn nodes(&self) -> Result<Api<Bare<Node>>, WriteError> {
        let target = self.target.clone().ok_or_else(no_target)?;
        Ok(Api::all(target))
    }

    /// The client of the target cluster, if there is one.
    pub(super) fn target(&self) -> Option<Client> {
        self.target.clone()
    }

    /// Reads a Node from the API server itself.
    pub async fn read_node(&self, name: &NodeName) -> Result<Node, ReadError> {
        let target = self.target.clone().ok_or(ReadError::Gone)?;
        Api::<Bare<Node>>::all(target)
            .get(name.as_str())
            .await
            .map(bare)
            .map_err(ReadError::from)
    }

    /// Changes a Node by a strategic merge patch, which is guarded by what it carries.
    pub async fn node(&self, name: &NodeName, body: Value) -> Result<Node, WriteError> {
        let api = self.nodes()?;
        let sent = async { api.patch(name.as_str(), &self.params, &Patch::Strategic(body)).await };
        crash::around("node guard", sent)
            .await
            .map(bare)
            .map_err(WriteError::from)
    }

    /// The same of a Node's status. Metadata that such a patch carries is written too.
    pub async fn node_status(&self, name: &NodeName, body: Value) -> Result<Node, WriteError> {
        let api = self.nodes()?;
        let patch = Patch::Strategic(body);
        let sent = async { api.patch_status(name.as_str(), &self.params, &patch).await };
        crash::around("node status", sent)
            .await
            .map(bare)
            .map_err(WriteError::from)
    }

    /// Lets no new pods come to a Node.
    pub async fn cordon_node(&self, node: &NodeRef) -> Result<Node, WriteError> {
        let body = json!({ "metadata": { "uid": node.uid.as_str() }, "spec": { "unschedulable": true } });
        self.node(&node.name, body).await
    }

    /// Takes our finalizer from a Node.
    pub async fn release_node(&self, node: &Node) -> Result<Node, WriteError> {
        let body = json!({ "metadata": {
            "uid": node.metadata.uid,
            "$deleteFromPrimitiveList/finalizers": [keys::NODE_FINALIZER],
        }});
        self.node(&NodeName::new(meta::name(&node.metadata)), body).await
    }

    /// Deletes a Node of that name and uid. Returns it as far as it still stands.
    pub async fn delete_node(&self, name: &NodeName, uid: &Uid) -> Result<Option<Node>, WriteError> {
        let api = self.nodes()?;
        let sent = async { api.delete(name.as_str(), &deletion(uid)).await };
        Ok(crash::around("node delete", sent).await?.left().map(bare))
    }

    fn tokens(&self) -> Result<Api<Bare<Secret>>, WriteError> {
        let target = self.target.clone().ok_or_else(no_target)?;
        Ok(Api::namespaced(target, keys::TOKEN_NAMESPACE))
    }

    /// Creates a bootstrap token's Secret in the target cluster.
    pub async fn create_token(&self, secret: Secret) -> Result<Secret, WriteError> {
        let (api, secret) = (self.tokens()?, Bare(secret));
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        crash::around("token create", async { api.create(&params, &secret).await })
            .await
            .map(bare)
            .map_err(WriteError::of_create)
    }

    /// Reads a bootstrap token's Secret.
    pub async fn read_token(&self, name: &str) -> Result<Secret, ReadError> {
        let target = self.target.clone().ok_or(ReadError::Gone)?;
        Api::<Bare<Secret>>::namespaced(target, keys::TOKEN_NAMESPACE)
            .get(name)
            .await
            .map(bare)
            .map_err(ReadError::from)
    }

    /// The metadata of the bootstrap tokens with a label.
    pub async fn list_tokens(&self, label: &str) -> Result<Vec<ObjectMeta>, ReadError> {
        let Some(target) = self.target.clone() else {
            return Ok(Vec::new());
        };
        let tokens = Api::<Secret>::namespaced(target, keys::TOKEN_NAMESPACE);
        let found = tokens.list_metadata(&ListParams::default().labels(label)).await;
        let found = found.map_err(ReadError::from)?.items;
        Ok(found.into_iter().map(|token| token.metadata).collect())
    }

    /// Lets a bootstrap token live until `expiration`, an RFC 3339 time.
    pub async fn extend_token(&self, name: &str, token: &Secret, expiration: &str) -> Result<(), WriteError> {
        let api = self.tokens()?;
        let expiration = ByteString(expiration.as_bytes().to_vec());
        let body = guarded(token, json!({ "data": { "expiration": expiration } }));
        let sent = async { api.patch(name, &self.params, &Patch::Merge(body)).await };
        crash::around("token extend", sent)
            .await
            .map(drop)
            .map_err(WriteError::from)
    }

    /// Deletes a bootstrap token's Secret.
    pub async fn delete_token(&self, name: &str, uid: &Uid) -> Result<(), WriteError> {
        let api = self.tokens()?;
        match crash::around("token delete", async { api.delete(name, &deletion(uid)).await }).await {
            Ok(_) => Ok(()),
            Err(error) => match WriteError::from(error) {
                WriteError::Gone => Ok(()),
                other => Err(other),
            },
        }
    }
}

pub(super) fn bare<K>(Bare(object): Bare<K>) -> K {
    object
}

pub(super) fn no_target() -> WriteError {
    WriteError::Refused {
        reason: "there is no target cluster (--target-kubeconfig none)".to_owned(),
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn deletion(uid: &Uid) -> DeleteParams {
    DeleteParams::background().preconditions(same(uid))
}

pub(super) fn same(uid: &Uid) -> Preconditions {
    Preconditions {
        uid: Some(uid.as_str().to_owned()),
        resource_version: None,
    }
}

/// `body` with the version that was read, so that the write fails if anything changed since.
fn guarded<K: Resource>(read: &K, mut body: Value) -> Value {
    if let Some(fields) = body.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), json!(read.meta().resource_version));
        }
    }
    body
}
