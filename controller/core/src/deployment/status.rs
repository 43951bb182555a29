//! What a deployment's status says. The order of conditions and the reasons of `Progressing` are read by the autoscaler (MD-12).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::budget::Bounds;
use super::facts::unwritable;
use super::members::{Members, Stand};
use super::observed::Observed;
use super::progress::{Progress, TimedOut, timed_out};
use super::{freeze, names};
use crate::api::machine_deployment::{MachineDeploymentCondition, MachineDeploymentStatus};
use crate::api::operation::MachineSummary;
use crate::api::{Machine, MachineDeployment, Phase, keys, meta, validity};
use crate::ids::Name;
use crate::selector;
use crate::set;
use crate::set::status::{bounded, failed_machines, is_preserved, length};
use crate::status::{LONGEST_TEXT, LONGEST_WORD, plain, stored_time, text_is_same};

/// A condition as it should be; its times are worked out against the stored one.
pub(super) struct Wanted {
    pub(super) type_: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
    /// Something moved: the time of the last update is now.
    pub(super) is_renewed: bool,
}

impl Wanted {
    pub(super) fn new(type_: &'static str, status: &'static str, reason: &str, message: String) -> Self {
        Self {
            type_,
            status,
            reason: plain(reason, LONGEST_WORD),
            message: plain(&message, LONGEST_TEXT),
            is_renewed: false,
        }
    }
}

/// What the deployment is in the middle of, as far as its status tells it.
pub enum Situation<'a> {
    /// It is being deleted.
    Leaving,
    /// It can never work as it is.
    Invalid(String),
    /// Its set could not be made, for what the API server said.
    Refused(&'a str),
    /// Its sets stand so; and the set of its template, if this plan creates it.
    Serving(&'a Stand, Option<&'a Name>),
}

/// A deployment's status as it is to be, named as in `MachineDeploymentStatus`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "MachineDeploymentStatus says what each means")]
pub struct StatusChange {
    pub observed_generation: i64,
    pub replicas: i32,
    pub updated_replicas: i32,
    pub ready_replicas: i32,
    pub available_replicas: i32,
    pub unavailable_replicas: i32,
    pub preserved_failed_replicas: i32,
    pub conditions: Vec<MachineDeploymentCondition>,
    /// `None`: as it is told.
    pub collision_count: Option<i32>,
    pub failed_machines: Vec<MachineSummary>,
    pub label_selector: Option<String>,
}

/// What is to be told.
pub struct Report {
    /// The status as it is to be, or nothing if it is told already.
    pub change: Option<StatusChange>,
    /// It tells a failure of the deployment's own.
    pub is_failure: bool,
    /// It tells that a rollout begins, where the one before had timed out.
    pub begins: bool,
    /// When time alone changes what is told.
    pub wake: Option<Timestamp>,
}

/// What a deployment has, counted from Machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) replicas: i32,
    pub(super) updated: i32,
    pub(super) ready: i32,
    pub(super) available: i32,
    preserved: i32,
    numbers: i32,
}

impl Counts {
    fn of(members: &Members<'_>, now: Timestamp) -> Self {
        let mut counts = Self::default();
        for member in &members.sets {
            let count = |test: &dyn Fn(&Machine) -> bool| length(member.owned().filter(|view| test(view)).count());
            counts.replicas += count(&|_| true);
            counts.ready += count(&|machine| *machine.phase() == Phase::Running);
            counts.available += count(&|machine| set::facts::is_available(member, machine, now));
            counts.preserved += count(&is_preserved);
            counts.numbers = counts.numbers.saturating_add(member.set.spec.replicas);
        }
        counts.updated = members.new_member().map_or(0, |member| length(member.owned().count()));
        counts
    }
}

/// What the status should say.
pub fn report(seen: &Observed<'_>, members: &Members<'_>, situation: &Situation<'_>, now: Timestamp) -> Report {
    let deployment = seen.deployment;
    let counts = Counts::of(members, now);
    let progress = Progress {
        seen,
        members,
        counts,
        now,
    };
    let (progressing, wake) = progress.condition(situation);
    let is_bad = progressing.as_ref().is_some_and(|wanted| wanted.status == "False");
    let is_failure = matches!(situation, Situation::Invalid(_) | Situation::Refused(_)) || is_bad;
    let conditions = vec![
        availability(deployment, counts),
        progressing,
        of_sets(members, keys::CONDITION_REPLICA_FAILURE).or_else(|| unwritten(seen)),
        of_sets(members, keys::CONDITION_REPLACEMENTS_HELD),
        of_sets(members, keys::CONDITION_RELEASED),
        freeze::condition(deployment, members),
    ];
    let change = StatusChange {
        observed_generation: meta::generation(&deployment.metadata),
        replicas: counts.replicas,
        updated_replicas: counts.updated,
        ready_replicas: counts.ready,
        available_replicas: counts.available,
        unavailable_replicas: counts.numbers.saturating_sub(counts.available).max(0),
        preserved_failed_replicas: counts.preserved,
        conditions: merged(deployment, conditions, now),
        collision_count: names::collisions(deployment, members.new_set()),
        failed_machines: failed(members),
        label_selector: deployment.spec.selector.as_ref().and_then(selector::text),
    };
    Report {
        change: (!change.is_told(deployment)).then_some(change),
        is_failure,
        begins: !is_bad && timed_out(seen, members) == TimedOut::Another,
        wake,
    }
}

