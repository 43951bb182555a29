//! Driver calls about Machines, as far as others are concerned by what they come to: who may make one, and who looks again after it.
//!
//! Decides nothing about a single Machine; what an answer means to others is decided in `circuit_breaker`.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::{CreationRequest, Machine, meta};
use crate::circuit_breaker::{Cause, Circuits, Operation, Outcome};
use crate::class;
use crate::driver::Call;
use crate::ids::Name;
use crate::kinds::OwnedBy;
use crate::ledger::{Answer, Calls, Unmade};
use crate::machine::Pacing;
use crate::machine::delete;
use crate::queue::Urgency;
use crate::sight::later;
use crate::wake::{Key, Wake};
use crate::world::World;

impl World {
    /// The circuit breakers before a Machine's calls.
    pub fn circuits_of(&self, machine: &Machine) -> Circuits<'_> {
        let class = self.asked_class(machine);
        class.map_or_else(Circuits::default, |class| self.ledger.breakers.circuits(&class))
    }

    /// The class whose breakers are before a Machine's calls. `None` where its VM is asked for by another driver or with other credentials
    /// than the class names now.
    fn asked_class(&self, machine: &Machine) -> Option<Name> {
        let name = machine.class_name().map(Name::new)?;
        let class = self.classes.get(&name)?;
        let is_same = |asked: &CreationRequest| {
            asked.driver() == self.ledger.driver_of(class) && asked.secret_keys() == class::secret_keys(class)
        };
        machine.creation_request().is_none_or(is_same).then_some(name)
    }

    /// A Machine reserves the probe for all that wait, unless another was faster: then it looks again.
    pub fn reserve(&mut self, machine: &Machine, operation: Operation, now: Timestamp, uptime: Duration) -> bool {
        let class = self.asked_class(machine);
        let may_call = class.is_none() || self.ledger.breakers.reserve(operation, machine, now);
        if !may_call {
            self.wake([Wake::event(Key::of(machine))], uptime);
        }
        may_call
    }

    /// This process recorded the request for a VM on the Machine, which was as in `before`. Where that was the first request, no creation
    /// was ever sent.
    pub fn recorded_request(&mut self, before: &Machine, now: Timestamp) {
        if delete::was_requested(before) {
            return;
        }
        let (name, uid) = meta::identity(&before.metadata);
        self.note_calls(&name, &uid, |calls| {
            // Somebody may have removed the record of an earlier one.
            if *calls == Calls::default() {
                calls.unmade = Some(Unmade {
                    since: now,
                    is_locked_out: true,
                });
            }
        });
    }

    /// A call about a Machine begins. Which call failed how is known only to this process; a Machine of another uid starts afresh. Gives
    /// whether the Machine is still there: nobody would hear the answer to a call for one that is gone.
    pub fn begins(&mut self, machine: &Machine, call: Call) -> bool {
        let (name, uid) = meta::identity(&machine.metadata);
        let class = self.asked_class(machine);
        let stamp = class.as_ref().and_then(|class| self.ledger.stamp(class));
        self.note_calls(&name, &uid, |calls| {
            calls.begin(call);
            calls.asked_under = stamp;
        });
        let is_there = self.ledger.calls.contains_key(&uid);
        if let (Some(class), Some(operation)) = (class, Operation::of(machine, call)) {
            match is_there {
                true => self.ledger.breakers.begin(&class, operation, &uid),
                false => drop(self.ledger.breakers.release(&class, Some(operation), &uid)),
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
        let retry_at = match (calls, &failure) {
            (Some(calls), failure) => {
                calls.absorb(answer, recipe, pacing, now);
                let trouble = calls.trouble.as_ref().filter(|_| failure.is_some());
                trouble.map(|trouble| trouble.retry_at)
            }
            (None, failure) => failure
                .as_ref()
                .map(|failure| later(now, failure.pause(1, pacing.resource_exhausted))),
        };
        if let Some(class) = self.asked_class(machine) {
            let is_current = stamp.is_some() && stamp == self.ledger.stamp(&class);
            let outcome = Outcome {
                uid: &uid,
                operation: Operation::of(machine, call),
                failure: failure.as_ref(),
                retry_at: retry_at.unwrap_or(now),
                waiting: self.waiting_for(&class),
            };
            match was_asked && is_current {
                true => self.record(&class, outcome, (now, uptime)),
                false => self.forgo(&class, outcome, uptime),
            }
        }
        self.ledger.breakers.abandon(&uid);
        self.queue.push(Key::Machine(name), uptime, Urgency::Prompt);
    }

    /// What an answer means to the others of the class, and to classes with the same credentials.
    fn record(&mut self, class: &Name, outcome: Outcome<'_>, (now, uptime): (Timestamp, Duration)) {
        let change = self.ledger.breakers.record(class, outcome);
        if change.is_closed {
            self.ends_pauses(class, now);
        }
        change
            .classes
            .iter()
            .for_each(|class| self.wake_machines_of(class, uptime));
    }

    /// How many Machines of a class have no VM. Nobody needs to know where nothing is suspended.
    fn waiting_for(&self, class: &Name) -> usize {
        if self.ledger.breakers.circuits(class).causes().is_empty() {
            return 0;
        }
        let machines = self.machines.find(OwnedBy::Class, class.as_str());
        let is_waiting = |machine: &Machine| machine.provider_id().is_none() && !meta::is_deleting(&machine.metadata);
        machines.filter(|machine| is_waiting(machine)).count()
    }

    /// Nothing was learned of a call: another Machine may have its place.
    fn forgo(&mut self, class: &Name, outcome: Outcome<'_>, uptime: Duration) {
        if self.ledger.breakers.release(class, outcome.operation, outcome.uid) {
            self.wake_machines_of(class, uptime);
        }
    }

    /// Pauses of Machines after failures whose cause has ended are over.
    fn ends_pauses(&mut self, class: &Name, now: Timestamp) {
        for machine in self.machines.find(OwnedBy::Class, class.as_str()) {
            let uid = meta::identity(&machine.metadata).1;
            let trouble = self.ledger.calls.get_mut(&uid).and_then(|calls| calls.trouble.as_mut());
            if let Some(trouble) = trouble.filter(|trouble| Cause::of(&trouble.failure).is_some()) {
                trouble.retry_at = trouble.retry_at.min(now);
            }
        }
    }

    /// The class looks too: its conditions tell what is suspended.
    fn wake_machines_of(&mut self, class: &Name, uptime: Duration) {
        let machines = self.machines.find(OwnedBy::Class, class.as_str());
        let keys = machines
            .map(|machine| Key::of(machine))
            .chain([Key::Class(class.clone())]);
        let wakes: Vec<Wake> = keys.map(Wake::event).collect();
        self.wake(wakes, uptime);
    }
}
