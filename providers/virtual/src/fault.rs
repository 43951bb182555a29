//! Faults that a class scripts: on which call, on which one of them, and what goes wrong.
//!
//! Calls are counted by class and call name within this process; after a restart the count begins again, so a scripted
//! exit ends every life of the process at the same call. Repeats that join a running call are not counted: the SDK
//! hands them no work.

use std::{borrow::Cow, collections::HashMap, sync::Mutex, time::Duration};

use millwright_provider_sdk::{DriverError, MachineClass, Outcome, Reason};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use crate::spec::Span;

/// Exit code of a scripted end of the process.
const SCRIPTED_EXIT: i32 = 86;

/// A call of the Driver API that can fail by script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
pub(crate) enum Call {
    CreateMachine,
    DeleteMachine,
    GetMachineStatus,
    ListMachines,
    ValidateMachineClass,
    GetNodeTemplate,
}

/// One scripted fault. Names exactly one of `error`, `partial`, `hang`, `lateAnswer`, `unreachable`, `panic`, `exit`; `partial`
/// may stand beside `error`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Fault {
    /// Which call.
    call: Call,
    /// Only on the nth one, counted from 1.
    #[serde(default)]
    nth: Option<u64>,
    /// On every nth one. With neither: on all of them.
    #[serde(default)]
    every: Option<u64>,
    /// Name of an ErrorReason to answer with, for example CAPACITY_UNAVAILABLE.
    #[serde(default)]
    error: Option<ReasonName>,
    /// Wait this long before the work.
    #[serde(default)]
    hang: Option<Span>,
    /// Do the work, then wait this long before the answer.
    #[serde(default)]
    late_answer: Option<Span>,
    /// Do the work, then fail with the outcome PARTIAL.
    #[serde(default)]
    partial: bool,
    /// Zones that `ListMachines` cannot ask: it names them and shows no VM of them.
    #[serde(default)]
    unreachable: Vec<String>,
    /// Panic before the work.
    #[serde(default)]
    panic: bool,
    /// End the process, without any tidying, before the work.
    #[serde(default)]
    exit: bool,
    /// Panic or exit after the work instead, before the answer.
    #[serde(default)]
    after: bool,
}

/// The name of an `ErrorReason`, without its prefix.
#[derive(Clone, Debug, PartialEq)]
struct ReasonName(Reason);

impl<'de> Deserialize<'de> for ReasonName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let unknown = || serde::de::Error::custom(format!("{name:?} is no ErrorReason"));
        Reason::from_name(&name).map(Self).ok_or_else(unknown)
    }
}

impl JsonSchema for ReasonName {
    fn schema_name() -> Cow<'static, str> {
        "ErrorReason".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Reason::all().iter().filter_map(Reason::name).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

impl Fault {
    /// What the types do not say: one effect, one way to count.
    pub(crate) fn check(&self) -> Result<(), String> {
        let fails = self.error.is_some() || self.partial;
        let effects = [
            fails,
            self.hang.is_some(),
            self.late_answer.is_some(),
            !self.unreachable.is_empty(),
            self.panic,
            self.exit,
        ];
        if effects.iter().filter(|is_set| **is_set).count() != 1 {
            return Err(
                "must name exactly one of error, partial, hang, lateAnswer, unreachable, panic, exit".to_owned(),
            );
        }
        if self.nth.is_some() && self.every.is_some() {
            return Err("nth and every exclude each other".to_owned());
        }
        if self.nth == Some(0) || self.every == Some(0) {
            return Err("nth and every count from 1".to_owned());
        }
        if !self.unreachable.is_empty() && self.call != Call::ListMachines {
            return Err("unreachable goes with ListMachines only".to_owned());
        }
        if self.after && !(self.panic || self.exit) {
            return Err("after goes with panic or exit only".to_owned());
        }
        Ok(())
    }

    fn is_due(&self, call: Call, count: u64) -> bool {
        let counts = match (self.nth, self.every) {
            (Some(nth), _) => nth == count,
            (None, Some(every)) => every != 0 && count.is_multiple_of(every),
            (None, None) => true,
        };
        self.call == call && counts
    }

