//! The sandbox as one side: a value of its own for each sequence.

use jiff::Timestamp;
use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::request::{Http, Request};
use millwright_sandbox::watch::Watch;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::memory::{Memory, Reply, Said, warned};
use super::script::Step;

/// Who asks, on both sides.
pub const AGENT: &str = "contract/1";

/// A sandbox with our definitions, as every sequence finds it.
#[derive(Debug, Clone)]
pub struct Base(Api);

/// One sequence's sandbox.
#[derive(Debug)]
pub struct Sandbox {
    api: Api,
    asked: u32,
    /// What it has said.
    pub memory: Memory,
}

fn now() -> Timestamp {
    Timestamp::from_second(1_795_262_400).expect("a moment of our years is a timestamp")
}

fn moment(room: u32, number: u32) -> Moment {
    Moment {
        now: now(),
        uid: format!("00000000-0000-0000-{room:04}-{number:012}"),
        suffix: format!("{number:05}"),
    }
}

impl Default for Base {
    fn default() -> Self {
        Self::new()
    }
}

impl Base {
    /// The sandbox with the definitions that we ship.
    ///
    /// # Panics
    /// The sandbox refuses one.
    #[must_use]
    pub fn new() -> Self {
        let mut api = Api::new(now());
        for (number, definition) in (0..).zip(millwright_core::api::crds::all()) {
            let definition = serde_json::to_value(definition).expect("our definitions are JSON");
            api.install(&definition, &moment(1, number))
                .expect("the sandbox admits our definitions");
        }
        Self(api)
    }

    /// The value itself, for a server around it.
    #[must_use]
    pub fn api(&self) -> Api {
        self.0.clone()
    }

    /// A sandbox for a sequence, with its namespace.
    ///
    /// # Panics
    /// The sandbox refuses the namespace.
    #[must_use]
    pub fn sandbox(&self, namespace: &str) -> Sandbox {
        let mut api = self.0.clone();
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let made = api
            .install(&body, &moment(2, 0))
            .expect("the sandbox admits a namespace");
        let start = made["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        Sandbox {
            memory: Memory::new(namespace, start),
            api,
            asked: 0,
        }
    }
}

impl Sandbox {
    /// Asks one request.
    pub fn ask(&mut self, step: &Step) -> Reply {
        let step = self.memory.filled(step);
        let reply = self.ask_filled(&step);
        self.memory.remember(&reply);
        reply
    }

    fn ask_filled(&mut self, step: &Step) -> Reply {
        self.asked += 1;
        match self.answer(step) {
            Answer::Object { code, body, warnings } => Reply {
                code,
                said: Said::Object(warned(code, Value::clone(&body), &warnings)),
            },
            Answer::List(listing) => Reply {
                code: 200,
                said: Said::Object(listing.to_value()),
            },
            Answer::Text { code, body } => Reply {
                code,
                said: Said::Text(body),
            },
            Answer::Watch(started) => {
                let later = self.api.events(&started.watch, started.at);
                let events = started
                    .first
                    .iter()
                    .chain(&later.events)
                    .map(|event| event.to_value())
                    .collect();
                Reply {
                    code: 200,
                    said: Said::Events(events),
                }
            }
        }
    }

    fn answer(&mut self, step: &Step) -> Answer {
        let (path, query) = step.path.split_once('?').unwrap_or((&step.path, ""));
        let http = Http {
            method: &step.method,
            path,
            query,
            content_type: &step.media,
            accept: step.accept(),
            agent: AGENT,
            user: "admin",
            body: step.body.as_deref().unwrap_or_default().as_bytes(),
        };
        match Request::parse(&http) {
            Ok(request) => self.api.handle(&request, &moment(2, self.asked)),
            Err(failure) => failure.into(),
        }
    }

    /// All that happened to a kind in the sequence.
    #[must_use]
    pub fn events(&mut self, kind: &Kind) -> Vec<Value> {
        let path = format!("{}?watch=true&resourceVersion={}", kind.everywhere(), self.memory.start);
        let step = Step {
            method: "GET".to_owned(),
            path,
            ..Step::default()
        };
        match self.answer(&step) {
            Answer::Watch(started) => self.told(&started.watch, started.at),
            Answer::Object { body, .. } => vec![Value::clone(&body)],
            Answer::List(listing) => vec![listing.to_value()],
            Answer::Text { body, .. } => vec![json!(body)],
        }
    }

    fn told(&self, watch: &Watch, after: u64) -> Vec<Value> {
        self.api
            .events(watch, after)
            .events
            .iter()
            .map(|event| event.to_value())
            .collect()
    }

    /// Forgets all history up to now.
    pub fn compact(&mut self) {
        let version = self.api.version();
        self.api.compact(version);
    }
}
