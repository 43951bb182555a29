//! What a call is about: the machine, its class, its secrets, and who leads. As values, and as they travel.
//!
//! Decides nothing but whether a class can travel at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use millwright_core::api::{Machine, MachineClass};
use millwright_core::ids::{DriverName, Name, ProviderId, Uid};
use millwright_core::machine::node_template;
use millwright_core::provider_spec::SpecError;
use millwright_proto::v1;
use zeroize::Zeroizing;

use super::secrets::SecretData;
use super::structs;

/// Names one Machine to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineKey {
    /// The ownership domain: `--cluster-id`.
    pub cluster_id: String,
    /// The Machine's namespace.
    pub namespace: String,
    /// The Machine's name.
    pub name: Name,
    /// The Machine's uid: the idempotency token of its VM.
    pub uid: Uid,
}

/// A class as it travels. Made once per version of the class, shared by all calls.
#[derive(Clone, Debug)]
pub struct DriverClass(Arc<v1::MachineClass>);

impl DriverClass {
    /// The class, if its `providerSpec` can travel.
    pub fn new(
        namespace: &str,
        name: &str,
        provider: &DriverName,
        provider_spec: &serde_json::Value,
    ) -> Result<Self, SpecError> {
        Ok(Self(Arc::new(v1::MachineClass {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            provider: provider.as_str().to_owned(),
            provider_spec: Some(structs::provider_spec(provider_spec)?),
            ..v1::MachineClass::default()
        })))
    }

    /// The same, with what the object says beside its spec.
    #[must_use]
    pub fn with_object(mut self, class: &MachineClass) -> Self {
        let wire = Arc::make_mut(&mut self.0);
        wire.labels = class.metadata.labels.clone().unwrap_or_default().into_iter().collect();
        wire.node_template = class.spec.node_template.as_ref().map(|template| v1::NodeTemplate {
            capacity: template
                .capacity
                .iter()
                .map(|(name, amount)| (name.clone(), amount.0.clone()))
                .collect(),
            instance_type: template.instance_type.clone(),
            region: template.region.clone(),
            zone: template.zone.clone(),
            architecture: template.architecture.clone().unwrap_or_default(),
            ..v1::NodeTemplate::default()
        });
        self
    }

    /// The same, with where its VMs are and by which marks of an older controller they are known.
    pub fn at(
        mut self,
        locator: &serde_json::Value,
        legacy_marks: &BTreeMap<String, String>,
    ) -> Result<Self, SpecError> {
        let wire = Arc::make_mut(&mut self.0);
        if locator.is_object() {
            wire.locator = Some(structs::provider_spec(locator)?);
        }
        wire.legacy_marks = legacy_marks.clone().into_iter().collect();
        Ok(self)
    }

    /// The message that travels.
    pub fn to_wire(&self) -> v1::MachineClass {
        v1::MachineClass::clone(&self.0)
    }
}

/// What a call about one machine is about.
#[derive(Clone)]
pub struct Target {
    /// The Machine.
    pub key: MachineKey,
    /// Its class.
    pub class: DriverClass,
    /// The data of the class's Secrets, merged, without `userData`.
    pub secrets: Arc<SecretData>,
    /// The uid that the VM bears, where it is not the Machine's own: the driver knows the VM by it.
    pub tagged_uid: Option<Uid>,
    /// The namespace that the Machine may have had before it was restored into its own.
    pub former_namespace: Option<String>,
    /// Hint: the VM's id, if it was ever learned.
    pub provider_id: Option<ProviderId>,
    /// `status.lastKnownState`.
    pub last_known_state: Option<String>,
}

/// What a call about a class or all its VMs is about.
#[derive(Clone)]
pub struct Scope {
    /// `--cluster-id`.
    pub cluster_id: String,
    /// The class.
    pub class: DriverClass,
    /// The data of its Secrets.
    pub secrets: Arc<SecretData>,
}

/// What only CreateMachine carries.
pub struct Creation {
    /// The bootstrap token that stands in the user data.
    pub token: Option<Zeroizing<String>>,
    /// User data with its placeholders filled in: the same bytes while an earlier outcome is unknown.
    pub user_data: Zeroizing<Vec<u8>>,
    /// `provider_spec::digest` of the request.
    pub spec_digest: String,
    /// Labels and annotations that the Node will bear.
    pub node: NodeMetadata,
}

/// Labels and annotations of `spec.nodeTemplate.metadata` of a Machine.
#[derive(Clone, Debug, Default)]
pub struct NodeMetadata {
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
}

impl NodeMetadata {
    /// Those of the Machine's Node.
    pub fn of(machine: &Machine) -> Self {
        let template = machine.spec.node_template.as_ref();
        let (labels, annotations) = template.map(node_template::metadata).unwrap_or_default();
        Self { labels, annotations }
    }
}

impl MachineKey {
    /// The message that travels; always some.
    pub fn to_wire(&self) -> v1::MachineKey {
        v1::MachineKey {
            cluster_id: self.cluster_id.clone(),
            namespace: self.namespace.clone(),
            name: self.name.as_str().to_owned(),
            uid: self.uid.as_str().to_owned(),
        }
    }
}

impl Target {
    /// The name under which the driver knows the VM.
    pub(super) fn vm_key(&self) -> MachineKey {
        MachineKey {
            uid: self.tagged_uid.as_ref().unwrap_or(&self.key.uid).clone(),
            ..self.key.clone()
        }
    }

    pub(super) fn provider_id_to_wire(&self) -> String {
        self.provider_id
            .as_ref()
            .map(|id| id.as_str().to_owned())
            .unwrap_or_default()
    }
}
