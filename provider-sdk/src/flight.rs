//! At most one mutating operation a Machine, whoever asks how often.
//!
//! The work runs in a task of its own: tonic drops a handler at its caller's deadline or cancel, and a VM made by a
//! dropped handler would be made without anyone remembering. A repeat of the same call joins the
//! running work and gets its answer. Also keeps the tombstones, under the same lock, so that no creation slips between
//! the check and the start.
//!
//! No work runs for ever: one that is too old is given up, and so is one that a deletion waits for, after it was asked to end. Dropping it stops
//! what it waits for; what it had sent may still come to effect, so that for a while absence is no fact for its Machine ([`Lookup`]).
//! So it is after a creation that panicked.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, Shared};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::error::DriverError;
use crate::metrics::{Metrics, code_name};
use crate::reason::{Outcome, Reason};
use crate::types::{MachineKey, is_same_spec};

/// How long a deleted uid is remembered: far longer than any cache of a manager is stale.
const TOMBSTONE_LIFE: Duration = Duration::from_secs(3600);
/// Bound on the memory of tombstones, about 15 MB. Beyond it the oldest are forgotten early: a creation of such a uid
/// is then stopped by the manager's own live read and the provider's idempotency token only.
const TOMBSTONES_MAX: usize = 100_000;
/// The shortest wait that is told where absence is no fact: another lookup may be asked for at once, and this is no spin.
const AGAIN_MIN: Duration = Duration::from_secs(1);
/// How long work may go on that a deletion waits for, once it was asked to end.
const GRACE: Duration = Duration::from_secs(30);

/// What the work is about: repeats are joined and others refused under this name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlightKey {
    cluster_id: String,
    subject: String,
}

impl FlightKey {
    /// By uid; a VM without one is told by its provider's id.
    pub(crate) fn new(key: &MachineKey, provider_id: &str) -> Self {
        let subject = if key.uid.is_empty() {
            format!("provider:{provider_id}")
        } else {
            key.uid.clone()
        };
        Self {
            cluster_id: key.cluster_id.clone(),
            subject,
        }
    }
}

/// Which operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create { spec_digest: String },
    Initialize,
    Delete,
}

impl Kind {
    /// The same operation: creations with the same spec, or of which one does not know its spec, join.
    fn is_joined_by(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Create { spec_digest: one }, Self::Create { spec_digest: other }) => is_same_spec(one, other),
            (Self::Initialize, Self::Initialize) | (Self::Delete, Self::Delete) => true,
            (Self::Create { .. } | Self::Initialize | Self::Delete, _) => false,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CreateMachine",
            Self::Initialize => "InitializeMachine",
            Self::Delete => "DeleteMachine",
        }
    }
}

type Answer<T> = Result<T, DriverError>;
/// An answer to come, for each caller that waits.
type Landing<T> = Shared<BoxFuture<'static, Answer<T>>>;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The greatest age of a piece of work.
    pub(crate) work: Duration,
    /// How long the provider may not show what it has accepted.
    pub(crate) propagation: Duration,
}

/// The operations under way.
pub(crate) struct Flights<T> {
    state: Arc<Mutex<State<T>>>,
    tasks: TaskTracker,
    metrics: Metrics,
    limits: Limits,
    started: Instant,
}

struct State<T> {
    running: HashMap<FlightKey, Running<T>>,
    tombstones: Tombstones,
    /// Work that was given up and creations that panicked, and until when their VMs may still appear.
    unsure: HashMap<FlightKey, Instant>,
}

struct Running<T> {
    kind: Kind,
    answer: Landing<T>,
    /// Asks the work to end.
    cancelled: CancellationToken,
    callers: Callers,
}

/// How many callers wait for a piece of work.
#[derive(Clone, Default)]
struct Callers(Arc<AtomicUsize>);

impl Callers {
    fn one_more(&self) -> Waiting {
        self.0.fetch_add(1, Ordering::SeqCst);
        Waiting(self.clone())
    }

