//! What may go wrong at the driver, its cloud and by the human's hand strikes and is got over, and gRPC over pipes is as good
//! a way to the driver as a call in the process.

use millwright_sim::call_fault::{CallFault, InjectedFault};
use millwright_sim::provider::Transport;
use millwright_sim::run::{Faults, Outcome, Plan, by_seed};
use millwright_sim::seed;

/// Seeds of which one at least must show a fault.
const SEEDS: u64 = 60;
/// Runs over gRPC; the campaign makes hundreds.
const GRPC_SEEDS: u64 = 5;

fn plan(workload: &str, faults: Faults) -> Plan {
    Plan {
        workload: Some(workload.to_owned()),
        faults,
        rests: false,
        is_told: true,
        ..Plan::default()
    }
}

fn right(outcome: &Outcome, how: &str) {
    assert_eq!(outcome.violation, None, "{how}: {:#?}", outcome.story);
}

/// Runs until each of these words was told of a fault; all these runs come right.
#[track_caller]
fn strikes(workload: &str, faults: &[&str], words: &[&str]) {
    let named = faults.iter().map(|name| (*name).to_owned()).collect();
    let plan = plan(workload, Faults::These(named));
    let mut missing = words.to_vec();
    for seed in 0..SEEDS {
        let outcome = by_seed(&plan, seed);
        right(&outcome, &format!("{workload} {faults:?} seed {seed}"));
        let is_told = |words: &str| {
            let mut lines = outcome.story.iter();
            lines.any(|line| line.contains("FAULT") && line.contains(words))
        };
        missing.retain(|words| !is_told(words));
        if missing.is_empty() {
            return;
        }
    }
    panic!("{missing:?} came in none of {SEEDS} runs");
}

#[test]
fn an_answer_that_says_too_little_is_asked_for_again() {
    strikes("again", &["F32"], &["FAULT F32"]);
}

#[test]
fn a_driver_of_an_older_version_is_used_for_what_it_can() {
    let words = [
        "F33: the driver is an older version",
        "F33: the driver's process is replaced",
    ];
    strikes("scale", &["F33"], &words);
}

#[test]
fn a_vm_that_lookups_show_after_its_end_holds_nobody_up_for_ever() {
    strikes("again", &["F36"], &["FAULT F36"]);
}

#[test]
fn a_creation_that_was_accepted_and_came_to_nothing_is_made_good() {
    strikes("create", &["F38"], &["FAULT F38"]);
}

/// Rows: pains 1.
#[test]
fn a_creation_that_failed_half_way_leaves_no_second_vm() {
    strikes("scale", &["F39"], &["FAULT F39"]);
}

#[test]
fn a_shortage_and_a_throttle_are_waited_out() {
    strikes("rotate", &["F42"], &["F42: CreateMachine of"]);
    strikes("scale", &["F43"], &["is throttled for"]);
}

/// Rows: pains 23.
#[test]
fn a_node_that_joins_while_its_vm_goes_goes_too() {
    strikes("machine", &["F40", "F45"], &["joins although its VM goes"]);
}

/// Rows: W1, pains 99.
#[test]
fn the_same_name_with_a_new_uid_is_another_object() {
    let words = ["Background", "Orphan", "Foreground"].map(|policy| format!("is deleted ({policy}) and made again"));
    strikes("rotate", &["F51"], &words.each_ref().map(String::as_str));
}

#[test]
fn the_humans_accidents_are_got_over() {
    let words = [
        "takes the finalizers from machines",
        "takes the finalizers from machinesets",
        "secrets user-data is deleted by force",
        "is deleted and made again",
        "template of workers",
        r#"{"labels":{"name":"another"}}"#,
        "PATCH machinesets",
        "DELETE machinesets",
    ];
    strikes("rotate", &["F48"], &words);
}

/// Rows: W36.
#[test]
fn a_creation_that_never_boots_does_not_hold_up_the_deletion_of_its_machine() {
    let clean = Plan {
        transport: Transport::Grpc,
        ..plan("again", Faults::None)
    };
    let calls = by_seed(&clean, 0).calls;
    let mut struck = 0;
    for (call, kinds) in (0..).zip(calls) {
        for &(fault, call_fault) in kinds {
            if !matches!(
                call_fault,
                CallFault::NeverBoots | CallFault::FailsLater | CallFault::Partial | CallFault::Bare
            ) {
                continue;
            }
            let faults = Faults::Injected(InjectedFault {
                fault,
                call,
                call_fault,
            });
            let outcome = by_seed(
                &Plan {
                    faults,
                    ..clean.clone()
                },
                0,
            );
            right(&outcome, &format!("{fault} {call_fault:?} at call {call}"));
            struck += 1;
        }
    }
    assert!(struck >= 8, "only {struck} call faults fitted");
}

#[test]
fn runs_over_grpc_come_right_and_are_what_their_seeds_say() {
    let plan = Plan {
        transport: Transport::Grpc,
        is_told: true,
        ..Plan::default()
    };
    let first = seed::first();
    for seed in first..first + GRPC_SEEDS {
        // Rest is long and has little to do with what carries calls.
        let rests = seed == first;
        let plan = Plan { rests, ..plan.clone() };
        let outcome = by_seed(&plan, seed);
        right(&outcome, &format!("seed {seed}"));
        if rests {
            assert_eq!(outcome.digest, by_seed(&plan, seed).digest, "seed {seed}");
        }
    }
}

#[test]
fn a_connection_to_a_driver_that_died_is_made_anew() {
    let faults = || Faults::These(vec!["F28".to_owned()]);
    let plan = Plan {
        transport: Transport::Grpc,
        ..plan("scale", faults())
    };
    let lost = |outcome: &Outcome| {
        let died = outcome.story.iter().position(|line| line.contains("FAULT F28"));
        died.is_some_and(|died| {
            let after = outcome.story.iter().skip(died);
            after.filter(|line| line.contains("driver: CreateMachine")).count() > 0
        })
    };
    let outcome = (0..SEEDS).map(|seed| by_seed(&plan, seed)).find(lost).unwrap();
    right(&outcome, "a driver that died");
}
