//! What a class's status says, in the standard shape of Kubernetes: the condition `Ready`, and a condition for each open circuit breaker.
//!
//! Decides what is told, and whether it is told already. The conditions of circuit breakers are their memory too: a new process reads
//! from them which are open. The original's classes have no status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::{Fault, Readiness, Recipe};
use crate::api::{CreationRequest, MachineClass, meta};
use crate::circuit_breaker::{Cause, CircuitBreaker, Circuits, Operation};
use crate::status::plain;

/// Whether machines can be made of the class.
const READY: &str = "Ready";
/// The reason of `Ready` where machines can be made of the class.
const VALID: &str = "Valid";
/// The reason of `Ready` where its driver has not been there to check it.
pub(super) const DRIVER_NOT_CONNECTED: &str = "DriverNotConnected";
/// False: the provider refused the credentials of the class.
const CREDENTIALS_ACCEPTED: &str = "CredentialsAccepted";
/// False: the provider has no capacity or quota left for VMs of the class.
const CAPACITY_AVAILABLE: &str = "CapacityAvailable";
/// False: the credentials do not permit to make VMs.
const CREATION_PERMITTED: &str = "CreationPermitted";
/// False: the credentials do not permit to remove VMs.
const DELETION_PERMITTED: &str = "DeletionPermitted";
/// The reason where nothing is suspended any more.
const RECOVERED: &str = "Recovered";

/// The longest message: what Kubernetes lets a condition hold.
const LONGEST_MESSAGE: usize = 32 * 1024;

/// Conditions as they should be; their times are worked out against the stored ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict(Vec<Told>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Verdict {
    /// What there is to tell of a class that is not told already.
    pub(super) fn news(
        class: &MachineClass,
        found: &Readiness,
        driver_is_here: bool,
        circuits: Circuits<'_>,
    ) -> Option<Self> {
        let ready = Told::ready(class, found, driver_is_here).filter(|ready| !ready.is_told_of(class));
        let create = |cause| circuits.create.filter(|breaker| breaker.cause == cause);
        let suspended = [
            Told::suspended(class, CREDENTIALS_ACCEPTED, circuits.credentials),
            Told::suspended(class, CAPACITY_AVAILABLE, create(Cause::Capacity)),
            Told::suspended(class, CREATION_PERMITTED, create(Cause::Access)),
            Told::suspended(class, DELETION_PERMITTED, circuits.delete),
        ];
        let news: Vec<Told> = ready.into_iter().chain(suspended.into_iter().flatten()).collect();
        (!news.is_empty()).then_some(Self(news))
    }

    /// The verdict in one line.
    pub fn text(&self) -> String {
        let line = |told: &Told| format!("{}={} {}: {}", told.type_, told.status, told.reason, told.message);
        self.0.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    /// The body of a JSON merge patch of the class's `/status`; all other conditions stay.
    pub fn into_patch(self, class: &MachineClass, now: Timestamp) -> Value {
        let is_other = |condition: &&Condition| self.0.iter().all(|told| told.type_ != condition.type_);
        let others = stored(class).iter().filter(is_other).map(|other| json!(other));
        let ours = self.0.iter().map(|told| told.condition(class, now));
        let all: Vec<Value> = ours.chain(others).collect();
        json!({ "status": { "conditions": all } })
    }
}

impl Told {
    /// Whether machines can be made of the class, where that is known.
    fn ready(class: &MachineClass, found: &Readiness, driver_is_here: bool) -> Option<Self> {
        let (status, reason, message) = match found {
            Readiness::Unchecked => return None,
            // What the driver has found good is good while it is away: its restarts are no news about the class.
            Readiness::Faulty(Fault::NoDriver) if is_found_good(class) => return None,
            Readiness::Faulty(fault @ Fault::NoDriver) => ("Unknown", fault.label(), fault.to_string()),
            Readiness::Faulty(fault) => ("False", fault.label(), fault.to_string()),
            Readiness::Ready(recipe) if driver_is_here => ("True", VALID, good(class, &recipe.essentials.provider)),
            Readiness::Ready(_) if is_found_good(class) => return None,
            Readiness::Ready(recipe) => {
                let provider = &recipe.essentials.provider;
                let message = format!(
                    "No driver named {provider:?} is connected, so it has not checked the class: start the provider, or correct the \
                     field provider"
                );
                ("Unknown", DRIVER_NOT_CONNECTED, message)
            }
        };
        Some(Self {
            type_: READY,
            status,
            reason,
            message: plain(&message, LONGEST_MESSAGE),
        })
    }

