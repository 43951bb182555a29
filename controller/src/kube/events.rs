//! Kubernetes events: what a person should hear of an object, told off the hot path.
//!
//! Never blocks and never fails anybody's work. The same words about the same object are one event that bears their count and
//! last time (`series`), written at most every ten seconds; after other words they are a new event, as far as the object's bucket goes,
//! so that the newest stands last. An object that has too much to say is limited by that bucket; its newest words are held until
//! it may speak again, and the next event says how many were left out.
//!
//! Two lanes: what somebody should hear at once, and the life of machines, which every ordinary machine brings. The second
//! is written behind the first, and not while the API server has more important things of ours to do. Neither takes anything of the budget of other requests (`client.rs`), and each has a rate of its own.
//!
//! `millwright_events_total{lane, result}`: everything that is said ends as `written`, `repeated` (counted on another event),
//! `throttled` (the object said too much), `full` (too much waits), `failed` or `fenced` (this process does not lead). `counted` are
//! patches of counts, of which one may hold many repeats; they can fail, too.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::{Client, Resource};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::memory::{Memory, Message};
pub use self::writer::EventWriter;
use crate::env::Env;
use crate::kube::budget::Budget;
use crate::kube::client::Load;
use crate::telemetry::Metrics;

mod memory;
mod writer;

/// The API's own limit of a note.
const LONGEST_NOTE: usize = 1024;
/// One event each 20 ms in either lane, 50 a second: what a kubelet allows itself, and less than a twentieth of the writes that an
/// API server on two cores can take.
const EVENT_EVERY: Duration = Duration::from_millis(20);
/// How long the life of machines waits before it looks again whether the API server has less to do.
const LOAD_PAUSE: Duration = Duration::from_millis(100);
/// What is prompt may come at once up to this number, as a kubelet's.
const PROMPT_BURST: u32 = 100;
/// The life of machines has no burst: it has time.
const LIFE_BURST: u32 = 1;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Part of ordinary life.
    Normal,
    /// Somebody may have to act.
    Warning,
}

/// How urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Prompt,
    Life,
}

impl Lane {
    fn word(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Life => "life",
        }
    }

    /// New events that may wait. More of the first means that the API server is in trouble, and events are its least; of the
    /// second it is what is written in 82 seconds, and an older life is of no use. 4,096 waiting events take about 2 MB,
    /// the largest part of the memory that a manager needs beyond its rest while Machines come and go.
    fn places(self) -> usize {
        match self {
            Self::Prompt => 512,
            Self::Life => 4096,
        }
    }
}

/// Where events are handed in. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    memory: Arc<Mutex<Memory>>,
    news: Arc<Notify>,
    metrics: Metrics,
    env: Env,
}

/// A publisher and the writer behind it, over a client and its load. `instance` names this process.
pub fn channel(client: Client, load: Load, metrics: Metrics, instance: &str, env: Env) -> (Publisher, EventWriter) {
    let (memory, news) = (Arc::<Mutex<Memory>>::default(), Arc::new(Notify::new()));
    let writer = EventWriter {
        memory: Arc::clone(&memory),
        news: Arc::clone(&news),
        client,
        load,
        metrics: metrics.clone(),
        instance: instance.to_owned(),
        prompt: Budget::each(EVENT_EVERY, PROMPT_BURST),
        life: Budget::each(EVENT_EVERY, LIFE_BURST),
        has_complained: false,
    };
    let publisher = Publisher {
        memory,
        news,
        metrics,
        env,
    };
    (publisher, writer)
}

impl Publisher {
    /// Tells something about an object. `reason` is one CamelCase word, `note` a sentence without secrets.
    pub fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, severity: Severity, reason: &str, note: &str) {
        self.say(object, Lane::Prompt, severity, reason, note);
    }

    /// Tells a step of a life that every ordinary object goes through. It waits behind all else and is dropped first. A warning
    /// goes the prompt way.
    pub fn life<K: Resource<DynamicType = ()>>(&self, object: &K, severity: Severity, reason: &str, note: &str) {
        let lane = match severity {
            Severity::Normal => Lane::Life,
            Severity::Warning => Lane::Prompt,
        };
        self.say(object, lane, severity, reason, note);
    }

    fn say<K>(&self, object: &K, lane: Lane, severity: Severity, reason: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let message = Message {
            about: object.object_ref(&()),
            lane,
            severity,
            reason: reason.to_owned(),
            note: note.to_owned(),
            at: self.env.wall(),
        };
        let outcomes = self
            .memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .accept(message, Instant::now());
        for (lane, result) in outcomes {
            self.metrics.event(lane.word(), result);
        }
        self.news.notify_one();
    }
}

#[cfg(test)]
mod tests;
