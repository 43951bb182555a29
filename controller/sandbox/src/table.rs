//! Answers as tables: what `kubectl get` prints.
//!
//! Decides which columns a kind has, what stands in each cell, and how much of the object goes along. Works on objects that are
//! chosen already, and stores none.

mod age;
mod cells;
mod heads;
mod path;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::builtin;
use crate::failure::Failure;
use crate::kinds::Kind;
use crate::request::Query;
use crate::shown::{Listing, Shape};
use crate::store::Object;

/// The form of tables that a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    version: &'static str,
    include: Include,
    /// Whether the columns were told, so that later events of a stream need not repeat them.
    pub(crate) told: bool,
}

/// How much of the object goes along with its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Include {
    Nothing,
    Metadata,
    Object,
}

/// What heads a column: name, type, format, description, priority.
struct Head {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
}

impl Form {
    /// The form of a version that a query asks for.
    pub fn of(version: &'static str, query: &Query) -> Result<Self, Failure> {
        let include = match query.first("includeObject") {
            "" | "Metadata" => Include::Metadata,
            "None" => Include::Nothing,
            "Object" => Include::Object,
            other => {
                let why = format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": must be 'Metadata', \
                     'Object', 'None', or empty"
                );
                return Err(Failure::BadRequest(why));
            }
        };
        Ok(Self {
            version,
            include,
            told: false,
        })
    }

    /// One event of a watch in this form. Errors stay as they are.
    pub fn of_event(self, kind: &Kind, event: &Value, now: Timestamp) -> Value {
        let what = event.get("type").cloned().unwrap_or_default();
        let body = event.get("object").cloned().unwrap_or_default();
        let mut object = self.of_body(kind, &body, now).unwrap_or(body);
        // A bookmark says where it stands even to those who want no objects.
        if what == "BOOKMARK" {
            let whole = Self {
                include: Include::Metadata,
                ..self
            };
            object = whole
                .of_body(kind, event.get("object").unwrap_or(&Value::Null), now)
                .unwrap_or(object);
        }
        json!({ "type": what, "object": object })
    }

    /// A list, row by row, so that no more than one object is copied at a time.
    pub(crate) fn of_listing(self, listing: &Listing, now: Timestamp) -> Value {
        let kind = &listing.kind;
        let row = |object: &Object| self.row(kind, &Shape::Whole.of_object(kind, &object.value()), now);
        let rows = listing.objects.iter().map(row).collect();
        self.table(&listing.metadata, &heads::of(kind), rows)
    }

    /// A body in this form. Nothing where it is no object of that kind, as a `Status`.
    pub(crate) fn of_body(self, kind: &Kind, body: &Value, now: Timestamp) -> Option<Value> {
        let said = body.get("kind").and_then(Value::as_str)?;
        let (heads, rows): (Vec<Head>, Vec<Value>) = if said == kind.kind {
            (heads::of(kind), vec![self.row(kind, body, now)])
        } else if said == "Scale" {
            let row = json!({ "cells": cells::of_scale(body, now), "object": self.of_object(None, body) });
            (heads::of_scale(), vec![row])
        } else {
            return None;
        };
        let metadata = body.get("metadata").unwrap_or(&Value::Null);
        Some(self.table(metadata, &heads, rows))
    }

    fn table(self, said: &Value, heads: &[Head], rows: Vec<Value>) -> Value {
        let mut metadata = json!({});
        for key in ["resourceVersion", "continue", "remainingItemCount"] {
            let value = said.get(key).filter(|value| **value != json!(""));
            if let (Some(value), Some(fields)) = (value, metadata.as_object_mut()) {
                fields.insert(key.to_owned(), value.clone());
            }
        }
        let heads = (!self.told).then(|| heads.iter().map(Head::told).collect::<Vec<_>>());
        json!({
            "kind": "Table", "apiVersion": format!("meta.k8s.io/{}", self.version), "metadata": metadata,
            "columnDefinitions": heads, "rows": rows,
        })
    }

    fn row(self, kind: &Kind, object: &Value, now: Timestamp) -> Value {
        let cells = if kind.custom {
            custom_cells(kind, object, now)
        } else {
            // An Event has one set of columns, under whichever names it is seen.
            cells::of(kind, &builtin::stored_as(kind, object.clone()), now)
        };
        json!({ "cells": cells, "object": self.of_object(Some(kind), object) })
    }

    fn of_object(self, kind: Option<&Kind>, object: &Value) -> Value {
        match self.include {
            Include::Nothing => Value::Null,
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{}", self.version),
                "metadata": object.get("metadata"),
            }),
            Include::Object => {
                let mut whole = object.clone();
                if let (Some(kind), Some(fields)) = (kind, whole.as_object_mut()) {
                    fields.insert("kind".to_owned(), json!(kind.kind));
                    fields.insert("apiVersion".to_owned(), json!(kind.api_version()));
                }
                whole
            }
        }
    }
}

impl Head {
    fn told(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": self.description, "priority": self.priority,
        })
    }
}

fn custom_cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut out = vec![object.pointer("/metadata/name").cloned().unwrap_or_else(|| json!(""))];
    if kind.columns.is_empty() {
        let created = object.pointer("/metadata/creationTimestamp");
        out.push(created.map_or(Value::Null, |created| cell("date", created, now)));
    }
    for column in &kind.columns {
        let found = path::first(&column.path, object);
        out.push(found.map_or(Value::Null, |value| cell(&column.kind, value, now)));
    }
    out
}

/// A value in a column of a type; null where it does not fit.
fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("string", Value::String(text)) => json!(text),
        ("string", other) => json!(other.to_string()),
        ("integer", Value::Number(number)) => number.as_i64().map_or_else(
            || number.as_f64().map_or(Value::Null, |float| json!(float.trunc())),
            |whole| json!(whole),
        ),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => json!(age::since(text, now).unwrap_or_else(|| "<invalid>".to_owned())),
        _ => Value::Null,
    }
}
