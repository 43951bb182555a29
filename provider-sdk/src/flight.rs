//! At most one mutating operation a Machine, whoever asks how often.
//!
//! The work runs in a task of its own: tonic drops a handler at its caller's deadline or cancel, and a VM made by a
//! dropped handler would be made without anyone remembering (`driver-api.md` §9). A repeat of the same call joins the
//! running work and gets its answer. Also keeps the tombstones, under the same lock, so that no creation slips between
//! the check and the start.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, Shared};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::error::DriverError;
use crate::reason::Reason;
use crate::types::{MachineKey, is_same_spec};

/// How long a deleted uid is remembered: far longer than any cache of a manager is stale.
const TOMBSTONE_LIFE: Duration = Duration::from_secs(3600);
/// Bound on the memory of tombstones, about 15 MB. Beyond it the oldest are forgotten early: a creation of such a uid
/// is then stopped by the manager's own live read (`driver-api.md` §6 b) and the provider's idempotency token only.
const TOMBSTONES_MAX: usize = 100_000;

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

/// The operations under way.
pub(crate) struct Flights<T> {
    state: Arc<Mutex<State<T>>>,
    tasks: TaskTracker,
}

struct State<T> {
    running: HashMap<FlightKey, Running<T>>,
    tombstones: Tombstones,
}

struct Running<T> {
    kind: Kind,
    answer: Shared<BoxFuture<'static, Answer<T>>>,
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    /// No operations yet. Their tasks will be counted by `tasks`, for the end of the process to wait for.
    pub(crate) fn new(tasks: TaskTracker) -> Self {
        let state = State {
            running: HashMap::new(),
            tombstones: Tombstones::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            tasks,
        }
    }

    /// Starts the work or joins the same work under way, and waits for its answer. Dropping the returned future stops
    /// the waiting only.
    pub(crate) async fn run<F>(&self, key: FlightKey, kind: Kind, work: F) -> Answer<T>
    where
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let answer = self.join_or_start(key, kind, work)?;
        answer.await
    }

    fn join_or_start<F>(
        &self,
        key: FlightKey,
        kind: Kind,
        work: F,
    ) -> Result<Shared<BoxFuture<'static, Answer<T>>>, DriverError>
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
            return if running.kind.is_joined_by(&kind) {
                Ok(running.answer.clone())
            } else {
                Err(busy(&running.kind, &kind))
            };
        }
        let work = guarded(work, Arc::clone(&self.state), key.clone()).in_current_span();
        let task = self.tasks.spawn(millwright_trace::beneath(work));
        let answer = async move {
            // The task catches panics itself: it ends without an answer only with the runtime.
            task.await
                .unwrap_or_else(|_| Err(DriverError::unavailable("the driver is stopping")))
        };
        let answer = answer.boxed().shared();
        state.running.insert(
            key,
            Running {
                kind,
                answer: answer.clone(),
            },
        );
        Ok(answer)
    }
}

/// Runs the work to its end and takes it off the list. The list's lock is held while the task is started, so the
/// removal cannot come before the insertion.
async fn guarded<T, F>(work: F, state: Arc<Mutex<State<T>>>, key: FlightKey) -> Answer<T>
where
    F: Future<Output = Answer<T>> + Send,
{
    let answer = catch_panic(work).await;
    lock(&state).running.remove(&key);
    answer
}

/// A panic of the author's code as an error, so that it costs one call and not the process.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = Answer<T>>) -> Answer<T> {
    // The author's state behind a shared reference may be half changed; that is what a repeat has to cope with anyway.
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(DriverError::fault("the driver panicked; its log says where")))
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    #[tokio::test]
    async fn twenty_callers_of_one_creation_share_one_work() {
        let flights = Flights::new(TaskTracker::new());
        let made = Arc::new(AtomicUsize::new(0));
        let callers = (0..20).map(|_| {
            let made = Arc::clone(&made);
            flights.run(key("u"), create("d"), async move {
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
        let flights = Flights::new(TaskTracker::new());
        let mut running = Box::pin(flights.run(key("u"), create("d"), std::future::pending::<Answer<()>>()));
        assert!(futures::poll!(&mut running).is_pending());
        let mut joined = Box::pin(flights.run(key("u"), create(""), async { panic!("a second work") }));
        assert!(
            futures::poll!(&mut joined).is_pending(),
            "who does not know the spec joins"
        );
        for kind in [create("other"), Kind::Initialize, Kind::Delete] {
            let error = flights.run(key("u"), kind, async { Ok(()) }).await.unwrap_err();
            assert_eq!(error.reason(), &Reason::OperationInProgress);
        }
        flights
            .run(key("v"), create("d"), async { Ok(()) })
            .await
            .expect("another machine is not concerned");
    }

    #[tokio::test]
    async fn a_dropped_caller_does_not_stop_the_work() {
        let flights = Flights::new(TaskTracker::new());
        let (done, seen) = tokio::sync::oneshot::channel();
        let work = async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            done.send(()).expect("the test waits");
            Ok(())
        };
        let mut caller = Box::pin(flights.run(key("u"), create("d"), work));
        assert!(futures::poll!(&mut caller).is_pending());
        drop(caller);
        seen.await.expect("the work went on");
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_frees_the_machine() {
        let flights = Flights::<()>::new(TaskTracker::new());
        let error = flights
            .run(key("u"), create("d"), async { panic!("boom") })
            .await
            .unwrap_err();
        assert_eq!(error.reason(), &Reason::DriverFault);
        flights
            .run(key("u"), create("d"), async { Ok(()) })
            .await
            .expect("the machine is free again");
    }

    #[tokio::test]
    async fn a_deleted_uid_cannot_be_created_not_even_after_a_refused_deletion() {
        let flights = Flights::new(TaskTracker::new());
        flights
            .run(key("u"), Kind::Delete, async { Ok(()) })
            .await
            .expect("deleted");
        let error = flights.run(key("u"), create("d"), async { Ok(()) }).await.unwrap_err();
        assert_eq!(error.reason(), &Reason::MachineDeleted);

        let mut running = Box::pin(flights.run(key("v"), create("d"), std::future::pending()));
        assert!(futures::poll!(&mut running).is_pending());
        flights.run(key("v"), Kind::Delete, async { Ok(()) }).await.unwrap_err();
        let error = flights.run(key("v"), create("d"), async { Ok(()) }).await.unwrap_err();
        assert_eq!(error.reason(), &Reason::MachineDeleted);
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
