//! What watches, writes, calls and passes bring, taken into what is known; and with it the queue of what must be looked at.
//!
//! Decides nothing about objects: `wake` says who must look, planners what then happens.

mod calls;
mod notices;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;

use crate::api::{Machine, MachineSet};
use crate::change::Change;
use crate::class::Readiness;
use crate::drain::Drain;
use crate::ids::{DriverName, Name, NodeName, Uid, VolumeName};
use crate::kinds::OwnedBy;
use crate::ledger::{Calls, Finding, Ledger, OwnerNotes, Stamp};
use crate::machine::node;
use crate::queue::Urgency;
use crate::refusal::Refusal;
use crate::set;
use crate::store::{Stored as _, Touched};
use crate::wake::{self, Key, Wake};
use crate::world::{Kind, World};

impl World {
    /// Takes what a watch brought.
    pub fn observe<K: Kind>(&mut self, change: Change<K>, uptime: Duration) {
        let touched = K::store(self).apply(change);
        let vanished: Vec<Arc<Machine>> = touched.iter().filter_map(K::vanished).collect();
        self.take_in(touched, uptime);
        for machine in vanished {
            self.leaves_behind(machine, uptime);
        }
    }

    /// Takes the object that one of our writes returned, and gives it back as it is kept.
    pub fn wrote<K: Kind>(&mut self, object: K, uptime: Duration) -> Arc<K> {
        let object = K::store(self).kept(object);
        let touched = K::store(self).wrote(Arc::clone(&object));
        self.take_in(touched, uptime);
        object
    }

    /// Our write ended an object.
    pub fn ended<K: Kind>(&mut self, name: &Name, uid: &Uid, uptime: Duration) {
        let touched = K::store(self).ended(name, uid);
        self.take_in(touched, uptime);
    }

    /// Notes something about an object that is known; nothing about one that is gone meanwhile.
    pub fn note<K: Kind>(&mut self, name: &Name, uid: &Uid, note: impl FnOnce(&mut Ledger)) {
        if K::store(self).get(name).is_some_and(|known| known.uid() == *uid) {
            note(&mut self.ledger);
        }
    }

    /// Notes something about the VM of a Machine that is known.
    pub fn note_calls(&mut self, machine: &Name, uid: &Uid, note: impl FnOnce(&mut Calls)) {
        self.note::<Machine>(machine, uid, |ledger| {
            note(ledger.calls.entry(uid.clone()).or_default())
        });
    }

    /// A deletion of a Machine was sent at `now` and not answered, so it may still arrive: until that is known the Machine goes before all
    /// others.
    pub fn condemn(&mut self, machine: &Name, uid: &Uid, now: Timestamp) {
        self.note::<Machine>(machine, uid, |ledger| {
            ledger.condemned.insert(uid.clone(), now);
        });
    }

    /// Notes something about a set or deployment that is known.
    pub fn note_owner<K: Kind>(&mut self, name: &Name, uid: &Uid, note: impl FnOnce(&mut OwnerNotes)) {
        self.note::<K>(name, uid, |ledger| note(ledger.owners.entry(uid.clone()).or_default()));
    }

    /// Failed Machines of a set were replaced, at `now`.
    pub fn replaced(&mut self, set: &Name, uid: &Uid, now: Timestamp) {
        let notes = self.ledger.notes(uid);
        let machines = self.machines.find(OwnedBy::Controller, uid.as_str());
        let times = set::facts::replacements(notes, machines.map(Arc::as_ref)).saturating_add(1);
        self.note_owner::<MachineSet>(set, uid, |notes| notes.replaced = Some((times, now)));
    }

    /// From now on the pods of a Machine's Node are watched, afresh where none was left of those that were. Gives whether somebody has to
    /// begin that, and the Machine is still there.
    pub fn drains(&mut self, machine: &Name, uid: &Uid, node: &NodeName, now: Timestamp) -> bool {
        let known = self.ledger.drains.get(uid);
        let is_new = known.is_none_or(|drain| drain.emptied().is_some());
        if is_new {
            self.ledger.drains.remove(uid);
        }
        self.note::<Machine>(machine, uid, |ledger| {
            let begin = || Drain::begin(machine.clone(), node.clone(), now);
            ledger.drains.entry(uid.clone()).or_insert_with(begin);
        });
        is_new && self.ledger.drains.contains_key(uid)
    }

