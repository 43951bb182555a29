//! Rollouts on the real API server: bounds are judged by a watch of its own at every event, whatever happens to the manager; what
//! the original's controllers left is recognised; a scale-down that names its machines takes those.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::PostParams;
use millwright_tests::rolling::{Bounds, RolloutWatch, Seen};
use millwright_tests::scene::{Kind, Scene, Sight, shared_plane};
use millwright_tests::script::Script;
use millwright_tests::{laws, manifests, sampling};
use serde_json::{Value, json};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);
/// Of a rollout whose manager dies every two seconds.
const LONG: Duration = Duration::from_secs(300);

/// The scene's deployment with these bounds.
fn deployment(scene: &Scene, replicas: u32, surge: &Value, unavailable: &Value) -> Value {
    let mut body = manifests::deployment(&scene.namespace, replicas);
    body["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
    body
}

/// Gives the deployment's template another annotation, which makes it another template.
async fn change_template(scene: &Scene, note: &str) {
    let change = json!({ "spec": { "template": { "metadata": { "annotations": { "note": note } } } } });
    scene.patch(Kind::Deployment, &scene.namespace, change).await;
}

/// Waits until so many machines, all made from the template with this note, are all that is there.
async fn rolled_to(scene: &mut Scene, note: &str, machines: usize, limit: Duration) -> Sight {
    let what = format!("{machines} machines of template {note:?} and nothing else");
    scene
        .until(&what, limit, async |scene: &Scene| {
            let sight = scene.look().await?;
            laws::settled(&sight, machines)?;
            let notes: BTreeSet<&str> = sight.machines.iter().map(noted).collect();
            match notes.iter().all(|seen| *seen == note) {
                true => Ok(sight),
                false => Err(format!("machines of {notes:?}")),
            }
        })
        .await
}

fn noted(machine: &Value) -> &str {
    machine["metadata"]["annotations"]["note"].as_str().unwrap_or_default()
}

fn uids(objects: &[Value]) -> BTreeSet<String> {
    objects.iter().map(|object| laws::uid(object).to_owned()).collect()
}

fn assert_kept(seen: &Seen) {
    println!(
        "{} changes; at most {} machines, at least {} available",
        seen.events, seen.most, seen.fewest_available
    );
    assert!(seen.breaches.is_empty(), "outside the bounds: {:#?}", seen.breaches);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_template_rolls_within_its_bounds_and_a_size_changed_meanwhile_is_reached() {
    let Some(plane) = shared_plane("a changed template").await else {
        return;
    };
    let mut scene = Script::new("template").begin(&plane).await;
    let body = deployment(&scene, 6, &json!(2), &json!(1));
    scene.create(Kind::Deployment, &body).await;
    let before = scene.settled_at(6, LIMIT).await;

    let watch = RolloutWatch::begin(
        &scene,
        Bounds {
            most: 8,
            fewest_available: 5,
        },
    );
    change_template(&scene, "two").await;
    let after = rolled_to(&mut scene, "two", 6, LIMIT).await;
    assert_kept(&watch.end().await);
    assert!(uids(&before.machines).is_disjoint(&uids(&after.machines)));
    assert_eq!(
        after.sets.len(),
        2,
        "the set of the first template is kept to go back to"
    );

    change_template(&scene, "three").await;
    scene.scale(9).await;
    rolled_to(&mut scene, "three", 9, LIMIT).await;
    let journal = scene.journal().await.unwrap();
    laws::one_vm_a_machine(&journal).unwrap();
}

/// 200 machines, surge 20 %, none unavailable: at every moment there are 200 to 240, although the manager is killed every two
/// seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_ends_within_its_bounds_although_the_manager_is_killed_every_two_seconds() {
    let Some(plane) = shared_plane("a rollout with kills").await else {
        return;
    };
    let mut scene = Script::new("killed").begin(&plane).await;
    let body = deployment(&scene, 200, &json!("20%"), &json!(0));
    scene.create(Kind::Deployment, &body).await;
    let machines = 200;
    scene.settled_at(machines, LONG).await;

    let watch = RolloutWatch::begin(
        &scene,
        Bounds {
            most: machines + machines / 5,
            fewest_available: machines,
        },
    );
    change_template(&scene, "two").await;
    let began = Instant::now();
    let mut kills = 0;
    while !is_complete(&scene, machines).await && began.elapsed() < LONG {
        tokio::time::sleep(Duration::from_secs(2)).await;
        scene.manager.service.kill();
        scene.manager.service.restart();
        kills += 1;
    }
    rolled_to(&mut scene, "two", machines, LIMIT).await;
    println!(
        "{machines} machines rolled in {:.1} s with {kills} kills",
        began.elapsed().as_secs_f64()
    );
    assert_kept(&watch.end().await);
    assert!(kills >= 2, "it was over before anybody was killed");
    let journal = scene.journal().await.unwrap();
    laws::one_vm_a_machine(&journal).unwrap();
    assert_eq!(
        laws::vms_made(&journal),
        2 * machines,
        "a VM for each machine, old and new"
    );
}

/// 20 deployments of 100 machines roll at the same time. Only the long suite has the time; it prints what the manager took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_deployments_roll_two_thousand_machines_at_once_each_within_its_bounds() {
    if !sampling::is_long() {
        println!("skipped: only the long suite rolls 2000 machines");
        return;
    }
    let Some(plane) = shared_plane("twenty deployments").await else {
        return;
    };
    let mut scene = Script::new("twenty").begin(&plane).await;
    let names: Vec<String> = (0..20).map(|number| format!("{}-{number}", scene.namespace)).collect();
    for name in &names {
        let mut body = manifests::deployment(name, 100);
        body["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": "20%", "maxUnavailable": 0 });
        scene.create(Kind::Deployment, &body).await;
    }
    all_running(&mut scene, 2000, "").await;

    let bounds = Bounds {
        most: 120,
        fewest_available: 100,
    };
    let watches: Vec<RolloutWatch> = names
        .iter()
        .map(|name| RolloutWatch::of(&scene, name, bounds))
        .collect();
    let (began, cpu) = (Instant::now(), scene.manager.service.cpu());
    let change = json!({ "spec": { "template": { "metadata": { "annotations": { "note": "two" } } } } });
    for name in &names {
        scene.patch(Kind::Deployment, name, change.clone()).await;
    }
    all_running(&mut scene, 2000, "two").await;
    println!(
        "2000 machines rolled in {:.1} s; the manager took {:.1} s of CPU and {} MB at most",
        began.elapsed().as_secs_f64(),
        (scene.manager.service.cpu() - cpu).as_secs_f64(),
        scene.manager.service.peak_memory() / 1_000_000
    );
    for watch in watches {
        assert_kept(&watch.end().await);
    }
    let journal = scene.journal().await.unwrap();
    laws::one_vm_a_machine(&journal).unwrap();
    assert_eq!(laws::vms_made(&journal), 4000);
}

