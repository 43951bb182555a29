//! Watches: what the API server streams becomes `Change`s, for as long as the process runs.
//!
//! kube's `watcher` lists, watches, resumes and lists again; this file adds what it leaves out: back-off, an object that
//! cannot be read costs only itself, a health that can fail, and since when nothing was missed. Decides nothing about
//! what a change means.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use millwright_core::change::Change;
use millwright_core::ids::Name;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::kube::client::{Cluster, Contact};
use crate::kube::error::plain;
use crate::kube::readable::Readable;
use crate::telemetry::Metrics;

/// Seconds after which the server ends a watch and we open it again where it ended. A peer that is gone without a word
/// is noticed after this time and five seconds; kube's default of 290 is too long to be blind.
const WATCH_SECONDS: u32 = 60;

/// Without any sign of life for this long a watch is blind: two rounds of `WATCH_SECONDS`.
pub(crate) const BLIND_AFTER: Duration = Duration::from_secs(120);

/// Errors in a row for this long make a watch unhealthy: longer than a restart of an API server.
const FAILING_AFTER: Duration = Duration::from_secs(30);

/// The first pause after a failure. An API server that has just been given our CRDs refuses lists of them for a moment;
/// kube's default of 800 ms and its double cost the first machines two seconds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two tries, twice as long by chance: whoever waits for a cluster that is back waits no longer than that.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A watch of one kind, ready to run.
pub struct Watch<K> {
    api: Api<Readable<K>>,
    config: watcher::Config,
    health: Arc<WatchHealth>,
    metrics: Metrics,
    env: Env,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + 'static,
{
    /// Of one namespace.
    pub fn namespaced(cluster: &Cluster, namespace: &str, env: &Env) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self::of(Api::namespaced(cluster.client.clone(), namespace), cluster, env)
    }

    /// Of the whole cluster.
    pub fn everywhere(cluster: &Cluster, env: &Env) -> Self {
        Self::of(Api::all(cluster.client.clone()), cluster, env)
    }

    fn of(api: Api<Readable<K>>, cluster: &Cluster, env: &Env) -> Self {
        let health = Arc::new(WatchHealth::new(&K::plural(&()), cluster.contact.clone()));
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        Self {
            api,
            config,
            health,
            metrics: cluster.metrics.clone(),
            env: env.clone(),
        }
    }

    /// The same watch, of objects with these labels only.
    pub fn labelled(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// The same watch, of objects with these fields only, which are few: they are listed in one page, so that the API server finds them
    /// by the index of its cache.
    pub fn of_fields(mut self, selector: &str) -> Self {
        self.config = self.config.fields(selector);
        self.config.page_size = None;
        self
    }

    /// How the watch is doing, for readiness.
    pub fn health(&self) -> Arc<WatchHealth> {
        self.health.clone()
    }

    /// Follows the kind until `stop`: what happens goes to `sink`.
    pub async fn run(self, stop: CancellationToken, mut sink: impl FnMut(Change<K>)) {
        let mut complaints = Complaints::default();
        let follow = async {
            loop {
                // Read before anything is asked for, so that the list that answers a doubt is newer than it.
                let doubts = self.health.doubts();
                tokio::select! {
                    biased;
                    () = self.health.doubted.notified() => {}
                    () = self.follow_until_restart(doubts, &mut sink, &mut complaints) => {}
                }
            }
        };
        stop.run_until_cancelled(follow).await;
    }

    /// Returns only where the one way to learn the truth is a new listing.
    async fn follow_until_restart(&self, doubts: u64, sink: &mut impl FnMut(Change<K>), complaints: &mut Complaints) {
        let mut backoff = pauses(self.env.seed());
        let mut stream = pin!(watcher(self.api.clone(), self.config.clone()));
        while let Some(next) = stream.next().await {
            let event = match next {
                Ok(event) => event,
                Err(error) => {
                    // Reopening a watch is no event, so that it worked for a while shows only here. A watch that worked
                    // and lost its place (410) is not to wait as long as one that never works.
                    if self.failed(&error, complaints) {
                        backoff = pauses(self.env.seed());
                    }
                    tokio::time::sleep(backoff.next().unwrap_or(LONGEST_PAUSE)).await;
                    continue;
                }
            };
            // `Init` is kube's intention to list, not an answer of the server: taken for one, it would reset the
            // back-off and hide the failure at every try. kube's own `default_backoff` does that.
            if matches!(event, Event::Init) {
                self.health.begins_list();
            } else {
                backoff = pauses(self.env.seed());
                self.heard(complaints);
            }
            let Some(change) = absorb(event, self.health.resource()) else {
                return;
            };
            let is_listed = matches!(change, Change::Synced);
            if is_listed {
                self.health.completes_list(doubts);
            }
            sink(change);
            if is_listed {
                // Whoever wanted the list alone has stopped this by now: no watch is opened for it.
                tokio::task::yield_now().await;
            }
        }
    }

    fn heard(&self, complaints: &mut Complaints) {
        self.health.heard();
        if complaints.is_open() {
            tracing::info!(resource = self.health.resource(), "watch works again");
            complaints.close();
        }
    }

    /// Returns whether this is the first failure since the server was last heard of.
    fn failed(&self, error: &watcher::Error, complaints: &mut Complaints) -> bool {
        let is_first = self
            .health
            .failed(matches!(error, watcher::Error::InitialListFailed(_)));
        self.metrics.watch_failed(self.health.resource());
        let reason = reason_of(error);
        if complaints.is_new(&reason) {
            let hint = hint_of(error);
            tracing::warn!(resource = self.health.resource(), %reason, hint, "watch failed, trying again");
        }
        is_first
    }
}

/// Doubling pauses without end, each up to twice as long by chance so that watches do not come back in step.
fn pauses(seed: u64) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(SHORTEST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_factor(2.0)
        .with_jitter()
        .with_jitter_seed(seed)
        .without_max_times()
        .build()
}

/// Turns one event into a change. `None`: an object left that we never could read, so what else left with it is found
/// by listing again.
fn absorb<K>(event: Event<Readable<K>>, resource: &str) -> Option<Change<K>> {
    let change = match event {
        Event::Init => Change::Restarted,
        Event::InitDone => Change::Synced,
        Event::InitApply(Readable::Yes(object)) => Change::Listed(object),
        Event::Apply(Readable::Yes(object)) => Change::Applied(object),
        Event::Delete(Readable::Yes(object)) => Change::Deleted(object),
        Event::InitApply(Readable::No(bad)) | Event::Apply(Readable::No(bad)) => {
            let name = bad.metadata.name.unwrap_or_default();
            tracing::warn!(resource, %name, error = %bad.error, "object cannot be read, keeping what is known of it");
            Change::Unreadable(Name::new(name))
        }
        Event::Delete(Readable::No(_)) => return None,
    };
    Some(change)
}

fn reason_of(error: &watcher::Error) -> String {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => plain(error),
        WatchError(status) => format!("{} (HTTP {})", status.message, status.code),
        NoResourceVersion => error.to_string(),
    }
}

