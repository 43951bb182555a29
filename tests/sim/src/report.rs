//! What the command line prints.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use millwright_sim::campaign::Sum;
use millwright_sim::fault;
use millwright_sim::run::Outcome;

/// Failures that are printed in full.
const SHOWN: usize = 20;
/// How often a campaign says how far it is.
const PROGRESS: Duration = Duration::from_secs(15);

/// Says on stderr now and then how far a campaign of so many runs is.
pub fn progress(of: usize) -> impl Fn(u64, usize) + Sync {
    let last = Mutex::new(Instant::now());
    move |runs, failures| {
        let mut last = last.lock().expect("nothing panics under this lock");
        if last.elapsed() >= PROGRESS {
            *last = Instant::now();
            eprintln!("  {runs} of {of} runs, {failures} failed");
        }
    }
}

/// How often each point of choice was reached.
pub fn print_coverage(sum: &Sum) {
    println!("{:20} {:>10} {:>10}", "point", "asked", "taken");
    for (point, count) in &sum.points {
        println!("{point:20} {:>10} {:>10}", count.asked, count.taken);
    }
}

/// The digest of each run.
pub fn print_digests(sum: &Sum) {
    sum.digests
        .iter()
        .for_each(|(seed, digest)| println!("{seed} {digest:016x}"));
}

/// All faults, by their names.
pub fn faults() -> ExitCode {
    fault::ALL
        .iter()
        .for_each(|fault| println!("{:4} {}", fault.name, fault.what));
    ExitCode::SUCCESS
}

/// What a campaign came to.
pub fn tell(sum: &Sum, is_same: bool) -> ExitCode {
    print_failures(sum);
    // An oracle with nothing to judge proves nothing: its zero is shown.
    let hits: Vec<String> = sum
        .antecedents
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("judged: {}", hits.join(", "));
    println!(
        "{} runs in {:.1} s on {} threads: {:.0} runs/s/core, {:.0} simulated hours/s, {:.0} requests a run ({:.0} writes), {} failed",
        sum.runs,
        sum.took.as_secs_f64(),
        sum.threads,
        sum.pace(),
        sum.speed(),
        sum.requests as f64 / sum.runs.max(1) as f64,
        sum.writes as f64 / sum.runs.max(1) as f64,
        sum.failures.len()
    );
    if sum.failures.is_empty() && is_same {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The first failures, and how many there were of each kind.
fn print_failures(sum: &Sum) {
    let mut kinds: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for failure in &sum.failures {
        // Numbers and names differ from run to run; what broke is the same.
        let kind: String = failure
            .violation
            .to_string()
            .chars()
            .filter(|letter| !letter.is_ascii_digit())
            .collect();
        let entry = kinds.entry(kind).or_insert_with(|| (0, failure.how.clone()));
        entry.0 += 1;
    }
    for failure in sum.failures.iter().take(SHOWN) {
        let faults = failure.faults.join(",");
        println!(
            "FAILED {} ({}; {faults}) {}",
            failure.how, failure.workload, failure.violation
        );
    }
    if kinds.len() > 1 {
        println!("--- {} kinds of failure", kinds.len());
        kinds
            .iter()
            .take(SHOWN)
            .for_each(|(kind, (count, how))| println!("{count:6} {how}: {kind}"));
    }
}

/// One run from its beginning to its end.
pub fn story(outcome: &Outcome) -> ExitCode {
    outcome.story.iter().for_each(|line| println!("{line}"));
    let choices: u64 = outcome.points.values().map(|count| count.asked).sum();
    println!(
        "workload {}, faults {:?}: {} events, {} requests, {} writes, {choices} choices ({} not the default), {:.1} s of virtual time, digest {:016x}",
        outcome.workload,
        outcome.faults,
        outcome.events,
        outcome.requests,
        outcome.writes,
        outcome.deviations.len(),
        outcome.passed.as_secs_f64(),
        outcome.digest
    );
    match &outcome.violation {
        None => {
            println!("all came right");
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("BROKEN {violation}");
            ExitCode::FAILURE
        }
    }
}
