//! S5: by acts of the manager a deployment's sets never come to more Machines than wanted and surge allow, and an available Machine goes
//! only while one more than wanted less unavailable is there. Beside it: old sets only shrink, nothing rolls while the deployment is
//! paused, and Recreate makes new Machines when the old ones are gone.
//!
//! Judged by what a manager could have seen: of everything that counts against it the least that held at some time since the oldest
//! view on which the write may rest, of everything that speaks for it the most. Its own deletions it knows of at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::bounds;
use crate::event::{Act, By, Event, Verb, Write};
use crate::object::{controller, is_deleting, name, number, phase, text, uid};
use crate::oracle::Oracle;
use crate::truth::{Truth, by_uid};

/// A request that takes longer was held up on its way.
const IN_TIME: SignedDuration = SignedDuration::from_secs(10);
const MARKED: &str = "/metadata/annotations/machine.sapcloud.io~1marked-for-deletion-time";
const NAMED: &str = "/metadata/annotations/node.machine.sapcloud.io~1trigger-deletion-by-mcm";

/// What was so from some moments on, oldest first.
struct History<T>(Vec<(Timestamp, T)>);

impl<T> Default for History<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> History<T> {
    fn note(&mut self, at: Timestamp, value: T) {
        if self.0.last().is_none_or(|(_, last)| *last != value) {
            self.0.push((at, value));
        }
    }

    /// All that was so at some time since then.
    fn since(&self, from: Timestamp) -> impl Iterator<Item = &T> {
        let first = self.0.iter().rposition(|(since, _)| *since <= from).unwrap_or(0);
        self.0.iter().skip(first).map(|(_, value)| value)
    }

    /// Whether it was known at that time already.
    fn is_as_old_as(&self, from: Timestamp) -> bool {
        self.0.first().is_some_and(|(since, _)| *since <= from)
    }
}

/// What a deployment's spec says of its rollout.
#[derive(Clone, PartialEq)]
struct Spec {
    wanted: i64,
    surge: i64,
    unavailable: i64,
    strategy: String,
    is_paused: bool,
    is_going: bool,
    class: String,
    /// Names on the autoscaler's list.
    named: String,
}

impl Spec {
    fn of(deployment: &Value) -> Self {
        let wanted = number(deployment, "/spec/replicas").max(0);
        let strategy = text(deployment, "/spec/strategy/type").to_owned();
        let (surge, unavailable) = bounds::bounds(deployment);
        Self {
            wanted,
            surge,
            unavailable,
            strategy,
            is_paused: deployment.pointer("/spec/paused") == Some(&Value::Bool(true)),
            is_going: is_deleting(deployment),
            class: class(deployment).to_owned(),
            named: text(deployment, NAMED).to_owned(),
        }
    }

    fn most(&self) -> i64 {
        self.wanted + self.surge
    }

    fn least_available(&self) -> i64 {
        (self.wanted - self.unavailable).max(0)
    }

    fn names(&self, machine: &str) -> bool {
        let mut entries = self.named.split(',').map(|entry| entry.split('~').next());
        entries.any(|entry| entry.map(str::trim) == Some(machine))
    }
}

fn class(object: &Value) -> &str {
    text(object, "/spec/template/spec/class/name")
}

/// A set in numbers.
#[derive(Clone, PartialEq)]
struct Row {
    deployment: String,
    number: i64,
    present: i64,
    leaving: i64,
    is_going: bool,
    class: String,
}

impl Row {
    /// What it has to stay, or may have by its number: of a set that is being deleted, nothing.
    fn claimed(&self) -> i64 {
        match self.is_going {
            true => 0,
            false => self.number.max(self.present),
        }
    }

    /// The same with what is on its way out.
    fn held(&self) -> i64 {
        self.number.max(self.present) + self.leaving
    }
}

/// What a Machine was.
#[derive(Clone, PartialEq)]
struct Stood {
    set: String,
    is_up: bool,
    is_going: bool,
    is_marked: bool,
}

