//! The API server as a value: versions, uids, finalizers, deletion, merge patches, the status apart from the rest.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use millwright_core::api::{Machine, MachineClass, MachineDeployment, MachineSet, meta};
use millwright_core::ids::{Name, Uid};
use millwright_core::machine::node_patch::NodePatch;
use millwright_core::merge;
use millwright_core::world::Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    AlreadyExists,
    Gone,
}

/// All objects there are.
#[derive(Default)]
pub struct Etcd {
    version: u64,
    uids: u64,
    /// Requests that changed something.
    pub writes: u64,
    pub machines: BTreeMap<Name, Machine>,
    pub sets: BTreeMap<Name, MachineSet>,
    pub deployments: BTreeMap<Name, MachineDeployment>,
    pub classes: BTreeMap<Name, MachineClass>,
    pub nodes: BTreeMap<Name, Node>,
}

/// A kind that is stored.
pub trait Resource: Kind + Clone + PartialEq + Serialize + DeserializeOwned {
    fn table(etcd: &mut Etcd) -> &mut BTreeMap<Name, Self>;
    fn metadata(&mut self) -> &mut ObjectMeta;
}

macro_rules! resource {
    ($kind:ty, $table:ident) => {
        impl Resource for $kind {
            fn table(etcd: &mut Etcd) -> &mut BTreeMap<Name, Self> {
                &mut etcd.$table
            }
            fn metadata(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
resource!(Machine, machines);
resource!(MachineSet, sets);
resource!(MachineDeployment, deployments);
resource!(MachineClass, classes);
resource!(Node, nodes);

impl Etcd {
    /// How many objects were ever made.
    pub fn made(&self) -> u64 {
        self.uids
    }

    pub fn create<K: Resource>(&mut self, body: Value, now: Timestamp) -> Result<K, Refused> {
        let mut object: K = serde_json::from_value(body).expect("the body is of its kind");
        let name = object.key();
        if K::table(self).contains_key(&name) {
            return Err(Refused::AlreadyExists);
        }
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        let metadata = object.metadata();
        metadata.uid = Some(uid);
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(Time(now));
        Ok(self.store(object))
    }

    pub fn get<K: Resource>(&mut self, name: &Name) -> Option<K> {
        K::table(self).get(name).cloned()
    }

    /// A merge patch of the object without its status.
    pub fn merge<K: Resource>(&mut self, name: &Name, uid: Option<&Uid>, patch: &Value) -> Result<K, Refused> {
        self.patch(name, uid, patch, |key| key == "status")
    }

    /// A merge patch of `/status`.
    pub fn merge_status<K: Resource>(&mut self, name: &Name, uid: Option<&Uid>, patch: &Value) -> Result<K, Refused> {
        self.patch(name, uid, patch, |key| key != "status")
    }

    fn patch<K: Resource>(
        &mut self,
        name: &Name,
        uid: Option<&Uid>,
        patch: &Value,
        ignored: impl Fn(&str) -> bool,
    ) -> Result<K, Refused> {
        let old = self
            .get::<K>(name)
            .filter(|old| uid.is_none_or(|uid| old.uid() == *uid))
            .ok_or(Refused::Gone)?;
        let fields = patch.as_object().expect("a patch is an object");
        let patch: Value = fields
            .iter()
            .filter(|(key, _)| !ignored(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let mut body = json!(old);
        merge::apply(&mut body, &patch);
        let spec_changed = body.get("spec") != json!(old).get("spec");
        let mut new: K = serde_json::from_value(body).expect("a patched object is of its kind");
        if new == old {
            return Ok(old);
        }
        if spec_changed {
            let metadata = new.metadata();
            metadata.generation = Some(metadata.generation.unwrap_or(0) + 1);
        }
        Ok(self.store(new))
    }

    /// A strategic merge patch of a Node, refused where another version than the one that it names is stored. `None`: that was its end.
    pub fn patch_node(&mut self, patch: &NodePatch) -> Result<Option<Node>, Refused> {
        let name = Name::new(patch.node.as_str());
        let stored = self.get::<Node>(&name).ok_or(Refused::Gone)?;
        let stated = &patch.body()["metadata"];
        let is_stale =
            |field: &str, stored: &Option<String>| !stated[field].is_null() && stated[field] != json!(stored);
        if is_stale("uid", &stored.metadata.uid) || is_stale("resourceVersion", &stored.metadata.resource_version) {
            return Err(Refused::Gone);
        }
        let patched = patch.applied(&stored);
        if patched == stored {
            return Ok(Some(stored));
        }
        if meta::is_deleting(&patched.metadata) && patched.metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
            self.writes += 1;
            self.nodes.remove(&name);
            return Ok(None);
        }
        Ok(Some(self.store(patched)))
    }

    /// Asks for an object's end. `None`: it is gone at once.
    pub fn delete<K: Resource>(
        &mut self,
        name: &Name,
        uid: Option<&Uid>,
        now: Timestamp,
    ) -> Result<Option<K>, Refused> {
        let mut object = self
            .get::<K>(name)
            .filter(|old| uid.is_none_or(|uid| old.uid() == *uid))
            .ok_or(Refused::Gone)?;
        let metadata = object.metadata();
        if metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
            self.writes += 1;
            K::table(self).remove(name);
            return Ok(None);
        }
        if metadata.deletion_timestamp.is_some() {
            return Ok(Some(object));
        }
        metadata.deletion_timestamp = Some(Time(now));
        Ok(Some(self.store(object)))
    }

    pub fn add_finalizer<K: Resource>(&mut self, name: &Name, uid: &Uid, finalizer: &str) -> Result<K, Refused> {
        let mut object = self
            .get::<K>(name)
            .filter(|old| old.uid() == *uid)
            .ok_or(Refused::Gone)?;
        let metadata = object.metadata();
        assert!(
            !meta::is_deleting(metadata),
            "an API server takes no new finalizer on an object that goes"
        );
        metadata.finalizers.get_or_insert_default().push(finalizer.to_owned());
        Ok(self.store(object))
    }

    /// `None`: that was the object's end.
    pub fn remove_finalizer<K: Resource>(
        &mut self,
        name: &Name,
        uid: &Uid,
        finalizer: &str,
    ) -> Result<Option<K>, Refused> {
        let mut object = self
            .get::<K>(name)
            .filter(|old| old.uid() == *uid)
            .ok_or(Refused::Gone)?;
        let metadata = object.metadata();
        metadata
            .finalizers
            .get_or_insert_default()
            .retain(|held| held != finalizer);
        if meta::is_deleting(metadata) && metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
            self.writes += 1;
            K::table(self).remove(name);
            return Ok(None);
        }
        Ok(Some(self.store(object)))
    }

    fn store<K: Resource>(&mut self, mut object: K) -> K {
        self.version += 1;
        self.writes += 1;
        object.metadata().resource_version = Some(self.version.to_string());
        // What is read back went over the wire.
        let stored: K = serde_json::from_value(json!(object)).expect("what is stored can be read");
        K::table(self).insert(stored.key(), stored.clone());
        stored
    }
}
