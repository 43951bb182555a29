//! What somebody may ask about himself: may I (`kubectl auth can-i`), and who am I (`kubectl auth whoami`).
//!
//! Decides what such a question says; the answer is the roles'. Stores nothing.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use serde_json::{Value, json};

use super::deed::{Deed, Thing};
use super::{AUTHENTICATED, User, allows};
use crate::answer::Answer;
use crate::api::Api;
use crate::failure::{Cause, Failure, Subject};
use crate::kinds::{Counts, Kind};
use crate::moment::Moment;
use crate::request::{Request, Verb};
use crate::write::stated;

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Whether a request is such a question.
pub(super) fn is_asked(request: &Request) -> bool {
    let target = &request.target;
    let asked = (target.group.as_str(), target.resource.as_str());
    request.verb == Verb::Create
        && target.version == "v1"
        && target.namespace.is_empty()
        && target.name.is_empty()
        && matches!(
            asked,
            (AUTHORIZATION, "selfsubjectaccessreviews") | (AUTHENTICATION, "selfsubjectreviews")
        )
}

pub(super) fn answer(api: &Api, user: &User, request: &Request, moment: &Moment) -> Answer {
    let answered = if request.target.group == AUTHORIZATION {
        may_i(api, user, request)
    } else {
        who_am_i(api, user, request, moment)
    };
    answered.map_or_else(Answer::from, |body| Answer::with(201, body))
}

/// What reading a body must know of its kind.
fn kind(request: &Request, kind: &str) -> Kind {
    Kind {
        group: request.target.group.clone(),
        version: request.target.version.clone(),
        plural: request.target.resource.clone(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        list_kind: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: false,
        status: false,
        scale: None,
        counts: Counts::Nothing,
        columns: Vec::new(),
        put_creates: false,
        put_needs_version: false,
        selectable: Vec::new(),
        schema: None,
        topology: None,
        open_api: None,
        custom: false,
    }
}

/// Reads the question, in any of the forms in which it is asked.
fn read(api: &Api, request: &Request, called: &str) -> Result<Value, Failure> {
    stated(api.kinds(), &kind(request, called), request).map(|(said, _)| said)
}

fn who_am_i(api: &Api, user: &User, request: &Request, moment: &Moment) -> Result<Value, Failure> {
    let mut review = read(api, request, "SelfSubjectReview")?;
    let mut groups: Vec<&str> = user.groups.iter().map(String::as_str).collect();
    if !groups.contains(&AUTHENTICATED) {
        groups.push(AUTHENTICATED);
    }
    review["metadata"] = json!({ "creationTimestamp": moment.seconds() });
    review["status"] = json!({ "userInfo": { "username": user.name, "groups": groups } });
    Ok(review)
}

fn may_i(api: &Api, user: &User, request: &Request) -> Result<Value, Failure> {
    let mut review = read(api, request, "SelfSubjectAccessReview")?;
    let deed = deed(&review["spec"])?;
    let verdict = allows(&api.store, user, &deed);
    let mut status = json!({ "allowed": verdict.allowed });
    if !verdict.reason.is_empty() {
        status["reason"] = json!(verdict.reason);
    }
    review["status"] = status;
    Ok(review)
}

fn deed(spec: &Value) -> Result<Deed, Failure> {
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_object(), path.is_object()) {
        (true, false) => Ok(Deed::Resource {
            verb: text(resource, "verb"),
            thing: Thing {
                group: text(resource, "group"),
                resource: text(resource, "resource"),
                subresource: text(resource, "subresource"),
                namespace: text(resource, "namespace"),
                name: text(resource, "name"),
            },
        }),
        (false, true) => Ok(Deed::Path {
            verb: text(path, "verb"),
            path: text(path, "path"),
        }),
        (true, true) => {
            let shown = json!({ "Path": text(path, "path"), "Verb": text(path, "verb") });
            let why = "cannot be specified in combination with resourceAttributes";
            Err(invalid(Cause::invalid("spec.nonResourceAttributes", shown, why)))
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(invalid(Cause::invalid("spec.resourceAttributes", "null", why)))
        }
    }
}

/// The server names neither kind nor object here.
fn invalid(cause: Cause) -> Failure {
    Failure::Invalid {
        subject: Subject {
            group: AUTHORIZATION.to_owned(),
            what: String::new(),
        },
        name: String::new(),
        causes: vec![cause],
    }
}
