use jiff::SignedDuration;
use millwright_core::ids::Name;
use millwright_core::queue::{Queue, Urgency};
use millwright_core::wake::Key;
use serde_json::json;

use super::*;
use crate::telemetry::Metrics;

fn objects() -> Snapshot {
    let machine = json!({
        "metadata": {"name": "m", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"node": "n"}},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}, "providerID": "virtual:///i-1"},
        "status": {"currentStatus": {"phase": "Unknown"}, "conditions": [{"type": "Ready", "status": "Unknown"}]},
    });
    let set = json!({
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"replicas": 3, "template": {"spec": {"class": {"name": "small"}}}},
        "status": {"replicas": 2, "readyReplicas": 1, "machineSetCondition": [{"type": "Frozen", "status": "True"}],
            "failedMachines": [{"name": "m", "ownerRef": "s", "lastOperation": {"state": "Failed", "type": "Create"}}]},
    });
    let deployment = json!({
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"replicas": 3, "paused": true, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": "10%"}}},
        "status": {"replicas": 2, "conditions": [{"type": "Available", "status": "False"}]},
    });
    Snapshot {
        machines: vec![Arc::new(serde_json::from_value(machine).unwrap())],
        sets: vec![Arc::new(serde_json::from_value(set).unwrap())],
        deployments: vec![Arc::new(serde_json::from_value(deployment).unwrap())],
        ..Snapshot::default()
    }
}

#[test]
fn what_dashboards_of_the_original_ask_for_is_there_under_its_name() {
    let metrics = Metrics::default();
    metrics.original.look_at(Box::new(|| Some(objects())));
    let text = metrics.render().unwrap();
    for line in [
        r#"mcm_machine_items_total 1"#,
        r#"mcm_machine_current_status_phase{name="m",namespace="default"} -1.0"#,
        r#"mcm_machine_status_condition{name="m",namespace="default",condition="Ready"} 2.0"#,
        r#"spec_provider_id="virtual:///i-1",spec_class_api_group="",spec_class_kind="MachineClass",spec_class_name="small",node_name="n"} 1.0"#,
        r#"mcm_machine_set_info_spec_replicas{name="s",namespace="default"} 3.0"#,
        // The original shows the ready ones here.
        r#"mcm_machine_set_status_replicas{name="s",namespace="default"} 2.0"#,
        r#"mcm_machine_set_status_condition{name="s",namespace="default",condition="Frozen"} 1.0"#,
        r#"failed_machine_name="m",failed_machine_provider_id="",failed_machine_owner_ref="s",failed_machine_last_operation_state="Failed",failed_machine_last_operation_machine_operation_type="Create"} 1.0"#,
        r#"mcm_machine_deployment_info_spec_paused{name="d",namespace="default"} 1.0"#,
        r#"mcm_machine_deployment_info_spec_rolling_update_max_surge{name="d",namespace="default"} 2.0"#,
        r#"mcm_machine_deployment_info_spec_rolling_update_max_unavailable{name="d",namespace="default"} 0.0"#,
        r#"mcm_machine_deployment_status_condition{name="d",namespace="default",condition="Available"} 0.0"#,
        r#"mcm_machine_controller_frozen 0.0"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// Rows: O19.
#[test]
fn a_field_of_an_object_that_is_longer_than_any_name_is_cut() {
    let machine = json!({
        "metadata": {"name": "m", "namespace": "default"},
        "spec": {"class": {"kind": "MachineClass", "name": "ü".repeat(300_000)}},
    });
    let machine: Arc<Machine> = Arc::new(serde_json::from_value(machine).unwrap());
    let metrics = Metrics::default();
    let look = move || Snapshot {
        machines: vec![Arc::clone(&machine)],
        ..Snapshot::default()
    };
    metrics.original.look_at(Box::new(move || Some(look())));
    let text = metrics.render().unwrap();
    assert!(
        text.contains(&format!("spec_class_name=\"{}\"", "ü".repeat(126))),
        "{text}"
    );
}

/// Rows: W30.
#[test]
fn the_series_of_an_object_end_with_it() {
    let metrics = Metrics::default();
    metrics.original.look_at(Box::new(|| Some(objects())));
    assert!(metrics.render().unwrap().contains(r#"name="m""#));
    metrics.original.look_at(Box::new(|| Some(Snapshot::default())));
    let text = metrics.render().unwrap();
    assert!(!text.contains(r#"name="m""#), "{text}");
    assert!(text.contains("mcm_machine_items_total 0"), "{text}");
}

#[test]
fn what_happened_to_machines_is_told_of_their_pool() {
    let metrics = Metrics::default();
    let happened = &metrics.original.happened;
    let machine = json!({
        "metadata": {"name": "m", "namespace": "default", "labels": {"name": "workers"}},
        "spec": {"nodeTemplate": {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}}},
    });
    let machine: Machine = serde_json::from_value(machine).unwrap();
    happened.note(&machine, Moment::Joined(SignedDuration::from_millis(61_400)));
    happened.note(&machine, Moment::NotJoined);
    happened.note(&machine, Moment::Stale);
    metrics.driver_call("virtual", "CreateMachine", "Unavailable", "", Duration::from_secs(1));
    metrics.driver_call("virtual", "CreateMachine", "OK", "", Duration::from_secs(1));
    let text = metrics.render().unwrap();
    let pool = r#"{namespace="default",machine_deployment="workers",instance_type="",zone="a"}"#;
    for line in [
        format!("mcm_machine_join_duration_seconds{pool} 61.0"),
        format!("mcm_machine_num_failed_join{pool} 1"),
        "mcm_machine_stale_machines_total 1".to_owned(),
        r#"mcm_cloud_api_driver_requests_failed_total{provider="virtual",operation="create_machine",error_code="Unavailable"} 1"#.to_owned(),
        r#"mcm_cloud_api_driver_request_duration_seconds_count{provider="virtual",operation="create_machine"} 1"#.to_owned(),
        r#"mcm_cloud_api_requests_total{provider="virtual",service="create_machine"} 2"#.to_owned(),
        r#"mcm_cloud_api_requests_failed_total{provider="virtual",service="create_machine"} 1"#.to_owned(),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[test]
fn the_queue_is_told_as_the_originals_queues_by_kind_of_key() {
    let metrics = Metrics::default();
    let (second, queues) = (Duration::from_secs(1), &metrics.original.queues);
    let mut queue = Queue::default();
    for name in ["m-1", "m-2", "m-3"] {
        queue.push(Key::Machine(Name::new(name)), second, Urgency::Event);
    }
    for _ in 0..2 {
        let key = queue.take(3 * second).unwrap();
        queues.taken(&key, queue.waited(&key));
        queues.worked(&key, second, true);
    }
    let look = move || Snapshot {
        queues: queues::loads(&queue, 5 * second),
        ..Snapshot::default()
    };
    metrics.original.look_at(Box::new(move || Some(look())));
    let text = metrics.render().unwrap();
    for line in [
        r#"depth{name="machine"} 1.0"#,
        r#"depth{name="machineset"} 0.0"#,
        r#"unfinished_work_seconds{name="machine"} 4.0"#,
        r#"longest_running_processor_seconds{name="machine"} 2.0"#,
        r#"adds_total{name="machine"} 2"#,
        r#"retries_total{name="machine"} 2"#,
        r#"queue_duration_seconds_sum{name="machine"} 4.0"#,
        r#"work_duration_seconds_sum{name="machine"} 2.0"#,
    ] {
        assert!(text.contains(&format!("mcm_workqueue_{line}\n")), "{line}\n{text}");
    }
}
