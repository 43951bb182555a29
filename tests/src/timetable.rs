//! What befalls a scene, and when: processes that are killed, clusters that are away, and what the user of its one deployment asks for
//! meanwhile. Drawn from a seed; the same seed and extent give the same table. It may not carry anything out.

use std::fmt;
use std::time::Duration;

use crate::proxy::Passage;
use crate::sampling::Draw;

/// How much of it there is.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// In which everything happens.
    pub span: Duration,
    /// How many processes are killed.
    pub kills: usize,
    /// How many managers there are to be killed.
    pub managers: usize,
    /// How often something is asked for.
    pub orders: usize,
    /// The machines that there are at first, and at most.
    pub machines: u32,
    /// For how long the API server is away. Zero: never.
    pub api_away: Duration,
    /// For how long the manager does not reach the cluster with the nodes. Zero: never.
    pub target_away: Duration,
}

/// Whom kill -9 meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Manager(usize),
    Provider,
}

/// How an API server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Killed: who connects is refused.
    Dead,
    /// Stopped: who has asked waits for an answer.
    Frozen,
}

/// What happens at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Kill(Victim),
    Start(Victim),
    /// So many machines are asked for.
    Scale(u32),
    /// Every machine is to be replaced.
    Roll,
    ApiServerGoes(Absence),
    ApiServerReturns(Absence),
    /// How the manager's way to the nodes is from now on.
    Target(Passage),
}

/// In which order things are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Down,
    Roll,
    Up,
}

const ORDERS: [Order; 3] = [Order::Down, Order::Roll, Order::Up];
/// A killed process stays away for less than this, every second one not at all.
const DOWN: Duration = Duration::from_secs(3);
/// The least that is asked for is a fifth of the machines.
const LEAST: u32 = 5;

/// All that happens, in order, each at its distance from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable(pub Vec<(Duration, Act)>);

impl Timetable {
    /// What a seed gives.
    #[must_use]
    pub fn drawn(draw: &mut Draw, extent: &Extent) -> Self {
        let mut acts = Vec::new();
        let away = absent(draw, extent, &mut acts);
        kills(draw, extent, &mut acts);
        orders(draw, extent, away, &mut acts);
        acts.sort_by_key(|(at, _)| *at); // stable: a start stays between two kills of one instant
        Self(acts)
    }

    /// How many kills are in it.
    #[must_use]
    pub fn kills(&self) -> usize {
        self.0.iter().filter(|(_, act)| matches!(act, Act::Kill(_))).count()
    }
}

/// The absences of both clusters, which may meet. Gives when the API server goes.
fn absent(draw: &mut Draw, extent: &Extent, acts: &mut Vec<(Duration, Act)>) -> Duration {
    let goes = draw.time_below(extent.span.saturating_sub(extent.api_away));
    if !extent.api_away.is_zero() {
        let how = *choice(draw, &[Absence::Dead, Absence::Frozen]);
        acts.push((goes, Act::ApiServerGoes(how)));
        acts.push((goes + extent.api_away, Act::ApiServerReturns(how)));
    }
    if !extent.target_away.is_zero() {
        let shut = draw.time_below(extent.span.saturating_sub(extent.target_away));
        let how = *choice(draw, &[Passage::Refusing, Passage::Hanging]);
        acts.push((shut, Act::Target(how)));
        acts.push((shut + extent.target_away, Act::Target(Passage::Open)));
    }
    goes
}

/// Kills at any instants. Nobody is killed again before it has been started.
fn kills(draw: &mut Draw, extent: &Extent, acts: &mut Vec<(Duration, Act)>) {
    let managers = (0..extent.managers).map(Victim::Manager);
    let victims: Vec<Victim> = managers.chain([Victim::Provider]).collect();
    let mut kills: Vec<(Duration, Victim)> = (0..extent.kills)
        .map(|_| (draw.time_below(extent.span), *choice(draw, &victims)))
        .collect();
    kills.sort_by_key(|(at, _)| *at);
    for victim in victims {
        let instants = kills.iter().filter(|(_, killed)| *killed == victim).map(|(at, _)| *at);
        let instants: Vec<Duration> = instants.collect();
        for (number, at) in instants.iter().enumerate() {
            let down = match draw.below(2) {
                0 => Duration::ZERO,
                _ => draw.time_below(DOWN),
            };
            let next = instants.get(number + 1).copied().unwrap_or(extent.span);
            acts.push((*at, Act::Kill(victim)));
            acts.push(((*at + down).min(next), Act::Start(victim)));
        }
    }
}

