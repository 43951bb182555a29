//! Carries out steps against the API server and the cloud of the stage, as the shell does against real ones.

use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, MachineClass, MachineDeployment, MachineSet, keys, meta};
use millwright_core::change::Change;
use millwright_core::class::{self, Readiness, Recipe};
use millwright_core::ids::{Name, Uid};
use millwright_core::kin;
use millwright_core::wake::Key;
use millwright_core::{deployment, machine, set};
use serde_json::{Value, json};

use crate::etcd::{Refused, Resource};
use crate::stage::{Crash, Flight, Stage};

impl Stage {
    fn took<K: Resource>(&mut self, written: Result<K, Refused>) -> bool {
        let Ok(object) = written else { return false };
        self.world.wrote(object, self.uptime);
        true
    }

    fn left<K: Resource>(&mut self, name: &Name, uid: &Uid, left: Result<Option<K>, Refused>) -> bool {
        match left {
            Ok(Some(object)) => self.took(Ok(object)),
            Ok(None) => {
                self.world.ended::<K>(name, uid, self.uptime);
                self.assert_no_leak();
                true
            }
            Err(_) => false,
        }
    }

    /// Somebody else's change arrives.
    pub fn saw<K: Resource>(&mut self, object: K) {
        self.world.observe(Change::Applied(object), self.uptime);
    }

    /// Carries out one step. `false`: it did not take effect, and those after it are void.
    pub fn machine_step(&mut self, seen: &Machine, step: machine::Step) -> bool {
        use machine::Step;
        let (name, uid) = meta::identity(&seen.metadata);
        let now = self.now();
        match step {
            Step::AddFinalizer => {
                let written = self.etcd.add_finalizer::<Machine>(&name, &uid, keys::FINALIZER);
                self.took(written)
            }
            Step::Confirm => {
                let live = self.etcd.get::<Machine>(&name);
                live.is_some_and(|live| live.uid().as_ref() == Some(&uid) && !meta::is_deleting(&live.metadata))
            }
            Step::Record(change) => {
                let written = self.etcd.merge_status::<Machine>(&name, Some(&uid), &change.patch());
                self.took(written)
            }
            Step::EnsureToken => {
                self.tokens.insert(uid);
                true
            }
            Step::DropToken => {
                self.tokens.remove(&uid);
                true
            }
            Step::Call(call) => {
                self.world.calls.entry(uid.clone()).or_default().begin(call);
                let known = self
                    .etcd
                    .machines
                    .get(&name)
                    .is_some_and(|live| live.provider_id().is_some());
                let class = seen.class_name().map(Name::new);
                let digest = class.and_then(|class| match self.world.readiness(&class) {
                    Readiness::Ready(recipe) => Some(recipe.digest.clone()),
                    Readiness::Unchecked | Readiness::Faulty(_) => None,
                });
                self.flights.push(Flight {
                    machine: name,
                    uid,
                    call,
                    digest,
                    known,
                    unheard: false,
                });
                true
            }
            Step::Identify { provider_id, node } => {
                let mut patch = json!({});
                if let Some(node) = node {
                    patch["metadata"]["labels"][keys::NODE] = json!(node);
                }
                if let Some(id) = provider_id {
                    patch["spec"]["providerID"] = json!(id);
                }
                let written = self.etcd.merge::<Machine>(&name, Some(&uid), &patch);
                self.took(written)
            }
            Step::GuardNode(node) => {
                let node = Name::new(node.as_str());
                let patch = json!({"metadata": {
                    "labels": {keys::MACHINE_NAME: name}, "finalizers": [keys::NODE_FINALIZER],
                }});
                let written = self.etcd.merge::<Node>(&node, None, &patch);
                self.took(written)
            }
            Step::DeleteMachine => {
                let left = self.etcd.delete::<Machine>(&name, Some(&uid), now);
                self.left(&name, &uid, left)
            }
            Step::RemoveNode(node) => self.remove_node(seen, &Name::new(node.as_str())),
            Step::RemoveFinalizer => {
                let left = self.etcd.remove_finalizer::<Machine>(&name, &uid, keys::FINALIZER);
                self.left(&name, &uid, left)
            }
            Step::StepDown => false,
        }
    }

    fn remove_node(&mut self, machine: &Machine, name: &Name) -> bool {
        let now = self.now();
        let Some(node) = self
            .etcd
            .get::<Node>(name)
            .filter(|node| kin::goes_with(&self.world, machine, node))
        else {
            return true;
        };
        let uid = Uid::new(node.metadata.uid.unwrap_or_default());
        if let Ok(Some(_)) = self.etcd.delete::<Node>(name, Some(&uid), now) {
            let _gone = self.etcd.remove_finalizer::<Node>(name, &uid, keys::NODE_FINALIZER);
        }
        self.world.ended::<Node>(name, &uid, self.uptime);
        true
    }

