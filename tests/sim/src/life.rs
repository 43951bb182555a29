//! The lives of managers: each begins with nothing, runs the production wiring, and ends by a crash, in order, or by losing
//! its lease. Where there are two, each has its own slot: process, clock and way to the API; the lease decides between them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::client::ClientBuilder;
use millwright::config::{Config, Election, TargetCluster};
use millwright::driver::{Endpoint, Endpoints};
use millwright::env::{Env, Outside};
use millwright::kube::access::Access;
use millwright::kube::client::{Cluster, Role};
use millwright::run::{self, Given};
use millwright::telemetry::Metrics;
use millwright_core::settings::Settings;
use tokio_util::sync::CancellationToken;

use crate::choices::mix;
use crate::event::What;
use crate::process::Process;
use crate::provider::Port;
use crate::spin::{LOOKS, stop};
use crate::transport::Transport;
use crate::world::World;

/// The cluster's id at the cloud.
pub const CLUSTER: &str = "sim";
/// The namespace of everything.
pub const NAMESPACE: &str = "default";
/// How long a machine may take to join.
pub const CREATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(4);
/// How long a machine of a run may be ill.
const HEALTH_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// How long pods of a run may take to go.
pub const DRAIN_TIMEOUT: SignedDuration = SignedDuration::from_mins(3);
/// How long volumes of a run may take to be detached.
pub const DETACH_TIMEOUT: SignedDuration = SignedDuration::from_secs(100);
/// How often VMs of no Machine are looked for, in a run that has that.
pub const ORPHAN_PERIOD: SignedDuration = SignedDuration::from_secs(40);
/// How old they must be.
pub const ORPHAN_MIN_AGE: SignedDuration = SignedDuration::from_mins(3);
/// How long a machine of a run is preserved.
const PRESERVE_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);
/// How long an agent of a run may take to update its node.
const IN_PLACE_UPDATE_TIMEOUT: SignedDuration = SignedDuration::from_mins(3);
/// How long the pause after an exhausted resource is.
const EXHAUSTED: SignedDuration = SignedDuration::from_mins(2);
/// Seconds until a manager that died is started again.
const DOWNTIMES: [u64; 4] = [1, 0, 10, 60];
/// Seconds that a slow start takes.
const STARTS: [u64; 5] = [10, 3, 28, 70, 200];
/// Seconds by which a clock may be off for good.
const OFF: [i64; 6] = [1, -1, 5, -5, 20, -20];
/// Between a thaw and the end of a life that ended inside while it stood still: what stood at the process leaves first.
const LAST_WORD: Duration = Duration::from_millis(20);

/// What a manager gets from outside of itself.
struct ManagerOutside {
    world: Arc<World>,
    skew: Mutex<SignedDuration>,
    last: Mutex<Timestamp>,
    chances: Mutex<u64>,
}

impl Outside for ManagerOutside {
    /// Never the same time twice, as a real clock.
    fn now(&self) -> Timestamp {
        let skew = *self.skew.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.world.time.wall().checked_add(skew).unwrap_or(Timestamp::MAX);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let step = SignedDuration::from_nanos(1);
        *last = if told.as_millisecond() == last.as_millisecond() {
            last.checked_add(step).unwrap_or(told)
        } else {
            told
        };
        let now = *last;
        drop(last);
        let looks = u64::try_from(now.duration_since(told).as_nanos()).unwrap_or(0);
        if stop(looks, LOOKS) {
            self.world
                .spins(&format!("a manager looked at its clock {looks} times"));
        }
        now
    }

    fn chance(&self) -> u64 {
        let mut chances = self.chances.lock().unwrap_or_else(PoisonError::into_inner);
        *chances = chances.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(*chances)
    }
}

/// Where one manager's process runs, whichever life it is in.
struct Slot {
    outside: Arc<ManagerOutside>,
    /// How wrong its clock always is.
    drift: SignedDuration,
    current: Mutex<(Arc<Process>, CancellationToken)>,
}

impl Slot {
    fn new(world: &Arc<World>) -> Self {
        let mut drift = SignedDuration::ZERO;
        let chance = world.choose("chance", 1 << 16);
        if world.strikes("F27") {
            drift = SignedDuration::from_secs(world.pick("drift", &OFF));
        }
        let outside = Arc::new(ManagerOutside {
            world: Arc::clone(world),
            skew: Mutex::new(drift),
            last: Mutex::new(Timestamp::MIN),
            chances: Mutex::new(u64::from(chance)),
        });
        Self {
            outside,
            drift,
            current: Mutex::new((Arc::new(Process::new(0)), CancellationToken::new())),
        }
    }

