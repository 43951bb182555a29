//! What an API server drops from a status because the CRD of the cluster, for example the original's, does not know the field.
//!
//! Our additions to a status say what this process has done, so a process whose additions are dropped would do it again and again. It
//! keeps them itself: from what it has sent ([`completed`]), and from version to version of the object (`Stored::inherit`). A process that
//! starts later does not know them. Decides nothing else.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{LastOperation, Machine, MachineClass, MachineDeployment, MachineSet};
use crate::merge;

/// A kind whose status may lack what was sent.
pub trait Pruned {
    /// Whether the object, which is the answer to a write of this merge patch, lacks what the patch says.
    fn lacks(&self, sent: &Value) -> bool;
    /// The merge patch with all that such a CRD drops of the object, where the object has any.
    fn additions(&self) -> Option<Value>;
}

fn says(sent: &Value, field: &str) -> bool {
    sent.pointer(field).is_some_and(|value| !value.is_null())
}

impl Pruned for Machine {
    fn lacks(&self, sent: &Value) -> bool {
        let reason = self.last_operation().and_then(|last| last.reason.as_ref());
        (reason.is_none() && says(sent, "/status/lastOperation/reason"))
            || (self.creation_request().is_none() && says(sent, "/status/creationRequest"))
            || (self.preserve_drained().is_none() && says(sent, "/status/currentStatus/preserveDrainedTime"))
    }

    fn additions(&self) -> Option<Value> {
        let status = self.status.as_ref()?;
        let reason = status.last_operation.as_ref().and_then(|last| last.reason.as_ref());
        let drained = status
            .current_status
            .as_ref()
            .and_then(|current| current.preserve_drained_time.as_ref());
        let all = [
            status
                .creation_request
                .as_ref()
                .map(|request| json!({ "creationRequest": request })),
            reason.map(|reason| json!({ "lastOperation": { "reason": reason } })),
            drained.map(|at| json!({ "currentStatus": { "preserveDrainedTime": at } })),
        ];
        patch_of(all.into_iter().flatten())
    }
}

impl Pruned for MachineSet {
    fn lacks(&self, sent: &Value) -> bool {
        let status = self.status.as_ref();
        let selector = status.and_then(|status| status.label_selector.as_ref());
        let next = status.map_or(0, |status| status.next_machine_number);
        (selector.is_none() && says(sent, "/status/labelSelector"))
            || (next == 0 && says(sent, "/status/nextMachineNumber"))
    }

    fn additions(&self) -> Option<Value> {
        let status = self.status.as_ref()?;
        let numbers = json!({
            "nextMachineNumber": status.next_machine_number,
            "settledMachineNumber": status.settled_machine_number,
            "errorReason": status.error_reason,
            "errorMessage": status.error_message,
        });
        let selector = status.label_selector.as_ref();
        patch_of(
            selector
                .map(|selector| json!({ "labelSelector": selector }))
                .into_iter()
                .chain([numbers]),
        )
    }
}

impl Pruned for MachineDeployment {
    fn lacks(&self, sent: &Value) -> bool {
        let selector = self.status.as_ref().and_then(|status| status.label_selector.as_ref());
        selector.is_none() && says(sent, "/status/labelSelector")
    }

    fn additions(&self) -> Option<Value> {
        let selector = self.status.as_ref()?.label_selector.as_ref();
        patch_of(selector.map(|selector| json!({ "labelSelector": selector })))
    }
}

/// One whose CRD lacks the status lacks the path to write it as well.
impl Pruned for MachineClass {
    fn lacks(&self, _: &Value) -> bool {
        false
    }

    fn additions(&self) -> Option<Value> {
        None
    }
}

/// The merge patch of a status with these parts; none of no parts.
fn patch_of(parts: impl IntoIterator<Item = Value>) -> Option<Value> {
    let mut status = Value::Null;
    parts.into_iter().for_each(|part| merge::apply(&mut status, &part));
    (!status.is_null()).then(|| json!({ "status": status }))
}

/// The answer to a write of a merge patch, with what the API server dropped of it.
pub fn completed<K: Serialize + DeserializeOwned>(answer: K, sent: &Value) -> K {
    let Ok(mut object) = serde_json::to_value(&answer) else {
        return answer;
    };
    if let Some(status) = sent.get("status") {
        merge::apply(&mut object, &json!({ "status": status }));
    }
    serde_json::from_value(object).unwrap_or(answer)
}

/// Takes over what a Machine's status had.
pub(crate) fn inherit_machine(machine: &mut Machine, before: &Machine) {
    let (Some(status), Some(known)) = (&mut machine.status, &before.status) else {
        return;
    };
    if status.creation_request.is_none() {
        status.creation_request.clone_from(&known.creation_request);
    }
    if let (Some(last), Some(known)) = (&mut status.last_operation, &known.last_operation)
        && last.reason.is_none()
        && is_same_operation(last, known)
    {
        last.reason.clone_from(&known.reason);
    }
    if let (Some(current), Some(known)) = (&mut status.current_status, &known.current_status)
        && current.preserve_drained_time.is_none()
        && current.preserve_expiry_time.is_some()
        && current.preserve_expiry_time == known.preserve_expiry_time
    {
        current.preserve_drained_time.clone_from(&known.preserve_drained_time);
    }
}

