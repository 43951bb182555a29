//! Reading: one object, a list, a page of a list.
//!
//! Decides which version of the state a reader gets and in what shape. Writes nothing.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use serde_json::{Map, Value, json};

use crate::api::{Answer, Api};
use crate::failure::{Cause, Failure, Subject};
use crate::kinds::Kind;
use crate::request::{Query, Request};
use crate::select::{Labels, Selection};
use crate::store::Key;

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
            Self::Whole => crate::builtin::seen_as(kind, object),
        }
    }

    /// The object as one of a list: built-in kinds leave out what the list says already.
    fn of_item(self, kind: &Kind, object: &Value) -> Value {
        let mut item = self.of_object(kind, object);
        if let (false, Self::Whole, Some(fields)) = (kind.custom, self, item.as_object_mut()) {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        item
    }
}

/// Answers GET of one object.
pub fn get(api: &Api, kind: &Arc<Kind>, request: &Request) -> Result<Answer, Failure> {
    let key = Key::new(&request.target.namespace, &request.target.name);
    let asked = request.query.first("resourceVersion");
    if !asked.is_empty() {
        let version = version_of(asked).map_err(Failure::Internal)?;
        not_future(api, version)?;
    }
    let object = api.find(kind, &key)?;
    Ok(Answer::ok(Shape::of(&request.accept).of_object(kind, &object)))
}

/// A version in a query.
pub(crate) fn version_of(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax")
    })
}

fn not_future(api: &Api, version: u64) -> Result<(), Failure> {
    let current = api.version();
    if version > current {
        return Err(Failure::VersionTooLarge {
            asked: version,
            current,
        });
    }
    Ok(())
}

/// Tokens are read as leniently as the server does: what is left over of the last letter is not looked at.
const TOKENS: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Where a page begins, in a list of a fixed version.
struct Page {
    /// Absent where the rest is wanted as it is now.
    version: Option<u64>,
    start: String,
}

