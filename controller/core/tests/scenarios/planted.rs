//! Mistakes planted in the planners: a law or a story catches each. The simulator plants the same ones at large (`tests/sim/src/zoo`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use jiff::Timestamp;
use millwright_core::api::{Machine, Phase, meta};
use millwright_core::{machine, set};

use crate::script;
use crate::stage::Stage;

/// What a law says of a story on a stage, if one is broken.
fn caught(mut stage: Stage, story: &str) -> Option<String> {
    let played = catch_unwind(AssertUnwindSafe(|| drop(script::tell(&mut stage, story, "planted"))));
    let panic = played.err()?;
    Some(*panic.downcast::<String>().expect("it says why"))
}

/// The law that a mistake breaks in a story, in which nothing is wrong without it.
fn assert_caught(planted: Stage, story: &str, law: &str) {
    assert_eq!(caught(Stage::default(), story), None);
    let said = caught(planted, story);
    assert!(said.as_ref().is_some_and(|said| said.contains(law)), "{said:?}");
}

/// Machines that run go before machines that are not up yet.
fn running_first(seen: &set::Observed<'_>, now: Timestamp) -> set::Plan {
    let mut plan = set::plan(seen, now);
    let running = seen.owned().filter(|machine| *machine.phase() == Phase::Running);
    for step in &mut plan.steps {
        if let set::Step::Delete(victims) = step {
            for (victim, machine) in victims.iter_mut().zip(running.clone()) {
                (victim.name, victim.uid) = meta::identity(&machine.metadata);
            }
        }
    }
    plan
}

#[test]
fn machines_that_run_before_those_that_are_not_up_yet_break_the_order_of_victims() {
    let story = "create class small
        create set workers of 1
        all nodes join
        edit set workers {\"spec\": {\"replicas\": 2}}
        edit set workers {\"spec\": {\"replicas\": 1}}";
    let mut planted = Stage::default();
    planted.plan_set = running_first;
    assert_caught(planted, story, "VictimOrder");
}

/// A Machine that is being deleted is adopted.
fn adopts_the_leaving(seen: &set::Observed<'_>, now: Timestamp) -> set::Plan {
    let staying = |view: &set::MachineView<'_>| {
        let mut machine = Machine::clone(view);
        machine.metadata.deletion_timestamp = None;
        Arc::new(machine)
    };
    let staying: Vec<Arc<Machine>> = seen.machines.iter().map(staying).collect();
    let others = seen.machines.iter().zip(&staying);
    let others = others.map(|(view, machine)| set::MachineView {
        machine,
        ..view.clone()
    });
    let machines = &others.collect::<Vec<_>>();
    let mut plan = set::plan(&set::Observed { machines, ..*seen }, now);
    // As they are, so that the law sees what is adopted.
    for step in &mut plan.steps {
        if let set::Step::Adopt(adopted) = step {
            let is_among =
                |one: &&set::MachineView<'_>| adopted.iter().any(|other| other.metadata.uid == one.metadata.uid);
            let real = seen.machines.iter().filter(is_among);
            *adopted = real.map(|view| Arc::clone(view.machine)).collect();
        }
    }
    plan
}

#[test]
fn the_adoption_of_a_machine_that_is_being_deleted_is_a_wrong_claim() {
    let story = "create class small
        quietly create machine stray of small {\"metadata\": {\"labels\": {\"pool\": \"workers\"}, \"finalizers\": [\"else/holds\"]}}
        delete machine stray
        create set workers of 1";
    let mut planted = Stage::default();
    planted.plan_set = adopts_the_leaving;
    assert_caught(planted, story, "WrongClaim");
}

/// A VM is asked for without a look at the Machine itself.
fn unconfirmed(seen: &machine::Observed<'_>, now: Timestamp) -> machine::Plan {
    let mut plan = machine::plan(seen, now);
    plan.steps.retain(|step| *step != machine::Step::Confirm);
    plan
}

#[test]
fn a_vm_that_is_asked_for_without_a_look_at_its_machine_is_without_intent() {
    let story = include_str!("a_failed_creation_is_tried_again_until_the_timeout.txt");
    let mut planted = Stage::default();
    planted.plan_machine = unconfirmed;
    assert_caught(planted, story, "CreateWithoutIntent");
}

/// The bootstrap token of a Machine that is deleted is not revoked.
fn token_stays(seen: &machine::Observed<'_>, now: Timestamp) -> machine::Plan {
    let mut plan = machine::plan(seen, now);
    let is_going = meta::is_deleting(&seen.machine.metadata);
    plan.steps
        .retain(|step| !(is_going && *step == machine::Step::DropToken));
    plan
}

/// Rows: W40.
#[test]
fn a_token_that_outlives_its_machine_changes_a_story() {
    let story = include_str!("a_token_goes_with_a_machine_that_never_joined.txt");
    let mut planted = Stage::default();
    planted.plan_machine = token_stays;
    let told = script::play(story, "as it is");
    assert!(told.ends_with("  = nothing\n"), "{told}");
    assert_ne!(script::tell(&mut planted, story, "planted"), told);
    assert!(!planted.tokens.is_empty());
}
