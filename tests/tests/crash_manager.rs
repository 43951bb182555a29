//! The manager is killed with -9 at every write and every driver call of a deployment's life 0 → 5 → 2 → 0 → gone, and
//! started again. At each stop there are exactly the wanted machines, VMs, nodes and tokens, and no machine ever has two
//! VMs.
//!
//! Which points there are is learned from a run without a crash. Ordinary runs take every second point; all of them,
//! also with a cloud that shows new VMs only after 3 s, take `MILLWRIGHT_CRASH_MATRIX=full`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use millwright_dev::apiserver::ControlPlane;
use millwright_tests::scene::{Kind, Scene, Script, left_over, shared_plane};
use millwright_tests::{laws, manifests};
use tokio::time::Instant;

/// Scenes beside each other: more than processors, because they mostly wait.
const TOGETHER: usize = 6;
const LIMIT: Duration = Duration::from_secs(90);

/// How far one life got.
struct Life {
    point: Option<usize>,
    /// The crash log's line of the point at which the manager died; nothing if the life had fewer points.
    died_at: Option<String>,
    points: usize,
    vms: usize,
    took: Duration,
}

fn is_full() -> bool {
    std::env::var("MILLWRIGHT_CRASH_MATRIX").is_ok_and(|value| value == "full")
}

/// One life of a deployment, with a kill at a point.
async fn life(plane: &Arc<ControlPlane>, lag: &str, point: Option<usize>) -> Life {
    let began = Instant::now();
    let prefix = point.map_or_else(|| "calm".to_owned(), |point| format!("crash-{point}"));
    let log = plane.dir().join(format!("{prefix}-{lag}.points"));
    let mut script = Script::new(&prefix)
        .with_crash_points()
        .provider("--list-lag", lag)
        .env("MILLWRIGHT_CRASH_LOG", log.display().to_string());
    if let Some(point) = point {
        script = script.env("MILLWRIGHT_CRASH_AT", point.to_string());
    }
    let mut scene = script.begin(plane).await;
    scene.revives = true;
    scene.deploy(0).await;
    scene.scale(5).await;
    scene.settled_at(5, LIMIT).await;
    scene.scale(2).await;
    scene.settled_at(2, LIMIT).await;
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
    remove_all(&mut scene).await;
    let journal = scene.journal().await.expect("the cloud's journal");
    laws::one_vm_a_machine(&journal).unwrap_or_else(|why| panic!("{prefix}: {why}"));
    let lines = std::fs::read_to_string(&log).unwrap_or_default();
    let lines: Vec<&str> = lines.lines().collect();
    Life {
        point,
        died_at: point
            .filter(|_| scene.revived > 0)
            .and_then(|point| died_at(&lines, point)),
        points: lines.len(),
        vms: laws::vms_made(&journal),
        took: began.elapsed(),
    }
}

/// "before call" of "17 before call".
fn died_at(lines: &[&str], point: usize) -> Option<String> {
    let number = point.to_string();
    let line = lines
        .iter()
        .find_map(|line| line.strip_prefix(&number)?.strip_prefix(' '))?;
    Some(line.to_owned())
}

/// The user takes everything away, and nothing stays.
async fn remove_all(scene: &mut Scene) {
    let deployment = scene.namespace.clone();
    scene.delete(Kind::Deployment, &deployment).await;
    scene.delete(Kind::Class, manifests::CLASS).await;
    scene
        .until("nothing is left", LIMIT, async |scene: &Scene| {
            laws::nothing_left(&scene.look().await?)?;
            match left_over(scene).await?.as_slice() {
                [] => Ok(()),
                left => Err(format!("{left:?}")),
            }
        })
        .await;
}

async fn every_point(what: &str, lag: &str, stride: usize) {
    let Some(plane) = shared_plane(what).await else { return };
    let calm = life(&plane, lag, None).await;
    assert!(
        calm.died_at.is_none() && calm.vms == 5,
        "a calm life makes 5 VMs, not {}",
        calm.vms
    );
    assert!(
        calm.points > 60,
        "there are crash points in this build: {}",
        calm.points
    );
    let began = Instant::now();
    let points = (1..=calm.points).step_by(stride);
    let lives: Vec<Life> = stream::iter(points)
        .map(|point| life(&plane, lag, Some(point)))
        .buffer_unordered(TOGETHER)
        .collect()
        .await;
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for died_at in lives.iter().filter_map(|life| life.died_at.as_deref()) {
        *kinds.entry(died_at).or_default() += 1;
    }
    let killed: usize = kinds.values().sum();
    let slowest = lives.iter().max_by_key(|life| life.took).expect("there are points");
    println!(
        "{what}: lag {lag}, {} points, {} lives, {killed} kills, {:.0} s (calm life {:.1} s, slowest {:.1} s at {:?})\n{kinds:#?}",
        calm.points,
        lives.len(),
        began.elapsed().as_secs_f64(),
        calm.took.as_secs_f64(),
        slowest.took.as_secs_f64(),
        slowest.point,
    );
    assert!(
        killed * 10 >= lives.len() * 9,
        "{killed} of {} lives had their crash",
        lives.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_killed_at_any_point_makes_no_second_vm_and_leaves_nothing() {
    let stride = if is_full() { 1 } else { 3 };
    every_point("a manager killed at any point", "0s", stride).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_killed_at_any_point_is_not_misled_by_a_cloud_that_lags() {
    let stride = if is_full() { 1 } else { 9 };
    every_point("a manager killed at any point, beside a cloud that lags", "3s", stride).await;
}
