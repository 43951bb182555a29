//! What a side has said so far, and requests with it filled in.

use std::collections::BTreeMap;

use serde_json::Value;

use super::script::Step;

/// What is filled in for an object that was never seen.
const NO_UID: &str = "00000000-0000-4000-8000-000000000000";

/// Uid and version.
type Seen = (String, String);

/// What one side has said in one sequence.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// The namespace of the sequence.
    pub namespace: String,
    /// The version before the first request.
    pub start: String,
    listed: String,
    page: String,
    objects: BTreeMap<String, Vec<Seen>>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub code: u16,
    pub said: Said,
}

/// What an answer holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Object(Value),
    Text(String),
    Events(Vec<Value>),
}

/// An answer with what its caller is warned of, so that both are compared. A 404 has none: the server may have tried a patch on a cached
/// copy of an object that is gone, and warns or not by chance.
pub(super) fn warned(code: u16, mut answer: Value, warnings: &[String]) -> Value {
    let is_told = code != 404 && !warnings.is_empty();
    if let (Some(fields), true) = (answer.as_object_mut(), is_told) {
        fields.insert("warnings".to_owned(), warnings.into());
    }
    answer
}

impl Memory {
    /// Nothing said yet.
    #[must_use]
    pub fn new(namespace: &str, start: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            start: start.to_owned(),
            ..Self::default()
        }
    }

    /// The request with what was said in it.
    #[must_use]
    pub fn filled(&self, step: &Step) -> Step {
        Step {
            path: self.fill(&step.path),
            body: step.body.as_deref().map(|body| self.fill(body)),
            ..step.clone()
        }
    }

    fn fill(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (word, after) = after.split_once("}}").unwrap_or((after, ""));
            out += before;
            out += self.word(word);
            rest = after;
        }
        out + rest
    }

    fn word(&self, word: &str) -> &str {
        let (what, whose) = word.split_once(':').unwrap_or((word, ""));
        let known = self.objects.get(whose).map(Vec::as_slice).unwrap_or_default();
        let (first, last) = (known.first(), known.last());
        match what {
            "ns" => &self.namespace,
            "start" => &self.start,
            "listrv" if self.listed.is_empty() => &self.start,
            "listrv" => &self.listed,
            "continue" => &self.page,
            "uid" => last.map_or(NO_UID, |(uid, _)| uid),
            // An earlier object of the name, if there was one.
            "olduid" => first
                .filter(|(uid, _)| last.is_some_and(|(last, _)| last != uid))
                .map_or(NO_UID, |(uid, _)| uid),
            "rv" => last.map_or("1", |(_, version)| version),
            "oldrv" => first.map_or("1", |(_, version)| version),
            // For reads: there is no time before the sequence, whatever version a caller gave to an object that was never stored.
            "since" => first
                .map(|(_, version)| version.as_str())
                .filter(|version| !is_before(version, &self.start))
                .unwrap_or(&self.start),
            _ => "",
        }
    }

    /// Keeps what an answer says.
    pub fn remember(&mut self, reply: &Reply) {
        match &reply.said {
            Said::Object(object) => self.remember_object(object),
            Said::Events(events) => {
                let objects = events.iter().filter(|event| event["type"] != "DELETED");
                objects.for_each(|event| self.remember_one(&event["object"], None));
            }
            Said::Text(_) => {}
        }
    }

    fn remember_object(&mut self, object: &Value) {
        if let Some(token) = object["metadata"]["continue"]
            .as_str()
            .filter(|_| object["kind"] == "Status")
        {
            token.clone_into(&mut self.page);
        }
        let Some(items) = object["items"].as_array() else {
            self.remember_one(object, None);
            return;
        };
        if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
            version.clone_into(&mut self.listed);
        }
        object["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut self.page);
        let kind = object["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
        for item in items {
            self.remember_one(item, kind);
        }
    }

    fn remember_one(&mut self, object: &Value, kind: Option<&str>) {
        let kind = object["kind"].as_str().or(kind).unwrap_or_default();
        let metadata = &object["metadata"];
        let (Some(uid), Some(name)) = (metadata["uid"].as_str(), metadata["name"].as_str()) else {
            return;
        };
        let Some(version) = metadata["resourceVersion"].as_str() else {
            return;
        };
        if kind == "PartialObjectMetadata" || kind == "Scale" {
            return;
        }
        let short = name.strip_prefix(&format!("{}-", self.namespace)).unwrap_or(name);
        let known = self.objects.entry(format!("{kind}/{short}")).or_default();
        // A list of an older version does not make it the newest again.
        let is_known = known.iter().any(|(_, seen)| seen == version);
        if !is_known {
            known.push((uid.to_owned(), version.to_owned()));
        }
    }
}

/// Whether one version is older than another, as far as both are numbers.
fn is_before(one: &str, other: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    number(one).zip(number(other)).is_some_and(|(one, other)| one < other)
}
