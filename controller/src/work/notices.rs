//! Listens to drivers that tell of their VMs (WatchMachines), so that one that vanishes, stops or is about to be taken away is noticed
//! in seconds and not only when its Node falls silent.
//!
//! Chooses nothing: who is concerned by a notice is `millwright_core::world`'s, what follows from it the plans'. One stream for each
//! inventory, as a task of its own; it is opened anew when it ends, and when its class, credentials or driver are others. A driver
//! without the capability is asked for VMs as ever: when their Nodes are unhealthy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millwright_core::driver::{Capability, Failure, Reason, VmState};
use millwright_core::ids::ProviderId;
use millwright_core::ledger::Stamp;
use millwright_core::orphans::{Inventories, Inventory, Way};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::orphans::scope;
use super::shared::Shared;
use crate::driver::{Driver, DriverState, Told, bounds};

/// The pause before a stream is opened again: doubled at each failure.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// All streams.
#[derive(Default)]
pub(super) struct Streams {
    tasks: JoinSet<()>,
    open: BTreeMap<Inventory, Stream>,
}

struct Stream {
    under: Under,
    task: AbortHandle,
}

/// What a stream was opened with.
#[derive(Clone, Debug, PartialEq)]
struct Under {
    driver: Arc<Driver>,
    ways: Vec<(Way, Option<Stamp>)>,
}

impl Streams {
    /// Opens the streams that are wanted, and closes those that are not any more.
    pub(super) fn look(&mut self, shared: &Arc<Shared>) {
        while self.tasks.try_join_next().is_some() {}
        let wanted = wanted(shared);
        self.open.retain(|inventory, stream| {
            let stays = wanted.get(inventory) == Some(&stream.under) && !stream.task.is_finished();
            if !stays {
                stream.task.abort();
            }
            stays
        });
        for (inventory, under) in wanted {
            if self.open.contains_key(&inventory) {
                continue;
            }
            let task = follow(Arc::clone(shared), inventory.clone(), under.clone());
            let task = self.tasks.spawn(task);
            self.open.insert(inventory, Stream { under, task });
        }
    }
}

/// Inventories whose drivers can tell of VMs.
fn wanted(shared: &Shared) -> BTreeMap<Inventory, Under> {
    let all = shared.look(|world| {
        let stamped = |way: Way| {
            // One that the class says no more is another only when it says something else.
            let stamp = way.live(world).and_then(|_| world.ledger.stamp(&way.class));
            (way, stamp)
        };
        let all = Inventories::all(world).into_iter();
        let all = all.map(|(inventory, ways)| (inventory, ways.into_iter().map(stamped).collect::<Vec<_>>()));
        all.collect::<Vec<_>>()
    });
    let able = |(inventory, ways): (Inventory, Vec<_>)| match shared.drivers.get(&inventory.driver) {
        DriverState::Ready(driver) if driver.info().capabilities.contains(&Capability::WatchMachines) => {
            Some((inventory, Under { driver, ways }))
        }
        _ => None,
    };
    all.into_iter().filter_map(able).collect()
}

/// How far a stream has come, over the times that it was opened.
#[derive(Default)]
struct Course {
    /// From where it can be resumed. Empty: from the start.
    token: String,
    /// How often in a row it failed before all was told, or within a minute.
    failures: u32,
}

impl Course {
    /// Why the stream ended. One that cannot be resumed begins anew.
    fn broken(&mut self, failure: &Failure) -> String {
        if failure.reason == Some(Reason::ResumeTokenExpired) {
            self.token.clear();
        }
        format!("{}: {}", failure.word(), failure.message)
    }
}

