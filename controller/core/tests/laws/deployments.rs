//! Laws of deployments' plans, from any state that a deployment, the sets around it and their Machines can be in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use millwright_core::api::template::Scope;
use millwright_core::api::{Machine, MachineDeployment, MachineSet, Phase, keys, meta};
use millwright_core::deployment::{self, Observed, Plan, Step, named};
use millwright_core::ids::{Name, NodeName, NodeRef, Uid};
use millwright_core::ledger::OwnerNotes;
use millwright_core::machine::in_place::marks::{Marks, Outcome, Update};
use millwright_core::refusal::Refusal;
use millwright_core::set::{self, MachineView};
use millwright_core::settings::Settings;
use millwright_core::sight::Sight;
use millwright_core::{narrate, owner};
use millwright_laws as laws;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::dice::{Dice, now, tapes};
use crate::machines::merged;
use crate::sets::{known, refusal};

#[derive(Debug)]
struct Scene {
    deployment: MachineDeployment,
    sets: Vec<Arc<MachineSet>>,
    machines: Vec<Arc<Machine>>,
    notes: OwnerNotes,
    set_notes: OwnerNotes,
    refusals: BTreeMap<Uid, Refusal>,
    condemned: BTreeMap<Uid, Timestamp>,
    unanswered: BTreeMap<Name, Timestamp>,
    updates: BTreeMap<Uid, Update>,
    is_in_sight: bool,
    uids: u32,
}

impl Scene {
    fn throw(dice: &mut Dice) -> Self {
        let count = dice.number(4);
        let sets: Vec<Arc<MachineSet>> = (0..count).map(|number| Arc::new(set(dice, number))).collect();
        let count = dice.number(8);
        let machines: Vec<Arc<Machine>> = (0..count)
            .map(|number| Arc::new(machine(dice, number, sets.len())))
            .collect();
        let some = |dice: &mut Dice| -> Vec<Uid> {
            let uids = machines.iter().filter_map(|machine| machine.uid());
            uids.filter(|_| dice.rarely()).collect()
        };
        let (condemned, mut refused) = (some(dice), some(dice));
        let unwritable = sets
            .iter()
            .filter_map(|set| meta::uid(&set.metadata))
            .filter(|_| dice.rarely());
        refused.extend(unwritable.collect::<Vec<Uid>>());
        let unanswered_sets = match dice.rarely() {
            true => BTreeMap::from([(Name::new("workers-9"), (2, now()))]),
            false => BTreeMap::new(),
        };
        let nodes: Vec<Uid> = machines.iter().filter_map(|machine| machine.uid()).collect();
        let updates = nodes.into_iter().map(|uid| (uid.clone(), update(dice, &uid))).collect();
        let past = |dice: &mut Dice| dice.maybe(Dice::time).filter(|at| *at <= now());
        Self {
            deployment: deployment(dice),
            condemned: condemned.into_iter().map(|uid| (uid, now())).collect(),
            refusals: refused.into_iter().map(|uid| (uid, refusal(dice))).collect(),
            unanswered: BTreeMap::new(),
            notes: OwnerNotes {
                status_written: past(dice),
                numbers_written: past(dice),
                create_refused: if dice.rarely() { Some(refusal(dice)) } else { None },
                unanswered_sets,
                ..OwnerNotes::default()
            },
            set_notes: OwnerNotes::default(),
            updates,
            is_in_sight: !dice.rarely(),
            sets,
            machines,
            uids: 0,
        }
    }

