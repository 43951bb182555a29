//! A cloud and its driver as a value: a VM per uid, creation that can be repeated, VMs that show late, tombstones, and
//! answers that a story dictates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use millwright_core::driver::{
    Call, Code, Deletion, Disturbance, DriverInfo, Effect, Failure, Initialization, Reason, Vm, VmState,
};
use millwright_core::ids::{DriverName, Name, NodeName, ProviderId, Uid};
use millwright_core::ledger::Answer;

/// One VM.
#[derive(Clone, Debug)]
pub struct CloudVm {
    pub machine: Name,
    /// From when on it is found by its tags; whoever knows its id finds it at once.
    pub visible: Timestamp,
    pub initialization: Initialization,
    /// What it is by now, and what was announced.
    pub state: VmState,
    pub disturbance: Option<Disturbance>,
    pub ends_at: Option<Timestamp>,
}

pub fn id_of(uid: &Uid) -> ProviderId {
    ProviderId::new(format!("virtual:///{uid}"))
}

/// What a story wants the driver to say next.
#[derive(Clone, Debug)]
pub enum Dictated {
    Fails(Failure),
    /// A VM that has no ids yet.
    Unnamed,
    /// A VM with the id of another.
    Twinned,
    /// A VM that is not powered on yet.
    Creating,
    /// A VM that will never run.
    Broken,
    /// The deletion goes on.
    Going,
    /// It goes on, and the next question is to come in ten minutes.
    Lingering,
    /// What it would say anyway, with a breadcrumb.
    Crumbed,
    /// The VM is not found, although it is there.
    Unseen,
    /// What comes before the VM is made, and the VM is not.
    HalfDone,
}

/// The VMs of a story, and what its provider answers.
pub struct Cloud {
    pub vms: BTreeMap<Uid, CloudVm>,
    tombstones: BTreeSet<Uid>,
    /// A port is made before each VM, and outlives it until its Machine's deletion is asked for. `None`: VMs need none.
    pub ports: Option<BTreeMap<Uid, Name>>,
    /// How many VMs were ever made for a uid.
    pub made: BTreeMap<Uid, u32>,
    pub dictated: VecDeque<(Call, Dictated)>,
    pub info: DriverInfo,
    /// New VMs need InitializeMachine.
    pub needs_initialization: bool,
    /// Lookups never deny a VM that merely does not show yet.
    pub honest: bool,
    /// How many calls were answered.
    pub asked: usize,
    /// Every call fails so.
    pub refuses: Option<Failure>,
    /// How many VMs there may be.
    pub places: Option<usize>,
}

impl Default for Cloud {
    fn default() -> Self {
        let info = DriverInfo {
            name: DriverName::new("virtual"),
            vendor_version: "1".to_owned(),
            capabilities: BTreeSet::new(),
            propagation_delay: SignedDuration::ZERO,
        };
        Self {
            vms: BTreeMap::new(),
            tombstones: BTreeSet::new(),
            ports: None,
            made: BTreeMap::new(),
            dictated: VecDeque::new(),
            info,
            needs_initialization: false,
            honest: false,
            asked: 0,
            refuses: None,
            places: None,
        }
    }
}

/// A failure as a driver would make it.
pub fn failure(code: Code, reason: Option<Reason>) -> Failure {
    let message = reason.map_or_else(|| format!("{code:?}"), |reason| format!("{reason:?}"));
    Failure {
        reason,
        effect: Effect::None,
        ..Failure::transport(code, message)
    }
}

