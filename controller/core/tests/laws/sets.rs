//! Laws of sets' plans, from any state that a set and the Machines around it can be in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use millwright_core::api::machine_set::DeletePolicy;
use millwright_core::api::{Machine, MachineSet, Phase, keys, meta};
use millwright_core::class::Fault;
use millwright_core::ids::{Name, Uid};
use millwright_core::ledger::OwnerNotes;
use millwright_core::machine::preserve::request;
use millwright_core::refusal::Refusal;
use millwright_core::replacement_limit::Tally;
use millwright_core::set::{self, Allowance, MachineView, Observed, Plan, Step, rank};
use millwright_core::settings::Settings;
use millwright_core::sight::Sight;
use millwright_core::{narrate, owner};
use millwright_laws as laws;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::dice::{Dice, now, tapes};
use crate::machines::merged;

#[derive(Debug)]
struct Scene {
    set: Arc<MachineSet>,
    machines: Vec<Arc<Machine>>,
    refusal: Option<Fault>,
    class_unchecked: bool,
    notes: OwnerNotes,
    refusals: BTreeMap<Uid, Refusal>,
    condemned: BTreeMap<Uid, Timestamp>,
    unanswered: BTreeMap<Name, Timestamp>,
    named: BTreeSet<Uid>,
    may_lose: Option<usize>,
    may_resend: bool,
    replacements: usize,
    group: Tally,
    uids: u32,
}

impl Scene {
    fn throw(dice: &mut Dice) -> Self {
        let count = dice.number(8);
        let mut machines: Vec<Arc<Machine>> = (0..count).map(|number| Arc::new(machine(dice, number))).collect();
        machines.sort_by_key(|machine| machine.metadata.name.clone());
        let condemned = machines
            .iter()
            .filter_map(|machine| machine.uid().filter(|_| dice.rarely()));
        let condemned = condemned.map(|uid| (uid, now())).collect();
        let named = machines.iter().map(|machine| Name::new(meta::name(&machine.metadata)));
        let unanswered = named
            .filter(|_| dice.rarely())
            .collect::<Vec<Name>>()
            .into_iter()
            .map(|name| (name, dice.time()))
            .collect();
        let chosen = machines
            .iter()
            .filter_map(|machine| machine.uid().filter(|_| dice.rarely()));
        let chosen: BTreeSet<Uid> = chosen.collect();
        let refused = machines
            .iter()
            .filter_map(|machine| machine.uid().filter(|_| dice.rarely()));
        let refusals = refused
            .collect::<Vec<Uid>>()
            .into_iter()
            .map(|uid| (uid, refusal(dice)))
            .collect();
        let group = Tally {
            ill: if dice.rarely() { 3 } else { 1 },
            all: 4,
        };
        Self {
            set: Arc::new(set(dice)),
            condemned,
            unanswered,
            machines,
            refusal: if dice.rarely() {
                Some(Fault::NodeTemplate("it is faulty".to_owned()))
            } else {
                None
            },
            class_unchecked: dice.rarely(),
            notes: notes(dice),
            refusals,
            named: chosen,
            may_lose: dice.maybe(|dice| usize::from(dice.number(3))),
            may_resend: dice.flag(),
            replacements: usize::from(dice.number(3)),
            group,
            uids: 0,
        }
    }

    /// A sound set of so many, without Machines.
    fn plain(replicas: i32) -> Self {
        let mut scene = Self::throw(&mut Dice::new(Vec::new()));
        scene.machines.clear();
        scene.set = Arc::new(merged(&scene.set, &json!({"spec": {"replicas": replicas}})));
        scene
    }

