//! The manager on a stage: observe, plan, check the laws, carry out. Everything that the process alone knows is in
//! `world` and lost with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use millwright_core::api::{Machine, MachineDeployment, MachineSet, keys, meta};
use millwright_core::change::Change;
use millwright_core::class::{self, Readiness};
use millwright_core::driver::{Call, Drivers};
use millwright_core::ids::{DriverName, Name, NodeName, ProviderId, Uid};
use millwright_core::kinds::OwnedBy;
use millwright_core::ledger::{Answer, Calls};
use millwright_core::machine::outcome::Pacing;
use millwright_core::machine::{self, DriverView};
use millwright_core::plan::{self, Bearing, Stopped};
use millwright_core::queue::Verdict;
use millwright_core::set::Asked;
use millwright_core::settings::Settings;
use millwright_core::sight::Sight;
use millwright_core::wake::{Key, group_of};
use millwright_core::world::World;
use millwright_core::{deployment, narrate, set};
use millwright_laws as laws;

use crate::cloud::{self, Cloud};
use crate::etcd::{Etcd, Resource};
use crate::pods::Pods;
use crate::turns::Drawn;

/// Whether the driver can be asked.
#[derive(Clone, Debug, PartialEq)]
pub enum DriverNow {
    Ready,
    Away(String),
    /// No driver of that name.
    Missing,
}

/// A call that the driver has not answered.
#[derive(Clone, Debug)]
pub struct Flight {
    pub machine: Name,
    pub uid: Uid,
    /// The Machine as it was when the call began.
    pub seen: Machine,
    pub call: Call,
    /// The recipe that it was made with.
    pub digest: Option<String>,
    /// The id of the VM that the request names.
    pub hint: Option<ProviderId>,
    /// The uid that the VM bears, where it is another than the Machine's.
    pub tagged_uid: Option<Uid>,
    /// The process that made it is gone: nobody hears the answer.
    pub unheard: bool,
}

