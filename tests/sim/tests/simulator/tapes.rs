//! The tapes in `tapes/`: each bug breaks its property on its tape, and the manager as it is breaks nothing on any of them.

use std::collections::BTreeSet;
use std::sync::Mutex;

use millwright_sim::choices::Deviation;
use millwright_sim::run::Outcome;
use millwright_sim::share;
use millwright_sim::tape::{self, Tape};
use millwright_sim::zoo;

/// How a tape that went stale is made again.
fn anew(name: &str, tape: &Tape) -> String {
    match &tape.bug {
        Some(bug) => format!("`cargo run --release -p millwright-sim -- zoo --tapes --mutant {bug}` writes it anew"),
        None => format!("{} tells how it was recorded", tape::path(name).display()),
    }
}

/// Plays all tapes, on all cores, and gathers what is wrong with them.
fn wrong(has_bug: bool, judge: impl Fn(&Tape, &Outcome) -> Vec<String> + Sync) -> Vec<String> {
    let tapes = tape::committed().unwrap();
    let wrong = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    share::each(&tapes, threads, |(name, tape)| {
        let found = judge(tape, &tape.play(has_bug)).into_iter();
        let found = found.map(|it| format!("{name}: {it}; {}", anew(name, tape)));
        wrong.lock().unwrap().extend(found);
    });
    wrong.into_inner().unwrap()
}

#[test]
fn each_bug_that_is_put_back_breaks_its_property_on_its_tape() {
    let wrong = wrong(true, |tape, outcome| {
        if tape.bug.is_none() {
            return Vec::new();
        }
        let mut found = tape.unmet(outcome);
        let broken = outcome.violation.as_ref().map(|broken| broken.property);
        if broken != tape.breaks.as_deref() {
            found.push(format!("it should break {:?}, and broke {broken:?}", tape.breaks));
        }
        found
    });
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_manager_as_it_is_breaks_nothing_on_any_tape() {
    let wrong = wrong(false, |tape, outcome| {
        // Beside a bug the run goes another way, and need not come to all of its choices.
        let mut found = match tape.bug {
            Some(_) => Vec::new(),
            None => tape.unmet(outcome),
        };
        found.extend(outcome.violation.as_ref().map(|broken| format!("it broke {broken}")));
        found
    });
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_bug_of_the_zoo_has_its_tape() {
    let tapes = tape::committed().unwrap();
    let named = |(name, tape): &(String, Tape)| {
        let bug = tape.bug.clone()?;
        assert_eq!(*name, bug, "a tape bears the name of its bug");
        assert!(tape.breaks.is_some(), "{name} does not say what it breaks");
        Some(bug)
    };
    let taped: BTreeSet<String> = tapes.iter().filter_map(named).collect();
    let bugs: BTreeSet<String> = zoo::all().iter().map(|bug| bug.name.to_owned()).collect();
    assert_eq!(taped, bugs, "`sim zoo --tapes` writes them");
}

#[test]
fn a_choice_that_the_run_does_not_come_to_or_does_not_have_is_told() {
    let choice = |point: &'static str, nth, value| Deviation {
        point: point.into(),
        nth,
        value,
    };
    let tape = Tape {
        workload: "create".to_owned(),
        choices: vec![
            choice("way", 0, 2),
            choice("way", 1, 77),
            choice("lag", 1_000_000, 1),
            choice("tea", 0, 1),
        ],
        ..Tape::default()
    };
    let unmet = tape.unmet(&tape.play(true));
    assert_eq!(unmet.len(), 3, "{unmet:?}");
    assert!(unmet[0].contains("way 1 77 does not fit"), "{unmet:?}");
    assert!(unmet[1].contains("lag 1000000 1 was never reached"), "{unmet:?}");
    assert!(
        unmet[2].contains("tea 0 1 was never reached: tea decided 0 times"),
        "{unmet:?}"
    );
}
