//! Drivers that flood or lie without end, all at once beside one manager: they cost their own machines, and nobody else's speed, the
//! manager's memory, somebody's log, or a secret.
#![allow(clippy::indexing_slicing, reason = "a test says by its panic what went wrong")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use millwright_tests::laws;
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::hostile::{Hostile, PASSWORD, Way};

const LIMIT: Duration = Duration::from_secs(60);
/// How long the hostile ones have the manager.
const FLOOD: Duration = Duration::from_secs(60);
/// Between two listings of a driver's VMs.
const PERIOD: &str = "2s";
/// Machines of the honest driver in one round, and rounds before the flood.
const MACHINES: usize = 20;
const ROUNDS: usize = 5;
/// Machines of each hostile driver.
const EACH: usize = 2;
/// What the manager may take at any time, of which it takes 28 MB without them.
const MEMORY: u64 = 100 << 20;
/// What a round may take beside them: twice the time, and what the other tests of this program make of it.
const SLOWER: f64 = 2.0;
const NOISE: Duration = Duration::from_secs(1);
/// Lines a second that they may cause.
const LINES: usize = 10;
/// The most bytes that a line may have: all violations of a class are in one.
const LINE: usize = 64 << 10;
/// The most bytes that any object may have.
const OBJECT: usize = 256 << 10;
/// How fast health is told.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The scene's deployment comes up from nothing and goes. Health is told all the time.
async fn round(scene: &mut Scene) -> Duration {
    let begun = Instant::now();
    for (replicas, count) in [(20, MACHINES), (0, 0)] {
        scene.scale(replicas).await;
        scene
            .until(
                &format!("{count} machines of the honest driver"),
                LIMIT,
                async |scene: &Scene| {
                    is_healthy(scene).await;
                    let machines = scene.list(Kind::Machine).await?;
                    let honest = machines.iter().filter(|machine| is_honest(scene, machine));
                    let phases: Vec<&str> = honest.map(laws::phase).collect();
                    match phases.len() == count && phases.iter().all(|phase| *phase == "Available") {
                        true => Ok(()),
                        false => Err(format!("{phases:?}")),
                    }
                },
            )
            .await;
    }
    begun.elapsed()
}

fn is_honest(scene: &Scene, machine: &Value) -> bool {
    laws::name(machine).starts_with(&format!("{}-", scene.namespace))
}

async fn is_healthy(scene: &Scene) {
    for path in ["/livez", "/readyz"] {
        let told = tokio::time::timeout(AT_ONCE, scene.manager.get(path)).await;
        let told = told.unwrap_or_else(|_| panic!("{path}: no answer within {AT_ONCE:?}"));
        let (code, body) = told.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(code, 200, "{path}: {body}");
    }
}

/// A class and Machines of each hostile driver.
async fn populate(scene: &Scene) {
    for way in Way::ALL {
        let name = way.name();
        let class = json!({
            "metadata": { "name": name }, "provider": name, "providerSpec": {}, "secretRef": { "name": "plain" },
        });
        scene.create(Kind::Class, &class).await;
        for number in 0..EACH {
            let mut machine = manifests::machine(&format!("{name}-{number}"));
            machine["spec"]["class"]["name"] = json!(name);
            scene.create(Kind::Machine, &machine).await;
        }
    }
}

fn median(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort();
    rounds[rounds.len() / 2]
}

