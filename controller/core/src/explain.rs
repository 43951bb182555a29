//! What a manager would do about an object now, and why: the planners' own answer, in words, for `millwright why`.
//!
//! Plans from the objects alone, as a manager that has watched all along, that has nothing under way, and whose drivers answer:
//! what a running manager knows beside the objects (calls under way, requests without an answer, pauses between retries) is in its
//! memory only. Whether machines can be made of a class, and what stops driver calls about them, is taken from the class's own
//! conditions. Acts on nothing.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::api::{Machine, MachineClass, MachineDeployment, MachineSet, Phase, meta};
use crate::change::Change;
use crate::circuit_breaker::is_suspended;
use crate::class;
use crate::deployment;
use crate::driver::DriverInfo;
use crate::ids::{DriverName, Name};
use crate::kin;
use crate::kinds::OwnedBy;
use crate::ledger::Calls;
use crate::machine::{self, DriverView};
use crate::narrate::{Narrate, relative};
use crate::plan::Plan;
use crate::set::{self, Asked};
use crate::settings::Settings;
use crate::sight::{Sight, later};
use crate::wake::{Key, group_of};
use crate::world::{Kind, World};

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A MachineDeployment.
    Deployment(Name),
    /// A MachineSet.
    Set(Name),
    /// A Machine.
    Machine(Name),
    /// A MachineClass.
    Class(Name),
}

/// The objects of a namespace, and the Nodes, as they were read.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// All deployments.
    pub deployments: Vec<MachineDeployment>,
    /// All sets.
    pub sets: Vec<MachineSet>,
    /// All Machines.
    pub machines: Vec<Machine>,
    /// All classes.
    pub classes: Vec<MachineClass>,
    /// Nodes of the target cluster, where they are of interest.
    pub nodes: Vec<Node>,
    /// Pods of the Node of a Machine that is deleted, by the Machine's name.
    pub pods: Option<(Name, Vec<Pod>)>,
}

/// A plan in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The plan's own reason.
    pub why: String,
    /// What would be done now, in order.
    pub steps: Vec<String>,
    /// What is left alone although something is wanted of it: `NAME: reason`.
    pub withheld: Vec<String>,
    /// When it is looked at again if nothing happens: "in 5s".
    pub again: Option<String>,
    /// Whether the object is planned as a part of another, and of which.
    pub part_of: Option<String>,
    /// What the rollout waits for, where it can do nothing itself.
    pub waits_for: Option<String>,
}

impl Explanation {
    fn of<S: Narrate, W: std::fmt::Display>(plan: &Plan<S, W>, now: Timestamp) -> Self {
        Self {
            why: plan.why.to_string(),
            steps: plan.steps.iter().map(Narrate::narrate).collect(),
            withheld: plan
                .withheld
                .iter()
                .map(|(name, why)| format!("{name}: {why}"))
                .collect(),
            again: plan.wake.map(|at| relative(coarse(at, now), now)),
            part_of: None,
            waits_for: None,
        }
    }
}

/// The time, in whole seconds from now where it is far off: nobody waits for a fraction of one.
fn coarse(at: Timestamp, now: Timestamp) -> Timestamp {
    let left = at.duration_since(now);
    match left < SignedDuration::from_secs(10) {
        true => at,
        false => later(
            now,
            SignedDuration::from_secs(left.as_secs() + i64::from(left.subsec_nanos() > 0)),
        ),
    }
}

/// The world as it was read, at `now`. What is known of the classes is what their conditions say.
pub fn world(read: Read, now: Timestamp) -> World {
    let mut world = World::default();
    let at = Duration::ZERO;
    for class in read.classes {
        let (name, readiness) = (Name::new(meta::name(&class.metadata)), class::told_readiness(&class));
        world.observe(Change::Applied(class), at);
        let stamp = world.ledger.begins_check(&name);
        world.judged(&name, stamp, readiness, at);
    }
    sees(&mut world, read.deployments);
    sees(&mut world, read.sets);
    sees(&mut world, read.machines);
    world.ledger.breakers.hold();
    sees(&mut world, read.nodes);
    if let Some((machine, pods)) = read.pods {
        sees_pods(&mut world, &machine, pods, now);
    }
    world
}

fn sees<K: Kind>(world: &mut World, objects: Vec<K>) {
    let objects = objects.into_iter();
    objects.for_each(|object| world.observe(Change::Applied(object), Duration::ZERO));
}

/// As if the Node had been watched.
fn sees_pods(world: &mut World, name: &Name, pods: Vec<Pod>, now: Timestamp) {
    let Some(machine) = world.machines.get(name).cloned() else {
        return;
    };
    let node = kin::node_of(world, &machine).node.map(machine::node::name);
    let (Some(uid), Some(node)) = (machine.uid(), node) else {
        return;
    };
    world.drains(name, &uid, &node, now);
    let listed = pods.into_iter().map(Change::Listed);
    for change in [Change::Restarted].into_iter().chain(listed).chain([Change::Synced]) {
        world.see_pods(name, &uid, change, now, Duration::ZERO);
    }
}

/// What a manager of these settings would do about the subject, and why. None: there is no such object.
pub fn explain(world: &World, subject: &Subject, settings: &Settings, now: Timestamp) -> Option<Explanation> {
    match subject {
        Subject::Deployment(name) => {
            let (plan, waits_for) = of_deployment(world, name, settings, now)?;
            Some(Explanation {
                waits_for: waits_for.filter(|_| plan.steps.iter().all(is_status)),
                ..Explanation::of(&plan, now)
            })
        }
        Subject::Set(name) => of_set(world, name, settings, now),
        Subject::Machine(name) => of_machine(world, name, settings, now),
        Subject::Class(name) => of_class(world, name, now),
    }
}

