//! Harm that comes by itself now and then, and not to a call: of the kinds that a run enables, until faults end.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use millwright_provider_virtual::cloud::VmId;
use millwright_sandbox::api::Answer;
use serde_json::{Value, json};

use crate::accidents::{self, Debts};
use crate::account::Account;
use crate::event::{Actor, What};
use crate::life::Lives;
use crate::outage;
use crate::provider::Port;
use crate::workload::body::ZONE;
use crate::world::World;

/// Where managers keep the lease for which they stand.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/millwright";

/// A kind of harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Kill,
    Stop,
    ApiAway,
    ClockJumps,
    DriverReplaced,
    VmDies,
    Shortage,
    Throttle,
    Accident,
    VmTaken,
    Replaced,
    LeaseDeleted,
    LeaseEmptied,
    StaleLeader,
    TargetAway,
    WriteRefused,
    ClockAcrossRestart,
    SocketsMove,
}

/// All of them, in the order in which they are drawn: a new one comes last.
const ALL: [Harm; 18] = [
    Harm::Kill,
    Harm::Stop,
    Harm::ApiAway,
    Harm::ClockJumps,
    Harm::DriverReplaced,
    Harm::VmDies,
    Harm::Shortage,
    Harm::Throttle,
    Harm::Accident,
    Harm::VmTaken,
    Harm::Replaced,
    Harm::LeaseDeleted,
    Harm::LeaseEmptied,
    Harm::StaleLeader,
    Harm::TargetAway,
    Harm::WriteRefused,
    Harm::ClockAcrossRestart,
    Harm::SocketsMove,
];

impl Harm {
    /// The fault that it stands for.
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "F1r",
            Self::Stop => "F4",
            Self::ApiAway => "F16",
            Self::ClockJumps => "F25",
            Self::DriverReplaced => "F33",
            Self::VmDies => "F41",
            Self::Shortage => "F42",
            Self::Throttle => "F43",
            Self::Accident => "F48",
            Self::VmTaken => "F50",
            Self::Replaced => "F51",
            Self::LeaseDeleted => "F54",
            Self::LeaseEmptied => "F55",
            Self::StaleLeader => "F56",
            Self::TargetAway => "F57",
            Self::WriteRefused => "F58",
            Self::ClockAcrossRestart => "F59",
            Self::SocketsMove => "F60",
        }
    }
}

/// Whom harm is done to.
pub struct Chaos {
    /// Where.
    pub world: Arc<World>,
    /// The managers.
    pub lives: Arc<Lives>,
    /// The driver's process.
    pub port: Arc<Port>,
    /// What the human owes for his accidents.
    pub debts: Arc<Debts>,
}

impl Chaos {
    /// Does harm now and then, until faults end.
    pub async fn run(self) {
        let world = &self.world;
        if world.strikes("F57") {
            outage::lose_target(world);
        }
        let is_enabled = |harm: &Harm| world.enter().enabled.has(harm.name());
        let kinds: Vec<Harm> = ALL.into_iter().filter(is_enabled).collect();
        if kinds.is_empty() {
            return;
        }
        while !world.enter().is_quiet {
            let pause = world.pick("chaos-pause", &[3000, 100, 700, 1500, 6000, 15_000, 40_000]);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if world.enter().is_quiet {
                break;
            }
            let kind = world.pick("chaos", &kinds);
            self.harm(kind).await;
        }
        self.lives.end_skew();
    }