/// Rows: O7, O21, D1, D4, D6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_that_flood_cost_no_other_driver_its_speed_and_the_manager_neither_memory_nor_log() {
    let Some(plane) = shared_plane("drivers that flood beside an honest one").await else {
        return;
    };
    let socket = |way: Way| plane.dir().join(format!("{}.sock", way.name()));
    let mut script = Script::new("flood")
        .manager("--target-kubeconfig", "none")
        .manager("--machine-safety-orphan-vms-period", PERIOD)
        .manager("--orphan-min-age", "1s");
    for way in Way::ALL {
        script = script.manager("--driver", format!("unix://{}", socket(way).display()));
    }
    let mut scene = script.begin(&plane).await;
    let mut secret = manifests::plain_secret("plain");
    secret["stringData"]["password"] = json!(PASSWORD);
    scene.create_secret(&secret).await;
    scene.manager.wait_until_ready().await;
    scene.deploy(0).await;

    let mut alone = Vec::new();
    for _ in 0..ROUNDS {
        alone.push(round(&mut scene).await);
    }
    let (pid, memory, quiet) = (
        scene.manager.service.pid(),
        scene.manager.service.peak_memory(),
        scene.manager.service.log(),
    );

    let hostile = Hostile::all(socket);
    populate(&scene).await;
    let (begun, mut beside) = (Instant::now(), Vec::new());
    while begun.elapsed() < FLOOD {
        beside.push(round(&mut scene).await);
    }
    assert!(scene.manager.service.is_running());
    assert_eq!(scene.manager.service.pid(), pid);
    // What the honest driver's machines say is told, too.
    let (rounds, seconds) = (beside.len(), usize::try_from(begun.elapsed().as_secs()).unwrap_or(1));
    let own = quiet.lines().count() / ROUNDS * rounds;
    let log = scene.manager.service.log();
    let lines = log.lines().count().saturating_sub(quiet.lines().count() + own) / seconds;
    let (peak, alone, beside) = (scene.manager.service.peak_memory(), median(alone), median(beside));
    println!(
        "memory {} MB, beside hostile drivers {} MB; a round {alone:?}, and beside them {beside:?} ({rounds} rounds); {lines} lines a second of theirs",
        memory >> 20,
        peak >> 20
    );
    assert!(peak <= MEMORY, "{} MB", peak >> 20);
    assert!(beside <= alone.mul_f64(SLOWER) + NOISE, "{beside:?} and {alone:?}");
    assert!(lines <= LINES, "{lines} lines a second");
    keeps_what_it_must(&scene, &hostile).await;
    tells_no_secret(&scene, &log).await;
}

/// No machine and no VM of the hostile drivers went, and whatever can have a VM has it.
async fn keeps_what_it_must(scene: &Scene, hostile: &Hostile) {
    assert_eq!(hostile.deletes(), Vec::<String>::new());
    for way in Way::ALL {
        for number in 0..EACH {
            let machine = scene.get(Kind::Machine, &format!("{}-{number}", way.name())).await;
            assert!(machine["metadata"]["deletionTimestamp"].is_null(), "{machine}");
            let phase = laws::phase(&machine);
            let is_sound = match way.makes_vms() {
                true => phase == "Available",
                false => !["Available", "Failed"].contains(&phase),
            };
            assert!(is_sound, "{way:?}: {}", machine["status"]);
        }
    }
}

/// Nothing that people read holds a secret, a line of the drivers' own, or too much.
async fn tells_no_secret(scene: &Scene, log: &str) {
    assert!(
        !log.contains(PASSWORD),
        "{}",
        log.lines().find(|line| line.contains(PASSWORD)).unwrap_or_default()
    );
    assert!(!log.lines().any(|line| line.starts_with("2026 ERROR forged")));
    let longest = log.lines().map(str::len).max().unwrap_or_default();
    assert!(longest <= LINE, "a line of {longest} bytes");
    let mut objects = Vec::new();
    for kind in [Kind::Machine, Kind::Set, Kind::Deployment, Kind::Class] {
        objects.extend(scene.list(kind).await.expect("the API server answers"));
    }
    let events: Api<Event> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let events = events
        .list(&ListParams::default())
        .await
        .expect("the API server answers")
        .items;
    let hostile = events.iter().filter(|event| {
        let name = event.involved_object.name.as_deref().unwrap_or_default();
        !name.starts_with(&scene.namespace)
    });
    let hostile = hostile.count();
    println!("{hostile} events of hostile drivers");
    assert!(hostile <= 300, "{hostile} events");
    objects.extend(events.iter().map(|event| json!(event)));
    for object in objects {
        let text = object.to_string();
        assert!(!text.contains(PASSWORD), "{text:.2000}");
        assert!(text.len() <= OBJECT, "{} bytes: {text:.300}", text.len());
    }
}
