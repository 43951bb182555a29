//! Laws of deployments' plans, from any state that a deployment and the sets around it can be in.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use millwright_core::api::{MachineDeployment, MachineSet, keys, meta};
use millwright_core::deployment::{self, Observed, Plan, Step};
use millwright_core::ids::Uid;
use millwright_core::ledger::OwnerNotes;
use millwright_core::{check, narrate, owner};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::dice::{Dice, now, tapes};
use crate::machines::merged;
use crate::sets::refusal;

#[derive(Debug)]
struct Scene {
    deployment: MachineDeployment,
    sets: Vec<Arc<MachineSet>>,
    notes: OwnerNotes,
}

impl Scene {
    fn throw(dice: &mut Dice) -> Self {
        let count = dice.number(4);
        let sets = (0..count).map(|number| Arc::new(set(dice, number))).collect();
        let status_written = dice.maybe(Dice::time).filter(|at| *at <= now());
        Self {
            deployment: deployment(dice),
            sets,
            notes: OwnerNotes {
                status_written,
                create_refused: if dice.rarely() { Some(refusal(dice)) } else { None },
                ..OwnerNotes::default()
            },
        }
    }

    fn plan(&self, now: Timestamp) -> (Plan, Vec<check::Broken>) {
        let seen = Observed {
            deployment: &self.deployment,
            sets: &self.sets,
            exists: &|name| self.sets.iter().any(|set| meta::name(&set.metadata) == name),
            notes: &self.notes,
        };
        let plan = deployment::plan(&seen, now);
        let broken = check::deployment(&seen, &plan, now);
        (plan, broken)
    }

    fn set(&mut self, name: &str) -> &mut MachineSet {
        let found = self.sets.iter_mut().find(|set| meta::name(&set.metadata) == name);
        Arc::make_mut(found.expect("steps name sets that are seen"))
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
                        let owners = owner::adopted(&set.metadata, &self.deployment);
                        self.set(meta::name(&set.metadata)).metadata.owner_references = Some(owners);
                    }
                }
                Step::Release(sets) => {
                    for set in sets {
                        let owners = owner::released(&set.metadata, Some(&Uid::new("uid-d")));
                        self.set(meta::name(&set.metadata)).metadata.owner_references = Some(owners);
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
                }
                Step::Delete(victims) => {
                    for (name, _) in victims {
                        self.set(name.as_str()).metadata.deletion_timestamp = Some(Time(at));
                    }
                }
                Step::Number(number) => {
                    let annotations = json!({keys::REVISION: number.to_string()});
                    self.deployment = merged(&self.deployment, &json!({"metadata": {"annotations": annotations}}));
                }
                Step::Record(status) => {
                    self.deployment = merged(&self.deployment, &status.into_patch());
                    self.notes.status_written = Some(at);
                }
            }
        }
        true
    }
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
    }
    metadata["annotations"] = dice.pick(&[
        json!({}),
        json!({keys::REVISION: "7", "team": "a"}),
        json!({keys::REVISION: "x"}),
    ]);
    let selector = if dice.rarely() {
        dice.pick(&[Value::Null, json!({})])
    } else {
        json!({"matchLabels": {"pool": "workers"}})
    };
    let mut body = json!({"metadata": metadata, "spec": {
        "replicas": dice.pick(&[3, 0, 1, -1]),
        "selector": selector,
        "template": template(dice, json!({"pool": "workers"})),
        "paused": dice.rarely(),
        "minReadySeconds": dice.pick(&[0, 10]),
        "strategy": dice.pick(&[
            Value::Null,
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 1}}),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "x", "maxUnavailable": "900%"}}),
            json!({"type": "Worst"}),
        ]),
    }});
    if dice.flag() {
        let condition = json!({
            "type": dice.pick(&[keys::CONDITION_AVAILABLE, keys::CONDITION_PROGRESSING, keys::CONDITION_FROZEN]),
            "status": dice.pick(&["True", "False"]),
            "reason": dice.pick(&[keys::REASON_NEW_SET_AVAILABLE, keys::REASON_MINIMUM_AVAILABLE]),
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
        for _ in 0..10 {
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
}