    /// A Machine's Node was cordoned, or the target cluster refused it in these words. What was known of its pods is out of date then.
    pub fn cordoned(&mut self, machine: &Name, uid: &Uid, refused: Option<String>, at: (Timestamp, Duration)) {
        let (now, uptime) = at;
        if refused.is_none() {
            self.ends_drain(uid);
        }
        self.note_calls(machine, uid, |calls| {
            let before = calls.cordon_refused.take();
            calls.cordon_refused = refused.map(|words| Refusal::after(before.as_ref(), words, now));
        });
        self.queue.push(Key::Machine(machine.clone()), uptime, Urgency::Event);
    }

    /// These are the volumes of the pods that stay on a Machine's Node.
    pub fn found_staying(&mut self, machine: &Name, uid: &Uid, volumes: BTreeSet<VolumeName>, uptime: Duration) {
        if let Some(drain) = self.ledger.drains.get_mut(uid) {
            drain.staying = Some(volumes);
            self.queue.push(Key::Machine(machine.clone()), uptime, Urgency::Event);
        }
    }

    /// Others list the pods of their Nodes first.
    pub fn drain_waits(&mut self, uid: &Uid) {
        if let Some(drain) = self.ledger.drains.get_mut(uid) {
            drain.turn = None;
        }
    }

    /// The pods of a Machine's Node are listed from `now` on.
    pub fn drain_has_turn(&mut self, machine: &Name, uid: &Uid, now: Timestamp, uptime: Duration) {
        if let Some(drain) = self.ledger.drains.get_mut(uid) {
            drain.turn = Some(now);
            self.queue.push(Key::Machine(machine.clone()), uptime, Urgency::Event);
        }
    }

    /// Takes what the watch of the pods of a Machine's Node brought, at `now`. Gives whether anybody wants to know more.
    pub fn see_pods(
        &mut self,
        machine: &Name,
        uid: &Uid,
        change: Change<Pod>,
        now: Timestamp,
        uptime: Duration,
    ) -> bool {
        let Some(drain) = self.ledger.drains.get_mut(uid) else {
            return false;
        };
        drain.observe(change, now);
        self.queue.push(Key::Machine(machine.clone()), uptime, Urgency::Event);
        true
    }

    /// Whether the pods of a Machine's Node need no watch now that they are listed: none is left that must go, the Node is cordoned, and no
    /// volume is attached to it.
    pub fn needs_no_watch(&self, uid: &Uid) -> bool {
        let Some(drain) = self.ledger.drains.get(uid) else {
            return true;
        };
        let node = self.nodes.get(&Name::new(drain.node.as_str()));
        let names_volumes = node.is_some_and(|node| !node::attached(node).is_empty());
        drain.emptied().is_some() && !names_volumes && self.volumes.attached_to(&drain.node).is_empty()
    }

    /// The watch of the pods of a Machine's Node ends.
    pub fn watches_no_pods(&mut self, uid: &Uid) {
        if let Some(drain) = self.ledger.drains.get_mut(uid) {
            drain.is_watched = false;
        }
    }

    /// Nobody wants to know a Node's pods any more. The last one takes along what is known of volumes; gives whether it was the last.
    pub fn ends_drain(&mut self, uid: &Uid) -> bool {
        self.ledger.drains.remove(uid);
        let is_last = self.ledger.drains.is_empty();
        if is_last {
            self.volumes.end();
        }
        is_last
    }

    /// Takes what the watch of attachments brought. Gives whether anybody wants to know more.
    pub fn see_volumes(&mut self, change: Change<VolumeAttachment>, uptime: Duration) -> bool {
        if self.ledger.drains.is_empty() {
            self.volumes.end();
            return false;
        }
        let is_whole = matches!(change, Change::Synced);
        let touched = self.volumes.apply(change);
        let wakes = wake::drains(self, &touched, is_whole);
        self.wake(wakes, uptime);
        true
    }

    /// The Machine has ended although something of it may be left in the target cluster.
    pub fn leaves_behind(&mut self, machine: Arc<Machine>, uptime: Duration) {
        let uid = machine.uid().unwrap_or_else(|| Uid::new(""));
        self.wake([Wake::event(Key::Leftover(uid.clone()))], uptime);
        self.ledger.leftovers.insert(uid, machine);
    }