    fn look<T>(&self, look: impl FnOnce(&Observed<'_>) -> T) -> T {
        let machines = |set: &Arc<MachineSet>| -> Vec<MachineView<'_>> {
            let owner = |machine: &Machine| meta::controller_uid(&machine.metadata);
            let is_own = |machine: &&Arc<Machine>| {
                owner(machine).is_none_or(|owner| Some(owner.as_str()) == set.metadata.uid.as_deref())
            };
            let views = self.machines.iter().filter(is_own).map(|machine| MachineView {
                update: machine.uid().and_then(|uid| self.updates.get(&uid).cloned()),
                ..known(machine, &self.refusals, &self.condemned, &BTreeSet::new())
            });
            let mut machines: Vec<MachineView<'_>> = views.collect();
            named::tell(&self.deployment, &mut machines);
            machines
        };
        let machines: Vec<Vec<MachineView<'_>>> = self.sets.iter().map(machines).collect();
        let settings = Settings::new("test");
        let exists = |name: &str| {
            self.machines
                .iter()
                .any(|machine| meta::name(&machine.metadata) == name)
        };
        let sets: Vec<set::Observed<'_>> = self
            .sets
            .iter()
            .zip(&machines)
            .map(|(set, machines)| set::Observed {
                set,
                machines,
                exists: &exists,
                refusal: None,
                class_unchecked: false,
                notes: &self.set_notes,
                unanswered: &self.unanswered,
                allowance: set::Allowance::all(0),
                is_frozen: false,
                unfreeze: false,
                sight: Sight::CLEAR,
                settings: &settings,
            })
            .collect();
        let target_since = self.is_in_sight.then_some(Timestamp::MIN);
        look(&Observed {
            deployment: &self.deployment,
            sets: &sets,
            exists: &|name| self.sets.iter().any(|set| meta::name(&set.metadata) == name),
            notes: &self.notes,
            refusals: &self.refusals,
            sight: Sight {
                target_since,
                ..Sight::CLEAR
            },
            has_target: true,
            replacements: 1,
            plan_set: set::plan,
        })
    }

    fn plan(&self, now: Timestamp) -> (Plan, Vec<laws::Broken>) {
        self.look(|seen| {
            let plan = deployment::plan(seen, now);
            let broken = laws::deployment(seen, &plan, now);
            (plan, broken)
        })
    }

    fn set(&mut self, name: &str) -> &mut MachineSet {
        let found = self.sets.iter_mut().find(|set| meta::name(&set.metadata) == name);
        Arc::make_mut(found.expect("steps name sets that are seen"))
    }

    /// Changes a Machine, if an earlier step has not deleted it.
    fn edit(&mut self, machine: &Machine, change: impl FnOnce(&mut Machine)) {
        let mut machines = self.machines.iter_mut();
        if let Some(found) = machines.find(|known| known.metadata.uid == machine.metadata.uid) {
            change(Arc::make_mut(found));
        }
    }

    /// What the steps change. `false`: the deployment's story ends here.
    fn apply(&mut self, steps: Vec<Step>, at: Timestamp) -> bool {
        for step in steps {
            match step {
                Step::AddFinalizer => {
                    self.deployment
                        .metadata
                        .finalizers
                        .get_or_insert_default()
                        .push(keys::FINALIZER.to_owned());
                }
                Step::RemoveFinalizer => return false,
                Step::Adopt(sets) => {
                    for set in sets {
                        let body = owner::adoption(&set.metadata, &self.deployment);
                        let set = self.set(meta::name(&set.metadata));
                        *set = merged(set, &body);
                    }
                }
                Step::Create(made) => {
                    let mut set: MachineSet = serde_json::from_value(made.body()).expect("it is a set");
                    set.metadata.uid = Some("made".to_owned());
                    self.sets.push(Arc::new(set));
                    self.notes.create_refused = None;
                }
                Step::Change(change) => {
                    let set = self.set(meta::name(&change.set.metadata));
                    *set = merged(set, &change.patch());
                    if change.replicas.is_some() {
                        self.notes.numbers_written = Some(at);
                    }
                }
                Step::Transfer(moved) => {
                    for moved in moved {
                        self.edit(&moved.machine, |machine| *machine = merged(machine, &moved.patch()));
                    }
                }
                Step::Select(patches) => {
                    let chosen = |update: &&mut Update| patches.iter().any(|patch| patch.node == update.node.name);
                    for update in self.updates.values_mut().filter(chosen) {
                        update.marks.is_selected = true;
                    }
                }
                Step::Delete(victims) => {
                    for set in victims {
                        self.set(meta::name(&set.metadata)).metadata.deletion_timestamp = Some(Time(at));
                    }
                }
                Step::Mark(marks) => {
                    for mark in marks {
                        self.edit(&mark.machine, |machine| *machine = merged(machine, &mark.patch()));
                    }
                }
                Step::Thaw => self.deployment = merged(&self.deployment, &set::freeze::thawed()),
                Step::Prune(left) => {
                    let annotations = json!({keys::TRIGGER_DELETION: left});
                    self.deployment = merged(&self.deployment, &json!({"metadata": {"annotations": annotations}}));
                }
                Step::RollBack(made) => self.deployment = merged(&self.deployment, &made.patch),
                Step::Number(number) => {
                    let annotations = json!({keys::REVISION: number.to_string()});
                    self.deployment = merged(&self.deployment, &json!({"metadata": {"annotations": annotations}}));
                }
                Step::Record(status) => {
                    self.deployment = merged(&self.deployment, &status.patch());
                    self.notes.status_written = Some(at);
                }
                Step::Of(set, step) => self.apply_of(&set, step, at),
            }
        }
        true
    }

