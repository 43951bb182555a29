//! One watch as it is sent: when it hears of a change, of how many at once, and what a connection or a server does to it.
//!
//! Decides nothing about what an event is; that is the sandbox's affair. Whatever becomes of a watch is something that a
//! server may do, but for a replay (F22), which servers have done by mistake.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millwright_sandbox::reply::lines;
use millwright_sandbox::watch::{Event, Started, Watch, bookmark};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tower::BoxError;

use crate::call_fault::CallFault;
use crate::event::What;
use crate::notifier::Subscription;
use crate::process::Process;
use crate::world::World;

/// Milliseconds that watches lag behind.
const LAGS: [u64; 5] = [1, 0, 4, 15, 60];
/// Seconds that a watch lags behind if it is slow, or holds back before it is lost.
const SLOW: [u64; 5] = [1, 3, 10, 30, 55];
/// Seconds that a replica is behind the others.
const BEHIND: [u64; 4] = [2, 8, 25, 50];
/// After so many changes of other kinds a watch that is held back goes on; and after this time in any case.
const OTHERS: [u64; 4] = [3, 1, 8, 25];
const HELD: Duration = Duration::from_secs(55);
/// Changes that a replay begins before.
const AGAIN: [u64; 4] = [1, 2, 5, 20];
/// How long a watch lasts whose caller leaves that to the server.
const LASTS: Duration = Duration::from_mins(30);

/// One watch as it is sent.
pub struct Flow {
    world: Arc<World>,
    process: Arc<Process>,
    bell: Subscription,
    storms: Subscription,
    cuts: Subscription,
    /// Hears when the target cluster goes away, for watches of it.
    target_cuts: Option<Subscription>,
    watch: Watch,
    /// All changes up to this version were sent.
    at: u64,
    ready: Vec<Event>,
    ends: Instant,
    /// How far its replica is behind.
    behind: Duration,
    /// What becomes of its first change.
    call_fault: Option<CallFault>,
    /// It must look without being rung for: what happened while the answer was on its way back rang for nobody, nor does the
    /// rest of what was sent in part.
    is_due: bool,
    is_broken: bool,
    is_over: bool,
}

enum Woken {
    Changed,
    TimeIsUp,
    Broken,
    Dead,
}

impl Flow {
    /// A watch that the API has begun.
    pub fn begin(
        world: Arc<World>,
        process: Arc<Process>,
        is_target: bool,
        started: Started,
        call_fault: Option<CallFault>,
    ) -> Self {
        let lasts = started.watch.ends.map_or(LASTS, |ends| {
            Duration::try_from(ends.duration_since(world.time.wall())).unwrap_or_default()
        });
        let behind = match call_fault {
            Some(CallFault::Behind) => Duration::from_secs(world.pick("behind", &BEHIND)),
            _ => Duration::ZERO,
        };
        let mut flow = Self {
            bell: world.bell_of(started.watch.kind.place()),
            storms: world.storms(),
            cuts: process.link.storms(),
            target_cuts: is_target.then(|| world.target.storms()),
            world,
            process,
            watch: started.watch,
            at: started.at,
            ready: started.first,
            ends: Instant::now() + lasts,
            behind,
            call_fault,
            is_due: true,
            is_broken: false,
            is_over: false,
        };
        if call_fault == Some(CallFault::Replay) {
            flow.go_back();
        }
        flow
    }