    /// The Machines that the set controls or nobody, with what is known of each.
    fn views(&self) -> Vec<MachineView<'_>> {
        let is_seen = |machine: &&Arc<Machine>| {
            let owner = meta::controller_uid(&machine.metadata);
            owner.is_none_or(|owner| Some(owner.as_str()) == self.set.metadata.uid.as_deref())
        };
        let view = |machine| MachineView {
            group: self.group,
            ..known(machine, &self.refusals, &self.condemned, &self.named)
        };
        self.machines.iter().filter(is_seen).map(view).collect()
    }

    fn look<T>(&self, look: impl FnOnce(&Observed<'_>) -> T) -> T {
        look(&Observed {
            set: &self.set,
            machines: &self.views(),
            exists: &|name| {
                self.machines
                    .iter()
                    .any(|machine| meta::name(&machine.metadata) == name)
            },
            refusal: self.refusal.as_ref(),
            class_unchecked: self.class_unchecked,
            notes: &self.notes,
            unanswered: &self.unanswered,
            allowance: Allowance {
                lose: self.may_lose,
                resend: self.may_resend,
                ..Allowance::all(self.replacements)
            },
            is_frozen: false,
            unfreeze: false,
            sight: Sight::CLEAR,
            settings: &Settings::new("test"),
        })
    }

    fn plan(&self, now: Timestamp) -> (Plan, Vec<laws::Broken>) {
        self.look(|seen| {
            let plan = set::plan(seen, now);
            let broken = laws::set(seen, &plan, now);
            (plan, broken)
        })
    }

    fn edit(&mut self, uid: &Uid, change: impl FnOnce(&mut Machine)) {
        let found = self
            .machines
            .iter_mut()
            .find(|machine| machine.uid().as_ref() == Some(uid));
        change(Arc::make_mut(found.expect("steps name Machines that are seen")));
    }

    /// What the steps change. `false`: the set's story ends here.
    fn apply(&mut self, steps: Vec<Step>, at: Timestamp) -> bool {
        for step in steps {
            match step {
                Step::AddFinalizer => {
                    Arc::make_mut(&mut self.set)
                        .metadata
                        .finalizers
                        .get_or_insert_default()
                        .push(keys::FINALIZER.to_owned());
                }
                Step::RemoveFinalizer => return false,
                Step::Adopt(machines) => {
                    for machine in machines {
                        let body = owner::adoption(&machine.metadata, &*self.set);
                        let uid = machine.uid().expect("it is stored");
                        self.edit(&uid, |machine| *machine = merged(machine, &body));
                    }
                }
                Step::Release(machines) => {
                    for machine in machines {
                        let body = set::claim::release(&self.set, &machine);
                        let uid = machine.uid().expect("it is stored");
                        self.edit(&uid, |machine| *machine = merged(machine, &body));
                    }
                }
                Step::Reserve { next } => {
                    self.set = Arc::new(merged(&self.set, &json!({"status": {"nextMachineNumber": next}})));
                }
                Step::Thaw => self.set = Arc::new(merged(&self.set, &set::freeze::thawed())),
                Step::Create(batch) => {
                    for made in batch {
                        let mut machine: Machine = serde_json::from_value(made.body()).expect("it is a Machine");
                        self.uids += 1;
                        machine.metadata.uid = Some(format!("made-{}", self.uids));
                        self.machines.push(Arc::new(machine));
                    }
                    self.notes.batches += 1;
                    (self.notes.batch_ended, self.notes.create_refused) = (Some(at), None);
                }
                Step::Delete(victims) => {
                    for victim in victims {
                        self.edit(&victim.uid, |machine| {
                            machine.metadata.deletion_timestamp = Some(Time(at))
                        });
                    }
                    self.notes.delete_refused = None;
                }
                Step::Bring(all) => {
                    for brought in all {
                        let uid = brought.machine.uid().expect("it is stored");
                        self.edit(&uid, |machine| *machine = merged(machine, &brought.patch()));
                    }
                }
                Step::GiveUp(all) => {
                    for given in all {
                        let uid = given.machine.uid().expect("it is stored");
                        self.edit(&uid, |machine| *machine = merged(machine, &given.failed.change.patch()));
                    }
                }
                Step::Keep(marks) => {
                    for mark in marks {
                        let uid = mark.machine.uid().expect("it is stored");
                        self.edit(&uid, |machine| *machine = merged(machine, &mark.patch()));
                    }
                }
                Step::Record(status) => {
                    self.set = Arc::new(merged(&self.set, &status.patch()));
                    self.notes.status_written = Some(at);
                }
            }
        }
        true
    }
}

/// A Machine whose Node says nothing, with what is known of it by its uid.
pub fn known<'a>(
    machine: &'a Arc<Machine>,
    refusals: &'a BTreeMap<Uid, Refusal>,
    condemned: &BTreeMap<Uid, Timestamp>,
    named: &BTreeSet<Uid>,
) -> MachineView<'a> {
    let uid = meta::identity(&machine.metadata).1;
    let has_failed = *machine.phase() == Phase::Failed;
    MachineView {
        refusal: refusals.get(&uid),
        deletion_sent: condemned.get(&uid).copied(),
        is_named: named.contains(&uid),
        request: has_failed.then(|| request::request(machine, None).value).flatten(),
        ..MachineView::new(machine)
    }
}

