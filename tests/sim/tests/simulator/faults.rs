//! Each fault of processes, reads and watches strikes in some run, does what its name says, and the run comes right.

use millwright_sim::run::{Faults, Outcome, Plan, by_seed};

/// Seeds of which one at least must show what is looked for.
const SEEDS: u64 = 40;

fn plan(workload: &str, faults: &[&str]) -> Plan {
    Plan {
        workload: Some(workload.to_owned()),
        faults: Faults::These(faults.iter().map(|&name| name.to_owned()).collect()),
        rests: false,
        is_told: true,
        ..Plan::default()
    }
}

/// Whether a line of the story tells of this fault.
fn strikes(outcome: &Outcome, name: &str) -> bool {
    let told = format!("FAULT {name}: ");
    outcome.story.iter().any(|line| line.contains(&told))
}

/// The first run of these that shows something. All before it come right, and so does it.
#[track_caller]
fn shown(plan: &Plan, shows: impl Fn(&Outcome) -> bool) -> Outcome {
    for seed in 0..SEEDS {
        let outcome = by_seed(plan, seed);
        assert_eq!(outcome.violation, None, "seed {seed}");
        if shows(&outcome) {
            return outcome;
        }
    }
    panic!("no run of {SEEDS} shows it");
}

/// The number of the line that holds all of these.
fn line(outcome: &Outcome, from: usize, parts: &[&str]) -> Option<usize> {
    let lines = outcome.story.iter().enumerate().skip(from);
    let mut holds = lines.filter(|(_, line)| parts.iter().all(|part| line.contains(part)));
    holds.next().map(|(number, _)| number)
}

#[test]
fn each_fault_of_processes_strikes_and_all_comes_right() {
    for name in ["F2", "F3", "F5", "F16p", "F27"] {
        shown(&plan("create", &[name]), |outcome| strikes(outcome, name));
    }
}

#[test]
fn each_fault_of_reads_and_watches_strikes_and_all_comes_right() {
    for name in ["F14", "F17", "F19", "F22", "F24"] {
        shown(&plan("create", &[name]), |outcome| strikes(outcome, name));
    }
    shown(&plan("machine", &["F23"]), |outcome| strikes(outcome, "F23"));
}

#[test]
fn the_autoscaler_names_victims_and_meets_conflicts_and_all_comes_right() {
    let plan = plan("renew", &["F49"]);
    shown(&plan, |outcome| line(outcome, 0, &["F49", "and wants to go"]).is_some());
    shown(&plan, |outcome| line(outcome, 0, &["F49", "to go first"]).is_some());
    shown(&plan, |outcome| {
        line(outcome, 0, &["autoscaler: Update machinedeployments", "409"]).is_some()
    });
}

#[test]
fn a_list_that_loses_its_version_between_two_pages_is_begun_anew() {
    shown(&plan("scale", &["F14", "F20"]), |outcome| {
        line(outcome, 0, &["is forgotten between two pages"]).is_some()
    });
}

#[test]
fn a_watch_may_tell_any_first_part_of_what_there_is_to_tell() {
    let prefix = |outcome: &Outcome| outcome.points.get("prefix").is_some_and(|count| count.taken > 0);
    shown(&plan("scale", &[]), prefix);
}

#[test]
fn a_leader_that_stood_still_is_deposed_and_what_it_had_sent_arrives_in_the_time_of_its_successor() {
    let plan = Plan {
        is_pair: true,
        ..plan("scale", &["F2"])
    };
    let is_late = |outcome: &Outcome, of: &str, next: &str| {
        let wrote = line(outcome, 0, &[&format!("{of}: Patch machine")])?;
        let still = line(outcome, wrote, &[&format!("{of} stands still")])?;
        let led = line(outcome, still, &[&format!("{next}: Update leases")])?;
        let worked = line(outcome, led, &[&format!("{next}: Patch machine")])?;
        line(outcome, worked, &[&format!("{of}: Patch machine")])
    };
    shown(&plan, |outcome| {
        is_late(outcome, "manager 1", "manager 2").is_some() || is_late(outcome, "manager 2", "manager 1").is_some()
    });
}

#[test]
fn a_leader_that_is_cut_off_stops_and_the_other_leads() {
    let plan = Plan {
        is_pair: true,
        ..plan("scale", &["F16p"])
    };
    let takes_over = |outcome: &Outcome, of: &str, next: &str| {
        let led = line(outcome, 0, &[&format!("{of}: Patch machine")])?;
        let cut = line(outcome, led, &[&format!("{of} is cut off")])?;
        let took = line(outcome, cut, &[&format!("{next}: Update leases"), "→ 200"])?;
        line(outcome, took, &[&format!("{next}: Patch machine")])
    };
    shown(&plan, |outcome| {
        takes_over(outcome, "manager 1", "manager 2")
            .or(takes_over(outcome, "manager 2", "manager 1"))
            .is_some()
    });
}

/// Rows: pains 98.
#[test]
fn who_takes_the_lead_over_lists_all_machines_before_it_writes_any() {
    let plan = Plan {
        is_pair: true,
        ..plan("scale", &["F1r"])
    };
    // The second of two took the lease when the first had died, and wrote.
    let takes_over = |outcome: &Outcome, of: &str, next: &str| {
        let dies = line(outcome, 0, &[&format!("{of} ends: crash")])?;
        let took = line(outcome, 0, &[&format!("{next}: Update leases"), "→ 200"])?;
        let made = line(outcome, 0, &[&format!("{next}: Create leases"), "→ 201"]);
        let wrote = line(outcome, took, &[&format!("{next}: Patch machine")])?;
        (dies < took && made.is_none()).then_some((took, wrote))
    };
    shown(&plan, |outcome| {
        let mut pairs = [("manager 1", "manager 2"), ("manager 2", "manager 1")].into_iter();
        let Some((next, took, wrote)) = pairs.find_map(|(of, next)| {
            let (took, wrote) = takes_over(outcome, of, next)?;
            Some((next, took, wrote))
        }) else {
            return false;
        };
        let listed = line(outcome, took, &[&format!("{next}: List machines ")]);
        assert!(
            listed.is_some_and(|listed| listed < wrote),
            "it acts on what it knew before"
        );
        true
    });
}
