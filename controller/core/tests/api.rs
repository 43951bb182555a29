//! Objects as the original and its users write them decode, whatever is in them, and keep what they say.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millwright_core::api::lenient::{Lenient, Word};
use millwright_core::api::machine_deployment::StrategyType;
use millwright_core::api::{
    Machine, MachineClass, MachineDeployment, MachineSet, MachineSpec, OperationState, OperationType, Phase, keys, meta,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json, to_value};

fn read<K: DeserializeOwned>(raw: Value) -> K {
    from_value(raw).expect("nothing fails to decode")
}

#[test]
fn a_machine_of_the_original_reads_back_as_it_was() {
    let raw = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": "w-1", "namespace": "default", "uid": "u-1", "resourceVersion": "77", "generation": 2,
            "creationTimestamp": "2026-08-19T09:20:30Z",
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            "labels": {"name": "workers", "node": "n-1"},
            "annotations": {"machinepriority.machine.sapcloud.io": "1"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u-0"},
                {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "w", "uid": "u-9", "controller": true, "blockOwnerDeletion": true},
            ],
        },
        "spec": {
            "class": {"apiGroup": "machine.sapcloud.io", "kind": "MachineClass", "name": "small"},
            "providerID": "virtual:///vm-1",
            "nodeTemplate": {
                "metadata": {"creationTimestamp": null, "labels": {"a": "b"}, "annotations": {"c": "d"}, "unknown": {"x": [null]}},
                "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
            },
            "drainTimeout": "2h0m0s",
            "maxEvictRetries": 0,
        },
        "status": {
            "addresses": [{"address": "10.0.0.1", "type": "InternalIP"}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-08-19T09:20:30Z"}],
            "currentStatus": {"phase": "Running", "lastUpdateTime": "2026-08-19T09:21:00Z"},
            "lastOperation": {"description": "d", "lastUpdateTime": "2026-08-19T09:21:00Z", "state": "Successful", "type": "Create"},
        },
    });
    let machine: Machine = read(raw.clone());
    assert_eq!(to_value(&machine).unwrap(), raw);
    assert_eq!(machine.phase(), &Phase::Running);
    assert_eq!(machine.uid().unwrap().as_str(), "u-1");
    assert_eq!(machine.node_label().unwrap().as_str(), "n-1");
    assert_eq!(machine.provider_id().unwrap().as_str(), "virtual:///vm-1");
    assert_eq!(machine.class_name(), Some("small"));
    assert_eq!((machine.priority(), machine.is_triggered_for_deletion()), (1, true));
    assert_eq!(machine.operation_state(), Some(OperationState::Successful));
    assert_eq!(machine.operation_type(), Some(OperationType::Create));
    assert_eq!(meta::controller_uid(&machine.metadata).unwrap().as_str(), "u-9");
    assert!(meta::has_finalizer(&machine.metadata, keys::FINALIZER));
    assert!(!meta::has_finalizer(&machine.metadata, keys::SECRET_FINALIZER));
    let timeout = machine.spec.drain_timeout.unwrap().get();
    assert_eq!(timeout, Ok(SignedDuration::from_hours(2)));
    let node = machine.spec.node_template.unwrap();
    assert_eq!(
        (node.labels()["a"].as_str(), node.annotations()["c"].as_str()),
        ("b", "d")
    );
    assert_eq!(node.taints()[0].key, "k");
}

#[test]
fn objects_without_spec_decode() {
    let bare = json!({"metadata": {"name": "x"}});
    assert_eq!(read::<Machine>(bare.clone()).spec, MachineSpec::default());
    assert_eq!(read::<Machine>(bare.clone()).phase(), &Phase::New);
    assert_eq!(read::<MachineSet>(bare.clone()).spec.replicas, 0);
    assert!(read::<MachineDeployment>(bare.clone()).spec.template.is_empty());
    assert_eq!(read::<MachineClass>(bare).driver(), None);
}