    fn apply_of(&mut self, set: &Arc<MachineSet>, step: set::Step, at: Timestamp) {
        let name = meta::name(&set.metadata).to_owned();
        match step {
            set::Step::AddFinalizer => self
                .set(&name)
                .metadata
                .finalizers
                .get_or_insert_default()
                .push(keys::FINALIZER.to_owned()),
            set::Step::RemoveFinalizer => self.sets.retain(|set| meta::name(&set.metadata) != name),
            set::Step::Adopt(machines) => {
                for machine in machines {
                    let body = owner::adoption(&machine.metadata, &**set);
                    self.edit(&machine, |machine| *machine = merged(machine, &body));
                }
            }
            set::Step::Release(machines) => {
                for machine in machines {
                    let body = set::claim::release(set, &machine);
                    self.edit(&machine, |machine| *machine = merged(machine, &body));
                }
            }
            set::Step::Reserve { next } => {
                let set = self.set(&name);
                *set = merged(set, &json!({"status": {"nextMachineNumber": next}}));
            }
            set::Step::Thaw => {
                let set = self.set(&name);
                *set = merged(set, &set::freeze::thawed());
            }
            // They are Running at once, and what is deleted is gone at once.
            set::Step::Create(batch) => {
                for made in batch {
                    let mut body = made.body();
                    body["status"] =
                        json!({"currentStatus": {"phase": "Running", "lastUpdateTime": format!("{at:.0}")}});
                    let mut machine: Machine = serde_json::from_value(body).expect("it is a Machine");
                    self.uids += 1;
                    machine.metadata.uid = Some(format!("made-{}", self.uids));
                    self.machines.push(Arc::new(machine));
                }
            }
            set::Step::Delete(victims) => {
                self.machines.retain(|machine| {
                    let uid = machine.uid();
                    !victims.iter().any(|victim| Some(&victim.uid) == uid.as_ref())
                });
            }
            set::Step::Bring(all) => {
                for brought in all {
                    self.edit(&brought.machine, |machine| *machine = merged(machine, &brought.patch()));
                }
            }
            set::Step::GiveUp(all) => {
                for given in all {
                    self.edit(&given.machine, |machine| {
                        *machine = merged(machine, &given.failed.change.patch())
                    });
                }
            }
            set::Step::Keep(marks) => {
                for mark in marks {
                    self.edit(&mark.machine, |machine| *machine = merged(machine, &mark.patch()));
                }
            }
            set::Step::Record(status) => {
                let set = self.set(&name);
                *set = merged(set, &status.patch());
            }
        }
    }
}

impl Scene {
    /// The same, with nothing in the way of a rollout: every write succeeds, and new Machines serve. Old ones are in any phase, half of them
    /// Running, and may be marked to go first.
    fn without_obstacle(mut self, dice: &mut Dice, strategy: &Value) -> Self {
        let spec = json!({"paused": false, "rollbackTo": null, "strategy": strategy, "template": {"spec": class()},
            "revisionHistoryLimit": null, "autoPreserveFailedMachineMax": 0,
            "replicas": self.deployment.spec.replicas.max(0), "selector": {"matchLabels": {"pool": "workers"}}});
        let patch = json!({"metadata": {"deletionTimestamp": null}, "spec": spec});
        self.deployment = merged(&self.deployment, &patch);
        for set in &mut self.sets {
            *set = Arc::new(merged(&**set, &json!({"spec": {"template": {"spec": class()}}})));
        }
        let machines = std::mem::take(&mut self.machines).into_iter();
        self.machines = machines.filter_map(|machine| self.serving(dice, &machine)).collect();
        (self.is_in_sight, self.notes) = (true, OwnerNotes::default());
        (self.refusals, self.condemned, self.updates) = Default::default();
        self
    }

