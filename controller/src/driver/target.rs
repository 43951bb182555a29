//! What a call is about: the machine, its class, its secrets, and who leads. As values, and as they travel.
//!
//! Decides nothing but whether a class can travel at all.

use std::sync::Arc;

use millwright_core::ids::{DriverName, Name, ProviderId, Uid};
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
        })))
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
}

impl MachineKey {
    pub(super) fn to_wire(&self) -> Option<v1::MachineKey> {
        Some(v1::MachineKey {
            cluster_id: self.cluster_id.clone(),
            namespace: self.namespace.clone(),
            name: self.name.as_str().to_owned(),
            uid: self.uid.as_str().to_owned(),
        })
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
