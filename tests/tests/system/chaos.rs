//! Everything at once: managers and provider are killed with -9 at random instants, the API server and the cluster with the nodes go
//! away and come back, and meanwhile a deployment is scaled and rolled. In the end there is exactly what was asked for, no VM was ever
//! made twice, none went that nobody had asked to go, and after the deployment nothing is left of it anywhere.
//!
//! Judged by the cloud's own journal and the API server's objects. What happens when is drawn from the seed of [`sampling`]; the
//! namespace, and with it whatever a failure shows, bears its number. The long suite has ten times as much of it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use millwright_dev::apiserver::ControlPlane;
use millwright_tests::cloud::Entry;
use millwright_tests::fleet::Manager;
use millwright_tests::laws::{self, Wish};
use millwright_tests::proxy::{Passage, Proxy};
use millwright_tests::sampling::Draw;
use millwright_tests::scene::{Kind, Scene};
use millwright_tests::script::Script;
use millwright_tests::service::Service;
use millwright_tests::timetable::{Absence, Act, Extent, Timetable, Victim};
use millwright_tests::{apiserver, manifests, sampling};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The annotation of a template by which its machines are told from those of others.
const NOTE: &str = "note";

/// How much there is of it.
struct Measure {
    /// While the machines come up.
    growth: Extent,
    /// While everything happens.
    turmoil: Extent,
    /// Longer than this no machine may take to join and no node may be ill. The cluster with the nodes is away for longer.
    patience: Duration,
    /// Between two heartbeats of a node.
    heartbeat: Duration,
    /// Within which all is as asked for when nothing happens any more.
    limit: Duration,
}

/// A calm spell: only processes are killed.
const CALM: Extent = Extent {
    span: Duration::ZERO,
    kills: 0,
    managers: 1,
    orders: 0,
    machines: 0,
    api_away: Duration::ZERO,
    target_away: Duration::ZERO,
};

const ORDINARY: Measure = Measure {
    growth: Extent {
        span: Duration::from_secs(3),
        kills: 2,
        machines: 50,
        ..CALM
    },
    turmoil: Extent {
        span: Duration::from_secs(36),
        kills: 8,
        orders: 5,
        machines: 50,
        api_away: Duration::from_secs(12),
        target_away: Duration::from_secs(30),
        ..CALM
    },
    patience: Duration::from_secs(20),
    heartbeat: Duration::from_secs(10),
    limit: Duration::from_secs(90),
};

const LONG: Measure = Measure {
    growth: Extent {
        span: Duration::from_secs(40),
        kills: 10,
        managers: 2,
        machines: 500,
        ..CALM
    },
    turmoil: Extent {
        span: Duration::from_secs(720),
        kills: 90,
        managers: 2,
        orders: 20,
        machines: 500,
        api_away: Duration::from_secs(120),
        target_away: Duration::from_secs(300),
    },
    patience: Duration::from_secs(100),
    heartbeat: Duration::from_secs(60),
    limit: Duration::from_secs(600),
};

