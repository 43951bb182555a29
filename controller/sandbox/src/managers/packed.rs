//! `fieldsV1` at rest: one text instead of a tree.
//!
//! A set of fields is a tree of maps of maps, and as such larger than all the rest of an object. Decides how that tree is
//! written as one text, and how objects with such texts are shown. The store packs; whatever leaves the API is unpacked.

use std::cell::Cell;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value};

/// Begins every packed text. Names of fields do not hold these characters; a set that has one all the same stays a tree.
const PACKED: char = '\u{1}';
/// Behind a name: what is below it follows.
const OPEN: char = '\u{2}';
/// Behind a name: nothing is below it.
const LEAF: char = '\u{3}';
/// Behind all that is below a name.
const CLOSE: char = '\u{4}';

/// Packs the sets of an object's owners.
pub(crate) fn pack(object: &mut Value) {
    for fields in sets_of(object) {
        let mut text = String::from(PACKED);
        if write(fields, &mut text).is_some() {
            text.shrink_to_fit();
            *fields = Value::String(text);
        }
    }
}

/// Unpacks the sets of an object's owners.
pub(crate) fn unpack(object: &mut Value) {
    for fields in sets_of(object) {
        if let Some(tree) = tree_of(fields) {
            *fields = tree;
        }
    }
}

/// The tree of a packed set; none if it is not packed.
pub(super) fn tree_of(fields: &Value) -> Option<Value> {
    let text = text_of(fields)?;
    Some(Value::Object(read(&mut Cursor(text))))
}

fn text_of(fields: &Value) -> Option<&str> {
    fields.as_str()?.strip_prefix(PACKED)
}

fn sets_of(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let owners = object
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut);
    let fields = |entry| Value::get_mut(entry, "fieldsV1");
    owners.into_iter().flatten().filter_map(fields)
}

/// Writes what is below a place; none if it is no tree of maps, or has a name that cannot be written.
fn write(below: &Value, out: &mut String) -> Option<()> {
    for (name, below) in below.as_object()? {
        if name.contains([PACKED, OPEN, LEAF, CLOSE]) {
            return None;
        }
        out.push_str(name);
        if below.as_object()?.is_empty() {
            out.push(LEAF);
            continue;
        }
        out.push(OPEN);
        write(below, out)?;
        out.push(CLOSE);
    }
    Some(())
}

/// What of a packed text is still to be read.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    /// The next name at this place, and whether anything is below it.
    fn next(&mut self) -> Option<(&'a str, bool)> {
        let end = self.0.find([OPEN, LEAF, CLOSE])?;
        let (name, rest) = self.0.split_at(end);
        let mut rest = rest.chars();
        let mark = rest.next();
        self.0 = rest.as_str();
        (mark != Some(CLOSE)).then_some((name, mark == Some(OPEN)))
    }
}

fn read(cursor: &mut Cursor<'_>) -> Map<String, Value> {
    let mut tree = Map::new();
    while let Some((name, is_open)) = cursor.next() {
        let below = if is_open { read(cursor) } else { Map::new() };
        tree.insert(name.to_owned(), Value::Object(below));
    }
    tree
}

/// An object as it is shown, written without being copied: its sets are unpacked on the way.
pub(crate) struct Shown<'a> {
    pub object: &'a Value,
    /// Whether `apiVersion` and `kind` are left out.
    pub is_bare: bool,
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Some(fields) = self.object.as_object() else {
            return self.object.serialize(to);
        };
        let is_left = |name: &str| !(self.is_bare && matches!(name, "apiVersion" | "kind"));
        let left = fields.iter().filter(|(name, _)| is_left(name));
        to.collect_map(left.map(|(name, value)| (name, Field::of(name, value))))
    }
}

/// A field of an object. `metadata` is looked into.
enum Field<'a> {
    Plain(&'a Value),
    Metadata(&'a Map<String, Value>),
}

impl<'a> Field<'a> {
    fn of(name: &str, value: &'a Value) -> Self {
        match value {
            Value::Object(metadata) if name == "metadata" => Self::Metadata(metadata),
            other => Self::Plain(other),
        }
    }
}

impl Serialize for Field<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let metadata = match self {
            Self::Plain(value) => return value.serialize(to),
            Self::Metadata(metadata) => metadata,
        };
        let mut map = to.serialize_map(Some(metadata.len()))?;
        for (name, value) in *metadata {
            match value {
                Value::Array(entries) if name == "managedFields" => map.serialize_entry(name, &Owners(entries))?,
                other => map.serialize_entry(name, other)?,
            }
        }
        map.end()
    }
}

struct Owners<'a>(&'a [Value]);

impl Serialize for Owners<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(self.0.len()))?;
        for entry in self.0 {
            match entry {
                Value::Object(entry) => list.serialize_element(&Owner(entry))?,
                other => list.serialize_element(other)?,
            }
        }
        list.end()
    }
}

struct Owner<'a>(&'a Map<String, Value>);

impl Serialize for Owner<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            match text_of(value).filter(|_| name == "fieldsV1") {
                Some(text) => map.serialize_entry(name, &Tree(Cell::new(text)))?,
                None => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// What is below a place of a packed text. Writing it moves on behind its end.
struct Tree<'a>(Cell<&'a str>);

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let mut cursor = Cursor(self.0.get());
        while let Some((name, is_open)) = cursor.next() {
            let below = Tree(Cell::new(if is_open { cursor.0 } else { "" }));
            map.serialize_entry(name, &below)?;
            if is_open {
                cursor.0 = below.0.get();
            }
        }
        self.0.set(cursor.0);
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(object: &Value) -> String {
        let is_bare = false;
        serde_json::to_string(&Shown { object, is_bare }).unwrap()
    }

    fn owned(fields: &Value) -> Value {
        json!({ "kind": "Machine", "metadata": { "name": "m", "managedFields": [{ "manager": "a", "fieldsV1": fields }] } })
    }

    #[test]
    fn what_is_packed_is_one_text_and_comes_back_as_it_was() {
        let fields = json!({
            "f:metadata": { "f:finalizers": { ".": {}, "v:\"a\"": {} }, "f:labels": { "f:x.io/y": {} } },
            "f:spec": {}, "f:status": { "f:conditions": { "k:{\"type\":\"Ready\"}": { ".": {}, "f:status": {} } } },
        });
        for fields in [fields, json!({})] {
            let plain = owned(&fields);
            let mut object = plain.clone();
            pack(&mut object);
            assert!(object["metadata"]["managedFields"][0]["fieldsV1"].is_string());
            assert_eq!(shown(&object), plain.to_string());
            pack(&mut object);
            unpack(&mut object);
            assert_eq!(object, plain);
        }
    }

    #[test]
    fn what_is_no_set_stays_as_it_is() {
        for fields in [
            json!({ "f:a\u{2}": {} }),
            json!({ "f:a": 1 }),
            json!("f:a"),
            json!(null),
        ] {
            let plain = owned(&fields);
            let mut object = plain.clone();
            pack(&mut object);
            assert_eq!(object, plain);
            unpack(&mut object);
            assert_eq!(object, plain);
            assert_eq!(shown(&object), plain.to_string());
        }
    }
}