    /// Asks for keys to be looked at.
    pub fn wake(&mut self, wakes: impl IntoIterator<Item = Wake>, uptime: Duration) {
        for wake in wakes {
            self.queue.push(wake.key, uptime + wake.delay, wake.urgency);
        }
    }

    /// This process begins to lead. The circuit breakers are those that the classes tell now: while this process followed, another one
    /// opened and closed them.
    pub fn begin_term(&mut self, uptime: Duration) {
        let names: Vec<Name> = self.classes.iter().map(|class| class.key()).collect();
        for name in names {
            self.ledger.breakers.forget_class(&name);
            self.doubt(&name, uptime);
        }
    }

    /// Asks for all classes to be looked at: what the API server refused of their statuses it may take now.
    pub fn look_at_classes(&mut self, uptime: Duration) {
        let names: Vec<Name> = self.classes.iter().map(|class| class.key()).collect();
        for name in names {
            self.ledger.takes_status(&name);
            self.wake([Wake::event(Key::Class(name))], uptime);
        }
    }

    /// Asks for everything to be looked at, within `spread`: the net under the wake table, and free where nothing is to
    /// be done.
    pub fn look_at_all(&mut self, uptime: Duration, spread: Duration) {
        let machines = self.machines.iter().map(|object| Key::Machine(object.key()));
        let sets = self.sets.iter().map(|set| wake::group_of(self, set));
        let deployments = self.deployments.iter().map(|object| Key::Deployment(object.key()));
        let classes = self.classes.iter().map(|object| Key::Class(object.key()));
        let secrets = self.secrets.iter().map(|object| Key::Secret(object.key()));
        let leftovers = self.ledger.leftovers.keys().map(|uid| Key::Leftover(uid.clone()));
        let deployments: BTreeSet<Key> = deployments.chain(sets).collect();
        let all: Vec<Key> = machines
            .chain(leftovers)
            .chain(deployments)
            .chain(classes)
            .chain(secrets)
            .collect();
        let step = spread / u32::try_from(all.len().max(1)).unwrap_or(u32::MAX);
        for (place, key) in (0u32..).zip(all) {
            self.queue
                .push(key, uptime + step.saturating_mul(place), Urgency::Routine);
        }
    }

    /// What was found out about a class; all that wait for it look again. What a check found out that began before the class,
    /// its Secrets or its driver changed is not believed: the class is looked at again.
    pub fn judged(&mut self, class: &Name, stamp: Stamp, readiness: Readiness, uptime: Duration) {
        let wakes = match self.ledger.judged(class, stamp, readiness) {
            Finding::News => {
                let mut wakes = wake::users_of_class(self, class);
                // It tells the news in its status.
                wakes.push(Wake::event(Key::Class(class.clone())));
                wakes
            }
            Finding::Same => Vec::new(),
            Finding::Outdated => vec![Wake::event(Key::Class(class.clone()))],
        };
        self.wake(wakes, uptime);
    }

    /// What was found out about a class may hold no longer: it is looked at again before anything is made of it.
    pub fn doubt(&mut self, class: &Name, uptime: Duration) {
        if let Some(known) = self.classes.get(class) {
            self.ledger.doubt(known);
            self.wake([Wake::prompt(Key::Class(class.clone()))], uptime);
        }
    }

    /// A driver came, went or changed: what was found out about its classes is in doubt, and whoever waits for it looks again.
    pub fn driver_changed(&mut self, driver: &DriverName, uptime: Duration) {
        for class in wake::classes_of_driver(self, driver) {
            if let Some(known) = self.classes.get(&class) {
                self.ledger.doubt(known);
            }
        }
        let wakes = wake::driver_changed(self, driver);
        self.wake(wakes, uptime);
    }

