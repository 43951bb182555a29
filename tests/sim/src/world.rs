//! The world outside of every process: the API's state, the cloud, the time, the choices, and who sees all of it.
//!
//! Everything that changes the API or is worth telling passes here, one at a time. Nothing in here waits.

mod api;
pub mod hooks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millwright_provider_virtual::cloud::{Cloud, Event as CloudEvent, Happening};
use millwright_sandbox::api::Api;
use millwright_sandbox::object;
use millwright_sandbox::store::Place;
use tokio::sync::mpsc;

use crate::call_fault::{CallFault, InjectedFault};
use crate::choices::Choices;
use crate::clock::Time;
use crate::event::{Oracle, Truth, Violation, What};
use crate::fault::Enabled;
use crate::notifier::{Notifier, Subscription};
use crate::process::{Cut, Link, Process};
use crate::refusal::Refusal;
use crate::sockets::Sockets;
use crate::witness::Witness;
use crate::world::hooks::Hooks;

/// Seconds that a manager stands still: less than a lease's time, about it, and far beyond it.
const FREEZES: [u64; 6] = [20, 3, 9, 14, 40, 90];
/// Outages of the API server that follow each other within `BREATH` are no longer together.
const LONGEST_OUTAGE: Duration = Duration::from_secs(150);
/// As long as a manager may take to see that the API server is back.
const BREATH: Duration = Duration::from_secs(30);
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
    pub strike: Option<InjectedFault>,
    /// What could have become of each call of a manager to API and driver so far.
    pub calls: Vec<&'static [(&'static str, CallFault)]>,
    /// No fault any more.
    pub is_quiet: bool,
    /// The API server answers nobody until then.
    pub away_until: Duration,
    /// Since when it was not to be had for longer than `BREATH`.
    away_since: Duration,
    /// Until when outages last that are waited for before faults end.
    pub outlasts: Duration,
    /// The kind of write that the API server refuses for a while.
    pub refusal: Option<Refusal>,
    /// When the API came to which version.
    pub past: Vec<(Duration, u64)>,
    /// Who sees what happens.
    pub witness: Witness,
    /// Requests that reached the API from managers.
    pub requests: u64,
    /// Of these, those that changed something.
    pub writes: u64,
    /// Creations that a driver is at work on, by the Machine's uid.
    pub creations: BTreeMap<String, u32>,
    /// Paths of objects that the human is about to make again.
    pub returning: BTreeSet<String>,
    /// One for the changes of each kind that somebody listens to.
    bells: BTreeMap<Place, Arc<Notifier>>,
    happenings: mpsc::UnboundedReceiver<Happening>,
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
    /// Everybody's way to the cluster of the Nodes and tokens.
    pub target: Link,
    /// The directory of drivers, where managers look for them in one.
    pub sockets: Option<Sockets>,
    state: Mutex<State>,
    bell: Arc<Notifier>,
    storms: Arc<Notifier>,
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
    pub strike: Option<InjectedFault>,
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
            target: Link::default(),
            sockets: parts.enabled.has("F60").then(Sockets::new),
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
                away_since: Duration::ZERO,
                outlasts: Duration::ZERO,
                refusal: None,
                past: vec![(Duration::ZERO, version)],
                witness: Witness::new(parts.oracles, parts.is_told),
                requests: 0,
                writes: 0,
                creations: BTreeMap::new(),
                returning: BTreeSet::new(),
                bells: BTreeMap::new(),
                happenings,
                ids: 0,
            }),
        })
    }

    /// Enters. Nothing may wait, and the cloud may not be changed, while inside.
    pub fn enter(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings at every change of the API, of whatever kind.
    pub fn bell(&self) -> Subscription {
        self.bell.subscribe()
    }

    /// Rings at every change of a kind.
    pub fn bell_of(&self, place: Place) -> Subscription {
        self.enter().bells.entry(place).or_default().subscribe()
    }

    /// Rings when the API server goes away.
    pub fn storms(&self) -> Subscription {
        self.storms.subscribe()
    }

    /// Returns when a property is broken: what happens after that interests nobody.
    pub async fn broke(&self) {
        let mut doom = self.enter().witness.doom();
        while !self.is_broken() {
            doom.changed().await;
        }
    }

    /// Whether a property is broken.
    pub fn is_broken(&self) -> bool {
        self.enter().witness.violation.is_some()
    }

    /// One of `0..n`.
    pub fn choose(&self, point: &'static str, n: u32) -> u32 {
        self.enter().choices.choose(point, n)
    }

    /// One of these; the first is the default one.
    pub fn pick<T: Copy>(&self, point: &'static str, all: &[T]) -> T {
        let n = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let nth = self.choose(point, n) as usize;
        *all.get(nth)
            .unwrap_or_else(|| all.first().expect("there is something to pick from"))
    }

    /// The name of one object of a kind, by choice, if there is any.
    pub fn one(&self, point: &'static str, plural: &'static str) -> Option<String> {
        let names: Vec<String> = self.look(|truth| {
            truth
                .all(plural)
                .map(|object| object::name(&object).to_owned())
                .collect()
        });
        if names.is_empty() {
            return None;
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Some(self.pick(point, &names).to_owned())
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
    pub fn call_fault(&self, about: &str, kinds: &'static [(&'static str, CallFault)]) -> Option<CallFault> {
        let mut state = self.enter();
        let call_fault = state.call_fault(kinds);
        if let Some((name, _)) = call_fault {
            let about = about.to_owned();
            self.happened(&mut state, What::Fault { name, about });
        }
        call_fault.map(|(_, call_fault)| call_fault)
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

    /// The API server goes away: watches end, and nobody is answered until it is back. Outages that follow each other are bounded
    /// together, because laws allow for a view that is so old and no older.
    pub fn storm(&self, lasts: Duration) {
        let mut state = self.enter();
        let now = self.time.passed();
        if state.away_until + BREATH < now || state.away_until.is_zero() {
            state.away_since = now;
        }
        state.away_until = (now + lasts)
            .min(state.away_since + LONGEST_OUTAGE)
            .max(state.away_until);
        let about = format!("the API server is away for {} s", lasts.as_secs());
        self.happened(&mut state, What::Fault { name: "F16", about });
        drop(state);
        self.storms.notify();
    }

    /// A manager stands still from now on.
    pub fn freeze(&self, process: &Process) {
        let seconds = self.pick("freeze-seconds", &FREEZES);
        process.freeze(Duration::from_secs(seconds));
        let incarnation = process.incarnation;
        self.tell(What::Note(format!(
            "manager {incarnation} stands still for {seconds} s"
        )));
    }

    /// A manager is cut off from the API from now on.
    pub fn cut(&self, process: &Process) {
        let seconds = self.pick("cut-seconds", &CUTS);
        let how = self.pick("cut", &[Cut::Silent, Cut::Refused]);
        process.link.cut(Duration::from_secs(seconds), how);
        let incarnation = process.incarnation;
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
        self.shown(&mut self.enter(), Witness::judge);
    }

    /// Notes a property that is broken, if it is the first.
    pub fn broken(&self, property: &'static str, text: String) {
        self.enter().witness.broken(Violation { property, text });
    }

    /// Something goes round while no time passes, as this says: L1 is out of reach.
    pub fn spins(&self, how: &str) {
        self.enter().witness.spins(how);
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

    /// Tells what happened; what the cloud did meanwhile comes first.
    fn happened(&self, state: &mut State, what: What) {
        self.hear_cloud(state);
        self.shown(state, |witness, truth| witness.see(what, truth));
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
                state.witness.struck(name);
            }
            self.shown(state, |witness, truth| witness.see(What::Cloud { event, vm }, truth));
        }
    }

    /// Shows the witness what is true now.
    fn shown(&self, state: &mut State, see: impl FnOnce(&mut Witness, &Truth<'_>)) {
        let truth = Truth::new(&state.api, &self.cloud, &state.creations, self.time.passed());
        see(&mut state.witness, &truth);
    }
}

impl State {
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
    fn call_fault(&mut self, kinds: &'static [(&'static str, CallFault)]) -> Option<(&'static str, CallFault)> {
        let call = self.calls.len();
        self.calls.push(kinds);
        if let Some(strike) = self.strike {
            let fits = kinds
                .iter()
                .find(|(name, call_fault)| *name == strike.fault && *call_fault == strike.call_fault);
            return fits.filter(|_| usize::try_from(strike.call) == Ok(call)).copied();
        }
        kinds.iter().find(|(name, _)| self.strikes(name)).copied()
    }
}
