//! How a watch begins: what its request asks for, and what is sent at once.

use std::sync::Arc;

use jiff::SignedDuration;

use super::{Event, Started, Watch, bookmark, event};
use crate::answer::Answer;
use crate::failure::{Cause, Failure};
use crate::kinds::Kind;
use crate::list::{options_invalid, version_of};
use crate::moment::Moment;
use crate::request::{Query, Request};
use crate::select::{Labels, Selection};
use crate::shown::Shape;
use crate::state::Api;

/// Begins a watch.
pub fn start(api: &Api, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
    let query = &request.query;
    let (seconds, _) = (query.number("timeoutSeconds")?, query.number("limit")?);
    Labels::read(query.first("labelSelector"))?;
    let complaints = complaints(query);
    if !complaints.is_empty() {
        return Err(options_invalid("ListOptions", complaints));
    }
    let selection = Selection::read(kind, query.first("labelSelector"), query.first("fieldSelector"))?;
    let version = query.first("resourceVersion");
    let version = if version.is_empty() {
        0
    } else {
        version_of(version).map_err(Failure::Internal)?
    };
    let seconds = seconds.filter(|seconds| *seconds > 0);
    let ends = seconds.and_then(|seconds| moment.now.checked_add(SignedDuration::from_secs(seconds)).ok());
    let watch = Watch {
        kind: kind.clone(),
        namespace: request.target.namespace.clone(),
        selection,
        shape: Shape::of(&request.accept),
        table: None,
        bookmarks: query.is_set("allowWatchBookmarks"),
        ends,
    };
    let initial = query.first("sendInitialEvents");
    if initial == "true" || (initial.is_empty() && version == 0) {
        return Ok(Answer::Watch(Box::new(with_state(api, watch, initial == "true"))));
    }
    let at = if version == 0 { api.version() } else { version };
    Ok(Answer::Watch(Box::new(Started {
        watch,
        first: Vec::new(),
        at,
    })))
}

/// A watch that begins with what is there.
fn with_state(api: &Api, watch: Watch, told_end: bool) -> Started {
    let place = watch.kind.place();
    let seen = api
        .store
        .objects(&place)
        .filter(|(key, object)| watch.is_within(&key.namespace) && watch.selects(object));
    let mut first: Vec<Event> = seen.map(|(_, object)| event(&watch, "ADDED", object)).collect();
    if told_end && watch.bookmarks {
        first.push(Event::Said(bookmark(&watch, api.version(), true)));
    }
    Started {
        first,
        at: api.version(),
        watch,
    }
}

fn complaints(query: &Query) -> Vec<Cause> {
    let field = "resourceVersionMatch";
    let matching = query.first(field);
    let initial = query.first("sendInitialEvents");
    let mut out = Vec::new();
    if !query.first("continue").is_empty() {
        out.push(Cause::forbidden(
            field,
            "resourceVersionMatch is forbidden when continue is provided",
        ));
        return out;
    }
    if initial.is_empty() {
        if !matching.is_empty() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            out.push(Cause::forbidden(field, why));
        }
    } else if matching.is_empty() {
        out.push(Cause::forbidden(
            field,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if !matching.is_empty() && matching != "NotOlderThan" {
        out.push(Cause::unsupported(
            field,
            &format!("\"{matching}\""),
            "\"NotOlderThan\"",
        ));
    }
    out
}
