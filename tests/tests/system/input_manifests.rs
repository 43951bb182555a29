//! Objects that cannot work, one test each: what is wrong, where and what to do is said on the Machine, in a condition
//! or in an event; no VM is made; the user's deletion of the Machine is never held up.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use millwright_tests::laws::{self, condition};
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

async fn scene(name: &str) -> Option<Scene> {
    let plane = shared_plane(name).await?;
    Some(Script::new(name).begin(&plane).await)
}

/// A Machine of the class waits and says why; so does an event about the Machine or its class; then it is deleted and
/// goes, and no VM was ever made.
async fn a_machine_is_kept_waiting(scene: &mut Scene, machine: Value, texts: &[&str]) {
    let name = laws::name(&machine).to_owned();
    scene.create(Kind::Machine, &machine).await;
    the_machine_says(scene, &name, texts).await;
    let all = |text: &str| texts.iter().all(|wanted| text.contains(wanted));
    scene
        .until("an event that says so", LIMIT, async |scene: &Scene| {
            let mut events = scene.events_about(&name).await?;
            events.extend(scene.events_about(manifests::CLASS).await?);
            let found = events.iter().any(|(_, message)| all(message));
            if found { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await;
    deletion_ends(scene, &name).await;
    assert_eq!(laws::vms_made(&scene.journal().await.unwrap()), 0, "no VM was made");
}

async fn the_machine_says(scene: &mut Scene, name: &str, texts: &[&str]) {
    let what = format!("{name} says {texts:?}");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let machine = scene.get(Kind::Machine, name).await;
            let said = machine["status"]["lastOperation"]["description"]
                .as_str()
                .unwrap_or_default();
            let found = texts.iter().all(|text| said.contains(text));
            if found {
                Ok(())
            } else {
                Err(format!("it says {said:?}"))
            }
        })
        .await;
}

async fn deletion_ends(scene: &mut Scene, name: &str) {
    scene.delete(Kind::Machine, name).await;
    scene
        .until(&format!("{name} is gone"), LIMIT, async |scene: &Scene| {
            let left = scene
                .api(Kind::Machine)
                .get_opt(name)
                .await
                .map_err(|error| error.to_string())?;
            left.map_or(Ok(()), |machine| {
                Err(json!(machine)["status"]["lastOperation"].to_string())
            })
        })
        .await;
}

async fn runs(scene: &mut Scene, name: &str) {
    scene
        .until(&format!("{name} runs"), LIMIT, async |scene: &Scene| {
            let machine = scene.get(Kind::Machine, name).await;
            if laws::phase(&machine) == "Running" {
                Ok(())
            } else {
                Err(machine["status"].to_string())
            }
        })
        .await;
}

fn machine_of(scene: &Scene) -> Value {
    manifests::machine(&format!("{}-m", scene.namespace))
}

/// Rows: W7, W45.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_secret_is_named_and_its_arrival_is_enough() {
    let Some(mut scene) = scene("in-nosecret").await else {
        return;
    };
    scene
        .class_from_the_start(json!({ "secretRef": { "name": "late" } }))
        .await;
    let text = format!("Secret {}/late does not exist", scene.namespace);
    let machine = machine_of(&scene);
    a_machine_is_kept_waiting(&mut scene, machine.clone(), &[&text]).await;
    scene.create(Kind::Machine, &machine).await;
    scene.create_secret(&manifests::plain_secret("late")).await;
    runs(&mut scene, laws::name(&machine)).await;
    deletion_ends(&mut scene, laws::name(&machine)).await;
}

/// Rows: W45.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_without_user_data_is_named() {
    let Some(mut scene) = scene("in-nodata").await else {
        return;
    };
    scene
        .create_secret(&json!({ "metadata": { "name": "empty" }, "stringData": { "other": "x" } }))
        .await;
    scene
        .class_from_the_start(json!({ "secretRef": { "name": "empty" } }))
        .await;
    let place = format!("Secret {}/empty", scene.namespace);
    let machine = machine_of(&scene);
    a_machine_is_kept_waiting(&mut scene, machine, &["no key userData", &place]).await;
}

