//! Many runs, on all cores: what they found, how fast they were, what they reached.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::call_fault::{CallFault, InjectedFault};
use crate::choices::{Count, mix};
use crate::event::Violation;
use crate::fault;
use crate::provider::Transport;
use crate::run::{Faults, Outcome, Plan, by_seed};
use crate::share;
use crate::workload;

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
    /// How often each fault struck.
    pub struck: BTreeMap<&'static str, u64>,
    /// What oracles could judge.
    pub antecedents: BTreeMap<&'static str, u64>,
    /// Identity of each run.
    pub digests: BTreeMap<u64, u64>,
}

impl Sum {
    /// What one run came to.
    fn of(seed: u64, how: String, outcome: Outcome) -> Self {
        let failure = outcome.violation.map(|violation| Failure {
            how,
            seed,
            violation,
            workload: outcome.workload,
            faults: outcome.faults,
        });
        Self {
            runs: 1,
            passed: outcome.passed,
            requests: outcome.requests,
            writes: outcome.writes,
            failures: failure.into_iter().collect(),
            points: outcome.points,
            struck: outcome.struck,
            antecedents: outcome.antecedents.into_iter().collect(),
            digests: [(seed, outcome.digest)].into(),
            ..Self::default()
        }
    }

    /// Takes in what others came to. Of runs with the same seed the last one's digest is kept.
    pub fn take(&mut self, other: Self) {
        self.runs += other.runs;
        self.passed += other.passed;
        self.requests += other.requests;
        self.writes += other.writes;
        self.took += other.took;
        self.threads = self.threads.max(other.threads);
        self.failures.extend(other.failures);
        self.digests.extend(other.digests);
        for (point, count) in other.points {
            let all = self.points.entry(point).or_default();
            all.asked += count.asked;
            all.taken += count.taken;
        }
        for (name, count) in other.struck {
            *self.struck.entry(name).or_default() += count;
        }
        for (name, count) in other.antecedents {
            *self.antecedents.entry(name).or_default() += count;
        }
    }

    /// Faults that struck, and properties that could be judged, less often than `least` times: what they prove is little.
    pub fn rare(&self, least: u64) -> Vec<(&'static str, u64)> {
        let judged = self.antecedents.iter().map(|(name, count)| (*name, *count));
        let judged = judged.filter(|(_, count)| *count < least);
        self.rare_faults(least).into_iter().chain(judged).collect()
    }

    /// Faults that struck less often than `least` times.
    pub fn rare_faults(&self, least: u64) -> Vec<(&'static str, u64)> {
        let struck = |fault: &str| self.struck.get(fault).copied().unwrap_or(0);
        let faults = fault::drawn().into_iter().map(|fault| (fault.name, struck(fault.name)));
        faults.filter(|(_, count)| *count < least).collect()
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

/// Runs all of `jobs` on so many threads; after each, `progress` hears how many have been run and how many of them failed.
pub fn all(jobs: &[Job], threads: usize, progress: &(dyn Fn(u64, usize) + Sync)) -> Sum {
    let begun = Instant::now();
    let sum = Mutex::new(Sum::default());
    share::each(jobs, threads, |(plan, seed, how)| {
        let outcome = by_seed(plan, *seed);
        let mut sum = sum.lock().expect("nothing panics under this lock");
        sum.take(Sum::of(*seed, how.clone(), outcome));
        let (runs, failures) = (sum.runs, sum.failures.len());
        drop(sum);
        progress(runs, failures);
    });
    let mut sum = sum.into_inner().expect("nothing panics under this lock");
    sum.took = begun.elapsed();
    sum.threads = threads;
    sum.failures.sort_by(|one, other| one.how.cmp(&other.how));
    sum
}

/// What `sim replay` needs to be told for this run. Of faults, only those by choice need no word.
fn arguments(plan: &Plan, seed: u64) -> String {
    let mut all = seed.to_string();
    if let Some(name) = &plan.workload {
        all += &format!(" --workload {name}");
    }
    match &plan.faults {
        Faults::None => all += " --faults none",
        Faults::These(names) => all += &format!(" --faults {}", names.join(",")),
        Faults::Swarm | Faults::Injected(_) => {}
    }
    let flags = [
        (plan.transport == Transport::Grpc, " --transport grpc"),
        (plan.is_pair, " --pair"),
        (!plan.rests, " --no-rest"),
    ];
    all.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
    all
}

/// The exhaustive campaign of one workload: each kind of fault of a call that fits, at each call of the run without faults. It is about that one
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
    let of_call = |(call, kinds): (u64, &'static [(&'static str, CallFault)])| {
        let plan = plan.clone();
        kinds.iter().map(move |&(fault, call_fault)| {
            let faults = Faults::Injected(InjectedFault {
                fault,
                call,
                call_fault,
            });
            let how = format!("{} --strike {fault}:{call_fault:?}@{call}", arguments(&plan, seed));
            (Plan { faults, ..plan.clone() }, seed, how)
        })
    };
    (0..).zip(by_seed(&clean, seed).calls).flat_map(of_call).collect()
}

/// Seeds of which the shortest run is struck: those in which managers elect a leader hold mostly calls for its lease.
const CANDIDATES: u64 = 6;

/// The exhaustive campaign of all workloads, and of two managers under one lease.
pub fn exhaustive(plan: &Plan) -> Vec<Job> {
    let single = workload::ALL.iter().flat_map(|name| {
        let plan = Plan {
            workload: Some((*name).to_owned()),
            faults: Faults::None,
            rests: false,
            ..plan.clone()
        };
        let shortest = (0..CANDIDATES).min_by_key(|seed| by_seed(&plan, *seed).calls.len());
        strikes(&plan, shortest.unwrap_or_default())
    });
    let pair = Plan {
        workload: Some("create".to_owned()),
        is_pair: true,
        ..plan.clone()
    };
    single.chain(strikes(&pair, 0)).collect()
}

/// One in so many of these runs, which ones by the seed: other seeds come to the others.
pub fn sample(jobs: Vec<Job>, seed: u64, one_in: u64) -> Vec<Job> {
    let numbered = (0..).zip(jobs);
    let kept = numbered.filter(|(number, _): &(u64, _)| mix(seed ^ mix(*number)).is_multiple_of(one_in));
    kept.map(|(_, job)| job).collect()
}

/// One run in so many has a time of rest, which takes longer than all the rest of it.
const RESTS: u64 = 4;

/// Seeds of a range, each run once; where the plan has times of rest, every fourth has one.
pub fn seeds(plan: &Plan, from: u64, to: u64) -> Vec<Job> {
    let job = |seed: u64| {
        let rests = plan.rests && seed.is_multiple_of(RESTS);
        let plan = Plan { rests, ..plan.clone() };
        let how = arguments(&plan, seed);
        (plan, seed, how)
    };
    (from..to).map(job).collect()
}