pub fn refusal(dice: &mut Dice) -> Refusal {
    Refusal {
        message: "a webhook says no".to_owned(),
        retry_at: dice.time(),
        times: 1,
    }
}

fn notes(dice: &mut Dice) -> OwnerNotes {
    let past = |dice: &mut Dice| dice.maybe(Dice::time).filter(|at| *at <= now());
    OwnerNotes {
        status_written: past(dice),
        create_refused: if dice.rarely() { Some(refusal(dice)) } else { None },
        delete_refused: if dice.rarely() { Some(refusal(dice)) } else { None },
        batches: u32::from(dice.number(8)),
        batch_ended: past(dice),
        replaced: past(dice).map(|at| (u32::from(dice.number(9)), at)),
        ..OwnerNotes::default()
    }
}

fn template(dice: &mut Dice) -> Value {
    let labels = json!({"a": "1", "b": "2"});
    json!({
        "metadata": {"labels": {"pool": dice.pick(&["workers", "workers", "workers", "other"])}},
        "spec": {
            "class": {"kind": dice.pick(&["MachineClass", "MachineClass", ""]), "name": "small"},
            "drainTimeout": dice.maybe(|dice| dice.pick(&["1h", "x"])),
            "nodeTemplate": dice.maybe(|_| json!({"metadata": {"labels": labels}})),
        },
    })
}

fn set(dice: &mut Dice) -> MachineSet {
    let mut metadata = json!({"name": "workers", "namespace": "test", "uid": "uid-s", "generation": 3});
    metadata["finalizers"] = if dice.rarely() {
        json!([])
    } else {
        json!([keys::FINALIZER])
    };
    if dice.rarely() {
        metadata["deletionTimestamp"] = dice.stamp();
        metadata["finalizers"] = dice.pick(&[json!([keys::FINALIZER]), json!([keys::FINALIZER, "orphan"]), json!([])]);
    }
    if dice.rarely() {
        metadata["labels"] = json!({keys::FREEZE: dice.pick(&["True", "False"])});
    }
    if dice.rarely() {
        metadata["annotations"] =
            json!({keys::EFFECTIVE_CREATION_TIMEOUT: dice.pick(&["5m", "x"]), keys::SCALER_CHANGE_TIME: dice.stamp()});
    }
    let selector = if dice.rarely() {
        dice.pick(&[Value::Null, json!({})])
    } else {
        json!({"matchLabels": {"pool": "workers"}})
    };
    let mut body = json!({"metadata": metadata, "spec": {
        "replicas": dice.pick(&[3, 0, 1, 2, 5, -1]),
        "selector": selector,
        "template": template(dice),
        "minReadySeconds": dice.pick(&[0, 10]),
        "deletePolicy": dice.pick(&[Value::Null, json!("Newest"), json!("Oldest"), json!("Random"), json!("Worst")]),
    }});
    if dice.flag() {
        let condition = json!({
            "type": dice.pick(&[keys::CONDITION_REPLICA_FAILURE, keys::CONDITION_FROZEN]),
            "status": dice.pick(&["True", "False"]),
            "reason": dice.pick(&["FailedCreate", "InvalidConfiguration", "MachineClassRefused"]),
            "lastTransitionTime": dice.maybe(Dice::stamp),
        });
        body["status"] = json!({
            "replicas": dice.number(4),
            "nextMachineNumber": dice.number(9),
            "settledMachineNumber": dice.number(9),
            "machineSetCondition": dice.maybe(|_| json!([condition, condition])),
            "observedGeneration": dice.number(4),
        });
    }
    serde_json::from_value(body).expect("it is a set")
}

