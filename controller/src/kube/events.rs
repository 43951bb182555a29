//! Kubernetes events: what a person should hear of an object, told once, off the hot path.
//!
//! Decides what is worth repeating: the same words about the same object are told again after five minutes, and an
//! object that has much to say is cut off for a while. Never blocks and never fails anybody's work: an event that
//! finds no place is counted and dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::kube::bare::Bare;
use crate::kube::error::plain;
use crate::telemetry::Metrics;

/// Events that wait to be written. More than this means that the API server is in trouble, and events are its least.
const WAITING: usize = 512;
/// The same words about the same object are told again after this time.
const REPEAT_AFTER: Duration = Duration::from_secs(300);
/// How often what is older is forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Different words about one object within `REPEAT_AFTER`.
const MOST_PER_OBJECT: u32 = 20;
/// The API's own limit of a note.
const LONGEST_NOTE: usize = 1024;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Part of ordinary life.
    Normal,
    /// Somebody may have to act.
    Warning,
}

/// Where events are handed in. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    queue: mpsc::Sender<Event>,
    memory: Arc<Mutex<Memory>>,
    metrics: Metrics,
    instance: Arc<str>,
    env: Env,
}

/// What was told of late.
#[derive(Default)]
struct Memory {
    told: BTreeMap<(String, String, String), Instant>,
    said: BTreeMap<String, (Instant, u32)>,
    swept: Option<Instant>,
}

impl Memory {
    /// Forgets what is old, now and then: at every event it would cost more than the event.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|at| now.duration_since(at) < SWEEP_EVERY) {
            return;
        }
        self.swept = Some(now);
        self.told.retain(|_, at| is_fresh(*at, now));
        self.said.retain(|_, (since, _)| is_fresh(*since, now));
    }
}

fn is_fresh(at: Instant, now: Instant) -> bool {
    now.duration_since(at) < REPEAT_AFTER
}

/// Writes the events that were handed in.
pub struct Postman {
    queue: mpsc::Receiver<Event>,
    client: Client,
    metrics: Metrics,
}

/// A publisher and the postman behind it. `instance` names this process.
pub fn channel(client: Client, metrics: Metrics, instance: &str, env: Env) -> (Publisher, Postman) {
    let (sender, queue) = mpsc::channel(WAITING);
    let publisher = Publisher {
        queue: sender,
        memory: Arc::default(),
        metrics: metrics.clone(),
        instance: Arc::from(instance),
        env,
    };
    (publisher, Postman { queue, client, metrics })
}

impl Publisher {
    /// Tells something about an object. `reason` is one CamelCase word, `note` a sentence without secrets.
    pub fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, severity: Severity, reason: &str, note: &str) {
        let about = object.object_ref(&());
        let uid = about.uid.clone().unwrap_or_default();
        if let Err(why) = self.admit(&uid, reason, note) {
            self.metrics.event(why);
            return;
        }
        let event = self.event(about, object.name_any(), severity, reason, note);
        if self.queue.try_send(event).is_err() {
            self.metrics.event("full");
        }
    }

    fn admit(&self, uid: &str, reason: &str, note: &str) -> Result<(), &'static str> {
        let now = Instant::now();
        let mut memory = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        memory.sweep(now);
        let key = (uid.to_owned(), reason.to_owned(), note.to_owned());
        if memory.told.get(&key).is_some_and(|at| is_fresh(*at, now)) {
            return Err("repeated");
        }
        let (since, said) = memory.said.entry(uid.to_owned()).or_insert((now, 0));
        if !is_fresh(*since, now) {
            (*since, *said) = (now, 0);
        }
        *said += 1;
        if *said > MOST_PER_OBJECT {
            return Err("throttled");
        }
        memory.told.insert(key, now);
        Ok(())
    }

    fn event(&self, about: ObjectReference, name: String, severity: Severity, reason: &str, note: &str) -> Event {
        let now = self.env.wall();
        // Events outlive their object by an hour and bear its name; the time makes the name their own.
        let name: String = name.chars().take(230).collect();
        let cut = note
            .char_indices()
            .map(|(at, letter)| at + letter.len_utf8())
            .take_while(|end| *end <= LONGEST_NOTE)
            .last();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: about.namespace.clone().or_else(|| Some("default".to_owned())),
                ..ObjectMeta::default()
            },
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(now)),
            note: note.get(..cut.unwrap_or(0)).map(str::to_owned),
            reason: Some(reason.to_owned()),
            regarding: Some(about),
            reporting_controller: Some("machine.sapcloud.io/millwright".to_owned()),
            reporting_instance: Some(self.instance.to_string()),
            type_: Some(match severity {
                Severity::Normal => "Normal".to_owned(),
                Severity::Warning => "Warning".to_owned(),
            }),
            ..Event::default()
        }
    }
}

impl Postman {
    /// Writes events until `stop`, then what is still waiting, as far as one second goes.
    pub async fn run(mut self, stop: CancellationToken) {
        while let Some(Some(event)) = stop.run_until_cancelled(self.queue.recv()).await {
            self.post(event).await;
        }
        let rest = async {
            while let Ok(event) = self.queue.try_recv() {
                self.post(event).await;
            }
        };
        // What does not fit into the second is lost with the process; the status tells the same.
        let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
    }

    async fn post(&self, event: Event) {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Bare<Event>> = Api::namespaced(self.client.clone(), &namespace);
        let event = Bare(event);
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => self.metrics.event("written"),
            Err(error) => {
                tracing::debug!(
                    error = plain(&error),
                    reason = event.0.reason,
                    "an event was not written"
                );
                self.metrics.event("failed");
            }
        }
    }
}

#[cfg(test)]
mod tests;