    fn failure(&self) -> Option<DriverError> {
        if self.error.is_none() && !self.partial {
            return None;
        }
        let reason = self
            .error
            .as_ref()
            .map_or(Reason::ProviderUnavailable, |name| name.0.clone());
        let error = DriverError::new(reason, "scripted by the class").provider_code("Scripted");
        Some(if self.partial {
            error.outcome(Outcome::Partial)
        } else {
            error
        })
    }
}

/// How often each class was called.
#[derive(Default)]
pub(crate) struct Script {
    counts: Mutex<HashMap<(String, String, Call), u64>>,
}

impl Script {
    /// The faults that are due on this call, which is counted now.
    pub(crate) fn next(&self, call: Call, class: &MachineClass, faults: &[Fault]) -> Due {
        if faults.is_empty() {
            return Due(Vec::new());
        }
        let mut counts = self.counts.lock().expect("no holder of this lock panics");
        let count = counts
            .entry((class.namespace.clone(), class.name.clone(), call))
            .or_default();
        *count += 1;
        Due(faults
            .iter()
            .filter(|fault| fault.is_due(call, *count))
            .cloned()
            .collect())
    }
}

/// The faults of one call.
pub(crate) struct Due(Vec<Fault>);

impl Due {
    /// Zones that cannot be asked.
    pub(crate) fn unreachable(&self) -> Vec<String> {
        self.0.iter().flat_map(|fault| fault.unreachable.clone()).collect()
    }

    /// Plays what comes before the work.
    pub(crate) async fn before(&self) -> Result<(), DriverError> {
        for fault in &self.0 {
            if let Some(Span(hang)) = fault.hang {
                tokio::time::sleep(hang).await;
            }
            if !fault.after {
                fault.strike();
            }
            if let Some(error) = fault.failure().filter(|_| !fault.partial) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Plays what comes between the work and the answer. `provider_id` is what the work has left.
    pub(crate) async fn after(&self, provider_id: Option<&str>) -> Result<(), DriverError> {
        for fault in &self.0 {
            if fault.after {
                fault.strike();
            }
            let late = fault.late_answer.map_or(Duration::ZERO, |Span(late)| late);
            if !late.is_zero() {
                tokio::time::sleep(late).await;
            }
            if let Some(error) = fault.failure().filter(|_| fault.partial) {
                return Err(error.provider_ids(provider_id));
            }
        }
        Ok(())
    }
}

impl Fault {
    fn strike(&self) {
        if self.exit {
            tracing::warn!(call = ?self.call, "the class scripts the end of the process");
            std::process::exit(SCRIPTED_EXIT);
        }
        assert!(!self.panic, "the class scripts a panic in {:?}", self.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fault(json: serde_json::Value) -> Fault {
        let fault: Fault = serde_json::from_value(json).expect("it parses");
        fault.check().expect("it is consistent");
        fault
    }

    #[test]
    fn nth_strikes_once_every_strikes_again_and_other_calls_do_not_count() {
        let faults = [
            fault(json!({ "call": "CreateMachine", "nth": 2, "error": "QUOTA_EXCEEDED" })),
            fault(json!({ "call": "CreateMachine", "every": 3, "partial": true })),
        ];
        let (script, class) = (Script::default(), MachineClass::default());
        let due = |call| script.next(call, &class, &faults).0.len();
        assert_eq!(due(Call::DeleteMachine), 0);
        let creates: Vec<_> = (0..6).map(|_| due(Call::CreateMachine)).collect();
        assert_eq!(creates, [0, 1, 1, 0, 0, 1]);
    }

    #[test]
    fn a_fault_without_an_effect_or_with_two_is_refused() {
        let none: Fault = serde_json::from_value(json!({ "call": "ListMachines" })).expect("it parses");
        none.check().expect_err("no effect");
        let two = json!({ "call": "ListMachines", "exit": true, "hang": "1s" });
        let two: Fault = serde_json::from_value(two).expect("it parses");
        two.check().expect_err("two effects");
    }

    #[test]
    fn a_zone_that_cannot_be_asked_goes_with_listings_only() {
        let zones = |call: &str| json!({ "call": call, "unreachable": ["moon-b"] });
        let listing = fault(zones("ListMachines"));
        assert_eq!(Due(vec![listing]).unreachable(), ["moon-b"]);
        let create: Fault = serde_json::from_value(zones("CreateMachine")).expect("it parses");
        create.check().expect_err("no listing");
    }

    #[tokio::test]
    async fn partial_fails_after_the_work_and_names_what_is_left() {
        let due = Due(vec![fault(
            json!({ "call": "CreateMachine", "partial": true, "error": "CAPACITY_UNAVAILABLE" }),
        )]);
        due.before().await.expect("the work is done");
        let error = due.after(Some("virtual:///a/b/c")).await.expect_err("then it fails");
        assert_eq!(error.reason().name(), Some("CAPACITY_UNAVAILABLE"));
    }
}
