//! Laws that every plan of `millwright-core` must keep, whatever was observed. Pure. Tests and the simulator run them on every plan;
//! no program contains them.
//!
//! A law reads the observation and the plan and nothing of how the plan was made, so it holds for a planner written
//! anew. S1–S4, S9, S10, S16 (tests/README.md), GE-1 and GE-2, MC-27.

mod class;
mod deployment;
mod machine;
mod report;
mod set;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use millwright_core::api::keys;
use millwright_core::ids::Uid;
use millwright_core::laws::Laws;
use millwright_core::selector::Matcher;

pub use class::{class, secret};
pub use deployment::deployment;
pub use machine::machine;
pub use set::set;

/// All laws, as a manager is handed them.
pub const LAWS: Laws = Laws {
    machine: |seen, plan, now| told(machine(seen, plan, now)),
    set: |seen, plan, now| told(set(seen, plan, now)),
    deployment: |seen, plan, now| told(deployment(seen, plan, now)),
    class: |seen, plan| told(class(seen, plan)),
    secret: |seen, plan| told(secret(seen, plan)),
};

/// A law that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what each means")]
pub enum Broken {
    #[error("it looks again at a time that is not in the future")]
    WakeInThePast,
    #[error("it goes on after the finalizer is removed")]
    StepAfterTheEnd,
    #[error("it calls the driver while a call runs, or calls it twice, or goes on after a call")]
    CallsNotAlone,
    #[error("it makes a call that others have found to be in vain, without having reserved the probe")]
    PassesBreaker,
    #[error("it calls CreateMachine without our finalizer, or for a Machine that is being deleted")]
    CreateUnguarded,
    #[error("it calls CreateMachine before the intent is stored and the Machine is read live")]
    CreateWithoutIntent,
    #[error("it calls CreateMachine for a changed class, although a VM may be there by what was asked for before")]
    CreateElsewhere,
    #[error("it calls DeleteMachine for a Machine that nobody deletes")]
    DeleteOfWanted,
    #[error("it cordons the node, or removes pods, of a Machine that nobody deletes")]
    DrainOfWanted,
    #[error("it keeps, or tells to be kept, a Machine that is being deleted")]
    KeepsLeaving,
    #[error("it ends the preservation of a Machine that somebody wants kept, before its time")]
    PreservedTooShort,
    #[error("it changes annotations of a Machine that are not about its preservation")]
    RequestChanged,
    #[error("it replaces {0}, which is preserved")]
    PreservedReplaced(String),
    #[error("it preserves more failed machines without being asked than it may")]
    TooManyPreserved,
    #[error("it removes the VM while pods are left on its node")]
    VmBeforePods,
    #[error("it lists or evicts the pods of a node to which new ones may come")]
    PodsMayCome,
    #[error("it removes the finalizer while something may be left at the provider")]
    ReleaseUnproven,
    #[error("it deletes a Machine that is being deleted already")]
    DeletedTwice,
    #[error("it writes another providerID than the one that is stored")]
    IdentityChanged,
    #[error("it moves the phase from {0:?} to {1:?}")]
    PhaseEdge(String, String),
    #[error("it passes over an initialisation that is pending")]
    InitializationSkipped,
    #[error("a phase begins later than it is written")]
    PhaseFromTheFuture,
    #[error("after step {step} it has {count} children where {allowed} are allowed")]
    OverBudget { step: usize, count: usize, allowed: usize },
    #[error("it creates {0}, a name that was not reserved")]
    NameNotReserved(String),
    #[error("it creates {0}, a name that is taken or used twice")]
    NameTaken(String),
    #[error("it creates a child without finalizer, controller or selected labels")]
    ChildUnguarded,
    #[error("it creates or changes children of an owner that is being deleted")]
    GrowthOfLeaving,
    #[error("it deletes {0}, which is not its own, is leaving already, or is spared")]
    WrongVictim(String),
    #[error("it deletes {0} although an earlier one in the order of leaving stays")]
    VictimOrder(String),
    #[error("it deletes machines that it wants")]
    TooFewLeft,
    #[error("it adopts or releases {0} against its selector")]
    WrongClaim(String),
    #[error("it releases more machines than it wants")]
    ReleasedTooMany,
    #[error("it counts the reserved names back")]
    CounterBackwards,
    #[error("it writes the status twice")]
    RecordedTwice,
    #[error("a report of a failure stands behind a step that can fail")]
    ReportBehindFailure,
    #[error("it changes what only a rollout may change")]
    TemplateReplaced,
    #[error("it makes fewer machines available than the deployment allows")]
    TooFewAvailable,
    #[error("it raises {0}, a set of another template than the deployment's")]
    OldSetRises(String),
    #[error("it makes or deletes machines by a number that is not stored yet")]
    NumberNotStored,
    #[error("it makes a second set for the template")]
    SecondSet,
    #[error("it makes machines of the new template beside old ones, which Recreate forbids")]
    RecreateOverlaps,
    #[error("it makes a set or changes a number although the deployment is paused")]
    PausedRolls,
    #[error("it gives up more unhealthy machines than may be replaced at once")]
    TooManyGivenUp,
    #[error("it changes what others have put on the node")]
    ForeignOfNode,
    #[error("it stores our finalizer on what is being deleted")]
    GuardOfLeaving,
    #[error("it removes the finalizer from what is still needed")]
    ReleaseOfNeeded,
    #[error("it begins a check while one is under way")]
    CheckedTwice,
    #[error("it writes the status of what is being deleted")]
    TellsOfLeaving,
    #[error("it reports who keeps what nobody deletes or nobody needs")]
    ReportOfNothing,
}

/// What each of them says.
pub fn told(broken: Vec<Broken>) -> Vec<String> {
    broken.iter().map(ToString::to_string).collect()
}

fn wakes_later(wake: Option<Timestamp>, now: Timestamp) -> Option<Broken> {
    wake.filter(|at| *at <= now).map(|_| Broken::WakeInThePast)
}

/// What ends the object is the last that is done to it.
fn ends_last<S>(steps: &[S], is_end: impl Fn(&S) -> bool) -> Option<Broken> {
    let end = steps.iter().position(is_end)?;
    (end + 1 < steps.len()).then_some(Broken::StepAfterTheEnd)
}

type LabelSelector = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
type Labels = std::collections::BTreeMap<String, String>;

/// The owner is the controller, and selects the labels.
fn is_child(reference: &OwnerReference, labels: &Labels, owner: &Uid, selector: Option<&LabelSelector>) -> bool {
    let owned = reference.uid == owner.as_str() && reference.controller == Some(true);
    let matcher = selector.and_then(|selector| Matcher::new(selector).ok());
    owned && matcher.is_some_and(|matcher| matcher.matches(labels))
}

fn is_guarded(finalizers: &[String]) -> bool {
    finalizers.iter().any(|finalizer| finalizer == keys::FINALIZER)
}