    /// A Machine of a set that is seen, and not on its way out.
    fn serving(&self, dice: &mut Dice, machine: &Arc<Machine>) -> Option<Arc<Machine>> {
        let set = self
            .sets
            .iter()
            .find(|set| owner::controls(&set.metadata, &machine.metadata))?;
        let phase = match (self.is_new(set) || dice.flag(), machine.phase()) {
            (true, _) => "Running",
            (false, Phase::Terminating) => "Unknown",
            (false, phase) => phase.as_str(),
        };
        let priority = dice.pick(&[Value::Null, json!("1")]);
        let patch = json!({
            "metadata": {"deletionTimestamp": null, "labels": {keys::UPDATE_RESULT: null}, "annotations": {keys::PRIORITY: priority}},
            "status": {"currentStatus": {"phase": phase, "lastUpdateTime": "2026-01-01T11:00:00Z"}},
        });
        Some(Arc::new(merged(&**machine, &patch)))
    }

    fn is_new(&self, set: &MachineSet) -> bool {
        let template = &self.deployment.spec.template;
        set.spec.template.semantically_equal(template, Scope::Rollout)
    }

    /// As many Machines as are wanted, all in the set of the template.
    fn is_complete(&self) -> bool {
        let is_own = |set: &&Arc<MachineSet>| owner::controls(&self.deployment.metadata, &set.metadata);
        let count = |set: &MachineSet| {
            let own = self.machines.iter();
            own.filter(|machine| owner::controls(&set.metadata, &machine.metadata))
                .count()
        };
        let own = self.sets.iter().filter(is_own);
        let (new, old): (Vec<_>, Vec<_>) = own.partition(|set| self.is_new(set));
        let new: usize = new.into_iter().map(|set| count(set)).sum();
        i32::try_from(new) == Ok(self.deployment.spec.replicas) && old.into_iter().all(|set| count(set) == 0)
    }
}

fn class() -> Value {
    json!({"class": {"kind": "MachineClass", "name": "small"}})
}

/// What the Node of a Machine bears of an update in place.
fn update(dice: &mut Dice, machine: &Uid) -> Update {
    Update {
        node: NodeRef {
            name: NodeName::new(format!("node-of-{machine}")),
            uid: Uid::new(format!("node-{machine}")),
        },
        version: "1".to_owned(),
        marks: Marks {
            is_candidate: !dice.rarely(),
            is_selected: dice.rarely(),
            outcome: dice.pick(&[None, None, Some(Outcome::Successful), Some(Outcome::Failed)]),
            reason: None,
            since: None,
        },
    }
}

/// A Machine of one of the sets, of another one, or of nobody.
fn machine(dice: &mut Dice, number: u16, sets: usize) -> Machine {
    let owner = dice.number(u16::try_from(sets).unwrap_or(0) + 1);
    let mut machine = crate::sets::machine(dice, number);
    let uid = format!("uid-{owner}");
    let reference = json!([{"apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": uid, "controller": true}]);
    let labels = json!({"pool": "workers", keys::TEMPLATE_HASH: owner.to_string()});
    machine = merged(
        &machine,
        &json!({"metadata": {"ownerReferences": reference, "labels": labels}}),
    );
    if dice.flag() {
        let told =
            json!([{"type": keys::NODE_IN_PLACE_UPDATE, "status": "True", "reason": keys::REASON_UPDATE_SUCCESSFUL}]);
        machine = merged(&machine, &json!({"status": {"conditions": told}}));
    }
    machine
}

fn template(dice: &mut Dice, labels: Value) -> Value {
    json!({
        "metadata": {"labels": labels, "annotations": dice.maybe(|_| json!({"x": "y"}))},
        "spec": {
            "class": {"kind": "MachineClass", "name": dice.pick(&["small", "small", "large", ""])},
            "drainTimeout": dice.pick(&[Value::Null, json!("1h"), json!("2h"), json!("")]),
            "maxEvictRetries": dice.pick(&[Value::Null, json!(0), json!(3)]),
            "nodeTemplate": dice.pick(&[
                Value::Null,
                json!({}),
                json!({"metadata": {"labels": {"a": "1"}}}),
                json!({"metadata": {"labels": {"a": "1", "b": "2"}, "creationTimestamp": null}, "spec": {}}),
                json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
            ]),
        },
    })
}

