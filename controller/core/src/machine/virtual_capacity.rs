//! A class's `nodeTemplate.virtualCapacity` comes to the Nodes of its Machines: extended resources in `status.capacity`.
//!
//! MC-17. A three-way merge as that of the template, written by itself: what the one write meets is nothing to
//! the other (W43). The memory goes in the same write of the status as the capacity, so that neither is ever there without the other.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;

use super::node_patch::{Changes, NodePatch};
use crate::api::qualified::key_fault;
use crate::api::{keys, meta};

type Resources = BTreeMap<String, Quantity>;

/// What changes about the Node's status; `None`: nothing. `wanted`: what its class says, where the class says anything of Nodes.
pub fn change(seen: &Node, wanted: &Resources) -> Option<NodePatch> {
    let noted = meta::annotation(&seen.metadata, keys::LAST_APPLIED_VIRTUAL_CAPACITY);
    let (last, unreadable) = match noted.map(serde_json::from_str::<Resources>) {
        None => (Resources::new(), None),
        Some(Ok(last)) => (last, None),
        Some(Err(fault)) => (Resources::new(), Some(fault)),
    };
    let mut patch = NodePatch::of(seen);
    patch.capacity = capacity(seen, &last, wanted);
    if unreadable.is_some() || !is_same(&last, wanted) {
        let text = (!wanted.is_empty()).then(|| json!(wanted).to_string());
        let place = keys::LAST_APPLIED_VIRTUAL_CAPACITY;
        patch.annotations.insert(place.to_owned(), text);
        patch.faults.extend(unreadable.map(|fault| {
            format!("the Node's annotation {place} cannot be read ({fault}), so nothing that was applied earlier is taken off; it is replaced")
        }));
        let faults = wanted.iter().filter_map(|(key, amount)| {
            let fault = fault(key, amount)?;
            Some(format!("nodeTemplate.virtualCapacity of the class: {key:?}: {fault}"))
        });
        patch.faults.extend(faults);
    }
    (!patch.capacity.is_empty() || !patch.annotations.is_empty()).then_some(patch)
}

fn capacity(seen: &Node, last: &Resources, wanted: &Resources) -> Changes {
    let has = seen.status.as_ref().and_then(|status| status.capacity.as_ref());
    let held = |key: &str| has.and_then(|has| has.get(key));
    let dropped = last.keys().filter(|key| !wanted.contains_key(*key));
    let mut changes: Changes = dropped
        .filter(|key| is_extended(key) && held(key).is_some())
        .map(|key| (key.clone(), None))
        .collect();
    let sound = wanted.iter().filter(|(key, amount)| fault(key, amount).is_none());
    let due = sound.filter(|(key, amount)| held(key).and_then(whole) != whole(amount));
    changes.extend(due.map(|(key, amount)| (key.clone(), Some(amount.0.clone()))));
    changes
}

fn is_same(one: &Resources, other: &Resources) -> bool {
    let amounts = |(key, amount): (&String, &Quantity)| (key.clone(), whole(amount).ok_or(amount.0.clone()));
    one.len() == other.len() && one.iter().map(amounts).eq(other.iter().map(amounts))
}

/// Whether a resource is one that a Node has only because somebody says so: the kubelet counts the others itself.
pub fn is_extended(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

fn fault(key: &str, amount: &Quantity) -> Option<&'static str> {
    let foreign = !is_extended(key);
    key_fault(key)
        .or_else(|| foreign.then_some("only a resource of a domain of its own can be added to a Node"))
        .or_else(|| {
            whole(amount)
                .is_none()
                .then_some("the amount must be a whole number, at least 0")
        })
}

