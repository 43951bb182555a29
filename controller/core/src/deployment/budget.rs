//! Which set's number rises or falls: the rules of a rollout.
//!
//! MD-7. Why they hold: a number rises only by room that the snapshot shows, so Machines and those that
//! may be made by the numbers never exceed D + s; an available Machine goes only by slack that the snapshot shows, so available
//! ones never fall below D − u by our acts; a deletion makes no room before its Machine is gone. Numbers are stored before
//! anything follows from them, so both hold after any crash. Pure arithmetic; knows no objects.

use super::group::{Group, Row};
use crate::api::lenient::{IntOrPercent, Rounding};
use crate::api::machine_deployment::{Strategy, StrategyType};
use crate::set::Allowance;

/// What moves the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At most one set has anything: its number is D.
    Scaling,
    /// Machines move to the new set, within surge and unavailable.
    Rolling,
    /// Old Machines go first; new ones come when they are gone.
    Recreating,
    /// Machines are updated where they are and move to the new set; what is missing is made there.
    InPlace {
        /// Nothing is updated or moved; numbers follow D.
        is_paused: bool,
    },
    /// No rollout moves: numbers follow D only.
    Holding,
}

/// What a bound is that nobody gave, as for Deployments.
const DEFAULT: &str = "25%";

/// Surge and unavailable as counts. MD-6; negative bounds count as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many more Machines than wanted there may be.
    pub surge: i32,
    /// How many fewer may be available.
    pub unavailable: i32,
}

impl Bounds {
    /// The bounds of a strategy for so many Machines. Where both come out as zero nothing could move: then one may be unavailable.
    pub fn of(strategy: Option<&Strategy>, wanted: i32) -> Self {
        let Some(strategy) = strategy else {
            return Self::resolve(None, None, wanted);
        };
        let none = IntOrPercent::Int(0);
        let (surge, unavailable) = match strategy.type_.as_ref().and_then(|word| word.known()) {
            Some(StrategyType::Recreate) => {
                let (surge, unavailable) = (0, 0);
                return Self { surge, unavailable };
            }
            Some(StrategyType::InPlaceUpdate) => {
                let bounds = strategy.in_place_update.as_ref();
                // Who picks the Nodes by hand decides himself how many are missing, and needs no others.
                let surge = bounds.filter(|_| strategy.updates_by_itself());
                let surge = surge.and_then(|b| b.max_surge.as_ref()).unwrap_or(&none);
                (Some(surge), bounds.and_then(|b| b.max_unavailable.as_ref()))
            }
            Some(StrategyType::RollingUpdate) | None => {
                let bounds = strategy.rolling_update.as_ref();
                let surge = bounds.and_then(|b| b.max_surge.as_ref());
                (surge, bounds.and_then(|b| b.max_unavailable.as_ref()))
            }
        };
        Self::resolve(surge, unavailable, wanted)
    }

    fn resolve(surge: Option<&IntOrPercent>, unavailable: Option<&IntOrPercent>, wanted: i32) -> Self {
        let quarter = IntOrPercent::Text(DEFAULT.to_owned());
        let count = |bound: Option<&IntOrPercent>, rounding| {
            let count = bound.unwrap_or(&quarter).resolve(wanted, rounding);
            count.unwrap_or(0).max(0)
        };
        let (surge, unavailable) = (count(surge, Rounding::Up), count(unavailable, Rounding::Down));
        let unavailable = match (surge, unavailable) {
            (0, 0) => 1,
            _ => unavailable,
        };
        Self {
            surge,
            unavailable: unavailable.min(wanted.max(0)),
        }
    }
}

/// The numbers that the sets should have now, row by row.
pub fn numbers(mode: Mode, group: &Group) -> Vec<i64> {
    let mut group = group.clone();
    match mode {
        Mode::Scaling => scale(&mut group),
        Mode::Rolling => {
            follow_moved(&mut group);
            give_back(&mut group);
            shed_named(&mut group);
            shed_excess(&mut group);
            raise(&mut group);
            lower_old(&mut group);
        }
        Mode::Recreating => {
            // By the numbers that are stored: an old set whose Machines have moved has one until it is written.
            let has_old = group.has_old();
            follow_moved(&mut group);
            recreate(&mut group, has_old);
        }
        Mode::InPlace { is_paused } => in_place(&mut group, is_paused),
        Mode::Holding => {
            give_back(&mut group);
            hold(&mut group);
        }
    }
    group.rows.iter().map(|row| row.number).collect()
}