fn deployment(dice: &mut Dice) -> MachineDeployment {
    let mut metadata = json!({"name": "workers", "namespace": "test", "uid": "uid-d", "generation": 2});
    metadata["finalizers"] = if dice.rarely() {
        json!([])
    } else {
        json!([keys::FINALIZER])
    };
    if dice.rarely() {
        metadata["deletionTimestamp"] = dice.stamp();
        metadata["finalizers"] = dice.pick(&[json!([keys::FINALIZER]), json!([keys::FINALIZER, "orphan"]), json!([])]);
    }
    metadata["annotations"] = dice.pick(&[
        json!({}),
        json!({keys::REVISION: "7", "team": "a"}),
        json!({keys::REVISION: "x"}),
        json!({keys::TRIGGER_DELETION: "workers-1~2026-01-01T11:59:30Z,m-2,,workers-7~x"}),
        json!({keys::TRIGGER_DELETION: ""}),
    ]);
    let selector = if dice.rarely() {
        dice.pick(&[Value::Null, json!({})])
    } else {
        json!({"matchLabels": {"pool": "workers"}})
    };
    let mut body = json!({"metadata": metadata, "spec": {
        "replicas": dice.pick(&[3, 0, 1, 5, -1]),
        "selector": selector,
        "template": template(dice, json!({"pool": "workers"})),
        "paused": dice.rarely(),
        "revisionHistoryLimit": dice.pick(&[Value::Null, json!(0), json!(1), json!(-1)]),
        "progressDeadlineSeconds": dice.pick(&[Value::Null, json!(600), json!(1)]),
        "rollbackTo": if dice.rarely() { json!({"revision": dice.number(4)}) } else { Value::Null },
        "minReadySeconds": dice.pick(&[0, 10]),
        "autoPreserveFailedMachineMax": dice.pick(&[0, 1, 2, -1]),
        "strategy": dice.pick(&[
            Value::Null,
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 1}}),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "x", "maxUnavailable": "900%"}}),
            json!({"type": "Recreate"}),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}),
            json!({"type": "InPlaceUpdate", "inPlaceUpdate": {"maxUnavailable": 1}}),
            json!({"type": "InPlaceUpdate", "inPlaceUpdate": {"maxUnavailable": 1, "maxSurge": 0, "orchestrationType": "Auto"}}),
            json!({"type": "InPlaceUpdate", "inPlaceUpdate": {"maxUnavailable": 0, "maxSurge": 2, "orchestrationType": "Auto"}}),
            json!({"type": "InPlaceUpdate", "inPlaceUpdate": {"maxUnavailable": "50%", "maxSurge": 1, "orchestrationType": "Manual"}}),
            json!({"type": "Worst"}),
        ]),
    }});
    if dice.flag() {
        let condition = json!({
            "type": dice.pick(&[keys::CONDITION_AVAILABLE, keys::CONDITION_PROGRESSING, keys::CONDITION_FROZEN]),
            "status": dice.pick(&["True", "False"]),
            "reason": dice.pick(&[keys::REASON_NEW_SET_AVAILABLE, keys::REASON_MINIMUM_AVAILABLE, keys::REASON_SET_UPDATED, keys::REASON_PAUSED]),
            "message": dice.maybe(|_| "Deployment has minimum availability."),
            "lastTransitionTime": dice.maybe(Dice::stamp),
            "lastUpdateTime": dice.maybe(Dice::stamp),
        });
        body["status"] =
            json!({"replicas": dice.number(4), "conditions": [condition, condition], "collisionCount": dice.number(2)});
    }
    serde_json::from_value(body).expect("it is a deployment")
}