/// The amount of a resource that is counted in whole pieces, however it is spelt: the API server changes the spelling.
fn whole(amount: &Quantity) -> Option<u128> {
    const MOST: u128 = i64::MAX as u128;
    let text = amount.0.strip_prefix('+').unwrap_or(&amount.0);
    let digits = text.find(|part: char| !part.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u128 = match unit {
        "" => 1,
        "k" => 1000,
        "M" => 1000_u128.pow(2),
        "G" => 1000_u128.pow(3),
        "T" => 1000_u128.pow(4),
        "P" => 1000_u128.pow(5),
        "E" => 1000_u128.pow(6),
        "Ki" => 1024,
        "Mi" => 1024_u128.pow(2),
        "Gi" => 1024_u128.pow(3),
        "Ti" => 1024_u128.pow(4),
        "Pi" => 1024_u128.pow(5),
        "Ei" => 1024_u128.pow(6),
        _ => exponent(unit)?,
    };
    let amount = number.parse::<u128>().ok()?.checked_mul(factor)?;
    (amount <= MOST).then_some(amount)
}

fn exponent(unit: &str) -> Option<u128> {
    let power = unit.strip_prefix(['e', 'E'])?;
    10_u128.checked_pow(power.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotation: Option<&str>, capacity: &serde_json::Value) -> Node {
        let annotations = annotation.map(|text| json!({ keys::LAST_APPLIED_VIRTUAL_CAPACITY: text }));
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "1", "resourceVersion": "7", "annotations": annotations},
            "status": {"capacity": capacity},
        }))
        .expect("it is a Node")
    }

    fn resources(value: &serde_json::Value) -> Resources {
        serde_json::from_value(value.clone()).expect("they are resources")
    }

    /// Rows: W43.
    #[test]
    fn capacity_and_its_memory_are_one_write_that_leaves_the_kubelets_alone() {
        let bare = node(None, &json!({"cpu": "4", "users.com/own": "1"}));
        let patch = change(&bare, &resources(&json!({"example.com/slots": "1000"}))).expect("it changes");
        assert_eq!(
            patch.body(),
            json!({
                "metadata": {"uid": "1", "annotations": {
                    keys::LAST_APPLIED_VIRTUAL_CAPACITY: "{\"example.com/slots\":\"1000\"}",
                }},
                "status": {"capacity": {"example.com/slots": "1000"}},
            })
        );
        let after = patch.applied(&bare);
        assert_eq!(
            change(&after, &resources(&json!({"example.com/slots": "1k"}))),
            None,
            "1k is 1000"
        );
        let emptied = change(&after, &Resources::new()).expect("it changes");
        assert_eq!(emptied.applied(&after).status, bare.status);
        assert_eq!(
            emptied.annotations.values().next(),
            Some(&None),
            "nothing is remembered"
        );
    }

    #[test]
    fn amounts_are_compared_however_they_are_spelt() {
        let amount = |text: &str| whole(&Quantity(text.to_owned()));
        assert_eq!(amount("1Mi"), amount("1048576"));
        assert_eq!(
            (amount("2e3"), amount("2E3"), amount("+2k")),
            (Some(2000), Some(2000), Some(2000))
        );
        assert_eq!((amount("0"), amount("2E")), (Some(0), Some(2_000_000_000_000_000_000)));
        for bad in [
            "",
            "-1",
            "100m",
            "1.5",
            "many",
            "10E",
            "1e99",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(amount(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_no_node_can_have_is_told_once_and_left_out() {
        let bare = node(None, &json!({"cpu": "4"}));
        let wanted = resources(&json!({"cpu": "64", "example.com/half": "500m", "example.com/slots": "3"}));
        let patch = change(&bare, &wanted).expect("it changes");
        assert_eq!(patch.faults.len(), 2, "{:?}", patch.faults);
        assert_eq!(patch.capacity.keys().collect::<Vec<_>>(), ["example.com/slots"]);
        assert_eq!(change(&patch.applied(&bare), &wanted), None);
    }

    #[test]
    fn a_memory_that_nobody_can_read_is_replaced_and_told_once() {
        let odd = node(Some("[1"), &json!({"example.com/old": "1"}));
        let patch = change(&odd, &resources(&json!({"example.com/slots": "3"}))).expect("it changes");
        assert_eq!(patch.faults.len(), 1);
        let after = patch.applied(&odd);
        assert_eq!(change(&after, &resources(&json!({"example.com/slots": "3"}))), None);
        assert!(
            after.status.unwrap().capacity.unwrap().contains_key("example.com/old"),
            "it may be a user's"
        );
    }
}
