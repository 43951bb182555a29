//! Who must look again when what changed: the whole table, one function per kind.
//!
//! Says who and how urgently, never what they will do. A change that nobody's plan reads wakes nobody: a thousand nodes'
//! heartbeats must cost nothing (GE-6, W38).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;

use crate::api::{CreationRequest, Machine, MachineClass, MachineDeployment, MachineSet, keys, meta};
use crate::class;
use crate::ids::{DriverName, Name, Uid};
use crate::kinds::{ClassBy, OwnedBy, SecretMeta};
use crate::machine::node;
use crate::queue::Urgency;
use crate::set::bring;
use crate::store::{Store, Stored as _, Touched};
use crate::world::{Kind, World};

/// A thing that one worker at a time looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A Machine.
    Machine(Name),
    /// A MachineSet.
    Set(Name),
    /// A MachineDeployment.
    Deployment(Name),
    /// A MachineClass.
    Class(Name),
    /// A Secret of the control namespace.
    Secret(Name),
    /// What a Machine that is gone may have left in the target cluster, by the Machine's uid.
    Leftover(Uid),
}

impl Key {
    /// A Machine's.
    pub(crate) fn of(machine: &Machine) -> Self {
        Self::Machine(machine.key())
    }

    /// The kind, for metrics and logs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Machine(_) => "Machine",
            Self::Set(_) => "MachineSet",
            Self::Deployment(_) => "MachineDeployment",
            Self::Class(_) => "MachineClass",
            Self::Secret(_) => "Secret",
            Self::Leftover(_) => "Leftover",
        }
    }

    /// The name; of what is left of a Machine, its uid.
    pub fn name(&self) -> &str {
        match self {
            Self::Machine(name) | Self::Set(name) | Self::Deployment(name) | Self::Class(name) | Self::Secret(name) => {
                name.as_str()
            }
            Self::Leftover(uid) => uid.as_str(),
        }
    }
}

/// One line of what the table says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Who.
    pub key: Key,
    /// How urgently.
    pub urgency: Urgency,
    /// After how long at the soonest.
    pub delay: Duration,
}

/// Changes of many children within this time are looked at together: a plan reads all Machines of its group.
const GATHER: Duration = Duration::from_millis(50);
/// Longer for each Machine of a large group, so that plans of ten thousand do not take most of a processor; but never longer than a second.
const GATHER_PER_MACHINE: Duration = Duration::from_micros(40);
/// See [`GATHER_PER_MACHINE`].
const GATHER_AT_MOST: Duration = Duration::from_secs(1);

impl Wake {
    /// At once, even out of a back-off.
    pub fn prompt(key: Key) -> Self {
        Self::after(Duration::ZERO, key, Urgency::Prompt)
    }

    /// At once, unless it is backing off.
    pub fn event(key: Key) -> Self {
        Self::after(Duration::ZERO, key, Urgency::Event)
    }

    /// After a time in which changes of others among so many Machines come together.
    fn gathered(key: Key, machines: usize) -> Self {
        let machines = u32::try_from(machines).unwrap_or(u32::MAX);
        let delay = GATHER_PER_MACHINE
            .saturating_mul(machines)
            .clamp(GATHER, GATHER_AT_MOST);
        Self::after(delay, key, Urgency::Event)
    }

    fn after(delay: Duration, key: Key, urgency: Urgency) -> Self {
        Self { key, urgency, delay }
    }
}

fn both<K>(touched: &Touched<K>) -> impl Iterator<Item = &K> {
    [&touched.old, &touched.new].into_iter().flatten().map(AsRef::as_ref)
}

/// Promptly after a change that a person or another controller made on purpose: appearance, end, spec, deletion.
fn urgently<K: Kind>(touched: &Touched<K>) -> fn(Key) -> Wake {
    let intent = |object: &K| (meta::generation(object.meta()), meta::is_deleting(object.meta()));
    match (&touched.old, &touched.new) {
        (Some(old), Some(new)) if intent(old) == intent(new) => Wake::event,
        (Some(_), _) | (None, _) => Wake::prompt,
    }
}

impl Kind for Machine {
    fn store(world: &mut World) -> &mut Store<Self> {
        &mut world.machines
    }

