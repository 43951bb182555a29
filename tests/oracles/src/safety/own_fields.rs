//! S8: the manager changes only its own fields of what others made or share.

mod gifts;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::in_place::SELECTED;
use crate::diff;
use crate::event::{Act, By, Event, Verb, Write};
use crate::object::{controller, name, text};
use crate::oracle::Oracle;
use crate::truth::Truth;
use gifts::Gifts;

#[derive(Default)]
pub(crate) struct OwnFields {
    hits: u64,
    gifts: Gifts,
}

/// What the manager may change of each resource: (resource, subresource, paths). Below a path everything is ours.
const OWN: &[(&str, &str, &[&str])] = &[
    ("machinedeployments", "status", &["status"]),
    (
        "machinedeployments",
        "",
        &[
            "metadata/finalizers",
            "metadata/annotations/deployment.kubernetes.io~revision",
            "metadata/annotations/node.machine.sapcloud.io~trigger-deletion-by-mcm",
        ],
    ),
    ("machinesets", "status", &["status"]),
    // What a deployment hands down to its set: size, order of deletion, fields that need no rollout.
    (
        "machinesets",
        "",
        &[
            "metadata/finalizers",
            "metadata/ownerReferences",
            "metadata/annotations",
            "spec/replicas",
            "spec/minReadySeconds",
            "spec/autoPreserveFailedMachineMax",
            "spec/deletePolicy",
            "spec/template/spec",
            // A set that was adopted gets the label by which its deployment tells its sets apart.
            "metadata/labels/machine-template-hash",
            "spec/template/metadata/labels/machine-template-hash",
            "spec/selector/matchLabels/machine-template-hash",
        ],
    ),
    ("machines", "status", &["status"]),
    (
        "machines",
        "",
        &[
            "metadata/finalizers",
            "metadata/ownerReferences",
            "metadata/labels/node",
            "metadata/labels/machine-template-hash",
            "metadata/labels/node.machine.sapcloud.io~update-result",
            "metadata/annotations/machinepriority.machine.sapcloud.io",
            "metadata/annotations/machine.sapcloud.io~marked-for-deletion-time",
            "metadata/annotations/machine.sapcloud.io~released-by",
            "metadata/annotations/machine.sapcloud.io~requests-recorded",
            "metadata/annotations/machine.sapcloud.io~template-values",
            "metadata/annotations/node.machine.sapcloud.io~preserve",
            "metadata/annotations/node.machine.sapcloud.io~last-applied-node-preserve-value",
            "spec/providerID",
            "spec/class/kind",
            "spec/nodeTemplate",
            "spec/drainTimeout",
            "spec/healthTimeout",
            "spec/creationTimeout",
            "spec/inPlaceUpdateTimeout",
            "spec/machinePreserveTimeout",
            "spec/disableHealthTimeout",
            "spec/maxEvictRetries",
            "spec/nodeConditions",
        ],
    ),
    ("machineclasses", "", &["metadata/finalizers"]),
    ("machineclasses", "status", &["status"]),
    // `data/expiration` is that of bootstrap tokens, which live on with their Machine's time.
    ("secrets", "", &["metadata/finalizers", "data/expiration"]),
    // What templates give beside these: `gifts`.
    (
        "nodes",
        "",
        &[
            "metadata/finalizers",
            "metadata/labels/node.gardener.cloud~machine-name",
            "metadata/labels/node.machine.sapcloud.io~candidate-for-update",
            "metadata/labels/node.machine.sapcloud.io~selected-for-update",
            // Taken off, and never put on: `wishes`.
            "metadata/labels/node.machine.sapcloud.io~update-result",
            "metadata/annotations/node.machine.sapcloud.io~update-failed-reason",
            "metadata/annotations/node.machine.sapcloud.io~cordoned-before-update",
            "metadata/annotations/cluster-autoscaler.kubernetes.io~scale-down-disabled",
            "metadata/annotations/cluster-autoscaler.kubernetes.io~scale-down-disabled-by-mcm",
            "metadata/annotations/node.machine.sapcloud.io~last-applied-anno-labels-taints",
            "metadata/annotations/node.machine.sapcloud.io~machine-join-duration",
            // Taken off, and never put on: `wishes`.
            "metadata/annotations/node.machine.sapcloud.io~preserve",
            // Set, and taken back only after an update in place: `uncordons`.
            "spec/unschedulable",
        ],
    ),
    (
        "nodes",
        "status",
        &[
            "metadata/annotations/node.machine.sapcloud.io~last-applied-virtual-capacity",
            // One of them: `conditions_of_others`.
            "status/conditions",
        ],
    ),
    ("leases", "", &["spec", "metadata/annotations"]),
    (
        "events",
        "",
        &["metadata", "series", "count", "message", "lastTimestamp", "eventTime"],
    ),
];

