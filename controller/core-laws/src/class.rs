//! Laws of plans about classes and Secrets: kept while anybody needs them (W4), told only while they stay and before what may be
//! refused, looked at once; nothing after the end.

use millwright_core::api::meta;
use millwright_core::class::{Observed, Plan, SecretObserved, SecretPlan, SecretStep, Step};

use crate::report::reported_first;
use crate::{Broken, ends_last, wakes_later};

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
    let is_report = |step: &Step| matches!(step, Step::Record(_) | Step::Report(_));
    let may_fail = |step: &Step| matches!(step, Step::AddFinalizer | Step::RemoveFinalizer | Step::Check);
    let is_end = |step: &Step| is_leaving && *step == Step::RemoveFinalizer;
    let each = plan.steps.iter().filter_map(broken);
    each.chain(reported_first(&plan.steps, is_report, may_fail))
        .chain(ends_last(&plan.steps, is_end))
        .chain(wakes_later(plan.wake, seen.now))
        .collect()
}

/// The laws that a plan about a Secret breaks.
pub fn secret(seen: &SecretObserved<'_>, plan: &SecretPlan) -> Vec<Broken> {
    let is_leaving = meta::is_deleting(seen.secret);
    let is_needed = seen.classes > 0 || seen.first_machine.is_some();
    let broken = |step: &SecretStep| match step {
        SecretStep::AddFinalizer => is_leaving.then_some(Broken::GuardOfLeaving),
        SecretStep::RemoveFinalizer => is_needed.then_some(Broken::ReleaseOfNeeded),
        SecretStep::Report(_) => (!is_leaving || !is_needed).then_some(Broken::ReportOfNothing),
    };
    let is_report = |step: &SecretStep| matches!(step, SecretStep::Report(_));
    let is_end = |step: &SecretStep| is_leaving && *step == SecretStep::RemoveFinalizer;
    let each = plan.steps.iter().filter_map(broken);
    each.chain(reported_first(&plan.steps, is_report, |step| !is_report(step)))
        .chain(ends_last(&plan.steps, is_end))
        .chain(wakes_later(plan.wake, seen.now))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use millwright_core::api::MachineClass;
    use millwright_core::class::{InUse, Readiness};

    fn seen<'a>(class: &'a MachineClass, machines: usize) -> Observed<'a> {
        Observed {
            class,
            machines,
            first_machine: (machines > 0).then_some("m"),
            readiness: &Readiness::Unchecked,
            found: &Readiness::Unchecked,
            driver_is_here: true,
            circuits: millwright_core::circuit_breaker::Circuits::default(),
            is_being_checked: true,
            status_refused: None,
            reported: None,
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
        }
    }

    fn plan(step: Step) -> Plan {
        Plan::act(vec![step], millwright_core::class::Why::Settled)
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
    fn a_report_stands_before_what_may_be_refused_and_nothing_after_the_end() {
        let going = json!({"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let class: MachineClass = serde_json::from_value(going).expect("a class");
        let laws = |seen: Observed<'_>, steps| {
            let seen = Observed {
                is_being_checked: false,
                status_refused: None,
                ..seen
            };
            self::class(&seen, &Plan::act(steps, millwright_core::class::Why::Settled))
        };
        let report = || {
            Step::Report(InUse {
                kind: "Machine",
                users: 1,
                first: "m".to_owned(),
            })
        };
        assert_eq!(laws(seen(&class, 1), vec![report(), Step::Check]), []);
        let behind = laws(seen(&class, 1), vec![Step::Check, report()]);
        assert_eq!(behind, [Broken::ReportBehindFailure]);
        let after = laws(seen(&class, 0), vec![Step::RemoveFinalizer, Step::Check]);
        assert_eq!(after, [Broken::StepAfterTheEnd]);
    }

    #[test]
    fn a_secret_that_goes_is_not_guarded_anew_and_one_that_classes_need_is_not_let_go() {
        let going = json!({"name": "s", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let going = serde_json::from_value(going).expect("metadata");
        let seen = SecretObserved {
            secret: &going,
            classes: 1,
            first_class: Some("c"),
            first_machine: None,
            reported: None,
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
        };
        let plan = |step| SecretPlan::act(vec![step], millwright_core::class::Why::Settled);
        assert_eq!(secret(&seen, &plan(SecretStep::AddFinalizer)), [Broken::GuardOfLeaving]);
        assert_eq!(
            secret(&seen, &plan(SecretStep::RemoveFinalizer)),
            [Broken::ReleaseOfNeeded]
        );
    }
}