impl StatusChange {
    /// Whether the deployment's status says all of this already.
    fn is_told(&self, deployment: &MachineDeployment) -> bool {
        let nothing = MachineDeploymentStatus::default();
        let told = deployment.status.as_ref().unwrap_or(&nothing);
        self.observed_generation == told.observed_generation
            && self.replicas == told.replicas
            && self.updated_replicas == told.updated_replicas
            && self.ready_replicas == told.ready_replicas
            && self.available_replicas == told.available_replicas
            && self.unavailable_replicas == told.unavailable_replicas
            && self.preserved_failed_replicas == told.preserved_failed_replicas
            && self.conditions == told.conditions
            && self
                .collision_count
                .is_none_or(|count| count == told.collision_count.unwrap_or(0))
            && self.failed_machines == told.failed_machines
            && text_is_same(self.label_selector.as_ref(), told.label_selector.as_ref())
    }

    /// The body of a JSON merge patch of `/status`.
    pub fn patch(&self) -> Value {
        let mut status = json!({
            "observedGeneration": self.observed_generation,
            "replicas": self.replicas,
            "updatedReplicas": self.updated_replicas,
            "readyReplicas": self.ready_replicas,
            "availableReplicas": self.available_replicas,
            "unavailableReplicas": self.unavailable_replicas,
            "preservedFailedReplicas": self.preserved_failed_replicas,
            "conditions": self.conditions,
            "failedMachines": self.failed_machines,
            "labelSelector": self.label_selector,
        });
        if let (Some(count), Some(fields)) = (self.collision_count, status.as_object_mut()) {
            fields.insert("collisionCount".to_owned(), json!(count));
        }
        json!({ "status": status })
    }
}

fn failed(members: &Members<'_>) -> Vec<MachineSummary> {
    let sets = members.sets.iter();
    bounded(sets.flat_map(|member| failed_machines(member.set, member.owned())))
}

fn availability(deployment: &MachineDeployment, counts: Counts) -> Option<Wanted> {
    let wanted = deployment.spec.replicas;
    let bounds = Bounds::of(deployment.spec.strategy.as_ref(), wanted);
    let needed = wanted
        .saturating_sub(bounds.unavailable)
        .saturating_sub(counts.preserved)
        .max(0);
    let available = counts.available;
    let told = |status, reason, message| Some(Wanted::new(keys::CONDITION_AVAILABLE, status, reason, message));
    if available >= needed {
        let message = "Deployment has minimum availability.".to_owned();
        return told("True", keys::REASON_MINIMUM_AVAILABLE, message);
    }
    let message =
        format!("Deployment does not have minimum availability: {available} of {needed} machines are available.");
    told("False", keys::REASON_MINIMUM_UNAVAILABLE, message)
}

/// A condition that a set tells: the new one, else the first of the others.
fn of_sets(members: &Members<'_>, type_: &'static str) -> Option<Wanted> {
    let all = members.new_set().into_iter();
    let all = all.chain(members.sets.iter().map(|member| member.set));
    let mut failures = all.filter_map(|set| set.status.as_ref()?.condition(type_));
    failures.next().map(|failure| {
        let (reason, message) = (failure.reason.as_deref(), failure.message.clone());
        Wanted::new(type_, "True", reason.unwrap_or_default(), message.unwrap_or_default())
    })
}

/// That the API server refuses a write to one of its sets.
fn unwritten(seen: &Observed<'_>) -> Option<Wanted> {
    let (set, message) = unwritable(seen)?;
    let message = format!("MachineSet {} cannot be written: {message}", meta::name(&set.metadata));
    let (type_, reason) = (keys::CONDITION_REPLICA_FAILURE, keys::REASON_FAILED_WRITE);
    Some(Wanted::new(type_, keys::STATUS_TRUE, reason, message))
}

