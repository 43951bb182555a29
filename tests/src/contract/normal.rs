//! An answer without what no two servers share.
//!
//! Uids and the versions of objects become numbers in the order in which they were first seen, so that who is who and what is the
//! same is still compared. The version of a list is the server's at that moment, in which others write as well: it is only
//! not compared. What the server tells in an order of chance is sorted: owners, causes. Times and tokens of pages say only that they are there.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use super::memory::{Reply, Said};

static UID: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern("20(2[6-9]|[3-9][0-9])-[0-9-]+T[0-9:.]+Z"));
static TOO_OLD: LazyLock<Regex> = LazyLock::new(|| pattern(r"too old resource version: [0-9]+ \([0-9]+\)"));
/// Versions in sentences; those of objects are known by their number, those of the server are not.
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(in record \(|in the precondition \(|current: |version: 1 \(|esourceVersion in precondition: |esourceVersion in object meta: |resource version: |[0-9*] \()([0-9]+)",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern is valid")
}

/// What one side has named so far.
#[derive(Debug, Default)]
pub struct Names {
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
    /// Versions of objects in the order in which they were first seen.
    seen: Vec<u64>,
}

impl Names {
    /// The answer as it is compared.
    pub fn reply(&mut self, reply: &Reply) -> Value {
        let said = match &reply.said {
            Said::Object(object) => self.value(object),
            Said::Text(text) => json!(self.text(text)),
            Said::Events(events) => self.events(events),
        };
        json!({ "code": reply.code, "said": said })
    }

    /// How many versions of objects have been seen: a write that adds none has changed nothing.
    #[must_use]
    pub fn known(&self) -> usize {
        self.seen.len()
    }

    /// A stream as it is compared. Bookmarks come when the server likes, but for the one that ends the state at the beginning.
    pub fn events(&mut self, events: &[Value]) -> Value {
        let told = events.iter().filter(|event| {
            event["type"] != "BOOKMARK"
                || event
                    .pointer("/object/metadata/annotations")
                    .is_some_and(Value::is_object)
        });
        Value::Array(told.map(|event| self.event(event)).collect())
    }

    /// A bookmark has nothing to say but its metadata; the rest is the empty form of the kind.
    fn event(&mut self, event: &Value) -> Value {
        if event["type"] != "BOOKMARK" {
            return self.value(event);
        }
        let object = &event["object"];
        json!({ "type": "BOOKMARK", "kind": object["kind"], "metadata": self.value(&object["metadata"]) })
    }

    /// Versions of objects in the order in which they were first seen, as ranks: both sides must count in the same order.
    #[must_use]
    pub fn ranks(&self) -> Vec<usize> {
        let rank = |version: &u64| self.seen.iter().filter(|other| *other < version).count();
        self.seen.iter().map(rank).collect()
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => self.fields(fields),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.value(item)).collect()),
            Value::String(text) => json!(self.text(text)),
            other => other.clone(),
        }
    }

    fn fields(&mut self, fields: &Map<String, Value>) -> Value {
        let is_object = fields.contains_key("uid");
        let mut out = Map::new();
        for (key, inner) in fields {
            let shown = match (key.as_str(), inner.as_str()) {
                ("causes", _) => self.causes(inner),
                ("message", Some(text)) if text.starts_with("Apply failed with ") => {
                    json!(self.text(text.split(':').next().unwrap_or_default()))
                }
                // With several causes it is their list again, in the same order of chance.
                ("message", Some(text)) if text.contains(" is invalid: [") => {
                    json!(self.text(text.split(" is invalid: [").next().unwrap_or_default()))
                }
                ("resourceVersion", Some(version)) if !version.is_empty() => {
                    if is_object {
                        json!(self.version(version))
                    } else {
                        json!("*")
                    }
                }
                ("name", Some(_)) if fields.contains_key("generateName") => json!("*"),
                ("continue", Some(token)) if !token.is_empty() => json!("*"),
                ("managedFields", _) => self.owners(inner),
                _ => self.value(inner),
            };
            out.insert(self.text(key), shown);
        }
        Value::Object(out)
    }

    /// Causes come in the order of Go's maps, which is chance.
    fn causes(&mut self, causes: &Value) -> Value {
        let mut causes: Vec<Value> = causes
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| self.value(one))
            .collect();
        causes.sort_by_key(Value::to_string);
        Value::Array(causes)
    }

    /// Entries come in the order of their times, of which there are more on a slow side.
    fn owners(&mut self, owners: &Value) -> Value {
        let mut entries: Vec<Value> = owners
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| self.value(one))
            .collect();
        // The sandbox says that it does not keep those of scales as the server does.
        entries.retain(|entry| entry["subresource"] != "scale");
        entries.sort_by_key(|entry| {
            ["operation", "manager", "subresource", "apiVersion"]
                .map(|key| entry[key].as_str().unwrap_or_default().to_owned())
        });
        Value::Array(entries)
    }

    fn version(&mut self, version: &str) -> String {
        let next = self.versions.len();
        let number = *self.versions.entry(version.to_owned()).or_insert(next);
        if number == next {
            self.seen.push(version.parse().unwrap_or(0));
        }
        format!("version {number}")
    }

    fn text(&mut self, text: &str) -> String {
        let text = UID.replace_all(text, |found: &Captures<'_>| {
            let next = self.uids.len();
            let number = *self.uids.entry(found[0].to_owned()).or_insert(next);
            format!("uid {number}")
        });
        let text = TIME.replace_all(&text, "*time*");
        let text = TOO_OLD.replace_all(&text, "too old resource version: * (*)");
        let text = VERSION.replace_all(&text, |found: &Captures<'_>| match self.versions.get(&found[2]) {
            Some(number) => format!("{}version {number}", &found[1]),
            None => format!("{}*", &found[1]),
        });
        text.into_owned()
    }
}

/// Where two answers differ first: a JSON pointer.
#[must_use]
pub fn difference(one: &Value, other: &Value) -> Option<String> {
    if one == other {
        return None;
    }
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|key| {
                let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                let both = one.get(key).is_some() == other.get(key).is_some();
                match difference(a, b) {
                    Some(rest) => Some(format!("/{key}{rest}")),
                    None if !both => Some(format!("/{key}")),
                    None => None,
                }
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(at, (a, b))| difference(a, b).map(|rest| format!("/{at}{rest}"))),
        _ => Some(String::new()),
    }
}
