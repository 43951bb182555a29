//! Writes what waits, one request at a time: what is prompt first, the life of machines behind it, each at its own rate.
//!
//! Decides nothing about words. Events are written in the core group, as client-go's recorders do: roles that were made for other
//! controllers allow no other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::memory::{EventId, Memory, Message, Series, Write};
use super::{LOAD_PAUSE, LONGEST_NOTE, Lane, Severity};
use crate::kube::bare::Bare;
use crate::kube::budget::Budget;
use crate::kube::client::Load;
use crate::kube::error::WriteError;
use crate::telemetry::Metrics;

/// How long the end of the process may wait for events.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Writes the events that were handed in.
pub struct EventWriter {
    pub(super) memory: Arc<Mutex<Memory>>,
    pub(super) news: Arc<Notify>,
    pub(super) client: Client,
    pub(super) load: Load,
    pub(super) metrics: Metrics,
    pub(super) instance: String,
    pub(super) prompt: Budget,
    pub(super) life: Budget,
    /// Whether it was said that the server refuses events.
    pub(super) has_complained: bool,
}

impl EventWriter {
    /// Writes events until `stop`, then what is still waiting, as far as one second goes.
    pub async fn run(mut self, stop: CancellationToken) {
        while let Some(write) = stop.run_until_cancelled(self.next()).await {
            self.post(write).await;
        }
        // Taken all at once: a count that fails waits in the memory again and would be tried here without end.
        let rest: Vec<Write> = std::iter::from_fn(|| self.take_rest()).collect();
        let rest = async {
            for write in rest {
                self.post(write).await;
            }
        };
        // What does not fit into the second is lost with the process; the status tells the same.
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
    }

    /// Waits for something to write. Nothing is lost where the waiting is given up.
    async fn next(&self) -> Write {
        loop {
            let until = match self.take() {
                Ok(write) => return write,
                Err(until) => until,
            };
            match until {
                Some(until) => {
                    let _ = tokio::time::timeout_at(until, self.news.notified()).await;
                }
                None => self.news.notified().await,
            }
        }
    }

    /// What may be written now, or when to look again.
    fn take(&self) -> Result<Write, Option<Instant>> {
        let now = Instant::now();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut until: Option<Instant> = None;
        for (lane, budget) in [(Lane::Prompt, &self.prompt), (Lane::Life, &self.life)] {
            let wait = match lane {
                Lane::Life if self.load.is_high() => budget.wait(now).max(LOAD_PAUSE),
                Lane::Life | Lane::Prompt => budget.wait(now),
            };
            if wait.is_zero()
                && let Some(write) = memory.take(lane, now, false)
            {
                budget.reserve(now);
                return Ok(write);
            }
            if let Some(due) = memory.due(lane, now) {
                let due = due.max(now + wait);
                until = Some(until.map_or(due, |until| until.min(due)));
            }
        }
        Err(until)
    }

    fn take_rest(&self) -> Option<Write> {
        let now = Instant::now();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory
            .take(Lane::Prompt, now, true)
            .or_else(|| memory.take(Lane::Life, now, true))
    }

    /// Writes one event.
    async fn post(&mut self, write: Write) {
        let (lane, done) = (write.lane().word(), self.send(&write).await);
        let error = match (done, &write) {
            (Ok(()), Write::Create { .. }) => {
                self.metrics.event(lane, "written");
                return;
            }
            (Ok(()), Write::Count { .. }) => {
                self.metrics.event(lane, "counted");
                return;
            }
            (Err(error), Write::Create { .. } | Write::Count { .. }) => error,
        };
        self.complain(&error);
        let (is_gone, result) = match error {
            WriteError::Gone => (true, "failed"),
            WriteError::Fenced => (false, "fenced"),
            WriteError::Stale
            | WriteError::AlreadyExists
            | WriteError::Refused { .. }
            | WriteError::Unreachable { .. } => (false, "failed"),
        };
        self.metrics.event(lane, result);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.failed(&write, is_gone, Instant::now());
    }

    /// A refusal is most likely a role that lacks a verb, which only a person can mend: it is said once.
    fn complain(&mut self, error: &WriteError) {
        let is_refused = matches!(error, WriteError::Refused { .. });
        if is_refused && !self.has_complained {
            self.has_complained = true;
            tracing::warn!(%error, "an event was not written; further refusals are not logged");
            return;
        }
        tracing::debug!(%error, "an event was not written");
    }

    async fn send(&self, write: &Write) -> Result<(), WriteError> {
        match write {
            Write::Create {
                id,
                message,
                series,
                left_out,
            } => {
                let event = self.event(id, message, *series, *left_out);
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let created = self.api(&namespace).create(&PostParams::default(), &Bare(event)).await;
                created.map(drop).map_err(WriteError::of_create)
            }
            Write::Count {
                id,
                namespace,
                object,
                series,
                ..
            } => {
                let patch = Patch::Merge(json!({ "series": series_of(*series) }));
                let name = name_of(object, id);
                let patched = self.api(namespace).patch(&name, &PatchParams::default(), &patch).await;
                patched.map(drop).map_err(WriteError::from)
            }
        }
    }

    fn api(&self, namespace: &str) -> Api<Bare<Event>> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn event(&self, id: &EventId, message: &Message, series: Series, left_out: u32) -> Event {
        let about = message.about.clone();
        Event {
            metadata: ObjectMeta {
                name: Some(name_of(about.name.as_deref().unwrap_or_default(), id)),
                namespace: about.namespace.clone().or_else(|| Some("default".to_owned())),
                ..ObjectMeta::default()
            },
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(message.at)),
            involved_object: about,
            message: Some(note_of(&message.note, left_out)),
            reason: Some(message.reason.clone()),
            reporting_component: Some("machine.sapcloud.io/millwright".to_owned()),
            reporting_instance: Some(self.instance.clone()),
            // A series begins with the second time.
            series: (series.count > 1).then(|| series_of(series)),
            type_: Some(match message.severity {
                Severity::Normal => "Normal".to_owned(),
                Severity::Warning => "Warning".to_owned(),
            }),
            ..Event::default()
        }
    }
}

fn series_of(series: Series) -> EventSeries {
    EventSeries {
        count: Some(series.count),
        last_observed_time: Some(MicroTime(series.last)),
    }
}

/// Events outlive their object by an hour and bear its name; the number, which grows with time, makes the name their own, and
/// stands them in their order where kubectl lists them by name.
fn name_of(object: &str, id: &EventId) -> String {
    let object: String = object.chars().take(230).collect();
    format!("{object}.{:x}", id.number)
}

/// The note within the API's limit, with what was left out before it.
fn note_of(note: &str, left_out: u32) -> String {
    let omission = match left_out {
        0 => String::new(),
        1 => " (1 earlier event about this object was left out)".to_owned(),
        many => format!(" ({many} earlier events about this object were left out)"),
    };
    let space = LONGEST_NOTE.saturating_sub(omission.len());
    let cut = note.get(..note.floor_char_boundary(space)).unwrap_or_default();
    format!("{cut}{omission}")
}
