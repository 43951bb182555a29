//! S7: a VM is asked to go only when no pod that must go first is on its Node, or the drain's deadline has passed, a user forces it, or
//! nobody runs the pods any more because the Node is dead, or is not ready and its VM does not run. Until then the manager removes pods
//! by evictions alone, and those leave each budget whole; pods that the kubelet itself brings stay. Of a Node that stays, pods are removed
//! only where its Machine failed, is preserved, and lets no new ones come, and the deadline counts from its failure; or where it is selected for
//! an update in place and cordoned, and the deadline counts from that. Its agent may begin only when no pod that must go first is on it.
//! A VM stays until the volumes of its pods are detached, or their deadline has passed, and the manager itself detaches none before
//! it may force the drain ([`volumes`]). A pod of a DaemonSet is never removed and never waited for.
//!
//! A pod counts that was on the Node for as long as a manager may act on an older view. One that came to a Node that was cordoned and
//! empty before does not: a scheduler that is behind may send it at any time. Budgets are judged by a number of `minAvailable`; Machines
//! with a `drainTimeout` of their own, and runs in which a clock was set, are not judged by the deadline.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::volumes::Volumes;
use super::in_place::SELECTED;
use super::kept;
use crate::event::{Act, By, Call, Event, Method, Verb, Write};
use crate::object::{controller_kind, is_deleting, is_true, name, phase, selects, text, time, uid};
use crate::oracle::Oracle;
use crate::settings::Settings;
use crate::truth::{Truth, by_uid};

mod volumes;

/// How long a Node is not ready until it counts as dead.
const DEAD_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// The taint of a Node whose Machine failed and is preserved.
const PRESERVED: &str = "node.machine.sapcloud.io/preserved";
/// How far a manager's clock may be from the API server's without having been set.
const APART: SignedDuration = SignedDuration::from_secs(30);
/// A request that arrives so long after it was sent was delayed by the network.
const HELD: SignedDuration = SignedDuration::from_secs(10);
/// How Go writes true, in a label by which a user forces a deletion.
const TRUE: [&str; 6] = ["1", "t", "T", "TRUE", "true", "True"];

pub(crate) struct Drain {
    timeout: SignedDuration,
    max_lag: SignedDuration,
    /// Since when the target cluster is away; when it last came back.
    away: Option<Timestamp>,
    back: Option<Timestamp>,
    is_clock_set: bool,
    /// Whether a driver may say falsely that a VM is gone.
    is_lied_to: bool,
    /// Since when pods are on their Nodes, by uid.
    bound: BTreeMap<String, Timestamp>,
    /// When Nodes were last cordoned and without pods that must go, by uid.
    clear: BTreeMap<String, Timestamp>,
    /// When a driver was last asked about Machines' VMs, by uid.
    asked: BTreeMap<String, Timestamp>,
    /// When Nodes were last not ready, by uid.
    silent: BTreeMap<String, Timestamp>,
    /// When Nodes were last selected for an update in place, and cordoned, by uid.
    selected: BTreeMap<String, Timestamp>,
    /// When Machines were last Failed and preserved, by uid.
    kept: BTreeMap<String, Timestamp>,
    /// When Nodes were last dead, by uid.
    dead: BTreeMap<String, Timestamp>,
    /// When one of their healthy pods was lost otherwise than by an eviction, for budgets whose status does not count that yet, by uid.
    stale: BTreeMap<String, Timestamp>,
    volumes: Volumes,
    hits: u64,
}