    fn wakes(world: &World, touched: &Touched<Self>) -> Vec<Wake> {
        let mut wakes = Vec::new();
        let own = both(touched).next().map(Key::of);
        wakes.extend(own.map(urgently(touched)));
        if counts_differently(touched) {
            for machine in both(touched) {
                wakes.extend(owners_of(world, machine));
            }
        }
        // The Secrets' finalizers depend on whether any VM was asked for with them.
        let gone = touched.old.iter().filter(|_| touched.new.is_none());
        let secrets = gone
            .filter_map(|gone| gone.creation_request())
            .flat_map(CreationRequest::secret_keys);
        wakes.extend(secrets.map(|key| Wake::event(Key::Secret(Name::new(key.name)))));
        // The class's finalizer depends on whether any Machine names it.
        if touched.old.is_none() || touched.new.is_none() {
            wakes.extend(
                both(touched)
                    .filter_map(Machine::class_name)
                    .map(|class| Wake::event(Key::Class(Name::new(class)))),
            );
        }
        wakes
    }

    /// A deletion that was begun before our finalizer was stored can end the object in spite of it, and no deletionTimestamp is ever
    /// seen (kubernetes#77988). Its VM is found by `orphans`; its token is nobody's but ours.
    fn vanished(touched: &Touched<Self>) -> Option<Arc<Self>> {
        let old = touched.old.as_ref()?;
        let new = touched.new.as_ref();
        let is_there = new.is_some_and(|new| new.metadata.uid == old.metadata.uid);
        let is_ours = meta::has_finalizer(&old.metadata, keys::FINALIZER);
        let vanished = !is_there && is_ours && !meta::is_deleting(&old.metadata) && !old.has_joined();
        vanished.then(|| Arc::clone(old))
    }
}

/// Whether a set could count or rank the Machine otherwise than before.
fn counts_differently(touched: &Touched<Machine>) -> bool {
    let (Some(old), Some(new)) = (&touched.old, &touched.new) else {
        return true;
    };
    let counted = |machine: &Machine| {
        (
            machine.phase().clone(),
            meta::is_deleting(&machine.metadata),
            machine.metadata.labels.clone(),
            machine.metadata.annotations.clone(),
            meta::controller_uid(&machine.metadata),
            machine.last_operation().cloned(),
            machine.preserved_until(),
        )
    };
    counted(old) != counted(new) || !bring::is_same(&old.spec, &new.spec)
}

/// Under which key a set is planned: its deployment's, because a deployment is planned together with its sets; else its own.
pub fn group_of(world: &World, set: &MachineSet) -> Key {
    match world.deployments.controller(&set.metadata) {
        Some(deployment) => Key::Deployment(deployment.key()),
        None => Key::Set(set.key()),
    }
}

/// The group of the set that controls the Machine; all groups where nobody does, because each set might adopt it.
fn owners_of(world: &World, machine: &Machine) -> Vec<Wake> {
    let mut keys: Vec<Key> = match meta::controller_uid(&machine.metadata) {
        Some(_) => {
            let set = world.sets.controller(&machine.metadata).into_iter();
            set.map(|set| group_of(world, set)).collect()
        }
        None => world.sets.iter().map(|set| group_of(world, set)).collect(),
    };
    keys.sort();
    keys.dedup();
    let wakes = keys.into_iter().map(|key| {
        let machines = machines_of(world, &key);
        Wake::gathered(key, machines)
    });
    wakes.collect()
}

/// How many Machines a plan of the group reads.
fn machines_of(world: &World, group: &Key) -> usize {
    let owned = |set: &MachineSet| {
        let uid = set.metadata.uid.as_deref();
        world.machines.count(OwnedBy::Controller, uid.unwrap_or_default())
    };
    match group {
        Key::Deployment(name) => {
            let deployment = world.deployments.get(name).into_iter();
            let sets = deployment.flat_map(|deployment| world.sets.children(&deployment.metadata));
            sets.map(|set| owned(set)).sum()
        }
        Key::Set(name) => world.sets.get(name).map_or(0, |set| owned(set)),
        Key::Machine(_) | Key::Class(_) | Key::Secret(_) | Key::Leftover(_) => 0,
    }
}

impl Kind for MachineSet {
    fn store(world: &mut World) -> &mut Store<Self> {
        &mut world.sets
    }

    fn wakes(world: &World, touched: &Touched<Self>) -> Vec<Wake> {
        let wake = urgently(touched);
        let mut wakes = led_otherwise(world, touched);
        for set in both(touched) {
            wakes.push(wake(group_of(world, set)));
            if meta::controller_uid(&set.metadata).is_none() {
                let deployments = world.deployments.iter();
                let keys = deployments.map(|deployment| Key::Deployment(deployment.key()));
                wakes.extend(keys.map(Wake::event));
            }
        }
        wakes
    }
}

