//! Makes a failing run small: makes choices tame, and lowers the others, as long as the same property breaks.

use std::collections::BTreeSet;

use crate::choices::Wild;
use crate::run::{Outcome, Plan, by_names};

/// What came of the smallest run found within so many that breaks the same property. `None`: these choices break nothing.
pub fn shrink(plan: &Plan, wild: &[Wild], budget: usize) -> Option<Outcome> {
    let best = by_names(plan, wild);
    let property = best.violation.as_ref()?.property;
    let mut search = Search {
        plan,
        property,
        left: budget,
        best,
    };
    loop {
        let before = weight(&search.best.wild);
        search.tame_points();
        search.tame_stretches();
        search.lower();
        if weight(&search.best.wild) == before || search.left == 0 {
            return Some(search.best);
        }
    }
}

struct Search<'a> {
    plan: &'a Plan,
    property: &'static str,
    left: usize,
    best: Outcome,
}

impl Search<'_> {
    /// Whether these choices are as bad, and fewer or lower; then they are the best.
    fn is_as_bad(&mut self, wild: &[Wild]) -> bool {
        if self.left == 0 || wild == self.best.wild {
            return false;
        }
        self.left -= 1;
        let outcome = by_names(self.plan, wild);
        let broken = outcome.violation.as_ref();
        let is_same = broken.is_some_and(|broken| broken.property == self.property);
        let is_better = is_same && weight(&outcome.wild) < weight(&self.best.wild);
        if is_better {
            self.best = outcome;
        }
        is_better
    }

    /// Makes all that points chose tame, a point at a time.
    fn tame_points(&mut self) {
        let points: BTreeSet<_> = self.best.wild.iter().map(|wild| wild.point.clone()).collect();
        for point in points {
            let others = self.best.wild.iter().filter(|wild| wild.point != point);
            let others: Vec<Wild> = others.cloned().collect();
            self.is_as_bad(&others);
        }
    }

    /// Makes stretches tame, from the end, ever shorter ones.
    fn tame_stretches(&mut self) {
        let mut size = self.best.wild.len();
        while size > 0 {
            let mut end = self.best.wild.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut fewer = self.best.wild.clone();
                fewer.drain(start..end);
                self.is_as_bad(&fewer);
                end = start.min(self.best.wild.len());
            }
            size /= 2;
        }
    }

    /// Lowers single numbers.
    fn lower(&mut self) {
        for at in 0..self.best.wild.len() {
            while let Some(value) = self.best.wild.get(at).map(|wild| wild.value).filter(|value| *value > 1) {
                let mut lower = self.best.wild.clone();
                if let Some(wild) = lower.get_mut(at) {
                    wild.value = value / 2;
                }
                if !self.is_as_bad(&lower) {
                    break;
                }
            }
        }
    }
}

/// What is smaller: fewer choices, then smaller numbers.
fn weight(wild: &[Wild]) -> (usize, u64) {
    (wild.len(), wild.iter().map(|wild| u64::from(wild.value)).sum())
}