/// The plan of a deployment, and what its rollout waits for.
fn of_deployment(
    world: &World,
    name: &Name,
    settings: &Settings,
    now: Timestamp,
) -> Option<(deployment::Plan, Option<String>)> {
    let deployment = world.deployments.get(name)?;
    let set_exists = |set: &str| world.sets.get(&Name::new(set)).is_some();
    Some(asking(world, settings, |asked| {
        deployment::look(asked, deployment, &set_exists, set::plan, |seen| {
            let plan = deployment::plan(seen, now);
            (plan, deployment::plan::waits_for(seen, now))
        })
    }))
}

/// What a plan of a set or of a deployment asks.
fn asking<T>(world: &World, settings: &Settings, ask: impl FnOnce(&Asked<'_>) -> T) -> T {
    ask(&Asked {
        world,
        machine_exists: &|machine| world.machines.get(&Name::new(machine)).is_some(),
        // Nobody is asked about a class here: where it was never looked at, Machines are made and say so.
        can_check: &|_| false,
        sight: Sight::CLEAR,
        settings,
    })
}

/// A set that a deployment controls is planned with it: of that plan, what is the set's.
fn of_set(world: &World, name: &Name, settings: &Settings, now: Timestamp) -> Option<Explanation> {
    let set = world.sets.get(name)?;
    let Key::Deployment(owner) = group_of(world, set) else {
        let plan = asking(world, settings, |asked| {
            set::look(asked, set, |seen| set::plan(seen, now))
        });
        return Some(Explanation::of(&plan, now));
    };
    let (mut plan, _) = of_deployment(world, &owner, settings, now)?;
    plan.steps.retain(|step| is_about(step, name));
    let own = world.machines.children(&set.metadata);
    let own: Vec<&str> = own.map(|machine| meta::name(&machine.metadata)).collect();
    plan.withheld
        .retain(|(left, _)| left == name || own.contains(&left.as_str()));
    Some(Explanation {
        part_of: Some(format!("machinedeployment/{owner}")),
        ..Explanation::of(&plan, now)
    })
}

fn is_status(step: &deployment::Step) -> bool {
    match step {
        deployment::Step::Record(_) => true,
        deployment::Step::Of(_, step) => matches!(step, set::Step::Record(_)),
        _ => false,
    }
}

fn is_about(step: &deployment::Step, set: &Name) -> bool {
    use deployment::Step;
    let is_it = |other: &MachineSet| meta::name(&other.metadata) == set.as_str();
    match step {
        Step::Of(of, _) => is_it(of),
        Step::Change(change) => is_it(&change.set),
        Step::Adopt(sets) | Step::Delete(sets) => sets.iter().any(|other| is_it(other)),
        Step::Transfer(moved) => moved.iter().any(|moved| is_it(&moved.to)),
        _ => false,
    }
}

fn of_machine(world: &World, name: &Name, settings: &Settings, now: Timestamp) -> Option<Explanation> {
    let machine: &Arc<Machine> = world.machines.get(name)?;
    let class_name = machine.class_name().map(Name::new);
    let class = class_name.as_ref().and_then(|class| world.classes.get(class));
    let asked = machine.creation_request().and_then(|request| request.driver());
    // Which driver a class without one has is in the manager's memory. It has one where its condition calls it good.
    let unnamed = class.filter(|class| class::is_found_good(class));
    let driver = asked
        .or_else(|| class?.driver())
        .or_else(|| unnamed.map(|_| DriverName::new("the only driver")))
        .map(answering);
    // Whether the VM runs is asked by the manager, which has done so: what it came to stands in the Machine's own words.
    let is_doubtful = matches!(machine.phase(), Phase::Unknown | Phase::Failed);
    let calls = Calls {
        asked_at: is_doubtful.then_some(now),
        ..Calls::default()
    };
    let asked = machine::view::Asked {
        world,
        driver: driver.as_ref().map_or(DriverView::Unnamed, DriverView::Ready),
        calls: &calls,
        sight: Sight::CLEAR,
        settings,
    };
    let plan = machine::look(asked, machine, |seen| machine::plan(seen, now));
    let mut explanation = Explanation::of(&plan, now);
    // When the next probe is due, the manager alone knows.
    if is_suspended(machine) {
        explanation.again = None;
    }
    Some(explanation)
}

/// A driver that answers and can do what every driver must.
fn answering(name: DriverName) -> DriverInfo {
    DriverInfo {
        name,
        vendor_version: String::new(),
        capabilities: std::collections::BTreeSet::new(),
        propagation_delay: SignedDuration::ZERO,
    }
}

fn of_class(world: &World, name: &Name, now: Timestamp) -> Option<Explanation> {
    let class = world.classes.get(name)?;
    let mut users = world.machines.find(OwnedBy::Class, name.as_str());
    let readiness = world.ledger.readiness(name);
    let plan = class::plan(&class::Observed {
        class,
        machines: world.machines.count(OwnedBy::Class, name.as_str()),
        first_machine: users.next().map(|machine| meta::name(&machine.metadata)),
        readiness,
        // Its condition says already what is known here.
        found: &class::Readiness::Unchecked,
        driver_is_here: true,
        circuits: world.ledger.breakers.circuits(name),
        is_being_checked: false,
        status_refused: None,
        reported: None,
        now,
    });
    let explanation = Explanation::of(&plan, now);
    // The object may be as it should be, and useless all the same.
    let why = match (plan.why, readiness) {
        (class::Why::Settled, class::Readiness::Faulty(fault)) => format!("no machine can be made of it: {fault}"),
        _ => explanation.why.clone(),
    };
    Some(Explanation { why, ..explanation })
}