impl Drain {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            timeout: settings.drain_timeout,
            max_lag: settings.max_lag,
            away: None,
            back: None,
            is_clock_set: false,
            is_lied_to: settings.lookups_may_lie,
            bound: BTreeMap::new(),
            clear: BTreeMap::new(),
            asked: BTreeMap::new(),
            silent: BTreeMap::new(),
            selected: BTreeMap::new(),
            kept: BTreeMap::new(),
            dead: BTreeMap::new(),
            stale: BTreeMap::new(),
            volumes: Volumes::new(settings.detach_timeout),
            hits: 0,
        }
    }

    /// A driver is asked to remove a VM.
    fn called(&mut self, at: Timestamp, call: &Call, truth: &dyn Truth) -> Result<(), String> {
        let stands = truth.vms().iter().any(|vm| vm.uid == call.uid && !vm.leaving);
        let Some(machine) = by_uid(truth, "machines", &call.uid).filter(|_| stands) else {
            return Ok(());
        };
        let Some(node) = node_of(truth, &machine) else {
            return Ok(());
        };
        let pods: Vec<_> = pods_on(truth, name(&node)).filter(|pod| must_go(pod)).collect();
        let has_volumes = Volumes::has_any(truth, &node);
        if pods.is_empty() && !has_volumes && !self.clear.contains_key(uid(&node)) {
            return Ok(());
        }
        self.hits += 1;
        if self.may_be_unknown(at, &machine) || self.may_force(at, &machine, &node, truth) {
            return Ok(());
        }
        let seen = at - self.max_lag;
        let clear = self.clear.get(uid(&node));
        let counts = |pod: &Arc<Value>| {
            let since = self.bound.get(uid(pod));
            let came_late = clear.zip(since).is_some_and(|(clear, since)| since > clear);
            !came_late && since.is_none_or(|since| *since <= seen)
        };
        let too_early = match pods.iter().find(|pod| counts(pod)) {
            None => {
                let (call, of) = ((at, call.by), (&*machine, &*node));
                self.volumes.judge(call, self.max_lag, of, truth)
            }
            Some(pod) => Err(format!("pod {} is on its node {}", name(pod), name(&node))),
        };
        too_early.map_err(|what| format!("the VM of machine {} was asked to go while {what}", name(&machine)))
    }

    /// A manager deletes a VolumeAttachment: the volume is detached although nobody says that it is unmounted.
    fn detached(&mut self, write: &Write, attachment: &Value, truth: &dyn Truth) -> Result<(), String> {
        let node = node_named(truth, text(attachment, "/spec/nodeName"));
        let machine = node.as_ref().and_then(|node| machine_of(truth, node));
        let Some((node, machine)) = node.zip(machine) else {
            return Ok(());
        };
        self.hits += 1;
        // Nothing writes to the volumes of a VM that is not there.
        let is_gone = truth.vms().iter().all(|vm| vm.uid != uid(&machine));
        match is_gone || self.may_force(write.sent, &machine, &node, truth) {
            true => Ok(()),
            false => Err(format!(
                "{} was deleted and not waited for, before the deadline of node {}",
                name(attachment),
                name(&node)
            )),
        }
    }

    /// The Node may never have been seen: it joined a cluster that is away, or was until just now.
    fn may_be_unknown(&self, at: Timestamp, machine: &Value) -> bool {
        let was_away = self.away.is_some() || self.back.is_some_and(|back| back + self.max_lag >= at);
        let conditions = machine.pointer("/status/conditions").and_then(Value::as_array);
        was_away && conditions.is_none_or(Vec::is_empty)
    }

    /// Whether nobody may be waited for any more, by what could be seen at that time.
    fn may_force(&self, at: Timestamp, machine: &Value, node: &Value, truth: &dyn Truth) -> bool {
        let selected = selected_since(node).filter(|_| !is_deleting(machine) && !is_kept(machine));
        let is_forced = match is_deleting(machine) {
            true => TRUE.contains(&text(machine, "/metadata/labels/force-deletion")),
            // One that recovered just now may still be seen as it was.
            false => {
                text(machine, "/metadata/labels/force-drain") == "True" || (!is_kept(machine) && selected.is_none())
            }
        };
        let since = time(machine, "/metadata/deletionTimestamp").or(selected);
        let since = since.or_else(|| time(machine, "/status/currentStatus/lastUpdateTime"));
        let has_own = !text(machine, "/spec/drainTimeout").is_empty();
        let is_late = since.is_some_and(|since| since + self.timeout <= at + APART);
        let was_dead = self.dead.get(uid(node)).is_some_and(|last| *last + self.max_lag >= at);
        is_forced
            || is_late
            || self.is_lost(at, machine, node, truth)
            || has_own
            || self.is_clock_set
            || was_dead
            || is_dead(node, at + APART)
    }

    /// Whether the kubelet is silent and the VM does not run, and a driver was asked whether it does.
    fn is_lost(&self, at: Timestamp, machine: &Value, node: &Value, truth: &dyn Truth) -> bool {
        let was_silent = self
            .silent
            .get(uid(node))
            .is_some_and(|last| *last + self.max_lag >= at);
        let runs = truth
            .vms()
            .iter()
            .any(|vm| vm.uid == uid(machine) && vm.runs && !vm.leaving);
        let asked = self.asked.get(uid(machine));
        let is_asked = asked.is_some_and(|at| silent_since(node).is_none_or(|since| *at >= since));
        (was_silent || is_silent(node)) && is_asked && (!runs || self.is_lied_to)
    }

    /// A manager removed a pod, or began to. A request that the network delayed is bound by the pod's uid alone: a Node of the same name
    /// may be another Machine's by then, which the manager cannot know.
    fn removed(&mut self, at: Timestamp, write: &Write, pod: &Value, truth: &dyn Truth) -> Result<(), String> {
        if write.sent + HELD < at {
            return Ok(());
        }
        let Some(node) = node_named(truth, text(pod, "/spec/nodeName")) else {
            return Ok(());
        };
        self.hits += 1;
        let wrong = |what: &str| Err(format!("pod {} on node {} {what}", name(pod), name(&node)));
        if is_mirror(pod) || controller_kind(pod) == "DaemonSet" {
            return wrong("was removed, which belongs to its node");
        }
        let Some(machine) = machine_of(truth, &node) else {
            // Somebody took the Machine away while its pods were being removed.
            return Ok(());
        };
        let last = self.kept.get(uid(&machine));
        let was_kept = is_kept(&machine) || last.is_some_and(|last| *last + self.max_lag >= at);
        let was_selected = self
            .selected
            .get(uid(&node))
            .is_some_and(|last| *last + self.max_lag >= at);
        let is_selected = selected_since(&node).is_some() || was_selected;
        if !is_deleting(&machine) && !was_kept && !is_selected {
            return wrong("was removed, and its machine stays");
        }
        let is_cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
        let lets_come = match is_kept(&machine) {
            true => !lets_none_come(&node),
            false => !is_deleting(&machine) && !was_kept && !was_selected && !is_cordoned,
        };
        if lets_come {
            return wrong("was removed, and new ones may come");
        }
        if write.subresource != "eviction" && !self.may_force(write.sent, &machine, &node, truth) {
            return wrong("was deleted and not evicted, before the deadline");
        }
        let broken = broken_budget(truth, pod).filter(|budget| !self.is_stale(at, budget));
        match (write.subresource.as_str(), broken) {
            ("eviction", Some(budget)) => wrong(&format!("was evicted, which budget {} did not allow", name(&budget))),
            _ => Ok(()),
        }
    }

    /// A manager says that a node may be updated in place.
    fn begins(&mut self, at: Timestamp, write: &Write, truth: &dyn Truth) -> Result<(), String> {
        let updating = |machine: &Option<Arc<Value>>| machine.as_ref().is_some_and(|it| phase(it) == "InPlaceUpdating");
        let is_begin = matches!(write.by, By::Manager(_)) && !updating(&write.before) && updating(&write.after);
        let Some(machine) = write.after.as_ref().filter(|_| is_begin) else {
            return Ok(());
        };
        let Some(node) = node_of(truth, machine) else {
            return Ok(());
        };
        self.hits += 1;
        if self.may_force(at, machine, &node, truth) {
            return Ok(());
        }
        let seen = at - self.max_lag;
        let clear = self.clear.get(uid(&node));
        let mut pods = pods_on(truth, name(&node)).filter(|pod| {
            let since = self.bound.get(uid(pod));
            let came_late = clear.zip(since).is_some_and(|(clear, since)| since > clear);
            must_go(pod) && !came_late && since.is_none_or(|since| *since <= seen)
        });
        match pods.next() {
            None => Ok(()),
            Some(pod) => Err(format!(
                "machine {} is to be updated in place while pod {} is on its node {}",
                name(machine),
                name(&pod),
                name(&node)
            )),
        }
    }

    fn wrote(&mut self, at: Timestamp, write: &Write, truth: &dyn Truth) -> Result<(), String> {
        let judged = match (write.by, &write.before) {
            (By::Manager(_), Some(pod)) if write.resource == "pods" && is_removal(write, pod) => {
                self.removed(at, write, pod, truth)
            }
            _ => Ok(()),
        };
        self.count(at, write, truth);
        let of = write.object().map(|object| match write.resource.as_str() {
            "pods" => {
                let node = text(object, "/spec/nodeName");
                if !node.is_empty() {
                    self.bound.entry(uid(object).to_owned()).or_insert(at);
                }
                node
            }
            _ => name(object),
        });
        if let Some(node) = of.and_then(|of| node_named(truth, of)) {
            self.note(at, &node, truth);
        }
        if let Some(before) = write.before.as_ref().filter(|_| write.resource == "nodes") {
            self.volumes.told(at, before, truth);
        }
        // What was selected, silent or dead until now.
        if let Some(before) = write
            .before
            .as_ref()
            .filter(|node| write.resource == "nodes" && selected_since(node).is_some())
        {
            self.selected.insert(uid(before).to_owned(), at);
        }
        if let Some(before) = write
            .before
            .as_ref()
            .filter(|node| write.resource == "nodes" && is_silent(node))
        {
            self.silent.insert(uid(before).to_owned(), at);
        }
        if let Some(before) = write
            .before
            .as_ref()
            .filter(|node| write.resource == "nodes" && is_dead(node, at))
        {
            self.dead.insert(uid(before).to_owned(), at);
        }
        judged
    }

    /// The API server evicts by what the status of a budget says, and that knows of a pod that was deleted, or is not ready any more, only
    /// when the disruption controller has looked.
    fn count(&mut self, at: Timestamp, write: &Write, truth: &dyn Truth) {
        let Some(pod) = write.before.as_ref().filter(|pod| is_healthy(pod)) else {
            return;
        };
        if write.resource != "pods"
            || write.subresource == "eviction"
            || write.after.as_ref().is_some_and(|after| is_healthy(after))
        {
            return;
        }
        let budgets = truth.objects("poddisruptionbudgets");
        let of_pod = budgets.iter().filter(|budget| selects(budget, pod));
        self.stale.extend(of_pod.map(|budget| (uid(budget).to_owned(), at)));
    }

    fn is_stale(&self, at: Timestamp, budget: &Value) -> bool {
        self.stale.get(uid(budget)).is_some_and(|since| at <= *since + APART)
    }

    fn note(&mut self, at: Timestamp, node: &Value, truth: &dyn Truth) {
        let is_cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
        let is_empty = !pods_on(truth, name(node)).any(|pod| must_go(&pod));
        self.volumes.note(at, node, is_empty, is_cordoned);
        if is_cordoned && is_empty {
            self.clear.insert(uid(node).to_owned(), at);
        }
    }
}

