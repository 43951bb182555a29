//! What `kubectl describe machine` tells of an ordinary life: the VM was made, the machine joined, it is deleted; no more.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use millwright_tests::laws;
use millwright_tests::scene::{Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
/// So long after the last change nothing more may be told.
const QUIET: Duration = Duration::from_secs(5);

/// The events about a Machine, oldest first.
async fn told(scene: &Scene, machine: &str) -> Result<Vec<Value>, String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("events.k8s.io", "v1", "Event"));
    let events: Api<DynamicObject> = Api::namespaced_with(scene.client.clone(), &scene.namespace, &resource);
    let all = events
        .list(&ListParams::default())
        .await
        .map_err(|error| error.to_string())?;
    let events = all.items.into_iter().map(|event| json!(event));
    let mut about: Vec<Value> = events
        .filter(|event| event["regarding"]["kind"] == "Machine" && event["regarding"]["name"] == machine)
        .collect();
    about.sort_by_key(|event| event["eventTime"].as_str().unwrap_or_default().to_owned());
    Ok(about)
}

fn notes(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["note"].as_str().unwrap_or_default())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_life_is_told_by_two_events_and_its_end_by_one() {
    let Some(plane) = shared_plane("a life told").await else {
        return;
    };
    let mut scene = Script::new("told").begin(&plane).await;
    scene.deploy(1).await;
    let sight = scene.settled_at(1, LIMIT).await;
    let machine = &sight.machines[0];
    let name = laws::name(machine).to_owned();
    let vm = machine["spec"]["providerID"].as_str().unwrap().to_owned();
    let node = machine["metadata"]["labels"]["node"].as_str().unwrap().to_owned();
    scene
        .until("making and joining are told", LIMIT, async |scene: &Scene| {
            let events = told(scene, &name).await?;
            match notes(&events).as_slice() {
                [made, joined] if made.contains(&vm) && joined.contains(&node) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    tokio::time::sleep(QUIET).await;
    let events = told(&scene, &name).await.unwrap();
    assert_eq!(events.len(), 2, "nothing else happened: {:?}", notes(&events));
    let joined = notes(&events)[1];
    assert!(
        joined.chars().any(|letter| letter.is_ascii_digit()),
        "after how long it joined: {joined}"
    );
    assert!(events.iter().all(|event| event["type"] == "Normal"), "{events:?}");
    let described = scene.kubectl(&["describe", "machine", &name], "").await;
    assert!(described.contains(joined), "{described}");

    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
    scene
        .until("its end is told", LIMIT, async |scene: &Scene| {
            let events = told(scene, &name).await?;
            match events.len() {
                3 => Ok(()),
                _ => Err(format!("{:?}", notes(&events))),
            }
        })
        .await;
    tokio::time::sleep(QUIET).await;
    let events = told(&scene, &name).await.unwrap();
    assert_eq!(events.len(), 3, "{:?}", notes(&events));
}
