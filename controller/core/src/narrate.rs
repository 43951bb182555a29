//! A plan as text: the reason, each step in a line, and when it is looked at again.
//!
//! Golden files and logs show the same words. Decides nothing; shows names, phases and counts, never an object's whole
//! content, and of a breadcrumb only that there is one.

use std::fmt::Display;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use serde_json::Value;

use crate::api::lenient::GoDuration;
use crate::api::meta;
use crate::api::operation::MachineSummary;
use crate::drain::PodRef;
use crate::machine::StatusChange;
use crate::machine::node::whole_seconds;
use crate::plan::Plan;
use crate::{class, deployment, machine, set};

/// A step in one line.
pub trait Narrate {
    /// The line; without secrets and without an object's whole content.
    fn narrate(&self) -> String;
}

/// A plan: the reason, its steps, and when it is looked at again.
pub fn plan<S: Narrate, W: Display>(plan: &Plan<S, W>, now: Timestamp) -> String {
    let mut lines = vec![plan.why.to_string()];
    lines.extend(plan.steps.iter().map(|step| format!("- {}", step.narrate())));
    lines.extend(plan.withheld.iter().map(|(name, why)| format!("  not {name}: {why}")));
    lines.extend(plan.wake.map(|at| format!("looks again {}", relative(at, now))));
    lines.join("\n")
}

/// A time as people say it: "in 5s", "at once".
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let wait = at.duration_since(now);
    if wait <= SignedDuration::ZERO {
        "at once".to_owned()
    } else {
        format!("in {}", GoDuration::from(wait))
    }
}

impl Narrate for machine::Step {
    fn narrate(&self) -> String {
        match self {
            Self::AddFinalizer => "store the finalizer".to_owned(),
            Self::Confirm => "read the Machine live".to_owned(),
            Self::SeeNode(node) => format!("read Node {node} live"),
            Self::Record(change) => format!("record {}", status(change)),
            Self::EnsureToken => "make sure of the bootstrap token".to_owned(),
            Self::Probe(_) => "reserve the probe for all machines that wait".to_owned(),
            Self::Call(call) => format!("call {call}"),
            Self::Identify { provider_id, node } => {
                let id = provider_id.as_ref().map(|id| format!("providerID {id}"));
                let node = node.as_ref().map(|node| format!("node {node}"));
                let parts: Vec<String> = id.into_iter().chain(node).collect();
                format!("identify the VM: {}", parts.join(", "))
            }
            Self::WriteNode(patch) if patch.only_guards() => match patch.join_duration() {
                Some(took) => format!("guard Node {}, which joined after {took}", patch.node),
                None => format!("guard Node {}", patch.node),
            },
            Self::WriteNode(patch) | Self::WriteCapacity(patch) | Self::WriteCondition(patch) => {
                format!("write Node {}: {}", patch.node, patch.told().join(", "))
            }
            Self::Keep(keeping) => kept(keeping),
            Self::Annotate(changes) => {
                let told = each(changes, ", ", |(key, value)| match value {
                    Some(value) => format!("{key}={value}"),
                    None => format!("no {key}"),
                });
                format!("annotate the Machine: {told}")
            }
            Self::Complain(fault) => format!("say: {fault}"),
            Self::Cordon(node) => format!("cordon Node {node}"),
            Self::WatchPods(node) => format!("watch the pods of Node {node}"),
            Self::LeavePods => "watch the node's pods no longer".to_owned(),
            Self::WatchVolumes => "watch where volumes are attached".to_owned(),
            Self::Detach(attachments) => {
                let names = names(attachments.iter().map(|(name, _)| name.as_str()));
                format!("delete VolumeAttachment {names}")
            }
            Self::Evict(pods) => format!("evict {}", pod_names(pods)),
            Self::LearnVolumes(pods) => format!("learn the volumes of {}", pod_names(pods)),
            Self::DeletePods { pods, grace } if grace.is_zero() => format!("delete without grace {}", pod_names(pods)),
            Self::DeletePods { pods, grace } => {
                let grace = GoDuration::from(whole_seconds(*grace));
                format!("delete with a grace of {grace} at the longest {}", pod_names(pods))
            }
            Self::DropToken => "drop the bootstrap token".to_owned(),
            Self::DeleteMachine => "delete the Machine".to_owned(),
            Self::RemoveNode(node) => format!("remove Node {node}"),
            Self::LeaveBehind => "remove what is left in the target cluster, or remember it".to_owned(),
            Self::RemoveFinalizer => "remove the finalizer".to_owned(),
            Self::StepDown => "read the lease live, to see who leads".to_owned(),
        }
    }
}