    /// The condition of a circuit breaker, where it is news. A class whose calls never failed says nothing of them.
    fn suspended(class: &MachineClass, type_: &'static str, breaker: Option<&CircuitBreaker>) -> Option<Self> {
        let stored = condition(class, type_);
        match breaker {
            Some(breaker) => {
                let told = Self {
                    type_,
                    status: "False",
                    reason: breaker.cause.label(),
                    message: plain(&breaker.message, LONGEST_MESSAGE),
                };
                let is_told = stored.is_some_and(|stored| stored.status == told.status && stored.reason == told.reason);
                (!is_told).then_some(told)
            }
            None => stored.filter(|stored| stored.status == "False").map(|_| Self {
                type_,
                status: "True",
                reason: RECOVERED,
                message: "The provider has done what was asked of it.".to_owned(),
            }),
        }
    }

    fn is_told_of(&self, class: &MachineClass) -> bool {
        condition(class, self.type_).is_some_and(|told| {
            told.status == self.status
                && told.reason == self.reason
                && told.message == self.message
                && told.observed_generation == Some(meta::generation(&class.metadata))
        })
    }

    fn condition(&self, class: &MachineClass, now: Timestamp) -> Value {
        let same_status = condition(class, self.type_).filter(|told| told.status == self.status);
        let since = same_status.map_or_else(|| json!(format!("{now:.0}")), |told| json!(told.last_transition_time));
        json!({
            "type": self.type_,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": meta::generation(&class.metadata),
            "lastTransitionTime": since,
        })
    }
}

fn stored(class: &MachineClass) -> &[Condition] {
    class.status.as_ref().map_or(&[], |status| &status.conditions)
}

fn condition<'a>(class: &'a MachineClass, type_: &str) -> Option<&'a Condition> {
    stored(class).iter().find(|condition| condition.type_ == type_)
}

/// The circuit breakers that a class's conditions tell to be open, with the operation that each stops, where it does not stop all.
pub fn open_breakers(class: &MachineClass) -> Vec<(Option<Operation>, CircuitBreaker)> {
    let types = [
        (CREDENTIALS_ACCEPTED, None),
        (CAPACITY_AVAILABLE, Some(Operation::Create)),
        (CREATION_PERMITTED, Some(Operation::Create)),
        (DELETION_PERMITTED, Some(Operation::Delete)),
    ];
    let open = types.into_iter().filter_map(|(type_, operation)| {
        let told = condition(class, type_).filter(|told| told.status == "False")?;
        let cause = Cause::ALL.into_iter().find(|cause| cause.label() == told.reason)?;
        Some((operation, CircuitBreaker::restored(cause, told.message.clone())))
    });
    open.collect()
}

/// What the class's own condition says of it, for those who cannot look themselves. Without one nobody has looked.
pub fn told_readiness(class: &MachineClass) -> Readiness {
    let Some(told) = condition(class, READY) else {
        return Readiness::Unchecked;
    };
    match told.status.as_str() {
        "True" => Readiness::Ready(Recipe {
            digest: String::new(),
            needs_token: false,
            essentials: CreationRequest::of(class, None),
        }),
        "False" => Readiness::Faulty(Fault::Told {
            reason: told.reason.clone(),
            message: told.message.clone(),
        }),
        _ => Readiness::Unchecked,
    }
}

/// That machines can be made of the class, and by whom if it does not say so itself.
fn good(class: &MachineClass, driver: &str) -> String {
    match class.driver() {
        Some(_) => "Machines can be made of the class.".to_owned(),
        None => format!(
            "Machines can be made of the class by the driver {driver}: field provider is empty, and there is no other driver."
        ),
    }
}