/// The stored conditions with ours set or removed. One that says the same keeps its times.
fn merged(
    deployment: &MachineDeployment,
    wanted: Vec<Option<Wanted>>,
    now: Timestamp,
) -> Vec<MachineDeploymentCondition> {
    const OURS: [&str; 6] = [
        keys::CONDITION_AVAILABLE,
        keys::CONDITION_REPLACEMENTS_HELD,
        keys::CONDITION_PROGRESSING,
        keys::CONDITION_REPLICA_FAILURE,
        keys::CONDITION_FROZEN,
        keys::CONDITION_RELEASED,
    ];
    let stored = deployment.status.as_ref();
    let known = |type_: &str| stored.and_then(|status| status.condition(type_));
    let foreign = stored.into_iter().flat_map(|status| &status.conditions);
    let foreign = foreign.filter(|condition| !OURS.contains(&condition.type_.as_str()));
    let ours = wanted.into_iter().flatten();
    let ours = ours.map(|wanted| timed(known(wanted.type_), wanted, now));
    ours.chain(foreign.cloned()).collect()
}

/// What a status that is to be written newly tells that is bad, for a Warning event: reason and text. A creation that was refused has an
/// event of its own.
pub fn not_running_at(deployment: &MachineDeployment, change: &StatusChange) -> Vec<(String, String)> {
    let is_bad = |condition: &MachineDeploymentCondition| match condition.type_.as_str() {
        keys::CONDITION_PROGRESSING => {
            condition.status == "False" && condition.reason.as_deref() != Some(keys::REASON_SET_CREATE_FAILED)
        }
        keys::CONDITION_FROZEN => condition.status == keys::STATUS_TRUE,
        keys::CONDITION_REPLICA_FAILURE => condition.reason.as_deref() == Some(keys::REASON_FAILED_WRITE),
        _ => false,
    };
    let before = deployment.status.iter().flat_map(|status| &status.conditions);
    let before: Vec<_> = before.map(said).collect();
    let told = change.conditions.iter();
    let news = told.filter(|condition| is_bad(condition) && !before.contains(&said(condition)));
    news.map(|condition| {
        let text = condition.message.clone().unwrap_or_default();
        let reason = match condition.reason.as_deref().unwrap_or_default() {
            // The original's event of this fault has a word of its own.
            keys::REASON_INVALID if validity::selects_all(deployment) => keys::EVENT_SELECTING_ALL,
            reason => reason,
        };
        (reason.to_owned(), text)
    })
    .collect()
}

fn said(condition: &MachineDeploymentCondition) -> (&str, &str, Option<&str>) {
    (&condition.type_, &condition.status, condition.reason.as_deref())
}

fn timed(known: Option<&MachineDeploymentCondition>, wanted: Wanted, now: Timestamp) -> MachineDeploymentCondition {
    let same_status = known.filter(|known| known.status == wanted.status);
    let same = same_status.filter(|known| {
        known.reason.as_deref() == Some(wanted.reason.as_str())
            && known.message.as_deref() == Some(wanted.message.as_str())
    });
    let updated = same
        .filter(|_| !wanted.is_renewed)
        .and_then(|known| known.last_update_time.clone());
    let moved = same_status.and_then(|known| known.last_transition_time.clone());
    MachineDeploymentCondition {
        type_: wanted.type_.to_owned(),
        status: wanted.status.to_owned(),
        last_update_time: Some(updated.unwrap_or_else(|| stored_time(now))),
        last_transition_time: Some(moved.unwrap_or_else(|| stored_time(now))),
        reason: Some(wanted.reason),
        message: Some(wanted.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deployment of which nothing was told yet, and a status that tells of a fault.
    fn told(selector: Value, before: Value) -> Vec<(String, String)> {
        let deployment: MachineDeployment = serde_json::from_value(json!({
            "metadata": {"name": "d"}, "spec": {"selector": selector}, "status": {"conditions": before},
        }))
        .expect("a deployment");
        let conditions = json!([fault(), {"type": "Available", "status": "False", "reason": "x", "message": "y"}]);
        let change = StatusChange {
            observed_generation: 0,
            replicas: 0,
            updated_replicas: 0,
            ready_replicas: 0,
            available_replicas: 0,
            unavailable_replicas: 0,
            preserved_failed_replicas: 0,
            conditions: serde_json::from_value(conditions).expect("conditions"),
            collision_count: None,
            failed_machines: Vec::new(),
            label_selector: None,
        };
        not_running_at(&deployment, &change)
    }

    fn fault() -> Value {
        json!({"type": "Progressing", "status": "False", "reason": "InvalidConfiguration", "message": "it is wrong"})
    }

    #[test]
    fn a_turn_for_the_worse_is_an_event_once_and_an_empty_selector_has_its_own_word() {
        let some = || json!({"matchLabels": {"a": "b"}});
        let news = |reason: &str| vec![(reason.to_owned(), "it is wrong".to_owned())];
        assert_eq!(told(some(), json!([])), news("InvalidConfiguration"));
        assert_eq!(told(json!({}), json!([])), news("SelectingAll"));
        assert_eq!(told(some(), json!([fault()])), [], "it was told before");
    }
}