pub fn machine(dice: &mut Dice, number: u16) -> Machine {
    let owner =
        |uid: &str| json!([{"apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": uid, "controller": true}]);
    let name = match dice.number(3) {
        0 => format!("m-{number}"),
        // A name of the set's own making.
        _ => name_of(i64::from(number)),
    };
    let mut metadata = json!({"name": name, "uid": format!("uid-{number}"), "finalizers": [keys::FINALIZER]});
    metadata["creationTimestamp"] = dice.stamp();
    metadata["ownerReferences"] = dice.pick(&[
        owner("uid-s"),
        owner("uid-s"),
        owner("uid-s"),
        json!([]),
        owner("uid-x"),
    ]);
    metadata["labels"] = json!({"pool": if dice.rarely() { "other" } else { "workers" }});
    if dice.rarely() {
        metadata["labels"][keys::UPDATE_RESULT] = json!(keys::UPDATE_SUCCESSFUL);
    }
    if dice.rarely() {
        metadata["deletionTimestamp"] = dice.stamp();
    }
    let mut annotations = json!({});
    if dice.rarely() {
        annotations[keys::PRIORITY] = json!(dice.pick(&["1", "2", "x", "-5"]));
        annotations[keys::MARKED_FOR_DELETION_TIME] = dice.pick(&[dice_stamp(), json!("x")]);
    }
    if dice.rarely() {
        annotations[keys::PRESERVE] = json!(dice.pick(&["now", "auto-preserved", "false", "yes"]));
    }
    metadata["annotations"] = annotations;
    let phases = [
        "Running",
        "Pending",
        "",
        "Failed",
        "Terminating",
        "Unknown",
        "CrashLoopBackOff",
        "Available",
        "Lost",
    ];
    let current = json!({
        "phase": dice.pick(&phases),
        "lastUpdateTime": dice.maybe(Dice::stamp),
        "preserveExpiryTime": if dice.rarely() { dice.stamp() } else { Value::Null },
    });
    let operation = dice.maybe(|dice| json!({"state": dice.pick(&["Failed", "Successful"]), "description": "words"}));
    let node_template = dice.maybe(|_| json!({"metadata": {"labels": {"a": "0", "c": "3"}}}));
    let body = json!({
        "metadata": metadata,
        "spec": {"class": {"kind": "MachineClass", "name": "small"}, "nodeTemplate": node_template},
        "status": {"currentStatus": current, "lastOperation": operation},
    });
    serde_json::from_value(body).expect("it is a Machine")
}

fn name_of(number: i64) -> String {
    set::names::Names::new("workers", &Uid::new("uid-s")).name(number)
}

