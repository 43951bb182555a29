//! The terms of a rollout, each with one definition: what a deployment's sets have and want.
//!
//! MD-6. Everything is counted from Machines and numbers, never from a set's status, which lags. Decides
//! nothing; `budget` does, from these terms alone.

use std::sync::Arc;

use jiff::Timestamp;

use super::budget::{self, Bounds, Mode};
use super::pass_on;
use super::plan::unseen;
use super::progress::{TimedOut, timed_out};
use crate::api::machine_deployment::StrategyType;
use crate::api::template::Scope;
use crate::api::{MachineSet, meta};
use crate::deployment::observed::Observed;
use crate::set::growth::unanswered;
use crate::set::plan::{counts_as_available, is_leaving};
use crate::set::{self, MachineView};
use crate::sight::Judging;

/// One set of the deployment, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The set has the deployment's template.
    pub is_new: bool,
    /// `spec.replicas`: the decision. Zero for a set that is being deleted.
    pub number: i64,
    /// Machines that stay, and creations that were sent and not answered.
    pub present: i64,
    /// Machines whose end is decided, until they are gone: deleted, or named by the autoscaler.
    pub leaving: i64,
    /// Those of the present ones that are available.
    pub available: i64,
    /// Machines that the autoscaler named and that are there.
    pub named: i64,
}

impl Row {
    /// What the set has, or may have by its number at any moment.
    pub fn claim(&self) -> i64 {
        self.number.max(self.present)
    }

    /// Whether the set has anything that a rollout has to heed.
    pub fn is_in_use(&self) -> bool {
        self.claim() > 0 || self.leaving > 0
    }
}

/// Sets of a deployment in numbers: first the old ones, oldest first, last the one with its template, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The rows.
    pub rows: Vec<Row>,
    /// D: how many Machines are wanted.
    pub wanted: i64,
    /// s: how many more there may be on the way.
    pub surge: i64,
    /// u: how many fewer may be available on the way.
    pub unavailable: i64,
    /// The numbers of sets that are not seen and may be there: their creation was not answered.
    pub unseen: i64,
    /// By how much D fell since the sets were told of it.
    pub fallen: i64,
    /// The deadline of the rollout has passed.
    pub has_timed_out: bool,
    /// Nodes are seen, so that who is counted as available is.
    pub is_in_sight: bool,
}

impl Group {
    /// Σ number.
    pub fn numbers(&self) -> i64 {
        self.rows.iter().map(|row| row.number).sum()
    }

    /// Σ available.
    pub fn available(&self) -> i64 {
        self.rows.iter().map(|row| row.available).sum()
    }

    /// D − u.
    pub fn floor(&self) -> i64 {
        (self.wanted - self.unavailable).max(0)
    }

    /// How far a number may rise: D + s − Σ (max(number, present) + leaving) − what sets may have that are not seen. What leaves holds its quota until its VM is gone.
    pub fn room(&self) -> i64 {
        let held: i64 = self.rows.iter().map(|row| row.claim() + row.leaving).sum();
        self.wanted + self.surge - held - self.unseen
    }

    /// How many available Machines can be spared: Σ available − (D − u). While nobody can see whether they still are, only what is beyond
    /// D + s, because D fell: nobody wants that, whatever becomes of the rest.
    pub fn slack(&self) -> i64 {
        let spare = (self.available() - self.floor()).max(0);
        let present: i64 = self.rows.iter().map(|row| row.present).sum();
        match self.is_in_sight {
            true => spare,
            false => spare.min(present - self.wanted - self.surge).max(0),
        }
    }

    /// Whether fewer Machines are available than have to be.
    pub fn is_short(&self) -> bool {
        self.available() < self.floor()
    }

    /// How far numbers may fall while new Machines are on their way: a new template that does not work must not eat the old Machines.
    pub fn may_fall(&self) -> i64 {
        self.numbers() - self.floor() - self.on_the_way()
    }

    /// How many of the new set's Machines are not available yet, the ones that are still to be made among them.
    pub fn on_the_way(&self) -> i64 {
        self.current().map_or(0, |new| (new.number - new.available).max(0))
    }

    /// The row of the deployment's template.
    pub fn current(&self) -> Option<&Row> {
        self.rows.last().filter(|row| row.is_new)
    }

    /// The rows of other templates, oldest first.
    pub fn old(&self) -> &[Row] {
        match self.rows.split_last() {
            Some((last, old)) if last.is_new => old,
            _ => &self.rows,
        }
    }