/// A scene to which everything happens.
struct Chaos {
    seed: u64,
    scene: Scene,
    /// A second manager, in the long suite.
    standby: Option<Manager>,
    /// The managers' way to the nodes.
    way: Proxy,
    /// What was asked for, and when.
    wishes: Vec<(Timestamp, Wish)>,
    size: u32,
    templates: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_dies_or_is_away_there_is_what_was_asked_for_and_nothing_healthy_goes() {
    let what = "chaos";
    let Some(plane) = apiserver::start_with_crds(what).await else {
        return;
    };
    let measure = if sampling::is_long() { LONG } else { ORDINARY };
    let seed = sampling::seed(what);
    let mut draw = Draw::of(seed);
    let mut chaos = Chaos::begin(seed, plane, &measure).await;
    let began = Instant::now();

    chaos.order(Act::Scale(measure.growth.machines)).await;
    let growth = Timetable::drawn(&mut draw, &measure.growth);
    chaos.suffer(&growth).await;
    chaos.come_to_rest(measure.limit).await;
    let grown = began.elapsed();

    let turmoil = Timetable::drawn(&mut draw, &measure.turmoil);
    chaos.suffer(&turmoil).await;
    let over = Instant::now();
    chaos.come_to_rest(measure.limit).await;
    let rest = over.elapsed();
    let journal = chaos.judge().await;
    chaos.scene.remove_all(measure.limit).await;

    let gone = chaos.scene.journal().await.unwrap();
    println!(
        "{what}: {} kills, {} orders, {} VMs for {} machines in {} templates; grown after {:.1} s, at rest {:.1} s after the last blow, {:.1} s in all",
        growth.kills() + turmoil.kills(),
        measure.turmoil.orders,
        laws::vms_made(&gone),
        uids(&gone).len(),
        chaos.templates,
        grown.as_secs_f64(),
        rest.as_secs_f64(),
        began.elapsed().as_secs_f64(),
    );
    chaos.must(match laws::vms_made(&gone) == laws::vms_made(&journal) {
        true => Ok(()),
        false => Err("VMs were made after the last order".to_owned()),
    });
}

fn uids(journal: &[Entry]) -> BTreeSet<&str> {
    journal.iter().map(|entry| entry.uid.as_str()).collect()
}

impl Chaos {
    async fn begin(seed: u64, plane: ControlPlane, measure: &Measure) -> Self {
        let way = Proxy::before(SocketAddr::from(([127, 0, 0, 1], plane.port())), Passage::Open).await;
        let scene = script(seed, &way, measure).begin(&Arc::new(plane)).await;
        let standby = match measure.turmoil.managers {
            1 => None,
            _ => Some(scene.another_manager().await),
        };
        let mut deployment = manifests::deployment(&scene.namespace, 0);
        deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = json!("20%");
        deployment["spec"]["template"]["metadata"]["annotations"] = json!({ NOTE: "0" });
        scene.create(Kind::Deployment, &deployment).await;
        Self {
            seed,
            scene,
            standby,
            way,
            wishes: vec![(Timestamp::now(), Wish::Template("0".to_owned()))],
            size: 0,
            templates: 1,
        }
    }

    /// Everything of a table, each at its instant or as soon after it as what came before allows.
    async fn suffer(&mut self, table: &Timetable) {
        println!("seed {}:\n{table}", self.seed);
        let began = Instant::now();
        for (at, act) in &table.0 {
            tokio::time::sleep_until(began + *at).await;
            self.carry_out(*act).await;
        }
    }

    async fn carry_out(&mut self, act: Act) {
        match act {
            Act::Kill(victim) => self.service(victim).kill(),
            Act::Start(victim) => self.service(victim).restart(),
            Act::Scale(_) | Act::Roll => self.order(act).await,
            Act::ApiServerGoes(Absence::Dead) => self.plane().stop_apiserver(),
            Act::ApiServerReturns(Absence::Dead) => self.plane().restart_apiserver().await.unwrap(),
            Act::ApiServerGoes(Absence::Frozen) => signal(self.plane().apiserver_pid(), Signal::STOP),
            Act::ApiServerReturns(Absence::Frozen) => signal(self.plane().apiserver_pid(), Signal::CONT),
            Act::Target(passage) => self.way.set(passage).await,
        }
    }

    fn service(&mut self, victim: Victim) -> &mut Service {
        match (victim, &mut self.standby) {
            (Victim::Provider, _) => &mut self.scene.provider.service,
            (Victim::Manager(1), Some(standby)) => &mut standby.service,
            (Victim::Manager(_), _) => &mut self.scene.manager.service,
        }
    }

    fn plane(&mut self) -> &mut ControlPlane {
        Arc::get_mut(&mut self.scene.plane).expect("only this scene is on it")
    }