/// What an operator can do about it, where that is plain.
fn hint_of(error: &watcher::Error) -> Option<&'static str> {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(kube::Error::Api(status))
    | WatchStartFailed(kube::Error::Api(status))
    | WatchFailed(kube::Error::Api(status))) = error
    else {
        return None;
    };
    match status.code {
        404 => Some("is the CRD installed? `millwright crds | kubectl apply --server-side -f -`"),
        401 => Some("the credentials are not accepted"),
        403 => Some("the account lacks the permission to list and watch this resource"),
        _ => None,
    }
}

/// Which errors were logged since the watch last worked, so that each is said once and not at every retry.
#[derive(Default)]
struct Complaints(BTreeSet<String>);

impl Complaints {
    fn is_new(&mut self, reason: &str) -> bool {
        self.0.insert(reason.to_owned())
    }

    fn is_open(&self) -> bool {
        !self.0.is_empty()
    }

    fn close(&mut self) {
        self.0.clear();
    }
}

/// How one watch is doing. A value that `run` feeds, readiness asks, and plans ask for how long they could see.
#[derive(Debug)]
pub struct WatchHealth {
    resource: String,
    contact: Arc<Contact>,
    state: Mutex<WatchState>,
    doubted: Notify,
    listed: Notify,
}

#[derive(Debug, Default)]
struct WatchState {
    doubts: u64,
    /// How many doubts there were before the newest complete list was asked for.
    synced: Option<u64>,
    heard: Option<Instant>,
    failing_since: Option<Instant>,
    /// Since when listings fail, whatever the server answers otherwise.
    unlisted_since: Option<Instant>,
    /// Since when what was brought has been complete, but for what `behind` says.
    fresh_since: Option<Instant>,
    behind: Option<Behind>,
}

/// The server may know more than the watch has brought: it failed, or is listing.
#[derive(Clone, Copy, Debug)]
struct Behind {
    since: Instant,
    /// Only a complete list ends it. Otherwise any answer does: a watch goes on where it stopped.
    needs_list: bool,
}

impl WatchState {
    fn is_synced(&self) -> bool {
        self.synced.is_some_and(|doubts| doubts >= self.doubts)
    }

    fn falls_behind(&mut self, now: Instant, needs_list: bool) {
        let behind = self.behind.get_or_insert(Behind { since: now, needs_list });
        behind.needs_list |= needs_list;
    }

    /// What the server knows has been brought, at `now`. Who was behind for longer than a restart of an API server takes
    /// could not see meanwhile, and begins anew; a short break is none, or a proxy that cuts connections now and then
    /// would put off every timeout for ever.
    fn catches_up(&mut self, now: Instant) {
        if let Some(behind) = self.behind.take()
            && now.saturating_duration_since(behind.since) >= FAILING_AFTER
        {
            self.fresh_since = None;
        }
        if self.is_synced() {
            self.fresh_since.get_or_insert(now);
        }
    }
}

