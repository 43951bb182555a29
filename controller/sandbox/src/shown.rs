//! How stored objects are shown: in which shape, alone or in a list.
//!
//! Decides how much of an object a reader gets, and that none is copied which is written as it rests. Chooses no object.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::sync::Arc;

use serde_json::{Value, json};

use crate::builtin;
use crate::json::write_json;
use crate::kinds::Kind;
use crate::store::{Object, Tree};

/// How much of an object a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
}

impl Shape {
    /// What an `Accept` header asks for first.
    pub fn of(accept: &str) -> Self {
        let first = accept.split(',').next().unwrap_or_default();
        if first.contains("as=PartialObjectMetadata") {
            Self::Metadata
        } else {
            Self::Whole
        }
    }

    /// The object in this shape.
    pub fn of_object(self, kind: &Kind, object: &Value) -> Value {
        match self {
            Self::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": object.get("metadata").cloned().unwrap_or_default(),
            }),
            Self::Whole => builtin::seen_as(kind, object).into_owned(),
        }
    }

    /// The same, without a copy where the object is shown as it lies.
    pub(crate) fn of_shared(self, kind: &Kind, object: &Tree) -> Tree {
        if self == Self::Whole && !builtin::is_new_event(kind) {
            return object.clone();
        }
        self.of_object(kind, object).into()
    }
}

/// A stored object in a shape: written as it rests, without being copied, where the shape lets it.
pub(crate) struct Shown<'a> {
    pub kind: &'a Kind,
    pub shape: Shape,
    pub object: &'a Object,
    /// Whether it stands in a list, where built-in kinds leave out what the list says already.
    pub in_list: bool,
}

impl Shown<'_> {
    fn is_bare(&self) -> bool {
        self.in_list && !self.kind.custom && self.shape == Shape::Whole
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut shown = self.shape.of_object(self.kind, &self.object.value());
        if let (true, Some(fields)) = (self.is_bare(), shown.as_object_mut()) {
            fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
        }
        shown
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        if self.shape == Shape::Whole && !builtin::is_new_event(self.kind) {
            self.object.write(to, self.is_bare());
        } else {
            write_json(to, &self.to_value());
        }
    }
}

/// A list of stored objects. It shares them with the store, and copies none when it is written.
#[derive(Debug, Clone)]
pub struct Listing {
    pub(crate) kind: Arc<Kind>,
    pub(crate) shape: Shape,
    pub(crate) metadata: Value,
    pub(crate) objects: Vec<Object>,
}

impl Listing {
    /// The list as one value.
    pub fn to_value(&self) -> Value {
        let items = self.items().map(|item| item.to_value());
        let mut whole = self.head();
        whole["items"] = match items.collect::<Vec<Value>>() {
            none if none.is_empty() && self.shape == Shape::Metadata => Value::Null,
            items => Value::Array(items),
        };
        whole
    }

    /// The list in pieces of about so many bytes, as they are sent to programs.
    pub fn pieces(self, size: usize) -> impl Iterator<Item = Vec<u8>> {
        let head = self.head().to_string();
        let head = head.strip_suffix('}').unwrap_or(&head);
        let (open, close) = if self.objects.is_empty() && self.shape == Shape::Metadata {
            ("null", "}\n")
        } else {
            ("[", "]}\n")
        };
        let mut piece = format!("{head},\"items\":{open}").into_bytes();
        let mut end = Some(close);
        let mut next = 0;
        std::iter::from_fn(move || {
            while let Some(item) = self.item(next) {
                if next > 0 {
                    piece.push(b',');
                }
                item.write(&mut piece);
                next += 1;
                if piece.len() >= size {
                    return Some(std::mem::take(&mut piece));
                }
            }
            piece.extend(end.take()?.as_bytes());
            Some(std::mem::take(&mut piece))
        })
    }

    fn items(&self) -> impl Iterator<Item = Shown<'_>> {
        (0..self.objects.len()).filter_map(|index| self.item(index))
    }

    fn item(&self, index: usize) -> Option<Shown<'_>> {
        let object = self.objects.get(index)?;
        Some(Shown {
            kind: &self.kind,
            shape: self.shape,
            object,
            in_list: true,
        })
    }

    /// The list without its items.
    fn head(&self) -> Value {
        let (name, api_version) = match self.shape {
            Shape::Whole => (self.kind.list_kind.clone(), self.kind.api_version()),
            Shape::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        json!({ "kind": name, "apiVersion": api_version, "metadata": self.metadata })
    }
}
