//! Watching: what a watch is, and what it sees of what happens.
//!
//! A watch is a plain value, and events are a question with an answer: nothing here waits. Whoever carries the stream asks
//! again when the version has moved, and ends it at [`Watch::ends`].

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

pub(crate) mod begin;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::json::write_json;
use crate::kinds::Kind;
use crate::select::Selection;
use crate::shown::{Shape, Shown};
use crate::store::{Change, Forgotten, Object, Store, set_version};
use crate::table::Form;

/// What a watch looks at.
#[derive(Debug, Clone)]
pub struct Watch {
    pub kind: Arc<Kind>,
    /// Empty for all namespaces.
    pub namespace: String,
    pub selection: Selection,
    pub shape: Shape,
    /// Set if the caller wants rows instead of objects.
    pub table: Option<Form>,
    /// Whether the caller wants to be told how far it has come.
    pub bookmarks: bool,
    /// When the stream is to be closed; absent if the caller leaves that to the server.
    pub ends: Option<Timestamp>,
}

/// A watch that has begun.
#[derive(Debug, Clone)]
pub struct Started {
    pub watch: Watch,
    /// What is sent at once.
    pub first: Vec<Event>,
    /// The version after which to go on.
    pub at: u64,
}

/// One event of a stream. Written where it is sent: until then it shares its object with the store.
#[derive(Debug, Clone)]
pub enum Event {
    /// What became of an object.
    Seen {
        what: &'static str,
        kind: Arc<Kind>,
        shape: Shape,
        object: Object,
    },
    /// A bookmark, an error, or a row of a table.
    Said(Value),
}

impl Event {
    fn shown(&self) -> Result<(&'static str, Shown<'_>), &Value> {
        match self {
            Self::Said(event) => Err(event),
            Self::Seen {
                what,
                kind,
                shape,
                object,
            } => {
                let (shape, in_list) = (*shape, false);
                let shown = Shown {
                    kind,
                    shape,
                    object,
                    in_list,
                };
                Ok((what, shown))
            }
        }
    }

    /// The event as one value.
    pub fn to_value(&self) -> Value {
        match self.shown() {
            Ok((what, object)) => json!({ "type": what, "object": object.to_value() }),
            Err(event) => event.clone(),
        }
    }

    /// Writes the event as it is sent.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        match self.shown() {
            Ok((what, object)) => {
                to.extend_from_slice(b"{\"type\":");
                write_json(to, &what);
                to.extend_from_slice(b",\"object\":");
                object.write(to);
                to.push(b'}');
            }
            Err(event) => write_json(to, event),
        }
    }
}

/// What a watch sees of a stretch of history.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub events: Vec<Event>,
    /// The version after which to go on.
    pub upto: u64,
    /// Whether the stream ends here: its place in history is forgotten.
    pub closed: bool,
}

impl Watch {
    /// An event as the caller wants it.
    pub(crate) fn dressed(&self, event: Event, now: Timestamp) -> Event {
        match self.table {
            Some(form) => Event::Said(form.of_event(&self.kind, &event.to_value(), now)),
            None => event,
        }
    }

    fn selects(&self, object: &Object) -> bool {
        self.selection.is_empty() || self.selection.matches(&object.value())
    }

    fn is_within(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || self.namespace == namespace
    }
}

/// What a watch sees after a version.
pub fn events(store: &Store, watch: &Watch, after: u64, now: Timestamp) -> Batch {
    let place = watch.kind.place();
    let changes = match store.since(&place, after) {
        Ok(changes) => changes,
        Err(Forgotten { oldest }) => {
            let gone = Failure::Expired(format!("too old resource version: {after} ({oldest})"));
            let event = json!({ "type": "ERROR", "object": gone.status() });
            return Batch {
                events: vec![Event::Said(event)],
                upto: after,
                closed: true,
            };
        }
    };
    let events = changes
        .filter(|change| watch.is_within(&change.key.namespace))
        .filter_map(|change| seen(watch, change))
        .map(|event| watch.dressed(event, now));
    Batch {
        events: events.collect(),
        upto: store.version().max(after),
        closed: false,
    }
}

/// A change as a selecting watch sees it: what stops to match is gone, what begins to match is new.
fn seen(watch: &Watch, change: &Change) -> Option<Event> {
    let before = change.before.as_ref().filter(|object| watch.selects(object));
    let after = change.after.as_ref().filter(|object| watch.selects(object));
    match (before, after) {
        (None, None) => None,
        (None, Some(after)) => Some(event(watch, "ADDED", after)),
        (Some(_), Some(after)) => Some(event(watch, "MODIFIED", after)),
        (Some(before), None) => {
            // The last state that the watch knew, under the version at which it went.
            let mut last = Value::clone(&before.value());
            set_version(&mut last, change.version);
            Some(event(watch, "DELETED", &Object::new(last.into())))
        }
    }
}

/// What became of an object, as a watch tells it.
fn event(watch: &Watch, what: &'static str, object: &Object) -> Event {
    Event::Seen {
        what,
        kind: watch.kind.clone(),
        shape: watch.shape,
        object: object.clone(),
    }
}

/// How far a watch has come; `initial` ends the state that it began with.
pub fn bookmark(watch: &Watch, version: u64, initial: bool) -> Value {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if initial {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    let object = json!({ "kind": watch.kind.kind, "apiVersion": watch.kind.api_version(), "metadata": metadata });
    let object = match watch.shape {
        Shape::Whole => object,
        Shape::Metadata => watch.shape.of_object(&watch.kind, &object),
    };
    json!({ "type": "BOOKMARK", "object": object })
}
