//! L6: a run ends as the run of its workload in which nothing went wrong, where the same was wanted last.
//!
//! The reference is made once for each workload, without faults, mistakes and times of rest, with the default way at every choice.
//! A human who in this run wanted something else at last cannot be held against it. Of what class VMs that are updated in place were made
//! is their history, so those workloads have no reference.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use millwright_oracles::Ending;

use crate::event::Violation;
use crate::run::{Faults, Outcome, Plan, by_default};

/// The property's name.
pub const PROPERTY: &str = "L6";

static MADE: Mutex<BTreeMap<String, Option<Arc<Ending>>>> = Mutex::new(BTreeMap::new());

/// How the run of a workload ends in which nothing goes wrong. Nothing where that run itself does not end well.
fn of(workload: &str) -> Option<Arc<Ending>> {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = made.get(workload) {
        return known.clone();
    }
    let plan = Plan {
        workload: Some(workload.to_owned()),
        faults: Faults::None,
        rests: false,
        ..Plan::default()
    };
    let ending = by_default(&plan).ending.map(Arc::new);
    made.insert(workload.to_owned(), ending.clone());
    ending
}

/// Compares a run that ended well with its reference.
pub fn judge(outcome: &mut Outcome) {
    let is_of_wishes = outcome.violation.is_none() && !outcome.workload.contains("in-place");
    let comparable = outcome.ending.as_ref().filter(|_| is_of_wishes);
    let reference = comparable.and_then(|_| of(&outcome.workload));
    let both = comparable
        .zip(reference)
        .filter(|(ending, reference)| ending.is_of_the_same_wishes(reference));
    outcome.antecedents.push((PROPERTY, u64::from(both.is_some())));
    if let Some(Err(text)) = both.map(|(ending, reference)| ending.is_the_same(&reference)) {
        outcome.violation = Some(Violation {
            property: PROPERTY,
            text,
        });
    }
}
