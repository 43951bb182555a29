//! What reaches the API: requests, orders of those who need no client, and the garbage collector's work. Each change is told
//! as what happened, and rung for.
//!
//! Decides nothing about what the API answers; that is the sandbox's affair.

use std::time::Duration;

use millwright_sandbox::api::{Answer, Moment};
use millwright_sandbox::request::{Http, Request, Verb};
use millwright_sandbox::store::{Change, Key, Object, Place};
use serde_json::Value;

use super::{State, World};
use crate::bound::Bound;
use crate::choices::mix;
use crate::clock::Time;
use crate::event::{Actor, ApiRequest, What};
use crate::trace::digest;

impl World {
    /// Hands a request, which left its sender at `sent`, to the API.
    pub fn ask(&self, actor: Actor, request: &Request, sent: Duration) -> Answer {
        let mut state = self.enter();
        // What the cloud did before is judged by the objects as they were then.
        self.hear_cloud(&mut state);
        let (before, moment) = (state.api.version(), state.moment(self.time));
        let is_manager = matches!(actor, Actor::Manager(_));
        let refused = state.refusal.as_ref().filter(|_| is_manager);
        let refused = refused.and_then(|refusal| refusal.answers(request, self.time.passed()));
        let answer = refused.unwrap_or_else(|| state.api.handle(request, &moment));
        let is_changed = state.note_version(self.time);
        debug_assert_eq!(is_changed, state.api.version() != before, "every change is noted");
        if let Actor::Manager(_) = actor {
            state.requests += 1;
            state.writes += u64::from(is_changed);
        }
        let place = place_of(request);
        let changes: Vec<(Place, Change)> = changes_since(&state, before);
        let (own, others): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(of, _)| *of == place);
        let body = match &self.sockets {
            Some(sockets) => digest(0, &sockets.unnamed(&request.body)),
            None => digest(0, &request.body),
        };
        if own.is_empty() {
            let event = told(actor, request, (sent, body), place, None, &answer);
            self.happened(&mut state, What::Api(event));
        }
        for (place, change) in own {
            let event = told(actor, request, (sent, body), place, Some(change), &answer);
            self.happened(&mut state, What::Api(event));
        }
        for (place, change) in others {
            self.followed(&mut state, Actor::Server, place, change);
        }
        if is_changed {
            self.ring(&state, before);
        }
        answer
    }

    /// A request of somebody who needs no client.
    pub fn order(&self, actor: Actor, method: &str, path: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let content_type = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let http = Http {
            method,
            path,
            content_type,
            accept: "application/json",
            user: "sim",
            agent: "sim",
            body: &bytes,
            ..Http::default()
        };
        match Request::parse(&http) {
            Ok(request) => self.ask(actor, &request, self.time.passed()),
            Err(failure) => failure.into(),
        }
    }

    /// Plays the garbage collector until nothing is left to do.
    pub fn collect(&self) {
        let mut state = self.enter();
        let first = state.api.version();
        for _ in 0..100 {
            let (before, moment) = (state.api.version(), state.moment(self.time));
            let touched = state.api.collect(&moment);
            for (place, change) in changes_since(&state, before) {
                self.followed(&mut state, Actor::Collector, place, change);
            }
            if touched.is_err() || touched.is_ok_and(|touched| touched == 0) {
                break;
            }
        }
        let is_changed = state.note_version(self.time);
        debug_assert_eq!(is_changed, state.api.version() != first, "every change is noted");
        if is_changed {
            self.ring(&state, first);
        }
    }

    /// Rings for whom it concerns what has changed after a version. Who is woken comes in when this has been left.
    fn ring(&self, state: &State, after: u64) {
        self.bell.notify();
        for (place, bell) in &state.bells {
            if state.api.changes_of(place, after).next().is_some() {
                bell.notify();
            }
        }
    }

    /// Tells a change that no request named.
    fn followed(&self, state: &mut State, actor: Actor, place: Place, change: Change) {
        let verb = match &change.after {
            Some(_) if actor == Actor::Server => Verb::Patch,
            Some(_) | None => Verb::Delete,
        };
        let event = ApiRequest {
            actor,
            verb,
            place,
            key: change.key,
            subresource: String::new(),
            before: change.before.map(|object| object.value()),
            after: change.after.map(|object| object.value()),
            code: 200,
            body: 0,
            sent: self.time.passed(),
            names_uid: true,
            names_version: false,
        };
        self.happened(state, What::Api(event));
    }
}

/// Every change after a version, of whatever kind.
fn changes_since(state: &State, version: u64) -> Vec<(Place, Change)> {
    if state.api.version() == version {
        return Vec::new();
    }
    let changes = state.api.changes(version).into_iter();
    changes.map(|(place, change)| (place.clone(), change.clone())).collect()
}

impl State {
    /// Remembers when the API came to the version that it has now. Whether it is a new one.
    fn note_version(&mut self, time: Time) -> bool {
        let version = self.api.version();
        let is_new = self.past.last().is_none_or(|(_, last)| *last < version);
        if is_new {
            self.past.push((time.passed(), version));
        }
        is_new
    }

    fn moment(&mut self, time: Time) -> Moment {
        self.ids += 1;
        let chance = mix(self.ids);
        Moment {
            now: time.wall(),
            uid: format!("{:08x}-0000-4000-8000-{:012x}", chance >> 32, self.ids),
            suffix: format!("{:05x}", chance & 0xf_ffff),
        }
    }
}

/// Where the objects lie that a request is about. Both groups of events share one place.
fn place_of(request: &Request) -> Place {
    let plural = request.target.resource.clone();
    let group = match plural.as_str() {
        "events" => String::new(),
        _ => request.target.group.clone(),
    };
    Place { group, plural }
}

/// A request and what it changed, as what happened.
fn told(
    actor: Actor,
    request: &Request,
    (sent, body): (Duration, u64),
    place: Place,
    change: Option<Change>,
    answer: &Answer,
) -> ApiRequest {
    let target = &request.target;
    let key = change.as_ref().map(|change| change.key.clone());
    let value = |object: Option<Object>| object.map(|object| object.value());
    let (before, after) = change.map_or((None, None), |change| (value(change.before), value(change.after)));
    let bound = Bound::of(request);
    ApiRequest {
        actor,
        verb: request.verb,
        place,
        sent,
        names_uid: bound.to_uid,
        names_version: bound.to_version,
        key: key.unwrap_or_else(|| Key::new(&target.namespace, &target.name)),
        subresource: target.subresource.clone(),
        before,
        after,
        code: match answer {
            Answer::Object { code, .. } | Answer::Text { code, .. } => *code,
            Answer::List(_) | Answer::Watch(_) => 200,
        },
        body,
    }
}
