//! The value answers as a real kube-apiserver did: every case of `tests/value/*.cases`, in order, on one fresh value per file.
//!
//! `tests/value/capture.py` wrote the expected answers. What no two servers share (uids, versions, times, suffixes) is
//! hidden on both sides in the same way. Every case is asked twice: of objects that are warm, and of cold ones.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::reply::{Reply, Style, lines};
use millwright_sandbox::request::{Http, Request};
use millwright_sandbox::watch::Event;
use regex::Regex;
use serde_json::{Value, json};

/// Cases in which the value is known to answer otherwise: file, line of the question, why. Counted, so that none goes stale.
const GAPS: &[(&str, usize, &str)] = &[];

struct Asker {
    api: Api,
    asked: u32,
    last: BTreeMap<String, String>,
    kept: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether everything stored is made cold before each request.
    is_cold: bool,
}

impl Asker {
    fn new(is_cold: bool) -> Self {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut api = Api::new(now);
        for (number, definition) in millwright_core::api::crds::all().into_iter().enumerate() {
            let uid = format!("00000000-0000-0000-0001-{number:012}");
            let moment = Moment {
                now,
                uid,
                suffix: "zzzzz".to_owned(),
            };
            let definition = serde_json::to_value(definition).unwrap();
            api.install(&definition, &moment).unwrap();
        }
        Self {
            api,
            asked: 0,
            last: BTreeMap::new(),
            kept: BTreeMap::new(),
            is_cold,
        }
    }

    /// Puts what earlier answers said into a path or body.
    fn fill(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (key, after) = after.split_once("}}").unwrap();
            let value = match key.split_once(':') {
                Some((key, mark)) => self.kept[mark].get(key),
                None => self.last.get(key),
            };
            out += before;
            out += value.map_or("", String::as_str);
            rest = after;
        }
        out + rest
    }

    fn ask(&mut self, question: &str, body: Option<&str>) -> (u16, Value) {
        let mut words = question.split(' ');
        let (method, path) = (words.next().unwrap(), self.fill(words.next().unwrap()));
        let content_type = words
            .next()
            .unwrap_or(if body.is_some() { "application/json" } else { "" });
        let body = body.map(|body| self.fill(body)).unwrap_or_default();
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        self.asked += 1;
        if self.is_cold {
            self.api.cool(0);
        }
        let moment = Moment {
            now: "2026-11-21T12:00:00Z".parse().unwrap(),
            uid: format!("00000000-0000-0000-0002-{:012}", self.asked),
            suffix: format!("{:05}", self.asked),
        };
        let http = Http {
            method,
            path,
            query,
            content_type,
            accept: "application/json",
            agent: "curl/1",
            user: "admin",
            body: body.as_bytes(),
        };
        let answer = match Request::parse(&http) {
            Ok(request) => self.api.handle(&request, &moment),
            Err(failure) => failure.into(),
        };
        let (code, value) = match answer {
            Answer::Object { code, body, .. } => (code, Value::clone(&body)),
            Answer::List(listing) => {
                let whole = listing.to_value();
                let sent = Reply::of(Answer::List(listing), Style::Compact);
                let sent: Value = serde_json::from_slice(&sent.body).unwrap();
                assert_eq!(sent, whole, "{question}");
                (200, sent)
            }
            Answer::Text { code, body } => (code, json!(body)),
            Answer::Watch(started) => {
                let later = self.api.events(&started.watch, started.at);
                let events: Vec<Event> = started.first.into_iter().chain(later.events).collect();
                let whole: Value = events.iter().map(Event::to_value).collect();
                let sent = String::from_utf8(lines(events)).unwrap();
                let sent: Value = sent.lines().map(|line| line.parse::<Value>().unwrap()).collect();
                assert_eq!(sent, whole, "{question}");
                (200, sent)
            }
        };
        self.remember(&value);
        (code, value)
    }

    fn remember(&mut self, value: &Value) {
        let seen = if value.is_array() { &value[0] } else { value };
        for (key, pointer) in [("rv", "resourceVersion"), ("uid", "uid"), ("continue", "continue")] {
            if let Some(text) = seen["metadata"][pointer].as_str().filter(|text| !text.is_empty()) {
                self.last.insert(key.to_owned(), text.to_owned());
            }
        }
    }
}

const HIDDEN: [&str; 6] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "continue",
    "time",
];