impl Cloud {
    /// Answers a call about the VM of a uid. `hint`: the id that the caller names.
    pub fn answer(
        &mut self,
        machine: &Name,
        uid: &Uid,
        call: Call,
        hint: Option<&ProviderId>,
        now: Timestamp,
    ) -> Answer {
        let known = hint.is_some();
        self.asked += 1;
        if let Some(failure) = self.refuses.clone() {
            return match call {
                Call::Delete => Answer::Deletion(Err(failure)),
                Call::Create | Call::Initialize | Call::Status => Answer::Vm(call, Err(failure)),
            };
        }
        if let Some(place) = self.dictated.iter().position(|(of, _)| *of == call) {
            let (_, dictated) = self.dictated.remove(place).expect("it was just found");
            return self.dictate(machine, uid, call, known, dictated, now);
        }
        let other = self.of_another(uid, hint);
        let is_restored = other.as_ref().is_some_and(|(_, name)| name == machine);
        match (other, call) {
            (Some((other, _)), Call::Status) if is_restored => {
                let vm = self.describe(&other);
                let tagged_uid = Some(other);
                Answer::Vm(call, Ok(Vm { tagged_uid, ..vm }))
            }
            (Some(_), Call::Delete) => Answer::Deletion(Err(failure(Code::FailedPrecondition, Some(Reason::NotOwned)))),
            (Some(_), Call::Create) if is_restored => {
                Answer::Vm(call, Err(failure(Code::AlreadyExists, Some(Reason::NameConflict))))
            }
            (Some(_) | None, _) => self.obey(machine, uid, call, known, now),
        }
    }

    /// The VM of an id, if it bears another uid, and none bears this one.
    fn of_another(&self, uid: &Uid, hint: Option<&ProviderId>) -> Option<(Uid, Name)> {
        let is_it = |(other, _): &(&Uid, &CloudVm)| Some(&id_of(other)) == hint;
        let (other, vm) = self.vms.iter().find(is_it)?;
        (other != uid && !self.vms.contains_key(uid)).then(|| (other.clone(), vm.machine.clone()))
    }

    fn obey(&mut self, machine: &Name, uid: &Uid, call: Call, known: bool, now: Timestamp) -> Answer {
        match call {
            Call::Create => Answer::Vm(call, self.create(machine, uid, now)),
            Call::Status => Answer::Vm(call, self.status(uid, known, now)),
            Call::Initialize => {
                if let Some(vm) = self.vms.get_mut(uid) {
                    vm.initialization = Initialization::Done;
                }
                Answer::Vm(call, self.status(uid, known, now))
            }
            Call::Delete => {
                self.tombstones.insert(uid.clone());
                if let Some(ports) = &mut self.ports {
                    ports.remove(uid);
                }
                // A VM that does not show yet is not found, and stays: the provider's fault, the manager's duty.
                if self.vms.get(uid).is_some_and(|vm| known || vm.visible <= now) {
                    self.vms.remove(uid);
                }
                Answer::Deletion(Ok(Deletion {
                    gone: true,
                    poll_after: None,
                    last_known_state: None,
                }))
            }
        }
    }