    /// What the user does. It is wanted from the moment on at which it is asked for, also where the answer takes its time.
    async fn order(&mut self, act: Act) {
        let (wish, body) = match act {
            Act::Scale(size) => {
                self.size = size;
                (Wish::Size(size), json!({ "spec": { "replicas": size } }))
            }
            _ => {
                let note = self.templates.to_string();
                self.templates += 1;
                let template = json!({ "metadata": { "annotations": { NOTE: note } } });
                (Wish::Template(note), json!({ "spec": { "template": template } }))
            }
        };
        self.wishes.push((Timestamp::now(), wish));
        let (params, patch) = (PatchParams::default(), Patch::Merge(body));
        self.scene
            .until("the order is taken", Duration::from_secs(60), async |scene: &Scene| {
                let taken = scene
                    .api(Kind::Deployment)
                    .patch(&scene.namespace, &params, &patch)
                    .await;
                taken.map(drop).map_err(|error| error.to_string())
            })
            .await;
    }

    /// Waits until exactly the machines of the last template are there.
    async fn come_to_rest(&mut self, limit: Duration) {
        let size = self.size as usize;
        let note = (self.templates - 1).to_string();
        self.scene
            .until(
                &format!("{size} machines of template {note}"),
                limit,
                async |scene: &Scene| {
                    let sight = scene.look().await?;
                    laws::settled(&sight, size)?;
                    let is_old = |machine: &&Value| machine["metadata"]["annotations"][NOTE] != *note.as_str();
                    let old: Vec<&str> = sight.machines.iter().filter(is_old).map(laws::name).collect();
                    match old.is_empty() {
                        true => Ok(()),
                        false => Err(format!("of other templates: {old:?}")),
                    }
                },
            )
            .await;
        self.wishes.push((Timestamp::now(), Wish::Settled));
    }

    /// What the cloud's journal must show.
    async fn judge(&self) -> Vec<Entry> {
        let journal = self.scene.journal().await.unwrap();
        self.must(laws::one_vm_a_machine(&journal));
        self.must(match (laws::vms_made(&journal), uids(&journal).len()) {
            (vms, machines) if vms == machines => Ok(()),
            (vms, machines) => Err(format!("{vms} VMs were made for {machines} machines")),
        });
        let notes = self.notes().await;
        let note = |machine: &str| notes.get(machine.rsplit_once('-')?.0).cloned();
        self.must(match journal.iter().find(|entry| note(&entry.name).is_none()) {
            Some(entry) => Err(format!("machine {} is of no set: {notes:?}", entry.name)),
            None => Ok(()),
        });
        self.must(laws::none_gone_unasked(&journal, &self.wishes, note));
        journal
    }

    /// The notes of the sets' templates.
    async fn notes(&self) -> BTreeMap<String, String> {
        let sets = self.scene.list(Kind::Set).await.unwrap();
        let noted = |set: &Value| {
            let note = set["spec"]["template"]["metadata"]["annotations"][NOTE].as_str();
            (laws::name(set).to_owned(), note.unwrap_or_default().to_owned())
        };
        sets.iter().map(noted).collect()
    }

    fn must(&self, judged: Result<(), String>) {
        let (seed, logs) = (self.seed, self.scene.manager.service.log_tail());
        judged.unwrap_or_else(|why| panic!("MILLWRIGHT_SEED={seed}: {why}\n{logs}"));
    }
}

/// VMs that take their time and are not shown at once, and a manager that would lose patience while it sees nothing.
fn script(seed: u64, way: &Proxy, measure: &Measure) -> Script {
    let patience = format!("{}s", measure.patience.as_secs());
    let script = Script::new(&format!("chaos-{seed}"))
        .provider("--create-delay", "500ms")
        .provider("--join-delay", "500ms")
        .provider("--list-lag", "2s")
        .provider("--heartbeat", format!("{}s", measure.heartbeat.as_secs()))
        .manager("--machine-creation-timeout", patience.as_str())
        .manager("--machine-health-timeout", patience.as_str())
        .manager_sees_its_nodes_at(way.address());
    match measure.turmoil.managers {
        1 => script,
        _ => script
            .env("MILLWRIGHT_LEADER_ELECT", "true")
            .manager("--leader-elect-lease-duration", "6s")
            .manager("--leader-elect-renew-deadline", "4s")
            .manager("--leader-elect-retry-period", "1s"),
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), signal).expect("the process is ours");
}
