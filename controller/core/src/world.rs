//! Everything that is known, in one place: the stores of all kinds and what this process alone knows.
//!
//! One owner per fact (`architecture.md` §2). Takes changes and answers, and keeps the queue of what must be looked at;
//! decides nothing about objects: `wake` says who must look, planners what then happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::api::{Machine, MachineClass, MachineDeployment, MachineSet};
use crate::class::Readiness;
use crate::ids::{Name, Uid};
use crate::kinds::SecretMeta;
use crate::machine::Calls;
use crate::queue::{Queue, Urgency};
use crate::set::status::LINGERS;
use crate::store::{Store, Stored, Touched};
use crate::wake::{self, Key, Wake};

/// See the module's text.
#[derive(Debug, Default)]
pub struct World {
    /// Machines of the namespace.
    pub machines: Store<Machine>,
    /// MachineSets of the namespace.
    pub sets: Store<MachineSet>,
    /// MachineDeployments of the namespace.
    pub deployments: Store<MachineDeployment>,
    /// MachineClasses of the namespace.
    pub classes: Store<MachineClass>,
    /// Secrets of the namespace, without their data.
    pub secrets: Store<SecretMeta>,
    /// Nodes of the target cluster.
    pub nodes: Store<Node>,
    /// What is known of each Machine's VM.
    pub calls: BTreeMap<Uid, Calls>,
    /// What is known of each class, with the uid of the class it was found out about.
    pub readiness: BTreeMap<Name, Readiness>,
    /// Machines whose deletion a set sent and heard no answer of, until they are gone.
    pub condemned: BTreeSet<Uid>,
    /// When a creation of the Machine of that name was last sent that was not answered, and may still arrive.
    pub unanswered: BTreeMap<Name, Timestamp>,
    /// When a set's or deployment's status was last written.
    pub status_written: BTreeMap<Key, Timestamp>,
    /// The last creation of a set's Machine that the API server refused.
    pub refused: BTreeMap<Name, (String, Timestamp)>,
    /// What must be looked at, and when.
    pub queue: Queue<Key>,
}

/// A kind that the world stores.
pub trait Kind: Stored + Sized {
    /// The kind's store.
    fn store(world: &mut World) -> &mut Store<Self>;
    /// Who must look when an object of the kind was touched.
    fn wakes(world: &World, touched: &Touched<Self>) -> Vec<Wake>;
    /// What else the world forgets or doubts then.
    fn settle(_world: &mut World, _touched: &Touched<Self>) {}
}

impl World {
    /// Takes what a watch brought.
    pub fn observe<K: Kind>(&mut self, change: crate::change::Change<K>, uptime: Duration) {
        let touched = K::store(self).apply(change);
        self.take_in(touched, uptime);
    }

    /// Takes the object that one of our writes returned, and gives it back as it is kept.
    pub fn wrote<K: Kind>(&mut self, mut object: K, uptime: Duration) -> Arc<K> {
        object.shorten();
        let object = Arc::new(object);
        let touched = K::store(self).wrote(Arc::clone(&object));
        self.take_in(touched, uptime);
        object
    }

    /// Our write ended an object.
    pub fn ended<K: Kind>(&mut self, name: &Name, uid: &Uid, uptime: Duration) {
        let touched = K::store(self).ended(name, uid);
        self.take_in(touched, uptime);
    }

    /// A creation of a Machine is about to be sent. Gives when an earlier one was that may still arrive, for [`World::answered`].
    pub fn sends(&mut self, machine: &Name, now: Timestamp) -> Option<Timestamp> {
        self.unanswered.retain(|_, sent| now < *sent + LINGERS);
        self.unanswered.insert(machine.clone(), now)
    }

    /// A creation of a Machine was answered, whatever the answer is; `earlier` was not.
    pub fn answered(&mut self, machine: &Name, earlier: Option<Timestamp>) {
        match earlier {
            Some(earlier) => self.unanswered.insert(machine.clone(), earlier),
            None => self.unanswered.remove(machine),
        };
    }

    /// Asks for keys to be looked at.
    pub fn wake(&mut self, wakes: impl IntoIterator<Item = Wake>, uptime: Duration) {
        for wake in wakes {
            self.queue.push(wake.key, uptime + wake.delay, wake.urgency);
        }
    }

    /// Asks for everything to be looked at, within `spread`: the net under the wake table, and free where nothing is to
    /// be done.
    pub fn look_at_all(&mut self, uptime: Duration, spread: Duration) {
        let machines = self.machines.iter().map(|object| Key::Machine(object.key()));
        let sets = self.sets.iter().map(|object| Key::Set(object.key()));
        let deployments = self.deployments.iter().map(|object| Key::Deployment(object.key()));
        let classes = self.classes.iter().map(|object| Key::Class(object.key()));
        let secrets = self.secrets.iter().map(|object| Key::Secret(object.key()));
        let all: Vec<Key> = machines
            .chain(sets)
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

    /// What is known of a class.
    pub fn readiness(&self, class: &Name) -> &Readiness {
        const UNCHECKED: &Readiness = &Readiness::Unchecked;
        self.readiness.get(class).unwrap_or(UNCHECKED)
    }

    /// What was found out about a class; all that wait for it look again.
    pub fn judged(&mut self, class: &Name, readiness: Readiness, uptime: Duration) {
        if self.readiness.get(class) == Some(&readiness) {
            return;
        }
        self.readiness.insert(class.clone(), readiness);
        let wakes = wake::users_of_class(self, class);
        self.wake(wakes, uptime);
    }

    /// What was found out about a class may hold no longer: it is looked at again before anything is made of it.
    pub fn doubt(&mut self, class: &Name, uptime: Duration) {
        self.readiness.remove(class);
        self.wake([Wake::prompt(Key::Class(class.clone()))], uptime);
    }

    fn take_in<K: Kind>(&mut self, touched: impl IntoIterator<Item = Touched<K>>, uptime: Duration) {
        for touched in touched {
            K::settle(self, &touched);
            let wakes = K::wakes(self, &touched);
            self.wake(wakes, uptime);
        }
    }
}