    fn are_gone(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// One caller that waits.
struct Waiting(Callers);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    /// No operations yet. Their tasks will be counted by `tasks`, for the end of the process to wait for.
    pub(crate) fn new(tasks: TaskTracker, metrics: Metrics, limits: Limits) -> Self {
        let state = State {
            running: HashMap::new(),
            tombstones: Tombstones::default(),
            unsure: HashMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            tasks,
            metrics,
            limits,
            started: Instant::now(),
        }
    }

    /// A lookup of the Machine's VM that begins now.
    pub(crate) fn lookup(&self, key: &FlightKey) -> Lookup<T> {
        let from_start = self.started + self.limits.propagation;
        // Taken now, too: what is over by the end of the lookup may be forgotten by then.
        let given_up = lock(&self.state).unsure.get(key).copied();
        Lookup {
            state: Arc::clone(&self.state),
            key: key.clone(),
            began: Instant::now(),
            unsettled_until: given_up.map_or(from_start, |given_up| given_up.max(from_start)),
        }
    }

    /// Starts the work or joins the same work under way, and waits for its answer. Dropping the returned future stops
    /// the waiting only. The work is handed the sign by which it is asked to end.
    pub(crate) async fn run<F>(
        &self,
        key: FlightKey,
        kind: Kind,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let (answer, _waiting) = self.join_or_start(key, kind, work)?;
        answer.await
    }

    fn join_or_start<F>(
        &self,
        key: FlightKey,
        kind: Kind,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Result<(Landing<T>, Waiting), DriverError>
    where
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let now = Instant::now();
        let mut state = lock(&self.state);
        match kind {
            // Also when it is refused below: from the call on, the uid never comes back.
            Kind::Delete => state.tombstones.bury(key.clone(), now),
            Kind::Create { .. } if state.tombstones.holds(&key, now) => return Err(deleted()),
            Kind::Create { .. } | Kind::Initialize => {}
        }
        if let Some(running) = state.running.get(&key) {
            if running.kind.is_joined_by(&kind) {
                return Ok((running.answer.clone(), running.callers.one_more()));
            }
            if kind == Kind::Delete {
                running.cancelled.cancel();
            }
            return Err(busy(&running.kind, &kind));
        }
        let (cancelled, callers) = (CancellationToken::new(), Callers::default());
        let flight = Flight {
            key: key.clone(),
            method: kind.name(),
            is_creation: matches!(kind, Kind::Create { .. }),
            state: Arc::clone(&self.state),
            metrics: self.metrics.clone(),
            limits: self.limits,
            cancelled: cancelled.clone(),
            callers: callers.clone(),
        };
        let work = flight.complete(work(cancelled.clone())).in_current_span();
        let task = self.tasks.spawn(millwright_trace::beneath(work));
        let answer = async move {
            // The task catches panics itself: it ends without an answer only with the runtime.
            task.await
                .unwrap_or_else(|_| Err(DriverError::unavailable("the driver is stopping")))
        };
        let answer = answer.boxed().shared();
        let waiting = callers.one_more();
        state.running.insert(
            key,
            Running {
                kind,
                answer: answer.clone(),
                cancelled,
                callers,
            },
        );
        Ok((answer, waiting))
    }
}

/// What decides whether a lookup that finds no VM has proved anything (GEN-18). It is judged by its beginning: it need not have seen what came
/// to show while it was under way.
pub(crate) struct Lookup<T> {
    state: Arc<Mutex<State<T>>>,
    key: FlightKey,
    began: Instant,
    unsettled_until: Instant,
}

impl<T> Lookup<T> {
    /// `None` where absence is a fact. Else how long to wait before the next lookup: what the process before or a creation that was given up
    /// has made may not have shown yet.
    pub(crate) fn settling(&self) -> Option<Duration> {
        let given_up = lock(&self.state).unsure.get(&self.key).copied();
        let until = given_up.map_or(self.unsettled_until, |given_up| given_up.max(self.unsettled_until));
        (self.began < until).then(|| until.saturating_duration_since(Instant::now()).max(AGAIN_MIN))
    }
}

/// What one piece of work knows of the others.
struct Flight<T> {
    key: FlightKey,
    method: &'static str,
    is_creation: bool,
    state: Arc<Mutex<State<T>>>,
    metrics: Metrics,
    limits: Limits,
    cancelled: CancellationToken,
    callers: Callers,
}

impl<T> Flight<T> {
    /// Runs the work to its end, or until it is given up, and takes it off the list. The list's lock is held while the task is started, so the
    /// removal cannot come before the insertion.
    async fn complete(self, work: impl Future<Output = Answer<T>> + Send) -> Answer<T> {
        self.metrics.work_begins(self.method);
        let (answer, is_unsure) = tokio::select! {
            biased;
            ended = AssertUnwindSafe(work).catch_unwind() => match ended {
                Ok(answer) => (answer, false),
                Err(_) => (Err(panicked()), self.is_creation),
            },
            error = self.too_long() => (Err(error), true),
        };
        self.metrics.work_ends(self.method);
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.running.remove(&self.key);
        if is_unsure {
            state.unsure.retain(|_, until| now < *until);
            state.unsure.insert(self.key.clone(), now + self.limits.propagation);
        }
        drop(state);
        if self.callers.are_gone() {
            self.tell_nobody_waited(&answer);
        }
        answer
    }