/// Machines of a set that another deployment has now, or none: their Nodes stand otherwise in a rollout.
fn led_otherwise(world: &World, touched: &Touched<MachineSet>) -> Vec<Wake> {
    let (Some(old), Some(new)) = (&touched.old, &touched.new) else {
        return Vec::new();
    };
    if meta::controller_uid(&old.metadata) == meta::controller_uid(&new.metadata) {
        return Vec::new();
    }
    let machines = world.machines.children(&new.metadata);
    machines.map(|machine| Wake::event(Key::of(machine))).collect()
}

impl Kind for MachineDeployment {
    fn store(world: &mut World) -> &mut Store<Self> {
        &mut world.deployments
    }

    fn wakes(world: &World, touched: &Touched<Self>) -> Vec<Wake> {
        let keys = both(touched).map(|deployment| Key::Deployment(deployment.key()));
        let own = keys.map(urgently(touched));
        // Sets of a deployment that is gone are planned alone from now on.
        let gone = touched.old.iter().filter(|_| touched.new.is_none());
        let left = gone.flat_map(|gone| world.sets.children(&gone.metadata));
        let left = left.map(|set| Wake::event(group_of(world, set)));
        own.chain(left).chain(steered(world, touched)).collect()
    }
}

/// Machines whose Nodes a change of the deployment's template, or of what rolls it, concerns.
fn steered(world: &World, touched: &Touched<MachineDeployment>) -> Vec<Wake> {
    let (Some(old), Some(new)) = (&touched.old, &touched.new) else {
        return Vec::new();
    };
    let read = |deployment: &MachineDeployment| {
        let spec = &deployment.spec;
        (spec.template.clone(), spec.paused, spec.strategy.clone())
    };
    if meta::generation(&old.metadata) == meta::generation(&new.metadata) || read(old) == read(new) {
        return Vec::new();
    }
    let sets = world.sets.children(&new.metadata);
    let machines = sets.flat_map(|set| world.machines.children(&set.metadata));
    machines.map(|machine| Wake::event(Key::of(machine))).collect()
}

impl Kind for MachineClass {
    fn store(world: &mut World) -> &mut Store<Self> {
        &mut world.classes
    }

    fn wakes(world: &World, touched: &Touched<Self>) -> Vec<Wake> {
        let mut wakes = Vec::new();
        for class in both(touched) {
            let name = class.key();
            if is_only_told(touched) {
                return vec![Wake::event(Key::Class(name))];
            }
            wakes.extend(users_of_class(world, &name));
            wakes.push(Wake::prompt(Key::Class(name)));
            wakes.extend(
                class::secret_keys(class)
                    .into_iter()
                    .map(|key| Wake::event(Key::Secret(Name::new(key.name)))),
            );
        }
        wakes
    }

    fn doubts(_: &World, touched: &Touched<Self>) -> Vec<Name> {
        // Labels travel to the driver, which may say by them where the VMs are.
        let said = |class: &MachineClass| {
            let MachineClass { spec, metadata, .. } = class;
            (spec.clone(), metadata.labels.clone(), meta::uid(metadata))
        };
        let same = touched.old.as_ref().map(|old| said(old)) == touched.new.as_ref().map(|new| said(new));
        let doubted = both(touched).next().filter(|_| !same);
        doubted.map(|class| class.key()).into_iter().collect()
    }
}

/// Whether nothing changed that Machines, sets or Secrets look at: then it was the status, and nobody else need look.
fn is_only_told(touched: &Touched<MachineClass>) -> bool {
    let (Some(old), Some(new)) = (&touched.old, &touched.new) else {
        return false;
    };
    let same_status = old.status == new.status;
    let same_rest = old.spec == new.spec && {
        let (old, new) = (&old.metadata, &new.metadata);
        (&old.uid, &old.finalizers, &old.deletion_timestamp) == (&new.uid, &new.finalizers, &new.deletion_timestamp)
    };
    !same_status && same_rest
}

/// Machines and sets that wait for what is said of a class.
pub fn users_of_class(world: &World, class: &Name) -> Vec<Wake> {
    let machines = world.machines.find(OwnedBy::Class, class.as_str());
    let machines = machines.map(|machine| Wake::prompt(Key::of(machine)));
    let sets = world.sets.find(OwnedBy::Class, class.as_str());
    machines
        .chain(sets.map(|set| Wake::prompt(group_of(world, set))))
        .collect()
}

impl Kind for SecretMeta {
    fn store(world: &mut World) -> &mut Store<Self> {
        &mut world.secrets
    }