/// Whether its condition says that machines can be made of the class as it is now.
pub fn is_found_good(class: &MachineClass) -> bool {
    condition(class, READY).is_some_and(|told| {
        told.status == "True" && told.observed_generation == Some(meta::generation(&class.metadata))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DriverName;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("it is a time")
    }

    fn good() -> Readiness {
        Readiness::Ready(Recipe {
            digest: String::new(),
            needs_token: false,
            essentials: CreationRequest::of(&class(1, &json!([])), None),
        })
    }

    fn class(generation: i64, conditions: &Value) -> MachineClass {
        serde_json::from_value(json!({
            "metadata": {"name": "small", "generation": generation},
            "provider": "virtual", "providerSpec": {},
            "status": {"conditions": conditions},
        }))
        .expect("it is a class")
    }

    /// What there is to tell of it while nothing is suspended.
    fn news(class: &MachineClass, found: &Readiness, driver_is_here: bool) -> Option<Verdict> {
        Verdict::news(class, found, driver_is_here, Circuits::default())
    }

    /// The class as it is after the verdict was written.
    fn written(class: &MachineClass, verdict: Verdict) -> MachineClass {
        let patch = verdict.into_patch(class, now());
        self::class(meta::generation(&class.metadata), &patch["status"]["conditions"])
    }

    #[test]
    fn a_verdict_is_told_once_and_again_only_when_it_or_the_class_changes() {
        let new = class(1, &json!([]));
        assert_eq!(news(&new, &Readiness::Unchecked, true), None);
        let verdict = news(&new, &good(), true).expect("there is news");
        assert_eq!(verdict.text(), "Ready=True Valid: Machines can be made of the class.");
        let told = written(&new, verdict);
        assert_eq!(news(&told, &good(), true), None);
        let fault = Readiness::Faulty(Fault::NoProvider(["a", "b"].map(DriverName::new).into()));
        let verdict = news(&told, &fault, true).expect("there is news");
        assert_eq!(
            verdict.text(),
            "Ready=False NoProvider: field provider is empty, and there are several drivers: set it to one of a, b"
        );
        let edited = class(2, &json!(told.status.expect("it was written").conditions));
        assert!(news(&edited, &good(), true).is_some());
    }

    #[test]
    fn a_class_whose_driver_was_never_there_is_not_called_ready_and_one_it_found_good_stays_so() {
        let new = class(1, &json!([]));
        let verdict = news(&new, &good(), false).expect("there is news");
        assert!(
            verdict
                .text()
                .starts_with("Ready=Unknown DriverNotConnected: No driver named \"virtual\""),
            "{}",
            verdict.text()
        );
        let checked = written(&new, news(&new, &good(), true).expect("there is news"));
        assert_eq!(news(&checked, &good(), false), None);
    }

    #[test]
    fn a_class_without_a_driver_says_which_one_it_has_and_stays_good_while_nobody_knows() {
        let mut new = class(1, &json!([]));
        new.spec.provider = None;
        let unknown = Readiness::Faulty(Fault::NoDriver);
        let verdict = news(&new, &unknown, false).expect("there is news");
        assert!(
            verdict.text().starts_with("Ready=Unknown DriverNotConnected: "),
            "{verdict:?}"
        );
        let verdict = news(&new, &good(), true).expect("there is news");
        assert_eq!(
            verdict.text(),
            "Ready=True Valid: Machines can be made of the class by the driver virtual: field provider is empty, and there is no \
             other driver."
        );
        new = written(&new, verdict);
        new.spec.provider = None;
        assert_eq!(news(&new, &unknown, false), None, "a manager that starts is no news");
        assert_eq!(news(&new, &good(), false), None);
    }

    #[test]
    fn the_conditions_of_others_stay_and_the_time_is_that_of_the_last_change() {
        let early = "2020-01-01T00:00:00Z";
        let stored = json!([
            {"type": "Ready", "status": "False", "reason": "X", "message": "", "lastTransitionTime": early},
            {"type": "Audited", "status": "True", "reason": "Y", "message": "", "lastTransitionTime": early},
        ]);
        let class = class(1, &stored);
        let fault = Readiness::Faulty(Fault::NoUserData(Vec::new()));
        let verdict = news(&class, &fault, true).expect("there is news");
        let patch = verdict.into_patch(&class, now());
        let conditions = &patch["status"]["conditions"];
        assert_eq!(conditions[0]["lastTransitionTime"], json!(early), "{patch}");
        assert_eq!(conditions[1]["type"], json!("Audited"), "{patch}");
        let healed = news(&class, &good(), true).expect("there is news");
        let patch = healed.into_patch(&class, now());
        assert_eq!(
            patch["status"]["conditions"][0]["lastTransitionTime"],
            json!("2026-01-01T00:00:00Z")
        );
    }
}