    /// Carries out one step; creations and deletions of many are as many chances to die.
    pub fn set_step(&mut self, seen: &MachineSet, step: set::Step) -> Result<(), Crash> {
        use set::Step;
        let (name, uid) = meta::identity(&seen.metadata);
        let now = self.now();
        match step {
            Step::AddFinalizer => {
                let written = self.etcd.add_finalizer::<MachineSet>(&name, &uid, keys::FINALIZER);
                self.took(written);
            }
            Step::RemoveFinalizer => {
                let left = self.etcd.remove_finalizer::<MachineSet>(&name, &uid, keys::FINALIZER);
                self.left(&name, &uid, left);
            }
            Step::Adopt(child, child_uid) => {
                self.own::<Machine>(&child, &child_uid, Some(set::plan::owner_reference(seen)));
            }
            Step::Release(child, child_uid) => self.own::<Machine>(&child, &child_uid, None),
            Step::Reserve { next } => {
                let body = json!({"status": {"nextMachineNumber": next}});
                let written = self.etcd.merge_status::<MachineSet>(&name, Some(&uid), &body);
                self.took(written);
            }
            Step::Create(bodies) => {
                for body in bodies {
                    self.chance()?;
                    let child = Name::new(body["metadata"]["name"].as_str().unwrap_or_default());
                    let earlier = self.world.sends(&child, now);
                    if self.loses_creations {
                        continue;
                    }
                    self.make::<Machine>(body);
                    self.world.answered(&child, earlier);
                }
            }
            Step::Delete(victims) => {
                for (victim, victim_uid) in victims {
                    self.chance()?;
                    if self.loses_deletions {
                        self.world.condemned.insert(victim_uid);
                        continue;
                    }
                    let left = self.etcd.delete::<Machine>(&victim, Some(&victim_uid), now);
                    self.left(&victim, &victim_uid, left);
                }
            }
            Step::Bring(child, body) => {
                let written = self.etcd.merge::<Machine>(&child, None, &body);
                self.took(written);
            }
            Step::Record(body) => {
                let written = self.etcd.merge_status::<MachineSet>(&name, Some(&uid), &body);
                self.took(written);
                self.world.status_written.insert(Key::Set(name), now);
            }
        }
        Ok(())
    }

    fn chance(&mut self) -> Result<(), Crash> {
        match &mut self.fuel {
            Some(0) => Err(Crash),
            Some(fuel) => {
                *fuel -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Creates an object; one that is there already is read.
    fn make<K: Resource>(&mut self, body: Value) {
        let name = Name::new(body["metadata"]["name"].as_str().expect("a child has a name"));
        let now = self.now();
        let made = match self.etcd.create::<K>(body, now) {
            Err(Refused::AlreadyExists) => self.etcd.get::<K>(&name).ok_or(Refused::Gone),
            other => other,
        };
        self.took(made);
    }

    fn own<K: Resource>(&mut self, name: &Name, uid: &Uid, owner: Option<Value>) {
        let owners: Vec<Value> = owner.into_iter().collect();
        let written = self
            .etcd
            .merge::<K>(name, Some(uid), &json!({"metadata": {"ownerReferences": owners}}));
        self.took(written);
    }

    pub fn deployment_step(&mut self, seen: &MachineDeployment, step: deployment::Step) {
        use deployment::Step;
        let (name, uid) = meta::identity(&seen.metadata);
        let now = self.now();
        match step {
            Step::AddFinalizer => {
                let written = self
                    .etcd
                    .add_finalizer::<MachineDeployment>(&name, &uid, keys::FINALIZER);
                self.took(written);
            }
            Step::RemoveFinalizer => {
                let left = self
                    .etcd
                    .remove_finalizer::<MachineDeployment>(&name, &uid, keys::FINALIZER);
                self.left(&name, &uid, left);
            }
            Step::Adopt(child, child_uid) => {
                self.own::<MachineSet>(&child, &child_uid, Some(deployment::plan::owner_reference(seen)));
            }
            Step::Release(child, child_uid) => self.own::<MachineSet>(&child, &child_uid, None),
            Step::Create(body) => self.make::<MachineSet>(body),
            Step::Change(set, body) => {
                let written = self.etcd.merge::<MachineSet>(&set, None, &body);
                self.took(written);
            }
            Step::Delete(victims) => {
                for (victim, victim_uid) in victims {
                    let left = self.etcd.delete::<MachineSet>(&victim, Some(&victim_uid), now);
                    self.left(&victim, &victim_uid, left);
                }
            }
            Step::Number(revision) => {
                let body = json!({"metadata": {"annotations": {keys::REVISION: revision.to_string()}}});
                let written = self.etcd.merge::<MachineDeployment>(&name, Some(&uid), &body);
                self.took(written);
            }
            Step::Record(body) => {
                let written = self.etcd.merge_status::<MachineDeployment>(&name, Some(&uid), &body);
                self.took(written);
                self.world.status_written.insert(Key::Deployment(name), now);
            }
        }
    }

    pub fn class_step(&mut self, seen: &MachineClass, step: class::Step) {
        let (name, uid) = meta::identity(&seen.metadata);
        match step {
            class::Step::AddFinalizer => {
                let written = self.etcd.add_finalizer::<MachineClass>(&name, &uid, keys::FINALIZER);
                self.took(written);
            }
            class::Step::RemoveFinalizer => {
                let left = self.etcd.remove_finalizer::<MachineClass>(&name, &uid, keys::FINALIZER);
                self.left(&name, &uid, left);
            }
            class::Step::Check => {
                let good = Readiness::Ready(Recipe {
                    digest: String::new(),
                    needs_token: false,
                });
                let mut found = self.checks.get(&name).cloned().unwrap_or(good);
                if let Readiness::Ready(recipe) = &mut found {
                    recipe.digest = seen.spec.provider_spec.to_string();
                }
                self.world.judged(&name, found, self.uptime);
            }
        }
    }
}
