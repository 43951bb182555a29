//! MachineClass: how VMs of one sort are made. Its fields stand at the top of the object. Decides nothing.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lenient;
use crate::ids::{DriverName, SecretKey};

/// How VMs of one sort are made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineClass",
    plural = "machineclasses",
    doc = "A MachineClass says how VMs of one sort are made and which driver makes them.",
    namespaced,
    no_spec,
    status = "MachineClassStatus",
    shortname = "mcc",
    derive = "Default",
    derive = "PartialEq"
)]
pub struct MachineClassSpec {
    /// Secret with userData and, where the provider needs them, credentials.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub secret_ref: Option<SecretRef>,
    /// Secret whose data is laid over that of secretRef, so that several classes can share credentials.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub credentials_secret_ref: Option<SecretRef>,
    /// Name of the driver that makes the VMs. Without it, the only driver that is connected.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The VM's description in the driver's own terms. The controller never reads it.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "free_form")]
    pub provider_spec: Value,
    /// What a Node of this class offers, for scaling up from zero.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub node_template: Option<ClassNodeTemplate>,
}

/// What is known about a MachineClass. The original has none. As a subresource it survives the writes of clients that
/// do not know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineClassStatus {
    /// Conditions of the class. Ready is True where machines can be made of it, False where they cannot, Unknown where its driver
    /// has not been there to say so. CredentialsAccepted, CapacityAvailable, CreationPermitted and DeletionPermitted are False while the
    /// provider refuses all Machines of the class for this, and one of them probes for all.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Names a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretRef {
    /// Name of the Secret.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the Secret.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl SecretRef {
    /// The Secret, where name and namespace are both given.
    pub fn key(&self) -> Option<SecretKey> {
        let name = self.name.clone().filter(|text| !text.is_empty())?;
        let namespace = self.namespace.clone().filter(|text| !text.is_empty())?;
        Some(SecretKey { namespace, name })
    }
}

/// What a Node of a class offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassNodeTemplate {
    /// Resources of the Node; cpu, gpu and memory are expected.
    #[serde(deserialize_with = "lenient::field")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Extended resources that the controller writes into the Node's capacity.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "BTreeMap::is_empty")]
    pub virtual_capacity: BTreeMap<String, Quantity>,
    /// The provider's name of the VM's size.
    #[serde(deserialize_with = "lenient::field")]
    pub instance_type: String,
    /// Region of the Node.
    #[serde(deserialize_with = "lenient::field")]
    pub region: String,
    /// Zone of the Node.
    #[serde(deserialize_with = "lenient::field")]
    pub zone: String,
    /// CPU architecture of the Node.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// Anything.
pub(super) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

impl MachineClass {
    /// The driver that the class names.
    pub fn driver(&self) -> Option<DriverName> {
        DriverName::non_empty(self.spec.provider.as_deref())
    }

    /// What the class adds to the capacity of its Nodes, where it says anything of them.
    pub fn virtual_capacity(&self) -> Option<&BTreeMap<String, Quantity>> {
        self.spec
            .node_template
            .as_ref()
            .map(|template| &template.virtual_capacity)
    }

    /// The Secrets whose data a driver call gets, in the order in which they are laid over each other.
    pub fn secret_refs(&self) -> impl Iterator<Item = &SecretRef> {
        self.spec.secret_ref.iter().chain(&self.spec.credentials_secret_ref)
    }
}
