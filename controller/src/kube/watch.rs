//! Watches: what the API server streams becomes `Change`s, for as long as the process runs.
//!
//! A list, then a watch from the version of the list, opened again whenever it ends. kube's own `watcher` hides bookmarks and the ends of
//! watches, and these are all that tells a quiet cluster from a proxy that answers 200 and sends nothing. Four rules:
//!
//! - A sign of life is a complete list, an object, a bookmark, or the end of a watch in the time that we asked for, nothing else.
//! - A watch that ends before its time is a failure, and so is one that does not end in its time.
//! - After a failure there is a pause. Pauses double until a watch has worked for some time. The end of an outage ends them.
//! - 410 and 504, wherever they come, and the end of an object that could not be read, lead to a new list, after a pause.
//!
//! An object that cannot be read costs only itself. Decides nothing about what a change means.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{ListParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Api, Resource};
use millwright_core::change::Change;
use millwright_core::ids::Name;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::kube::client::Cluster;
use crate::kube::error::plain;
use crate::kube::outage::OutageEnds;
use crate::kube::readable::Readable;
use crate::telemetry::Metrics;

/// Seconds after which the server ends a watch and we open it again where it ended: that it does so in time is the sign of life of a quiet
/// watch, because an API server sends no bookmark where it has no news. Shorter than the time after which proxies cut idle connections.
const PERIOD: u32 = 30;

/// How long after its end a watch is waited for: whoever does not end it in time is gone.
const LATE: Duration = Duration::from_secs(5);

/// A watch that ends sooner than this before its time ended early.
const EARLY: Duration = Duration::from_secs(5);

/// Without any sign of life for this long a watch is blind: two periods.
const BLIND_AFTER: Duration = Duration::from_secs(2 * PERIOD as u64);

/// Failures for this long without a sign of life make a watch blind, too: longer than a restart of an API server. What it missed is found
/// by a new list, which is a sign of life at once, where a quiet watch would give one only at the end of its period.
const FAILING_AFTER: Duration = Duration::from_secs(30);

/// How often a kind is listed that has no place for a watch.
const LIST_EVERY: Duration = Duration::from_secs(10);

/// Objects a page of a list.
const PAGE: u32 = 500;

/// The first pause after a failure. An API server that has just been given our CRDs refuses lists of them for a moment.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two tries; chance makes it up to twice as long. After a watch that has worked for as long as this, pauses begin
/// with the shortest again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A watch of one kind, ready to run.
pub struct Watch<K> {
    api: Api<Readable<K>>,
    labels: Option<String>,
    fields: Option<String>,
    health: Arc<WatchHealth>,
    metrics: Metrics,
    env: Env,
    outages: OutageEnds,
    places: Option<Arc<Semaphore>>,
}

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{}", told(.0))]
    Api(kube::Error),
    #[error("the list names no resourceVersion")]
    NoVersion,
    #[error("the watch was ended after {} s of {PERIOD} s", .0.as_secs())]
    Early(Duration),
    #[error("the watch of {PERIOD} s was not ended after {} s", .0.as_secs())]
    Late(Duration),
    #[error("an object that cannot be read was deleted, so all are listed again")]
    Unknown,
}

impl Trouble {
    /// Whether only a new list tells what is there.
    fn needs_list(&self) -> bool {
        match self {
            Self::Api(kube::Error::Api(status)) => matches!(status.code, 410 | 504),
            Self::Unknown => true,
            Self::Api(_) | Self::NoVersion | Self::Early(_) | Self::Late(_) => false,
        }
    }

    /// What an operator can do about it, where that is plain.
    fn hint(&self) -> Option<&'static str> {
        let Self::Api(kube::Error::Api(status)) = self else {
            return match self {
                Self::Late(_) | Self::Early(_) => {
                    Some("does a proxy between here and the API server hold back or cut watches?")
                }
                Self::Api(_) | Self::NoVersion | Self::Unknown => None,
            };
        };
        match status.code {
            404 => Some("is the CRD installed? `millwright crds | kubectl apply --server-side -f -`"),
            401 => Some("the credentials are not accepted"),
            403 => Some("the account lacks the permission to list and watch this resource"),
            _ => None,
        }
    }
}

fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} (HTTP {})", status.message, status.code),
        other => plain(other),
    }
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
        Self {
            api,
            labels: None,
            fields: None,
            health: Arc::new(WatchHealth::new(&K::plural(&()))),
            metrics: cluster.metrics.clone(),
            env: env.clone(),
            outages: cluster.outages.clone(),
            places: None,
        }
    }

    /// The same watch, which shares places with others: each open watch holds a connection. Without a place the kind is listed again and again.
    pub fn within(mut self, places: &Arc<Semaphore>) -> Self {
        self.places = Some(Arc::clone(places));
        self
    }

    /// The same watch, of objects with these labels only.
    pub fn labelled(mut self, selector: &str) -> Self {
        self.labels = Some(selector.to_owned());
        self
    }

    /// The same watch, of objects with these fields only, which are few: they are listed in one page, so that the API server finds them
    /// by the index of its cache.
    pub fn of_fields(mut self, selector: &str) -> Self {
        self.fields = Some(selector.to_owned());
        self
    }

    /// How the watch is doing, for readiness.
    pub fn health(&self) -> Arc<WatchHealth> {
        self.health.clone()
    }

    /// Follows the kind until `stop`: what happens goes to `sink`.
    pub async fn run(mut self, stop: CancellationToken, mut sink: impl FnMut(Change<K>)) {
        stop.run_until_cancelled(self.follow(&mut sink)).await;
    }

    async fn follow(&mut self, sink: &mut impl FnMut(Change<K>)) {
        let (mut pauses, mut complaints) = (self.pauses(), Complaints::default());
        // Up to which version all is known. `None`: only a list tells.
        let mut known = None;
        loop {
            // Read before anything is asked for, so that the list that answers a doubt is newer than it.
            let doubts = self.health.doubts();
            let (began, is_watch) = (Instant::now(), known.is_some());
            let went = tokio::select! {
                biased;
                () = self.health.doubted.notified() => {
                    known = None;
                    continue;
                }
                went = async {
                    match &mut known {
                        Some(version) => match self.place().await {
                            Ok(_place) => self.watch(version, sink).await,
                            Err(_) => {
                                known = None;
                                Ok(())
                            }
                        },
                        None => {
                            known = Some(self.list(doubts, sink).await?);
                            // A reader that wanted only the list has stopped us by now, so no watch is opened for it.
                            tokio::task::yield_now().await;
                            Ok(())
                        }
                    }
                } => went,
            };
            let is_calm = is_watch && self.health.has_lived(began, LONGEST_PAUSE);
            if is_calm {
                pauses = self.pauses();
                complaints.close(self.health.resource());
            }
            let Err(trouble) = went else { continue };
            self.complain(&trouble, &mut complaints);
            if trouble.needs_list() || self.health.is_failing() {
                known = None;
            }
            // An outage that ended before this failure is none that the pause is for.
            self.outages.skip_past();
            tokio::select! {
                biased;
                () = tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)) => {}
                Some(()) = self.outages.next() => {}
            }
        }
    }

    /// Waits for a place, but not for ever.
    async fn place(&self) -> Result<Option<SemaphorePermit<'_>>, Elapsed> {
        let Some(places) = &self.places else {
            return Ok(None);
        };
        let place = tokio::time::timeout(LIST_EVERY, places.acquire()).await?;
        Ok(Some(place.expect("nobody closes the semaphore")))
    }

    /// Lists all there is, page by page, and gives the version of the list. After a failure the list begins anew with [`Change::Restarted`],
    /// so pages that had come before go to `sink` again.
    async fn list(&self, doubts: u64, sink: &mut impl FnMut(Change<K>)) -> Result<String, Trouble> {
        // No resourceVersion: an API server's cache may be older than what was read before.
        let mut params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: self.fields.is_none().then_some(PAGE),
            ..ListParams::default()
        };
        sink(Change::Restarted);
        loop {
            let page = self.api.list(&params).await.map_err(Trouble::Api)?;
            for object in page.items {
                sink(self.change(object, Change::Listed));
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                let version = version.ok_or(Trouble::NoVersion)?;
                self.health.completes_list(doubts);
                sink(Change::Synced);
                return Ok(version);
            }
        }
    }

    /// Follows what happens after that version until the server ends the watch in its time.
    async fn watch(&self, known: &mut String, sink: &mut impl FnMut(Change<K>)) -> Result<(), Trouble> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(PERIOD),
            ..WatchParams::default()
        };
        let (began, period) = (Instant::now(), Duration::from_secs(PERIOD.into()));
        let ends = began + period + LATE;
        let mut stream = pin!(self.api.watch(&params, known).await.map_err(Trouble::Api)?);
        loop {
            let next = tokio::time::timeout_at(ends, stream.next());
            let event = match next.await {
                Ok(Some(event)) => event.map_err(Trouble::Api)?,
                Ok(None) => break,
                Err(_) => return Err(Trouble::Late(began.elapsed())),
            };
            let change = self.absorb(event, known)?;
            self.health.heard();
            if let Some(change) = change {
                sink(change);
            }
        }
        match began.elapsed() {
            early if early + EARLY < period => Err(Trouble::Early(early)),
            // The server has ended it in its time, so it was there. One with no news sends no bookmark either.
            _ => {
                self.health.heard();
                Ok(())
            }
        }
    }

    /// Turns one event into a change, and notes up to where all is known.
    fn absorb(&self, event: WatchEvent<Readable<K>>, known: &mut String) -> Result<Option<Change<K>>, Trouble> {
        let mut reach = |version: Option<&String>| {
            if let Some(version) = version {
                known.clone_from(version);
            }
        };
        Ok(match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                reach(object.meta().resource_version.as_ref());
                Some(self.change(object, Change::Applied))
            }
            WatchEvent::Deleted(object) => {
                reach(object.meta().resource_version.as_ref());
                match object {
                    Readable::Yes(object) => Some(Change::Deleted(object)),
                    // `Change::Deleted` needs the object; a new list shows that it is gone.
                    Readable::No(_) => return Err(Trouble::Unknown),
                }
            }
            WatchEvent::Bookmark(bookmark) => {
                reach(Some(&bookmark.metadata.resource_version));
                None
            }
            WatchEvent::Error(status) => return Err(Trouble::Api(kube::Error::Api(status))),
        })
    }

    /// The change that an object is. What is known of it stays where its new state cannot be read.
    fn change(&self, object: Readable<K>, change: fn(K) -> Change<K>) -> Change<K> {
        match object {
            Readable::Yes(object) => change(object),
            Readable::No(bad) => {
                let (resource, name) = (self.health.resource(), bad.metadata.name.unwrap_or_default());
                tracing::warn!(resource, %name, error = %bad.error, "object cannot be read, keeping what is known of it");
                Change::Unreadable(Name::new(name))
            }
        }
    }

    fn complain(&self, trouble: &Trouble, complaints: &mut Complaints) {
        let reason = trouble.to_string();
        self.metrics.watch_failed(self.health.resource());
        if complaints.is_new(&reason) {
            let hint = trouble.hint();
            tracing::warn!(resource = self.health.resource(), %reason, hint, "watch failed, trying again");
        }
        self.health.failed(reason);
    }

    /// Doubling pauses without end, each up to twice as long by chance so that watches do not come back in step.
    fn pauses(&self) -> ExponentialBackoff {
        ExponentialBuilder::default()
            .with_min_delay(SHORTEST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_factor(2.0)
            .with_jitter()
            .with_jitter_seed(self.env.seed())
            .without_max_times()
            .build()
    }
}

