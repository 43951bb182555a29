//! What a class's status says: the condition `Ready`, in the standard shape of Kubernetes.
//!
//! Decides what is told of a verdict, and whether it is told already. \[ADD\]: the original's classes have no status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::{Fault, Readiness, Recipe};
use crate::api::machine::CreationRequest;
use crate::api::{MachineClass, meta};

/// Type of the one condition of ours.
const READY: &str = "Ready";
/// The condition's reason where machines can be made of the class.
const VALID: &str = "Valid";
/// The condition's reason where its driver has not been there to check it.
const DRIVER_NOT_CONNECTED: &str = "DriverNotConnected";

/// The condition as it should be; its times are worked out against the stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Verdict {
    /// What there is to tell of a class, if it is not told already.
    pub(super) fn news(class: &MachineClass, found: &Readiness, driver_is_here: bool) -> Option<Self> {
        let verdict = match found {
            Readiness::Unchecked => return None,
            Readiness::Faulty(fault) => Self {
                status: "False",
                reason: fault.label(),
                message: fault.to_string(),
            },
            Readiness::Ready(_) if driver_is_here => Self {
                status: "True",
                reason: VALID,
                message: "Machines can be made of the class.".to_owned(),
            },
            // What the driver has found good is good while it is away: its restarts are no news about the class.
            Readiness::Ready(_) if is_found_good(class) => return None,
            Readiness::Ready(_) => Self {
                status: "Unknown",
                reason: DRIVER_NOT_CONNECTED,
                message: format!(
                    "No driver named {:?} is connected, so it has not checked the class: start the provider, or correct the \
                     field provider",
                    class.spec.provider.as_deref().unwrap_or_default()
                ),
            },
        };
        (!verdict.is_told(class)).then_some(verdict)
    }

    fn is_told(&self, class: &MachineClass) -> bool {
        told(class).is_some_and(|told| {
            told.status == self.status
                && told.reason == self.reason
                && told.message == self.message
                && told.observed_generation == Some(meta::generation(&class.metadata))
        })
    }

    /// The verdict in one line.
    pub fn text(&self) -> String {
        let Self {
            status,
            reason,
            message,
        } = self;
        format!("{READY}={status} {reason}: {message}")
    }

    /// The body of a JSON merge patch of the class's `/status`; conditions of others stay.
    pub fn into_patch(self, class: &MachineClass, now: Timestamp) -> Value {
        let same_status = told(class).filter(|told| told.status == self.status);
        let since = same_status.map_or_else(|| json!(format!("{now:.0}")), |told| json!(told.last_transition_time));
        let ours = json!({
            "type": READY,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": meta::generation(&class.metadata),
            "lastTransitionTime": since,
        });
        let others = stored(class).iter().filter(|condition| condition.type_ != READY);
        let all: Vec<Value> = [ours].into_iter().chain(others.map(|other| json!(other))).collect();
        json!({ "status": { "conditions": all } })
    }
}

fn stored(class: &MachineClass) -> &[Condition] {
    class.status.as_ref().map_or(&[], |status| &status.conditions)
}

fn told(class: &MachineClass) -> Option<&Condition> {
    stored(class).iter().find(|condition| condition.type_ == READY)
}

/// What the class's own condition says of it, for those who cannot look themselves. Without one nobody has looked.
pub fn told_readiness(class: &MachineClass) -> Readiness {
    let Some(told) = told(class) else {
        return Readiness::Unchecked;
    };
    match told.status.as_str() {
        "True" => Readiness::Ready(Recipe {
            digest: String::new(),
            needs_token: false,
            essentials: CreationRequest::of(class),
        }),
        "False" => Readiness::Faulty(Fault::Told {
            reason: told.reason.clone(),
            message: told.message.clone(),
        }),
        _ => Readiness::Unchecked,
    }
}

fn is_found_good(class: &MachineClass) -> bool {
    told(class).is_some_and(|told| {
        told.status == "True" && told.observed_generation == Some(meta::generation(&class.metadata))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("it is a time")
    }

    fn good() -> Readiness {
        Readiness::Ready(Recipe {
            digest: String::new(),
            needs_token: false,
            essentials: CreationRequest::default(),
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

    /// The class as it is after the verdict was written.
    fn written(class: &MachineClass, verdict: Verdict) -> MachineClass {
        let patch = verdict.into_patch(class, now());
        self::class(meta::generation(&class.metadata), &patch["status"]["conditions"])
    }

    #[test]
    fn a_verdict_is_told_once_and_again_only_when_it_or_the_class_changes() {
        let new = class(1, &json!([]));
        assert_eq!(Verdict::news(&new, &Readiness::Unchecked, true), None);
        let verdict = Verdict::news(&new, &good(), true).expect("there is news");
        assert_eq!(verdict.text(), "Ready=True Valid: Machines can be made of the class.");
        let told = written(&new, verdict);
        assert_eq!(Verdict::news(&told, &good(), true), None);
        let fault = Readiness::Faulty(Fault::NoProvider);
        let verdict = Verdict::news(&told, &fault, true).expect("there is news");
        assert_eq!(
            verdict.text(),
            "Ready=False NoProvider: field provider is empty: set it to a driver's name"
        );
        let edited = class(2, &json!(told.status.expect("it was written").conditions));
        assert!(Verdict::news(&edited, &good(), true).is_some());
    }

    #[test]
    fn a_class_whose_driver_was_never_there_is_not_called_ready_and_one_it_found_good_stays_so() {
        let new = class(1, &json!([]));
        let verdict = Verdict::news(&new, &good(), false).expect("there is news");
        assert!(
            verdict
                .text()
                .starts_with("Ready=Unknown DriverNotConnected: No driver named \"virtual\""),
            "{}",
            verdict.text()
        );
        let checked = written(&new, Verdict::news(&new, &good(), true).expect("there is news"));
        assert_eq!(Verdict::news(&checked, &good(), false), None);
    }

    #[test]
    fn the_conditions_of_others_stay_and_the_time_is_that_of_the_last_change() {
        let early = "2020-01-01T00:00:00Z";
        let stored = json!([
            {"type": "Ready", "status": "False", "reason": "X", "message": "", "lastTransitionTime": early},
            {"type": "Audited", "status": "True", "reason": "Y", "message": "", "lastTransitionTime": early},
        ]);
        let class = class(1, &stored);
        let fault = Readiness::Faulty(Fault::NoProvider);
        let verdict = Verdict::news(&class, &fault, true).expect("there is news");
        let patch = verdict.into_patch(&class, now());
        let conditions = &patch["status"]["conditions"];
        assert_eq!(conditions[0]["lastTransitionTime"], json!(early), "{patch}");
        assert_eq!(conditions[1]["type"], json!("Audited"), "{patch}");
        let healed = Verdict::news(&class, &good(), true).expect("there is news");
        let patch = healed.into_patch(&class, now());
        assert_eq!(
            patch["status"]["conditions"][0]["lastTransitionTime"],
            json!("2026-01-01T00:00:00Z")
        );
    }
}