impl Stood {
    fn of(machine: &Value) -> Self {
        Self {
            set: controller(machine).to_owned(),
            is_up: ["Running", "Available"].contains(&phase(machine)),
            is_going: is_deleting(machine) || phase(machine) == "Terminating",
            is_marked: machine.pointer(MARKED).is_some(),
        }
    }
}

pub(crate) struct RolloutBudget {
    max_lag: SignedDuration,
    deployments: BTreeMap<String, History<Spec>>,
    sets: BTreeMap<String, History<Row>>,
    machines: BTreeMap<String, History<Stood>>,
    /// The ids of VMs whose Node somebody deleted, and the names of such Nodes: their Machines go for that.
    gone_nodes: BTreeSet<String>,
    /// Names that a Machine ever had.
    names: BTreeSet<String>,
    /// Who deleted which Machine, of managers.
    deleted: BTreeMap<String, By>,
    hits: u64,
}

impl RolloutBudget {
    pub(crate) fn new(max_lag: SignedDuration) -> Self {
        Self {
            max_lag,
            deployments: BTreeMap::new(),
            gone_nodes: BTreeSet::new(),
            names: BTreeSet::new(),
            sets: BTreeMap::new(),
            machines: BTreeMap::new(),
            deleted: BTreeMap::new(),
            hits: 0,
        }
    }

    fn note(&mut self, at: Timestamp, write: &Write, truth: &dyn Truth) {
        let Some(object) = write.object() else { return };
        let id = uid(object).to_owned();
        match write.resource.as_str() {
            "machinedeployments" => self.deployments.entry(id).or_default().note(at, Spec::of(object)),
            "machinesets" => self.count(at, &id, write.after.as_deref(), truth),
            "nodes" if write.after.as_ref().is_none_or(|after| is_deleting(after)) => {
                self.gone_nodes.insert(text(object, "/spec/providerID").to_owned());
                self.gone_nodes.insert(name(object).to_owned());
            }
            "machines" => {
                let mut stood = Stood::of(object);
                stood.is_going |= write.after.is_none();
                self.machines.entry(id).or_default().note(at, stood);
                let owners =
                    [&write.before, &write.after].map(|side| side.as_ref().map(|it| controller(it).to_owned()));
                for owner in owners.into_iter().flatten().filter(|owner| !owner.is_empty()) {
                    let set = by_uid(truth, "machinesets", &owner);
                    self.count(at, &owner, set.as_deref(), truth);
                }
            }
            _ => {}
        }
    }

    /// Counts a set as it is now.
    fn count(&mut self, at: Timestamp, id: &str, set: Option<&Value>, truth: &dyn Truth) {
        let history = self.sets.entry(id.to_owned()).or_default();
        let Some(set) = set else {
            if let Some((_, last)) = history.0.last() {
                let gone = Row {
                    number: 0,
                    present: 0,
                    leaving: 0,
                    is_going: true,
                    ..last.clone()
                };
                history.note(at, gone);
            }
            return;
        };
        let machines = truth.objects("machines");
        let own = machines.iter().filter(|machine| controller(machine) == id);
        let (leaving, present): (Vec<Stood>, Vec<Stood>) =
            own.map(|machine| Stood::of(machine)).partition(|stood| stood.is_going);
        let length = |all: Vec<Stood>| i64::try_from(all.len()).unwrap_or(i64::MAX);
        let is_going = is_deleting(set);
        history.note(
            at,
            Row {
                deployment: controller(set).to_owned(),
                number: if is_going {
                    0
                } else {
                    number(set, "/spec/replicas").max(0)
                },
                present: length(present),
                leaving: length(leaving),
                is_going,
                class: class(set).to_owned(),
            },
        );
    }

    fn specs(&self, deployment: &str, from: Timestamp) -> Option<Vec<&Spec>> {
        let specs: Vec<&Spec> = self.deployments.get(deployment)?.since(from).collect();
        let is_judged = specs
            .iter()
            .all(|spec| !spec.is_going && spec.strategy != "InPlaceUpdate");
        (is_judged && !specs.is_empty()).then_some(specs)
    }

