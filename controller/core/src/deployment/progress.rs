//! The condition `Progressing`: whether a rollout moves, and if not, what it waits for.
//!
//! MD-12. The autoscaler shrinks a deployment only at `True NewMachineSetAvailable` or
//! `Unknown DeploymentPaused`, so these words and when they are said are a contract. Decides only words and
//! when they change by time alone.

use jiff::{SignedDuration, Timestamp};

use super::members::{Members, Stand};
use super::observed::Observed;
use super::status::{Counts, Situation, Wanted};
use super::{blocker, history};
use crate::api::machine_deployment::MachineDeploymentCondition;
use crate::api::{MachineDeployment, keys, meta};
use crate::ids::Name;
use crate::sight::{Judging, later};

/// What the condition is judged from.
pub(super) struct Progress<'a> {
    pub(super) seen: &'a Observed<'a>,
    pub(super) members: &'a Members<'a>,
    pub(super) counts: Counts,
    pub(super) now: Timestamp,
}

impl Progress<'_> {
    /// The condition, and when it changes by itself.
    pub(super) fn condition(&self, situation: &Situation<'_>) -> (Option<Wanted>, Option<Timestamp>) {
        match situation {
            Situation::Leaving => (None, None),
            Situation::Invalid(fault) => (wanted("False", keys::REASON_INVALID, fault.clone()), None),
            Situation::Refused(said) => {
                let reason = keys::REASON_SET_CREATE_FAILED;
                (wanted("False", reason, (*said).to_owned()), None)
            }
            Situation::Serving(stand, created) => self.serving(stand, *created),
        }
    }

    fn serving(&self, stand: &Stand, created: Option<&Name>) -> (Option<Wanted>, Option<Timestamp>) {
        let deployment = self.seen.deployment;
        if stand.lacks_target {
            let text = "The template changed, and updates in place need a target cluster, which there is not: machines keep the old \
                        template. Undo the change, or choose the strategy RollingUpdate.";
            return (wanted("False", keys::REASON_NO_IN_PLACE, text.to_owned()), None);
        }
        let told = told(deployment);
        let is_told = |reason: &str| told.is_some_and(|told| told.reason.as_deref() == Some(reason));
        if deployment.spec.paused && !is_told(keys::REASON_DEADLINE_EXCEEDED) {
            return (
                wanted("Unknown", keys::REASON_PAUSED, "Deployment is paused".to_owned()),
                None,
            );
        }
        // The size of a set is no rollout: once the template is out, scaling leaves the condition alone.
        let is_out = stand.group.current().is_some() && self.counts.replicas == self.counts.updated;
        if self.is_complete() || (is_told(keys::REASON_NEW_SET_AVAILABLE) && is_out && self.members.has_new) {
            let text = format!("{} has successfully progressed.", self.subject());
            return (wanted("True", keys::REASON_NEW_SET_AVAILABLE, text), None);
        }
        if is_told(keys::REASON_PAUSED) {
            return (
                wanted("Unknown", keys::REASON_RESUMED, "Deployment is resumed".to_owned()),
                self.deadline(Some(self.now)),
            );
        }
        if let Some(name) = created {
            let text = format!("Created new machine set \"{name}\"");
            return self.moved(wanted("True", keys::REASON_NEW_SET_CREATED, text));
        }
        self.rolling(stand, told)
    }

    fn rolling(&self, stand: &Stand, told: Option<&MachineDeploymentCondition>) -> (Option<Wanted>, Option<Timestamp>) {
        let moving = || {
            let text = format!("{} is progressing.", self.subject());
            wanted("True", keys::REASON_SET_UPDATED, text)
        };
        let Some(told) = told.filter(|told| is_about_rollouts(told)) else {
            let found = told.is_none().then(|| self.found()).flatten();
            return self.moved(found.or_else(moving));
        };
        if timed_out(self.seen, self.members) == TimedOut::Another || self.has_moved() {
            return self.moved(moving());
        }
        let since = told.last_update_time.as_ref().map(|time| time.0);
        let deadline = self.deadline(since);
        let has_expired = told.reason.as_deref() == Some(keys::REASON_DEADLINE_EXCEEDED);
        if has_expired || deadline.is_some_and(|deadline| deadline <= self.now) {
            let blocker = blocker::blocker(self.members, stand, self.now);
            let text = format!("{} has timed out progressing. {blocker}", self.subject());
            return (wanted("False", keys::REASON_DEADLINE_EXCEEDED, text), None);
        }
        let kept = match told.status.as_str() {
            "Unknown" => wanted("Unknown", keys::REASON_RESUMED, "Deployment is resumed".to_owned()),
            // What began it stays told until something moves.
            _ => begun(told).or_else(moving),
        };
        (kept, deadline)
    }

    /// A condition that says that something moved just now.
    fn moved(&self, wanted: Option<Wanted>) -> (Option<Wanted>, Option<Timestamp>) {
        let renewed = wanted.map(|wanted| Wanted {
            is_renewed: true,
            ..wanted
        });
        (renewed, self.deadline(Some(self.now)))
    }

    /// Nothing was told yet, and the set of the template is there.
    fn found(&self) -> Option<Wanted> {
        let name = meta::name(&self.members.new_set()?.metadata);
        let text = format!("Found new machine set \"{name}\"");
        wanted("True", keys::REASON_FOUND_NEW_SET, text)
    }

    /// When the rollout counts as stuck that moved last at `since`. It does not count while nobody can see whether it moves.
    fn deadline(&self, since: Option<Timestamp>) -> Option<Timestamp> {
        let seconds = self.seen.deployment.spec.progress_deadline_seconds?;
        let limit = SignedDuration::from_secs(i64::from(seconds.max(0)));
        let deadline = self.seen.sight.deadline(since?, limit, Judging::Rollout)?;
        // Times are stored without their fraction of a second.
        Some(later(deadline, SignedDuration::from_secs(1)))
    }

    fn is_complete(&self) -> bool {
        let counts = self.counts;
        let wanted = self.seen.deployment.spec.replicas;
        self.members.has_new && counts.updated == wanted && counts.replicas == wanted && counts.available == wanted
    }

    /// More of the new, fewer of the old, more ready or available than is told.
    fn has_moved(&self) -> bool {
        let Some(told) = &self.seen.deployment.status else {
            return true;
        };
        let counts = self.counts;
        counts.updated > told.updated_replicas
            || counts.replicas - counts.updated < told.replicas - told.updated_replicas
            || counts.ready > told.ready_replicas
            || counts.available > told.available_replicas
    }

    fn subject(&self) -> String {
        match self.members.new_set() {
            Some(set) => format!("MachineSet \"{}\"", meta::name(&set.metadata)),
            None => format!("MachineDeployment \"{}\"", meta::name(&self.seen.deployment.metadata)),
        }
    }
}