/// What an order to go back lets the manager change of a deployment, in the write with which it takes the order away.
const GOING_BACK: &[&str] = &["spec/rollbackTo", "spec/template", "metadata/annotations"];

/// What of [`OWN`] holds for sets that no deployment has.
const FREE_SETS: &[&str] = &["metadata/finalizers", "metadata/ownerReferences", "status"];

/// What the server writes by itself with any write.
const SERVER: &[&str] = &[
    "metadata/managedFields",
    "metadata/resourceVersion",
    "metadata/generation",
    "metadata/deletionTimestamp",
    "metadata/deletionGracePeriodSeconds",
];

impl Oracle for OwnFields {
    fn id(&self) -> &'static str {
        "S8"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        self.gifts.learn(write);
        let (By::Manager(_), Some(before), Some(after)) = (write.by, &write.before, &write.after) else {
            return Ok(());
        };
        if !write.accepted || write.verb == Verb::Create {
            return Ok(());
        }
        self.hits += 1;
        let own: Vec<&str> = SERVER.iter().copied().chain(own(write)).collect();
        let mut foreign = Vec::new();
        let is_node = write.resource == "nodes";
        diff::each(before, after, &mut |path| {
            let is_gift = is_node && gifts::PLACES.iter().any(|place| is_under(path, place));
            if !is_gift && !own.iter().any(|own| is_under(path, own)) {
                foreign.push(path.join("."));
            }
        });
        if is_node {
            foreign.extend(self.gifts.foreign(before, after, &own));
        }
        if uncordons(before, after) {
            foreign.push("spec.unschedulable".to_owned());
        }
        if is_node && wishes(before, after) {
            foreign.push(WISH.to_owned());
        }
        if is_node && conditions_of_others(before) != conditions_of_others(after) {
            foreign.push("status.conditions".to_owned());
        }
        match foreign.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "of {}/{} the manager changed {foreign:?} by a write of {:?}",
                write.resource,
                name(after),
                write.subresource
            )),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

/// What the manager may change by such a write.
fn own(write: &Write) -> impl Iterator<Item = &'static str> {
    // A set of no deployment has its user's size and template.
    let is_free =
        write.resource == "machinesets" && write.before.as_ref().is_some_and(|set| controller(set).is_empty());
    let goes_back = write.resource == "machinedeployments" && write.subresource.is_empty() && takes_order(write);
    let going_back = if goes_back { GOING_BACK } else { &[] };
    let rows = OWN
        .iter()
        .filter(|(resource, subresource, _)| *resource == write.resource && *subresource == write.subresource);
    rows.flat_map(|(_, _, paths)| paths.iter())
        .chain(going_back)
        .copied()
        .filter(move |own| !is_free || FREE_SETS.contains(own))
}

/// Whether the write takes an order to go back to an earlier template away.
fn takes_order(write: &Write) -> bool {
    let has_order = |object: &Arc<Value>| object.pointer("/spec/rollbackTo").is_some_and(|order| !order.is_null());
    write.before.as_ref().is_some_and(has_order) && !write.after.as_ref().is_some_and(has_order)
}

/// Whether pods may come to a Node again that was cordoned, otherwise than after its update in place.
fn uncordons(before: &Value, after: &Value) -> bool {
    let is_cordoned = |node: &Value| node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    let was_updated = !text(before, SELECTED).is_empty() || !text(before, RESULT).is_empty();
    is_cordoned(before) && !is_cordoned(after) && !was_updated
}

/// What a user wishes for the machine of a Node.
const WISH: &str = "/metadata/annotations/node.machine.sapcloud.io~1preserve";

/// How an agent says that an update in place went.
const RESULT: &str = "/metadata/labels/node.machine.sapcloud.io~1update-result";

/// Whether the Node wishes something, or says how its update went, that it did not before.
fn wishes(before: &Value, after: &Value) -> bool {
    let is_put_on = |place| !text(after, place).is_empty() && text(before, place) != text(after, place);
    is_put_on(WISH) || is_put_on(RESULT)
}

/// A Node's conditions by type, without those that say that its Machine goes, is preserved or is updated in place.
fn conditions_of_others(node: &Value) -> BTreeMap<&str, &Value> {
    let all = node.pointer("/status/conditions").and_then(Value::as_array);
    let all = all.into_iter().flatten();
    let others = all.filter(|told| !["Terminating", "Preserved", "InPlaceUpdate"].contains(&text(told, "/type")));
    others.map(|told| (text(told, "/type"), told)).collect()
}

/// `~` in a step stands for `/`, as in names of annotations.
fn is_under(path: &[&str], own: &str) -> bool {
    let mut steps = path.iter();
    let is_step = |step: &str, own: &str| step == own || (own.contains('~') && step.split('/').eq(own.split('~')));
    own.split('/')
        .all(|own| steps.next().is_some_and(|step| is_step(step, own)))
}