    fn wakes(world: &World, touched: &Touched<Self>) -> Vec<Wake> {
        let Some(secret) = both(touched).next() else {
            return Vec::new();
        };
        let classes = classes_naming(world, secret)
            .into_iter()
            .map(|class| Wake::prompt(Key::Class(class)));
        classes.chain([Wake::event(Key::Secret(secret.key()))]).collect()
    }

    fn doubts(world: &World, touched: &Touched<Self>) -> Vec<Name> {
        // Our own finalizer is no news about the data, but telling the two apart would cost a read of the Secret, and
        // a class is checked within moments.
        both(touched).flat_map(|secret| classes_naming(world, secret)).collect()
    }
}

fn classes_naming(world: &World, secret: &SecretMeta) -> Vec<Name> {
    let place = format!("{}/{}", meta::namespace(&secret.metadata), meta::name(&secret.metadata));
    world
        .classes
        .find(ClassBy::Secret, &place)
        .map(|class| class.key())
        .collect()
}

/// Machines whose Nodes are drained, and who waited for what changed about attached volumes; all of them, where those are known for the
/// first time.
pub fn drains(world: &World, touched: &[Touched<VolumeAttachment>], all: bool) -> Vec<Wake> {
    let concerned = world.ledger.drains.values().filter(|drain| {
        let mut changes = touched.iter().flat_map(both);
        let concerns = |change: &VolumeAttachment| {
            let volume = change.spec.source.persistent_volume_name.as_deref();
            drain.concerns(volume, &change.spec.node_name)
        };
        all || changes.any(concerns)
    });
    concerned
        .map(|drain| Wake::event(Key::Machine(drain.machine.clone())))
        .collect()
}

impl Kind for Node {
    fn store(world: &mut World) -> &mut Store<Self> {
        &mut world.nodes
    }

    fn wakes(world: &World, touched: &Touched<Self>) -> Vec<Wake> {
        if !reads_differently(touched) {
            return Vec::new();
        }
        let mut wakes = Vec::new();
        for node in both(touched) {
            let by_name = world.machines.find(OwnedBy::Node, meta::name(&node.metadata));
            let id = node::provider_id(node).into_iter();
            let by_id = id.flat_map(|id| world.machines.find(OwnedBy::ProviderId, id));
            wakes.extend(by_name.chain(by_id).map(|machine| Wake::event(Key::of(machine))));
        }
        wakes
    }
}

/// Whether a Machine's plan could read the Node otherwise than before. Heartbeats it does not read.
fn reads_differently(touched: &Touched<Node>) -> bool {
    let (Some(old), Some(new)) = (&touched.old, &touched.new) else {
        return true;
    };
    let (was, is) = (&old.metadata, &new.metadata);
    let capacity = |node: &Node| node.status.as_ref().and_then(|status| status.capacity.clone());
    meta::is_deleting(was) != meta::is_deleting(is)
        || meta::has_finalizer(was, keys::NODE_FINALIZER) != meta::has_finalizer(is, keys::NODE_FINALIZER)
        || was.labels != is.labels
        || was.annotations != is.annotations
        || node::provider_id(old) != node::provider_id(new)
        || node::taints(old) != node::taints(new)
        || capacity(old) != capacity(new)
        || node::attached(old) != node::attached(new)
        || node::conditions_differ(node::conditions(old), node::conditions(new))
}

/// A driver came, went or changed: its classes, and the Machines and sets that wait for them.
pub fn driver_changed(world: &World, driver: &DriverName) -> Vec<Wake> {
    let mut wakes = Vec::new();
    for class in classes_of_driver(world, driver) {
        wakes.extend(users_of_class(world, &class));
        wakes.push(Wake::prompt(Key::Class(class)));
    }
    // Machines whose VM was asked of it, whatever their class says now.
    let others = world.machines.iter().filter(|machine| {
        let asked = machine.creation_request().and_then(|request| request.driver());
        asked.as_ref() == Some(driver)
    });
    wakes.extend(others.map(|machine| Wake::prompt(Key::of(machine))));
    wakes
}

/// The classes that name a driver, and those that name none: such a class has the only driver there is, so each driver that comes or goes
/// concerns it.
pub fn classes_of_driver(world: &World, driver: &DriverName) -> Vec<Name> {
    let classes = world.classes.find(ClassBy::Driver, driver.as_str());
    let unnamed = world.classes.find(ClassBy::Driver, "");
    classes.chain(unnamed).map(|class| class.key()).collect()
}
