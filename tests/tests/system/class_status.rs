//! What a user sees of a class: `kubectl get machineclasses` tells whether machines can be made of it, and why not.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use millwright_tests::laws::condition;
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until the class says so, of its present generation; gives the condition.
pub(crate) async fn says(scene: &mut Scene, status: &str, reason: &str, text: &str) -> Value {
    let what = format!("the class says Ready={status} {reason}");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let class = scene.get(Kind::Class, manifests::CLASS).await;
            let told = condition(&class["status"]["conditions"], "Ready").ok_or("no condition")?;
            let right = told["status"] == status && told["reason"] == reason;
            let fresh = told["observedGeneration"] == class["metadata"]["generation"];
            let message = told["message"].as_str().unwrap_or_default();
            if right && fresh && message.contains(text) {
                Ok(told.clone())
            } else {
                Err(told.to_string())
            }
        })
        .await
}

/// The cells of the class's row, by the titles of their columns.
async fn row(scene: &Scene) -> Vec<(String, String)> {
    let table = scene.kubectl(&["get", "machineclasses"], "").await;
    let mut lines = table.lines().map(|line| line.split_whitespace().map(str::to_owned));
    let (heads, cells) = (lines.next().unwrap(), lines.next().unwrap());
    heads.zip(cells).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_says_in_its_columns_whether_machines_can_be_made_of_it() {
    let Some(plane) = shared_plane("a class says whether machines can be made of it").await else {
        return;
    };
    let mut scene = Script::new("class-status").begin(&plane).await;
    let good = says(&mut scene, "True", "Valid", "Machines can be made").await;
    let wanted = [
        ("NAME", manifests::CLASS),
        ("PROVIDER", "virtual"),
        ("READY", "True"),
        ("REASON", "Valid"),
    ];
    let row = row(&scene).await;
    let seen: Vec<(&str, &str)> = row
        .iter()
        .take(4)
        .map(|(head, cell)| (head.as_str(), cell.as_str()))
        .collect();
    assert_eq!(seen, wanted);
    assert_eq!(row[4].0, "AGE");

    scene
        .patch(
            Kind::Class,
            manifests::CLASS,
            json!({ "secretRef": { "name": "late" } }),
        )
        .await;
    let text = format!("Secret {}/late does not exist", scene.namespace);
    says(&mut scene, "False", "SecretMissing", &text).await;
    scene.create_secret(&manifests::plain_secret("late")).await;
    let healed = says(&mut scene, "True", "Valid", "Machines can be made").await;
    assert!(healed["lastTransitionTime"].as_str() >= good["lastTransitionTime"].as_str());

    scene
        .patch(Kind::Class, manifests::CLASS, json!({ "provider": "nowhere" }))
        .await;
    says(&mut scene, "Unknown", "DriverNotConnected", "\"nowhere\"").await;
    scene
        .patch(Kind::Class, manifests::CLASS, json!({ "provider": "" }))
        .await;
    says(&mut scene, "True", "Valid", "by the driver virtual").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_at_rest_is_written_no_more() {
    let Some(plane) = shared_plane("a class at rest is written no more").await else {
        return;
    };
    let mut scene = Script::new("class-rest").begin(&plane).await;
    says(&mut scene, "True", "Valid", "").await;
    let version = |class: &Value| class["metadata"]["resourceVersion"].clone();
    let before = version(&scene.get(Kind::Class, manifests::CLASS).await);
    // Its driver goes and comes back, and so does the manager: no news about the class.
    scene.provider.service.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.provider.service.restart();
    scene.manager.service.kill();
    scene.manager.service.restart();
    scene.manager.wait_until_ready().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(version(&scene.get(Kind::Class, manifests::CLASS).await), before);
}