#[test]
fn null_in_every_place_decodes() {
    let nothing = json!({"metadata": {}, "spec": null, "status": null});
    assert_eq!(read::<Machine>(nothing.clone()).spec, MachineSpec::default());
    let set: MachineSet = read(
        json!({"metadata": {"creationTimestamp": null}, "spec": {"replicas": null, "selector": null, "template": null}, "status": {"failedMachines": null, "machineSetCondition": null, "lastOperation": {"lastUpdateTime": null}}}),
    );
    assert_eq!((set.spec.replicas, set.spec.selector), (0, None));
    let deployment: MachineDeployment = read(
        json!({"metadata": {}, "spec": {"strategy": {"rollingUpdate": null}, "paused": null, "rollbackTo": {}, "template": {"metadata": {"creationTimestamp": null}}}, "status": {"conditions": [{"type": "Available", "status": "True", "lastUpdateTime": null}]}}),
    );
    assert_eq!(deployment.spec.rollback_to.unwrap().revision, 0);
    assert_eq!(deployment.status.unwrap().conditions[0].type_, "Available");
}

#[test]
fn one_wrong_value_hides_no_other() {
    let machine: Machine = read(json!({
        "metadata": {"name": "x"},
        "spec": {"healthTimeout": "ten minutes", "maxEvictRetries": "many", "class": {"name": "small", "kind": 3}, "nodeTemplate": []},
        "status": {
            "currentStatus": {"phase": "Meditating", "lastUpdateTime": "yesterday", "timeoutActive": "no"},
            "lastOperation": {"type": "Paint", "state": 3, "lastUpdateTime": "2026-08-19T09:20:30+02:00"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "noon"}, {"type": "DiskPressure", "status": "False"}],
        },
    }));
    assert_eq!(machine.phase(), &Phase::Other("Meditating".to_owned()));
    assert_eq!(machine.phase_since(), None);
    assert_eq!(machine.class_name(), Some("small"));
    assert_eq!(machine.spec.health_timeout.as_ref().unwrap().as_str(), "ten minutes");
    assert!(machine.spec.health_timeout.as_ref().unwrap().get().is_err());
    let operation = machine.last_operation().unwrap();
    assert_eq!(operation.type_.as_ref().unwrap().as_str(), "Paint");
    assert_eq!(
        operation.last_update_time.as_ref().unwrap().0.to_string(),
        "2026-08-19T07:20:30Z"
    );
    let conditions = &machine.status.as_ref().unwrap().conditions;
    assert_eq!(
        conditions
            .iter()
            .map(|condition| condition.type_.as_str())
            .collect::<Vec<_>>(),
        ["DiskPressure"]
    );
}

#[test]
fn replicas_are_written_even_at_zero() {
    for raw in [
        to_value(MachineSet::default()).unwrap(),
        to_value(MachineDeployment::default()).unwrap(),
    ] {
        assert_eq!(raw["spec"]["replicas"], json!(0));
    }
}

#[test]
fn times_are_written_in_whole_seconds() {
    let machine: Machine = read(
        json!({"metadata": {}, "status": {"currentStatus": {"phase": "Pending", "lastUpdateTime": "2026-08-19T09:20:30.987Z"}}}),
    );
    assert_eq!(
        to_value(&machine).unwrap()["status"]["currentStatus"]["lastUpdateTime"],
        json!("2026-08-19T09:20:30Z")
    );
}

#[test]
fn a_set_uses_the_names_of_the_original() {
    let raw = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": {"name": "w"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"name": "w"}}, "deletePolicy": "Newest",
                 "template": {"metadata": {"creationTimestamp": null, "labels": {"name": "w"}}, "spec": {"class": {"kind": "MachineClass", "name": "small"}, "future": 1}}},
        "status": {
            "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 1, "availableReplicas": 1, "observedGeneration": 4,
            "machineSetCondition": [{"type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount"}],
            "failedMachines": [{"name": "w-1", "providerID": "p", "ownerRef": "w", "lastOperation": {"state": "Failed", "type": "Create", "errorCode": "ResourceExhausted"}}],
            "labelSelector": "name=w", "nextMachineNumber": 7, "settledMachineNumber": 5,
        },
    });
    let set: MachineSet = read(raw.clone());
    assert_eq!(to_value(&set).unwrap(), raw);
    assert_eq!(set.spec.template.class().unwrap().name.as_deref(), Some("small"));
}