    fn dictate(
        &mut self,
        machine: &Name,
        uid: &Uid,
        call: Call,
        known: bool,
        dictated: Dictated,
        now: Timestamp,
    ) -> Answer {
        if matches!(&dictated, Dictated::Fails(failure) if failure.reason == Some(Reason::MachineNotFound)) {
            // A driver that says so speaks the truth.
            self.vms.remove(uid);
        }
        match (dictated, call) {
            (Dictated::Fails(failure), Call::Delete) => Answer::Deletion(Err(failure)),
            (Dictated::Fails(failure), _) => Answer::Vm(call, Err(failure)),
            (how @ (Dictated::Going | Dictated::Lingering), _) => Answer::Deletion(Ok(Deletion {
                gone: false,
                poll_after: matches!(how, Dictated::Lingering).then_some(SignedDuration::from_mins(10)),
                last_known_state: Some("deleting disk 2 of 3".to_owned()),
            })),
            (Dictated::Crumbed, _) => match self.obey(machine, uid, call, known, now) {
                Answer::Vm(call, Ok(vm)) => {
                    let last_known_state = Some("disk 2 of 3 is attached".to_owned());
                    Answer::Vm(call, Ok(Vm { last_known_state, ..vm }))
                }
                other => other,
            },
            (Dictated::HalfDone, _) => {
                self.connect(machine, uid);
                let failed = failure(Code::Unavailable, Some(Reason::ProviderUnavailable));
                let effect = Effect::Partial;
                Answer::Vm(call, Err(Failure { effect, ..failed }))
            }
            (Dictated::Unseen, _) => Answer::Vm(call, Err(failure(Code::NotFound, Some(Reason::MachineNotFound)))),
            (Dictated::Unnamed, _) => {
                let vm = self.create(machine, uid, now);
                Answer::Vm(
                    call,
                    vm.map(|vm| Vm {
                        provider_id: None,
                        node_name: None,
                        state: VmState::Creating,
                        ..vm
                    }),
                )
            }
            (Dictated::Twinned, _) => {
                let vm = self.create(machine, uid, now);
                let other = self.vms.keys().find(|other| *other != uid);
                let provider_id = other.map(id_of);
                Answer::Vm(call, vm.map(|vm| Vm { provider_id, ..vm }))
            }
            (Dictated::Creating, _) => {
                let vm = self.create(machine, uid, now);
                let state = VmState::Creating;
                Answer::Vm(call, vm.map(|vm| Vm { state, ..vm }))
            }
            (Dictated::Broken, _) => {
                let vm = self.create(machine, uid, now);
                let words = "no host has room".to_owned();
                Answer::Vm(
                    call,
                    vm.map(|vm| Vm {
                        state: VmState::Failed,
                        state_message: words,
                        ..vm
                    }),
                )
            }
        }
    }

    fn create(&mut self, machine: &Name, uid: &Uid, now: Timestamp) -> Result<Vm, Failure> {
        if self.tombstones.contains(uid) {
            return Err(failure(Code::FailedPrecondition, Some(Reason::MachineDeleted)));
        }
        if !self.vms.contains_key(uid) {
            if self.places.is_some_and(|places| self.vms.len() >= places) {
                return Err(failure(Code::ResourceExhausted, Some(Reason::CapacityUnavailable)));
            }
            *self.made.entry(uid.clone()).or_default() += 1;
            self.connect(machine, uid);
            let initialization = if self.needs_initialization {
                Initialization::Pending
            } else {
                Initialization::NotNeeded
            };
            let visible = now + self.info.propagation_delay;
            self.vms.insert(
                uid.clone(),
                CloudVm {
                    machine: machine.clone(),
                    visible,
                    initialization,
                    state: VmState::Running,
                    disturbance: None,
                    ends_at: None,
                },
            );
        }
        Ok(self.describe(uid))
    }

    fn connect(&mut self, machine: &Name, uid: &Uid) {
        if let Some(ports) = &mut self.ports {
            ports.insert(uid.clone(), machine.clone());
        }
    }

    fn status(&self, uid: &Uid, known: bool, now: Timestamp) -> Result<Vm, Failure> {
        match self.vms.get(uid) {
            Some(vm) if known || vm.visible <= now => Ok(self.describe(uid)),
            // A driver that cannot tell says so (driver.proto, GetMachineStatus).
            Some(_) if self.honest => Err(failure(Code::Unavailable, Some(Reason::ProviderUnavailable))),
            Some(_) | None => Err(failure(Code::NotFound, Some(Reason::MachineNotFound))),
        }
    }

    fn describe(&self, uid: &Uid) -> Vm {
        let vm = &self.vms[uid];
        Vm {
            provider_id: Some(id_of(uid)),
            node_name: Some(NodeName::new(format!("node-of-{}", vm.machine))),
            state: vm.state,
            state_message: String::new(),
            initialization: vm.initialization,
            addresses: Vec::new(),
            last_known_state: None,
            poll_after: None,
            disturbance: vm.disturbance,
            ends_at: vm.ends_at,
            tagged_uid: None,
        }
    }
}
