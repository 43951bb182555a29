//! Driver calls about Machines, as far as others are concerned by what they come to: who may make one, and who looks again after it.
//!
//! Decides nothing about a single Machine; what an answer means to the others of its class is decided in `gate`.

use std::time::Duration;

use jiff::Timestamp;

use super::World;
use crate::api::{Machine, MachineClass, meta};
use crate::gate::{Cause, Errand, Gates, Heard};
use crate::ids::{Name, SecretKey, Uid};
use crate::kinds::{ClassBy, OwnedBy};
use crate::machine::Call;
use crate::machine::{Answer, Pacing};
use crate::queue::Urgency;
use crate::sight::later;
use crate::wake::{Key, Wake};

impl World {
    /// The gates before a Machine's calls.
    pub fn gates_of(&self, machine: &Machine) -> &Gates {
        self.gated_by(machine)
            .map_or(Gates::OPEN, |class| self.ledger.gates(&class))
    }

    /// The class whose gates stand before a Machine's calls. `None` where the class does not say who is asked.
    fn gated_by(&self, machine: &Machine) -> Option<Name> {
        let name = machine.class_name().map(Name::new)?;
        let class = self.classes.get(&name)?;
        let asked = machine.creation_request().and_then(|request| request.driver());
        let asked = asked.filter(|_| meta::is_deleting(&machine.metadata));
        asked.is_none_or(|asked| class.driver() == Some(asked)).then_some(name)
    }

    /// A Machine takes its turn to try for all, unless another was faster: then it looks again.
    pub fn takes_turn(&mut self, machine: &Machine, errand: Errand, now: Timestamp, uptime: Duration) -> bool {
        let (name, uid) = meta::identity(&machine.metadata);
        let class = self.gated_by(machine);
        let has_turn = class
            .and_then(|class| self.ledger.gates_mut(&class))
            .is_none_or(|gates| {
                gates.recall(errand, machine);
                gates.takes_turn(errand, &uid, now)
            });
        if !has_turn {
            self.wake([Wake::event(Key::Machine(name))], uptime);
        }
        has_turn
    }

    /// A call about a Machine begins. Which call failed how is known only to this process; a Machine of another uid starts afresh. Gives
    /// whether the Machine is still there: nobody would hear the answer to a call for one that is gone.
    pub fn begins(&mut self, machine: &Machine, call: Call) -> bool {
        let (name, uid) = meta::identity(&machine.metadata);
        let class = self.gated_by(machine);
        let stamp = class.as_ref().and_then(|class| self.ledger.stamp(class));
        self.note::<Machine>(&name, &uid, |ledger| {
            let calls = ledger.calls.entry(uid.clone()).or_default();
            calls.begin(call);
            calls.asked_under = stamp;
        });
        let is_there = self.ledger.calls.contains_key(&uid);
        let gates = class.and_then(|class| self.ledger.gates_mut(&class));
        if let (Some(gates), Some(errand)) = (gates, Errand::of(machine, call)) {
            match is_there {
                true => gates.begins(errand, &uid),
                false => drop(gates.ends_turn(errand, &uid)),
            }
        }
        is_there
    }

    /// Takes the answer to the call about a Machine, as that was when the call began.
    pub fn answered(
        &mut self,
        machine: &Machine,
        (call, answer): (Call, Answer),
        recipe: Option<&str>,
        pacing: Pacing,
        (now, uptime): (Timestamp, Duration),
    ) {
        let (name, uid) = meta::identity(&machine.metadata);
        let failure = answer.failure().cloned();
        let was_asked = !matches!(answer, Answer::NotAsked(_));
        let calls = self.ledger.calls.get_mut(&uid);
        let stamp = calls.as_ref().and_then(|calls| calls.asked_under);
        let until = match (calls, &failure) {
            (Some(calls), failure) => {
                calls.absorb(answer, recipe, pacing, now);
                let trouble = calls.trouble.as_ref().filter(|_| failure.is_some());
                trouble.map(|trouble| trouble.retry_at)
            }
            (None, failure) => failure
                .as_ref()
                .map(|failure| later(now, failure.pause(1, pacing.resource_exhausted))),
        };
        if let Some(class) = self.gated_by(machine) {
            let is_current = stamp.is_some() && stamp == self.ledger.stamp(&class);
            let errand = Errand::of(machine, call);
            match was_asked && is_current {
                true => self.hear(
                    &class,
                    &uid,
                    errand,
                    failure.as_ref(),
                    until.unwrap_or(now),
                    (now, uptime),
                ),
                false => self.forgo(&class, &uid, errand, uptime),
            }
        }
        self.queue.push(Key::Machine(name), uptime, Urgency::Prompt);
    }

