//! PodDisruptionBudgets that never let a pod go: found out at once, not after hours of waiting.
//!
//! Says what is wrong with one; what follows is decided elsewhere. Source: `spec/machine.md` §5.4, `user-pains.md` 63.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::api::meta;

/// The name of the budget that refused an eviction, in the words of the API server.
pub fn named_in(words: &str) -> Option<&str> {
    let (_, rest) = words.split_once("disruption budget ")?;
    rest.split_whitespace().next()
}

/// What is wrong with a budget that lets no pod go although all its pods are well. `None`: it may let one go another time, or its
/// controller has not counted yet.
pub fn fault(budget: &PodDisruptionBudget) -> Option<String> {
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
        let told = fault(&budget(3, 3, 2)).expect("it wants all of them");
        assert!(told.contains("web") && told.contains("3 of 3"), "{told}");
        assert_eq!(
            fault(&budget(2, 3, 2)),
            None,
            "a pod is not well: it may be another time"
        );
        assert_eq!(fault(&budget(3, 2, 2)), None, "one may go");
        assert_eq!(fault(&budget(3, 3, 1)), None, "its controller has not counted yet");
    }

    #[test]
    fn the_budget_is_read_from_the_servers_words() {
        let words = "The disruption budget web needs 2 healthy pods and has 2 currently";
        assert_eq!(named_in(words), Some("web"));
        assert_eq!(named_in("This pod has more than one PodDisruptionBudget"), None);
    }
}