fn told(deployment: &MachineDeployment) -> Option<&MachineDeploymentCondition> {
    deployment.status.as_ref()?.condition(keys::CONDITION_PROGRESSING)
}

/// Whether the deadline has passed of the rollout of the present template, or of another one, as long as the deployment has that one's revision.
pub fn timed_out(seen: &Observed<'_>, members: &Members<'_>) -> TimedOut {
    let is_told =
        told(seen.deployment).is_some_and(|told| told.reason.as_deref() == Some(keys::REASON_DEADLINE_EXCEEDED));
    match (is_told && members.has_new, history::numbered(seen.deployment, members)) {
        (false, _) => TimedOut::None,
        (true, None) => TimedOut::This,
        (true, Some(_)) => TimedOut::Another,
    }
}

/// Whose deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedOut {
    /// Nobody's.
    None,
    /// The present template's.
    This,
    /// That of a template before: the rollout of the present one begins.
    Another,
}

/// Whether the condition told of a rollout, so that its time says when that moved last.
fn is_about_rollouts(told: &MachineDeploymentCondition) -> bool {
    const REASONS: [&str; 5] = [
        keys::REASON_SET_UPDATED,
        keys::REASON_DEADLINE_EXCEEDED,
        keys::REASON_RESUMED,
        keys::REASON_FOUND_NEW_SET,
        keys::REASON_NEW_SET_CREATED,
    ];
    told.reason.as_deref().is_some_and(|reason| REASONS.contains(&reason))
}

/// The same words again, where they tell how a rollout began.
fn begun(told: &MachineDeploymentCondition) -> Option<Wanted> {
    let begins = |reason: &&str| [keys::REASON_FOUND_NEW_SET, keys::REASON_NEW_SET_CREATED].contains(reason);
    let reason = told.reason.as_deref().filter(begins)?;
    wanted("True", reason, told.message.clone().unwrap_or_default())
}

fn wanted(status: &'static str, reason: &str, message: String) -> Option<Wanted> {
    Some(Wanted::new(keys::CONDITION_PROGRESSING, status, reason, message))
}