/// What all sets together may do about their Machines. An available Machine above a number goes only by slack, unless D has fallen, or all old
/// ones go before new ones come. And where Machines are missing since a deletion was sent that was not answered, as where somebody deleted
/// another set, it is not sent again: the Machine may be there still, and is needed.
pub fn allowance(mode: Mode, group: &Group) -> Allowance<'static> {
    let all = Allowance::all(0);
    match mode {
        Mode::Scaling | Mode::Recreating => all,
        Mode::Rolling | Mode::InPlace { .. } | Mode::Holding => Allowance {
            lose: Some(usize::try_from(group.slack()).unwrap_or(0)),
            resend: !group.is_short(),
            ..all
        },
    }
}

/// The only row that may make Machines now. `None`: each makes what it lacks. While Machines are updated in place, what replaces a failed one
/// has the new template, so that it need not be updated itself.
pub fn grows_alone(mode: Mode, group: &Group) -> Option<usize> {
    match mode {
        Mode::InPlace { is_paused } => growing(group, is_paused),
        Mode::Scaling | Mode::Rolling | Mode::Recreating | Mode::Holding => None,
    }
}

/// What moves the numbers of a group. A rollout that may not move, as one that is paused, holds.
pub fn mode(group: &Group, strategy: Option<StrategyType>, may_roll: bool) -> Mode {
    let used = group.rows.iter().filter(|row| row.is_in_use()).count();
    match (may_roll, strategy) {
        (false, Some(StrategyType::InPlaceUpdate)) if used > 1 => Mode::InPlace { is_paused: true },
        (false, _) if used > 1 => Mode::Holding,
        (false, _) => Mode::Scaling,
        (true, _) if !group.has_old() => Mode::Scaling,
        (true, Some(StrategyType::Recreate)) => Mode::Recreating,
        (true, Some(StrategyType::InPlaceUpdate)) => Mode::InPlace { is_paused: false },
        (true, Some(StrategyType::RollingUpdate) | None) => Mode::Rolling,
    }
}

/// The set that has something; else the new one; else the newest.
fn scale(group: &mut Group) {
    let wanted = group.wanted;
    let place = group.rows.iter().rposition(Row::is_in_use);
    let place = place.unwrap_or(group.rows.len().saturating_sub(1));
    if let Some(row) = group.rows.get_mut(place) {
        row.number = wanted;
    }
}

/// Before all rules: what the new set has beyond its number and old ones lack moved over from a set of the same template. The numbers follow.
fn follow_moved(group: &mut Group) {
    let moved = group.current().map_or(0, |new| new.present - new.number);
    let mut rest = moved;
    lower(&mut group.rows, &mut rest, |row| row.number - row.present);
    if let Some(new) = new_mut(group) {
        new.number += moved - rest;
    }
}

/// Rule 0: what a set would have to hold now, because something else failed since its number fell, it gets back: else the number and
/// the Machines would stay apart for ever.
fn give_back(group: &mut Group) {
    let mut free = group.slack();
    for row in &mut group.rows {
        let above = (row.present - row.number).max(0);
        let held = (above - (row.present - row.available)).max(0);
        let kept = held.min(free);
        free -= kept;
        row.number += held - kept;
    }
}

/// Rule 0b: numbers beyond D + s fall at once: D fell, or another controller left it so. Machines that are not available first, then
/// old sets, the oldest first, then the new one, which is never above D.
fn shed_excess(group: &mut Group) {
    shed(group);
    let wanted = group.wanted;
    if let Some(new) = new_mut(group) {
        new.number = new.number.min(wanted);
    }
}

fn shed(group: &mut Group) {
    let mut excess = group.numbers() - (group.wanted + group.surge);
    lower(&mut group.rows, &mut excess, |row| row.number - row.available);
    lower(&mut group.rows, &mut excess, |row| row.number);
}

/// Rule 0a: where D fell together with Machines that the autoscaler named, the numbers of their sets fall: else an old set would make
/// such a Machine again.
fn shed_named(group: &mut Group) {
    let mut fallen = group.fallen;
    lower(&mut group.rows, &mut fallen, |row| {
        row.named.min(row.number - row.present)
    });
}