/// Orders at any instants at which the API server is there to take them: fewer machines, other machines, more machines.
fn orders(draw: &mut Draw, extent: &Extent, goes: Duration, acts: &mut Vec<(Duration, Act)>) {
    let open = extent.span.saturating_sub(extent.api_away);
    let mut instants: Vec<Duration> = (0..extent.orders).map(|_| draw.time_below(open)).collect();
    instants.sort_unstable();
    let first = choice_of(draw, ORDERS.len());
    let (mut size, least) = (extent.machines, extent.machines / LEAST);
    for (number, at) in instants.into_iter().enumerate() {
        let at = if at < goes { at } else { at + extent.api_away };
        let act = match ORDERS[(first + number) % ORDERS.len()] {
            Order::Roll => Act::Roll,
            Order::Down => {
                size = between(draw, least, size);
                Act::Scale(size)
            }
            Order::Up => {
                size = between(draw, size, extent.machines);
                Act::Scale(size)
            }
        };
        acts.push((at, act));
    }
}

/// A number from `least` to `most`.
fn between(draw: &mut Draw, least: u32, most: u32) -> u32 {
    let width = u64::from(most.saturating_sub(least)) + 1;
    least + u32::try_from(draw.below(width)).unwrap_or_default()
}

fn choice_of(draw: &mut Draw, length: usize) -> usize {
    usize::try_from(draw.below(length as u64)).unwrap_or_default()
}

fn choice<'a, T>(draw: &mut Draw, from: &'a [T]) -> &'a T {
    &from[choice_of(draw, from.len())]
}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, act) in &self.0 {
            writeln!(f, "  {:7.1} s  {act:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent {
        span: Duration::from_secs(60),
        kills: 40,
        managers: 2,
        orders: 9,
        machines: 50,
        api_away: Duration::from_secs(12),
        target_away: Duration::from_secs(30),
    };

    fn table(seed: u64) -> Timetable {
        Timetable::drawn(&mut Draw::of(seed), &EXTENT)
    }

    #[test]
    fn a_seed_gives_the_same_table_again_and_another_seed_another_one() {
        assert_eq!(table(1), table(1));
        assert_ne!(table(1), table(2));
    }

    #[test]
    fn whoever_is_killed_was_started_and_is_started_at_the_end() {
        for seed in 0..200 {
            let table = table(seed);
            assert_eq!(table.kills(), 40, "seed {seed}");
            for victim in [Victim::Manager(0), Victim::Manager(1), Victim::Provider] {
                let of = table.0.iter().filter_map(|(_, act)| match act {
                    Act::Kill(killed) if *killed == victim => Some(false),
                    Act::Start(started) if *started == victim => Some(true),
                    _ => None,
                });
                let lives: Vec<bool> = of.collect();
                let turns = lives
                    .iter()
                    .enumerate()
                    .all(|(number, lives)| *lives == (number % 2 == 1));
                assert!(
                    turns && lives.len().is_multiple_of(2),
                    "seed {seed}: {victim:?} {lives:?}"
                );
            }
        }
    }

    #[test]
    fn nothing_is_asked_of_an_api_server_that_is_away_and_every_kind_of_order_comes() {
        for seed in 0..200 {
            let (mut away, mut orders, mut size) = (false, Vec::new(), EXTENT.machines);
            for (at, act) in table(seed).0 {
                assert!(at <= EXTENT.span, "seed {seed}: {act:?} at {at:?}");
                match act {
                    Act::ApiServerGoes(_) => away = true,
                    Act::ApiServerReturns(_) => away = false,
                    Act::Roll => orders.push(Order::Roll),
                    Act::Scale(wanted) => {
                        assert!((10..=50).contains(&wanted), "seed {seed}: {wanted}");
                        orders.push(if wanted <= size { Order::Down } else { Order::Up });
                        size = wanted;
                    }
                    Act::Kill(_) | Act::Start(_) | Act::Target(_) => continue,
                }
                assert!(
                    !away || matches!(act, Act::ApiServerGoes(_)),
                    "seed {seed}: {act:?} at {at:?}"
                );
            }
            assert!(!away && orders.len() == EXTENT.orders, "seed {seed}: {orders:?}");
            assert!(
                orders.iter().filter(|order| **order == Order::Roll).count() == 3,
                "seed {seed}: {orders:?}"
            );
        }
    }
}