    fn current(&self) -> MutexGuard<'_, (Arc<Process>, CancellationToken)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The processes of managers.
pub struct Lives {
    world: Arc<World>,
    port: Arc<Port>,
    slots: Vec<Slot>,
    started: AtomicU32,
    is_elected: bool,
    /// How often managers look for VMs of no Machine; zero: never.
    orphan_period: SignedDuration,
    /// The farthest that a wall clock was set back in this run.
    set_back: Mutex<SignedDuration>,
}

impl Lives {
    /// Managers that were never started: one, or two of which the lease makes one the leader.
    /// Where they look, it is for VMs of no Machine.
    pub fn new(world: Arc<World>, port: Arc<Port>, is_pair: bool, looks: bool) -> Arc<Self> {
        let is_elected = world.choose("election", 4) == 1;
        let needs_lease = world.enter().enabled.has("F54") || world.enter().enabled.has("F55");
        let is_elected = world.hooks.elects.unwrap_or(is_elected || needs_lease);
        let is_pair = world.strikes("F3") || is_pair;
        let count = if is_pair { 2 } else { 1 };
        let slots: Vec<Slot> = (0..count).map(|_| Slot::new(&world)).collect();
        Arc::new(Self {
            world,
            port,
            slots,
            started: AtomicU32::new(0),
            is_elected: is_elected || is_pair,
            orphan_period: if looks { ORPHAN_PERIOD } else { SignedDuration::ZERO },
            set_back: Mutex::new(SignedDuration::ZERO),
        })
    }

    /// Tells of what holds from the beginning on.
    pub fn tell(&self) {
        if self.slots.len() > 1 {
            let about = "a second manager stands for the lease".to_owned();
            self.world.tell(What::Fault { name: "F3", about });
        }
        for (number, slot) in self.slots.iter().enumerate().filter(|(_, slot)| !slot.drift.is_zero()) {
            let about = format!("the clock at slot {number} is {} s off", slot.drift.as_secs());
            self.world.tell(What::Fault { name: "F27", about });
        }
    }

    /// Whether managers elect a leader.
    pub fn elects(&self) -> bool {
        self.is_elected
    }

    /// Lives again and again, at all slots.
    pub async fn run(self: Arc<Self>) {
        join_all(self.slots.iter().map(|slot| self.sit(slot))).await;
    }

    async fn sit(&self, slot: &Slot) {
        loop {
            let incarnation = self.started.fetch_add(1, Ordering::Relaxed) + 1;
            let process = Arc::new(Process::new(incarnation));
            let stop = CancellationToken::new();
            *slot.current() = (Arc::clone(&process), stop.clone());
            self.world.tell(What::Start { incarnation });
            if self.world.strikes("F5") {
                let seconds = self.world.pick("start-seconds", &STARTS);
                let about = format!("manager {incarnation} needs {seconds} s to start");
                self.world.tell(What::Fault { name: "F5", about });
                process.freeze(Duration::from_secs(seconds));
            }
            let config = self.config(incarnation);
            let life = async {
                let end = self.life(&config, &slot.outside, &process, stop).await;
                // Inside it ended while it stood still: it does so as soon as it goes on.
                if process.frozen_until().is_some() {
                    process.thawed().await;
                    tokio::time::sleep(LAST_WORD).await;
                }
                end
            };
            let how = tokio::select! {
                biased;
                () = process.closed() => "crash".to_owned(),
                end = life => match end {
                    Ok(end) => format!("{end:?}"),
                    Err(error) => {
                        self.world.broken("no-panic", format!("{error:#}"));
                        format!("{error:#}")
                    }
                },
            };
            // Nothing of it may act on: tasks that the manager detached are still there.
            process.close();
            self.world.tell(What::End { incarnation, how });
            let downtime = self.world.pick("downtime", &DOWNTIMES);
            tokio::time::sleep(Duration::from_secs(downtime) + Duration::from_millis(1)).await;
        }
    }

    /// One of the slots.
    fn any(&self) -> &Slot {
        let count = u32::try_from(self.slots.len()).unwrap_or(1);
        let nth = if count > 1 { self.world.choose("slot", count) } else { 0 };
        self.slots
            .get(nth as usize)
            .expect("a choice is below the number it is made of")
    }

    /// Kills the current life at one of the slots.
    pub fn kill(&self) {
        self.any().current().0.close();
    }

    /// Asks the current life at one of the slots to end.
    pub fn stop(&self) {
        self.any().current().1.cancel();
    }