    /// What an answer means to the others of the class, and to classes with the same credentials.
    fn hear(
        &mut self,
        class: &Name,
        uid: &Uid,
        errand: Option<Errand>,
        failure: Option<&crate::driver::Failure>,
        until: Timestamp,
        (now, uptime): (Timestamp, Duration),
    ) {
        let waiting = self.waiting_for(class);
        let Some(gates) = self.ledger.gates_mut(class) else {
            return;
        };
        let news = gates.hear(Heard {
            uid,
            errand,
            failure,
            until,
            waiting,
        });
        if news.is_open {
            self.lets_go(class, now);
        }
        if news.of_class {
            self.wake_machines_of(class, uptime);
        }
        if news.refused || news.accepted {
            for sibling in self.of_same_account(class) {
                let by = self.ledger.gates(class).clone();
                let sibling_gates = self.ledger.gates_mut(&sibling);
                let is_news = sibling_gates.is_some_and(|gates| match news.refused {
                    true => gates.shut_out(&by, now),
                    false => gates.may_try(),
                });
                if is_news {
                    self.wake_machines_of(&sibling, uptime);
                }
            }
        }
    }

    /// How many Machines of a class have no VM. Nobody needs to know where nothing is shut.
    fn waiting_for(&self, class: &Name) -> usize {
        if self.ledger.gates(class).causes().is_empty() {
            return 0;
        }
        let machines = self.machines.find(OwnedBy::Class, class.as_str());
        let is_waiting = |machine: &Machine| machine.provider_id().is_none() && !meta::is_deleting(&machine.metadata);
        machines.filter(|machine| is_waiting(machine)).count()
    }

    /// Nothing was learned of a call: whoever had the turn has it no more.
    fn forgo(&mut self, class: &Name, uid: &Uid, errand: Option<Errand>, uptime: Duration) {
        let gates = self.ledger.gates_mut(class);
        let had_turn = gates
            .zip(errand)
            .is_some_and(|(gates, errand)| gates.ends_turn(errand, uid));
        if had_turn {
            self.wake_machines_of(class, uptime);
        }
    }

    /// Pauses of Machines that met what has ended now are over.
    fn lets_go(&mut self, class: &Name, now: Timestamp) {
        for machine in self.machines.find(OwnedBy::Class, class.as_str()) {
            let uid = meta::identity(&machine.metadata).1;
            let trouble = self.ledger.calls.get_mut(&uid).and_then(|calls| calls.trouble.as_mut());
            if let Some(trouble) = trouble.filter(|trouble| Cause::of(&trouble.failure).is_some()) {
                trouble.retry_at = trouble.retry_at.min(now);
            }
        }
    }

    fn wake_machines_of(&mut self, class: &Name, uptime: Duration) {
        let machines = self.machines.find(OwnedBy::Class, class.as_str());
        let keys = machines.map(|machine| Wake::event(Key::Machine(meta::identity(&machine.metadata).0)));
        let wakes: Vec<Wake> = keys.collect();
        self.wake(wakes, uptime);
    }

    /// Other classes whose calls the provider counts against the same account.
    fn of_same_account(&self, class: &Name) -> Vec<Name> {
        let Some(own) = self.classes.get(class) else {
            return Vec::new();
        };
        let Some(credentials) = credentials(own) else {
            return Vec::new();
        };
        let place = credentials.to_string();
        let others = self.classes.find(ClassBy::Secret, &place);
        let of_it = others
            .filter(|other| other.driver() == own.driver() && self::credentials(other).as_ref() == Some(&credentials));
        let names = of_it.map(|other| meta::identity(&other.metadata).0);
        names.filter(|name| name != class).collect()
    }
}

/// The Secret that a class's credentials are from: the last of those it names, which wins over the others.
fn credentials(class: &MachineClass) -> Option<SecretKey> {
    crate::class::secret_keys(class).pop()
}
