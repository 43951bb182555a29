//! The manager is killed with -9 at every write and every driver call of a deployment's life, and started again: of the
//! ordinary life 0 → 5 → 2 → 0 → gone, of a hasty one, 0 → 5 → 0, where machines go while their VMs come, and of one with a
//! rollout, 0 → 3 → 3 of another template → 0. At each
//! stop there are exactly the wanted machines, VMs, nodes and tokens, no machine ever has two VMs, and no more machines
//! are made than were asked for.
//!
//! Which points there are is learned from a run without a crash, with and without a cloud that shows new VMs only after
//! 3 s. Ordinary runs take the first point of each kind, the long suite takes all. A kind at which nobody died is an error,
//! unless only luck brings a life there.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use millwright_dev::apiserver::ControlPlane;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use millwright_tests::{laws, sampling};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Lives beside each other, of all tests: more than processors, because they mostly wait.
static TOGETHER: Semaphore = Semaphore::const_new(8);
/// What a hasty life does only where a node was quicker than the deletion. In the ordinary life managers die there too.
const BY_LUCK: [&str; 2] = ["node guard", "node delete"];
/// How often a point is tried at which nobody died: the lives of a kind do not all pass as many points.
const TRIES: usize = 3;
const LIMIT: Duration = Duration::from_secs(90);

/// What the deployment goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// 0 → 5 → 2 → 0, each size reached before the next is asked for.
    Ordinary,
    /// 0 → 5 → 0, down as soon as the five machines are there, whatever their VMs are doing.
    Hasty,
    /// 0 → 3 → all three replaced by ones of another template → 0.
    Rolling,
}

/// How one life went.
struct Life {
    /// Where the manager was to die: `before status#3`.
    point: Option<String>,
    /// Whether it did: a life may pass fewer points of a kind than the calm one.
    died: bool,
    /// Every point passed, in order, also those after the crash, which begin to count anew.
    points: Vec<String>,
    took: Duration,
}

/// `before status` of `before status#3`.
fn kind(point: &str) -> &str {
    point.rsplit_once('#').expect("a point has a number").0
}

/// One life of a deployment, with a kill at a point.
async fn life(plane: &Arc<ControlPlane>, course: Course, lag: &str, point: Option<&str>) -> Life {
    let _turn = TOGETHER.acquire().await.expect("it is never closed");
    let began = Instant::now();
    let prefix = point.map_or_else(
        || "calm".to_owned(),
        |point| point.to_lowercase().replace([' ', '#'], "-"),
    );
    let log = plane.dir().join(format!("{course:?}-{prefix}-{lag}.points"));
    let mut script = Script::new(&prefix)
        .provider("--list-lag", lag)
        .env("MILLWRIGHT_CRASH_LOG", log.display().to_string());
    if let Some(point) = point {
        script = script.env("MILLWRIGHT_CRASH_AT", point);
    }
    let mut scene = script.begin(plane).await;
    scene.revives = true;
    scene.deploy(0).await;
    run(&mut scene, course).await;
    scene.remove_all(LIMIT).await;
    let journal = scene.journal().await.expect("the cloud's journal");
    laws::one_vm_a_machine(&journal).unwrap_or_else(|why| panic!("{prefix}: {why}"));
    let vms = laws::vms_made(&journal);
    match course {
        Course::Ordinary => assert_eq!(vms, 5, "{prefix}: VMs that nobody asked for"),
        Course::Hasty => assert!(vms <= 5, "{prefix}: {vms} VMs"),
        Course::Rolling => assert_eq!(vms, 6, "{prefix}: VMs that nobody asked for"),
    }
    let points = std::fs::read_to_string(&log).unwrap_or_default();
    Life {
        point: point.map(str::to_owned),
        died: scene.revived > 0,
        points: points.lines().map(str::to_owned).collect(),
        took: began.elapsed(),
    }
}

async fn run(scene: &mut Scene, course: Course) {
    match course {
        Course::Rolling => scene.scale(3).await,
        Course::Ordinary | Course::Hasty => scene.scale(5).await,
    }
    match course {
        Course::Rolling => {
            scene.settled_at(3, LIMIT).await;
            let change = json!({ "spec": { "template": { "metadata": { "annotations": { "note": "two" } } } } });
            scene.patch(Kind::Deployment, &scene.namespace, change).await;
            rolled(scene).await;
        }
        Course::Ordinary => {
            scene.settled_at(5, LIMIT).await;
            scene.scale(2).await;
            scene.settled_at(2, LIMIT).await;
        }
        Course::Hasty => {
            scene
                .until("five machines", LIMIT, async |scene: &Scene| {
                    let machines = scene.list(Kind::Machine).await?.len();
                    if machines == 5 {
                        Ok(())
                    } else {
                        Err(format!("{machines}"))
                    }
                })
                .await;
        }
    }
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
}

