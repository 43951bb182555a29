//! What a deployment's status says. Source: `spec/api.md` §6, `spec/machinedeployment.md` §12; the order of conditions
//! and the reasons of `Progressing` are read by the autoscaler (`spec/api.md` §10.6).

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::lenient::Rounding;
use crate::api::machine_deployment::{MachineDeploymentCondition, StrategyType};
use crate::api::{MachineDeployment, MachineSet, MachineSetStatus, keys, meta};
use crate::selector;
use crate::set::StatusPatch;
use crate::set::status::is_same;

/// Something that keeps the deployment from what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason of the condition `Progressing`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// A condition as it should be; its times are worked out against the stored one.
struct Wanted {
    type_: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

/// The status as a merge patch of `/status`, or nothing if it is told already.
pub fn compute(
    deployment: &MachineDeployment,
    sets: &[Arc<MachineSet>],
    current: Option<&MachineSet>,
    problem: Option<Problem>,
    now: Timestamp,
) -> Option<StatusPatch> {
    let told = || sets.iter().filter_map(|set| set.status.as_ref());
    let sum = |field: &dyn Fn(&MachineSetStatus) -> i32| told().map(field).fold(0, i32::saturating_add);
    let available = sum(&|status| status.available_replicas);
    let replicas = sum(&|status| status.replicas);
    let preserved = sum(&|status| status.preserved_failed_replicas);
    let updated = current
        .and_then(|set| set.status.as_ref())
        .map_or(0, |status| status.replicas);
    let wanted = sets.iter().map(|set| set.spec.replicas).fold(0, i32::saturating_add);
    let failed: Vec<Value> = told()
        .flat_map(|status| status.failed_machines.iter().flatten())
        .map(|m| json!(m))
        .collect();

    let complete = updated == deployment.spec.replicas && replicas == updated && available == updated;
    let conditions = vec![
        availability(deployment, available, preserved),
        progress(current, problem, complete),
        replica_failure(sets, current),
    ];
    let mut status = Map::new();
    status.insert(
        "observedGeneration".into(),
        json!(meta::generation(&deployment.metadata)),
    );
    status.insert("replicas".into(), json!(replicas));
    status.insert("updatedReplicas".into(), json!(updated));
    status.insert("readyReplicas".into(), json!(sum(&|status| status.ready_replicas)));
    status.insert("availableReplicas".into(), json!(available));
    status.insert(
        "unavailableReplicas".into(),
        json!(wanted.saturating_sub(available).max(0)),
    );
    status.insert("preservedFailedReplicas".into(), json!(preserved));
    status.insert("failedMachines".into(), Value::Array(failed));
    status.insert(
        "labelSelector".into(),
        json!(deployment.spec.selector.as_ref().and_then(selector::text)),
    );
    status.insert("conditions".into(), merged(deployment, conditions, now));

    let before = serde_json::to_value(&deployment.status).unwrap_or_default();
    if status.iter().all(|(field, value)| is_same(before.get(field), value)) {
        return None;
    }
    Some(StatusPatch(status))
}

fn availability(deployment: &MachineDeployment, available: i32, preserved: i32) -> Option<Wanted> {
    let wanted = deployment.spec.replicas;
    let needed = wanted
        .saturating_sub(max_unavailable(deployment))
        .saturating_sub(preserved)
        .max(0);
    let (status, reason, message) = if available >= needed {
        (
            "True",
            keys::REASON_MINIMUM_AVAILABLE,
            "Deployment has minimum availability.".to_owned(),
        )
    } else {
        let message =
            format!("Deployment does not have minimum availability: {available} of {needed} machines are available.");
        ("False", keys::REASON_MINIMUM_UNAVAILABLE, message)
    };
    Some(Wanted {
        type_: keys::CONDITION_AVAILABLE,
        status,
        reason: reason.to_owned(),
        message,
    })
}

/// `spec/machinedeployment.md` §6.2.
fn max_unavailable(deployment: &MachineDeployment) -> i32 {
    let wanted = deployment.spec.replicas;
    let Some(strategy) = &deployment.spec.strategy else {
        return 0;
    };
    let bound = match strategy.type_.as_ref().and_then(|word| word.known()) {
        Some(StrategyType::RollingUpdate) => strategy
            .rolling_update
            .as_ref()
            .and_then(|bounds| bounds.max_unavailable.as_ref()),
        Some(StrategyType::InPlaceUpdate) => strategy
            .in_place_update
            .as_ref()
            .and_then(|bounds| bounds.max_unavailable.as_ref()),
        Some(StrategyType::Recreate) | None => None,
    };
    bound
        .and_then(|bound| bound.resolve(wanted, Rounding::Down).ok())
        .unwrap_or(0)
        .clamp(0, wanted.max(0))
}

fn progress(current: Option<&MachineSet>, problem: Option<Problem>, complete: bool) -> Option<Wanted> {
    let condition = |status, reason: &str, message| {
        Some(Wanted {
            type_: keys::CONDITION_PROGRESSING,
            status,
            reason: reason.to_owned(),
            message,
        })
    };
    if let Some(problem) = problem {
        return condition("False", problem.reason, problem.message);
    }
    let set = meta::name(&current?.metadata);
    // The size of a set is no rollout: once the template is out, scaling leaves the condition alone, because the
    // autoscaler does not shrink a deployment that says otherwise.
    let _ = complete;
    condition(
        "True",
        keys::REASON_NEW_SET_AVAILABLE,
        format!("MachineSet \"{set}\" has successfully progressed."),
    )
}

/// The new set's own failure, else the first of another set.
fn replica_failure(sets: &[Arc<MachineSet>], current: Option<&MachineSet>) -> Option<Wanted> {
    let all = current.into_iter().chain(sets.iter().map(Arc::as_ref));
    let mut failures = all.filter_map(|set| {
        let conditions = &set.status.as_ref()?.conditions;
        conditions
            .iter()
            .find(|condition| condition.type_ == keys::CONDITION_REPLICA_FAILURE)
    });
    failures.next().map(|failure| Wanted {
        type_: keys::CONDITION_REPLICA_FAILURE,
        status: "True",
        reason: failure.reason.clone().unwrap_or_default(),
        message: failure.message.clone().unwrap_or_default(),
    })
}

/// The stored conditions with ours set or removed. One that says the same keeps its times.
fn merged(deployment: &MachineDeployment, wanted: Vec<Option<Wanted>>, now: Timestamp) -> Value {
    const OURS: [&str; 3] = [
        keys::CONDITION_AVAILABLE,
        keys::CONDITION_PROGRESSING,
        keys::CONDITION_REPLICA_FAILURE,
    ];
    let stored = deployment
        .status
        .as_ref()
        .map_or(&[][..], |status| status.conditions.as_slice());
    let known = |type_: &str| stored.iter().find(|condition| condition.type_ == type_);
    let foreign = stored
        .iter()
        .filter(|condition| !OURS.contains(&condition.type_.as_str()))
        .map(|condition| json!(condition));
    let ours = wanted
        .into_iter()
        .flatten()
        .map(|wanted| timed(known(wanted.type_), &wanted, now));
    Value::Array(ours.chain(foreign).collect())
}

fn timed(known: Option<&MachineDeploymentCondition>, wanted: &Wanted, now: Timestamp) -> Value {
    let same_status = known.filter(|known| known.status == wanted.status);
    let same = same_status.filter(|known| {
        known.reason.as_deref() == Some(wanted.reason.as_str())
            && known.message.as_deref() == Some(wanted.message.as_str())
    });
    let now = json!(format!("{now:.0}"));
    let updated = same
        .and_then(|known| known.last_update_time.as_ref())
        .map_or_else(|| now.clone(), |time| json!(time));
    let moved = same_status
        .and_then(|known| known.last_transition_time.as_ref())
        .map_or(now, |time| json!(time));
    json!({
        "type": wanted.type_,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastUpdateTime": updated,
        "lastTransitionTime": moved,
    })
}