    /// What the deployment's other sets had at least, whatever view a write rests on.
    fn others(&self, deployment: &str, set: &str, from: Timestamp, had: fn(&Row) -> i64) -> i64 {
        let others = self.sets.iter().filter(|(id, _)| *id != set);
        let held = others.filter_map(|(_, history)| {
            let mut least = None;
            for row in history.since(from) {
                let held = if row.deployment == deployment { had(row) } else { 0 };
                least = Some(least.map_or(held, |least: i64| least.min(held)));
            }
            least.filter(|_| history.is_as_old_as(from))
        });
        held.sum()
    }

    /// A number that the manager wrote.
    fn judge_number(&mut self, write: &Write, after: &Value) -> Result<(), String> {
        let (deployment, from) = (controller(after), write.sent - self.max_lag);
        let Some(specs) = self.specs(deployment, from) else {
            return Ok(());
        };
        let is_paused = specs.iter().all(|spec| spec.is_paused);
        let before = write.before.as_ref().map_or(0, |set| number(set, "/spec/replicas"));
        let now = number(after, "/spec/replicas");
        let rows = || self.sets.get(uid(after)).into_iter().flat_map(|rows| rows.since(from));
        let present = rows().map(|row| row.present).max().unwrap_or(0);
        let others = self.others(deployment, uid(after), from, Row::held);
        let claimed = self.others(deployment, uid(after), from, Row::claimed);
        if write.verb == Verb::Create && is_paused {
            return Err(format!("set {} was made while its deployment is paused", name(after)));
        }
        // What a set has already it may be given back.
        if now <= before.max(present) {
            return Ok(());
        }
        let wanted = specs.iter().map(|spec| spec.wanted).max().unwrap_or(0);
        let most = specs.iter().map(|spec| spec.most()).max().unwrap_or(0);
        let may_roll = specs.iter().all(|spec| !spec.is_paused);
        let is_old = specs.iter().all(|spec| spec.class != class(after));
        let leaving = rows().map(|row| row.leaving).min().unwrap_or(0);
        let held = now + leaving + others;
        let is_recreated = may_roll && specs.iter().all(|spec| spec.strategy == "Recreate");
        let fault = match () {
            () if now > wanted => format!("and {wanted} are wanted at most"),
            () if is_old && may_roll => "and has an old template".to_owned(),
            () if others > 0 && is_recreated => format!("while others hold {others}, which are to go first"),
            () if claimed > 0 && is_paused && now + claimed > wanted => {
                format!("beside {claimed} of others, although its deployment wants {wanted} and is paused")
            }
            () if others > 0 && held > most => {
                format!("with {leaving} that leave, beside {others} of others: {held} in all, and {most} are allowed")
            }
            () => {
                self.hits += 1;
                return Ok(());
            }
        };
        Err(format!(
            "the number of set {} rose from {before} to {now}, {fault}",
            name(after)
        ))
    }

    /// A Machine that the manager made.
    fn judge_creation(&mut self, write: &Write, made: &Value, truth: &dyn Truth) -> Result<(), String> {
        let from = write.sent - self.max_lag;
        let Some(set) = by_uid(truth, "machinesets", controller(made)) else {
            return Ok(());
        };
        let deployment = controller(&set);
        let Some(specs) = self.specs(deployment, from) else {
            return Ok(());
        };
        let most = specs.iter().map(|spec| spec.most()).max().unwrap_or(0);
        // What there was before, or was to be.
        let of_one = |history: &History<Row>| {
            let rows = history.since(from).filter(|row| row.deployment == deployment);
            rows.map(|row| row.number.max(row.present)).max().unwrap_or(0)
        };
        let before: i64 = self.sets.values().map(of_one).sum();
        let count = |row: &Row| if row.deployment == deployment { row.present } else { 0 };
        let last = self.sets.values().filter_map(|history| history.0.last());
        let present = last.map(|(_, row)| count(row)).sum::<i64>() + 1;
        self.hits += 1;
        match present <= most.max(before) {
            true => Ok(()),
            false => Err(format!(
                "with {} there are {present} machines, and {most} are allowed; there were, or were to be, {before}",
                name(made)
            )),
        }
    }

