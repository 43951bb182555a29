//! Runs that once went wrong, each by one harm at one call. What they found is mended and told in the git history; the same
//! harm must go on to strike, or the run proves nothing any more.

use millwright_sim::call_fault::{CallFault, InjectedFault};
use millwright_sim::run::{Faults, Plan, by_seed};

/// One harm at a call, by its number, and what the story must tell of it.
struct Regression {
    workload: &'static str,
    seed: u64,
    strike: InjectedFault,
    words: &'static str,
}

const fn strike(fault: &'static str, call_fault: CallFault, call: u64) -> InjectedFault {
    InjectedFault {
        fault,
        call,
        call_fault,
    }
}

#[track_caller]
fn comes_right(all: &[Regression]) {
    for regression in all {
        let plan = Plan {
            workload: Some(regression.workload.to_owned()),
            faults: Faults::Injected(regression.strike),
            rests: false,
            is_told: true,
            ..Plan::default()
        };
        let outcome = by_seed(&plan, regression.seed);
        let how = format!("{} {:?}", regression.workload, regression.strike);
        assert_eq!(outcome.violation, None, "{how}: {:#?}", outcome.story);
        let struck = outcome.story.iter().filter(|line| line.contains("FAULT"));
        let struck: Vec<&String> = struck.collect();
        assert!(
            struck.iter().any(|line| line.contains(regression.words)),
            "{how} struck {struck:?}, and not {:?}",
            regression.words
        );
    }
}

/// The answer to the deletion of a Machine arrived when the Machine was gone, and brought it back into the cache for ever.
///
/// With the fence's part of the mending (ca7c445) undone by hand these strikes break nothing any more, nor does any other on this
/// workload: what else was mended since ends such a Machine, too. So there is no tape of it; `core/src/store.rs` tests the fence.
#[test]
fn a_machine_that_is_gone_is_not_brought_back_by_a_late_answer() {
    let of = |strike, words| Regression {
        workload: "away",
        seed: 1,
        strike,
        words,
    };
    comes_right(&[
        of(strike("F6", CallFault::Refuse(409), 27), "F6"),
        of(strike("F9", CallFault::Silence, 17), "F9"),
        of(strike("F1", CallFault::DieAfter, 0), "F1"),
    ]);
}

/// A creation that arrived late is nobody's fault, and one machine too many is taken away again. Whichever of them it is: the number of
/// the call is not fixed, because every request that is saved elsewhere would change it.
#[test]
fn a_creation_that_arrives_late_makes_no_more_than_one_machine_for_a_while() {
    let mut struck = 0;
    for call in 0..60 {
        let plan = Plan {
            workload: Some("node".to_owned()),
            faults: Faults::Injected(strike("F10", CallFault::Late, call)),
            rests: false,
            is_told: true,
            ..Plan::default()
        };
        let outcome = by_seed(&plan, 1);
        let is_creation = |line: &String| line.contains("FAULT") && line.contains("Create machines");
        if outcome.story.iter().any(is_creation) {
            assert_eq!(outcome.violation, None, "at call {call}: {:#?}", outcome.story);
            struck += 1;
        }
    }
    assert!(
        struck >= 3,
        "two machines, the one in place of the first, and one more are made: {struck}"
    );
}

/// A driver that spoke of a newer leader that there was not was never answered where it was asked to delete an orphan, and kept it. In
/// which runs it is asked meanwhile is not fixed, as above.
#[test]
fn an_orphan_goes_although_its_driver_speaks_of_a_leader_that_there_is_not() {
    let mut refused = 0;
    for seed in 291..391 {
        let plan = Plan {
            workload: Some("orphans".to_owned()),
            faults: Faults::These(vec!["F56x5".to_owned(), "F1r".to_owned()]),
            rests: false,
            is_told: true,
            ..Plan::default()
        };
        let outcome = by_seed(&plan, seed);
        assert_eq!(outcome.violation, None, "seed {seed}: {:#?}", outcome.story);
        let is_refused = |line: &String| line.contains("DeleteMachine") && line.contains("FailedPrecondition");
        refused += usize::from(outcome.story.iter().any(is_refused));
        if refused == 5 {
            return;
        }
    }
    panic!("of a hundred runs an orphan was refused in {refused}");
}

/// A check that had begun with a class from before its edit was believed of the edited one: its recipe made a Machine ask for a VM that
/// nobody would make, again and again without a pause.
#[test]
fn a_check_of_a_class_from_before_its_edit_is_not_believed() {
    comes_right(&[Regression {
        workload: "edit-class",
        seed: 1,
        strike: strike("F16p", CallFault::Cut, 15),
        words: "F16p",
    }]);
}
