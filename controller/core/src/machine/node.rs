//! What a Machine's plan reads off a Node. Writes nothing; MC-12 is the rule of health.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

use crate::api::{Machine, keys, meta};
use crate::ids::{NodeName, NodeRef, Uid};
use crate::settings::Settings;

/// The Node's name.
pub fn name(node: &Node) -> NodeName {
    NodeName::new(node.metadata.name.clone().unwrap_or_default())
}

/// The Node, as a request names it.
pub fn reference(node: &Node) -> NodeRef {
    let uid = Uid::new(node.metadata.uid.clone().unwrap_or_default());
    NodeRef { name: name(node), uid }
}

/// The id of its VM, where somebody has written that.
pub fn provider_id(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref();
    id.filter(|id| !id.is_empty())
}

/// Whether a Node is the Machine's own: by providerID where both have one, because names come back (W42).
pub fn belongs(node: &Node, machine: &Machine) -> bool {
    match (provider_id(node), machine.provider_id()) {
        (Some(node_id), Some(machine_id)) => node_id == machine_id.as_str(),
        (None, _) | (_, None) => machine.node_label() == Some(name(node)),
    }
}

/// The name of the Machine's Node: the one that it learned, else its own, which VMs register with unless their driver says otherwise.
pub fn likely_name(machine: &Machine) -> Option<NodeName> {
    let own = || NodeName::non_empty(machine.metadata.name.as_deref());
    machine.node_label().or_else(own)
}

/// Whether a Node may be that of a VM about which the Machine never learned anything, because every answer of its driver was
/// lost: the Machine's own name, which VMs register with unless their driver says otherwise, and not older than the Machine.
pub fn may_be_lost(node: &Node, machine: &Machine) -> bool {
    let knows_nothing = machine.provider_id().is_none() && machine.node_label().is_none();
    let (came, made) = (&node.metadata.creation_timestamp, &machine.metadata.creation_timestamp);
    knows_nothing && node.metadata.name == machine.metadata.name && came >= made
}

/// The Node's conditions.
pub fn conditions(node: &Node) -> &[NodeCondition] {
    node.status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

/// What the kubelet says of itself: the condition `Ready`, if there is one.
pub fn ready(node: &Node) -> Option<&NodeCondition> {
    condition(node, keys::NODE_READY)
}

/// Whether the kubelet says that it is ready.
pub fn is_ready(node: &Node) -> bool {
    ready(node).is_some_and(|ready| ready.status == keys::STATUS_TRUE)
}

/// The condition of that type.
pub fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    conditions(node).iter().find(|condition| condition.type_ == type_)
}

/// Whether the Node takes no new pods.
pub fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// Volumes that are attached to the Node, as the attach-detach controller says.
pub fn attached(node: &Node) -> Vec<&str> {
    let status = node.status.as_ref();
    let volumes = status.and_then(|status| status.volumes_attached.as_deref());
    let mut names: Vec<&str> = volumes
        .unwrap_or_default()
        .iter()
        .map(|volume| volume.name.as_str())
        .collect();
    names.sort_unstable();
    names
}

/// The node conditions in force for a Machine: its own list, then the operator's.
pub(crate) fn watched_conditions(machine: &Machine, settings: &Settings) -> Vec<String> {
    match machine.spec.node_conditions.as_deref() {
        Some(own) if !own.is_empty() => own.split(',').map(str::to_owned).collect(),
        Some(_) | None => settings.node_conditions.clone(),
    }
}

/// Healthy: `Ready` is `True`, and none of the watched conditions is anything but `False` (W12: no `Ready`, no health).
pub fn is_healthy(node: &Node, watched: &[String]) -> bool {
    unhealthy_conditions(node, watched).is_empty()
}

/// Whether a Node, as it was read live, keeps the Machine from failing: it is its own, healthy, and not being deleted. A Node of that name
/// may be another VM's by now; then the Machine has none.
pub fn keeps_from_failing(live: &Node, machine: &Machine, settings: &Settings) -> bool {
    belongs(live, machine)
        && !meta::is_deleting(&live.metadata)
        && is_healthy(live, &watched_conditions(machine, settings))
}

/// Every condition that makes the Node unhealthy, as `Type=Status (Reason)`.
pub fn unhealthy_conditions(node: &Node, watched: &[String]) -> Vec<String> {
    let bad = conditions(node).iter().filter(|condition| {
        let ready = condition.type_ == keys::NODE_READY;
        (ready && condition.status != "True")
            || (!ready && watched.contains(&condition.type_) && condition.status != "False")
    });
    let told = |condition: &NodeCondition| {
        let reason = condition.reason.as_deref().unwrap_or("no reason given");
        format!("{}={} ({reason})", condition.type_, condition.status)
    };
    let silent = ready(node).is_none().then(|| "no condition Ready".to_owned());
    silent.into_iter().chain(bad.map(told)).collect()
}

/// Whether the conditions tell another story: types or statuses, not heartbeats or words, but how far an update in place is
/// (MC-12).
pub fn conditions_differ(copied: &[NodeCondition], live: &[NodeCondition]) -> bool {
    let story = |conditions: &[NodeCondition]| {
        let told = |condition: &NodeCondition| {
            let is_telling = condition.type_ == keys::NODE_IN_PLACE_UPDATE;
            let reason = condition.reason.clone().filter(|_| is_telling);
            (condition.type_.clone(), condition.status.clone(), reason)
        };
        let mut pairs: Vec<(String, String, Option<String>)> = conditions.iter().map(told).collect();
        pairs.sort();
        pairs
    };
    story(copied) != story(live)
}

/// Whether the taint is there that keeps a new node out of service until its critical components run.
pub fn is_gated(node: &Node) -> bool {
    taints(node).iter().any(gates)
}

/// Whether it is that taint.
pub fn gates(taint: &Taint) -> bool {
    taint.key == keys::TAINT_CRITICAL_COMPONENTS && taint.effect == "NoSchedule"
}

/// The Node's taints.
pub fn taints(node: &Node) -> &[Taint] {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether somebody wants the Node left alone: it gets nothing from us, and its end is not its Machine's (MC-16).
pub fn is_unmanaged(node: &Node) -> bool {
    meta::annotation(&node.metadata, keys::NOT_MANAGED).is_some()
}

/// Cut to whole seconds, for texts.
pub fn whole_seconds(span: SignedDuration) -> SignedDuration {
    SignedDuration::from_secs(span.as_secs())
}