/// Which errors were logged since the watch last worked, so that each is said once and not at every retry.
#[derive(Default)]
struct Complaints(BTreeSet<String>);

impl Complaints {
    fn is_new(&mut self, reason: &str) -> bool {
        self.0.insert(reason.to_owned())
    }

    fn close(&mut self, resource: &str) {
        if !self.0.is_empty() {
            tracing::info!(resource, "watch works again");
            self.0.clear();
        }
    }
}

/// How one watch is doing. A value that `run` feeds, readiness asks, and plans ask for how long they could see.
#[derive(Debug)]
pub struct WatchHealth {
    resource: String,
    state: Mutex<WatchState>,
    doubted: Notify,
    listed: Notify,
}

#[derive(Debug, Default)]
struct WatchState {
    doubts: u64,
    /// How many doubts there were before the newest complete list was asked for.
    synced: Option<u64>,
    life: Option<Life>,
    /// Since when what was brought has been complete.
    fresh_since: Option<Instant>,
    /// What went wrong last since the last sign of life, and since when something does.
    trouble: Option<(String, Instant)>,
}

/// Signs of life that followed one another without a silence of [`BLIND_AFTER`] between them.
#[derive(Clone, Copy, Debug)]
struct Life {
    since: Instant,
    last: Instant,
}