#[test]
fn a_deployment_uses_the_names_of_the_original() {
    let raw = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": "w"},
        "spec": {"replicas": 3, "selector": {"matchExpressions": [{"key": "name", "operator": "Exists"}]}, "minReadySeconds": 5, "paused": true,
                 "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "20%", "maxUnavailable": 0}},
                 "revisionHistoryLimit": 0, "progressDeadlineSeconds": 600, "rollbackTo": {"revision": 9007199254740993_i64},
                 "autoPreserveFailedMachineMax": 1, "template": {"spec": {}}},
        "status": {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3, "unavailableReplicas": 0, "collisionCount": 0,
                   "conditions": [{"type": "Progressing", "status": "True", "reason": "NewMachineSetAvailable", "message": "m", "lastUpdateTime": "2026-08-19T09:20:30Z", "lastTransitionTime": "2026-08-19T09:20:30Z"}]},
    });
    let deployment: MachineDeployment = read(raw.clone());
    assert_eq!(to_value(&deployment).unwrap(), raw);
    let strategy = deployment.spec.strategy.unwrap();
    assert_eq!(strategy.type_, Some(Lenient::Known(StrategyType::RollingUpdate)));
}

#[test]
fn a_class_has_its_fields_at_the_top() {
    let raw = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "small"},
        "provider": "virtual",
        "providerSpec": {"n": 9007199254740993_i64, "nested": {"a": [null, {}]}},
        "secretRef": {"name": "s", "namespace": "default"},
        "credentialsSecretRef": {"name": "c"},
        "nodeTemplate": {"capacity": {"cpu": "2", "gpu": "0", "memory": "4Gi"}, "instanceType": "small", "region": "r", "zone": "z"},
    });
    let class: MachineClass = read(raw.clone());
    assert_eq!(to_value(&class).unwrap(), raw);
    let keys: Vec<_> = class
        .secret_refs()
        .map(|secret| secret.key().map(|key| key.to_string()))
        .collect();
    assert_eq!(keys, [Some("default/s".to_owned()), None]);
    assert_eq!(class.driver().unwrap().as_str(), "virtual");
}

#[test]
fn capacity_written_as_numbers_decodes() {
    let class: MachineClass = read(
        json!({"metadata": {}, "providerSpec": {}, "nodeTemplate": {"capacity": {"cpu": 2, "gpu": 0, "memory": "4Gi"}, "instanceType": "i", "region": "r", "zone": "z"}}),
    );
    let capacity = class.spec.node_template.unwrap().capacity;
    assert_eq!((capacity["cpu"].0.as_str(), capacity["gpu"].0.as_str()), ("2", "0"));
}

#[test]
fn a_negative_duration_does_not_count_and_is_named() {
    let machine: Machine = read(json!({
        "metadata": {"name": "m"},
        "spec": {"healthTimeout": "-1s", "drainTimeout": "2h", "creationTimeout": "-0s"},
    }));
    assert_eq!(machine.health_timeout(), None);
    assert_eq!(machine.drain_timeout().map(|span| span.as_secs()), Some(7200));
    assert_eq!(machine.creation_timeout().map(|span| span.as_secs()), Some(0));
    let wanted = "spec.healthTimeout: \"-1s\" is negative: it must be a duration such as \"90s\", or \"0\" for at once";
    assert_eq!(machine.malformed_durations(), [wanted]);
}

#[test]
fn a_priority_that_is_no_number_counts_as_the_default() {
    for (text, wanted) in [("", 3), ("soon", 3), ("7", 7), ("-1", -1)] {
        let metadata = ObjectMeta {
            annotations: Some([(keys::PRIORITY.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(
            Machine {
                metadata,
                ..Machine::default()
            }
            .priority(),
            wanted,
            "{text:?}"
        );
    }
    assert_eq!(Machine::default().priority(), 3);
    assert_eq!(OperationType::InPlaceUpdate.as_str(), "InPlaceUpdate");
}