    /// Sets the wall clock of one of the slots wrong by this much.
    pub fn set_skew(&self, skew: SignedDuration) {
        let slot = self.any();
        *slot.outside.skew.lock().unwrap_or_else(PoisonError::into_inner) = slot.drift + skew;
        let mut set_back = self.set_back.lock().unwrap_or_else(PoisonError::into_inner);
        *set_back = (*set_back).max(-skew);
    }

    /// Sets all wall clocks as right as they ever are.
    pub fn end_skew(&self) {
        for slot in &self.slots {
            *slot.outside.skew.lock().unwrap_or_else(PoisonError::into_inner) = slot.drift;
        }
    }

    /// How long a machine of this run may take to be given up: it is not created in time, then ill for as long as it may, then preserved, then made up
    /// for only after the pause that an exhausted resource costs. A run on other settings has another bound. A drain ends by the
    /// manager's clock, which follows one that was set back and is right again slowly.
    pub fn patience(&self) -> Duration {
        let settings = settings();
        let set_back = *self.set_back.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = settings.creation_timeout
            + HEALTH_TIMEOUT
            + PRESERVE_TIMEOUT
            + IN_PLACE_UPDATE_TIMEOUT
            + DRAIN_TIMEOUT
            + settings.resource_exhausted_retry
            + set_back;
        Duration::try_from(waits).unwrap_or_default()
    }

    fn config(&self, incarnation: u32) -> Config {
        Config {
            control: Access::InCluster,
            target: TargetCluster::SameAsControl,
            namespace: NAMESPACE.to_owned(),
            settings: Settings {
                orphan_period: self.orphan_period,
                ..settings()
            },
            drivers: match &self.world.sockets {
                Some(sockets) => Endpoints::Directory(sockets.directory().to_owned()),
                None => Endpoints::listed([Endpoint::Unix("/sim/virtual.sock".to_owned())]),
            },
            driver_uids: Vec::new(),
            driver_tls: None,
            workers: 8,
            kube_api_qps: 0.0,
            kube_api_burst: 0,
            bootstrap_groups: Vec::new(),
            election: self.is_elected.then(|| Election {
                lease_name: "millwright".to_owned(),
                identity: format!("manager-{incarnation}"),
                terms: self.world.hooks.terms,
            }),
            metrics_addrs: Vec::new(),
        }
    }

    async fn life(
        &self,
        config: &Config,
        outside: &Arc<ManagerOutside>,
        process: &Arc<Process>,
        stop: CancellationToken,
    ) -> anyhow::Result<run::End> {
        let metrics = Metrics::default();
        let (leads, leadership) = run::election(config);
        let transport = Transport::new(Arc::clone(&self.world), Arc::clone(process));
        let policy = run::policy(config, Role::Control, &metrics, &leadership);
        let control = Cluster::over(ClientBuilder::new(transport, NAMESPACE), policy);
        // A client of its own for the target cluster only where that can be away: in the order of requests it makes a difference.
        let target = match self.world.enter().enabled.has("F57") {
            true => {
                let transport = Transport::to_target(Arc::clone(&self.world), Arc::clone(process));
                let policy = run::policy(config, Role::Target, &metrics, &leadership);
                Cluster::over(ClientBuilder::new(transport, NAMESPACE), policy)
            }
            false => control.clone(),
        };
        let given = Given {
            predecessor: None,
            env: Env::within(Arc::clone(outside) as Arc<dyn Outside>, self.world.hooks.planners),
            target: Some(target),
            control,
            leads,
            leadership,
            connect: self.port.connect(process),
            metrics,
            ports: Vec::new(),
            stop,
        };
        let beside = async {
            (self.world.hooks.beside)(Arc::clone(&self.world), Arc::clone(process)).await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            end = run::manage(config, given) => end,
            end = beside => end,
        }
    }
}

/// What the managers of a run go by.
fn settings() -> Settings {
    let mut settings = Settings::new(CLUSTER);
    settings.creation_timeout = CREATION_TIMEOUT;
    settings.resource_exhausted_retry = EXHAUSTED;
    settings.health_timeout = HEALTH_TIMEOUT;
    settings.drain_timeout = DRAIN_TIMEOUT;
    settings.detach_timeout = DETACH_TIMEOUT;
    settings.orphan_min_age = ORPHAN_MIN_AGE;
    settings.preserve_timeout = PRESERVE_TIMEOUT;
    settings.in_place_update_timeout = IN_PLACE_UPDATE_TIMEOUT;
    settings
}
