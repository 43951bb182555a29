//! What ails the cloud and the account for a while, beside its VMs: no stock, few calls, lookups that lag, creations that
//! come to nothing. Outlives every process of the driver's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millwright_provider_sdk::{CreateMachine, DriverError, Machine, MachineKey, MachineState, MachineStatus, Reason};
use millwright_provider_virtual::cloud::{Event as CloudEvent, Happening, Vm};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::call_fault::CallFault;
use crate::event::What;
use crate::world::World;

/// Seconds that lookups show what is gone.
const AFTERGLOWS: [u64; 4] = [0, 3, 20, 60];

/// The account.
pub struct Account {
    world: Arc<World>,
    happenings: Mutex<UnboundedReceiver<Happening>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until when a size is out of stock in a zone.
    shortages: BTreeMap<(String, String), Duration>,
    /// Until when no VM more is allowed.
    full_until: Duration,
    throttle: Option<Throttle>,
    /// Whether the next call hears of a newer leader, and until when all others do.
    deposes: Option<Duration>,
    /// VMs that are gone, and until when lookups show them.
    ghosts: BTreeMap<String, (Arc<Vm>, Duration)>,
    /// Creations that fail after they were accepted, and from when on that is told.
    failing: BTreeMap<String, Duration>,
    /// Blows to calls on their way, by method and uid.
    orders: BTreeMap<(String, String), CallFault>,
}

/// One call in so much time is let through.
struct Throttle {
    every: Duration,
    next: Duration,
    until: Duration,
}

impl Account {
    /// An account without worries.
    pub fn new(world: Arc<World>) -> Arc<Self> {
        let (_, happenings) = world.cloud.follow();
        Arc::new(Self {
            world,
            happenings: Mutex::new(happenings),
            state: Mutex::default(),
        })
    }

