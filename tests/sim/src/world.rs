//! The world outside of every process: the API's state, the cloud, the time, the choices, and who judges.
//!
//! Everything that changes the API or is worth telling passes here, one at a time. Nothing in here waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millwright_provider_virtual::cloud::{Cloud, Event as CloudEvent, Happening};
use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::request::{Http, Request, Verb};
use millwright_sandbox::store::{Key, Object, Place};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::bell::{Bell, Ear};
use crate::bound::Bound;
use crate::choices::{Choices, mix};
use crate::clock::Time;
use crate::event::{Actor, ApiRequest, Event, Oracle, Truth, Violation, What};
use crate::fault::Enabled;
use crate::gate::{Cut, Gate};
use crate::hooks::Hooks;
use crate::spin::Instant;
use crate::strike::{Blow, Strike};
use crate::trace::{Trace, digest};

/// Seconds that a manager stands still: less than a lease's time, about it, and far beyond it.
const FREEZES: [u64; 6] = [20, 3, 9, 14, 40, 90];
/// Seconds that a manager is cut off.
const CUTS: [u64; 5] = [20, 4, 12, 60, 130];

/// What stands behind the world's lock.
pub struct State {
    /// The API.
    pub api: Api,
    /// All decisions.
    pub choices: Choices,
    /// What may go wrong.
    pub enabled: Enabled,
    /// The one fault of an exhaustive campaign.
    pub strike: Option<Strike>,
    /// What could have become of each call of a manager to API and driver so far.
    pub calls: Vec<&'static [(&'static str, Blow)]>,
    /// No fault any more.
    pub is_quiet: bool,
    /// The API server answers nobody until then.
    pub away_until: Duration,
    /// When the API came to which version.
    pub past: Vec<(Duration, u64)>,
    /// What happened.
    pub trace: Trace,
    /// Requests that reached the API from managers.
    pub requests: u64,
    /// Of these, those that changed something.
    pub writes: u64,
    /// Creations that a driver is at work on, by the Machine's uid.
    pub creations: BTreeMap<String, u32>,
    /// How often each fault struck.
    pub struck: BTreeMap<&'static str, u64>,
    /// The first property that was broken.
    pub violation: Option<Violation>,
    oracles: Vec<Box<dyn Oracle>>,
    happenings: mpsc::UnboundedReceiver<Happening>,
    instant: Instant,
    ids: u64,
}

/// The world of one run.
pub struct World {
    /// The cloud, which outlives every driver.
    pub cloud: Cloud,
    /// The time.
    pub time: Time,
    /// Where mistakes are put.
    pub hooks: Hooks,
    state: Mutex<State>,
    bell: Arc<Bell>,
    storms: Arc<Bell>,
    doom: Arc<Bell>,
}

/// What a world is made of.
pub struct Parts {
    /// The API as it is at the beginning.
    pub api: Api,
    /// Where decisions come from.
    pub choices: Choices,
    /// What may go wrong.
    pub enabled: Enabled,
    /// The one fault of an exhaustive campaign.
    pub strike: Option<Strike>,
    /// The cloud.
    pub cloud: Cloud,
    /// The time.
    pub time: Time,
    /// Where mistakes are put.
    pub hooks: Hooks,
    /// Who judges.
    pub oracles: Vec<Box<dyn Oracle>>,
    /// Whether the lines of the trace are kept.
    pub is_told: bool,
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(parts: Parts) -> Arc<Self> {
        let (_, happenings) = parts.cloud.follow();
        let version = parts.api.version();
        Arc::new(Self {
            bell: Arc::default(),
            storms: Arc::default(),
            doom: Arc::default(),
            cloud: parts.cloud,
            time: parts.time,
            hooks: parts.hooks,
            state: Mutex::new(State {
                api: parts.api,
                choices: parts.choices,
                enabled: parts.enabled,
                strike: parts.strike,
                calls: Vec::new(),
                is_quiet: false,
                away_until: Duration::ZERO,
                past: vec![(Duration::ZERO, version)],
                trace: Trace::new(parts.is_told),
                requests: 0,
                writes: 0,
                creations: BTreeMap::new(),
                struck: BTreeMap::new(),
                violation: None,
                oracles: parts.oracles,
                happenings,
                instant: Instant::default(),
                ids: 0,
            }),
        })
    }

