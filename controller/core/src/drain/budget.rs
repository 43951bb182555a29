//! PodDisruptionBudgets that never let a pod go: found out at once, not after hours of waiting.
//!
//! Says what is wrong with one; what follows is decided elsewhere. MC-25; pains 63.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::PodRef;
use crate::api::meta;
use crate::selector::Matcher;

/// Why the API server never lets a pod be evicted, by the budgets of its namespace. `None`: it may let it go another time.
pub fn fault(pod: &PodRef, budgets: &[PodDisruptionBudget]) -> Option<String> {
    let of_pod: Vec<&PodDisruptionBudget> = budgets.iter().filter(|budget| speaks_of(budget, pod)).collect();
    match of_pod.as_slice() {
        [] => None,
        [budget] => fault_of(budget),
        many => {
            let names: Vec<&str> = many.iter().map(|budget| meta::name(&budget.metadata)).collect();
            Some(format!(
                "the PodDisruptionBudgets {} speak of it, and only one may",
                names.join(", ")
            ))
        }
    }
}

/// Whether the budget is of the pod. An empty selector is of all pods, none is of no pod.
fn speaks_of(budget: &PodDisruptionBudget, pod: &PodRef) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let matcher = selector.and_then(|selector| Matcher::new(selector).ok());
    matcher.is_some_and(|matcher| matcher.matches(&pod.labels))
}

/// What is wrong with a budget that lets no pod go although all its pods are well. `None`: it may let one go another time, or its
/// controller has not counted yet.
fn fault_of(budget: &PodDisruptionBudget) -> Option<String> {
    let status = budget.status.as_ref()?;
    let expected = status.expected_pods.filter(|expected| *expected > 0)?;
    let is_counted = status.observed_generation == budget.metadata.generation;
    let is_calm = status.disrupted_pods.as_ref().is_none_or(|pods| pods.is_empty());
    let is_well = status.current_healthy.is_some_and(|healthy| healthy >= expected);
    if !is_counted || !is_calm || !is_well || status.disruptions_allowed.is_some_and(|allowed| allowed > 0) {
        return None;
    }
    Some(format!(
        "the PodDisruptionBudget {} wants {} of {} pods healthy, and they are",
        meta::name(&budget.metadata),
        status.desired_healthy.unwrap_or(expected),
        expected
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> PodRef {
        let labels = json!({"app": "web", "tier": "front"});
        let pod = json!({"metadata": {"name": "web-0", "namespace": "default", "uid": "web-0", "labels": labels}});
        crate::drain::reference(&serde_json::from_value(pod).expect("it is a Pod"))
    }

    /// A budget with this status, of the pods with these labels.
    fn of(name: &str, labels: serde_json::Value) -> PodDisruptionBudget {
        let mut budget = budget(3, 3, 2);
        budget.metadata.name = Some(name.to_owned());
        let spec = json!({"selector": {"matchLabels": labels}});
        budget.spec = serde_json::from_value(spec).expect("it is a spec");
        budget
    }

    fn budget(healthy: i32, desired: i32, observed: i64) -> PodDisruptionBudget {
        let allowed = (healthy - desired).max(0);
        serde_json::from_value(json!({
            "metadata": {"name": "web", "generation": 2},
            "status": {"observedGeneration": observed, "expectedPods": 3, "currentHealthy": healthy,
                "desiredHealthy": desired, "disruptionsAllowed": allowed},
        }))
        .expect("it is a budget")
    }

    #[test]
    fn a_budget_is_at_fault_only_when_it_lets_nothing_go_while_all_its_pods_are_well() {
        let told = fault_of(&budget(3, 3, 2)).expect("it wants all of them");
        assert!(told.contains("web") && told.contains("3 of 3"), "{told}");
        assert_eq!(
            fault_of(&budget(2, 3, 2)),
            None,
            "a pod is not well: it may be another time"
        );
        assert_eq!(fault_of(&budget(3, 2, 2)), None, "one may go");
        assert_eq!(fault_of(&budget(3, 3, 1)), None, "its controller has not counted yet");
    }

    /// What the API server says of its refusal is for people.
    #[test]
    fn budgets_are_found_by_the_labels_of_the_pod() {
        let (web, front) = (of("web", json!({"app": "web"})), of("front", json!({"tier": "front"})));
        let other = of("other", json!({"app": "other"}));
        assert_eq!(fault(&pod(), std::slice::from_ref(&other)), None, "it is of other pods");
        assert_eq!(
            fault(&pod(), &[budget(3, 3, 2)]),
            None,
            "without a selector it is of none"
        );
        let told = fault(&pod(), &[other, web.clone()]).expect("it wants all of them");
        assert!(told.contains("the PodDisruptionBudget web wants 3 of 3"), "{told}");
        let told = fault(&pod(), &[web, front]).expect("no pod of two budgets is evicted");
        assert!(told.contains("web, front"), "{told}");
    }
}
