//! What the server does without being asked: it follows deletions and forgets history.
//!
//! Decides when; what is due is the value's affair.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};

use super::room::Room;
use crate::store::MANY;

/// Between rounds: short enough that nobody waits for it, long enough that a burst of deletions is one round.
const PAUSE: Duration = Duration::from_millis(50);
/// A round can make the next one due; one that goes on for ever would be a fault of the value's, and may not hang the server.
const ROUNDS: usize = 100;
/// What is remembered of one kind, at most: an old object for each change, so that ten thousand nodes that report every ten
/// seconds do not fill the memory within the minutes for which history is kept. Who watches and reads is never that far behind.
const CHANGES: usize = 5_000;
/// Between two looks at that, and at what can rest. A busy server makes some hundred changes meanwhile.
const TRIM: Duration = Duration::from_millis(200);
/// How many times history is looked at while it is kept.
const STEPS: u32 = 5;

/// Plays the controllers that follow deletions, whenever something changed that they look at.
pub(super) async fn collect(room: Arc<Room>) {
    let mut bell = room.bell();
    let mut settled = None;
    loop {
        bell.borrow_and_update();
        if settled.is_none_or(|version| room.with(|api| api.may_be_due_since(version))) {
            settled = wave(&room).await;
        }
        tokio::select! {
            () = room.stop.cancelled() => return,
            _ = bell.changed() => sleep(PAUSE).await,
        }
    }
}

/// Rounds until nothing is left to do; gives the version at which that was so, and none if that was not reached.
async fn wave(room: &Room) -> Option<u64> {
    for _ in 0..ROUNDS {
        let moment = room.outside.moment();
        let (done, version) = room.with(|api| (api.collect(&moment), api.version()));
        match done {
            Ok(0) => return Some(version),
            // Others get a turn between the rounds of one wave.
            Ok(_) => tokio::task::yield_now().await,
            // What refused may be gone by the next change: tried again then.
            Err(_) => return None,
        }
    }
    None
}

/// Forgets what happened longer ago than `history`, and of kinds that change more than is worth remembering all but the newest.
pub(super) async fn forget(room: Arc<Room>, history: Duration) {
    let mut ticks = interval((history / STEPS).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trims = interval(TRIM);
    trims.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = VecDeque::new();
    loop {
        tokio::select! {
            () = room.stop.cancelled() => return,
            _ = trims.tick() => {
                room.with(|api| {
                    api.cool(MANY); // first, as it looks for what is warm in the history
                    api.trim(CHANGES);
                });
                continue;
            }
            _ = ticks.tick() => {}
        }
        seen.push_back(room.with(|api| api.version()));
        if seen.len() > STEPS as usize {
            let old = seen.pop_front().expect("it has more than STEPS entries");
            room.with(|api| api.compact(old));
        }
    }
}