/// Whether the Machine failed, is preserved and stays.
fn is_kept(machine: &Value) -> bool {
    phase(machine) == "Failed" && time(machine, kept::UNTIL).is_some() && !is_deleting(machine)
}

/// Since when the pods of a Node go because it is selected for an update in place.
fn selected_since(node: &Value) -> Option<Timestamp> {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let mut told = conditions
        .into_iter()
        .flatten()
        .filter(|told| text(told, "/type") == "InPlaceUpdate");
    let told = told
        .next()
        .filter(|told| text(told, "/reason") == "SelectedForUpdate")?;
    time(told, "/lastTransitionTime").filter(|_| !text(node, SELECTED).is_empty())
}

/// Whether the Node bears the taint of a preserved Machine.
fn lets_none_come(node: &Value) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    taints
        .into_iter()
        .flatten()
        .any(|taint| text(taint, "/key") == PRESERVED)
}

impl Oracle for Drain {
    fn id(&self) -> &'static str {
        "S7"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        if let Act::Call(call) = &event.act {
            self.volumes.called(event.at, call);
        }
        match &event.act {
            Act::Write(write) if write.accepted && matches!(write.resource.as_str(), "pods" | "nodes") => {
                return self.wrote(event.at, write, truth);
            }
            Act::Write(write)
                if write.accepted && write.resource == "poddisruptionbudgets" && write.subresource == "status" =>
            {
                if let Some(budget) = write.object() {
                    self.stale.remove(uid(budget));
                }
            }
            Act::Write(write) if write.accepted && write.resource == "volumeattachments" => {
                self.volumes.wrote(event.at, write);
                if let (By::Manager(_), Some(attachment)) = (write.by, &write.before) {
                    return self.detached(write, attachment, truth);
                }
            }
            Act::Write(write) if write.accepted && write.resource == "machines" => {
                // Until now it was, or from now on it is.
                let all = write.before.iter().chain(&write.after);
                let kept = all.filter(|machine| is_kept(machine));
                self.kept
                    .extend(kept.map(|machine| (uid(machine).to_owned(), event.at)));
                return self.begins(event.at, write, truth);
            }
            Act::Call(call) if call.method == Method::DeleteMachine => return self.called(event.at, call, truth),
            Act::Call(call) if call.method == Method::Other => {
                self.asked.insert(call.uid.clone(), event.at);
            }
            Act::TargetAway => self.away = Some(event.at),
            Act::TargetBack => {
                self.away = None;
                self.back = Some(event.at);
            }
            Act::Started(by) => self.volumes.started(event.at, *by),
            Act::ClockSet => self.is_clock_set = true,
            _ => {}
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

/// A deletion, also of what is ending already; an eviction, where it is what ends the pod.
fn is_removal(write: &Write, before: &Value) -> bool {
    let ends = write.after.as_ref().is_none_or(|after| is_deleting(after));
    match write.subresource.as_str() {
        "eviction" => ends && !is_deleting(before),
        _ => write.verb == Verb::Delete,
    }
}

fn is_healthy(pod: &Value) -> bool {
    is_true(pod, "Ready") && !is_deleting(pod)
}

/// Whether a pod does work that somebody else has to take over.
fn must_go(pod: &Value) -> bool {
    let is_finished = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") && !is_deleting(pod);
    !is_finished && !is_mirror(pod) && controller_kind(pod) != "DaemonSet"
}

fn is_mirror(pod: &Value) -> bool {
    !text(pod, "/metadata/annotations/kubernetes.io~1config.mirror").is_empty()
}

fn pods_on(truth: &dyn Truth, node: &str) -> impl Iterator<Item = Arc<Value>> {
    let pods = truth.objects("pods").into_iter();
    pods.filter(move |pod| text(pod, "/spec/nodeName") == node)
}

fn node_named(truth: &dyn Truth, named: &str) -> Option<Arc<Value>> {
    truth.objects("nodes").into_iter().find(|node| name(node) == named)
}

/// The Node of a Machine's VM.
fn node_of(truth: &dyn Truth, machine: &Value) -> Option<Arc<Value>> {
    let id = Some(text(machine, "/spec/providerID")).filter(|id| !id.is_empty())?;
    let mut nodes = truth.objects("nodes").into_iter();
    nodes.find(|node| text(node, "/spec/providerID") == id)
}

fn machine_of(truth: &dyn Truth, node: &Value) -> Option<Arc<Value>> {
    let id = Some(text(node, "/spec/providerID")).filter(|id| !id.is_empty())?;
    let mut machines = truth.objects("machines").into_iter();
    machines.find(|machine| text(machine, "/spec/providerID") == id)
}

/// Since when the Node is not ready.
fn silent_since(node: &Value) -> Option<Timestamp> {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let mut ready = conditions
        .into_iter()
        .flatten()
        .filter(|told| text(told, "/type") == "Ready");
    let told = ready.next().filter(|told| text(told, "/status") != "True")?;
    time(told, "/lastTransitionTime")
}

fn is_silent(node: &Value) -> bool {
    silent_since(node).is_some()
}

/// Whether the Node was not ready for so long that nobody ends its pods.
fn is_dead(node: &Value, at: Timestamp) -> bool {
    silent_since(node).is_some_and(|since| since + DEAD_AFTER <= at)
}

/// A budget that has fewer healthy pods than it wants, now that this one goes, which was healthy.
fn broken_budget(truth: &dyn Truth, pod: &Value) -> Option<Arc<Value>> {
    if !is_true(pod, "Ready") {
        return None;
    }
    let pods = truth.objects("pods");
    let is_broken = |budget: &Arc<Value>| {
        let Some(least) = budget.pointer("/spec/minAvailable").and_then(Value::as_u64) else {
            return false;
        };
        let healthy = pods
            .iter()
            .filter(|other| selects(budget, other) && is_true(other, "Ready") && !is_deleting(other));
        selects(budget, pod) && u64::try_from(healthy.count()).is_ok_and(|healthy| healthy < least)
    };
    truth.objects("poddisruptionbudgets").into_iter().find(is_broken)
}
