//! Carries out `millwright_core::lease` on the control cluster: reads the Lease, writes it, measures the time, and
//! publishes whether this process leads.
//!
//! Decides only how long to wait for the API server. Every write carries the resourceVersion that was read, so of two
//! candidates that see the same Lease one gets 409. A Lease that somebody deletes or empties under its holder is taken
//! again by that holder under a new epoch; what that means for the work under way is `run.rs`'s.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client};
use millwright_core::api::keys;
use millwright_core::lease::{Claim, LeaseMove, LeaseRecord, Sight, Terms, epoch_floor, step};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::health::Heartbeat;
use crate::kube::bare::Bare;
use crate::kube::error::{ReadError, WriteError};
use crate::kube::leadership::Leadership;
use crate::kube::write::bare;

/// A candidate that did not come round for this long hangs: far beyond what its own limits allow.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// So many looks at a Lease that changes all the time follow one another without a pause.
const MOST_LOOKS_AT_ONCE: u32 = 3;

/// One candidate of an election.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// This process.
    pub identity: String,
    /// The times; checked.
    pub terms: Terms,
    /// The manager's settings, which the Lease of a leader tells: `millwright why` answers by them.
    pub told: String,
    /// The wall clock is for what people read in the Lease. No decision rests on it.
    pub env: Env,
}

/// One candidate and what it knows.
pub struct Candidate {
    api: Api<Bare<Lease>>,
    settings: LeaseSettings,
    sender: watch::Sender<Leadership>,
    heartbeat: Arc<Heartbeat>,
    /// The Lease as it was last read or written, with the time when it was first seen like this.
    seen: Option<(Lease, Instant)>,
    /// The last Lease that was seen with a holder, with the time when it was first seen like this.
    claimed: Option<(LeaseRecord, Instant)>,
    /// Whether `seen` may be older than what is stored: the next turn reads.
    is_doubtful: bool,
    /// How many turns in a row ended with a look at once instead of a pause.
    looks_at_once: u32,
    highest_epoch: Option<u32>,
    /// The holder that was last told of in the log.
    told_of: Option<String>,
    /// The error that was last logged; said once, not at every turn.
    complaint: Option<String>,
}

/// A turn that did not work out.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Read(ReadError),
    #[error(transparent)]
    Write(WriteError),
    #[error("no answer about the lease within {} ms", .0.as_millis())]
    TimedOut(Duration),
}