    /// A Machine that the manager deleted.
    fn judge_deletion(&mut self, write: &Write, victim: &Value, truth: &dyn Truth) -> Result<(), String> {
        let from = write.sent - self.max_lag;
        let Some(set) = by_uid(truth, "machinesets", controller(victim)) else {
            return Ok(());
        };
        let deployment = controller(&set);
        let Some(specs) = self.specs(deployment, from) else {
            return Ok(());
        };
        let is_own = |id: &str| {
            self.sets
                .get(id)
                .is_some_and(|rows| rows.since(from).all(|row| !row.is_going))
        };
        let lost = |pointer| self.gone_nodes.contains(text(victim, pointer));
        let is_exempt = lost("/spec/providerID")
            || lost("/metadata/labels/node")
            || specs
                .iter()
                .any(|spec| spec.strategy == "Recreate" || spec.names(name(victim)));
        // In every view on which this may rest the Machine was available, and its set does not simply follow a smaller D.
        let Some(history) = self.machines.get(uid(victim)).filter(|it| it.is_as_old_as(from)) else {
            return Ok(());
        };
        let was_up = history.since(from).all(|stood| stood.is_up && !stood.is_marked);
        let wanted = specs.iter().map(|spec| spec.wanted).min().unwrap_or(0);
        let is_shared =
            self.others(deployment, uid(&set), from, Row::held) > 0 || number(&set, "/spec/replicas") < wanted;
        if is_exempt || !is_own(uid(&set)) || !was_up || !is_shared {
            return Ok(());
        }
        let floor = specs.iter().map(|spec| spec.least_available()).min().unwrap_or(0);
        let of_deployment = |id: &str| {
            let rows = self.sets.get(id);
            rows.is_some_and(|rows| rows.since(from).any(|row| row.deployment == deployment))
        };
        let available = self.machines.iter().filter(|(id, history)| {
            let mut stood = history.since(from);
            let was_so = stood.any(|stood| stood.is_up && !stood.is_going && of_deployment(&stood.set));
            id.as_str() != uid(victim) && was_so && self.deleted.get(*id) != Some(&write.by)
        });
        let left = i64::try_from(available.count()).unwrap_or(i64::MAX);
        self.hits += 1;
        match left >= floor {
            true => Ok(()),
            false => Err(format!(
                "machine {} was available and deleted: {left} others are, or were not long ago, and {floor} have to be",
                name(victim)
            )),
        }
    }
}

impl Oracle for RolloutBudget {
    fn id(&self) -> &'static str {
        "S5"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        if !write.accepted {
            return Ok(());
        }
        let is_ours = matches!(write.by, By::Manager(_)) && write.subresource.is_empty();
        let judged = match (write.verb, write.resource.as_str(), &write.before, &write.after) {
            (Verb::Create | Verb::Update | Verb::Patch, "machinesets", _, Some(set)) if is_ours => {
                self.judge_number(write, set)
            }
            (Verb::Create, "machines", _, Some(made)) if is_ours => {
                let is_first = self.names.insert(name(made).to_owned());
                // One that arrives again under its name long after it was sent: nothing can take it back. S4 judges it.
                match is_first || event.at <= write.sent + IN_TIME {
                    true => self.judge_creation(write, made, truth),
                    false => Ok(()),
                }
            }
            (Verb::Delete, "machines", Some(victim), _) if is_ours && !is_deleting(victim) => {
                let judged = self.judge_deletion(write, victim, truth);
                self.deleted.insert(uid(victim).to_owned(), write.by);
                judged
            }
            _ => Ok(()),
        };
        self.note(event.at, write, truth);
        judged
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