    /// Why the work is given up, once it is.
    async fn too_long(&self) -> DriverError {
        let asked = async {
            self.cancelled.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        let method = self.method;
        let text = tokio::select! {
            () = tokio::time::sleep(self.limits.work) => format!("{method} took longer than {} s", self.limits.work.as_secs()),
            () = asked => format!("{method} did not end within {} s for the deletion that waits", GRACE.as_secs()),
        };
        tracing::warn!(method, "{text}: it is given up");
        DriverError::unavailable(format!(
            "{text} and was given up; a repeat finds out what has come of it"
        ))
        .outcome(Outcome::Unknown)
    }

    /// The answer that no caller hears is told here.
    fn tell_nobody_waited(&self, answer: &Answer<T>) {
        let (method, reason) = (self.method, answer.as_ref().err().map(DriverError::reason));
        let code = code_name(reason.map_or(tonic::Code::Ok, Reason::code));
        let reason = reason.and_then(Reason::name).unwrap_or_default();
        self.metrics.unheard(method, code, reason);
        let error = answer.as_ref().err().map(DriverError::message);
        tracing::info!(method, code, reason, error, "work has ended whose callers are gone");
    }
}

/// A panic of the author's code as an error, so that it costs one call and not the process.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = Answer<T>>) -> Answer<T> {
    // The author's state behind a shared reference may be half changed; that is what a repeat has to cope with anyway.
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> DriverError {
    DriverError::fault("the driver panicked; its log says where")
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    // Nothing that can panic runs under the lock, and each change is one insert or remove.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn busy(running: &Kind, asked: &Kind) -> DriverError {
    let message = match (running, asked) {
        (Kind::Create { .. }, Kind::Create { .. }) => "CreateMachine with another spec_digest is under way".to_owned(),
        _ => format!("{} is under way, {} has to wait", running.name(), asked.name()),
    };
    DriverError::new(Reason::OperationInProgress, message)
}

fn deleted() -> DriverError {
    DriverError::new(
        Reason::MachineDeleted,
        "DeleteMachine was called for this uid: it never comes back",
    )
}

/// The uids that saw DeleteMachine.
#[derive(Default)]
struct Tombstones {
    buried: HashMap<FlightKey, Instant>,
    /// In the order of burial. A uid buried again is here twice; its older entry counts for nothing.
    order: VecDeque<(Instant, FlightKey)>,
}

impl Tombstones {
    fn bury(&mut self, key: FlightKey, now: Instant) {
        self.buried.insert(key.clone(), now);
        self.order.push_back((now, key));
        while let Some((at, key)) = self.order.front() {
            let outdated = self.buried.get(key) != Some(at);
            if !outdated && self.order.len() <= TOMBSTONES_MAX && now.saturating_duration_since(*at) < TOMBSTONE_LIFE {
                break;
            }
            if !outdated {
                self.buried.remove(key);
            }
            self.order.pop_front();
        }
    }

