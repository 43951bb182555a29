//! One pass over one key, the same for every kind: observe, plan, look for broken laws where a test gives any, narrate, execute.
//!
//! Chooses nothing: what is done is the plan's, what a failed step means to the others is the step's own
//! (`millwright_core::plan::Bearing`), what becomes of the key is the error's.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use millwright_core::ids::Name;
use millwright_core::narrate::{self, Narrate};
use millwright_core::plan::{Bearing, Plan, Step, Stopped, label};
use millwright_core::queue::Verdict;
use millwright_core::world::World;
use millwright_trace::TRACED;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::shared::Shared;
use super::step::StepError;

/// What is particular about one kind: how it is observed, and how each of its steps is carried out.
pub(super) trait Reconciler: Sized + Send + 'static {
    /// The kind, as logs and metrics say it.
    const KIND: &'static str;
    /// The object that is planned for.
    type Object: Send + Sync;
    /// Its steps.
    type Step: Step + Narrate;
    /// Its reasons.
    type Why: fmt::Debug + fmt::Display + Send + Sync;
    /// What one step of a pass leaves for a later one.
    type Carry: Default + Send;

    /// Gathers what the plan may read, and plans. `None`: the object is gone.
    fn plan(shared: &Shared, world: &World, name: &Name, now: Timestamp) -> Option<Planned<Self>>;

    /// Carries out one step.
    fn step(
        shared: &Arc<Shared>,
        run: &mut Run<Self>,
        step: Self::Step,
        why: &Self::Why,
    ) -> impl Future<Output = Result<(), StepError>> + Send;
}

/// A plan and the object that it was made for.
pub(super) struct Planned<R: Reconciler> {
    /// The object in the version that the plan saw.
    pub(super) object: Arc<R::Object>,
    /// The plan.
    pub(super) plan: Plan<R::Step, R::Why>,
    /// Laws that the plan breaks.
    pub(super) broken: Vec<String>,
}

/// A plan that is being carried out.
pub(super) struct Run<R: Reconciler> {
    /// The object as our last write left it: each write is guarded by the version of the one before.
    pub(super) object: Arc<R::Object>,
    /// What earlier steps left.
    pub(super) carry: R::Carry,
}

/// How one pass over a key ended.
pub struct Pass {
    /// What the queue does with the key.
    pub verdict: Verdict,
    /// The plan's reason, in one word.
    pub why: String,
    /// How the steps went, in one word.
    pub result: &'static str,
}

impl Pass {
    /// The object is not there.
    pub(super) fn gone() -> Self {
        Self {
            verdict: Verdict::Forget,
            why: "Gone".to_owned(),
            result: "done",
        }
    }

    /// The steps were carried out, or as far as one that did not take effect. `done` is when to look again.
    pub(super) fn ended(kind: &str, name: &str, why: String, done: Result<Option<Duration>, StepError>) -> Self {
        match done {
            Ok(wake) => Self {
                verdict: Verdict::Done { wake },
                why,
                result: "done",
            },
            Err(error) => {
                if !error.is_ordinary() {
                    tracing::warn!(kind, name, %error, "a step did not take effect; it will be tried again");
                }
                Self {
                    verdict: error.verdict(),
                    why,
                    result: "failed",
                }
            }
        }
    }
}

/// One pass over an object.
pub(super) async fn pass<R: Reconciler>(shared: &Arc<Shared>, name: &Name) -> Pass {
    let (now, uptime) = (shared.env.now(), shared.env.uptime());
    let Some(planned) = shared.look(|world| R::plan(shared, world, name, now)) else {
        return Pass::gone();
    };
    let Planned { object, plan, broken } = planned;
    assert!(
        broken.is_empty(),
        "the plan of {} {name} breaks laws: {broken:?}\n{}",
        R::KIND,
        narrate::plan(&plan, now)
    );
    tracing::debug!(kind = R::KIND, %name, plan = %Told(&plan, now), "plan");
    let (why, wake) = (label(&plan.why), plan.wake.map(|at| uptime + ahead(at, now)));
    let span = exported::<R>(shared, name, &plan);
    let done = execute::<R>(shared, name, object, plan).instrument(span.clone()).await;
    let pass = Pass::ended(R::KIND, name.as_str(), why, done.map(|()| wake));
    span.record("result", pass.result);
    pass
}

/// The exported span of a pass that does something. Most do nothing, and ten thousand Machines that are well are nobody's trace.
fn exported<R: Reconciler>(shared: &Shared, name: &Name, plan: &Plan<R::Step, R::Why>) -> Span {
    if plan.steps.is_empty() {
        return Span::none();
    }
    let namespace = shared.write.namespace();
    tracing::info_span!(
        target: TRACED, "pass", otel.name = %format_args!("pass {}", R::KIND), kind = R::KIND, %name, namespace,
        why = label(&plan.why), because = %plan.why, result = Empty
    )
}

/// How long after `now` a time is. Measured by the clock that the plan was made by: another look at it may tell another time, and a
/// key that wakes a nanosecond early finds nothing to do.
fn ahead(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// A plan that is put into words only where somebody logs it.
struct Told<'a, S, W>(&'a Plan<S, W>, Timestamp);

impl<S: Narrate, W: fmt::Display> fmt::Display for Told<'_, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&narrate::plan(self.0, self.1))
    }
}

/// Runs the steps in order. After one that stops the plan, or its part of it, has failed, only the independent ones and those of other
/// parts are carried out; after a conflict none, whichever step met it, because the plan was made from what is no longer so.
async fn execute<R: Reconciler>(
    shared: &Arc<Shared>,
    name: &Name,
    object: Arc<R::Object>,
    plan: Plan<R::Step, R::Why>,
) -> Result<(), StepError> {
    let mut run = Run {
        object,
        carry: R::Carry::default(),
    };
    let (mut failure, mut stopped): (Option<StepError>, Stopped) = (None, Stopped::default());
    for step in plan.steps {
        let (bearing, part) = (step.bearing(), step.part().map(str::to_owned));
        if bearing == Bearing::Stops && stopped.holds(part.as_deref()) {
            continue;
        }
        let told = step.narrate();
        match R::step(shared, &mut run, step, &plan.why).await {
            Ok(()) => tracing::info!(kind = R::KIND, %name, why = %plan.why, "{told}"),
            Err(error) if error.voids(bearing) => return Err(failure.unwrap_or(error)),
            Err(error) => {
                if bearing == Bearing::Stops {
                    stopped.add(part);
                }
                failure.get_or_insert(error);
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