fn set(dice: &mut Dice, number: u16) -> MachineSet {
    let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "MachineDeployment", "name": "d", "uid": uid, "controller": true}]);
    let mut metadata =
        json!({"name": format!("workers-{number}"), "uid": format!("uid-{number}"), "finalizers": [keys::FINALIZER]});
    metadata["creationTimestamp"] = dice.stamp();
    metadata["ownerReferences"] = dice.pick(&[owner("uid-d"), owner("uid-d"), json!([]), owner("uid-x")]);
    metadata["labels"] = json!({"pool": if dice.rarely() { "other" } else { "workers" }});
    metadata["annotations"] = dice.pick(&[json!({}), json!({keys::REVISION: "3"}), json!({keys::REVISION: "x"})]);
    if dice.rarely() {
        metadata["deletionTimestamp"] = dice.stamp();
    }
    let labels = json!({"pool": "workers", keys::TEMPLATE_HASH: number.to_string()});
    let body = json!({
        "metadata": metadata,
        "spec": {"replicas": dice.number(4), "selector": {"matchLabels": labels}, "template": template(dice, labels.clone())},
        "status": dice.maybe(|dice| json!({
            "replicas": dice.number(4),
            "availableReplicas": dice.number(4),
            "machineSetCondition": [{"type": keys::CONDITION_REPLICA_FAILURE, "status": "True", "reason": "r"}],
            "failedMachines": [{"name": "m", "lastOperation": {"state": "Failed", "lastUpdateTime": dice.stamp()}}],
        })),
    });
    serde_json::from_value(body).expect("it is a set")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows: W35.
    #[test]
    fn no_plan_of_a_deployment_breaks_a_law_whatever_is_observed(tape in tapes()) {
        let scene = Scene::throw(&mut Dice::new(tape));
        let (plan, broken) = scene.plan(now());
        prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{scene:#?}", narrate::plan(&plan, now()));
        prop_assert_eq!(&plan, &scene.plan(now()).0);
    }

    #[test]
    fn a_deployment_comes_to_rest_when_nothing_else_moves(tape in tapes()) {
        let mut scene = Scene::throw(&mut Dice::new(tape));
        let (mut at, mut told) = (now(), Vec::new());
        for _ in 0..40 {
            let (plan, broken) = scene.plan(at);
            told.push(narrate::plan(&plan, at));
            prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{scene:#?}", told.join("\n"));
            // One that waits for the end of a refusal's pause rests, too.
            let is_at_rest = plan.wake.is_none_or(|wake| wake > at + SignedDuration::from_secs(1));
            if plan.steps.is_empty() && is_at_rest || !scene.apply(plan.steps, at) {
                return Ok(());
            }
            at += SignedDuration::from_secs(1);
        }
        prop_assert!(false, "it writes and writes:\n{}\n{scene:#?}", told.join("\n"));
    }

    /// Rows: R6.
    #[test]
    fn a_rollout_without_an_obstacle_completes(
        tape in tapes(),
        phases in tapes(),
        bounds in prop::sample::select(&[(1, 0), (0, 1), (2, 1)][..]),
    ) {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": bounds.0, "maxUnavailable": bounds.1}});
        let mut scene = Scene::throw(&mut Dice::new(tape)).without_obstacle(&mut Dice::new(phases), &strategy);
        let begun = format!("{scene:#?}");
        let (mut at, mut told) = (now(), Vec::new());
        for _ in 0..100 {
            let (plan, broken) = scene.plan(at);
            told.push(narrate::plan(&plan, at));
            prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{begun}", told.join("\n"));
            let next = at + SignedDuration::from_secs(1);
            at = match (plan.steps.is_empty(), plan.wake) {
                (true, None) => break,
                (true, Some(wake)) => next.max(wake),
                (false, _) => next,
            };
            scene.apply(plan.steps, at);
        }
        prop_assert!(scene.is_complete(), "it does not complete:\n{}\n{begun}\n{scene:#?}", told.join("\n"));
    }
}

/// Rows: R11.
#[test]
fn a_deployment_ends_only_when_no_set_of_it_can_arrive() {
    let mut scene = Scene::throw(&mut Dice::new(Vec::new()));
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": [keys::FINALIZER]}});
    scene.deployment = merged(&scene.deployment, &leaving);
    (scene.sets, scene.machines) = Default::default();
    scene.notes.unanswered_sets = BTreeMap::from([(Name::new("workers-9"), (2, now()))]);
    let ends_after = |minutes| {
        let (plan, _) = scene.plan(now() + SignedDuration::from_mins(minutes));
        plan.steps.contains(&Step::RemoveFinalizer)
    };
    assert!(!ends_after(0) && !ends_after(4), "the set would make VMs for nobody");
    assert!(ends_after(6));
}