    async fn harm(&self, harm: Harm) {
        let Self {
            world,
            lives,
            port,
            debts,
        } = self;
        let name = harm.name();
        let tell = |about: String| world.tell(What::Fault { name, about });
        match harm {
            Harm::Kill => {
                tell("the manager dies".to_owned());
                lives.kill();
            }
            Harm::Stop => {
                tell("the manager is asked to end".to_owned());
                lives.stop();
            }
            Harm::ApiAway => world.storm(Duration::from_secs(world.pick("storm", &[1, 5, 20, 45, 130]))),
            Harm::ClockJumps => {
                let seconds = world.pick("skew", &[0, 30, -30, 300, -300, 3600, -3600]);
                tell(format!("the manager's wall clock is {seconds} s off"));
                world.tell(What::ClockSet);
                lives.set_skew(SignedDuration::from_secs(seconds));
            }
            Harm::DriverReplaced => {
                tell("the driver's process is replaced".to_owned());
                port.restart();
            }
            Harm::VmDies | Harm::VmTaken => fell(world, harm).await,
            Harm::Shortage => run_short(world, &port.account),
            Harm::Throttle => throttle(world, &port.account),
            Harm::Accident => accidents::accidents(world, debts),
            Harm::Replaced => accidents::replace(world),
            Harm::LeaseDeleted => take_lease(world, name, "DELETE", &Value::Null),
            Harm::LeaseEmptied => take_lease(world, name, "PATCH", &json!({ "spec": { "holderIdentity": null } })),
            Harm::StaleLeader => {
                let seconds = world.pick("stale-leader", &[0, 20, 90, 400]);
                tell(format!("the driver speaks of a newer leader, once or for {seconds} s"));
                port.account.depose(Duration::from_secs(seconds));
            }
            Harm::TargetAway => outage::lose_target(world),
            Harm::WriteRefused => outage::refuse(world),
            Harm::ClockAcrossRestart => self.set_clock_and_restart(name).await,
            Harm::SocketsMove => port.move_socket(),
        }
    }

    /// The wall clock is set by an hour, the manager works on for a while, and is started anew.
    async fn set_clock_and_restart(&self, name: &'static str) {
        let Self { world, lives, .. } = self;
        let seconds = world.pick("clock-set", &[3600, -3600, 0]);
        let about = format!("the manager's wall clock is set to {seconds} s off, and then it is started anew");
        world.tell(What::Fault { name, about });
        world.tell(What::ClockSet);
        lives.set_skew(SignedDuration::from_secs(seconds));
        let pause = world.pick("clock-restart", &[20, 2, 60, 150]);
        tokio::time::sleep(Duration::from_secs(pause)).await;
        lives.kill();
    }
}

/// Somebody deletes the lease, or takes its holder out of it.
fn take_lease(world: &World, name: &'static str, method: &str, body: &Value) {
    let about = format!("{method} of the lease {body}");
    world.tell(What::Fault { name, about });
    // There may be none yet.
    match world.order(Actor::Human, method, LEASE, body) {
        Answer::Object { code: 200 | 404, .. } => {}
        other => world.broken("simulator", format!("{method} of the lease: {other:?}")),
    }
}

fn throttle(world: &World, account: &Account) {
    let lasts = world.pick("throttle", &[10, 30, 90]);
    let every = world.pick("throttle-every", &[1, 5, 20]);
    let about = format!("one call in {every} s is let through, for {lasts} s");
    world.tell(What::Fault { name: "F43", about });
    let of = Duration::from_secs;
    account.throttle(of(every), of(lasts));
}

/// A VM is powered off or taken away, if there is any.
async fn fell(world: &World, harm: Harm) {
    let vms = world.cloud.everything();
    if vms.is_empty() {
        return;
    }
    let vm = world.pick("victim", &vms.iter().map(|vm| vm.id.as_str()).collect::<Vec<_>>());
    let is_stopped = harm == Harm::VmDies && world.choose("vm-dies", 2) == 0;
    let how = if is_stopped { "powered off" } else { "taken away" };
    let (name, about) = (harm.name(), format!("VM {vm} is {how}"));
    world.tell(What::Fault { name, about });
    let id = VmId::new(vm);
    // It may be gone by itself.
    if is_stopped {
        world.cloud.stop(&id).await.ok();
    } else {
        world.cloud.remove(&id).await.ok();
    }
}

/// No more VMs of a size in a zone, or none at all, for a while.
fn run_short(world: &World, account: &Account) {
    let lasts = world.pick("shortage", &[10, 45, 150, 400]);
    let what = world.pick("short-of", &["", "small", "large"]);
    let lasting = Duration::from_secs(lasts);
    let about = if what.is_empty() {
        account.fill(lasting);
        format!("the account is full for {lasts} s")
    } else {
        account.run_short(ZONE, what, lasting);
        format!("{ZONE} is out of {what} for {lasts} s")
    };
    world.tell(What::Fault { name: "F42", about });
}