    /// Whether a set of another template has anything.
    pub fn has_old(&self) -> bool {
        self.unseen > 0 || self.old().iter().any(Row::is_in_use)
    }
}

/// What a valid deployment that stays is in the middle of.
pub struct Stand {
    /// Its sets in numbers, the new one among them even if it is still to be made.
    pub group: Group,
    /// What moves them.
    pub mode: Mode,
    /// The template is another one than that of the sets in use, and only an update in place may change that, which cannot be.
    pub lacks_target: bool,
}

impl Stand {
    /// Takes stock of the sets.
    pub(super) fn of(seen: &Observed<'_>, members: &Members<'_>, now: Timestamp) -> Self {
        let deployment = seen.deployment;
        let strategy = deployment.strategy();
        let bounds = Bounds::of(deployment.spec.strategy.as_ref(), deployment.spec.replicas);
        let mut group = Group {
            rows: members.rows(now),
            wanted: i64::from(deployment.spec.replicas),
            surge: i64::from(bounds.surge),
            unavailable: i64::from(bounds.unavailable),
            unseen: unseen(seen, now).map(|(number, _)| i64::from(number)).sum(),
            fallen: pass_on::fallen(deployment, &members.sets),
            has_timed_out: timed_out(seen, members) == TimedOut::This,
            is_in_sight: seen.sight.since(Judging::Rollout).is_some(),
        };
        let is_in_place = strategy == Some(StrategyType::InPlaceUpdate);
        let lacks_target = is_in_place && group.has_old() && !seen.has_target;
        let may_roll = !deployment.spec.paused && !lacks_target;
        let mode = budget::mode(&group, strategy, may_roll);
        if !members.has_new && may_roll {
            group.rows.push(Row {
                is_new: true,
                ..Row::default()
            });
        }
        Self {
            group,
            mode,
            lacks_target,
        }
    }
}

/// The sets that the deployment controls, in the order of [`Group::rows`].
#[derive(Clone)]
pub struct Members<'a> {
    /// Each with its Machines.
    pub sets: Vec<&'a set::Observed<'a>>,
    /// Whether the last one has the deployment's template.
    pub has_new: bool,
}

impl<'a> Members<'a> {
    /// Sorts the deployment's sets. Which is the new one: the oldest that has the template (MD-3).
    pub fn of(seen: &Observed<'a>) -> Self {
        let mut sets = seen.owned();
        let template = &seen.deployment.spec.template;
        let is_new = |member: &&set::Observed<'_>| {
            let set = member.set;
            !meta::is_deleting(&set.metadata) && set.spec.template.semantically_equal(template, Scope::Rollout)
        };
        let place = sets.iter().position(is_new);
        let new = place.map(|place| sets.remove(place));
        let has_new = new.is_some();
        sets.extend(new);
        Self { sets, has_new }
    }

    /// The set with the deployment's template.
    pub fn new_set(&self) -> Option<&'a Arc<MachineSet>> {
        self.new_member().map(|member| member.set)
    }

    /// The same with its Machines.
    pub fn new_member(&self) -> Option<&'a set::Observed<'a>> {
        self.sets.last().copied().filter(|_| self.has_new)
    }

    /// Sets of other templates, oldest first.
    pub fn old(&self) -> &[&'a set::Observed<'a>] {
        match self.sets.split_last() {
            Some((_, old)) if self.has_new => old,
            _ => &self.sets,
        }
    }

    /// The sets in numbers.
    pub fn rows(&self, now: Timestamp) -> Vec<Row> {
        let last = self.sets.len().saturating_sub(1);
        let rows = self.sets.iter().enumerate();
        rows.map(|(place, member)| row(member, self.has_new && place == last, now))
            .collect()
    }
}

fn row(member: &set::Observed<'_>, is_new: bool, now: Timestamp) -> Row {
    let own = member.owned();
    if meta::is_deleting(&member.set.metadata) {
        return Row {
            leaving: length(own.count() + unanswered(member, now)),
            ..Row::default()
        };
    }
    let is_going = |machine: &MachineView<'_>| is_leaving(machine) || machine.is_named;
    let staying = own.clone().filter(|machine| !is_going(machine));
    let available = staying
        .clone()
        .filter(|machine| counts_as_available(member, machine, now));
    Row {
        is_new,
        number: i64::from(member.set.spec.replicas).max(0),
        present: length(staying.count() + unanswered(member, now)),
        leaving: length(own.clone().filter(|machine| is_going(machine)).count()),
        available: length(available.count()),
        named: length(own.filter(|machine| machine.is_named).count()),
    }
}

/// A number of objects as the terms count them.
pub(super) fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