fn dice_stamp() -> Value {
    json!(format!("{:.0}", now()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_of_a_set_breaks_a_law_whatever_is_observed(tape in tapes()) {
        let scene = Scene::throw(&mut Dice::new(tape));
        let (plan, broken) = scene.plan(now());
        prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{scene:#?}", narrate::plan(&plan, now()));
        prop_assert_eq!(&plan, &scene.plan(now()).0);
    }

    #[test]
    fn no_number_is_settled_whose_creation_may_still_arrive(tape in tapes()) {
        let scene = Scene::throw(&mut Dice::new(tape));
        let before = scene.set.status.as_ref().map_or(0, |status| status.settled_machine_number);
        for step in scene.plan(now()).0.steps {
            let Step::Record(status) = step else { continue };
            for number in before..status.settled_machine_number {
                let name = name_of(number);
                let sent = scene.unanswered.get(&Name::new(name.as_str()));
                let may_arrive = sent.is_some_and(|sent| now() < *sent + SignedDuration::from_mins(5));
                prop_assert!(!may_arrive, "{name}: {scene:#?}");
                prop_assert!(scene.look(|seen| (seen.exists)(&name)), "{name}: {scene:#?}");
            }
        }
    }

    /// Whoever takes the name of a Machine that is gone instead makes one too many when the request arrives after all.
    #[test]
    fn a_name_whose_creation_may_still_arrive_is_taken_before_any_other(open in any::<u8>()) {
        let mut scene = Scene::throw(&mut Dice::new(Vec::new()));
        scene.machines.clear();
        let named = |number| Name::new(name_of(number));
        let sent: BTreeSet<Name> = (0..8).filter(|number| open & (1 << number) != 0).map(named).collect();
        scene.unanswered = sent.iter().map(|name| (name.clone(), now())).collect();
        let mut set = (*scene.set).clone();
        set.status.get_or_insert_default().next_machine_number = 8;
        scene.set = Arc::new(set);

        let steps = scene.plan(now()).0.steps;
        let taken = steps.iter().find_map(|step| match step {
            Step::Create(batch) => batch.first().map(|new| new.name.clone()),
            _ => None,
        });
        prop_assert!(taken.is_some(), "{steps:?}");
        prop_assert!(sent.is_empty() || taken.as_ref().is_some_and(|taken| sent.contains(taken)), "{taken:?} of {sent:?}");
    }

    #[test]
    fn a_set_comes_to_rest_when_nothing_else_moves(tape in tapes()) {
        let mut scene = Scene::throw(&mut Dice::new(tape));
        let (mut at, mut told) = (now(), Vec::new());
        for _ in 0..10 {
            let (plan, broken) = scene.plan(at);
            told.push(narrate::plan(&plan, at));
            prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{scene:#?}", told.join("\n"));
            if plan.steps.is_empty() && plan.wake.is_none_or(|wake| wake > at + SignedDuration::from_secs(1)) {
                return Ok(());
            }
            if !scene.apply(plan.steps, at) {
                return Ok(());
            }
            at += SignedDuration::from_secs(1);
        }
        prop_assert!(false, "it writes and writes:\n{}\n{scene:#?}", told.join("\n"));
    }

    /// An admission policy, or an operator, that relabels each Machine when it is made or when it is in service.
    ///
    /// Rows: K1.
    #[test]
    fn whoever_rewrites_the_labels_of_all_machines_costs_at_most_as_many_again(wanted in 0i32..6, when in any::<Vec<bool>>()) {
        let mut scene = Scene::plain(wanted);
        let (mut at, mut made) = (now(), 0);
        for is_late in when.into_iter().chain([false; 40]) {
            let (plan, broken) = scene.plan(at);
            prop_assert!(broken.is_empty(), "{broken:?}\n{}", narrate::plan(&plan, at));
            let batches = plan.steps.iter().map(|step| match step {
                Step::Create(batch) => batch.len(),
                _ => 0,
            });
            made += batches.sum::<usize>();
            scene.apply(plan.steps, at);
            let running = json!({"status": {"currentStatus": {"phase": "Running"}, "conditions": [{"type": "Ready", "status": "True"}]}});
            let other = json!({"metadata": {"labels": {"pool": "other"}}});
            for machine in &mut scene.machines {
                for change in if is_late { vec![&running] } else { vec![&other, &running] } {
                    *machine = Arc::new(merged(machine, change));
                }
            }
            at += SignedDuration::from_secs(1);
        }
        let most = 2 * usize::try_from(wanted).unwrap();
        prop_assert!(made <= most, "{made} of at most {most}");
        let own = scene.look(|seen| seen.owned().count());
        prop_assert_eq!(own, usize::try_from(wanted).unwrap());
    }

    #[test]
    fn the_order_of_leaving_is_the_same_whatever_the_order_of_asking(tape in tapes(), turn in 0usize..8, by in 0usize..4) {
        let mut scene = Scene::throw(&mut Dice::new(tape));
        let policy = [None, Some(DeletePolicy::Random), Some(DeletePolicy::Newest), Some(DeletePolicy::Oldest)][by];
        let names = |scene: &Scene| -> Vec<String> {
            let views = scene.views();
            let ranked = rank::rank(views.iter(), policy, now());
            ranked.iter().map(|machine| meta::name(&machine.metadata).to_owned()).collect()
        };
        let before = names(&scene);
        let length = scene.machines.len().max(1);
        scene.machines.rotate_left(turn % length);
        scene.machines.reverse();
        prop_assert_eq!(before, names(&scene));
    }
}

/// What a plan costs must follow from what it does: a plan is made under the lock that all others wait for.
///
/// Rows: R2.
#[test]
fn a_set_that_lacks_a_hundred_thousand_machines_names_only_the_next_ones() {
    let mut scene = Scene::plain(100_000);
    for _ in 0..20 {
        let asked = std::cell::Cell::new(0);
        let plan = scene.look(|seen| {
            let exists = |name: &str| {
                asked.set(asked.get() + 1);
                (seen.exists)(name)
            };
            set::plan(
                &Observed {
                    exists: &exists,
                    ..*seen
                },
                now(),
            )
        });
        assert!(asked.get() < 2_000, "{} names were looked up", asked.get());
        scene.apply(plan.steps, now());
        scene.notes.batch_ended = None;
    }
    assert!(scene.machines.len() > 300, "{}", scene.machines.len());
}
