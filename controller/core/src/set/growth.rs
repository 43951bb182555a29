//! The next Machines of a set: how many now, and under which names.
//!
//! Machines are created in batches that start at one and double while they succeed (slow start): a class or a quota that refuses
//! costs one request, and a scale-up that is taken back ends after the batch under way. Names are functions of a counter
//! (`set::names`), so that a repeat meets its own Machine. Decides nothing about how many are wanted.

use jiff::{SignedDuration, Timestamp};

use super::facts::is_leaving;
use super::freeze;
use super::made::NewMachine;
use super::names::Names;
use super::observed::{MachineView, Observed, Plan, Step, Why};
use crate::api::{keys, meta};
use crate::ids::Name;
use crate::ledger::LINGERS;
use crate::sight::later;

/// The largest batch: what an API server with two cores takes at once without queueing.
pub const LARGEST_BATCH: usize = 32;
/// The pause between two batches. With [`LARGEST_BATCH`] it bounds what a scale-up that is taken back after a second has made:
/// below 300 Machines.
pub const PAUSE: SignedDuration = SignedDuration::from_millis(100);

/// How many numbers are reserved at most beyond those that a batch needs.
const RESERVED_AHEAD: usize = 1000;

/// The steps that create the first of `missing` Machines, or why none is created now. `kept` are those that are there to stay.
pub fn grow(seen: &Observed<'_>, missing: usize, kept: &[&MachineView<'_>], now: Timestamp) -> Plan {
    let label = |key| meta::label(&seen.set.metadata, key);
    if seen.is_frozen || freeze::is_labelled(seen.set) || label(keys::SCALE_UP_DISABLED).is_some() {
        return Plan::rest(Why::Frozen);
    }
    if !seen.allowance.grow {
        return Plan::rest(Why::MadeElsewhere);
    }
    if let Some(refusal) = seen.refusal {
        return Plan::rest(Why::ClassRefused(refusal.to_string()));
    }
    if seen.class_unchecked {
        return Plan::rest(Why::ClassUnchecked);
    }
    if let Some(refusal) = seen.notes.create_refused.as_ref().filter(|refusal| refusal.holds(now)) {
        return Plan::wait(refusal.retry_at, Why::CoolingOff);
    }
    let next_batch = seen.notes.batch_ended.map(|ended| later(ended, PAUSE));
    if let Some(at) = next_batch.filter(|at| *at > now) {
        return Plan::wait(at, Why::NextBatch);
    }
    let batch = batch(seen.notes.batches).min(missing);
    let (names, next) = choose(seen, missing, batch, kept, now);
    if names.is_empty() {
        return match may_still_arrive(seen, now) {
            Some(until) => Plan::wait(until, Why::MayComeAgain),
            None => Plan::rest(Why::MayComeAgain),
        };
    }
    let mut steps = Vec::new();
    if next > counted(seen) {
        steps.push(Step::Reserve { next });
    }
    let more = (missing > names.len()).then(|| later(now, PAUSE));
    let made = names.into_iter().map(|name| NewMachine::of(seen.set, name));
    steps.push(Step::Create(made.collect()));
    Plan::act(steps, Why::TooFew { by: missing }).or_at(more, now)
}

/// The size of a batch after so many that succeeded.
pub fn batch(successes: u32) -> usize {
    let doublings = successes.min(LARGEST_BATCH.ilog2());
    1 << doublings
}

fn counted(seen: &Observed<'_>) -> i64 {
    seen.set.status.as_ref().map_or(0, |status| status.next_machine_number)
}

fn settled(seen: &Observed<'_>) -> i64 {
    let status = seen.set.status.as_ref();
    status.map_or(0, |status| {
        status.settled_machine_number.min(status.next_machine_number)
    })
}

/// Names for one batch of the `missing` Machines and the counter after them. Names under which a creation was sent that may still arrive
/// come first: it must meet ours. Then numbers that were reserved and whose Machine was never seen, since an earlier process may have asked
/// for them. Numbers are reserved ahead, so that few batches need a write of their own. A Machine that leaves and may come again by a
/// request that was sent before holds its place.
fn choose(
    seen: &Observed<'_>,
    missing: usize,
    batch: usize,
    kept: &[&MachineView<'_>],
    now: Timestamp,
) -> (Vec<Name>, i64) {
    let all = Names::of(seen.set);
    let is_kept = |name: &str| kept.iter().any(|machine| meta::name(&machine.metadata) == name);
    let may_arrive = |name: &String| is_open(seen, name, now) && !(seen.exists)(name);
    let sent = unsettled(seen).filter(may_arrive).take(batch);
    let mut names: Vec<Name> = sent.map(Name::new).collect();
    let (mut places, mut number) = (names.len(), settled(seen));
    while places < missing && names.len() < batch {
        let name = all.name(number);
        let is_free = !(seen.exists)(&name);
        let comes_again = !is_free && is_open(seen, &name, now) && !is_kept(&name);
        let is_new = is_free && !names.iter().any(|chosen| chosen.as_str() == name);
        places += usize::from(is_new || comes_again);
        names.extend(is_new.then(|| Name::new(name)));
        number += 1;
    }
    if number <= counted(seen) {
        return (names, counted(seen));
    }
    let ahead = missing.saturating_sub(places).min(RESERVED_AHEAD);
    (names, number.saturating_add(i64::try_from(ahead).unwrap_or(0)))
}

/// Names under which a Machine was asked for that was never seen. None, where every creation was answered.
fn unsettled<'a>(seen: &Observed<'a>) -> impl Iterator<Item = String> + use<'a> {
    let all = Names::of(seen.set);
    let numbers = match seen.unanswered.is_empty() {
        true => 0..0,
        false => settled(seen)..counted(seen),
    };
    numbers.map(move |number| all.name(number))
}

/// Until when a creation under the name that was sent may still arrive.
fn open_until(seen: &Observed<'_>, name: &str) -> Option<Timestamp> {
    let sent = seen.unanswered.get(&Name::new(name))?;
    Some(later(*sent, LINGERS))
}

/// When the first number that is not settled will be, if its Machine is there: no other creation under its name arrives from then on.
pub fn settles_at(seen: &Observed<'_>) -> Option<Timestamp> {
    let name = Names::of(seen.set).name(settled(seen));
    open_until(seen, &name).filter(|_| (seen.exists)(&name))
}

/// Whether a creation under the name was sent so lately that it may still arrive.
pub(super) fn is_open(seen: &Observed<'_>, name: &str, now: Timestamp) -> bool {
    open_until(seen, name).is_some_and(|until| now < until)
}

/// Whether the Machine of the name leaves, and another creation of it was sent that may arrive when it is gone.
fn comes_again(seen: &Observed<'_>, name: &str, now: Timestamp) -> bool {
    let leaves = |machine: &MachineView<'_>| is_leaving(machine) && meta::name(&machine.metadata) == name;
    is_open(seen, name, now) && seen.machines.iter().any(leaves)
}

/// How many creations of the set were sent and not answered, and may still arrive.
pub fn unanswered(seen: &Observed<'_>, now: Timestamp) -> usize {
    let may_arrive = |name: &String| (is_open(seen, name, now) && !(seen.exists)(name)) || comes_again(seen, name, now);
    unsettled(seen).filter(may_arrive).count()
}

/// Until when a creation of the set that was sent and not answered may still arrive.
pub fn may_still_arrive(seen: &Observed<'_>, now: Timestamp) -> Option<Timestamp> {
    let until = unsettled(seen).filter_map(|name| open_until(seen, &name));
    until.filter(|until| *until > now).max()
}
