//! A deployment's sets with their Machines, sorted, and what the deployment is in the middle of: the terms of `group`, taken from objects.
//!
//! MD-3, MD-6. Counts; decides nothing.

use std::sync::Arc;

use jiff::Timestamp;

use super::budget::{self, Bounds, Mode};
use super::facts::unseen;
use super::group::{Group, Row};
use super::observed::Observed;
use super::pass_on;
use super::progress::{TimedOut, timed_out};
use crate::api::machine_deployment::StrategyType;
use crate::api::template::Scope;
use crate::api::{MachineSet, meta};
use crate::set::facts::{counts_as_available, is_leaving};
use crate::set::growth::unanswered;
use crate::set::{self, MachineView};
use crate::sight::Judging;

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
