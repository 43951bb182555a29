//! Carries out steps against the API server and the cloud of the stage, as the shell does against real ones.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{CreationRequest, Machine, MachineClass, MachineDeployment, MachineSet, keys, meta};
use millwright_core::change::Change;
use millwright_core::class::{self, Readiness, Recipe};
use millwright_core::driver::Call;
use millwright_core::ids::{Name, Uid};
use millwright_core::kin;
use millwright_core::ledger::OwnerNotes;
use millwright_core::machine::node;
use millwright_core::machine::node_patch::NodePatch;
use millwright_core::refusal::Refusal;
use millwright_core::wake::{Key, Wake};
use millwright_core::{deployment, machine, owner, set};
use serde_json::{Value, json};

use crate::etcd::{Refused, Resource};
use crate::stage::{Crash, Flight, Stage};

/// What the API server says of a write that it refuses.
const REFUSAL: &str = "a webhook says no";

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
    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    pub fn machine_step(&mut self, seen: &Machine, step: machine::Step) -> bool {
        use machine::Step;
        let (name, uid) = meta::identity(&seen.metadata);
        let now = self.now();
        match step {
            Step::AddFinalizer => {
                let written = self.etcd.merge::<Machine>(&name, Some(&uid), &machine::guarded(seen));
                self.took(written)
            }
            Step::Confirm => {
                let live = self.etcd.get::<Machine>(&name);
                live.is_some_and(|live| live.uid().as_ref() == Some(&uid) && !meta::is_deleting(&live.metadata))
            }
            Step::Record(change) => {
                let written = self.etcd.merge_status::<Machine>(&name, Some(&uid), &change.patch());
                if change.creation_request.is_some() && written.is_ok() {
                    self.world.recorded_request(seen, now);
                }
                self.took(written)
            }
            Step::SeeNode(node) => {
                let live = self.etcd.nodes.get(&Name::new(node.as_str()));
                let is_well = live.is_some_and(|live| node::keeps_from_failing(live, seen, &self.settings));
                self.sight.target_since.is_some() && !is_well
            }
            Step::EnsureToken => self.ensure_token(seen, uid),
            Step::Probe(operation) => {
                let uptime = self.uptime;
                self.world.reserve(seen, operation, now, uptime)
            }
            Step::DropToken => {
                self.tokens.remove(&uid);
                true
            }
            Step::Call(call) => self.call(seen, name, uid, call),
            Step::Identify { provider_id, node } => {
                let node = node.map(|node| json!({ "labels": { keys::NODE: node } }));
                let id = provider_id.map(|id| json!({ "providerID": id }));
                let mut patch = json!({});
                patch["metadata"] = node.unwrap_or(json!({}));
                patch["spec"] = id.unwrap_or(json!({}));
                let written = self.etcd.merge::<Machine>(&name, Some(&uid), &patch);
                self.took(written)
            }
            Step::WriteNode(patch) | Step::WriteCapacity(patch) => {
                self.world.ledger.calls.entry(uid).or_default().node_written = Some(now);
                self.write_node(&patch)
            }
            Step::WriteCondition(patch) => !self.refuses_conditions && self.write_node(&patch),
            Step::Keep(keeping) => {
                let written = self.etcd.merge_status::<Machine>(&name, Some(&uid), &keeping.patch());
                self.took(written)
            }
            Step::Annotate(changes) => {
                let body = machine::preserve::annotations(&changes);
                let written = self.etcd.merge::<Machine>(&name, Some(&uid), &body);
                self.took(written)
            }
            Step::Complain(fault) => {
                self.world.ledger.calls.entry(uid).or_default().complaint = Some(fault);
                true
            }
            Step::LeavePods => {
                self.world.ends_drain(&uid);
                true
            }
            Step::Cordon(node) => self.cordon_node(&name, &uid, &Name::new(node.name.as_str())),
            Step::WatchPods(node) => self.watch_pods(&name, &uid, &node),
            Step::WatchVolumes => self.watch_volumes(),
            Step::Detach(all) => self.detach(&all),
            Step::Evict(pods) => self.evict(&uid, &pods),
            Step::LearnVolumes(pods) => self.learn_volumes(&name, &uid, &pods),
            Step::DeletePods { pods, grace } => self.delete_pods(&uid, &pods, grace),
            Step::DeleteMachine => self.delete_machine(&name, &uid),
            Step::RemoveNode(node) => {
                let all = kin::nodes_of(&self.world, seen, &node);
                all.iter().all(|node| self.remove_node(seen, &Name::new(node.as_str())))
            }
            Step::LeaveBehind => {
                self.world.leaves_behind(Arc::new(seen.clone()), self.uptime);
                true
            }
            Step::RemoveFinalizer => {
                let left = self.etcd.remove_finalizer::<Machine>(&name, &uid, keys::FINALIZER);
                self.left(&name, &uid, left)
            }
            Step::StepDown => self.step_down(&name, &uid),
        }
    }

    fn call(&mut self, seen: &Machine, machine: Name, uid: Uid, call: Call) -> bool {
        self.world.begins(seen, call);
        let live = self.etcd.machines.get(&machine);
        let hint = live.and_then(|live| live.provider_id());
        let hint = hint.filter(|_| !self.world.names_foreign_vm(&uid));
        let tagged_uid = self.world.tagged_uid(&uid);
        let class = seen.class_name().map(Name::new);
        let digest = class.and_then(|class| match self.world.ledger.readiness(&class) {
            Readiness::Ready(recipe) => Some(recipe.digest.clone()),
            Readiness::Unchecked | Readiness::Faulty(_) => None,
        });
        self.flights.push(Flight {
            machine,
            uid,
            seen: seen.clone(),
            call,
            digest,
            hint,
            tagged_uid,
            unheard: false,
        });
        true
    }

    /// Reads the Lease: one that is ours makes the driver's word a false alarm.
    fn step_down(&mut self, name: &Name, uid: &Uid) -> bool {
        let trouble = self
            .world
            .ledger
            .calls
            .get_mut(uid)
            .and_then(|calls| calls.trouble.as_mut());
        if let Some(trouble) = trouble.filter(|_| self.holds_lease) {
            trouble.is_false_alarm = true;
            self.world.wake([Wake::event(Key::Machine(name.clone()))], self.uptime);
        }
        false
    }

    pub fn remove_node(&mut self, machine: &Machine, name: &Name) -> bool {
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

    fn ensure_token(&mut self, seen: &Machine, uid: Uid) -> bool {
        let lifetime = seen.creation_timeout().unwrap_or(self.settings.creation_timeout);
        let until = self.now() + lifetime;
        self.world.ledger.calls.entry(uid.clone()).or_default().token_until = Some(until);
        self.tokens.insert(uid, until);
        true
    }

    fn write_node(&mut self, patch: &NodePatch) -> bool {
        let node = Name::new(patch.node.as_str());
        let node_uid = self.world.nodes.get(&node).map(|node| meta::identity(&node.metadata).1);
        let left = self.etcd.patch_node(patch);
        node_uid.is_some_and(|uid| self.left(&node, &uid, left))
    }

    fn cordon_node(&mut self, machine: &Name, uid: &Uid, node: &Name) -> bool {
        let refused = self.refuses_cordons.then(|| REFUSAL.to_owned());
        let is_refused = refused.is_some();
        self.world.cordoned(machine, uid, refused, (self.now(), self.uptime));
        if is_refused {
            return true;
        }
        let body = json!({"spec": {"unschedulable": true}});
        let written = self.etcd.merge::<Node>(node, None, &body);
        self.took(written)
    }

    fn delete_machine(&mut self, name: &Name, uid: &Uid) -> bool {
        let now = self.now();
        if self.loses_deletions {
            self.world.condemn(name, uid, now);
            return false;
        }
        let left = self.etcd.delete::<Machine>(name, Some(uid), now);
        self.left(name, uid, left)
    }

    /// Carries out one step; creations and deletions of many are as many chances to die. `false`: it did not take effect.
    pub fn set_step(&mut self, seen: &MachineSet, step: set::Step) -> Result<bool, Crash> {
        use set::Step;
        let (name, uid) = meta::identity(&seen.metadata);
        let now = self.now();
        Ok(match step {
            Step::AddFinalizer => {
                let written = self.etcd.add_finalizer::<MachineSet>(&name, &uid, keys::FINALIZER);
                self.took(written)
            }
            Step::RemoveFinalizer => {
                let left = self.etcd.remove_finalizer::<MachineSet>(&name, &uid, keys::FINALIZER);
                self.left(&name, &uid, left)
            }
            Step::Adopt(children) => self.own_all(&children, |child| owner::adoption(&child.metadata, seen)),
            Step::Release(children) => self.own_all(&children, |child| set::claim::release(seen, child)),
            Step::Reserve { next } => {
                let body = json!({"status": {"nextMachineNumber": next}});
                let written = self.etcd.merge_status::<MachineSet>(&name, Some(&uid), &body);
                self.took(written)
            }
            Step::Thaw => {
                let known = self.etcd.get::<MachineSet>(&name);
                self.tell_turn(&name, known.and_then(|set| set::freeze::turn_by_thaw(&set)));
                let written = self.etcd.merge::<MachineSet>(&name, Some(&uid), &set::freeze::thawed());
                self.took(written)
            }
            Step::Create(batch) => self.create_batch(&name, &uid, batch)?,
            Step::Delete(victims) => self.delete_victims(&name, &uid, victims)?,
            Step::Bring(all) => {
                let mut took = true;
                for brought in all {
                    let (child, child_uid) = meta::identity(&brought.machine.metadata);
                    if self.refuses::<Machine>(&child, &child_uid) {
                        took = false;
                        continue;
                    }
                    let written = self.etcd.merge::<Machine>(&child, None, &brought.patch());
                    took &= self.took(written);
                }
                took
            }
            Step::GiveUp(all) => {
                let mut took = true;
                for given in all {
                    let (child, child_uid) = meta::identity(&given.machine.metadata);
                    let live = given.failed.see.map(|node| Name::new(node.as_str()));
                    let live = live.and_then(|name| self.etcd.nodes.get(&name));
                    let is_well =
                        live.is_some_and(|live| node::keeps_from_failing(live, &given.machine, &self.settings));
                    if is_well || self.refuses::<Machine>(&child, &child_uid) {
                        took = false;
                        continue;
                    }
                    let written = self
                        .etcd
                        .merge_status::<Machine>(&child, None, &given.failed.change.patch());
                    took &= self.took(written);
                }
                took
            }
            Step::Keep(marks) => {
                let mut took = true;
                for mark in marks {
                    let (child, child_uid) = meta::identity(&mark.machine.metadata);
                    if self.refuses::<Machine>(&child, &child_uid) {
                        took = false;
                        continue;
                    }
                    let written = self.etcd.merge::<Machine>(&child, Some(&child_uid), &mark.patch());
                    took &= self.took(written);
                }
                took
            }
            Step::Record(status) => {
                let written = self.etcd.merge_status::<MachineSet>(&name, Some(&uid), &status.patch());
                self.world
                    .note_owner::<MachineSet>(&name, &uid, |notes| notes.status_written = Some(now));
                self.took(written)
            }
        })
    }

    fn tell_turn(&mut self, set: &Name, turn: Option<(&str, String)>) {
        let events = turn.map(|(reason, text)| format!("Event on set {set}: {reason} {text}"));
        self.told.extend(events);
    }

    /// Whether the API server refuses writes to this object; then it is noted.
    fn refuses<K: Resource>(&mut self, name: &Name, uid: &Uid) -> bool {
        let refuses = self.unwritable.contains(name);
        if refuses {
            self.note_refusal::<K>(name, uid);
        }
        refuses
    }

    fn note_refusal<K: Resource>(&mut self, name: &Name, uid: &Uid) {
        let now = self.now();
        self.world.note::<K>(name, uid, |ledger| {
            let refusal = Refusal::after(ledger.refusals.get(uid), REFUSAL.to_owned(), now);
            ledger.refusals.insert(uid.clone(), refusal);
        });
    }

    fn create_batch(&mut self, set: &Name, uid: &Uid, batch: Vec<set::NewMachine>) -> Result<bool, Crash> {
        let now = self.now();
        for made in batch {
            self.chance()?;
            if self.refuses_creations {
                let refuse = |notes: &mut OwnerNotes| {
                    let before = notes.create_refused.take();
                    notes.create_refused = Some(Refusal::after(before.as_ref(), "quota is used up".to_owned(), now));
                    (notes.batches, notes.batch_ended) = (0, Some(now));
                };
                self.world.note_owner::<MachineSet>(set, uid, refuse);
                self.refused_creations += 1;
                return Ok(false);
            }
            let earlier = self.world.ledger.sends(&made.name, now);
            if self.loses_creations {
                continue;
            }
            self.make::<Machine>(made.body());
            self.world.ledger.answered(&made.name, earlier);
        }
        self.world.note_owner::<MachineSet>(set, uid, |notes| {
            notes.create_refused = None;
            (notes.batches, notes.batch_ended) = (notes.batches + 1, Some(now));
        });
        Ok(true)
    }

    fn delete_victims(&mut self, set: &Name, uid: &Uid, victims: Vec<set::Victim>) -> Result<bool, Crash> {
        let now = self.now();
        let (mut is_replacement, mut took) = (false, true);
        for victim in victims {
            self.chance()?;
            if self.refuses_deletions {
                self.note_refusal::<Machine>(&victim.name, &victim.uid);
            }
            if self.refuses_deletions || self.refuses::<Machine>(&victim.name, &victim.uid) {
                took = false;
                continue;
            }
            if self.loses_deletions {
                self.world.condemn(&victim.name, &victim.uid, now);
                continue;
            }
            let left = self.etcd.delete::<Machine>(&victim.name, Some(&victim.uid), now);
            self.left(&victim.name, &victim.uid, left);
            is_replacement |= victim.is_replaced;
        }
        if is_replacement {
            self.world.replaced(set, uid, now);
        }
        self.world.note_owner::<MachineSet>(set, uid, |notes| {
            let before = notes.delete_refused.take();
            notes.delete_refused = (!took).then(|| Refusal::after(before.as_ref(), REFUSAL.to_owned(), now));
        });
        Ok(took)
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
    fn make<K: Resource>(&mut self, body: Value) -> bool {
        let name = Name::new(body["metadata"]["name"].as_str().expect("a child has a name"));
        let now = self.now();
        let made = match self.etcd.create::<K>(body, now) {
            Err(Refused::AlreadyExists) => self.etcd.get::<K>(&name).ok_or(Refused::Gone),
            other => other,
        };
        self.took(made)
    }

    fn own_all<K: Resource>(&mut self, children: &[Arc<K>], body: impl Fn(&K) -> Value) -> bool {
        let mut took = true;
        for child in children {
            took &= self.own(&**child, body(child));
        }
        took
    }

    fn own<K: Resource>(&mut self, child: &K, body: Value) -> bool {
        let (name, uid) = (child.key(), child.uid());
        if self.refuses::<K>(&name, &uid) {
            return false;
        }
        let written = self.etcd.merge::<K>(&name, Some(&uid), &body);
        self.took(written)
    }

    /// Creates a deployment's set; a refusal is noted, as the shell does.
    fn create_set(&mut self, deployment: &Name, uid: &Uid, made: &deployment::change::NewSet) -> bool {
        let now = self.now();
        let is_refused = self.refuses_sets;
        self.world.note_owner::<MachineDeployment>(deployment, uid, |notes| {
            let before = notes.create_refused.take();
            notes.create_refused = is_refused.then(|| Refusal::after(before.as_ref(), REFUSAL.to_owned(), now));
        });
        !is_refused && self.make::<MachineSet>(made.body())
    }

    fn mark(&mut self, marks: &[deployment::observed::Mark]) -> bool {
        let mut took = true;
        for mark in marks {
            let (machine, uid) = meta::identity(&mark.machine.metadata);
            if self.refuses::<Machine>(&machine, &uid) {
                took = false;
                continue;
            }
            let written = self.etcd.merge::<Machine>(&machine, Some(&uid), &mark.patch());
            took &= self.took(written);
        }
        took
    }

    /// Each is a chance to die.
    fn transfer(&mut self, all: Vec<deployment::in_place::Transfer>) -> Result<bool, Crash> {
        let mut took = true;
        for moved in all {
            self.chance()?;
            let (machine, uid) = meta::identity(&moved.machine.metadata);
            if self.refuses::<Machine>(&machine, &uid) {
                took = false;
                continue;
            }
            let written = self.etcd.merge::<Machine>(&machine, Some(&uid), &moved.patch());
            took &= self.took(written);
        }
        Ok(took)
    }

    /// Each is a chance to die.
    fn select(&mut self, all: &[NodePatch]) -> Result<bool, Crash> {
        let mut took = true;
        for patch in all {
            self.chance()?;
            took &= self.write_node(patch);
        }
        Ok(took)
    }

    /// `false`: it did not take effect.
    pub fn deployment_step(&mut self, seen: &MachineDeployment, step: deployment::Step) -> Result<bool, Crash> {
        use deployment::Step;
        let (name, uid) = meta::identity(&seen.metadata);
        let now = self.now();
        Ok(match step {
            Step::Of(set, step) => return self.set_step(&set, step),
            Step::Mark(marks) => self.mark(&marks),
            Step::Thaw => {
                let written = self
                    .etcd
                    .merge::<MachineDeployment>(&name, Some(&uid), &set::freeze::thawed());
                self.took(written)
            }
            Step::Prune(left) => {
                let body = json!({"metadata": {"annotations": {keys::TRIGGER_DELETION: left}}});
                let written = self.etcd.merge::<MachineDeployment>(&name, Some(&uid), &body);
                self.took(written)
            }
            Step::RollBack(made) => {
                let (_, reason, text) = made.outcome.event(name.as_str());
                self.told.push(format!("Event on deployment {name}: {reason} {text}"));
                let written = self.etcd.merge::<MachineDeployment>(&name, Some(&uid), &made.patch);
                self.took(written)
            }
            Step::AddFinalizer => {
                let written = self
                    .etcd
                    .add_finalizer::<MachineDeployment>(&name, &uid, keys::FINALIZER);
                self.took(written)
            }
            Step::RemoveFinalizer => {
                let left = self
                    .etcd
                    .remove_finalizer::<MachineDeployment>(&name, &uid, keys::FINALIZER);
                self.left(&name, &uid, left)
            }
            Step::Adopt(children) => self.own_all(&children, |child| owner::adoption(&child.metadata, seen)),
            Step::Create(made) => self.create_set(&name, &uid, &made),
            Step::Change(change) => {
                let (set, set_uid) = meta::identity(&change.set.metadata);
                if self.refuses::<MachineSet>(&set, &set_uid) {
                    return Ok(false);
                }
                let written = self.etcd.merge::<MachineSet>(&set, Some(&set_uid), &change.patch());
                if change.replicas.is_some() {
                    self.world
                        .note_owner::<MachineDeployment>(&name, &uid, |notes| notes.numbers_written = Some(now));
                }
                self.took(written)
            }
            Step::Transfer(all) => return self.transfer(all),
            Step::Select(all) => return self.select(&all),
            Step::Delete(victims) => {
                for (victim, victim_uid) in victims.iter().map(|set| meta::identity(&set.metadata)) {
                    if self.refuses::<MachineSet>(&victim, &victim_uid) {
                        continue;
                    }
                    let left = self.etcd.delete::<MachineSet>(&victim, Some(&victim_uid), now);
                    // One that is gone is what a deletion wants.
                    self.left(&victim, &victim_uid, left);
                }
                true
            }
            Step::Number(revision) => {
                let body = json!({"metadata": {"annotations": {keys::REVISION: revision.to_string()}}});
                let written = self.etcd.merge::<MachineDeployment>(&name, Some(&uid), &body);
                self.took(written)
            }
            Step::Record(status) => {
                let written = self
                    .etcd
                    .merge_status::<MachineDeployment>(&name, Some(&uid), &status.patch());
                self.world
                    .note_owner::<MachineDeployment>(&name, &uid, |notes| notes.status_written = Some(now));
                self.took(written)
            }
        })
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
                let stamp = self.world.ledger.begins_check(&name);
                let good = Readiness::Ready(Recipe {
                    digest: String::new(),
                    needs_token: false,
                    essentials: CreationRequest::default(),
                });
                let driver = class::driver(seen, &self.drivers());
                let mut found = match &driver {
                    Ok(_) => self.checks.get(&name).cloned().unwrap_or(good),
                    Err(fault) => Readiness::Faulty(fault.clone()),
                };
                if let (Readiness::Ready(recipe), Ok(driver)) = (&mut found, &driver) {
                    recipe.digest = seen.spec.provider_spec.to_string();
                    // A driver that says by the label `place` where the VMs of a class are.
                    let place = seen.metadata.labels.as_ref().and_then(|labels| labels.get("place"));
                    let locator = place.map(|place| json!({ "place": place }));
                    recipe.essentials = CreationRequest::of(seen, None).by(driver).at(locator);
                }
                self.world.ledger.note_driver(seen, driver.ok());
                self.world.judged(&name, stamp, found, self.uptime);
            }
            class::Step::Record(verdict) => {
                let patch = verdict.into_patch(seen, self.now());
                let written = self.etcd.merge_status::<MachineClass>(&name, Some(&uid), &patch);
                self.took(written);
            }
            class::Step::Report(in_use) => {
                self.told.push(format!("Event on class {name}: {in_use}"));
                self.world.ledger.reports.insert(uid, in_use);
            }
        }
    }
}
