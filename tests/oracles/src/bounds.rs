//! The bounds of a rollout, from the deployment's spec alone.

use serde_json::Value;

use crate::object::{number, text};

/// What a bound is that nobody gave.
const QUARTER: &str = "25%";

/// Surge and unavailable: percents of surge are rounded up, of unavailable down, and both are not zero together.
pub fn bounds(deployment: &Value) -> (i64, i64) {
    let wanted = number(deployment, "/spec/replicas").max(0);
    let bound = |pointer: &str, is_up: bool| match deployment.pointer(pointer) {
        Some(Value::Number(count)) => count.as_i64().unwrap_or(0).max(0),
        given => {
            let percent = given.and_then(Value::as_str).unwrap_or(QUARTER);
            let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or(0);
            (wanted * percent.max(0) + if is_up { 99 } else { 0 }) / 100
        }
    };
    let (surge, unavailable) = match text(deployment, "/spec/strategy/type") {
        "Recreate" => return (0, 0),
        "InPlaceUpdate" => {
            let is_auto = text(deployment, "/spec/strategy/inPlaceUpdate/orchestrationType") == "Auto";
            let surge = if is_auto {
                bound("/spec/strategy/inPlaceUpdate/maxSurge", true)
            } else {
                0
            };
            (surge, bound("/spec/strategy/inPlaceUpdate/maxUnavailable", false))
        }
        _ => (
            bound("/spec/strategy/rollingUpdate/maxSurge", true),
            bound("/spec/strategy/rollingUpdate/maxUnavailable", false),
        ),
    };
    match (surge, unavailable) {
        (0, 0) => (0, wanted.min(1)),
        _ => (surge, unavailable.min(wanted)),
    }
}