impl WatchState {
    fn is_synced(&self) -> bool {
        self.synced.is_some_and(|doubts| doubts >= self.doubts)
    }

    fn is_failing(&self, now: Instant) -> bool {
        let since = self.trouble.as_ref().map(|(_, since)| *since);
        since.is_some_and(|since| now.saturating_duration_since(since) >= FAILING_AFTER)
    }

    /// Whether decisions may rest on what was brought, as far as signs of life tell.
    fn is_alive(&self, now: Instant) -> bool {
        let is_recent = |life: Life| now.saturating_duration_since(life.last) < BLIND_AFTER;
        self.life.is_some_and(is_recent) && !self.is_failing(now)
    }

    fn lives(&mut self, now: Instant) {
        let is_alive = self.is_alive(now);
        self.trouble = None;
        match &mut self.life {
            Some(life) if is_alive => life.last = now,
            life => *life = Some(Life { since: now, last: now }),
        }
    }
}

impl WatchHealth {
    fn new(resource: &str) -> Self {
        Self {
            resource: resource.to_owned(),
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
    /// `None` while it is not: it was never listed or is doubted, or there was no sign of life for [`BLIND_AFTER`].
    pub fn fresh_since(&self) -> Option<Instant> {
        let (state, now) = (self.locked(), Instant::now());
        let life = state.life.filter(|_| state.is_alive(now))?;
        let since = state.fresh_since.filter(|_| state.is_synced())?;
        Some(since.max(life.since))
    }

    /// The reason why decisions should not rest on this watch, if there is one.
    pub fn check(&self) -> Result<(), String> {
        let (state, now) = (self.locked(), Instant::now());
        let age = state.life.map(|life| now.saturating_duration_since(life.last));
        let what = match (state.synced, age) {
            (Some(_), Some(_)) if state.is_alive(now) => return Ok(()),
            (Some(_), Some(age)) => format!("no sign of life for {} s", age.as_secs()),
            (Some(_), None) | (None, _) => "the first listing is not complete".to_owned(),
        };
        Err(match &state.trouble {
            Some((trouble, _)) => format!("{what}: {trouble}"),
            None => what,
        })
    }

    /// The server has sent an object or a bookmark.
    fn heard(&self) {
        self.locked().lives(Instant::now());
    }

    /// Whether there was a sign of life so long after that time or later.
    fn has_lived(&self, began: Instant, at_least: Duration) -> bool {
        let life = self.locked().life;
        life.is_some_and(|life| {
            life.last
                .checked_duration_since(began)
                .is_some_and(|lived| lived >= at_least)
        })
    }

    fn doubts(&self) -> u64 {
        self.locked().doubts
    }

    /// A list is complete that was begun after so many doubts.
    fn completes_list(&self, doubts: u64) {
        let now = Instant::now();
        let mut state = self.locked();
        state.synced = Some(doubts);
        state.lives(now);
        if state.is_synced() {
            state.fresh_since.get_or_insert(now);
        }
        drop(state);
        self.listed.notify_waiters();
    }

    fn failed(&self, trouble: String) {
        let mut state = self.locked();
        let since = state.trouble.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        state.trouble = Some((trouble, since));
    }

    /// Whether it has failed for so long that only a list tells what is there.
    fn is_failing(&self) -> bool {
        self.locked().is_failing(Instant::now())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, WatchState> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests;