    fn holds(&self, key: &FlightKey, now: Instant) -> bool {
        self.buried
            .get(key)
            .is_some_and(|at| now.saturating_duration_since(*at) < TOMBSTONE_LIFE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uid: &str) -> FlightKey {
        FlightKey::new(
            &MachineKey {
                cluster_id: "c".into(),
                uid: uid.into(),
                ..Default::default()
            },
            "p",
        )
    }

    fn create(digest: &str) -> Kind {
        Kind::Create {
            spec_digest: digest.into(),
        }
    }

    const LIMITS: Limits = Limits {
        work: Duration::from_secs(600),
        propagation: Duration::ZERO,
    };

    fn flights<T: Clone + Send + Sync + 'static>() -> Flights<T> {
        Flights::new(TaskTracker::new(), Metrics::new(), LIMITS)
    }

    #[tokio::test]
    async fn twenty_callers_of_one_creation_share_one_work() {
        let flights = flights();
        let made = Arc::new(AtomicUsize::new(0));
        let callers = (0..20).map(|_| {
            let made = Arc::clone(&made);
            flights.run(key("u"), create("d"), |_| async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(made.fetch_add(1, Ordering::SeqCst))
            })
        });
        let answers = futures::future::join_all(callers).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(0))), "{answers:?}");
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn other_operations_of_the_machine_are_refused_while_one_runs() {
        let flights = flights();
        let mut running = Box::pin(flights.run(key("u"), create("d"), |_| std::future::pending::<Answer<()>>()));
        assert!(futures::poll!(&mut running).is_pending());
        let mut joined = Box::pin(flights.run(key("u"), create(""), |_| async { panic!("a second work") }));
        assert!(
            futures::poll!(&mut joined).is_pending(),
            "who does not know the spec joins"
        );
        for kind in [create("other"), Kind::Initialize, Kind::Delete] {
            let error = flights.run(key("u"), kind, |_| async { Ok(()) }).await.unwrap_err();
            assert_eq!(error.reason(), &Reason::OperationInProgress);
        }
        flights
            .run(key("v"), create("d"), |_| async { Ok(()) })
            .await
            .expect("another machine is not concerned");
    }

    #[tokio::test]
    async fn a_dropped_caller_does_not_stop_the_work() {
        let flights = flights();
        let (done, seen) = tokio::sync::oneshot::channel();
        let work = async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            done.send(()).expect("the test waits");
            Ok(())
        };
        let mut caller = Box::pin(flights.run(key("u"), create("d"), |_| work));
        assert!(futures::poll!(&mut caller).is_pending());
        drop(caller);
        seen.await.expect("the work went on");
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_frees_the_machine() {
        let flights = flights::<()>();
        let error = flights
            .run(key("u"), create("d"), |_| async { panic!("boom") })
            .await
            .unwrap_err();
        assert_eq!(error.reason(), &Reason::DriverFault);
        flights
            .run(key("u"), create("d"), |_| async { Ok(()) })
            .await
            .expect("the machine is free again");
    }

    #[tokio::test]
    async fn a_deleted_uid_cannot_be_created_not_even_after_a_refused_deletion() {
        let flights = flights();
        flights
            .run(key("u"), Kind::Delete, |_| async { Ok(()) })
            .await
            .expect("deleted");
        let error = flights
            .run(key("u"), create("d"), |_| async { Ok(()) })
            .await
            .unwrap_err();
        assert_eq!(error.reason(), &Reason::MachineDeleted);

        let mut running = Box::pin(flights.run(key("v"), create("d"), |_| std::future::pending()));
        assert!(futures::poll!(&mut running).is_pending());
        flights
            .run(key("v"), Kind::Delete, |_| async { Ok(()) })
            .await
            .unwrap_err();
        let error = flights
            .run(key("v"), create("d"), |_| async { Ok(()) })
            .await
            .unwrap_err();
        assert_eq!(error.reason(), &Reason::MachineDeleted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_hangs_does_not_block_a_deletion_for_ever() {
        let flights = flights();
        let mut hanging = Box::pin(flights.run(key("u"), create("d"), |_| std::future::pending()));
        assert!(futures::poll!(&mut hanging).is_pending());
        let refused = flights
            .run(key("u"), Kind::Delete, |_| async { Ok(()) })
            .await
            .unwrap_err();
        assert_eq!(refused.reason(), &Reason::OperationInProgress);
        let error = hanging.await.unwrap_err();
        assert_eq!(error.reason(), &Reason::ProviderUnavailable);
        assert!(error.message().contains("within 30 s"), "{error}");
        flights
            .run(key("u"), Kind::Delete, |_| async { Ok(()) })
            .await
            .expect("the deletion has the machine for itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_listens_ends_as_soon_as_a_deletion_waits() {
        let flights = flights();
        let listens = |cancelled: CancellationToken| async move {
            cancelled.cancelled().await;
            Err(DriverError::unavailable("stopped half way").outcome(Outcome::Partial))
        };
        let mut creation = Box::pin(flights.run(key("u"), create("d"), listens));
        assert!(futures::poll!(&mut creation).is_pending());
        let begun = Instant::now();
        flights
            .run(key("u"), Kind::Delete, |_| async { Ok(()) })
            .await
            .unwrap_err();
        assert_eq!(creation.await.unwrap_err().message(), "stopped half way");
        assert!(begun.elapsed() < GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn work_has_a_greatest_age_and_what_it_left_may_still_appear_for_a_while() {
        let propagation = Duration::from_secs(60);
        let flights = Flights::<()>::new(TaskTracker::new(), Metrics::new(), Limits { propagation, ..LIMITS });
        let begun = Instant::now();
        assert_eq!(
            flights.lookup(&key("u")).settling(),
            Some(propagation),
            "the process has just begun"
        );
        let error = flights
            .run(key("u"), create("d"), |_| std::future::pending())
            .await
            .unwrap_err();
        assert_eq!((error.told_outcome(), begun.elapsed()), (Outcome::Unknown, LIMITS.work));
        assert_eq!(flights.lookup(&key("u")).settling(), Some(propagation));
        assert_eq!(
            flights.lookup(&key("v")).settling(),
            None,
            "another machine is not concerned"
        );
        tokio::time::advance(propagation).await;
        assert_eq!(flights.lookup(&key("u")).settling(), None);
    }

    #[tokio::test]
    async fn the_end_of_work_that_nobody_waits_for_is_counted() {
        let metrics = Metrics::new();
        let tasks = TaskTracker::new();
        let flights = Flights::<()>::new(tasks.clone(), metrics.clone(), LIMITS);
        let failing = |_| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Err(DriverError::new(Reason::RateLimited, "m"))
        };
        let mut caller = Box::pin(flights.run(key("u"), create("d"), failing));
        assert!(futures::poll!(&mut caller).is_pending());
        tokio::task::yield_now().await;
        assert!(
            metrics
                .page()
                .unwrap()
                .contains("driver_work_in_flight{method=\"CreateMachine\"} 1")
        );
        drop(caller);
        tasks.close();
        tasks.wait().await;
        let page = metrics.page().unwrap();
        let count = r#"driver_work_unheard_total{method="CreateMachine",code="UNAVAILABLE",reason="RATE_LIMITED"} 1"#;
        assert!(page.contains(count), "{page}");
        assert!(
            page.contains("driver_work_in_flight{method=\"CreateMachine\"} 0"),
            "{page}"
        );
        flights
            .run(key("u"), create("d"), |_| async { Ok(()) })
            .await
            .expect("somebody hears");
        assert!(!metrics.page().unwrap().contains(r#"code="OK""#));
    }

    #[test]
    fn tombstones_last_an_hour_after_the_last_deletion() {
        let mut tombstones = Tombstones::default();
        let start = Instant::now();
        let minutes = |n: u64| start + Duration::from_secs(60 * n);
        tombstones.bury(key("u"), start);
        tombstones.bury(key("u"), minutes(30));
        assert!(tombstones.holds(&key("u"), minutes(89)));
        assert!(!tombstones.holds(&key("u"), minutes(90)));
        tombstones.bury(key("v"), minutes(200));
        assert_eq!((tombstones.buried.len(), tombstones.order.len()), (1, 1));
    }

    #[test]
    fn tombstones_are_bounded_and_the_oldest_goes_first() {
        let mut tombstones = Tombstones::default();
        let now = Instant::now();
        for n in 0..=TOMBSTONES_MAX {
            tombstones.bury(key(&n.to_string()), now);
        }
        assert_eq!(tombstones.buried.len(), TOMBSTONES_MAX);
        assert!(!tombstones.holds(&key("0"), now) && tombstones.holds(&key("1"), now));
    }
}