/// Reasons aside.
fn is_same_operation(one: &LastOperation, other: &LastOperation) -> bool {
    let facts = |operation: &LastOperation| LastOperation {
        reason: None,
        ..operation.clone()
    };
    facts(one) == facts(other)
}

/// Takes over what a set's status had. Each status of ours has the selector, unless it was dropped.
pub(crate) fn inherit_set(set: &mut MachineSet, before: &MachineSet) {
    let (Some(status), Some(known)) = (&mut set.status, &before.status) else {
        return;
    };
    if status.label_selector.is_some() {
        return;
    }
    status.label_selector.clone_from(&known.label_selector);
    status.next_machine_number = status.next_machine_number.max(known.next_machine_number);
    status.settled_machine_number = status.settled_machine_number.max(known.settled_machine_number);
    status.error_reason.clone_from(&known.error_reason);
    status.error_message.clone_from(&known.error_message);
}

/// Takes over what a deployment's status had.
pub(crate) fn inherit_deployment(deployment: &mut MachineDeployment, before: &MachineDeployment) {
    let (Some(status), Some(known)) = (&mut deployment.status, &before.status) else {
        return;
    };
    if status.label_selector.is_none() {
        status.label_selector.clone_from(&known.label_selector);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::ids::Name;
    use crate::store::{Store, Stored as _};

    fn machine(status: Value) -> Machine {
        let body = json!({ "metadata": { "name": "m", "uid": "u" }, "spec": {}, "status": status });
        serde_json::from_value(body).expect("it is a Machine")
    }

    #[test]
    fn what_the_server_dropped_of_a_write_is_known_until_another_operation_is_told() {
        let sent = json!({ "metadata": { "resourceVersion": "1" }, "status": {
            "creationRequest": { "provider": "aws", "providerSpec": { "region": "a" } },
            "currentStatus": { "phase": "Pending", "preserveExpiryTime": null },
            "lastOperation": { "description": "Creating", "reason": "Waiting", "type": "Create" },
        }});
        let stored = json!({ "currentStatus": { "phase": "Pending" },
            "lastOperation": { "description": "Creating", "type": "Create" } });
        let answer = machine(stored.clone());
        assert!(answer.lacks(&sent));
        let known = completed(answer, &sent);
        assert!(!known.lacks(&sent));
        assert_eq!(known.metadata.resource_version, None, "the answer's own version holds");

        let mut seen = machine(stored);
        seen.inherit(&known);
        assert_eq!(seen.status, known.status);
        assert_eq!(
            seen.additions().expect("it has some"),
            json!({ "status": {
                "creationRequest": sent["status"]["creationRequest"],
                "lastOperation": { "reason": "Waiting" },
            }})
        );
        let mut other = machine(json!({ "lastOperation": { "description": "Created", "type": "Create" } }));
        other.inherit(&known);
        assert_eq!(other.operation_reason(), None);
        assert_eq!(other.creation_request(), known.creation_request());
    }

    #[test]
    fn an_answer_that_the_watch_overtook_still_says_what_the_server_dropped() {
        let mut bare = machine(json!({ "lastOperation": { "description": "Creating", "type": "Create" } }));
        bare.metadata.resource_version = Some("7".to_owned());
        let sent = json!({ "status": { "creationRequest": { "provider": "aws" } } });
        let mut store = Store::default();
        store.apply(Change::Applied(bare.clone()));
        assert!(store.wrote(store.kept(bare.clone())).is_none(), "it is known");
        assert!(store.wrote(store.kept(completed(bare.clone(), &sent))).is_some());
        store.apply(Change::Applied(bare.clone()));
        let known = store.get(&Name::new("m")).expect("it is there");
        assert!(known.creation_request().is_some());
    }

    #[test]
    fn the_numbers_of_a_set_do_not_go_back_where_the_server_drops_them() {
        let set = |status: Value| -> MachineSet {
            let body = json!({ "metadata": { "name": "s", "uid": "u" }, "spec": {}, "status": status });
            serde_json::from_value(body).expect("it is a MachineSet")
        };
        let reserved = json!({ "status": { "nextMachineNumber": 7 } });
        assert!(set(json!({ "replicas": 3 })).lacks(&reserved));
        let told = json!({ "status": { "replicas": 3, "labelSelector": "a=b", "settledMachineNumber": 2 } });
        let known = completed(completed(set(json!({})), &reserved), &told);
        let mut seen = set(json!({ "replicas": 3 }));
        seen.inherit(&known);
        assert_eq!(seen.status, known.status);
        let mut ours = set(json!({ "labelSelector": "a=b", "nextMachineNumber": 8 }));
        ours.inherit(&known);
        assert_eq!(ours.status.expect("it has one").settled_machine_number, 0);
    }
}
