//! Roles decide as a real kube-apiserver decided: every case of `tests/rbac/*.cases`, in order, on one fresh value.
//!
//! `tests/rbac/capture.py` wrote the expected answers. Of what was let through only the code is compared: what it says is
//! the affair of the other cases.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use jiff::Timestamp;
use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::rbac::{User, defaults};
use millwright_sandbox::request::Http;
use serde_json::{Value, json};

/// Questions at which the value is known to answer otherwise once they are let through, and why. They count as let through.
const GAPS: &[(&str, &str)] = &[
    ("GET /metrics", "the server's metrics are no part of the API"),
    ("GET /healthz", "the HTTP server answers it"),
    ("GET /readyz", "the HTTP server answers it"),
    ("GET /livez", "the HTTP server answers it"),
    ("GET /version", "the HTTP server answers it"),
    ("GET /openapi/v2", "not published"),
    ("GET /openapi/v3", "published by another room"),
];

struct Asker {
    api: Api,
    user: User,
    made: u32,
}

impl Asker {
    fn new() -> Self {
        let mut asker = Self {
            api: Api::new(now()),
            user: User::administrator("admin"),
            made: 0,
        };
        for definition in millwright_core::api::crds::all() {
            let definition = serde_json::to_value(definition).unwrap();
            let moment = asker.moment();
            asker.api.install(&definition, &moment).unwrap();
        }
        let mut made = 1000;
        defaults::install(&mut asker.api, || {
            made += 1;
            moment(made)
        })
        .unwrap();
        asker
    }

    fn moment(&mut self) -> Moment {
        self.made += 1;
        moment(self.made)
    }

    fn ask(&mut self, question: &str, body: &str) -> (u16, Value) {
        let mut words = question.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let http = Http {
            method,
            path,
            query,
            content_type: words.next().unwrap_or("application/json"),
            user: &self.user.name.clone(),
            body: body.as_bytes(),
            ..Http::default()
        };
        let moment = self.moment();
        match self.api.handle_as(&self.user.clone(), &http, &moment) {
            Answer::Object { code, body, .. } => (code, shown(&body)),
            Answer::List(listing) => (200, shown(&listing.to_value())),
            Answer::Text { code, .. } => (code, json!("")),
            Answer::Watch(_) => (200, json!("")),
        }
    }
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn moment(number: u32) -> Moment {
    Moment {
        now: now(),
        uid: format!("00000000-0000-0000-0001-{number:012}"),
        suffix: "zzzzz".to_owned(),
    }
}

/// As `capture.py` shows it.
fn shown(body: &Value) -> Value {
    let kind = body["kind"].as_str().unwrap_or_default();
    if kind == "Status" {
        let mut details = body["details"].clone();
        details.as_object_mut().map(|details| details.remove("uid"));
        let text = |key: &str| body[key].as_str().unwrap_or_default();
        return json!([text("message"), text("reason"), details]);
    }
    if kind.ends_with("AccessReview") {
        return body["status"].clone();
    }
    json!("")
}

fn user(line: &str) -> User {
    let mut words = line.split_whitespace();
    let Some(name) = words.next() else {
        return User::administrator("admin");
    };
    words.fold(User::new(name), User::with_group)
}

#[test]
fn roles_decide_as_on_the_real_server() {
    let cases = include_str!("../rbac/decisions.cases");
    let mut asker = Asker::new();
    let (mut question, mut body) = ("", "");
    let (mut asked, mut refused, mut wrong) = (0, 0, Vec::new());
    for (number, line) in cases.lines().enumerate() {
        if let Some(who) = line.strip_prefix('@') {
            asker.user = user(who);
        } else if let Some(said) = line.strip_prefix("> ") {
            (question, body) = (said, "");
        } else if let Some(said) = line.strip_prefix("| ") {
            body = said;
        } else if let Some(answer) = line.strip_prefix("< ") {
            let (code, expected) = answer.split_once(' ').unwrap();
            let expected: (u16, Value) = (code.parse().unwrap(), serde_json::from_str(expected).unwrap());
            let mut seen = asker.ask(question, body);
            if question.starts_with("HEAD") {
                // Without a body there is nothing to compare but the code.
                seen.1 = json!("");
            }
            asked += 1;
            refused += u32::from(expected.0 == 403);
            let is_gap = GAPS.iter().any(|(known, _)| *known == question);
            let same = if is_gap {
                (seen.0 == 403) == (expected.0 == 403)
            } else {
                seen == expected
            };
            if !same {
                let name = &asker.user.name;
                wrong.push(format!(
                    "line {number}, {name}: {question}\n  real    {expected:?}\n  sandbox {seen:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked > 120 && refused == 59, "{asked} asked, {refused} refused");
}
