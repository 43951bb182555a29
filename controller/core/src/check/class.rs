//! Laws of plans about classes and Secrets: kept while anybody needs them (W4), told only while they stay, looked at once.

use super::Broken;
use crate::api::meta;
use crate::class::{Observed, Plan, SecretObserved, SecretPlan, SecretStep, Step};

/// The laws that a plan about a class breaks.
pub fn class(seen: &Observed<'_>, plan: &Plan) -> Vec<Broken> {
    let is_leaving = meta::is_deleting(&seen.class.metadata);
    let broken = |step: &Step| match step {
        Step::AddFinalizer => is_leaving.then_some(Broken::GuardOfLeaving),
        Step::RemoveFinalizer => (seen.machines > 0).then_some(Broken::ReleaseOfNeeded),
        Step::Check => seen.is_being_checked.then_some(Broken::CheckedTwice),
        Step::Record(_) => is_leaving.then_some(Broken::TellsOfLeaving),
        Step::Report(_) => (!is_leaving || seen.machines == 0).then_some(Broken::ReportOfNothing),
    };
    plan.steps.iter().filter_map(broken).collect()
}

/// The laws that a plan about a Secret breaks.
pub fn secret(seen: &SecretObserved<'_>, plan: &SecretPlan) -> Vec<Broken> {
    let is_leaving = meta::is_deleting(seen.secret);
    let broken = |step: &SecretStep| match step {
        SecretStep::AddFinalizer => is_leaving.then_some(Broken::GuardOfLeaving),
        SecretStep::RemoveFinalizer => (seen.classes > 0).then_some(Broken::ReleaseOfNeeded),
        SecretStep::Report(_) => (!is_leaving || seen.classes == 0).then_some(Broken::ReportOfNothing),
    };
    plan.steps.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::MachineClass;
    use crate::class::{InUse, Readiness};

    fn seen<'a>(class: &'a MachineClass, machines: usize) -> Observed<'a> {
        Observed {
            class,
            machines,
            first_machine: (machines > 0).then_some("m"),
            readiness: &Readiness::Unchecked,
            found: &Readiness::Unchecked,
            driver_is_here: true,
            is_being_checked: true,
            reported: None,
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
        }
    }

    fn plan(step: Step) -> Plan {
        Plan::act(vec![step], crate::class::Why::Settled)
    }

    #[test]
    fn a_class_that_machines_need_is_neither_let_go_nor_looked_at_twice() {
        let class: MachineClass = serde_json::from_value(json!({"metadata": {"name": "c"}})).expect("a class");
        assert_eq!(
            self::class(&seen(&class, 1), &plan(Step::RemoveFinalizer)),
            [Broken::ReleaseOfNeeded]
        );
        assert_eq!(self::class(&seen(&class, 0), &plan(Step::RemoveFinalizer)), []);
        assert_eq!(
            self::class(&seen(&class, 1), &plan(Step::Check)),
            [Broken::CheckedTwice]
        );
        let in_use = InUse {
            kind: "Machine",
            users: 1,
            first: "m".to_owned(),
        };
        assert_eq!(
            self::class(&seen(&class, 1), &plan(Step::Report(in_use))),
            [Broken::ReportOfNothing],
            "nobody deletes it"
        );
    }

    #[test]
    fn a_secret_that_goes_is_not_guarded_anew_and_one_that_classes_need_is_not_let_go() {
        let going = json!({"name": "s", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let going = serde_json::from_value(going).expect("metadata");
        let seen = SecretObserved {
            secret: &going,
            classes: 1,
            first_class: Some("c"),
            reported: None,
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
        };
        let plan = |step| SecretPlan::act(vec![step], crate::class::Why::Settled);
        assert_eq!(secret(&seen, &plan(SecretStep::AddFinalizer)), [Broken::GuardOfLeaving]);
        assert_eq!(
            secret(&seen, &plan(SecretStep::RemoveFinalizer)),
            [Broken::ReleaseOfNeeded]
        );
    }
}