    /// The next piece of the stream.
    pub async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if !self.ready.is_empty() {
                let process = Arc::clone(&self.process);
                process.pass(process.hears()).await;
                if self.target_cuts.is_some() {
                    let world = Arc::clone(&self.world);
                    process.pass(world.target.heard()).await;
                }
                return Some(Ok(lines(std::mem::take(&mut self.ready)).into()));
            }
            if std::mem::take(&mut self.is_broken) {
                self.is_over = true;
                return Some(Err("connection reset by peer".into()));
            }
            if self.is_over {
                return None;
            }
            match self.wait().await {
                Woken::Changed => self.catch_up().await,
                Woken::TimeIsUp => {
                    self.look(false);
                    self.mark();
                    self.is_over = true;
                }
                Woken::Broken => self.is_broken = true,
                Woken::Dead => return std::future::pending().await,
            }
        }
    }

    async fn wait(&mut self) -> Woken {
        if self.process.is_closed() {
            return Woken::Dead;
        }
        if std::mem::take(&mut self.is_due) && Instant::now() < self.ends {
            return Woken::Changed;
        }
        let target_cuts = async {
            match &mut self.target_cuts {
                Some(cuts) => cuts.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.process.closed() => Woken::Dead,
            () = self.storms.changed() => Woken::Broken,
            () = self.cuts.changed() => Woken::Broken,
            () = target_cuts => Woken::Broken,
            () = sleep_until(self.ends) => Woken::TimeIsUp,
            () = self.bell.changed() => Woken::Changed,
        }
    }

    /// Waits as long as this watch lags, then looks. Changes of other kinds cost no choice.
    async fn catch_up(&mut self) {
        let Some((first, has_deletion)) = self.pending() else {
            return;
        };
        // A gap waits for something to go.
        let call_fault = self
            .call_fault
            .take_if(|call_fault| *call_fault != CallFault::Gap || has_deletion);
        let world = Arc::clone(&self.world);
        let is = |this: CallFault, name: &'static str| {
            call_fault == Some(this) || (call_fault.is_none() && world.strikes(name))
        };
        if is(CallFault::Expire, "F20") {
            self.tell("F20", "ends by 410");
            self.expire();
            return;
        }
        if has_deletion && is(CallFault::Gap, "F23") {
            let seconds = self.world.pick("gap-seconds", &SLOW);
            self.tell(
                "F23",
                &format!("is silent for {seconds} s and ends by 410, with a deletion untold"),
            );
            self.sleep(Instant::now() + Duration::from_secs(seconds)).await;
            self.expire();
            return;
        }
        if is(CallFault::Stall, "F21") {
            self.tell("F21", "goes silent");
            self.sleep(self.ends).await;
        } else if is(CallFault::Hold, "F19") {
            let others = self.world.pick("held-for", &OTHERS);
            self.tell("F19", &format!("is held back until {others} more changes of all kinds"));
            self.hold(first + others).await;
        } else if is(CallFault::Lag, "F18") {
            let seconds = self.world.pick("lag-seconds", &SLOW);
            self.tell("F18", &format!("lags {seconds} s behind"));
            self.sleep(Instant::now() + Duration::from_secs(seconds)).await;
        } else {
            let lag = Duration::from_millis(self.world.pick("lag", &LAGS));
            self.sleep((Instant::now() + lag).max(self.shown_at(first))).await;
        }
        self.look(true);
        if self.world.strikes("F24") {
            self.tell("F24", "tells how far it is and breaks");
            self.mark();
            self.is_broken = true;
        }
    }

    async fn sleep(&self, until: Instant) {
        tokio::select! {
            biased;
            () = self.process.closed() => {}
            () = sleep_until(until.min(self.ends)) => {}
        }
    }

    /// Waits until the API has come to a version.
    async fn hold(&self, version: u64) {
        let until = (Instant::now() + HELD).min(self.ends);
        let mut bell = self.world.bell();
        while self.world.look(|truth| truth.api.version()) < version {
            tokio::select! {
                biased;
                () = self.process.closed() => return,
                () = sleep_until(until) => return,
                () = bell.changed() => {}
            }
        }
    }

    /// The version of the first change that was not sent yet, and whether an object goes in any that was not.
    fn pending(&self) -> Option<(u64, bool)> {
        let state = self.world.enter();
        let place = self.watch.kind.place();
        let mut changes = state.api.changes_of(&place, self.at);
        let first = changes.next()?;
        let goes = first.after.is_none() || changes.any(|change| change.after.is_none());
        Some((first.version, goes))
    }

    /// When this watch's replica hears of a version.
    fn shown_at(&self, version: u64) -> Instant {
        let state = self.world.enter();
        let happened = state.past.iter().rev().take_while(|(_, then)| *then >= version).last();
        let now = self.world.time.passed();
        let age = happened.map_or(now, |(at, _)| now - *at);
        Instant::now() + self.behind.saturating_sub(age)
    }

    /// Takes what this watch's replica knows; `in_part`: by choice only the beginning of it.
    fn look(&mut self, in_part: bool) {
        let mut state = self.world.enter();
        let seen = self.world.time.passed().checked_sub(self.behind);
        let known = if self.behind.is_zero() {
            state.api.version()
        } else {
            let past = state.past.iter().rev().find(|(at, _)| Some(*at) <= seen);
            past.map_or(0, |(_, version)| *version)
        };
        let place = self.watch.kind.place();
        let changes = state.api.changes_of(&place, self.at);
        let pending: Vec<u64> = changes.map(|change| change.version).collect();
        // A replica that is behind may not have come to where this watch begins.
        let mut upto = known.max(self.at);
        let count = pending.iter().filter(|version| **version <= upto).count();
        if in_part && count > 1 {
            let part = match state.choices.choose("prefix", 4) {
                0 => count,
                1 => 1,
                2 => count / 2,
                _ => count - 1,
            };
            upto = pending.get(part).map_or(upto, |next| upto.min(next - 1));
        }
        self.is_due = in_part && pending.last().is_some_and(|last| *last > upto);
        let batch = state.api.events(&self.watch, self.at);
        self.is_over |= batch.closed;
        let is_within = |event: &Event| version_of(event).is_none_or(|version| version <= upto);
        let mut events = batch.events;
        events.retain(is_within);
        (self.world.hooks.watched)(&self.watch.kind.plural, &mut events);
        self.ready.extend(events);
        if !batch.closed {
            self.at = upto;
        }
    }

    /// Tells how far it has come.
    fn mark(&mut self) {
        if self.watch.bookmarks && !self.is_over {
            self.ready.push(Event::Said(bookmark(&self.watch, self.at, false)));
        }
    }

    fn expire(&mut self) {
        if self.world.hooks.skips_gaps {
            self.at = self.world.look(|truth| truth.api.version());
            return;
        }
        self.ready
            .push(Event::Said(json!({ "type": "ERROR", "object": expired() })));
        self.is_over = true;
    }

    /// Begins before changes that were told already.
    fn go_back(&mut self) {
        let count = self.world.pick("again", &AGAIN);
        let back = {
            let state = self.world.enter();
            let changes: Vec<u64> = state
                .api
                .changes_of(&self.watch.kind.place(), 0)
                .map(|change| change.version)
                .take_while(|version| *version <= self.at)
                .collect();
            let nth = changes.len().saturating_sub(usize::try_from(count).unwrap_or(0));
            changes.get(nth).map(|version| version - 1)
        };
        if let Some(back) = back {
            self.tell("F22", &format!("begins at {back} instead of {}", self.at));
            self.at = back;
        }
    }

    fn tell(&self, name: &'static str, what: &str) {
        let about = format!("watch of {} {what}", self.watch.kind.plural);
        self.world.tell(What::Fault { name, about });
    }
}

fn version_of(event: &Event) -> Option<u64> {
    let of = |object: &Value| object.get("metadata")?.get("resourceVersion")?.as_str()?.parse().ok();
    match event {
        Event::Seen { object, .. } => of(&object.value()),
        Event::Said(event) => of(event.get("object")?),
    }
}

/// What is said to a watch that has lost its place.
pub fn expired() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    })
}
