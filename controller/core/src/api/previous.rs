//! What the version before this one stored in another form: sentences in `lastOperation.description` where this version writes
//! `lastOperation.reason`, and a shorter record of the providerSpec. This module only reads both, the sentences only where an operation
//! carries no `reason`. It is to be deleted with the next version. Only this module may decide anything from the sentences of a
//! description; the marks at its end (`keys::DELETION_MARKS`) are another matter.

use serde_json::Value;

use super::{CreationRequest, Machine, OperationReason, OperationType};

/// Whether the version before kept this of such a providerSpec: the short texts at its top.
pub(super) fn is_request_for(request: &CreationRequest, spec: &Value) -> bool {
    let texts = spec.as_object().into_iter().flatten();
    let texts = texts.filter(|(_, value)| value.as_str().is_some_and(|text| text.len() <= 256));
    let kept: serde_json::Map<String, Value> = texts
        .take(32)
        .map(|(field, text)| (field.clone(), text.clone()))
        .collect();
    let before = request.provider_spec.as_object();
    request.inventory_key.is_none() && before.map_or(kept.is_empty(), |before| *before == kept)
}

/// What the description of an operation without a reason meant when the version before wrote it.
pub(super) fn reason(machine: &Machine) -> Option<OperationReason> {
    let said = machine.last_operation()?.description.as_deref()?;
    match machine.operation_type()? {
        OperationType::Create if said.starts_with("Waiting: ") => Some(match said.contains(". It said: ") {
            true => OperationReason::Suspended,
            false => OperationReason::Waiting,
        }),
        OperationType::Delete if said.starts_with("Waiting to remove the VM: ") && said.contains(". It said: ") => {
            Some(OperationReason::Suspended)
        }
        OperationType::HealthCheck if said.starts_with("The provider says that ") => Some(OperationReason::VmReported),
        OperationType::Delete if said.starts_with("Draining node ") => Some(match tells_refusal(said) {
            true => OperationReason::DrainBlocked,
            false => OperationReason::Draining,
        }),
        // The version before waited for most Machines of this description as for one whose Node it had seen.
        OperationType::Delete if said.starts_with("Waiting until ") => Some(OperationReason::Draining),
        OperationType::Create
        | OperationType::Update
        | OperationType::InPlaceUpdate
        | OperationType::DrainNode
        | OperationType::HealthCheck
        | OperationType::Delete => None,
    }
}

fn tells_refusal(said: &str) -> bool {
    let words = [
        " may not be evicted now: ",
        " may never be evicted: ",
        "; the API server did not evict ",
    ];
    words.iter().any(|word| said.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(type_: &str, description: &str, reason: Option<&str>) -> Option<OperationReason> {
        let last = json!({"type": type_, "state": "Failed", "description": description, "reason": reason});
        let machine = json!({"metadata": {}, "spec": {}, "status": {"lastOperation": last}});
        let machine: Machine = serde_json::from_value(machine).expect("it is a Machine");
        machine.operation_reason()
    }

    #[test]
    fn a_sentence_counts_only_where_an_operation_has_no_reason() {
        let waiting = "Waiting: the class small is missing";
        assert_eq!(said("Create", waiting, None), Some(OperationReason::Waiting));
        assert_eq!(said("Create", waiting, Some("")), None);
        assert_eq!(
            said("Create", "anything", Some("Suspended")),
            Some(OperationReason::Suspended)
        );
        assert_eq!(said("Create", waiting, Some("LaterVersion")), None);
        let refused = "Waiting to remove the VM: the provider refused. It said: no. Initiate VM deletion";
        assert_eq!(said("Delete", refused, None), Some(OperationReason::Suspended));
        let reported = "The provider says that the VM is off; the machine is replaced";
        assert_eq!(said("HealthCheck", reported, None), Some(OperationReason::VmReported));
        let held = "Draining node n until 2026: 1 pod is left; a/b may not be evicted now: no. Initiate node drain";
        assert_eq!(said("Delete", held, None), Some(OperationReason::DrainBlocked));
    }
}
