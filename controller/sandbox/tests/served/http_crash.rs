//! A server that is killed while it writes: whatever it had answered is there after the next start, and nothing is half done.
//!
//! The server is this very program, started again as one: a process that can be killed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use millwright_sandbox::api::Api as Value;
use millwright_sandbox::http::disk::Disk;
use millwright_sandbox::http::outside::{Outside as _, System};
use millwright_sandbox::http::users::Users;
use millwright_sandbox::http::{Options, Server};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

/// Says to the program that it is the server, and of which file.
const FILE: &str = "MILLWRIGHT_TEST_SERVES";
const READY: &str = "serves at ";
const WRITERS: usize = 16;
const KILLS: usize = 6;
/// Answers after which a server is killed, with all writers in the middle of something.
const ANSWERS: usize = 60;

/// How long a writer waits for one answer. hyper's client can lose a request that is sent at the very moment at which its
/// connection ends (hyperium/hyper#4122): it is never answered then, nor refused.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a writer knows of one object: its version when it was answered last, and what its data said. None for one that is gone.
type Known = BTreeMap<String, Option<(u64, String)>>;

/// No test by itself: the server that the test below starts and kills.
#[tokio::test]
async fn serves_if_it_is_told_to() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let now = System.moment().now;
    let (disk, api) = Disk::open(Path::new(&file), now).unwrap();
    let options = Options {
        disk: Some(disk),
        ..Options::new(
            api.unwrap_or_else(|| Value::new(now)),
            Users::default().with("admin", "t0ken"),
        )
    };
    let server = Server::start(options).await.unwrap();
    println!("\n{READY}{}", server.url());
    std::future::pending::<()>().await;
}

struct Served {
    process: Child,
    maps: Api<ConfigMap>,
}

async fn serve(file: &Path) -> Served {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "http_crash::serves_if_it_is_told_to", "--nocapture"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let url = loop {
        let line = lines.next_line().await.unwrap().expect("it says where it serves");
        if let Some(url) = line.strip_prefix(READY) {
            break url.to_owned();
        }
    };
    let kubeconfig = Kubeconfig::from_yaml(&format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
         clusters: [{{name: a, cluster: {{server: '{url}'}}}}], users: [{{name: a, user: {{token: t0ken}}}}]}}"
    ));
    let config = Config::from_custom_kubeconfig(kubeconfig.unwrap(), &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    Served {
        process,
        maps: Api::namespaced(client, "default"),
    }
}

fn seen(map: &ConfigMap) -> (u64, String) {
    let version = map.resource_version().unwrap().parse().unwrap();
    (version, map.data.clone().unwrap_or_default()["step"].clone())
}

/// An answer, if there was one in time.
async fn heard<T>(call: impl Future<Output = kube::Result<T>>) -> Option<T> {
    tokio::time::timeout(PATIENCE, call).await.ok()?.ok()
}

/// Makes, changes and deletes objects of its own until nobody answers. The last step may have been done or not.
async fn write(maps: Api<ConfigMap>, writer: usize, round: usize, answered: Arc<AtomicUsize>) -> (Known, String) {
    let mut known = Known::new();
    for number in 0.. {
        let name = format!("r{round}-w{writer}-{number}");
        let made = json!({ "metadata": { "name": name }, "data": { "step": "made" } });
        let made = serde_json::from_value(made).unwrap();
        let Some(map) = heard(maps.create(&PostParams::default(), &made)).await else {
            return (known, name);
        };
        known.insert(name.clone(), Some(seen(&map)));
        answered.fetch_add(1, Ordering::Relaxed);
        let changed = Patch::Merge(json!({ "data": { "step": "changed" } }));
        let Some(map) = heard(maps.patch(&name, &PatchParams::default(), &changed)).await else {
            return (known, name);
        };
        known.insert(name.clone(), Some(seen(&map)));
        answered.fetch_add(1, Ordering::Relaxed);
        if number % 3 == 0 {
            if heard(maps.delete(&name, &DeleteParams::default())).await.is_none() {
                return (known, name);
            }
            known.insert(name, None);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    unreachable!("a writer goes on until the server is killed")
}

/// What is there after a kill against what was answered before it. Of each writer one write was under way.
fn judge(known: &Known, in_flight: &[String], there: &BTreeMap<String, (u64, String)>, version: u64) {
    for (name, (at, step)) in there {
        assert!(
            *at <= version,
            "{name} is of version {at}, later than the list's {version}"
        );
        match known.get(name) {
            Some(Some((was, said))) if was == at => assert_eq!(said, step, "{name}"),
            // Done, but nobody heard of it: the next step of what was under way, whole.
            Some(Some((was, _))) => {
                assert!(
                    in_flight.contains(name) && at > was,
                    "{name} was at {was} and is at {at}"
                );
                assert_eq!(step, "changed", "{name}");
            }
            Some(None) => panic!("{name} is back"),
            None => assert!(in_flight.contains(name) && step == "made", "nobody made {name}"),
        }
    }
    for (name, was) in known {
        // A deletion that was under way may have been done.
        let may_be_gone =
            was.is_none() || (in_flight.contains(name) && was.as_ref().is_some_and(|(_, step)| step == "changed"));
        assert!(
            there.contains_key(name) || may_be_gone,
            "{name} was answered and is lost"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_many_writes_loses_nothing_that_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("api.redb");
    let mut known = Known::new();
    let mut newest = 0;
    for round in 0..KILLS {
        let mut served = serve(&file).await;
        let answered = Arc::new(AtomicUsize::new(0));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(served.maps.clone(), writer, round, answered.clone()));
        }
        while answered.load(Ordering::Relaxed) < ANSWERS {
            assert!(
                writers.try_join_next().is_none(),
                "a writer was refused before the server was killed"
            );
            tokio::task::yield_now().await;
        }
        served.process.kill().await.unwrap();
        let mut in_flight = Vec::new();
        while let Some(ended) = writers.join_next().await {
            let (of_one, last) = ended.unwrap();
            known.extend(of_one);
            in_flight.push(last);
        }

        let again = serve(&file).await;
        let listed = again.maps.list(&ListParams::default()).await.unwrap();
        let version: u64 = listed.metadata.resource_version.unwrap().parse().unwrap();
        let there: BTreeMap<String, (u64, String)> =
            listed.items.iter().map(|map| (map.name_any(), seen(map))).collect();
        judge(&known, &in_flight, &there, version);
        known.retain(|_, was| was.is_none());
        known.extend(there.into_iter().map(|(name, state)| (name, Some(state))));
        for last in in_flight {
            known.entry(last).or_insert(None);
        }
        let marker = json!({ "metadata": { "name": format!("after-{round}") }, "data": { "step": "made" } });
        let marker = again
            .maps
            .create(&PostParams::default(), &serde_json::from_value(marker).unwrap())
            .await
            .unwrap();
        let (at, _) = seen(&marker);
        assert!(
            at > version && version > newest,
            "versions went {newest}, {version}, {at}"
        );
        newest = at;
        known.insert(marker.name_any(), Some(seen(&marker)));
    }
    assert!(
        known.len() > KILLS * ANSWERS / 4,
        "too little was written to say anything"
    );
}
