//! One HTTP request on its way to the value and back.
//!
//! Decides what is answered before the API is asked: who calls, health, the version, how much may be sent.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use serde_json::json;

use super::reply;
use super::room::Room;
use super::stream;
use super::users::Caller;
use crate::answer::Answer;
use crate::api::Api;
use crate::failure::Failure;
use crate::rbac::{Deed, Guise, User};
use crate::reply::Style;
use crate::request::Http;

/// What the server reads of a body: 3 MiB.
const LIMIT: usize = 3 * 1024 * 1024;
/// What the server takes in and throws away of a body that is too large, so that its sender hears why and not of a broken pipe.
const SWALLOWED: usize = 32 * 1024 * 1024;

pub(super) async fn answer(State(room): State<Arc<Room>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let style = Style::of(text(&head, header::USER_AGENT), head.uri.query().unwrap_or_default());
    if is_public(head.uri.path()) && !head.headers.contains_key(header::AUTHORIZATION) {
        // Anybody may know how the server is.
        return reply::of(about_the_server(&head).unwrap_or_else(|| Failure::NoPath.into()), style);
    }
    let Some(caller) = caller(&room, &head) else {
        return reply::of(Failure::Unauthorized.into(), style);
    };
    // Who may not do this does not get it read.
    let user = match room.with(|api| acting(api, caller, &head)) {
        Ok(user) => user,
        Err(failure) => return reply::of(failure.into(), style),
    };
    if let Some(answer) = about_the_server(&head) {
        return reply::of(answer, style);
    }
    let body = match read(body).await {
        Ok(body) => body,
        Err(failure) => return reply::of(failure.into(), style),
    };
    let http = Http {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        content_type: text(&head, header::CONTENT_TYPE),
        accept: text(&head, header::ACCEPT),
        agent: text(&head, header::USER_AGENT),
        user: &user.name,
        body: &body,
    };
    let moment = room.outside.moment();
    let (answer, version) = room.with(|api| (api.handle_as(&user, &http, &moment), api.version()));
    if let Err(why) = room.kept(version).await {
        return reply::of(Failure::Internal(why).into(), style);
    }
    match answer {
        Answer::Watch(started) => reply::stream(stream::events(room, *started, moment.now)),
        Answer::List(listing) if style == Style::Compact => reply::list(*listing),
        other @ (Answer::Object { .. } | Answer::List(_) | Answer::Text { .. }) => reply::of(other, style),
    }
}

/// Who calls; none if nobody knows him.
fn caller<'a>(room: &'a Room, head: &Parts) -> Option<&'a User> {
    let shown = head.headers.get(header::AUTHORIZATION);
    match room.users.caller(shown.and_then(|value| value.to_str().ok())) {
        Caller::Known(user) => Some(user),
        Caller::Wrong => None,
        Caller::Nobody => room.users.unnamed().filter(|_| !is_browser(head)),
    }
}

/// In whose name a caller acts, if that one may.
fn acting(api: &Api, caller: &User, head: &Parts) -> Result<User, Failure> {
    let deed = Deed::read(
        head.method.as_str(),
        head.uri.path(),
        head.uri.query().unwrap_or_default(),
    );
    let groups = head.headers.get_all("impersonate-group").iter();
    let guise = Guise {
        user: text(head, HeaderName::from_static("impersonate-user")).to_owned(),
        groups: groups
            .filter_map(|group| group.to_str().ok())
            .map(str::to_owned)
            .collect(),
    };
    let user = api.impersonated(caller.clone(), &guise, &deed)?;
    api.may(&user, &deed)?;
    Ok(user)
}

/// Whether a page in a browser may be behind a request: a page of another site can reach loopback, but says where it is from
/// or calls this host by another name.
fn is_browser(head: &Parts) -> bool {
    let host = text(head, header::HOST);
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    head.headers.contains_key(header::ORIGIN) || !matches!(name, "127.0.0.1" | "[::1]" | "localhost")
}

/// A header's text; empty if it is absent or no text, which the API treats alike.
fn text(head: &Parts, name: HeaderName) -> &str {
    head.headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

async fn read(mut body: Body) -> Result<Vec<u8>, Failure> {
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::Internal(broken(&error)))?;
        let Ok(chunk) = frame.into_data() else { continue };
        length += chunk.len();
        if length <= LIMIT {
            bytes.extend_from_slice(&chunk);
        }
        if length > SWALLOWED {
            break;
        }
    }
    match length <= LIMIT {
        true => Ok(bytes),
        false => Err(Failure::TooLarge { limit: LIMIT }),
    }
}

/// What is wrong with a body that comes in pieces: in the server's words, as far as hyper lets us know.
fn broken(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let why = cause.to_string();
    let known = [
        ("size: overflow", "http chunk length too large"),
        ("chunk size", "invalid byte in chunk length"),
        ("chunk body", "malformed chunked encoding"),
    ];
    let words = known.iter().find(|(part, _)| why.contains(part));
    words.map_or(why.clone(), |(_, words)| (*words).to_owned())
}

/// What the server tells anybody.
fn is_public(path: &str) -> bool {
    path == "/version" || check(path).is_some()
}

/// The check that a path asks for: `/readyz` and what lies below it.
fn check(path: &str) -> Option<&str> {
    let name = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let rest = path.trim_start_matches('/').strip_prefix(name)?.trim_start_matches('/');
    let is_known = matches!(rest, "" | "ping" | "log" | "etcd");
    (is_known && matches!(name, "healthz" | "livez" | "readyz")).then_some(name)
}

fn about_the_server(head: &Parts) -> Option<Answer> {
    let path = head.uri.path();
    if path == "/version" {
        return Some(version(head.method.as_str()));
    }
    let name = check(path)?;
    let verbose = crate::request::Query::parse(head.uri.query().unwrap_or_default()).is_set("verbose");
    let body = if verbose {
        format!("[+]ping ok\n{name} check passed\n")
    } else {
        "ok".to_owned()
    };
    Some(Answer::Text { code: 200, body })
}

/// Says which server is played. The mark behind the plus is what the rules of versions leave for such things.
fn version(method: &str) -> Answer {
    if method != "GET" {
        return Failure::NoMethod.into();
    }
    Answer::ok(json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.3+millwright", "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    }))
}