async fn all_running(scene: &mut Scene, wanted: usize, note: &str) {
    let what = format!("{wanted} running machines of template {note:?}");
    scene
        .until(&what, LONG, async |scene: &Scene| {
            let machines = scene.list(Kind::Machine).await?;
            let is_done = |machine: &&Value| noted(machine) == note && laws::phase(machine) == "Running";
            let done = machines.iter().filter(is_done).count();
            match (machines.len(), done) == (wanted, wanted) {
                true => Ok(()),
                false => Err(format!("{} machines, {done} done", machines.len())),
            }
        })
        .await;
}

/// By the machines alone: as many as wanted, all new, all running.
async fn is_complete(scene: &Scene, wanted: usize) -> bool {
    let machines = scene.list(Kind::Machine).await.unwrap();
    let is_done = |machine: &Value| noted(machine) == "two" && laws::phase(machine) == "Running";
    machines.len() == wanted && machines.iter().all(is_done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreate_ends_every_old_machine_before_it_makes_a_new_one() {
    let Some(plane) = shared_plane("recreate").await else {
        return;
    };
    let mut scene = Script::new("recreate").begin(&plane).await;
    let mut body = manifests::deployment(&scene.namespace, 4);
    body["spec"]["strategy"] = json!({ "type": "Recreate" });
    scene.create(Kind::Deployment, &body).await;
    scene.settled_at(4, LIMIT).await;

    // Four at any time: an old one that is left would make a fifth.
    let watch = RolloutWatch::begin(
        &scene,
        Bounds {
            most: 4,
            fewest_available: 0,
        },
    );
    change_template(&scene, "two").await;
    rolled_to(&mut scene, "two", 4, LIMIT).await;
    let seen = watch.end().await;
    assert_kept(&seen);
    assert_eq!(seen.fewest_available, 0, "there was a moment without any");
}

/// A set as the original's controller leaves it: its hash in labels and selector, its annotations, an empty time in the template.
fn original_set(owner: &Value, hash: &str, revision: u32, replicas: u32, note: Option<&str>) -> Value {
    let name = laws::name(owner);
    let labels = json!({ "name": name, "machine-template-hash": hash });
    let annotations = note.map(|note| json!({ "note": note }));
    json!({
        "metadata": {
            "name": format!("{name}-{hash}"),
            "labels": labels,
            "annotations": {
                "deployment.kubernetes.io/revision": revision.to_string(),
                "deployment.kubernetes.io/desired-replicas": "5",
                "deployment.kubernetes.io/max-replicas": "6",
            },
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": name,
                "uid": laws::uid(owner), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "creationTimestamp": null, "labels": labels, "annotations": annotations },
                "spec": {
                    "class": { "kind": "MachineClass", "name": manifests::CLASS },
                    "nodeTemplate": { "metadata": { "creationTimestamp": null }, "spec": {} },
                },
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_that_the_original_left_half_way_goes_on_within_its_bounds_and_with_its_sets() {
    let Some(plane) = shared_plane("half-way").await else {
        return;
    };
    let mut scene = Script::new("halfway").begin(&plane).await;
    let name = scene.namespace.clone();
    scene.manager.service.kill();
    let mut body = deployment(&scene, 5, &json!(1), &json!(1));
    // Paused, the sets come to their sizes, and nothing moves between them.
    body["spec"]["paused"] = json!(true);
    body["spec"]["template"]["metadata"]["annotations"] = json!({ "note": "two" });
    body["metadata"]["annotations"] = json!({ "deployment.kubernetes.io/revision": "2" });
    let made = scene.create(Kind::Deployment, &body).await;
    for set in [
        original_set(&made, "1111111111", 1, 4, None),
        original_set(&made, "2222222222", 2, 2, Some("two")),
    ] {
        scene.create(Kind::Set, &set).await;
    }
    scene.manager.service.restart();
    let six = scene
        .until("six running machines", LIMIT, async |scene: &Scene| {
            let machines = scene.list(Kind::Machine).await?;
            let running = machines
                .iter()
                .filter(|machine| laws::phase(machine) == "Running")
                .count();
            match (machines.len(), running) {
                (6, 6) => Ok(uids(&machines)),
                other => Err(format!("{other:?}")),
            }
        })
        .await;

    let watch = RolloutWatch::begin(
        &scene,
        Bounds {
            most: 6,
            fewest_available: 4,
        },
    );
    scene
        .patch(Kind::Deployment, &name, json!({ "spec": { "paused": null } }))
        .await;
    let after = rolled_to(&mut scene, "two", 5, LIMIT).await;
    assert_kept(&watch.end().await);
    let names: BTreeSet<&str> = after.sets.iter().map(laws::name).collect();
    let expected = [format!("{name}-1111111111"), format!("{name}-2222222222")];
    assert_eq!(
        names,
        expected.iter().map(String::as_str).collect(),
        "no set was made anew"
    );
    let kept = uids(&after.machines).intersection(&six).count();
    assert_eq!(kept, 2, "the two that were new already are kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_that_the_original_made_are_recognised_and_nothing_is_rolled() {
    let Some(plane) = shared_plane("an upgrade").await else {
        return;
    };
    let mut scene = Script::new("upgrade").begin(&plane).await;
    scene.manager.service.kill();
    let made = scene
        .create(Kind::Deployment, &deployment(&scene, 3, &json!(1), &json!(0)))
        .await;
    scene
        .create(Kind::Set, &original_set(&made, "3333333333", 1, 3, None))
        .await;
    scene.manager.service.restart();
    let first = scene.settled_at(3, LIMIT).await;
    scene.manager.service.kill();
    scene.manager.service.restart();
    // Something to wait for: a change that rolls nothing either.
    let change = json!({ "spec": { "template": { "spec": { "nodeTemplate": { "metadata": { "labels": { "pool": "a" } } } } } } });
    scene.patch(Kind::Deployment, &scene.namespace, change).await;
    scene
        .until("the label reaches machines and Nodes", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            let has_it = |node: &Value| node["metadata"]["labels"]["pool"] == "a";
            let count = sight.nodes.iter().filter(|node| has_it(node)).count();
            match sight
                .machines
                .iter()
                .all(|machine| machine["spec"]["nodeTemplate"]["metadata"]["labels"]["pool"] == "a")
            {
                true => Ok(()),
                false => Err(format!("{count} Nodes have it")),
            }
        })
        .await;
    let after = scene.settled_at(3, LIMIT).await;
    assert_eq!(uids(&after.machines), uids(&first.machines));
    assert_eq!(uids(&after.sets), uids(&first.sets));
    assert_eq!(laws::vms_made(&scene.journal().await.unwrap()), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scale_down_that_names_its_machines_deletes_exactly_those() {
    let Some(plane) = shared_plane("named victims").await else {
        return;
    };
    let mut scene = Script::new("named").begin(&plane).await;
    let name = scene.namespace.clone();
    scene
        .create(Kind::Deployment, &deployment(&scene, 5, &json!(1), &json!(0)))
        .await;
    let five = scene.settled_at(5, LIMIT).await;
    let mut names: Vec<&str> = five.machines.iter().map(laws::name).collect();
    names.sort_unstable();
    let victims = [names[1], names[3]];
    // As the autoscaler does: first the names with their times, then the size.
    let list: Vec<String> = victims
        .iter()
        .map(|victim| format!("{victim}~{}", jiff::Timestamp::now()))
        .collect();
    let annotations = json!({ "node.machine.sapcloud.io/trigger-deletion-by-mcm": list.join(",") });
    scene
        .patch(
            Kind::Deployment,
            &name,
            json!({ "metadata": { "annotations": annotations } }),
        )
        .await;
    scene.scale(3).await;
    let three = scene.settled_at(3, LIMIT).await;
    let left: BTreeSet<&str> = three.machines.iter().map(laws::name).collect();
    let expected: BTreeSet<&str> = names.iter().copied().filter(|name| !victims.contains(name)).collect();
    assert_eq!(left, expected);
}

const MARK: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
const STAYS: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
const STAYS_BY_US: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm";

/// Whether a Node tells the scheduler to prefer others, and whether it tells the autoscaler to leave it alone.
fn steering(node: &Value) -> (bool, bool) {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let is_avoided = taints.any(|taint| taint["key"] == MARK && taint["effect"] == "PreferNoSchedule");
    let annotations = &node["metadata"]["annotations"];
    (
        is_avoided,
        annotations[STAYS] == "true" && annotations[STAYS_BY_US] == "true",
    )
}

/// The Nodes of machines that were made from the template with this note.
fn nodes_of<'a>(sight: &'a Sight, note: &str) -> Vec<&'a Value> {
    let ids: BTreeSet<&str> = sight
        .machines
        .iter()
        .filter(|machine| noted(machine) == note)
        .filter_map(|machine| machine["spec"]["providerID"].as_str())
        .collect();
    let is_one = |node: &&Value| node["spec"]["providerID"].as_str().is_some_and(|id| ids.contains(id));
    sight.nodes.iter().filter(is_one).collect()
}

/// What the cluster-autoscaler's client makes of a deployment: fields of a newer API are lost, empty members and nulls come in.
fn rewritten(mut deployment: Value, replicas: u32) -> Value {
    let object = deployment.as_object_mut().unwrap();
    object.remove("status");
    let spec = &mut deployment["spec"];
    spec.as_object_mut().unwrap().remove("deletePolicy");
    spec["replicas"] = json!(replicas);
    spec["template"]["metadata"]["creationTimestamp"] = Value::Null;
    spec["template"]["spec"]["nodeTemplate"] = json!({ "metadata": { "creationTimestamp": null }, "spec": {} });
    deployment
}

/// In the middle of a rollout old Nodes say so, and an autoscaler that writes the whole deployment to make it larger changes its size and
/// nothing else; in the end no Node says anything any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_rollout_are_marked_while_it_lasts_and_a_whole_write_of_the_autoscaler_changes_the_size_alone() {
    let Some(plane) = shared_plane("marks of a rollout").await else {
        return;
    };
    let mut scene = Script::new("marks").provider("--join-delay", "3s").begin(&plane).await;
    let name = scene.namespace.clone();
    let body = deployment(&scene, 3, &json!(1), &json!(0));
    scene.create(Kind::Deployment, &body).await;
    scene.settled_at(3, LIMIT).await;

    change_template(&scene, "two").await;
    scene
        .until("every old node is marked", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            let old = nodes_of(&sight, "");
            let marked = old.iter().filter(|node| steering(node) == (true, true)).count();
            match !old.is_empty() && marked == old.len() {
                true => Ok(()),
                false => Err(format!("{marked} of {} old nodes are marked", old.len())),
            }
        })
        .await;
    loop {
        let found = scene.get(Kind::Deployment, &name).await;
        let object = serde_json::from_value(rewritten(found, 4)).unwrap();
        match scene
            .api(Kind::Deployment)
            .replace(&name, &PostParams::default(), &object)
            .await
        {
            Ok(_) => break,
            // The manager wrote its annotation or status in between.
            Err(kube::Error::Api(refusal)) if refusal.code == 409 => {}
            Err(error) => panic!("the deployment could not be written: {error}"),
        }
    }
    let after = rolled_to(&mut scene, "two", 4, LIMIT).await;
    assert_eq!(after.sets.len(), 2, "the write made no other template");
    scene
        .until("no node is marked", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            let marked: Vec<&str> = sight
                .nodes
                .iter()
                .filter(|node| steering(node) != (false, false))
                .map(laws::name)
                .collect();
            match marked.is_empty() {
                true => Ok(()),
                false => Err(format!("{marked:?} are")),
            }
        })
        .await;
    laws::one_vm_a_machine(&scene.journal().await.unwrap()).unwrap();
}
