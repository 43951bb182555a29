//! The lives of one manager: each begins with nothing, runs the production wiring, and ends by a crash, in order, or by losing
//! its lease.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::client::ClientBuilder;
use millwright::config::{Config, Election, TargetCluster};
use millwright::driver::{Endpoint, Endpoints};
use millwright::env::{Env, Outside};
use millwright::kube::client::{Access, Cluster, Role};
use millwright::run::{self, Given};
use millwright::telemetry::Metrics;
use millwright_core::settings::Settings;
use tokio_util::sync::CancellationToken;

use crate::choices::mix;
use crate::door::Door;
use crate::event::What;
use crate::gate::Gate;
use crate::provider::Port;
use crate::world::{Time, World};

/// The cluster's id at the cloud.
pub const CLUSTER: &str = "sim";
/// The namespace of everything.
pub const NAMESPACE: &str = "default";
/// How long a machine may take to join.
pub const CREATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(4);
/// How long the pause after an exhausted resource is.
const EXHAUSTED: SignedDuration = SignedDuration::from_mins(2);
/// Seconds until a manager that died is started again.
const DOWNTIMES: [u64; 4] = [1, 0, 10, 60];

/// What a manager gets from outside of itself.
struct Sky {
    time: Time,
    skew: Mutex<SignedDuration>,
    last: Mutex<Timestamp>,
    chances: Mutex<u64>,
}

impl Outside for Sky {
    /// Never the same time twice, as a real clock.
    fn now(&self) -> Timestamp {
        let skew = *self.skew.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.time.wall().checked_add(skew).unwrap_or(Timestamp::MAX);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let step = SignedDuration::from_nanos(1);
        *last = if told.as_millisecond() == last.as_millisecond() {
            last.checked_add(step).unwrap_or(told)
        } else {
            told
        };
        *last
    }

    fn chance(&self) -> u64 {
        let mut chances = self.chances.lock().unwrap_or_else(PoisonError::into_inner);
        *chances = chances.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(*chances)
    }
}

/// The manager's process, whichever life it is in.
pub struct Lives {
    world: Arc<World>,
    port: Arc<Port>,
    sky: Arc<Sky>,
    current: Mutex<(Arc<Gate>, CancellationToken)>,
    is_elected: bool,
}

impl Lives {
    /// A manager that was never started.
    pub fn new(world: Arc<World>, port: Arc<Port>) -> Arc<Self> {
        let sky = Arc::new(Sky {
            time: world.time,
            skew: Mutex::new(SignedDuration::ZERO),
            last: Mutex::new(Timestamp::MIN),
            chances: Mutex::new(u64::from(world.choose("chance", 1 << 16))),
        });
        let is_elected = world.choose("election", 4) == 1;
        let is_elected = world.hooks.elects.unwrap_or(is_elected);
        Arc::new(Self {
            world,
            port,
            sky,
            current: Mutex::new((Arc::new(Gate::new(0)), CancellationToken::new())),
            is_elected,
        })
    }

    /// Whether managers elect a leader.
    pub fn elects(&self) -> bool {
        self.is_elected
    }

    /// Lives again and again.
    pub async fn run(self: Arc<Self>) {
        for incarnation in 1.. {
            let gate = Arc::new(Gate::new(incarnation));
            let stop = CancellationToken::new();
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = (Arc::clone(&gate), stop.clone());
            self.world.tell(What::Start { incarnation });
            let config = self.config(incarnation);
            let life = self.life(&config, &gate, stop);
            let how = tokio::select! {
                biased;
                () = gate.closed() => "crash".to_owned(),
                end = life => match end {
                    Ok(end) => format!("{end:?}"),
                    Err(error) => {
                        self.world.broken("no-panic", format!("{error:#}"));
                        format!("{error:#}")
                    }
                },
            };
            // Nothing of it may act on: tasks that the manager detached are still there.
            gate.close();
            self.world.tell(What::End { incarnation, how });
            let downtime = self.world.pick("downtime", &DOWNTIMES);
            tokio::time::sleep(Duration::from_secs(downtime) + Duration::from_millis(1)).await;
        }
    }

    /// Kills the current life.
    pub fn kill(&self) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).0.close();
    }

    /// Asks the current life to end.
    pub fn stop(&self) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).1.cancel();
    }

    /// Sets the manager's wall clock wrong by this much.
    pub fn set_skew(&self, skew: SignedDuration) {
        *self.sky.skew.lock().unwrap_or_else(PoisonError::into_inner) = skew;
    }

    fn config(&self, incarnation: u32) -> Config {
        let mut settings = Settings::new(CLUSTER);
        settings.creation_timeout = CREATION_TIMEOUT;
        settings.resource_exhausted_retry = EXHAUSTED;
        Config {
            control: Access::InCluster,
            target: TargetCluster::SameAsControl,
            namespace: NAMESPACE.to_owned(),
            settings,
            drivers: Endpoints::Listed(vec![Endpoint::Unix("/sim/virtual.sock".to_owned())]),
            workers: 8,
            kube_api_qps: 0.0,
            kube_api_burst: 0,
            bootstrap_groups: Vec::new(),
            election: self.is_elected.then(|| Election {
                lease_name: "millwright".to_owned(),
                identity: format!("manager-{incarnation}"),
                terms: self.world.hooks.terms,
            }),
            metrics_addr: ([127, 0, 0, 1], 0).into(),
        }
    }

    async fn life(&self, config: &Config, gate: &Arc<Gate>, stop: CancellationToken) -> anyhow::Result<run::End> {
        let metrics = Metrics::default();
        let (leads, leadership) = run::election(config);
        let door = Door::new(Arc::clone(&self.world), Arc::clone(gate));
        let policy = run::policy(config, Role::Control, &metrics, &leadership);
        let control = Cluster::over(ClientBuilder::new(door, NAMESPACE), policy);
        let given = Given {
            env: Env::within(Arc::clone(&self.sky) as Arc<dyn Outside>, self.world.hooks.planners),
            target: Some(control.clone()),
            control,
            leads,
            leadership,
            connect: self.port.connect(gate),
            metrics,
            port: None,
            stop,
        };
        run::manage(config, given).await
    }
}