impl Page {
    fn read(token: &str) -> Result<Self, Failure> {
        let bad = |why: &str| Failure::BadRequest(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = TOKENS.decode(token).map_err(|error| bad(&error.to_string()))?;
        let said: Value = serde_json::from_slice(&bytes).map_err(|_| {
            let first = char::from(bytes.first().copied().unwrap_or_default());
            bad(&format!("invalid character '{first}' looking for beginning of value"))
        })?;
        if said["v"] != "meta.k8s.io/v1" {
            return Err(bad("server does not recognize this encoded version \"\""));
        }
        Ok(Self {
            version: if said["rv"] == -1 {
                None
            } else {
                Some(said["rv"].as_u64().unwrap_or(0))
            },
            start: said["start"].as_str().unwrap_or_default().to_owned(),
        })
    }

    fn token(&self) -> String {
        TOKENS.encode(json!({ "v": "meta.k8s.io/v1", "rv": self.version.map_or(json!(-1), |version| json!(version)), "start": self.start }).to_string())
    }
}

/// What is said to the token of a page whose version is forgotten: the rest can be had as it is now.
pub fn page_expired(token: &str) -> Result<Failure, Failure> {
    let rest = Page {
        version: None,
        start: Page::read(token)?.start,
    };
    Ok(Failure::PageExpired { token: rest.token() })
}

/// What a list request asks for, read and checked.
struct Asked {
    selection: Selection,
    /// 0 for no limit.
    limit: usize,
    version: Version,
    start: String,
}

enum Version {
    Newest,
    Exactly(u64),
}

/// Answers GET of a collection.
pub fn list(api: &Api, kind: &Arc<Kind>, request: &Request) -> Result<Answer, Failure> {
    let asked = asked(api, kind, &request.query)?;
    let (version, objects) = state(api, kind, &asked)?;
    let namespace = &request.target.namespace;
    let place = |key: &Key| {
        if namespace.is_empty() {
            format!("{}/{}", key.namespace, key.name)
        } else {
            key.name.clone()
        }
    };
    let wanted = |(key, object): &(&Key, &Arc<Value>)| {
        (namespace.is_empty() || key.namespace == *namespace)
            && place(key) >= asked.start
            && asked.selection.matches(object)
    };
    let found: Vec<(&Key, &Arc<Value>)> = objects.iter().filter(wanted).collect();
    let taken = if asked.limit == 0 {
        found.len()
    } else {
        asked.limit.min(found.len())
    };
    let left = found.len() - taken;
    let shape = Shape::of(&request.accept);
    let items: Vec<Value> = found
        .iter()
        .take(taken)
        .map(|(_, object)| shape.of_item(kind, object))
        .collect();
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if kind.custom && shape == Shape::Whole {
        metadata["continue"] = json!("");
    }
    let within = |key: &Key| namespace.is_empty() || key.namespace == *namespace;
    // Whether there is another page is not asked of the selectors: it may be empty.
    let has_more = found.get(taken.wrapping_sub(1)).is_some_and(|(last, _)| {
        asked.limit > 0
            && asked.selection.fields.only_name().is_none()
            && taken == asked.limit
            && objects.keys().any(|key| within(key) && key > *last)
    });
    if let (true, Some((key, _))) = (has_more, taken.checked_sub(1).and_then(|last| found.get(last))) {
        metadata["continue"] = json!(
            Page {
                version: Some(version),
                start: format!("{}\0", place(key))
            }
            .token()
        );
        if asked.selection.is_empty() {
            metadata["remainingItemCount"] = json!(left);
        }
    }
    Ok(Answer::ok(listed(kind, shape, metadata, items)))
}

/// The list object around items.
pub(crate) fn listed(kind: &Kind, shape: Shape, metadata: Value, items: Vec<Value>) -> Value {
    let (name, api_version) = match shape {
        Shape::Whole => (kind.list_kind.clone(), kind.api_version()),
        Shape::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
    };
    let mut out = Map::new();
    out.insert("kind".to_owned(), json!(name));
    out.insert("apiVersion".to_owned(), json!(api_version));
    out.insert("metadata".to_owned(), metadata);
    let is_null = items.is_empty() && shape == Shape::Metadata;
    let items = if is_null { Value::Null } else { Value::Array(items) };
    out.insert("items".to_owned(), items);
    Value::Object(out)
}

fn state(api: &Api, kind: &Kind, asked: &Asked) -> Result<(u64, BTreeMap<Key, Arc<Value>>), Failure> {
    let place = kind.place();
    match asked.version {
        Version::Newest => Ok((
            api.version(),
            api.store
                .all(&place)
                .map(|(key, object)| (key.clone(), object.clone()))
                .collect(),
        )),
        Version::Exactly(version) => {
            let rest = Page {
                version: None,
                start: asked.start.clone(),
            };
            let objects = api.store.at(&place, version).map_err(|_| match asked.start.as_str() {
                "" => Failure::Expired(TOO_OLD.to_owned()),
                _ => Failure::PageExpired { token: rest.token() },
            })?;
            Ok((version, objects))
        }
    }
}

const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";

fn asked(api: &Api, kind: &Kind, query: &Query) -> Result<Asked, Failure> {
    let limit = query.first("limit");
    let limit: i64 = if limit.is_empty() { Ok(0) } else { limit.parse() }
        .map_err(|_| Failure::BadRequest(format!("strconv.ParseInt: parsing \"{limit}\": invalid syntax")))?;
    Labels::read(query.first("labelSelector"))?;
    let version = query.first("resourceVersion");
    let matching = query.first("resourceVersionMatch");
    let complaints = complaints(query);
    if !complaints.is_empty() {
        return Err(options_invalid("ListOptions", complaints));
    }
    let selection = Selection::read(kind, query.first("labelSelector"), query.first("fieldSelector"))?;
    let mut asked = Asked {
        selection,
        limit: usize::try_from(limit).unwrap_or(0),
        version: Version::Newest,
        start: String::new(),
    };
    let token = query.first("continue");
    if !token.is_empty() {
        if !version.is_empty() && version != "0" {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Failure::BadRequest(why.to_owned()));
        }
        let page = Page::read(token)?;
        asked.version = page.version.map_or(Version::Newest, Version::Exactly);
        asked.start = page.start;
        return Ok(asked);
    }
    if version.is_empty() {
        return Ok(asked);
    }
    let number = version_of(version).map_err(|why| Failure::BadRequest(format!("invalid resource version: {why}")))?;
    not_future(api, number)?;
    if number == 0 {
        asked.limit = 0; // any version will do, and the server's cache serves no pages of that
    } else if matching == "Exact" || (matching.is_empty() && asked.limit > 0) {
        asked.version = Version::Exactly(number);
    }
    Ok(asked)
}

fn complaints(query: &Query) -> Vec<Cause> {
    let (version, matching) = (query.first("resourceVersion"), query.first("resourceVersionMatch"));
    let field = "resourceVersionMatch";
    if !query.first("sendInitialEvents").is_empty() {
        return vec![Cause::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        )];
    }
    if matching.is_empty() {
        return Vec::new();
    }
    let mut out = Vec::new();
    if version.is_empty() {
        out.push(Cause::forbidden(
            field,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ));
    }
    if !query.first("continue").is_empty() {
        out.push(Cause::forbidden(
            field,
            "resourceVersionMatch is forbidden when continue is provided",
        ));
    }
    if matching != "Exact" && matching != "NotOlderThan" {
        out.push(Cause::unsupported(
            field,
            &format!("\"{matching}\""),
            "\"Exact\", \"NotOlderThan\", \"\"",
        ));
    }
    if matching == "Exact" && version == "0" {
        out.push(Cause::forbidden(
            field,
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ));
    }
    out
}

/// Options of a request that make no sense.
pub(crate) fn options_invalid(what: &str, causes: Vec<Cause>) -> Failure {
    let subject = Subject {
        group: "meta.k8s.io".to_owned(),
        what: what.to_owned(),
    };
    Failure::Invalid {
        subject,
        name: String::new(),
        causes,
    }
}
