//! Requests of the wire as the author sees them. Every request has passed `validate.rs`, so nothing here can fail: a
//! part that is missing all the same is empty.

use std::collections::BTreeMap;

use millwright_proto::v1;
use serde_json::Value;

use super::json::json_object;
use crate::types::{
    CreateMachine, DeleteMachine, GetMachineStatus, GetNodeTemplate, GetVolumeIds, InitializeMachine, ListMachines,
    MachineClass, MachineKey, Secrets, UserData, ValidateMachineClass, VolumeSource, VolumeSpec, WatchMachines,
};

/// What 0 means for `page_size`, and what more than the most means.
const PAGE_SIZE_DEFAULT: usize = 500;
const PAGE_SIZE_MAX: usize = 1000;

fn machine_key(key: Option<v1::MachineKey>) -> MachineKey {
    let key = key.unwrap_or_default();
    MachineKey {
        cluster_id: key.cluster_id,
        namespace: key.namespace,
        name: key.name,
        uid: key.uid,
    }
}

fn class(class: Option<v1::MachineClass>) -> MachineClass {
    let class = class.unwrap_or_default();
    let provider_spec = class
        .provider_spec
        .as_ref()
        .and_then(json_object)
        .unwrap_or(Value::Null);
    MachineClass {
        name: class.name,
        namespace: class.namespace,
        provider: class.provider,
        provider_spec,
    }
}

fn secrets(data: BTreeMap<String, Vec<u8>>) -> Secrets {
    data.into_iter().collect()
}

pub(crate) fn create_machine(request: v1::CreateMachineRequest) -> CreateMachine {
    let mut tags = request.tags;
    if tags.is_empty() {
        let (key, class) = (request.key.clone().unwrap_or_default(), request.machine_class.as_ref());
        let class = class.map_or("", |class| class.name.as_str());
        tags = millwright_proto::identity_tags(&key, class, &request.spec_digest);
    }
    CreateMachine {
        key: machine_key(request.key),
        machine_class: class(request.machine_class),
        secrets: secrets(request.secret_data),
        user_data: UserData::from(request.user_data),
        tags,
        spec_digest: request.spec_digest,
        last_known_state: request.last_known_state,
    }
}

pub(crate) fn initialize_machine(request: v1::InitializeMachineRequest) -> InitializeMachine {
    InitializeMachine {
        key: machine_key(request.key),
        provider_id: request.provider_id,
        machine_class: class(request.machine_class),
        secrets: secrets(request.secret_data),
        last_known_state: request.last_known_state,
    }
}

pub(crate) fn delete_machine(request: v1::DeleteMachineRequest) -> DeleteMachine {
    DeleteMachine {
        key: machine_key(request.key),
        provider_id: request.provider_id,
        machine_class: class(request.machine_class),
        secrets: secrets(request.secret_data),
        last_known_state: request.last_known_state,
    }
}

pub(crate) fn get_machine_status(request: v1::GetMachineStatusRequest) -> GetMachineStatus {
    GetMachineStatus {
        key: machine_key(request.key),
        provider_id: request.provider_id,
        machine_class: class(request.machine_class),
        secrets: secrets(request.secret_data),
    }
}

/// The cursor is still the sealed token: the caller opens it.
pub(crate) fn list_machines(request: v1::ListMachinesRequest) -> ListMachines {
    ListMachines {
        cluster_id: request.cluster_id,
        machine_class: class(request.machine_class),
        secrets: secrets(request.secret_data),
        page_size: match usize::try_from(request.page_size) {
            Ok(0) | Err(_) => PAGE_SIZE_DEFAULT,
            Ok(size) => size.min(PAGE_SIZE_MAX),
        },
        cursor: request.page_token,
    }
}

pub(crate) fn watch_machines(request: v1::WatchMachinesRequest) -> WatchMachines {
    WatchMachines {
        cluster_id: request.cluster_id,
        machine_class: class(request.machine_class),
        secrets: secrets(request.secret_data),
        resume_token: request.resume_token,
    }
}

pub(crate) fn get_volume_ids(request: v1::GetVolumeIDsRequest) -> GetVolumeIds {
    GetVolumeIds {
        volumes: request.volumes.into_iter().map(volume).collect(),
    }
}

fn volume(volume: v1::VolumeSpec) -> VolumeSpec {
    let source = volume.source.map(|source| match source {
        v1::volume_spec::Source::Csi(csi) => VolumeSource::Csi {
            driver: csi.driver,
            volume_handle: csi.volume_handle,
            volume_attributes: csi.volume_attributes,
        },
        v1::volume_spec::Source::InTree(in_tree) => VolumeSource::InTree {
            plugin: in_tree.plugin,
            spec: in_tree.spec.as_ref().and_then(json_object).unwrap_or(Value::Null),
        },
    });
    VolumeSpec {
        name: volume.name,
        source,
    }
}

pub(crate) fn validate_machine_class(request: v1::ValidateMachineClassRequest) -> ValidateMachineClass {
    ValidateMachineClass {
        machine_class: class(request.machine_class),
        secrets: secrets(request.secret_data),
        live: request.live,
    }
}

pub(crate) fn get_node_template(request: v1::GetNodeTemplateRequest) -> GetNodeTemplate {
    GetNodeTemplate {
        machine_class: class(request.machine_class),
        secrets: secrets(request.secret_data),
    }
}