impl WatchHealth {
    fn new(resource: &str, contact: Arc<Contact>) -> Self {
        Self {
            resource: resource.to_owned(),
            contact,
            state: Mutex::default(),
            doubted: Notify::new(),
            listed: Notify::new(),
        }
    }

    /// Plural name of the kind.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Whether a listing is complete that was begun after the last doubt.
    pub fn is_synced(&self) -> bool {
        self.locked().is_synced()
    }

    /// Waits until a listing is complete that was begun after the last doubt.
    pub async fn synced(&self) {
        loop {
            let mut listed = pin!(self.listed.notified());
            // Listens before it looks: a list that ends in between is not missed.
            listed.as_mut().enable();
            if self.is_synced() {
                return;
            }
            listed.await;
        }
    }

    /// What the watch brought so far may be old: it lists again, at once.
    pub fn doubt(&self) {
        let mut state = self.locked();
        state.doubts += 1;
        state.fresh_since = None;
        drop(state);
        self.doubted.notify_one();
    }

    /// Since when the view has been complete and current without a gap: what was not seen since then did not happen.
    /// `None` while it is not: it was never listed or is doubted, it fails or lists for [`FAILING_AFTER`], or nothing was
    /// heard for [`BLIND_AFTER`].
    pub fn fresh_since(&self) -> Option<Instant> {
        self.fresh_since_at(Instant::now())
    }

    fn fresh_since_at(&self, now: Instant) -> Option<Instant> {
        let spell = self.contact.spell(&self.resource)?;
        let mut state = self.locked();
        // That a watch was opened again is no event: it shows only here.
        if state
            .behind
            .is_some_and(|behind| !behind.needs_list && spell.last > behind.since)
        {
            state.catches_up(spell.last);
        }
        let is_lost = state
            .behind
            .is_some_and(|behind| now.saturating_duration_since(behind.since) >= FAILING_AFTER);
        let is_silent = now.saturating_duration_since(spell.last) >= BLIND_AFTER;
        if is_lost || is_silent || !state.is_synced() {
            return None;
        }
        state.fresh_since.map(|since| since.max(spell.since))
    }

    /// The reason why decisions should not rest on this watch, if there is one.
    pub fn check(&self) -> Result<(), String> {
        self.check_at(Instant::now())
    }

    fn check_at(&self, now: Instant) -> Result<(), String> {
        let state = self.locked();
        let heard = state.heard.max(self.contact.last(&self.resource));
        let failing = state
            .failing_since
            .filter(|since| heard.is_none_or(|heard| heard < *since));
        if let Some(since) = state.unlisted_since.or(failing)
            && now.saturating_duration_since(since) >= FAILING_AFTER
        {
            return Err(format!(
                "failing for {} s",
                now.saturating_duration_since(since).as_secs()
            ));
        }
        if state.synced.is_none() {
            return Err("the first listing is not complete".to_owned());
        }
        match heard.map(|heard| now.saturating_duration_since(heard)) {
            Some(age) if age < BLIND_AFTER => Ok(()),
            Some(age) => Err(format!("nothing heard for {} s", age.as_secs())),
            None => Err("nothing heard yet".to_owned()),
        }
    }

    /// The server is about to be asked for a list: what was brought before may be old until it is complete.
    fn begins_list(&self) {
        self.locked().falls_behind(Instant::now(), true);
    }

    /// The server has sent something.
    fn heard(&self) {
        let now = Instant::now();
        self.contact.answered(&self.resource);
        let mut state = self.locked();
        state.heard = Some(now);
        state.failing_since = None;
        state.unlisted_since = None;
        if state.behind.is_some_and(|behind| !behind.needs_list) {
            state.catches_up(now);
        }
    }

    fn doubts(&self) -> u64 {
        self.locked().doubts
    }

    /// A list is complete that was begun after so many doubts.
    fn completes_list(&self, doubts: u64) {
        let mut state = self.locked();
        state.synced = Some(doubts);
        state.catches_up(Instant::now());
        drop(state);
        self.listed.notify_waiters();
    }

    fn failed(&self, is_list: bool) -> bool {
        let now = Instant::now();
        // The answer to a listing that failed is no sign of life: it may be one that cannot be read.
        let heard = self.contact.last(&self.resource).filter(|_| !is_list);
        let mut state = self.locked();
        if is_list {
            state.unlisted_since.get_or_insert(now);
        }
        // The server was heard of after the first failure: that failure is over, this one is new.
        let is_first = state
            .failing_since
            .is_none_or(|since| heard.is_some_and(|heard| heard > since));
        if is_first {
            state.failing_since = Some(now);
        }
        if state
            .behind
            .is_some_and(|behind| !behind.needs_list && heard.is_some_and(|heard| heard > behind.since))
        {
            state.catches_up(heard.unwrap_or(now));
        }
        state.falls_behind(now, is_list);
        is_first
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, WatchState> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests;