/// The same hiding as in `capture.py`.
fn hidden(value: &Value, owners: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let generated = fields
                .get("generateName")
                .and_then(Value::as_str)
                .map(|stem| format!("{stem}*"));
            let shown = fields
                .iter()
                .filter(|(key, _)| owners || *key != "managedFields")
                .map(|(key, inner)| {
                    let secret = HIDDEN.contains(&key.as_str()) && inner.as_str().is_some_and(|text| !text.is_empty());
                    let inner = match (&generated, secret) {
                        (Some(name), _) if key == "name" => json!(name),
                        (_, true) => json!("*"),
                        _ => hidden(inner, owners),
                    };
                    (key.clone(), inner)
                });
            shown.collect()
        }
        Value::Array(items) => items.iter().map(|item| hidden(item, owners)).collect(),
        Value::String(text) => json!(hidden_text(text)),
        other => other.clone(),
    }
}

/// What no two servers share, and what is shown in its place.
static RULES: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
    [
        ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "*uid*"),
        ("20[2-9][0-9]-[0-9-]+T[0-9:.]+Z", "*time*"),
        (r"(in record \(|current: |version: 1 \()[0-9]+", "$1*"),
    ]
    .map(|(pattern, shown)| (Regex::new(pattern).unwrap(), shown))
});

fn hidden_text(text: &str) -> String {
    RULES.iter().fold(text.to_owned(), |text, (rule, shown)| {
        rule.replace_all(&text, *shown).into_owned()
    })
}

/// Asks all questions of a file; gives the differences by line.
fn differences(text: &str, owners: bool, is_cold: bool) -> Vec<(usize, String)> {
    let mut asker = Asker::new(is_cold);
    let mut out = Vec::new();
    let mut question: Option<(usize, &str)> = None;
    let mut body = None;
    for (number, line) in text.lines().enumerate() {
        match line.split_once(' ') {
            Some((">", rest)) => (question, body) = (Some((number + 1, rest)), None),
            Some(("|", rest)) => body = Some(rest),
            Some(("!", mark)) => {
                asker.kept.insert(mark.to_owned(), asker.last.clone());
            }
            Some(("<", rest)) => {
                let (at, asked) = question.take().unwrap();
                let (code, expected) = rest.split_once(' ').unwrap();
                let expected: Value = serde_json::from_str(expected).unwrap();
                let (got_code, got) = asker.ask(asked, body);
                let got = hidden(&got, owners);
                if code != got_code.to_string() || expected != got {
                    out.push((
                        at,
                        format!(
                            "{asked}\n  {}\n  server {code} {expected}\n  value  {got_code} {got}",
                            body.unwrap_or_default()
                        ),
                    ));
                }
            }
            _ => {}
        }
    }
    out
}

fn check(file: &str, text: &str) {
    for is_cold in [false, true] {
        check_form(file, text, is_cold);
    }
}

fn check_form(file: &str, text: &str, is_cold: bool) {
    let found = differences(text, file == "apply.cases", is_cold);
    let known: Vec<usize> = GAPS
        .iter()
        .filter(|(name, ..)| *name == file)
        .map(|(_, line, _)| *line)
        .collect();
    let new: Vec<String> = found
        .iter()
        .filter(|(at, _)| !known.contains(at))
        .map(|(at, what)| format!("{file}:{at} {what}"))
        .collect();
    assert!(
        new.is_empty(),
        "{} answers differ from the server's:\n{}",
        new.len(),
        new.join("\n")
    );
    let closed: Vec<&usize> = known
        .iter()
        .filter(|line| found.iter().all(|(at, _)| at != *line))
        .collect();
    assert!(
        closed.is_empty(),
        "{file}: these gaps are closed, take them off the list: {closed:?}"
    );
}

#[test]
fn create_update_patch_and_delete_are_answered_as_by_the_server() {
    check("basics.cases", include_str!("../value/basics.cases"));
}

#[test]
fn lists_pages_selectors_and_watches_are_answered_as_by_the_server() {
    check("lists.cases", include_str!("../value/lists.cases"));
}

#[test]
fn status_scale_eviction_and_grace_are_answered_as_by_the_server() {
    check("parts.cases", include_str!("../value/parts.cases"));
}

#[test]
fn definitions_bad_input_and_odd_selectors_are_answered_as_by_the_server() {
    check("more.cases", include_str!("../value/more.cases"));
}

#[test]
fn applies_and_strategic_patches_give_objects_and_owners_as_on_the_server() {
    check("apply.cases", include_str!("../value/apply.cases"));
}