    fn take_in<K: Kind>(&mut self, touched: impl IntoIterator<Item = Touched<K>>, uptime: Duration) {
        for touched in touched {
            let end = touched.old.as_ref().map(|old| old.uid());
            if let Some(gone) = end.filter(|old| touched.new.as_ref().is_none_or(|new| new.uid() != *old)) {
                self.ledger.forget(&gone);
            }
            for class in K::doubts(self, &touched) {
                match self.classes.get(&class) {
                    Some(known) => self.ledger.doubt(known),
                    None => self.ledger.forget_class(&class),
                }
            }
            let wakes = K::wakes(self, &touched);
            self.wake(wakes, uptime);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::MachineClass;
    use crate::change::Change;

    fn set(uid: &str) -> MachineSet {
        let metadata = json!({"name": "workers", "namespace": "test", "uid": uid});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}})).expect("it is a set")
    }

    fn machine(uid: &str, finalizers: &[&str], deleting: Option<&str>, conditions: Value) -> Machine {
        let metadata = json!({
            "name": "one", "namespace": "test", "uid": uid, "finalizers": finalizers, "deletionTimestamp": deleting,
        });
        let status = json!({"currentStatus": {"phase": "Pending"}, "conditions": conditions});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status})).expect("it is a machine")
    }

    /// kubernetes#77988: a deletion that was begun before the finalizer was stored ends the object in spite of it.
    #[test]
    fn a_machine_that_vanishes_in_spite_of_our_finalizer_leaves_its_token_behind() {
        let ours = &[crate::api::keys::FINALIZER][..];
        let (none, joined) = (json!([]), json!([{"type": "Ready", "status": "True"}]));
        let left = |machine: Machine, ended: Change<Machine>| {
            let mut world = World::default();
            world.observe(Change::Applied(machine), Duration::ZERO);
            world.observe(ended, Duration::ZERO);
            world.ledger.leftovers.len()
        };
        let gone = |machine: Machine| left(machine.clone(), Change::Deleted(machine));
        assert_eq!(gone(machine("1", ours, None, none.clone())), 1);
        assert_eq!(
            gone(machine("1", &[], None, none.clone())),
            0,
            "nothing was made for it"
        );
        assert_eq!(
            gone(machine("1", ours, None, joined)),
            0,
            "its token went when it joined"
        );
        let deleting = machine("1", ours, Some("2026-01-01T00:00:00Z"), none.clone());
        assert_eq!(gone(deleting), 0, "its plan has removed the token, or does");
        let anew = Change::Applied(machine("2", ours, None, none.clone()));
        assert_eq!(
            left(machine("1", ours, None, none), anew),
            1,
            "another one has its name"
        );
    }

    #[test]
    fn a_leader_takes_over_the_circuit_breakers_that_its_predecessor_opened_and_closed_while_it_followed() {
        let class = |conditions: Value| -> MachineClass {
            let metadata = json!({"name": "small", "namespace": "test", "uid": "1"});
            serde_json::from_value(
                json!({"metadata": metadata, "provider": "virtual", "status": {"conditions": conditions}}),
            )
            .expect("it is a class")
        };
        let tells = |status: &str| {
            json!([{
                "type": "CapacityAvailable", "status": status, "reason": "ResourceExhausted", "message": "no room",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }])
        };
        let is_open = |world: &World| world.ledger.breakers.circuits(&Name::new("small")).create.is_some();
        let mut world = World::default();
        world.observe(Change::Applied(class(json!([]))), Duration::ZERO);
        world.observe(Change::Applied(class(tells("False"))), Duration::ZERO);
        world.begin_term(Duration::ZERO);
        assert!(is_open(&world), "the predecessor opened it");

        let mut world = World::default();
        world.observe(Change::Applied(class(tells("False"))), Duration::ZERO);
        world.observe(Change::Applied(class(tells("True"))), Duration::ZERO);
        world.begin_term(Duration::ZERO);
        assert!(!is_open(&world), "the predecessor closed it");
    }

    #[test]
    fn what_is_noted_of_an_object_that_is_gone_meanwhile_is_not_kept() {
        let (mut world, name) = (World::default(), Name::new("workers"));
        let note = |world: &mut World, uid: &str| {
            world.note_owner::<MachineSet>(&name, &Uid::new(uid), |notes| notes.batches += 1);
        };
        note(&mut world, "1");
        assert!(world.ledger.owners.is_empty(), "it was never seen");

        world.observe(Change::Applied(set("1")), Duration::ZERO);
        note(&mut world, "1");
        assert_eq!(world.ledger.owners.len(), 1);

        world.observe(Change::Applied(set("2")), Duration::ZERO);
        note(&mut world, "1");
        assert!(world.ledger.owners.is_empty(), "another one has its name");

        world.observe(Change::Deleted(set("2")), Duration::ZERO);
        note(&mut world, "2");
        assert!(world.ledger.owners.is_empty(), "it is gone");
    }
}
