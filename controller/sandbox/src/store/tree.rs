//! An object at hand: its tree, and its text as soon as somebody has needed it.
//!
//! Decides that a text is made once. Whoever wrote an object is answered with it and every watch shows it, all in the same words.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::json::write_json;

/// An object that never changes. Clones share it.
#[derive(Debug, Clone)]
pub struct Tree(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    value: Arc<Value>,
    text: OnceLock<Text>,
}

/// The JSON of an object, as it is shown: about a tenth of the room of its tree.
#[derive(Debug, Clone)]
pub(super) struct Text {
    json: Arc<str>,
    /// Where the fields begin that come after `apiVersion` and `kind`.
    rest: usize,
}

impl Tree {
    /// The object, for whoever needs no text of it.
    pub fn value(&self) -> Arc<Value> {
        Arc::clone(&self.0.value)
    }

    /// Writes the object as it is shown; a bare one says neither `apiVersion` nor `kind`.
    pub(crate) fn write(&self, to: &mut Vec<u8>, is_bare: bool) {
        self.text().write(to, is_bare);
    }

    /// How many bytes its JSON has.
    pub(crate) fn size(&self) -> usize {
        self.text().json.len()
    }

    pub(super) fn text(&self) -> &Text {
        self.0.text.get_or_init(|| Text::of(&self.0.value))
    }
}

impl Deref for Tree {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.value
    }
}

/// Its JSON.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text().json)
    }
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        Self(Arc::new(Inner {
            value: Arc::new(value),
            text: OnceLock::new(),
        }))
    }
}

impl Text {
    fn of(value: &Value) -> Self {
        debug_assert!(value.is_object(), "what is stored or said is an object");
        let mut json = Vec::with_capacity(2048);
        json.push(b'{');
        let is_head = |name: &str| matches!(name, "apiVersion" | "kind");
        let fields = || value.as_object().into_iter().flatten();
        put_fields(&mut json, fields().filter(|(name, _)| is_head(name)));
        if json.len() > 1 && fields().any(|(name, _)| !is_head(name)) {
            json.push(b',');
        }
        let rest = json.len();
        put_fields(&mut json, fields().filter(|(name, _)| !is_head(name)));
        json.push(b'}');
        let json = std::str::from_utf8(&json).expect("JSON is text");
        Self {
            json: json.into(),
            rest,
        }
    }

    pub(super) fn write(&self, to: &mut Vec<u8>, is_bare: bool) {
        let shown = if is_bare {
            to.push(b'{');
            self.json.get(self.rest..).unwrap_or_default()
        } else {
            &self.json
        };
        to.extend_from_slice(shown.as_bytes());
    }

    /// The tree anew.
    pub(super) fn read(&self) -> Tree {
        let value: Value =
            serde_json::from_str(&self.json).expect("the text was written from a tree, and is JSON therefore");
        let tree = Tree::from(value);
        tree.0.text.get_or_init(|| self.clone());
        tree
    }
}

/// Writes fields with commas between them.
fn put_fields<'v>(to: &mut Vec<u8>, fields: impl Iterator<Item = (&'v String, &'v Value)>) {
    for (index, (name, value)) in fields.enumerate() {
        if index > 0 {
            to.push(b',');
        }
        write_json(to, name);
        to.push(b':');
        write_json(to, value);
    }
}