/// Waits until three machines of the new template are all there is.
async fn rolled(scene: &mut Scene) {
    scene
        .until("three new machines", LIMIT, async |scene: &Scene| {
            let sight = scene.look().await?;
            laws::settled(&sight, 3)?;
            let is_new = |machine: &Value| machine["metadata"]["annotations"]["note"] == "two";
            match sight.machines.iter().all(is_new) {
                true => Ok(()),
                false => Err("there are old machines".to_owned()),
            }
        })
        .await;
}

/// The first point of each kind, in the long suite all of them.
fn chosen(points: &[String]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let points = points.iter().map(String::as_str);
    points
        .filter(|point| seen.insert(kind(point)) || sampling::is_long())
        .collect()
}

/// Lives that are to die at these points.
async fn lives<'a>(
    plane: &Arc<ControlPlane>,
    course: Course,
    lag: &str,
    points: impl IntoIterator<Item = &'a str>,
) -> Vec<Life> {
    stream::iter(points)
        .map(|point| life(plane, course, lag, Some(point)))
        .buffer_unordered(usize::MAX)
        .collect()
        .await
}

/// The first points of the kinds at which nobody died, though every life of the course passes them.
fn missed<'a>(course: Course, points: &'a [String], lives: &[Life]) -> Vec<&'a str> {
    let deaths = lives.iter().filter(|life| life.died);
    let mut died_at: BTreeSet<&str> = deaths.filter_map(|life| life.point.as_deref()).map(kind).collect();
    let points = points.iter().map(String::as_str);
    points
        .filter(|point| died_at.insert(kind(point)) && !is_by_luck(course, point))
        .collect()
}

fn is_by_luck(course: Course, point: &str) -> bool {
    match course {
        Course::Ordinary | Course::Rolling => false,
        Course::Hasty => BY_LUCK.iter().any(|what| kind(point).ends_with(what)),
    }
}

async fn every_point(what: &str, course: Course, lag: &str) {
    let Some(plane) = shared_plane(what).await else { return };
    let calm = life(&plane, course, lag, None).await;
    assert!(!calm.died);
    assert!(
        calm.points.len() > 40,
        "there are crash points in this build: {:?}",
        calm.points
    );
    let began = Instant::now();
    let mut lived = lives(&plane, course, lag, chosen(&calm.points)).await;
    enough_died(course, &lived);
    for _ in 1..TRIES {
        let again = missed(course, &calm.points, &lived);
        lived.extend(lives(&plane, course, lag, again).await);
    }
    report(what, &calm, &lived, began.elapsed());
    let missed = missed(course, &calm.points, &lived);
    assert!(missed.is_empty(), "nobody died at {missed:?}");
}

/// Lives differ in how many points of a kind they pass, those in haste more: the last ones may not come.
fn enough_died(course: Course, lives: &[Life]) {
    let died = lives.iter().filter(|life| life.died).count();
    let enough = match course {
        Course::Ordinary | Course::Rolling => lives.len() * 9 / 10,
        Course::Hasty => lives.len() / 2,
    };
    assert!(died >= enough, "{died} of {} lives had their crash", lives.len());
}

fn report(what: &str, calm: &Life, lives: &[Life], took: Duration) {
    let mut kinds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for life in lives {
        let (died, lived) = kinds.entry(life.point.as_deref().map_or("", kind)).or_default();
        *died += usize::from(life.died);
        *lived += 1;
    }
    let slowest = lives.iter().max_by_key(|life| life.took).expect("there are points");
    println!(
        "{what}: {} points, {} lives, {:.0} s (calm life {:.1} s, slowest {:.1} s at {:?}); kills of lives by kind:",
        calm.points.len(),
        lives.len(),
        took.as_secs_f64(),
        calm.took.as_secs_f64(),
        slowest.took.as_secs_f64(),
        slowest.point,
    );
    for (kind, (died, lived)) in kinds {
        println!("  {kind:24} {died}/{lived}");
    }
}

/// Rows: pains 2, 4, 8, 9, 10, 24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_killed_at_any_point_makes_no_second_vm_and_leaves_nothing() {
    every_point("killed at any point", Course::Ordinary, "0s").await;
}

/// Rows: pains 4, 5, 6, 8, 10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_killed_at_any_point_is_not_misled_by_a_cloud_that_lags() {
    every_point("killed at any point, lag 3 s", Course::Ordinary, "3s").await;
}

/// Rows: pains 28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_go_while_their_vms_come_leave_nothing_wherever_the_manager_is_killed() {
    every_point("killed at any point, in haste", Course::Hasty, "0s").await;
}

/// Rows: pains 28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_go_while_their_vms_come_leave_nothing_in_a_cloud_that_lags() {
    every_point("killed at any point, in haste, lag 3 s", Course::Hasty, "3s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_ends_with_the_machines_of_its_template_wherever_the_manager_is_killed() {
    every_point("killed at any point of a rollout", Course::Rolling, "0s").await;
}
