//! A planner that never comes to rest ends its story within seconds, and not when the memory is full.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use millwright_core::driver::Call;
use millwright_core::ledger::OwnerNotes;
use millwright_core::set::{self, Observed, Plan};

use crate::cloud::Dictated;
use crate::script;
use crate::stage::Stage;

/// What the end of the story says, which must come soon.
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn ends(stage: &mut Stage, lines: &[&str]) -> String {
    let begun = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        for line in lines {
            script::line(stage, line);
        }
    }));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(30), "it took {took:?}");
    let panic = ended.expect_err("it never becomes quiet");
    *panic.downcast::<String>().expect("it says why")
}

/// Names are taken from the counter, not from the lowest number that may still be under way.
fn names_from_counter(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut set = seen.set.clone();
    if let Some(status) = &mut Arc::make_mut(&mut set).status {
        status.settled_machine_number = status.next_machine_number;
    }
    set::plan(&Observed { set: &set, ..*seen }, now)
}

/// Failed Machines are replaced at the same pace for ever.
fn forgets_replacements(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let notes = OwnerNotes {
        replaced: None,
        ..seen.notes.clone()
    };
    set::plan(&Observed { notes: &notes, ..*seen }, now)
}

#[test]
fn a_planner_that_names_without_end_ends_its_story() {
    let mut stage = Stage::default();
    stage.plan_set = names_from_counter;
    let lines = [
        "create class small",
        "creations are lost",
        "create set workers of 3",
        "after 36000",
    ];
    let words = ends(&mut stage, &lines);
    assert!(words.contains("never becomes quiet"), "{words}");
}

#[test]
fn a_planner_that_makes_and_replaces_without_end_ends_its_story() {
    let mut stage = Stage::default();
    stage.plan_set = forgets_replacements;
    let broken = std::iter::repeat_n((Call::Create, Dictated::Broken), 10_000);
    stage.cloud.dictated.extend(broken);
    let lines = ["create class small", "create set workers of 3", "after 36000"];
    let words = ends(&mut stage, &lines);
    assert!(words.contains("never becomes quiet"), "{words}");
}
