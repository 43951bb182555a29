//! Requests of the wire as the author sees them. Every request has passed `validate.rs`, so nothing here can fail: a
//! part that is missing all the same is empty.

use std::collections::BTreeMap;

use millwright_proto::v1;
use serde_json::Value;

use super::json::json_object;
use crate::types::{
    CapacityType, CreateMachine, DeleteMachine, GetMachineStatus, GetNodeTemplate, InitializeMachine, ListMachines,
    MachineClass, MachineKey, NodeTemplate, PAGE_SIZE_DEFAULT, Price, Secrets, UserData, ValidateMachineClass,
    WatchMachines,
};

/// What more than the most means for `page_size`.
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
    MachineClass {
        name: class.name,
        namespace: class.namespace,
        provider: class.provider,
        provider_spec: Value::Object(class.provider_spec.as_ref().and_then(json_object).unwrap_or_default()),
        labels: class.labels,
        node_template: class.node_template.map(node_template),
        locator: class.locator.as_ref().and_then(json_object),
        legacy_marks: class.legacy_marks,
    }
}

fn node_template(template: v1::NodeTemplate) -> NodeTemplate {
    NodeTemplate {
        capacity_type: match template.capacity_type() {
            v1::CapacityType::Unspecified => None,
            v1::CapacityType::OnDemand => Some(CapacityType::OnDemand),
            v1::CapacityType::Spot => Some(CapacityType::Spot),
            v1::CapacityType::Reserved => Some(CapacityType::Reserved),
        },
        capacity: template.capacity,
        allocatable: template.allocatable,
        labels: template.labels,
        instance_type: template.instance_type,
        region: template.region,
        zone: template.zone,
        architecture: template.architecture,
        operating_system: template.operating_system,
        hourly_price: template.hourly_price.map(|price| Price {
            currency_code: price.currency_code,
            micros: price.micros,
        }),
        ttl: None,
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
        node_labels: request.node_labels,
        node_annotations: request.node_annotations,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_arrives_with_all_that_its_object_says() {
        let text = |text: &str| prost_types::Value {
            kind: Some(prost_types::value::Kind::StringValue(text.to_owned())),
        };
        let pair = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        let wire = v1::MachineClass {
            labels: pair("team", "a"),
            node_template: Some(v1::NodeTemplate {
                capacity: pair("cpu", "4"),
                capacity_type: v1::CapacityType::Spot.into(),
                hourly_price: Some(v1::Price::default()),
                ..Default::default()
            }),
            locator: Some(prost_types::Struct {
                fields: [("region".to_owned(), text("moon"))].into(),
            }),
            legacy_marks: pair("kubernetes.io/cluster/dev", "1"),
            ..Default::default()
        };
        let class = class(Some(wire));
        assert_eq!(class.provider_spec, serde_json::json!({}), "there is none");
        assert_eq!(class.labels["team"], "a");
        let template = class.node_template.unwrap();
        assert_eq!(template.capacity["cpu"], "4");
        assert_eq!(template.capacity_type, Some(CapacityType::Spot));
        assert_eq!(template.hourly_price.unwrap().micros, 0);
        assert_eq!(class.locator.unwrap()["region"], "moon");
        assert_eq!(class.legacy_marks["kubernetes.io/cluster/dev"], "1");
    }

    #[test]
    fn a_class_without_a_locator_has_none_and_an_empty_one_is_empty() {
        assert_eq!(class(Some(v1::MachineClass::default())).locator, None);
        let wire = v1::MachineClass {
            locator: Some(prost_types::Struct::default()),
            ..Default::default()
        };
        assert_eq!(class(Some(wire)).locator, Some(serde_json::Map::new()));
    }

    #[test]
    fn labels_and_annotations_of_the_node_reach_the_author() {
        let pair = |key: &str| [(key.to_owned(), "v".to_owned())].into();
        let request = create_machine(v1::CreateMachineRequest {
            node_labels: pair("label"),
            node_annotations: pair("annotation"),
            ..Default::default()
        });
        assert!(request.node_labels.contains_key("label"));
        assert!(request.node_annotations.contains_key("annotation"));
    }
}