/// Rows: W45.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_class_is_named_and_its_arrival_is_enough() {
    let Some(mut scene) = scene("in-noclass").await else {
        return;
    };
    let mut machine = machine_of(&scene);
    machine["spec"]["class"]["name"] = json!("late");
    a_machine_is_kept_waiting(&mut scene, machine.clone(), &["MachineClass late does not exist"]).await;
    scene.create(Kind::Machine, &machine).await;
    let mut class = manifests::class();
    class["metadata"]["name"] = json!("late");
    scene.create(Kind::Class, &class).await;
    runs(&mut scene, laws::name(&machine)).await;
    deletion_ends(&mut scene, laws::name(&machine)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_data_over_the_limit_is_refused_with_its_size() {
    let Some(mut scene) = scene("in-bigdata").await else {
        return;
    };
    let big = json!({ "metadata": { "name": "big" }, "stringData": { "userData": "x".repeat(70_000) } });
    scene.create_secret(&big).await;
    scene
        .class_from_the_start(json!({ "secretRef": { "name": "big" } }))
        .await;
    let machine = machine_of(&scene);
    a_machine_is_kept_waiting(&mut scene, machine, &["user data", "70000", "65536"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_spec_of_300_kib_is_refused_with_its_size() {
    let Some(mut scene) = scene("in-bigspec").await else {
        return;
    };
    scene
        .class_from_the_start(json!({ "providerSpec": { "blob": "x".repeat(300 * 1024) } }))
        .await;
    let machine = machine_of(&scene);
    a_machine_is_kept_waiting(&mut scene, machine, &["providerSpec", "262144"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_integer_that_a_driver_would_read_as_another_is_named_by_its_pointer() {
    let Some(mut scene) = scene("in-bigint").await else {
        return;
    };
    // Without serde's own idea of numbers on the way: as a user's YAML.
    let patch = r#"{"providerSpec":{"disk":{"iops":9007199254740993}}}"#;
    scene
        .kubectl(
            &["patch", "machineclass", manifests::CLASS, "--type=merge", "-p", patch],
            "",
        )
        .await;
    let machine = machine_of(&scene);
    a_machine_is_kept_waiting(&mut scene, machine, &["providerSpec", "/disk/iops", "string"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_provider_is_named() {
    let Some(mut scene) = scene("in-noprovider").await else {
        return;
    };
    scene.class_from_the_start(json!({ "provider": "nowhere" })).await;
    let machine = machine_of(&scene);
    a_machine_is_kept_waiting(&mut scene, machine, &["nowhere"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_class_makes_no_machine_and_its_set_says_why() {
    let Some(mut scene) = scene("in-refused").await else {
        return;
    };
    scene
        .class_from_the_start(json!({ "providerSpec": { "blob": "x".repeat(300 * 1024) } }))
        .await;
    scene.deploy(2).await;
    scene
        .until("the set says why", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            assert!(sight.machines.is_empty(), "{:?}", sight.machines);
            let set = sight.sets.first().ok_or("no set")?;
            let said = condition(&set["status"]["machineSetCondition"], "ReplicaFailure").ok_or("no condition")?;
            let text = said["message"].as_str().unwrap_or_default();
            if text.contains("262144") {
                Ok(())
            } else {
                Err(text.to_owned())
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_durations_are_told_and_hold_nobody_up() {
    let Some(mut scene) = scene("in-duration").await else {
        return;
    };
    let mut bad = machine_of(&scene);
    bad["spec"]["creationTimeout"] = json!("ten parsecs");
    bad["spec"]["drainTimeout"] = json!("soon");
    bad["spec"]["healthTimeout"] = json!("-1m");
    let name = laws::name(&bad).to_owned();
    match scene.try_create(Kind::Machine, &bad).await {
        // The schema may say it at the door, as it names the field.
        Err(error) => assert!(error.to_string().contains("creationTimeout"), "{error}"),
        Ok(_) => {
            runs(&mut scene, &name).await;
            scene
                .until("the malformed durations are told", LIMIT, async |scene: &Scene| {
                    let events = scene.events_about(&name).await?;
                    let log = scene.manager.service.log();
                    let told = |field: &str, text: &str| {
                        let both = |line: &str| line.contains(field) && line.contains(text);
                        events.iter().any(|(_, message)| both(message)) || log.lines().any(both)
                    };
                    let all = told("creationTimeout", "ten parsecs")
                        && told("drainTimeout", "soon")
                        && told("healthTimeout", "is negative");
                    if all { Ok(()) } else { Err(format!("{events:?}")) }
                })
                .await;
            deletion_ends(&mut scene, &name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn negative_durations_of_a_template_are_refused_at_the_door() {
    let Some(scene) = scene("in-negative").await else {
        return;
    };
    let deployment = manifests::deployment(&format!("{}-pool", scene.namespace), 0);
    for field in [
        "creationTimeout",
        "drainTimeout",
        "healthTimeout",
        "inPlaceUpdateTimeout",
        "machinePreserveTimeout",
    ] {
        let mut bad = deployment.clone();
        bad["spec"]["template"]["spec"][field] = json!("-1m");
        let refused = scene.try_create(Kind::Deployment, &bad).await.unwrap_err().to_string();
        assert!(
            refused.contains(field) && refused.contains("must not be negative"),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integers_beyond_their_field_are_refused_at_the_door_or_stop_nobody_else() {
    let Some(mut scene) = scene("in-replicas").await else {
        return;
    };
    let mut huge = manifests::deployment(&format!("{}-huge", scene.namespace), 0);
    huge["spec"]["replicas"] = json!(9_007_199_254_740_993_i64);
    match scene.try_create(Kind::Deployment, &huge).await {
        Err(error) => assert!(error.to_string().contains("replicas"), "{error}"),
        Ok(_) => scene.manager.service.wait_for_log("object cannot be read", LIMIT).await,
    }
    // Everybody else is served.
    let machine = machine_of(&scene);
    scene.create(Kind::Machine, &machine).await;
    runs(&mut scene, laws::name(&machine)).await;
    deletion_ends(&mut scene, laws::name(&machine)).await;
}

/// Rows: W4, pains 60.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_class_and_secret_were_torn_away_goes_with_its_vm_once_the_secret_is_back() {
    let Some(mut scene) = scene("in-torn").await else {
        return;
    };
    let machine = machine_of(&scene);
    let name = laws::name(&machine).to_owned();
    scene.create(Kind::Machine, &machine).await;
    runs(&mut scene, &name).await;
    // Finalizers taken by force: what no user should do, and some do.
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let secrets: Api<_> = scene.secrets();
    secrets
        .delete(manifests::SECRET, &DeleteParams::default())
        .await
        .unwrap();
    secrets
        .patch(manifests::SECRET, &PatchParams::default(), &free)
        .await
        .unwrap();
    scene.delete(Kind::Class, manifests::CLASS).await;
    scene
        .patch(
            Kind::Class,
            manifests::CLASS,
            json!({ "metadata": { "finalizers": null } }),
        )
        .await;
    // Where the manager knows the credentials no longer, it waits for them.
    scene.delete(Kind::Machine, &name).await;
    let secret = serde_json::from_value(manifests::secret()).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    scene
        .until("it is gone", LIMIT, async |scene: &Scene| {
            let left = scene.list(Kind::Machine).await?;
            left.first()
                .map_or(Ok(()), |machine| Err(machine["status"].to_string()))
        })
        .await;
    let sight = scene.look().await.unwrap();
    assert!(sight.vms.is_empty(), "the VM is left: {:?}", sight.vms);
    let nodes: Vec<_> = sight.nodes.iter().map(laws::name).collect();
    assert!(nodes.is_empty(), "the node is left: {nodes:?}");
}