impl Candidate {
    /// A candidate over the client of the control cluster. The sender starts at `Leadership::Unknown`.
    pub fn new(client: Client, settings: LeaseSettings, sender: watch::Sender<Leadership>) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        let heartbeat = Arc::new(Heartbeat::new(HANGS_AFTER));
        heartbeat.beat();
        Self {
            api,
            settings,
            sender,
            heartbeat,
            seen: None,
            claimed: None,
            is_doubtful: true,
            looks_at_once: 0,
            highest_epoch: None,
            told_of: None,
            complaint: None,
        }
    }

    /// Who stands.
    pub fn identity(&self) -> &str {
        &self.settings.identity
    }

    /// The sign of life of the election, for liveness.
    pub fn heartbeat(&self) -> Arc<Heartbeat> {
        self.heartbeat.clone()
    }

    /// Another program leads, and this process waits for its end before it stands: it is alive, and ready to take over.
    pub fn stands_by(&mut self) {
        self.heartbeat.beat();
        self.step_down("another program leads");
    }

    /// Stands for election until `stop`, then gives the Lease back. Cancel `stop` only when all work has ended: from
    /// then on another may lead.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let pause = self.turn().await;
            self.heartbeat.beat();
            let pause = pause.min(self.time_left().unwrap_or(pause));
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            self.step_down_when_late();
        }
        self.release().await;
    }

    /// Looks, decides, acts once. Returns when to come again.
    async fn turn(&mut self) -> Duration {
        let limit = self.request_limit();
        let outcome = match tokio::time::timeout(limit, self.attempt()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(TurnError::TimedOut(limit)),
        };
        self.step_down_when_late();
        match outcome {
            Ok(pause) => {
                self.complaint = None;
                self.looks_at_once = 0;
                pause
            }
            Err(error) => {
                // Whatever was sent may have been carried out, or somebody was faster.
                self.is_doubtful = true;
                self.complain(&error);
                self.pause_after(&error)
            }
        }
    }

    /// Who finds the Lease changed or gone looks at once: a leader may not lead any more, another has not seen whose it is. Not for ever:
    /// somebody may write it without end.
    fn pause_after(&mut self, error: &TurnError) -> Duration {
        if is_changed(error) && self.looks_at_once < MOST_LOOKS_AT_ONCE {
            self.looks_at_once += 1;
            return Duration::ZERO;
        }
        self.looks_at_once = 0;
        self.settings.terms.retry_period
    }

    fn complain(&mut self, error: &TurnError) {
        if matches!(error, TurnError::Write(WriteError::Gone)) {
            tracing::warn!(lease = self.settings.name, "the lease was deleted: it is made anew");
            return;
        }
        let text = error.to_string();
        if is_changed(error) || self.complaint.as_ref() == Some(&text) {
            return;
        }
        tracing::warn!(
            lease = self.settings.name,
            error = text,
            "leader election waits, trying again"
        );
        self.complaint = Some(text);
    }

    async fn attempt(&mut self) -> Result<Duration, TurnError> {
        if self.is_doubtful || !self.is_leader() {
            self.read().await?;
        }
        let record = self.seen.as_ref().map(|(lease, _)| record_of(lease));
        let sight = Sight {
            record: record.as_ref(),
            unchanged_for: self.seen.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed()),
            leads: self.is_leader(),
            last_claim: self.last_claim(),
            highest_epoch: self.highest_epoch,
            epoch_floor: epoch_floor(self.settings.env.wall().as_second()),
        };
        let retry = self.settings.terms.retry_period;
        match step(&sight, &self.settings.identity, &self.settings.terms) {
            LeaseMove::Create { epoch } | LeaseMove::Take { epoch } => self.write(epoch, true).await.map(|()| retry),
            LeaseMove::Renew { epoch } => self.write(epoch, false).await.map(|()| retry),
            LeaseMove::Hold { pause } => Ok(pause),
            LeaseMove::Wait { pause, left } => {
                let holder = self
                    .last_claim()
                    .map_or("(unknown: its name was taken out)", |claim| claim.holder)
                    .to_owned();
                self.follow(holder, left);
                Ok(pause)
            }
        }
    }

    fn last_claim(&self) -> Option<Claim<'_>> {
        let (record, since) = self.claimed.as_ref()?;
        Some(Claim {
            holder: record.held_by()?,
            duration: record.duration,
            silent_for: since.elapsed(),
        })
    }

    async fn read(&mut self) -> Result<(), TurnError> {
        let read = self.api.get(&self.settings.name).await.map_err(ReadError::from);
        let lease = match read {
            Ok(Bare(lease)) => Some(lease),
            Err(ReadError::Gone) => None,
            Err(error) => return Err(TurnError::Read(error)),
        };
        self.is_doubtful = false;
        self.see(lease);
        Ok(())
    }

    /// Remembers the Lease; the clock of its holder's silence starts anew only when its spec changed.
    fn see(&mut self, lease: Option<Lease>) {
        let since = self
            .seen
            .take()
            .filter(|(before, _)| lease.as_ref().is_some_and(|now| now.spec == before.spec));
        let since = since.map_or_else(Instant::now, |(_, since)| since);
        if let Some(record) = lease.as_ref().map(record_of) {
            self.highest_epoch = self.highest_epoch.max(Some(record.transitions));
            self.remember(record, since);
        }
        self.seen = lease.map(|lease| (lease, since));
    }

    /// Remembers who claimed the Lease last: a Lease that nobody holds does not say.
    fn remember(&mut self, record: LeaseRecord, since: Instant) {
        if record.held_by().is_some() {
            self.claimed = Some((record, since));
        }
    }

    /// Writes us in. Our time counts from before the write was sent: others count from when they see it.
    async fn write(&mut self, epoch: u32, is_new: bool) -> Result<(), TurnError> {
        let sent = Instant::now();
        let claimed = self.claimed_as(epoch, is_new);
        let lease = match &self.seen {
            None => self.create(claimed).await,
            Some(_) => self.update(claimed).await,
        };
        let lease = lease.map_err(TurnError::Write)?;
        self.remember(record_of(&lease), sent);
        self.seen = Some((lease, sent));
        self.is_doubtful = false;
        self.highest_epoch = self.highest_epoch.max(Some(epoch));
        self.lead(epoch, sent + self.settings.terms.renew_deadline);
        Ok(())
    }

    async fn create(&self, lease: Lease) -> Result<Lease, WriteError> {
        let created = self.api.create(&PostParams::default(), &Bare(lease)).await;
        created.map(bare).map_err(WriteError::of_create)
    }

    async fn update(&self, lease: Lease) -> Result<Lease, WriteError> {
        let updated = update(&self.api, &self.settings.name, &Bare(lease)).await;
        updated.map(bare).map_err(WriteError::from)
    }

    /// The Lease as it was seen, or a new one, with us as its holder. It tells others our settings.
    fn claimed_as(&self, epoch: u32, is_new: bool) -> Lease {
        let now = MicroTime(self.settings.env.wall());
        let mut lease = self.seen.as_ref().map(|(lease, _)| lease.clone()).unwrap_or_default();
        lease.metadata.name = Some(self.settings.name.clone());
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::MANAGER_SETTINGS.to_owned(), self.settings.told.clone());
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.settings.identity.clone());
        spec.lease_duration_seconds = Some(whole_seconds(self.settings.terms.duration));
        // `millwright_core::lease` gives no higher epoch than the field can hold.
        spec.lease_transitions = Some(i32::try_from(epoch).unwrap_or(i32::MAX));
        if is_new {
            spec.acquire_time = Some(now.clone());
        }
        spec.renew_time = Some(now);
        lease
    }

    fn lead(&mut self, epoch: u32, valid_until: Instant) {
        let before = *self.sender.borrow();
        let (lease, identity) = (&self.settings.name, &self.settings.identity);
        if !self.is_leader() {
            tracing::info!(lease, identity, epoch, "leading");
        } else if !before.is_term(Some(epoch)) {
            let was = before.epoch();
            tracing::warn!(
                lease,
                identity,
                epoch,
                was,
                "the lease was deleted or emptied by somebody; this process holds it again, as a new leader"
            );
        }
        self.told_of = None;
        self.sender.send_replace(Leadership::Leader {
            epoch: Some(epoch),
            valid_until: Some(valid_until),
        });
    }

    /// Another holds the Lease. `left`: when it is ours if it is not renewed. Said once for each holder, at once: a
    /// manager that was killed leaves a Lease that nobody renews, and its successor would seem to hang.
    fn follow(&mut self, holder: String, left: Duration) {
        if self.told_of.as_ref() != Some(&holder) {
            let until = self.settings.env.wall() + left;
            tracing::info!(
                lease = self.settings.name,
                holder,
                until = format!("{until:.0}"),
                "another process holds the lease: waiting, at the latest until the time said here if it does not renew it"
            );
            self.told_of = Some(holder);
        }
        self.step_down("another process took the lease");
    }

    fn step_down(&mut self, why: &'static str) {
        if self.is_leader() {
            tracing::warn!(lease = self.settings.name, why, "no longer leading");
        }
        self.sender.send_if_modified(|state| {
            let is_news = *state != Leadership::Follower;
            *state = Leadership::Follower;
            is_news
        });
    }

    /// The fence holds by itself at the deadline; this tells those who only listen.
    fn step_down_when_late(&mut self) {
        if self.is_leader() && self.time_left() == Some(Duration::ZERO) {
            self.step_down("the lease could not be renewed in time");
        }
    }

    fn is_leader(&self) -> bool {
        matches!(*self.sender.borrow(), Leadership::Leader { .. })
    }

    /// Time until our leadership ends, where we lead.
    fn time_left(&self) -> Option<Duration> {
        match *self.sender.borrow() {
            Leadership::Leader {
                valid_until: Some(until),
                ..
            } => Some(until.saturating_duration_since(Instant::now())),
            Leadership::Leader { valid_until: None, .. } | Leadership::Follower | Leadership::Unknown => None,
        }
    }

    /// Half the deadline, so that one lost connection leaves time for a second try; for a leader never beyond its time.
    fn request_limit(&self) -> Duration {
        let half = self.settings.terms.renew_deadline / 2;
        half.min(self.time_left().unwrap_or(half))
    }

    /// Gives the Lease back, so that a successor need not wait for its end.
    async fn release(mut self) {
        let is_held = self.is_leader();
        self.step_down("this process ends");
        let Some((lease, _)) = self.seen.take().filter(|_| is_held) else {
            return;
        };
        let limit = self.settings.terms.renew_deadline / 2;
        let update = self.update(given_back(lease, &self.settings.env));
        match tokio::time::timeout(limit, update).await {
            Ok(Ok(_)) => tracing::info!(lease = self.settings.name, "lease released"),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.settings.name, %error, "the lease was not released and runs out")
            }
            Err(_) => tracing::warn!(
                lease = self.settings.name,
                "the lease was not released in time and runs out"
            ),
        }
    }
}

