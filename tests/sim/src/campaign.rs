//! Many runs, on all cores: what they found, how fast they were, what they reached.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::choices::Count;
use crate::event::Violation;
use crate::run::{Faults, Outcome, Plan, by_seed};
use crate::strike::{Blow, Strike};

/// A run that broke something.
#[derive(Debug)]
pub struct Failure {
    /// How to have it again: a seed, or the strike.
    pub how: String,
    /// Which seed.
    pub seed: u64,
    /// What broke.
    pub violation: Violation,
    /// The workload.
    pub workload: String,
    /// Its faults.
    pub faults: Vec<&'static str>,
    /// Its choices.
    pub tape: Vec<u32>,
}

/// What many runs came to.
#[derive(Debug, Default)]
pub struct Sum {
    /// Runs.
    pub runs: u64,
    /// Virtual time of all.
    pub passed: Duration,
    /// Requests of managers.
    pub requests: u64,
    /// Those that changed something.
    pub writes: u64,
    /// Real time.
    pub took: Duration,
    /// Threads.
    pub threads: usize,
    /// What broke.
    pub failures: Vec<Failure>,
    /// Points of choice.
    pub points: BTreeMap<&'static str, Count>,
    /// What oracles could judge.
    pub antecedents: BTreeMap<&'static str, u64>,
    /// Identity of each run.
    pub digests: BTreeMap<u64, u64>,
}

impl Sum {
    fn add(&mut self, seed: u64, how: String, outcome: Outcome) {
        self.runs += 1;
        self.passed += outcome.passed;
        self.requests += outcome.requests;
        self.writes += outcome.writes;
        self.digests.insert(seed, outcome.digest);
        for (point, count) in outcome.points {
            let all = self.points.entry(point).or_default();
            all.asked += count.asked;
            all.taken += count.taken;
        }
        for (name, count) in outcome.antecedents {
            *self.antecedents.entry(name).or_default() += count;
        }
        if let Some(violation) = outcome.violation {
            self.failures.push(Failure {
                how,
                seed,
                violation,
                workload: outcome.workload,
                faults: outcome.faults,
                tape: outcome.tape,
            });
        }
    }

    /// Runs a second and core.
    pub fn pace(&self) -> f64 {
        self.runs as f64 / self.took.as_secs_f64() / self.threads.max(1) as f64
    }

    /// Virtual hours a second of real time.
    pub fn speed(&self) -> f64 {
        self.passed.as_secs_f64() / 3600.0 / self.took.as_secs_f64()
    }
}

/// One run of a campaign: its plan, its seed, and how to have it again.
pub type Job = (Plan, u64, String);

/// Runs all of `jobs` on so many threads.
pub fn all(jobs: &[Job], threads: usize) -> Sum {
    let begun = Instant::now();
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Sum::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((plan, seed, how)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = by_seed(plan, *seed);
                    sum.lock()
                        .expect("nothing panics under this lock")
                        .add(*seed, how.clone(), outcome);
                }
            });
        }
    });
    let mut sum = sum.into_inner().expect("nothing panics under this lock");
    sum.took = begun.elapsed();
    sum.threads = threads;
    sum.failures.sort_by(|one, other| one.how.cmp(&other.how));
    sum
}

/// The exhaustive campaign of one workload: each kind of blow that fits, at each call of the run without faults. It is about that one
/// call, so nobody rests in it.
pub fn strikes(plan: &Plan, seed: u64) -> Vec<Job> {
    let plan = Plan {
        rests: false,
        ..plan.clone()
    };
    let clean = Plan {
        faults: Faults::None,
        ..plan.clone()
    };
    let workload = plan.workload.clone().unwrap_or_default();
    let pair = if plan.is_pair { " --pair" } else { "" };
    let of_call = |(call, kinds): (u64, &'static [(&'static str, Blow)])| {
        let (plan, workload) = (plan.clone(), workload.clone());
        kinds.iter().map(move |&(fault, blow)| {
            let faults = Faults::Strike(Strike { fault, call, blow });
            let how = format!("--workload {workload} --seed {seed}{pair} --strike {fault}:{blow:?}@{call}");
            (Plan { faults, ..plan.clone() }, seed, how)
        })
    };
    (0..).zip(by_seed(&clean, seed).calls).flat_map(of_call).collect()
}

/// Seeds of a range, each run once.
pub fn seeds(plan: &Plan, from: u64, to: u64) -> Vec<Job> {
    (from..to)
        .map(|seed| (plan.clone(), seed, format!("--seed {seed}")))
        .collect()
}
