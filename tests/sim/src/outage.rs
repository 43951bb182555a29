//! Outages that last: the target cluster is away for hours, one kind of write is refused for minutes.
//!
//! Decides what must be done all the same while they last (L4). Faults do not end before they do.

use std::sync::Arc;
use std::time::Duration;

use millwright_oracles::wanted;
use millwright_sandbox::request::Verb;

use crate::event::{Truth, What};
use crate::judge::Seen;
use crate::process::Cut;
use crate::refusal::Refusal;
use crate::world::World;

/// Hours for which the target cluster is away.
const AWAY: [u64; 8] = [1, 1, 1, 1, 1, 1, 1, 24];
/// Minutes for which a kind of write is refused.
const REFUSED: [u64; 2] = [8, 15];
/// At the end of an outage, what can be done has been done at some moment of this time: other faults come in between.
const LAST: Duration = Duration::from_mins(6);
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The target cluster goes away, once in a run.
pub fn lose_target(world: &Arc<World>) {
    if world.target.is_cut().is_some() || world.enter().outlasts > Duration::ZERO {
        return;
    }
    let lasts = Duration::from_hours(world.pick("target-away", &AWAY));
    let how = world.pick("target-cut", &[Cut::Refused, Cut::Silent]);
    let about = format!("the target cluster is away for {} h ({how:?})", lasts.as_secs() / 3600);
    world.tell(What::Fault { name: "F57", about });
    world.tell(What::TargetAway);
    world.target.cut(lasts, how);
    let end = begin(world, lasts);
    let world = Arc::clone(world);
    tokio::spawn(async move {
        must_come(&world, end, "while the target cluster is away", wanted_served).await;
        tokio::time::sleep(end.saturating_sub(world.time.passed())).await;
        world.tell(What::TargetBack);
    });
}

/// The API server refuses one kind of write.
pub fn refuse(world: &Arc<World>) {
    if world.enter().outlasts > Duration::ZERO {
        return;
    }
    let lasts = Duration::from_mins(world.pick("refused", &REFUSED));
    let machine = match world.choose("refusal", 2) {
        0 => None,
        _ => world.one("refused-machine", "machines"),
    };
    let end = begin(world, lasts);
    let refusal = match machine {
        None => Refusal {
            until: end,
            verb: Verb::Create,
            name: None,
            message: "machines is forbidden: exceeded quota: compute, requested: count/machines=1, used: count/machines=9",
        },
        Some(name) => Refusal {
            until: end,
            verb: Verb::Patch,
            name: Some(name),
            message: "admission webhook \"policy.example.org\" denied the request: this machine may not be changed",
        },
    };
    let name = refusal.name.clone().unwrap_or_default();
    let about = format!(
        "{:?} machines {name} is refused for {} min",
        refusal.verb,
        lasts.as_secs() / 60
    );
    world.tell(What::Fault { name: "F58", about });
    let is_quota = refusal.name.is_none();
    world.enter().refusal = Some(refusal);
    let world = Arc::clone(world);
    tokio::spawn(async move {
        match is_quota {
            true => must_come(&world, end, "while no machine may be created", wanted_told).await,
            false => must_come(&world, end, "while one machine may not be changed", wanted_served).await,
        }
    });
}

/// Returns when every outage is over that faults wait for.
pub async fn outlast(world: &Arc<World>) {
    while !world.is_broken() {
        let (now, until) = (world.time.passed(), world.enter().outlasts);
        if until <= now {
            return;
        }
        tokio::time::sleep((until - now).min(Duration::from_mins(1))).await;
    }
}

fn begin(world: &World, lasts: Duration) -> Duration {
    let end = world.time.passed() + lasts;
    world.enter().outlasts = end;
    end
}

fn wanted_served(truth: &Truth<'_>) -> Result<(), String> {
    wanted::served(&Seen::of(truth))
}

fn wanted_told(truth: &Truth<'_>) -> Result<(), String> {
    wanted::shortage_told(&Seen::of(truth))
}

/// L4: in the last time of an outage, this holds at some moment.
async fn must_come(world: &Arc<World>, end: Duration, during: &str, holds: fn(&Truth<'_>) -> Result<(), String>) {
    let from = end.saturating_sub(LAST);
    tokio::time::sleep(from.saturating_sub(world.time.passed())).await;
    let mut last = Ok(());
    while world.time.passed() + LOOK < end && !world.is_broken() {
        last = world.look(holds);
        if last.is_ok() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    if let Err(why) = last {
        world.broken("L4", format!("{during}: {why}"));
    }
}