/// Asks the API server itself who holds the Lease, past everything that this process remembers.
#[derive(Clone, Debug)]
pub struct LeaseReader {
    api: Api<Bare<Lease>>,
    name: String,
    identity: String,
}

impl LeaseReader {
    /// Over the client of the control cluster, for the process of these settings.
    pub fn new(client: Client, settings: &LeaseSettings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            name: settings.name.clone(),
            identity: settings.identity.clone(),
        }
    }

    /// Whether this process holds the Lease under that epoch now. A Lease that is not there is held by nobody.
    pub async fn is_held_under(&self, epoch: u32) -> Result<bool, ReadError> {
        match self.api.get(&self.name).await.map_err(ReadError::from) {
            Ok(Bare(lease)) => {
                let record = record_of(&lease);
                Ok(record.holder.as_deref() == Some(&self.identity) && record.transitions == epoch)
            }
            Err(ReadError::Gone) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Writes a whole Lease in the version that was seen: the verb `update`, by which client-go elects too. The original's role gives no `patch`.
#[allow(
    clippy::disallowed_methods,
    reason = "whoever holds a Lease writes all of it, and roles for elections may allow only this verb"
)]
pub(super) async fn update<L>(leases: &Api<L>, name: &str, lease: &L) -> kube::Result<L>
where
    L: Clone + Serialize + DeserializeOwned + Debug,
{
    leases.replace(name, &PostParams::default(), lease).await
}

/// The Lease without a holder, as client-go releases it.
pub(super) fn given_back(mut lease: Lease, env: &Env) -> Lease {
    let now = MicroTime(env.wall());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(now.clone());
    spec.renew_time = Some(now);
    lease
}

pub(super) fn record_of(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    LeaseRecord {
        holder: spec.holder_identity,
        duration: Duration::from_secs(seconds.unwrap_or_default()),
        transitions: spec
            .lease_transitions
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or_default(),
    }
}

/// Whether somebody wrote or deleted the Lease since it was read.
fn is_changed(error: &TurnError) -> bool {
    match error {
        TurnError::Write(WriteError::Gone | WriteError::Stale | WriteError::AlreadyExists) => true,
        TurnError::Write(WriteError::Fenced | WriteError::Refused { .. } | WriteError::Unreachable { .. })
        | TurnError::Read(_)
        | TurnError::TimedOut(_) => false,
    }
}

/// Rounded up: a Lease that claims less than we take for ourselves would be taken too early.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
pub(super) mod tests;