fn pod_names(pods: &[PodRef]) -> String {
    each(pods, ", ", ToString::to_string)
}

fn kept(keeping: &machine::Keeping) -> String {
    let until = keeping.until.map_or_else(
        || "record that it is not preserved".to_owned(),
        |until| format!("record that it is preserved until {until:.0}"),
    );
    match keeping.drained {
        Some(at) => format!("{until}, drained at {at:.0}"),
        None => until,
    }
}

fn status(change: &StatusChange) -> String {
    let phase = if change.phase.is_new() {
        "no phase"
    } else {
        change.phase.as_str()
    };
    let mut text = format!("{phase}, {} {}", change.operation, change.state);
    if let Some(code) = &change.error_code {
        text.push_str(&format!(" [{code}]"));
    }
    text.push_str(&format!(": {}", change.description));
    let extras = [
        change.conditions.as_ref().map(|_| "conditions"),
        change.addresses.as_ref().map(|_| "addresses"),
        change.last_known_state.as_ref().map(|_| "breadcrumb"),
        change.creation_request.as_ref().map(|_| "creation request"),
    ];
    let extras: Vec<&str> = extras.into_iter().flatten().collect();
    if extras.is_empty() {
        text
    } else {
        format!("{text} (with {})", extras.join(", "))
    }
}

impl Narrate for set::Step {
    fn narrate(&self) -> String {
        use set::Step;
        match self {
            Step::AddFinalizer => "store the finalizer".to_owned(),
            Step::RemoveFinalizer => "remove the finalizer".to_owned(),
            Step::Adopt(machines) => format!("adopt {}", names(machines.iter().map(name))),
            Step::Release(machines) => format!("release {}", names(machines.iter().map(name))),
            Step::Reserve { next } => format!("reserve the names below number {next}"),
            Step::Create(batch) => format!("create {}", names(batch.iter().map(|made| made.name.as_str()))),
            Step::Delete(victims) => format!("delete {}", names(victims.iter().map(|victim| victim.name.as_str()))),
            Step::Bring(all) => each(all, "; ", |one| {
                format!("bring to {}: {}", name(&one.machine), fields(&one.patch(), ""))
            }),
            Step::GiveUp(all) => each(all, "; ", |one| {
                format!("give up {}: {}", name(&one.machine), self::status(&one.failed.change))
            }),
            Step::Keep(marks) => each(marks, "; ", |mark| {
                let longer = if mark.is_kept { "" } else { " no longer" };
                format!("preserve {}{longer}", name(&mark.machine))
            }),
            Step::Thaw => "take off the freeze".to_owned(),
            Step::Record(status) => format!("record {}", set_status(status)),
        }
    }
}

impl Narrate for deployment::Step {
    fn narrate(&self) -> String {
        use deployment::Step;
        match self {
            Step::AddFinalizer => "store the finalizer".to_owned(),
            Step::RemoveFinalizer => "remove the finalizer".to_owned(),
            Step::Adopt(sets) => format!("adopt {}", names(sets.iter().map(name))),
            Step::Create(made) => format!("create {} of {}", made.name, made.replicas),
            Step::Change(change) => format!("change {}: {}", name(&change.set), fields(&change.patch(), "")),
            Step::Delete(sets) => format!("delete {}", names(sets.iter().map(name))),
            Step::Transfer(moved) => each(moved, "; ", |moved| {
                format!("move {} to {}", name(&moved.machine), name(&moved.to))
            }),
            Step::Select(nodes) => {
                let nodes = names(nodes.iter().map(|patch| patch.node.as_str()));
                format!("select for the update in place: Node {nodes}")
            }
            Step::Mark(marks) => {
                let names = names(marks.iter().map(|mark| name(&mark.machine)));
                format!("mark {names} for deletion")
            }
            Step::Prune(Some(left)) => format!("shorten the autoscaler's list to {left}"),
            Step::Prune(None) => "remove the autoscaler's list".to_owned(),
            Step::RollBack(made) => {
                let (_, reason, text) = made.outcome.event("");
                format!("end the order to roll back: {reason}: {text}").replace(" \"\"", "")
            }
            Step::Of(set, step) => format!("{}: {}", name(set), step.narrate()),
            Step::Thaw => "take off the freeze".to_owned(),
            Step::Number(revision) => format!("number it revision {revision}"),
            Step::Record(status) => format!("record {}", deployment_status(status)),
        }
    }
}