/// All that a story acts on: API server, provider, clock, and the planners between them.
pub struct Stage {
    pub etcd: Etcd,
    /// The API server does not get, or does not answer, what sets delete.
    pub loses_deletions: bool,
    /// Creations of Machines take effect, or not, and are not answered.
    pub loses_creations: bool,
    /// The API server refuses creations of Machines.
    pub refuses_creations: bool,
    /// How many it has refused.
    pub refused_creations: usize,
    /// The API server refuses creations of MachineSets.
    pub refuses_sets: bool,
    /// The API server lets nobody tell of an update in place, or of a deletion, on Nodes.
    pub refuses_conditions: bool,
    /// The API server lets nobody cordon a Node.
    pub refuses_cordons: bool,
    /// The API server refuses deletions of Machines.
    pub refuses_deletions: bool,
    /// Machines that the API server lets nobody write.
    pub unwritable: BTreeSet<Name>,
    /// The Lease is this manager's, whatever a driver says.
    pub holds_lease: bool,
    /// Since when this process leads and sees each side.
    pub sight: Sight,
    pub cloud: Cloud,
    pub world: World,
    pub settings: Settings,
    pub driver: DriverNow,
    /// Drivers beside it.
    pub others: BTreeSet<DriverName>,
    /// What a check of a class finds.
    pub checks: BTreeMap<Name, Readiness>,
    /// Bootstrap tokens in the target cluster, by Machine, and until when each lets a VM join.
    pub tokens: BTreeMap<Uid, Timestamp>,
    pub uptime: Duration,
    pub flights: Vec<Flight>,
    pub silent: bool,
    /// Pods on Nodes.
    pub pods: Pods,
    /// Steps that may still be carried out before the process dies.
    pub fuel: Option<usize>,
    /// What was decided, in words.
    pub told: Vec<String>,
    /// The order of turns, where it is not the queue's.
    pub drawn: Option<Drawn>,
    /// Who decides about sets.
    pub plan_set: fn(&set::Observed<'_>, Timestamp) -> set::Plan,
    /// Who decides about Machines.
    pub plan_machine: fn(&machine::Observed<'_>, Timestamp) -> machine::Plan,
    last: BTreeMap<Key, String>,
}

/// The process died.
#[derive(Debug, PartialEq, Eq)]
pub struct Crash;

impl Default for Stage {
    fn default() -> Self {
        let mut stage = Self {
            etcd: Etcd::default(),
            cloud: Cloud::default(),
            world: World::default(),
            settings: Settings::new("test"),
            loses_deletions: false,
            loses_creations: false,
            refuses_creations: false,
            refused_creations: 0,
            refuses_sets: false,
            refuses_conditions: false,
            refuses_cordons: false,
            refuses_deletions: false,
            unwritable: BTreeSet::new(),
            holds_lease: true,
            sight: Sight::CLEAR,
            driver: DriverNow::Ready,
            others: BTreeSet::new(),
            checks: BTreeMap::new(),
            tokens: BTreeMap::new(),
            uptime: Duration::ZERO,
            flights: Vec::new(),
            pods: Pods::default(),
            silent: false,
            fuel: None,
            told: Vec::new(),
            drawn: None,
            plan_set: set::plan,
            plan_machine: machine::plan,
            last: BTreeMap::new(),
        };
        stage.restart();
        stage
    }
}

impl Stage {
    /// The wall clock's start: a whole second, so that texts are the same in every run.
    pub fn began() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("it is a time")
    }

    pub fn now(&self) -> Timestamp {
        Self::began() + self.uptime
    }

    pub fn uptime_of(&self, at: Timestamp) -> Duration {
        at.duration_since(Self::began()).try_into().unwrap_or(Duration::ZERO)
    }

    /// A new process: it lists everything and knows nothing else. Calls under way go on, unheard.
    pub fn restart(&mut self) {
        self.world = World::default();
        let now = self.now();
        let seen_again = |side: Option<Timestamp>| side.map(|_| now);
        self.sight = Sight {
            lead_since: now,
            control_since: Some(now),
            target_since: seen_again(self.sight.target_since),
            driver_since: seen_again(self.sight.driver_since),
        };
        self.last.clear();
        if let Some(drawn) = &mut self.drawn {
            drawn.forget();
        }
        self.fuel = None;
        for flight in &mut self.flights {
            flight.unheard = true;
        }
        self.list::<millwright_core::api::MachineClass>();
        self.list::<k8s_openapi::api::core::v1::Node>();
        self.list::<millwright_core::api::MachineDeployment>();
        self.list::<MachineSet>();
        self.list::<Machine>();
    }

    fn list<K: Resource>(&mut self) {
        let objects: Vec<K> = K::table(&mut self.etcd).values().cloned().collect();
        self.world.observe(Change::<K>::Restarted, self.uptime);
        for object in objects {
            self.world.observe(Change::Listed(object), self.uptime);
        }
        self.world.observe(Change::<K>::Synced, self.uptime);
    }

    /// One look at one key.
    pub fn pass(&mut self, key: &Key) -> Result<Verdict, Crash> {
        let wake = match key {
            Key::Machine(name) => self.pass_machine(key, name)?,
            Key::Set(name) => return self.pass_set(key, name),
            Key::Deployment(name) => return self.pass_deployment(key, name),
            Key::Class(name) => self.pass_class(name)?,
            Key::Secret(_) => None,
            Key::Leftover(uid) => self.pass_leftover(uid),
        };
        Ok(self.done(wake))
    }

    fn done(&self, wake: Option<Timestamp>) -> Verdict {
        let wake = wake.map(|at| self.uptime_of(at));
        Verdict::Done { wake }
    }

    fn pass_machine(&mut self, key: &Key, name: &Name) -> Result<Option<Timestamp>, Crash> {
        let Some(machine) = self.world.machines.get(name).cloned() else {
            return Ok(None);
        };
        let now = self.now();
        let (plan, broken) = self.see_machine(&machine, |seen| {
            let plan = (self.plan_machine)(seen, now);
            let broken = laws::machine(seen, &plan, now);
            (plan, broken)
        });
        let text = narrate::plan(&plan, now);
        self.tell(key, &text, !plan.steps.is_empty());
        assert!(broken.is_empty(), "{key:?} breaks laws: {broken:?}\n{text}");
        for step in plan.steps {
            self.burn()?;
            let event = machine::life::event(&machine, &step, &plan.why, now);
            if !self.machine_step(&machine, step) {
                break;
            }
            if let Some(event) = event {
                self.told
                    .push(format!("Event on {name}: {} {}", event.reason, event.note));
            }
        }
        Ok(plan.wake)
    }

    /// Gathers what a Machine's plan may read, as the shell does.
    pub fn see_machine<T>(&self, machine: &Machine, look: impl FnOnce(&machine::Observed<'_>) -> T) -> T {
        let class_name = machine.class_name().map(Name::new);
        let class = class_name.and_then(|name| self.world.classes.get(&name));
        let was_asked = machine.creation_request().is_some();
        let known = was_asked || class.is_some_and(|class| self.world.ledger.driver_of(class).is_some());
        let driver = match (known, &self.driver) {
            (false, _) => DriverView::Unnamed,
            (true, DriverNow::Ready) => DriverView::Ready(&self.cloud.info),
            (true, DriverNow::Away(why)) => DriverView::Away { name: "virtual", why },
            (true, DriverNow::Missing) => DriverView::Missing { name: "virtual" },
        };
        let nothing = Calls::default();
        let uid = meta::identity(&machine.metadata).1;
        let asked = machine::view::Asked {
            world: &self.world,
            driver,
            calls: self.world.ledger.calls.get(&uid).unwrap_or(&nothing),
            sight: self.sight,
            settings: &self.settings,
        };
        machine::look(asked, machine, look)
    }

    /// Which drivers there are.
    pub fn drivers(&self) -> Drivers {
        let own = (self.driver != DriverNow::Missing).then(|| self.cloud.info.name.clone());
        Drivers {
            is_incomplete: own.is_none(),
            names: self.others.iter().cloned().chain(own).collect(),
        }
    }

    /// Whether a class can be checked, as the shell asks it of a driver.
    fn can_check(&self, class: &Name) -> bool {
        self.driver == DriverNow::Ready && self.world.classes.get(class).is_some()
    }

    fn pass_set(&mut self, key: &Key, name: &Name) -> Result<Verdict, Crash> {
        let set = self.world.sets.get(name).cloned();
        let Some(set) = set.filter(|set| group_of(&self.world, set) == *key) else {
            return Ok(Verdict::Forget);
        };
        let now = self.now();
        let (plan, broken) = self.ask(|asked| {
            set::look(asked, &set, |seen| {
                let plan = (self.plan_set)(seen, now);
                let broken = laws::set(seen, &plan, now);
                (plan, broken)
            })
        });
        let text = narrate::plan(&plan, now);
        self.tell(key, &text, !plan.steps.is_empty());
        assert!(broken.is_empty(), "{key:?} breaks laws: {broken:?}\n{text}");
        self.carry_out(plan, |stage, step| stage.set_step(&set, step))
    }

    /// The steps, as the shell takes them: after one that failed and stops the plan only the independent ones, and the key backs off.
    fn carry_out<S: plan::Step, W>(
        &mut self,
        plan: plan::Plan<S, W>,
        mut step: impl FnMut(&mut Self, S) -> Result<bool, Crash>,
    ) -> Result<Verdict, Crash> {
        let (mut has_failed, mut stopped) = (false, Stopped::default());
        for next in plan.steps {
            let (bearing, part) = (next.bearing(), next.part().map(str::to_owned));
            if bearing == Bearing::Stops && stopped.holds(part.as_deref()) {
                continue;
            }
            self.burn()?;
            let took = step(self, next)?;
            has_failed |= !took;
            if !took && bearing == Bearing::Stops {
                stopped.add(part);
            }
        }
        Ok(match has_failed {
            true => Verdict::BackOff,
            false => self.done(plan.wake),
        })
    }

    /// Gathers what a deployment's plan may read, as the shell does.
    pub fn see_deployment<T>(
        &self,
        deployment: &Arc<MachineDeployment>,
        look: impl FnOnce(&deployment::Observed<'_>) -> T,
    ) -> T {
        let set_exists = |name: &str| self.world.sets.get(&Name::new(name)).is_some();
        self.ask(|asked| deployment::look(asked, deployment, &set_exists, self.plan_set, look))
    }

    /// What a plan of a set or of a deployment asks.
    fn ask<T>(&self, ask: impl FnOnce(&Asked<'_>) -> T) -> T {
        ask(&Asked {
            world: &self.world,
            machine_exists: &|name| self.world.machines.get(&Name::new(name)).is_some(),
            can_check: &|class| self.can_check(class),
            sight: self.sight,
            settings: &self.settings,
        })
    }

    fn pass_deployment(&mut self, key: &Key, name: &Name) -> Result<Verdict, Crash> {
        let Some(deployment) = self.world.deployments.get(name).cloned() else {
            return Ok(Verdict::Forget);
        };
        let now = self.now();
        let (plan, broken) = self.see_deployment(&deployment, |seen| {
            let plan = deployment::plan(seen, now);
            let broken = laws::deployment(seen, &plan, now);
            (plan, broken)
        });
        let text = narrate::plan(&plan, now);
        self.tell(key, &text, !plan.steps.is_empty());
        assert!(broken.is_empty(), "{key:?} breaks laws: {broken:?}\n{text}");
        self.carry_out(plan, |stage, step| stage.deployment_step(&deployment, step))
    }

    fn pass_class(&mut self, name: &Name) -> Result<Option<Timestamp>, Crash> {
        let Some(found) = self.world.classes.get(name).cloned() else {
            return Ok(None);
        };
        let first = self.world.machines.find(OwnedBy::Class, name.as_str()).next();
        let plan = class::plan(&class::Observed {
            class: &found,
            machines: self.world.machines.count(OwnedBy::Class, name.as_str()),
            first_machine: first.map(|machine| meta::name(&machine.metadata)),
            readiness: self.world.ledger.readiness(name),
            found: self.world.ledger.readiness(name),
            driver_is_here: self.driver == DriverNow::Ready,
            circuits: self.world.ledger.breakers.circuits(name),
            is_being_checked: self.world.ledger.is_being_checked(name),
            status_refused: None,
            reported: self.world.ledger.reports.get(&meta::identity(&found.metadata).1),
            now: self.now(),
        });
        for step in plan.steps {
            self.burn()?;
            self.class_step(&found, step);
        }
        Ok(None)
    }

    /// What a Machine that is gone may have left in the target cluster.
    fn pass_leftover(&mut self, uid: &Uid) -> Option<Timestamp> {
        let left = self.world.ledger.leftovers.get(uid).cloned()?;
        if self.sight.target_since.is_none() {
            return Some(self.now() + SignedDuration::from_secs(5));
        }
        let own_name = left.metadata.name.clone().map(NodeName::new);
        for node in left.node_label().into_iter().chain(own_name) {
            self.remove_node(&left, &Name::new(node.as_str()));
        }
        self.tokens.remove(uid);
        self.world.ledger.leftovers.remove(uid);
        None
    }

    fn burn(&mut self) -> Result<(), Crash> {
        match &mut self.fuel {
            Some(0) => Err(Crash),
            Some(fuel) => {
                *fuel -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Says what was decided; a rest that was told before is not told again.
    fn tell(&mut self, key: &Key, text: &str, acts: bool) {
        if acts || self.last.get(key).is_none_or(|last| last != text) {
            self.told.push(format!(
                "{} {}: {}",
                key.kind(),
                key.name(),
                text.replace('\n', "\n    ")
            ));
        }
        self.last.insert(key.clone(), text.to_owned());
    }

    /// The driver answers a call; the process that made it hears, if it lives.
    pub fn deliver(&mut self, index: usize) {
        let flight = self.flights.remove(index);
        let now = self.now();
        let uid = flight.tagged_uid.as_ref().unwrap_or(&flight.uid);
        let hint = flight.hint.as_ref();
        let mut answer = self.cloud.answer(&flight.machine, uid, flight.call, hint, now);
        if let Answer::Vm(_, Ok(vm)) = &mut answer {
            vm.tagged_uid = vm.tagged_uid.take().or(flight.tagged_uid);
        }
        self.assert_no_leak();
        if flight.unheard {
            return;
        }
        let pacing = Pacing {
            resource_exhausted: self.settings.resource_exhausted_retry,
            jitter: 1.0,
        };
        let answer = (flight.call, answer);
        let recipe = flight.digest.as_deref();
        self.world
            .answered(&flight.seen, answer, recipe, pacing, (now, self.uptime));
    }

    /// S1 and S2: a VM is made once for a uid, and lives only while its Machine is held by our finalizer.
    pub fn assert_no_leak(&self) {
        for (uid, times) in &self.cloud.made {
            assert!(*times <= 1, "{times} VMs were made for {uid}\n{}", self.told.join("\n"));
        }
        for (uid, vm) in &self.cloud.vms {
            let machine = self.etcd.machines.get(&vm.machine).filter(|machine| {
                machine.uid().as_ref() == Some(uid) || machine.provider_id() == Some(cloud::id_of(uid))
            });
            let held = machine.is_some_and(|machine| meta::has_finalizer(&machine.metadata, keys::FINALIZER));
            assert!(
                held,
                "the VM of {} ({uid}) has outlived its Machine\n{}",
                vm.machine,
                self.told.join("\n")
            );
        }
    }
}