/// Rule 1: the new set's number rises by what there is room for, up to D. Machines that it has beyond its number have their room already.
/// Once the rollout has timed out on Machines of the new set that are not available, the newest set with available Machines rises instead,
/// if there is one, to what D lacks.
fn raise(group: &mut Group) {
    let works = group.rows.iter().rposition(|row| row.available > 0);
    let is_stuck = group.has_timed_out && new_mut(group).is_some_and(|new| new.claim() > new.available);
    let works = works.filter(|place| is_stuck && group.rows.get(*place).is_some_and(|row| !row.is_new));
    let (room, wanted, bounds) = (group.room(), group.wanted, group.surge + group.unavailable);
    let lacks = wanted - (group.numbers() - group.on_the_way());
    if let Some(row) = works.and_then(|place| group.rows.get_mut(place)) {
        row.number += room.min(lacks).max(0);
        // Of the new template stays what the bounds alone let come: what D asked for more is made where it works.
        if let Some(new) = new_mut(group) {
            new.number = new.number.min(new.available + bounds);
        }
    } else if let Some(new) = new_mut(group) {
        new.number = (new.claim() + room).min(wanted).max(new.number);
    }
}

/// Rule 2: old sets fall, the oldest first: by Machines that are not available, as far as the allowance goes; then by available ones,
/// as far as there is slack, too.
fn lower_old(group: &mut Group) {
    let mut allowance = group.may_fall();
    let slack = group.slack();
    let count = group.old().len();
    let Some(old) = group.rows.get_mut(..count) else { return };
    lower(old, &mut allowance, |row| row.number - row.available);
    // What stays above its number already uses slack.
    let due: i64 = old.iter().map(|row| (row.available - row.number).max(0)).sum();
    let mut rest = allowance.min(slack - due);
    lower(old, &mut rest, |row| row.number);
}

/// All old Machines go; the new set gets its number when they are gone.
fn recreate(group: &mut Group, has_old: bool) {
    let wanted = group.wanted;
    let count = group.old().len();
    for row in group.rows.iter_mut().take(count) {
        row.number = 0;
    }
    if let Some(new) = new_mut(group).filter(|new| !has_old || new.number > wanted) {
        new.number = wanted;
    }
}

/// A set's number is what it has: a Machine that has moved takes its place along, whichever write of its move was the last. What is more than
/// D + s falls; what is less than that is made in the new set, whose number alone may be ahead of what it has. Once the new set has D, the
/// rest of the old ones goes, as far as there is slack. While it is paused, what D wants more is made in the newest set in use.
fn in_place(group: &mut Group, is_paused: bool) {
    // By the numbers that are stored: what falls makes room once it has fallen.
    let room = group.room();
    let growing = growing(group, is_paused);
    for (place, row) in group.rows.iter_mut().enumerate() {
        row.number = if Some(place) == growing {
            row.claim()
        } else {
            row.present
        };
    }
    shed_excess(group);
    let (wanted, numbers) = (group.wanted, group.numbers());
    let Some(grown) = growing.and_then(|place| group.rows.get_mut(place)) else {
        return;
    };
    let most = if is_paused { numbers } else { grown.number };
    // While it is paused not into the surge: that is the rollout's, which stands still.
    grown.number += room.min(wanted - most).max(0);
    if grown.is_new && grown.present >= wanted && !is_paused {
        let (mut idle, mut spare) = (i64::MAX, group.slack());
        let count = group.old().len();
        let Some(old) = group.rows.get_mut(..count) else { return };
        lower(old, &mut idle, |row| row.number - row.available);
        lower(old, &mut spare, |row| row.number);
    }
}

/// The row in which Machines are made while others are updated in place.
fn growing(group: &Group, is_paused: bool) -> Option<usize> {
    match is_paused {
        true => group.rows.iter().rposition(Row::is_in_use),
        false => group.rows.iter().position(|row| row.is_new),
    }
}

/// Paused with several sets in use: the sum follows D. It grows in the new set if that is in use, else in the newest that is; it shrinks as
/// an excess does.
fn hold(group: &mut Group) {
    let lacks = group.wanted - group.numbers();
    if lacks > 0 {
        // Not into the surge: that is the rollout's, which stands still.
        let claimed: i64 = group.rows.iter().map(Row::claim).sum();
        let room = group.room().min(group.wanted - claimed).min(lacks).max(0);
        if let Some(newest) = group.rows.iter_mut().rev().find(|row| row.number > 0) {
            newest.number += room;
        }
    }
    // A surge that was there when the rollout was paused may stay.
    shed(group);
}

/// Takes from each row in turn what it has to give, until the rest is used up.
fn lower(rows: &mut [Row], rest: &mut i64, has: impl Fn(&Row) -> i64) {
    for row in rows {
        let by = has(row).min(row.number).min(*rest).max(0);
        row.number -= by;
        *rest -= by;
    }
}

fn new_mut(group: &mut Group) -> Option<&mut Row> {
    group.rows.last_mut().filter(|row| row.is_new)
}

#[cfg(test)]
mod tests;