    fn enter(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the fault of a call on its way to the driver.
    pub fn order(&self, method: &str, uid: &str, call_fault: CallFault) {
        let call = (method.to_owned(), uid.to_owned());
        self.enter().orders.insert(call, call_fault);
    }

    /// The fault of this call, which is used up.
    pub fn ordered(&self, method: &str, uid: &str) -> Option<CallFault> {
        let call = (method.to_owned(), uid.to_owned());
        self.enter().orders.remove(&call)
    }

    /// A size is out of stock in a zone for a while.
    pub fn run_short(&self, zone: &str, size: &str, lasts: Duration) {
        let until = self.world.time.passed() + lasts;
        let place = (zone.to_owned(), size.to_owned());
        self.enter().shortages.insert(place, until);
    }

    /// No VM more is allowed for a while.
    pub fn fill(&self, lasts: Duration) {
        self.enter().full_until = self.world.time.passed() + lasts;
    }

    /// Few calls are let through for a while.
    pub fn throttle(&self, every: Duration, lasts: Duration) {
        let now = self.world.time.passed();
        let until = now + lasts;
        self.enter().throttle = Some(Throttle {
            every,
            next: now,
            until,
        });
    }

    /// The driver speaks of a newer leader that there is not, once at least.
    pub fn depose(&self, lasts: Duration) {
        self.enter().deposes = Some(self.world.time.passed() + lasts);
    }

    /// What the driver says of leaders.
    pub fn heed(&self, method: &str) -> Result<(), DriverError> {
        let (now, is_quiet) = (self.world.time.passed(), self.world.enter().is_quiet);
        let Some(until) = self.enter().deposes.take_if(|_| !is_quiet) else {
            return Ok(());
        };
        if now < until {
            self.enter().deposes = Some(until);
        }
        let about = format!("{method} is refused in the name of a leader that there is not");
        self.world.tell(What::Fault { name: "F56", about });
        self.world.tell(What::FalseLeader);
        Err(DriverError::new(Reason::StaleLeader, "epoch 99 has been seen"))
    }

    /// Whether the account has calls left.
    pub fn meter(&self, method: &str) -> Result<(), DriverError> {
        let (now, is_quiet) = (self.world.time.passed(), self.world.enter().is_quiet);
        let wait = {
            let mut state = self.enter();
            let Some(throttle) = state.throttle.as_mut().filter(|it| !is_quiet && now < it.until) else {
                return Ok(());
            };
            if throttle.next <= now {
                throttle.next = now + throttle.every;
                return Ok(());
            }
            throttle.next - now
        };
        let about = format!("{method} is throttled for {} ms", wait.as_millis());
        self.world.tell(What::Fault { name: "F43", about });
        Err(throttled(wait))
    }

    /// Whether there is a place for a VM.
    pub fn admit(&self, request: &CreateMachine) -> Result<(), DriverError> {
        let (now, is_quiet) = (self.world.time.passed(), self.world.enter().is_quiet);
        if is_quiet {
            return Ok(());
        }
        let (zone, size) = place(request);
        let error = {
            let state = self.enter();
            let is_short = state
                .shortages
                .get(&(zone.clone(), size.clone()))
                .is_some_and(|until| now < *until);
            match (is_short, now < state.full_until) {
                (true, _) => no_stock(request),
                (false, true) => {
                    let quota = "instances".to_owned();
                    DriverError::new(
                        Reason::QuotaExceeded { quota },
                        "the account has all the VMs that it may have",
                    )
                }
                (false, false) => return Ok(()),
            }
        };
        let about = format!("CreateMachine of {}: {error}", request.key.name);
        self.world.tell(What::Fault { name: "F42", about });
        Err(error)
    }

    /// A creation that is accepted now will be told as failed a while later.
    pub fn fail_later(&self, uid: &str) {
        let pause = self.world.pick("fails-after", &[0, 2, 15, 90]);
        let from = self.world.time.passed() + Duration::from_secs(pause);
        self.enter().failing.insert(uid.to_owned(), from);
    }

    /// What lookups say of a creation that fails after it was accepted: that it is on its way, and then that it failed.
    pub fn failing(&self, mut status: MachineStatus) -> MachineStatus {
        let from = self.enter().failing.get(&status.machine.key.uid).copied();
        let Some(from) = from.filter(|_| status.machine.state == MachineState::Creating) else {
            return status;
        };
        if self.world.time.passed() < from {
            return bare(status, Some(Duration::from_secs(1)));
        }
        status.machine.state = MachineState::Failed;
        status.machine.state_message = "the image does not boot".to_owned();
        status.poll_after = None;
        status
    }

    /// The VMs of a cluster that are gone, as a listing from before shows them.
    pub fn ghosts(&self, cluster: &str) -> Vec<Machine> {
        self.mourn();
        let state = self.enter();
        let of_it = state.ghosts.values().filter(|(vm, _)| vm.owner.cluster == cluster);
        of_it.map(|(vm, _)| shown(vm)).collect()
    }

    /// Notes the VMs that went meanwhile, for lookups that lag behind.
    fn mourn(&self) {
        let is_quiet = {
            let world = self.world.enter();
            if !world.enabled.has("F36") && !world.enabled.has("F32") {
                return;
            }
            world.is_quiet
        };
        let mut happenings = self.happenings.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(happening) = happenings.try_recv() {
            if happening.event != CloudEvent::Removed || is_quiet {
                continue;
            }
            // Only a listing shows it where lookups do not lag.
            let lags = self.world.enter().enabled.has("F36");
            let afterglow = match lags {
                true => self.world.pick("afterglow", &AFTERGLOWS),
                false => 0,
            };
            let lasts = Duration::from_secs(afterglow);
            let until = self.world.time.passed() + lasts;
            let vm = happening.vm;
            self.enter().ghosts.insert(vm.owner.uid.clone(), (vm, until));
        }
    }

    /// The VM of this Machine as lookups that lag still show it.
    pub fn ghost(&self, key: &MachineKey) -> Option<MachineStatus> {
        self.mourn();
        let now = self.world.time.passed();
        let found = self
            .enter()
            .ghosts
            .get(&key.uid)
            .filter(|(_, until)| now < *until)
            .cloned();
        let (vm, until) = found?;
        let left = (until - now).as_secs();
        let about = format!("lookup of {} shows the VM that is gone, for {left} s more", key.name);
        self.world.tell(What::Fault { name: "F36", about });
        Some(shown(&vm).into())
    }
}

/// A VM that is gone, as who has not noticed shows it.
fn shown(vm: &Vm) -> Machine {
    let key = MachineKey {
        cluster_id: vm.owner.cluster.clone(),
        namespace: vm.owner.namespace.clone(),
        name: vm.owner.name.clone(),
        uid: vm.owner.uid.clone(),
    };
    let mut machine = Machine::new(key, vm.provider_id(), MachineState::Running);
    machine.node_name = vm.node_name();
    machine
}

/// Where a VM is wanted, and what of.
fn place(request: &CreateMachine) -> (String, String) {
    let spec = &request.machine_class.provider_spec;
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("zone"), text("instanceType"))
}

/// The zone has none of the size.
pub fn no_stock(request: &CreateMachine) -> DriverError {
    let (zone, instance_type) = place(request);
    let text = format!("{zone} is out of {instance_type}");
    DriverError::new(Reason::CapacityUnavailable { zone, instance_type }, text)
}

/// The account has spent its calls.
pub fn throttled(wait: Duration) -> DriverError {
    DriverError::new(Reason::RateLimited, "too many calls of this account").retry_after(wait)
}

/// An answer with no more in it than must be: the VM was accepted, and that is all that is known.
pub fn bare(status: MachineStatus, poll_after: Option<Duration>) -> MachineStatus {
    let machine = Machine::new(status.machine.key, "", MachineState::Creating);
    let mut bare = MachineStatus::from(machine);
    bare.poll_after = poll_after;
    bare
}
