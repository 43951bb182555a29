//! `why`: the present plan of an object, in words, without acting.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use millwright_core::api::{Machine, MachineClass, MachineSet, keys};
use millwright_core::settings::Settings;
use serde_json::{Value, json};

use crate::cluster::{Cluster, template};
use crate::history::with_two_revisions;

async fn class(cluster: &Cluster, name: &str, status: &str, message: &str) {
    let condition = json!({ "type": "Ready", "status": status, "reason": "ClassRejected", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let body = json!({ "metadata": { "name": name, "finalizers": [keys::FINALIZER] }, "provider": "virtual", "providerSpec": {},
        "status": { "conditions": [condition] } });
    let _: MachineClass = cluster.store(body).await;
}

fn machine(name: &str, class: &str) -> Value {
    json!({
        "metadata": { "name": name, "finalizers": [keys::FINALIZER] },
        "spec": template(class)["spec"],
        "status": {
            "currentStatus": { "phase": "CrashLoopBackOff" },
            "lastOperation": { "description": "Cloud provider message: no quota", "state": "Failed", "type": "Create" },
        },
    })
}

#[tokio::test]
async fn a_rollout_is_explained_by_its_plan_and_what_it_waits_for() {
    let cluster = with_two_revisions().await;
    class(&cluster, "large", "True", "").await;
    cluster.numbers([1, 2, 2]).await;
    let before = cluster.workers().await;
    let out = cluster.run("why mcd/workers").await.well();
    assert!(out.starts_with("machinedeployment/workers: "), "{out}");
    assert!(out.contains("Would now, in this order:\n  - "), "{out}");
    assert!(out.contains("workers-2"), "{out}");
    assert!(out.contains("Progressing=True MachineSetUpdated"), "{out}");
    assert_eq!(before, cluster.workers().await, "nothing was done");

    let out = cluster.run("why machineset workers-1").await.well();
    assert!(
        out.contains("It is planned as a part of machinedeployment/workers."),
        "{out}"
    );
    assert!(!out.contains("workers-2:"), "only its own part is told:\n{out}");
}

/// Rows: R14.
#[tokio::test]
async fn a_rollout_that_can_do_nothing_says_what_holds_it_up() {
    let cluster = with_two_revisions().await;
    class(&cluster, "small", "False", "region: unknown").await;
    class(&cluster, "large", "False", "region: unknown").await;
    let ours = json!({ "metadata": { "finalizers": [keys::FINALIZER] } });
    cluster.edit("workers", ours).await;
    let passed_on = json!({ keys::DESIRED_REPLICAS: "3", keys::MAX_REPLICAS: "4" });
    for (name, replicas) in [("workers-1", 1), ("workers-2", 3)] {
        let body = json!({ "metadata": { "finalizers": [keys::FINALIZER], "annotations": passed_on }, "spec": { "replicas": replicas } });
        let sets = cluster.api::<MachineSet>();
        sets.patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }
    let out = cluster.run("why mcd/workers").await.well();
    let waits =
        "The rollout waits: 3 of its machines are missing: no machine can be made of the class: region: unknown.";
    assert!(out.contains(waits), "{out}");
}

#[tokio::test]
async fn a_machine_that_waits_says_for_what_and_a_refused_class_makes_none() {
    let cluster = Cluster::start().await;
    class(&cluster, "small", "True", "").await;
    class(&cluster, "broken", "False", "its driver refuses it: region: unknown").await;
    let _: Machine = cluster.store(machine("good", "small")).await;
    let _: Machine = cluster.store(machine("bad", "broken")).await;
    let _: Machine = cluster.store(machine("lost", "absent")).await;

    let out = cluster.run("why mc/good").await.well();
    assert!(
        out.contains("CrashLoopBackOff: Cloud provider message: no quota"),
        "{out}"
    );
    let out = cluster.run("why mc/bad").await.well();
    assert!(out.contains("its driver refuses it: region: unknown"), "{out}");
    let out = cluster.run("why machine lost").await.well();
    assert!(out.contains("absent"), "{out}");
    let out = cluster.run("why mcc/broken").await.well();
    let headline = "machineclass/broken: no machine can be made of it: its driver refuses it: region: unknown";
    assert!(out.starts_with(headline), "{out}");
    assert!(
        out.contains("Ready=False ClassRejected: its driver refuses it: region: unknown"),
        "{out}"
    );
}

#[tokio::test]
async fn a_machine_that_waits_with_its_class_says_so_and_is_not_said_to_be_asked_for() {
    let cluster = Cluster::start().await;
    class(&cluster, "small", "True", "").await;
    let condition = json!({ "type": "CapacityAvailable", "status": "False", "reason": "ResourceExhausted",
        "message": "zone a is sold out", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let ready = json!({ "type": "Ready", "status": "True", "reason": "Valid", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "status": { "conditions": [condition, ready] } });
    let _: MachineClass = cluster.tell("small", status).await;
    let mut body = machine("waits", "small");
    body["status"]["currentStatus"]["phase"] = json!("Pending");
    let told = json!({ "description": "it waits", "reason": "Suspended", "errorCode": "ResourceExhausted",
        "state": "Failed", "type": "Create" });
    body["status"]["lastOperation"] = told;
    let _: Machine = cluster.store(body).await;

    let out = cluster.run("why mc/waits").await.well();
    let words = "one machine asks again for all. It said: zone a is sold out";
    assert!(out.contains(words), "{out}");
    assert!(!out.contains("CreateMachine"), "{out}");
}

async fn lease(cluster: &Cluster, spec: Value) {
    let leases = cluster.api::<Lease>();
    let body = Patch::Merge(json!({ "spec": spec }));
    leases
        .patch("millwright", &PatchParams::default(), &body)
        .await
        .unwrap();
}

/// A machine that is Unknown since an hour, of a manager that tells its settings in its Lease.
///
/// Rows: L15.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the command itself reads the clock")]
async fn an_unhealthy_machine_is_explained_by_the_settings_of_the_manager_that_runs() {
    let cluster = Cluster::start().await;
    class(&cluster, "small", "True", "").await;
    let mut body = machine("ill", "small");
    body["spec"]["providerID"] = json!("virtual:///1");
    let since = Timestamp::now() - SignedDuration::from_hours(1);
    body["status"] = json!({
        "conditions": [{ "type": "Ready", "status": "False" }],
        "currentStatus": { "phase": "Unknown", "lastUpdateTime": since.to_string() },
        "lastOperation": { "description": "it is ill", "reason": "", "state": "Processing", "type": "HealthCheck" },
    });
    let _: Machine = cluster.store(body).await;
    let out = cluster.run("why mc/ill").await;
    assert!(
        out.err.contains("the default settings of a manager are assumed"),
        "{out:?}"
    );
    assert!(out.well().contains("Failed"), "10 minutes are over");

    let settings = Settings {
        health_timeout: SignedDuration::from_hours(3),
        ..Settings::default()
    };
    let annotations = json!({ keys::MANAGER_SETTINGS: json!(settings).to_string() });
    let _: Lease = cluster
        .store(json!({ "metadata": { "name": "millwright", "annotations": annotations }, "spec": {} }))
        .await;
    for (spec, noted) in [
        (
            json!({}),
            "no manager leads in namespace \"default\", so nothing changes until one does: the last one gave its Lease millwright back",
        ),
        (
            json!({ "holderIdentity": "a", "renewTime": MicroTime(since) }),
            "a renewed the Lease millwright 60m ago, for the last time",
        ),
        (
            json!({ "holderIdentity": "a", "renewTime": MicroTime(Timestamp::now()) }),
            "",
        ),
    ] {
        lease(&cluster, spec).await;
        let out = cluster.run("why mc/ill").await;
        assert!(
            out.err.contains(noted) && out.err.is_empty() == noted.is_empty(),
            "{out:?}"
        );
    }
    let out = cluster.run("why mc/ill").await;
    let out = out.well();
    assert!(!out.contains("Failed"), "{out}");
}

#[tokio::test]
async fn what_is_not_there_or_no_kind_of_ours_is_told() {
    let cluster = Cluster::start().await;
    let said = cluster.run("why mc/absent").await.badly(1);
    assert!(said.contains("machine/absent in namespace \"default\""), "{said}");
    let said = cluster.run("why pod/x").await.badly(2);
    assert!(said.contains("is no kind of Millwright"), "{said}");
    let said = cluster.run("why workers").await.badly(2);
    assert!(said.contains("the kind is missing"), "{said}");
}
