//! The quiet tail of a run: what must come true when no fault strikes any more, and what must stay so in a time of rest.
//!
//! Decides how long is waited for what. Nobody here changes an object; a manager may be ended in the time of rest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use millwright_provider_virtual::cloud::Vm;
use millwright_sandbox::store::Place;

use crate::event::{Truth, What};
use crate::judge::{awaits_creations, awaits_records, is_ahead, last_expiry, last_preservation, settled, settled_by};
use crate::life::Lives;
use crate::transport::LATEST;
use crate::world::World;

/// L1: all is as wanted this long after faults ended, and after what machines of the run may take to be given up (`Lives::patience`).
const BOUND: Duration = Duration::from_mins(15);
/// How long it must stay so.
const STAYS: Duration = Duration::from_secs(90);
/// The longest that a harm reaches beyond the end of faults: a silent watch until its end, a late request, a call's deadline.
const SOAK: Duration = Duration::from_mins(11);
/// S12: how long nothing may be written; a sixth of it where managers elect a leader.
const REST: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
/// How often it is looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// All that was sent, answered or shown late comes to its end, and is answered in its turn.
pub async fn soak(world: &Arc<World>, lives: &Lives) {
    tokio::time::sleep(SOAK).await;
    converge(world, lives).await;
}

/// A time in which nobody changes anything; in some runs a manager dies or ends in it, and its successor finds all done.
pub async fn rest(world: &Arc<World>, lives: &Lives) {
    // What was written or noted under a clock that was ahead may be corrected long after convergence: skip the idle check. So may a
    // record that only a listing of VMs completes.
    let was_skewed = world.enter().enabled.has("F25");
    let is_idle = !world.look(is_ahead) && !world.look(awaits_records);
    if world.is_broken() || !is_idle || (was_skewed && world.look(awaits_creations)) {
        return;
    }
    world.tell(What::Rest);
    // A leader renews its lease all the time, which costs as much as ten runs.
    let half = if lives.elects() { REST / 12 } else { REST / 2 };
    pass(world, half).await;
    let how = world.choose("rest", 3);
    if how > 0 {
        match how {
            1 => lives.kill(),
            _ => lives.stop(),
        }
        // It starts, takes the lease over and lists everything; then there is rest again.
        pass(world, SOAK).await;
        world.tell(What::Rest);
    }
    pass(world, half).await;
    if !world.is_broken()
        && let Err(why) = world.look(settled)
    {
        world.broken("L1", format!("not as wanted any more after a time of rest: {why}"));
    }
}

/// Lets time pass, until something breaks.
async fn pass(world: &Arc<World>, time: Duration) {
    let until = world.time.passed() + time;
    while world.time.passed() < until && !world.is_broken() {
        tokio::time::sleep(MINUTE).await;
    }
}

/// L1: within the bound all is as wanted, and stays so.
pub async fn converge(world: &Arc<World>, lives: &Lives) {
    let quiet = world.time.passed();
    let mut until = quiet + BOUND + lives.patience();
    let (mut since, mut last) = (None, Look::first(world));
    while !world.is_broken() {
        let now = world.time.passed();
        // A token that arrived late, when its machine had joined, goes by its own time, which a wrong clock may have put far off. One
        // that is made when every late request has arrived moves no bound: who makes tokens for ever would never be judged.
        if now <= quiet + LATEST {
            until = until.max(world.look(last_expiry) + MINUTE);
            // Likewise a machine is preserved until then, by the clock of a manager that may follow the right one slowly.
            until = until.max(world.look(last_preservation) + BOUND + lives.patience());
        }
        last.again(world);
        match &last.settled {
            Ok(()) => {
                let since = *since.get_or_insert(now);
                if now - since >= STAYS {
                    return;
                }
            }
            Err(_) => since = None,
        }
        if since.is_none() && now > until {
            // A deletion that never ends has a name of its own.
            world.judge();
            let why = last.settled.err().unwrap_or_default();
            world.broken(
                "L1",
                format!("not as wanted {} s after faults ended: {why}", (now - quiet).as_secs()),
            );
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What was seen when it was last looked whether all is as wanted, and of what.
struct Look {
    version: u64,
    kinds: BTreeSet<Place>,
    vms: Vec<Arc<Vm>>,
    settled: Result<(), String>,
}

impl Look {
    fn first(world: &World) -> Self {
        world.look(Self::at)
    }

    fn at(truth: &Truth<'_>) -> Self {
        let (settled, kinds) = settled_by(truth);
        Self {
            version: truth.api.version(),
            kinds,
            vms: truth.vms(),
            settled,
        }
    }

    /// Looks again, where something is another than it was.
    fn again(&mut self, world: &World) {
        world.look(|truth| {
            if !self.holds(truth) {
                *self = Self::at(truth);
            }
        });
    }

    /// VMs go without a change of the API; one that is held here is not changed in its place.
    fn holds(&self, truth: &Truth<'_>) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.all(|kind| truth.api.changes_of(kind, self.version).next().is_none())
            && self.vms.iter().map(Arc::as_ptr).eq(truth.vms().iter().map(Arc::as_ptr))
    }
}