/// Listens until the task is ended.
async fn follow(shared: Arc<Shared>, inventory: Inventory, under: Under) {
    let mut course = Course::default();
    let mut told_last: Option<String> = None;
    for turn in 0.. {
        let Some((way, _)) = under.ways.get(turn % under.ways.len().max(1)) else {
            return;
        };
        let heard = listen(&shared, &inventory, &under, way, &mut course).await;
        if let Err(why) = heard {
            course.failures = course.failures.saturating_add(1);
            // The same is said once: a driver may be away for hours.
            if told_last.as_ref() != Some(&why) {
                tracing::warn!(%inventory, class = %way.class, why, "the driver does not tell of its VMs; it is tried again, and VMs are asked for as ever");
                told_last = Some(why);
            }
        }
        let pause = SHORTEST_PAUSE
            .saturating_mul(1 << course.failures.min(6))
            .min(LONGEST_PAUSE);
        tokio::time::sleep(pause.mul_f64(shared.env.jitter())).await;
    }
}

/// One stream to its end.
async fn listen(
    shared: &Shared,
    inventory: &Inventory,
    under: &Under,
    way: &Way,
    course: &mut Course,
) -> Result<(), String> {
    let scope = scope(shared, way, &inventory.driver).await?;
    let is_anew = course.token.is_empty();
    let mut notices = match under.driver.watch_machines(&scope, &course.token).await {
        Ok(notices) => notices,
        Err(failure) => return Err(course.broken(&failure)),
    };
    tracing::debug!(%inventory, is_anew, "the driver tells of its VMs");
    let mut shown: Option<Shown> = is_anew.then(Shown::default);
    let mut has_stranger = false;
    let begun = Instant::now();
    loop {
        let told = match notices.next().await {
            Ok(Some(told)) => told,
            Ok(None) => return Ok(()),
            Err(failure) => return Err(course.broken(&failure)),
        };
        // A stream that fails at the same message each time has not come far.
        if told == Told::All || begun.elapsed() >= LONGEST_PAUSE {
            course.failures = 0;
        }
        notices.resume_token().clone_into(&mut course.token);
        if let Told::Stranger(vm) = &told
            && !std::mem::replace(&mut has_stranger, true)
        {
            tracing::warn!(%inventory, vm, "the driver told of a VM of another cluster, and perhaps of more: they are passed over");
        }
        hear(shared, inventory, under, told, &mut shown);
        if let Some(why) = shown.as_ref().and_then(Shown::excess) {
            return Err(why);
        }
    }
}

/// The VMs that a stream has told of before it has told of all.
#[derive(Default)]
struct Shown {
    ids: BTreeSet<ProviderId>,
    bytes: usize,
}

impl Shown {
    fn add(&mut self, id: ProviderId) {
        self.bytes += id.as_str().len();
        self.ids.insert(id);
    }

    /// Why so many are not kept.
    fn excess(&self) -> Option<String> {
        let (vms, bytes) = (bounds::VMS, bounds::LISTING);
        (self.ids.len() > vms || self.bytes > bytes)
            .then(|| format!("it told of more than {vms} VMs, or ids of {bytes} bytes, and has not told of all"))
    }
}

/// Takes what was told.
fn hear(shared: &Shared, inventory: &Inventory, under: &Under, told: Told, shown: &mut Option<Shown>) {
    let now = shared.env.now();
    match told {
        Told::Of(notice) => {
            if let (Some(shown), Some(id)) = (shown.as_mut(), notice.provider_id.clone())
                && notice.state != VmState::Deleted
            {
                shown.add(id);
            }
            if shared.change(|world, uptime| world.noticed(&notice, (now, uptime))) {
                shared.metrics.doubted(inventory.driver.as_str(), "told", 1);
                let (machine, id) = (notice.name.as_ref(), notice.provider_id.as_ref());
                tracing::info!(%inventory, ?machine, ?id, state = ?notice.state, disturbance = ?notice.disturbance, "bad news of a VM: the driver is asked for it");
            }
        }
        Told::All => {
            let Some(shown) = shown.take() else { return };
            let ways: Vec<Way> = under.ways.iter().map(|(way, _)| way.clone()).collect();
            let missing = shared.change(|world, uptime| world.all_noticed(&ways, &shown.ids, (now, uptime)));
            if missing > 0 {
                shared.metrics.doubted(inventory.driver.as_str(), "missing", missing);
                tracing::info!(%inventory, missing, "VMs of Machines are not among those that the driver told of: it is asked for them");
            }
        }
        Told::Stranger(_) | Told::Nothing => {}
    }
}
