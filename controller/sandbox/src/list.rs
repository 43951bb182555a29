//! Reading: one object, a list, a page of a list.
//!
//! Decides which version of the state a reader gets and in what shape. Writes nothing.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use base64::{DecodeError, Engine};
use serde_json::json;

use crate::answer::Answer;
use crate::failure::{Cause, Failure, Subject};
use crate::golang;
use crate::kinds::Kind;
use crate::request::{Query, Request};
use crate::select::{Labels, Selection};
use crate::shown::{Listing, Shape};
use crate::state::Api;
use crate::store::{Key, Object};

/// Answers GET of one object.
pub fn get(api: &Api, kind: &Arc<Kind>, request: &Request) -> Result<Answer, Failure> {
    let key = Key::new(&request.target.namespace, &request.target.name);
    let asked = request.query.first("resourceVersion");
    if !asked.is_empty() {
        let version = version_of(asked).map_err(Failure::Internal)?;
        not_future(api, version)?;
    }
    let object = api.find(kind, &key)?;
    Ok(Answer::ok(Shape::of(&request.accept).of_shared(kind, &object)))
}

/// A version in a query.
pub(crate) fn version_of(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let text = golang::quoted(text);
        format!("resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: invalid syntax")
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
        let bytes = TOKENS.decode(token).map_err(|error| bad(&no_base64(token, &error)))?;
        let said = crate::json::read(&bytes).map_err(|why| bad(&why))?;
        if said["v"] != "meta.k8s.io/v1" {
            let version = said["v"].as_str().unwrap_or_default();
            return Err(bad(&format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let version = said["rv"].as_i64().unwrap_or(0);
        if version == 0 {
            return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        let start = said["start"].as_str().unwrap_or_default();
        if start.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(bad(start));
        }
        Ok(Self {
            version: u64::try_from(version).ok(),
            start: start.to_owned(),
        })
    }

    fn token(&self) -> String {
        TOKENS.encode(json!({ "v": "meta.k8s.io/v1", "rv": self.version.map_or(json!(-1), |version| json!(version)), "start": self.start }).to_string())
    }
}

/// Where a token stops to be one.
fn no_base64(token: &str, error: &DecodeError) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => token.len().saturating_sub(1),
    };
    format!("illegal base64 data at input byte {at}")
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
    let mut asked = asked(api, kind, &request.query)?;
    let is_one = is_one(kind, request, &asked);
    if is_one && request.query.first("resourceVersionMatch").is_empty() {
        // Pages are of the past, but one object has no pages.
        asked.version = Version::Newest;
    }
    let (version, objects) = state(api, kind, &asked)?;
    let namespace = &request.target.namespace;
    let place = |key: &Key| {
        if namespace.is_empty() {
            format!("{}/{}", key.namespace, key.name)
        } else {
            key.name.clone()
        }
    };
    let wanted = |(key, object): &(&Key, &Object)| {
        (namespace.is_empty() || key.namespace == *namespace)
            && place(key) >= asked.start
            && (asked.selection.is_empty() || asked.selection.matches(&object.value()))
    };
    let found: Vec<(&Key, &Object)> = objects.iter().filter(wanted).collect();
    let taken = if asked.limit == 0 {
        found.len()
    } else {
        asked.limit.min(found.len())
    };
    let left = found.len() - taken;
    let shape = Shape::of(&request.accept);
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if kind.custom && shape == Shape::Whole {
        metadata["continue"] = json!("");
    }
    let node = indexed_node(kind, &asked);
    let follows = |key: &Key, object: &Object, last: &Key| {
        (namespace.is_empty() || key.namespace == *namespace)
            && key > last
            && node.is_none_or(|node| object.value()["spec"]["nodeName"].as_str().unwrap_or_default() == node)
    };
    // Whether there is another page is not asked of the selectors: it may be empty.
    let has_more = found.get(taken.wrapping_sub(1)).is_some_and(|(last, _)| {
        let is_full = asked.limit > 0 && !is_one && taken == asked.limit;
        is_full && objects.iter().any(|(key, object)| follows(key, object, last))
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
    Ok(Answer::List(Box::new(Listing {
        kind: kind.clone(),
        shape,
        metadata,
        objects: found
            .into_iter()
            .take(taken)
            .map(|(_, object)| object.clone())
            .collect(),
    })))
}

/// The node whose Pods a list asks for, where the server takes them from an index that holds no others: for a first page of the newest
/// state.
fn indexed_node<'a>(kind: &Kind, asked: &'a Asked) -> Option<&'a str> {
    let is_first = matches!(asked.version, Version::Newest) && asked.start.is_empty();
    let is_of_pods = kind.group.is_empty() && kind.plural == "pods";
    (is_first && is_of_pods).then(|| asked.selection.fields.only("spec.nodeName"))?
}

/// Whether a list can hold only the one object at a path, which the server then reads instead of all.
fn is_one(kind: &Kind, request: &Request, asked: &Asked) -> bool {
    let has_path = !kind.namespaced || !request.target.namespace.is_empty();
    has_path && request.query.first("continue").is_empty() && asked.selection.fields.only_name().is_some()
}

fn state(api: &Api, kind: &Kind, asked: &Asked) -> Result<(u64, BTreeMap<Key, Object>), Failure> {
    let place = kind.place();
    match asked.version {
        Version::Newest => Ok((
            api.version(),
            api.store
                .objects(&place)
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
    let (limit, _) = (query.number("limit")?.unwrap_or(0), query.number("timeoutSeconds")?);
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
        let page = Page::read(token)?;
        if !version.is_empty() && version != "0" {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Failure::BadRequest(why.to_owned()));
        }
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