    /// Enters. Nothing may wait, and the cloud may not be changed, while inside.
    pub fn enter(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings at every change of the API.
    pub fn bell(&self) -> Ear {
        self.bell.listen()
    }

    /// Rings when the API server goes away.
    pub fn storms(&self) -> Ear {
        self.storms.listen()
    }

    /// Returns when a property is broken: what happens after that interests nobody.
    pub async fn broke(&self) {
        let mut doom = self.doom.listen();
        while self.enter().violation.is_none() {
            doom.rung().await;
        }
    }

    /// One of `0..n`.
    pub fn choose(&self, point: &'static str, n: u32) -> u32 {
        self.enter().choices.choose(point, n)
    }

    /// One of these; the first is the tame one.
    pub fn pick<T: Copy>(&self, point: &'static str, all: &[T]) -> T {
        let n = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let nth = self.choose(point, n) as usize;
        *all.get(nth)
            .unwrap_or_else(|| all.first().expect("there is something to pick from"))
    }

    /// Sleeps for one of these numbers of milliseconds.
    pub async fn delay(&self, point: &'static str, milliseconds: &[u64]) {
        let pause = self.pick(point, milliseconds);
        if pause > 0 {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Whether a fault strikes here.
    pub fn strikes(&self, name: &'static str) -> bool {
        self.enter().strikes(name)
    }

    /// Counts a call of the manager and says what becomes of it.
    pub fn blow(&self, about: &str, kinds: &'static [(&'static str, Blow)]) -> Option<Blow> {
        let mut state = self.enter();
        let blow = state.blow(kinds);
        if let Some((name, _)) = blow {
            let about = about.to_owned();
            self.happened(&mut state, What::Fault { name, about });
        }
        blow.map(|(_, blow)| blow)
    }

    /// A driver begins to work on a creation.
    pub fn creation_begins(&self, uid: &str) {
        *self.enter().creations.entry(uid.to_owned()).or_default() += 1;
    }

    /// A driver has answered a creation.
    pub fn creation_ends(&self, uid: &str) {
        let creations = &mut self.enter().creations;
        if let Some(count) = creations.get_mut(uid) {
            *count -= 1;
        }
        creations.retain(|_, count| *count > 0);
    }

    /// Tells something that happened.
    pub fn tell(&self, what: What) {
        self.happened(&mut self.enter(), what);
    }

    /// Hands a request, which left its sender at `sent`, to the API.
    pub fn ask(&self, actor: Actor, request: &Request, sent: Duration) -> Answer {
        let mut state = self.enter();
        // What the cloud did before is judged by the objects as they were then.
        self.hear_cloud(&mut state);
        let moment = state.moment(self.time);
        let place = Place {
            // Both groups of events share one place.
            group: if request.target.resource == "events" {
                String::new()
            } else {
                request.target.group.clone()
            },
            plural: request.target.resource.clone(),
        };
        let before = state.api.version();
        let answer = state.api.handle(request, &moment);
        let is_changed = state.note_version(self.time);
        debug_assert_eq!(is_changed, state.api.version() != before, "every change is noted");
        let change = state.api.changes_of(&place, before).next().cloned();
        if let Actor::Manager(_) = actor {
            state.requests += 1;
            state.writes += u64::from(is_changed);
        }
        let key = change.as_ref().map(|change| change.key.clone());
        let value = |object: Option<Object>| object.map(|object| object.value());
        let (was, is) = change.map_or((None, None), |change| (value(change.before), value(change.after)));
        let bound = Bound::of(request);
        let event = ApiRequest {
            actor,
            verb: request.verb,
            place,
            sent,
            names_uid: bound.to_uid,
            names_version: bound.to_version,
            key: key.unwrap_or_else(|| Key::new(&request.target.namespace, &request.target.name)),
            subresource: request.target.subresource.clone(),
            before: was,
            after: is,
            code: match &answer {
                Answer::Object { code, .. } | Answer::Text { code, .. } => *code,
                Answer::List(_) | Answer::Watch(_) => 200,
            },
            body: digest(0, &request.body),
        };
        self.happened(&mut state, What::Api(event));
        drop(state);
        if is_changed {
            self.bell.ring();
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
            for plural in ["machinedeployments", "machinesets", "machines", "machineclasses"] {
                self.collected(&mut state, crate::event::ours(plural), before);
            }
            if touched.is_err() || touched.is_ok_and(|touched| touched == 0) {
                break;
            }
        }
        let is_changed = state.note_version(self.time);
        debug_assert_eq!(is_changed, state.api.version() != first, "every change is noted");
        drop(state);
        if is_changed {
            self.bell.ring();
        }
    }

    fn collected(&self, state: &mut State, place: Place, after: u64) {
        let changes: Vec<_> = state.api.changes_of(&place, after).cloned().collect();
        for change in changes {
            let event = ApiRequest {
                actor: Actor::Collector,
                verb: Verb::Delete,
                place: place.clone(),
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

    /// The API server goes away: watches end, and nobody is answered until it is back.
    pub fn storm(&self, lasts: Duration) {
        let mut state = self.enter();
        state.away_until = self.time.passed() + lasts;
        let about = format!("the API server is away for {} s", lasts.as_secs());
        self.happened(&mut state, What::Fault { name: "F16", about });
        drop(state);
        self.storms.ring();
    }

    /// A manager stands still from now on.
    pub fn freeze(&self, gate: &Gate) {
        let seconds = self.pick("freeze-seconds", &FREEZES);
        gate.freeze(Duration::from_secs(seconds));
        let incarnation = gate.incarnation;
        self.tell(What::Note(format!(
            "manager {incarnation} stands still for {seconds} s"
        )));
    }

    /// A manager is cut off from the API from now on.
    pub fn cut(&self, gate: &Gate) {
        let seconds = self.pick("cut-seconds", &CUTS);
        let how = self.pick("cut", &[Cut::Silent, Cut::Refused]);
        gate.cut(Duration::from_secs(seconds), how);
        let incarnation = gate.incarnation;
        self.tell(What::Note(format!(
            "manager {incarnation} is cut off from the API for {seconds} s ({how:?})"
        )));
    }

    /// Whether the API server is away.
    pub fn is_away(&self) -> bool {
        let state = self.enter();
        !state.is_quiet && self.time.passed() < state.away_until
    }

    /// Faults end.
    pub fn calm(&self) {
        let mut state = self.enter();
        state.is_quiet = true;
        self.happened(&mut state, What::Quiet);
    }

    /// Lets the oracles judge the end.
    pub fn judge(&self) {
        let mut state = self.enter();
        let State {
            oracles,
            api,
            creations,
            violation,
            ..
        } = &mut *state;
        let truth = Truth::new(api, &self.cloud, creations, self.time.passed());
        for oracle in oracles {
            if let Err(broken) = oracle.end(&truth) {
                violation.get_or_insert(broken);
            }
        }
    }

    /// Notes a property that is broken, if it is the first.
    pub fn broken(&self, property: &'static str, text: String) {
        self.enter().violation.get_or_insert(Violation { property, text });
        self.doom.ring();
    }

    /// Something goes round while no time passes, as this says: L1 is out of reach.
    pub fn spins(&self, how: &str) {
        self.enter().spins(how);
        self.doom.ring();
    }

    /// What is true now.
    pub fn look<T>(&self, look: impl FnOnce(&Truth<'_>) -> T) -> T {
        let state = self.enter();
        look(&Truth::new(
            &state.api,
            &self.cloud,
            &state.creations,
            self.time.passed(),
        ))
    }

    /// How often each oracle could judge.
    pub fn antecedents(&self) -> Vec<(&'static str, u64)> {
        self.enter()
            .oracles
            .iter()
            .flat_map(|oracle| oracle.antecedents())
            .collect()
    }

    /// Traces and judges; what the cloud did meanwhile comes first.
    fn happened(&self, state: &mut State, what: What) {
        self.hear_cloud(state);
        self.witness(state, what);
    }

    fn hear_cloud(&self, state: &mut State) {
        while let Ok(Happening { event, vm }) = state.happenings.try_recv() {
            // The two faults that nobody deals out: they are the cloud's way for a whole run, and strike with each VM.
            let way = match event {
                CloudEvent::Accepted => Some("F35"),
                CloudEvent::Deleting => Some("F40"),
                CloudEvent::Booted | CloudEvent::Joined | CloudEvent::Stopped | CloudEvent::Removed => None,
            };
            if let Some(name) = way.filter(|name| state.enabled.has(name)) {
                *state.struck.entry(name).or_default() += 1;
            }
            self.witness(state, What::Cloud { event, vm });
        }
    }

    fn witness(&self, state: &mut State, what: What) {
        let at = self.time.passed();
        if let What::Fault { name, .. } = &what {
            *state.struck.entry(name).or_default() += 1;
        }
        let event = Event { at, what };
        state.trace.add(&event);
        if state.instant.is_overfull(at) {
            state.spins("event follows event");
            self.doom.ring();
        }
        let truth = Truth::new(&state.api, &self.cloud, &state.creations, at);
        for oracle in &mut state.oracles {
            if let Err(broken) = oracle.see(&event, &truth) {
                state.violation.get_or_insert(broken);
                self.doom.ring();
            }
        }
    }
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

    fn spins(&mut self, how: &str) {
        let text = format!("{how} while no time passes; last came: {}", self.trace.recent());
        let property = "L1";
        self.violation.get_or_insert(Violation { property, text });
    }

    /// Whether a fault strikes here.
    pub fn strikes(&mut self, name: &'static str) -> bool {
        if self.is_quiet {
            return false;
        }
        self.enabled
            .rate(name)
            .is_some_and(|per_mille| self.choices.happens(name, per_mille))
    }

    /// What becomes of this call of the manager: by the plan of an exhaustive campaign, or by choice.
    fn blow(&mut self, kinds: &'static [(&'static str, Blow)]) -> Option<(&'static str, Blow)> {
        let call = self.calls.len();
        self.calls.push(kinds);
        if let Some(strike) = self.strike {
            let fits = kinds
                .iter()
                .find(|(name, blow)| *name == strike.fault && *blow == strike.blow);
            return fits.filter(|_| usize::try_from(strike.call) == Ok(call)).copied();
        }
        kinds.iter().find(|(name, _)| self.strikes(name)).copied()
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