impl Narrate for class::Step {
    fn narrate(&self) -> String {
        match self {
            Self::AddFinalizer => "store the finalizer".to_owned(),
            Self::RemoveFinalizer => "remove the finalizer".to_owned(),
            Self::Check => "begin to check the class".to_owned(),
            Self::Record(verdict) => format!("record {}", verdict.text()),
            Self::Report(in_use) => format!("report: {in_use}"),
        }
    }
}

impl Narrate for class::SecretStep {
    fn narrate(&self) -> String {
        match self {
            Self::AddFinalizer => "store the finalizer".to_owned(),
            Self::RemoveFinalizer => "remove the finalizer".to_owned(),
            Self::Report(in_use) => format!("report: {in_use}"),
        }
    }
}

fn name<K: Resource>(object: &Arc<K>) -> &str {
    meta::name(object.meta())
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn each<T>(all: impl IntoIterator<Item = T>, separator: &str, tell: impl Fn(T) -> String) -> String {
    all.into_iter().map(tell).collect::<Vec<_>>().join(separator)
}

/// A merge patch, one `path=value` for each leaf.
fn fields(body: &Value, path: &str) -> String {
    let Some(object) = body.as_object().filter(|object| !object.is_empty()) else {
        return format!("{path}={body}");
    };
    let inner = object.iter().map(|(key, value)| {
        let place = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        fields(value, &place)
    });
    inner.collect::<Vec<_>>().join(" ")
}

fn set_status(change: &set::StatusChange) -> String {
    let conditions = change.conditions.iter();
    let conditions = conditions.map(|told| condition(&told.type_, &told.status, told.reason.as_deref()));
    recorded([
        number(
            "autoPreserveFailedMachineCount",
            change.auto_preserve_failed_machine_count,
        ),
        number("availableReplicas", change.available_replicas),
        text("errorMessage", change.error_message.as_ref()),
        text("errorReason", change.error_reason.as_ref()),
        list("failedMachines", change.failed_machines.iter().map(summary)),
        number("fullyLabeledReplicas", change.fully_labeled_replicas),
        text("labelSelector", change.label_selector.as_ref()),
        list("machineSetCondition", conditions),
        number("observedGeneration", change.observed_generation),
        number("preservedFailedReplicas", change.preserved_failed_replicas),
        number("readyReplicas", change.ready_replicas),
        number("replicas", change.replicas),
        number("settledMachineNumber", change.settled_machine_number),
    ])
}

fn deployment_status(change: &deployment::StatusChange) -> String {
    let conditions = change.conditions.iter();
    let conditions = conditions.map(|told| condition(&told.type_, &told.status, told.reason.as_deref()));
    recorded([
        number("availableReplicas", change.available_replicas),
        number("collisionCount", change.collision_count.unwrap_or(0)),
        list("conditions", conditions),
        list("failedMachines", change.failed_machines.iter().map(summary)),
        text("labelSelector", change.label_selector.as_ref()),
        number("observedGeneration", change.observed_generation),
        number("preservedFailedReplicas", change.preserved_failed_replicas),
        number("readyReplicas", change.ready_replicas),
        number("replicas", change.replicas),
        number("unavailableReplicas", change.unavailable_replicas),
        number("updatedReplicas", change.updated_replicas),
    ])
}

/// A status: what is neither zero nor empty.
fn recorded(parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        "nothing but zeros".to_owned()
    } else {
        parts.join(" ")
    }
}

fn number(field: &str, value: impl Into<i64>) -> Option<String> {
    let value: i64 = value.into();
    (value != 0).then(|| format!("{field}={value}"))
}

fn text(field: &str, value: Option<&String>) -> Option<String> {
    value.map(|text| format!("{field}={text:?}"))
}

fn list(field: &str, entries: impl Iterator<Item = String>) -> Option<String> {
    let entries: Vec<String> = entries.collect();
    (!entries.is_empty()).then(|| format!("{field}=[{}]", entries.join(", ")))
}

fn condition(type_: &str, status: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{type_}={status} {reason}"),
        None => format!("{type_}={status}"),
    }
}

fn summary(machine: &MachineSummary) -> String {
    machine.name.as_deref().unwrap_or("?").to_owned()
}
